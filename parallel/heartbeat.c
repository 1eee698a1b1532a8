#include "parallel/heartbeat.h"

#include "base/mem.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PERIOD_US = 1000000, TELL_TIMES = 3 };

/* A datagram: the receiver's secret, and a word. */
enum word { ALIVE = 1, ENDS = 2 };
enum { DATAGRAM_BYTES = HEARTBEAT_SECRET_BYTES + 1 };

struct heartbeat {
	int fd;
	struct heartbeat_card own, next;
	long long sent_us, turn_us;   /* times of the last; 0: never */
	long long silent_us;
	int heard, told;              /* a sign, once at least; that the job ends */
};

/* Addresses of networks other than this host itself; that one only when there is no other. */
static void find_addresses(uint32_t *addresses)
{
	struct ifaddrs *all;
	int n = 0;
	if (getifaddrs(&all))
		return;
	for (unsigned loopback = 0; loopback <= IFF_LOOPBACK && !n; loopback += IFF_LOOPBACK) {
		for (const struct ifaddrs *a = all; a && n < HEARTBEAT_ADDRESSES; a = a->ifa_next) {
			struct sockaddr_in in;
			if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || !(a->ifa_flags & IFF_UP) ||
			    (a->ifa_flags & IFF_LOOPBACK) != loopback)
				continue;
			memcpy(&in, a->ifa_addr, sizeof in);
			addresses[n++] = in.sin_addr.s_addr;
		}
	}
	freeifaddrs(all);
}

static enum err open_port(struct heartbeat *h)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
	socklen_t size = sizeof in;
	h->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (h->fd < 0 || bind(h->fd, (struct sockaddr *)&in, sizeof in) || getsockname(h->fd, (struct sockaddr *)&in, &size))
		return ERR(IO, "no port for signs of life between nodes: %s", strerror(errno));
	h->own.port = in.sin_port;
	return ERR_OK;
}

enum err heartbeat_open(struct heartbeat_card *card, struct heartbeat **out)
{
	struct heartbeat *h;
	TRY(MEM_NEW(1, struct heartbeat, &h));
	enum err e = open_port(h);
	if (!e && getrandom(h->own.secret, sizeof h->own.secret, 0) != (ssize_t)sizeof h->own.secret)
		e = ERR(IO, "no random bytes: %s", strerror(errno));
	if (e) {
		heartbeat_close(h);
		return e;
	}
	find_addresses(h->own.addresses);
	*card = h->own;
	*out = h;
	return ERR_OK;
}

void heartbeat_send_to(struct heartbeat *h, const struct heartbeat_card *next)
{
	h->next = *next;
}

/* What cannot be sent is missed by the receiver, which is whose business it is. */
static void send_word(const struct heartbeat *h, enum word word)
{
	unsigned char data[DATAGRAM_BYTES];
	memcpy(data, h->next.secret, HEARTBEAT_SECRET_BYTES);
	data[HEARTBEAT_SECRET_BYTES] = (unsigned char)word;
	for (int i = 0; i < HEARTBEAT_ADDRESSES && h->next.addresses[i] && h->next.port; i++) {
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = h->next.port };
		to.sin_addr.s_addr = h->next.addresses[i];
		if (sendto(h->fd, data, sizeof data, MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof to) < 0)
			continue;   /* not a network of ours */
	}
}

/* Everything that has arrived; 1 when a sign was among it. An error that an earlier sign brought back is no end. */
static int listen_now(struct heartbeat *h)
{
	unsigned char data[DATAGRAM_BYTES + 1];
	int heard = 0;
	for (int most = 0; most < 1000; most++) {   /* strangers may send, too */
		ssize_t n = recv(h->fd, data, sizeof data, 0);
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n != DATAGRAM_BYTES || memcmp(data, h->own.secret, HEARTBEAT_SECRET_BYTES))
			continue;
		heard = 1;
		h->told |= data[HEARTBEAT_SECRET_BYTES] == ENDS;
	}
	return heard;
}

long long heartbeat_turn(struct heartbeat *h, long long now_us)
{
	if (!h->sent_us || now_us - h->sent_us >= PERIOD_US) {
		send_word(h, ALIVE);
		h->sent_us = now_us;
	}
	long long passed_us = h->turn_us ? now_us - h->turn_us : 0;
	h->turn_us = now_us;
	h->silent_us += passed_us < PERIOD_US ? passed_us : PERIOD_US;   /* this rank itself may have been suspended */
	if (listen_now(h)) {
		h->heard = 1;
		h->silent_us = 0;
	}
	return h->heard ? h->silent_us : 0;
}

void heartbeat_end(struct heartbeat *h)
{
	for (int i = 0; i < TELL_TIMES; i++)   /* one may get lost */
		send_word(h, ENDS);
}

int heartbeat_was_told(const struct heartbeat *h) { return h->told; }

void heartbeat_close(struct heartbeat *h)
{
	if (!h)
		return;
	if (h->fd >= 0)
		close(h->fd);
	mem_free(h);
}
