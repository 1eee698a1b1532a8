/* Nodes in a ring, in the order of their numbers: the lowest rank of each speaks for it, see heartbeat.h. */
#include "parallel/watch_nodes.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "parallel/heartbeat.h"
#include "parallel/watch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SILENT_S = 5 };   /* longer is a lost node: with the job's end it stays below 10 s */

static struct {
	_Atomic(struct heartbeat *) heart;   /* NULL: this rank does not speak for its node, or there is one node */
	char before[160];                    /* the node that this one listens to */
	int silent_s;
} ring;

struct node_card { struct heartbeat_card card; char host[64]; };

/* "host n3 (ranks 4-5,8)" */
static void name_node(const struct comm *world, int node, const char *host)
{
	size_t at = 0, room = sizeof ring.before;
	int n = comm_size(world), first = 1;
	at += (size_t)snprintf(ring.before, room, "host %.60s (ranks ", host);
	for (int r = 0; r < n && at < room - 32; r++) {
		int last = r;
		if (comm_node_of(world, r) != node)
			continue;
		while (last + 1 < n && comm_node_of(world, last + 1) == node)
			last++;
		at += (size_t)snprintf(ring.before + at, room - at, last > r ? "%s%d-%d" : "%s%d", first ? "" : ",", r, last);
		first = 0;
		r = last;
	}
	snprintf(ring.before + at, room - at, at < room - 32 ? ")" : ",...)");
}

/* The rank that speaks for a node: its lowest. */
static int speaker_of(const struct comm *world, int node)
{
	int r = 0;
	while (comm_node_of(world, r) != node)
		r++;
	return r;
}

static void join_ring(const struct comm *world, struct heartbeat *heart, const unsigned char *cards, const size_t *offsets)
{
	struct node_card next, before;
	int n_nodes = comm_n_nodes(world), own = comm_node_of(world, comm_rank(world)), node = (own + n_nodes - 1) % n_nodes;
	memcpy(&next, cards + offsets[speaker_of(world, (own + 1) % n_nodes)], sizeof next);
	memcpy(&before, cards + offsets[speaker_of(world, node)], sizeof before);
	before.host[sizeof before.host - 1] = '\0';
	name_node(world, node, before.host);
	heartbeat_send_to(heart, &next.card);
	atomic_store(&ring.heart, heart);   /* the watchdog's from here on */
}

/* How long a node may be silent; 0: for ever. */
static int silent_seconds(void)
{
	const char *text = getenv("SHARDRUN_NODE_TIMEOUT");
	return text && *text ? atoi(text) : SILENT_S;
}

enum err watch_nodes(struct comm *world, const char *host)
{
	struct heartbeat *heart = NULL;
	struct node_card card = { 0 };
	unsigned char *cards = NULL;
	size_t *offsets = NULL;
	int speaks = speaker_of(world, comm_node_of(world, comm_rank(world))) == comm_rank(world);
	ring.silent_s = silent_seconds();
	int off = comm_n_nodes(world) < 2 || ring.silent_s <= 0;
	TRY(comm_allreduce(world, &off, 1, COMM_I32, COMM_MAX));
	if (off)
		return ERR_OK;
	snprintf(card.host, sizeof card.host, "%s", host);
	if (speaks && heartbeat_open(&card.card, &heart)) {
		LOG_RANK(DEBUG, "nodes do not watch this one: %s", err_sentence());
		err_clear();
	}
	enum err e = comm_gather_bytes(world, &card, speaks ? sizeof card : 0, &cards, &offsets);
	if (!e && heart)
		join_ring(world, heart, cards, offsets);
	else
		heartbeat_close(heart);
	mem_free(cards);
	mem_free(offsets);
	return e;
}

int watch_nodes_turn(void)
{
	struct heartbeat *heart = atomic_load(&ring.heart);
	long long silent_us = heart ? heartbeat_turn(heart, clock_us()) : 0;
	return silent_us > ring.silent_s * 1000000LL ? (int)(silent_us / 1000000) : 0;
}

int watch_nodes_told(void)
{
	const struct heartbeat *heart = atomic_load(&ring.heart);
	return heart && heartbeat_was_told(heart);
}

void watch_nodes_end(void)
{
	struct heartbeat *heart = atomic_load(&ring.heart);
	if (heart)
		heartbeat_end(heart);
}

const char *watch_nodes_name(void) { return ring.before; }

void watch_nodes_close(void)
{
	heartbeat_close(atomic_load(&ring.heart));
	memset(&ring, 0, sizeof ring);
}
