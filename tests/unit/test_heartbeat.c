/* labels: unit
 * Signs of life between nodes: heard, missed, forged; time is the test's. */
#include "tests/test.h"

#include "base/clock.h"
#include "parallel/heartbeat.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SECOND = 1000000 };

static struct heartbeat *a, *b;
static struct heartbeat_card card_a, card_b;

static void open_both(void)
{
	CHECK_OK(heartbeat_open(&card_a, &a));
	CHECK_OK(heartbeat_open(&card_b, &b));
}

static void close_both(void)
{
	heartbeat_close(a);
	heartbeat_close(b);
}

/* Arriving takes no time that counts, but some. */
static long long turn_b(long long now_us)
{
	clock_sleep_us(20000);
	return heartbeat_turn(b, now_us);
}

TEST(who_sends_is_not_silent_and_who_stops_is)
{
	open_both();
	heartbeat_send_to(a, &card_b);
	for (int second = 1; second <= 3; second++) {
		heartbeat_turn(a, second * SECOND);
		CU_ASSERT_EQUAL(turn_b(second * SECOND), 0);
	}
	for (int second = 4; second <= 7; second++)
		CU_ASSERT_EQUAL(turn_b(second * SECOND), (second - 3) * SECOND);
	heartbeat_turn(a, 8 * SECOND);
	CU_ASSERT_EQUAL(turn_b(8 * SECOND), 0);
	close_both();
}

TEST(one_sign_a_second)
{
	open_both();
	heartbeat_send_to(a, &card_b);
	heartbeat_turn(a, 10 * SECOND);
	CU_ASSERT_EQUAL(turn_b(10 * SECOND), 0);
	heartbeat_turn(a, 10 * SECOND + SECOND / 2);
	CU_ASSERT_EQUAL(turn_b(10 * SECOND + SECOND / 2), SECOND / 2);
	close_both();
}

TEST(time_in_which_nobody_listened_does_not_count)
{
	open_both();
	heartbeat_send_to(a, &card_b);
	heartbeat_turn(a, SECOND);
	CU_ASSERT_EQUAL(turn_b(SECOND), 0);
	CU_ASSERT_EQUAL(turn_b(1000LL * SECOND), SECOND);
	CU_ASSERT_EQUAL(turn_b(1000LL * SECOND + SECOND / 4), SECOND + SECOND / 4);
	close_both();
}

TEST(who_was_never_heard_is_not_judged)
{
	open_both();
	CU_ASSERT_EQUAL(turn_b(SECOND), 0);
	CU_ASSERT_EQUAL(turn_b(1000LL * SECOND), 0);
	close_both();
}

static void send_bytes(const struct heartbeat_card *to, const void *data, size_t bytes)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = to->port };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	in.sin_addr.s_addr = to->addresses[0];
	CU_ASSERT_EQUAL(sendto(fd, data, bytes, 0, (struct sockaddr *)&in, sizeof in), (ssize_t)bytes);
	close(fd);
}

TEST(only_the_secret_counts)
{
	enum { WHOLE = HEARTBEAT_SECRET_BYTES + 1 };   /* the secret, and a word: 1 is a sign of life */
	unsigned char right[WHOLE + 1] = { 0 }, wrong[WHOLE];
	open_both();
	CU_ASSERT_NOT_EQUAL(memcmp(card_a.secret, card_b.secret, sizeof card_a.secret), 0);
	memcpy(right, card_b.secret, sizeof card_b.secret);
	memcpy(wrong, card_a.secret, sizeof card_a.secret);
	right[HEARTBEAT_SECRET_BYTES] = 1;
	wrong[HEARTBEAT_SECRET_BYTES] = 2;
	send_bytes(&card_b, right, WHOLE);
	CU_ASSERT_EQUAL(turn_b(SECOND), 0);
	send_bytes(&card_b, wrong, WHOLE);
	send_bytes(&card_b, right, WHOLE - 1);
	send_bytes(&card_b, right, WHOLE + 1);
	send_bytes(&card_b, "", 0);
	CU_ASSERT_EQUAL(turn_b(2 * SECOND), SECOND);
	CU_ASSERT_EQUAL(heartbeat_was_told(b), 0);
	send_bytes(&card_b, right, WHOLE);
	CU_ASSERT_EQUAL(turn_b(3 * SECOND), 0);
	close_both();
}

TEST(the_end_is_told)
{
	open_both();
	heartbeat_send_to(a, &card_b);
	heartbeat_turn(a, SECOND);
	turn_b(SECOND);
	CU_ASSERT_EQUAL(heartbeat_was_told(b), 0);
	heartbeat_end(a);
	turn_b(SECOND + 1);
	CU_ASSERT_EQUAL(heartbeat_was_told(b), 1);
	turn_b(2 * SECOND);
	CU_ASSERT_EQUAL(heartbeat_was_told(b), 1);
	CU_ASSERT_EQUAL(heartbeat_was_told(a), 0);
	close_both();
}

TEST(a_receiver_that_is_gone_disturbs_nobody)
{
	open_both();
	heartbeat_send_to(a, &card_b);
	heartbeat_send_to(b, &card_a);
	heartbeat_turn(b, SECOND);
	clock_sleep_us(20000);
	CU_ASSERT_EQUAL(heartbeat_turn(a, SECOND), 0);
	heartbeat_close(b);
	for (int second = 2; second <= 5; second++) {
		clock_sleep_us(20000);
		CU_ASSERT_EQUAL(heartbeat_turn(a, second * SECOND), (second - 1) * SECOND);
	}
	heartbeat_close(a);
}

TEST_MAIN("heartbeat", CASE(who_sends_is_not_silent_and_who_stops_is), CASE(one_sign_a_second),
	  CASE(time_in_which_nobody_listened_does_not_count),
	  CASE(who_was_never_heard_is_not_judged), CASE(only_the_secret_counts), CASE(the_end_is_told),
	  CASE(a_receiver_that_is_gone_disturbs_nobody))
