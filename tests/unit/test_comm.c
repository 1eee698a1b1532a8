/* labels: unit
 * timeout: 120
 * The in-process communicator and what all communicators share: every case over 1 to 16 threads, counters against
 * hand-calculated values, failures that reach all ranks, nothing that hangs. */
#include "tests/comm_cases.h"
#include "base/clock.h"
#include "tests/test.h"

#include <stdatomic.h>

static enum err run_case(struct comm *c, void *arg)
{
	const struct comm_case *one = arg;
	return one->run(c);
}

TEST(every_collective_is_right_on_1_to_16_ranks)
{
	static const int sizes[] = { 1, 2, 3, 4, 5, 8, 16 };
	for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
		for (int i = 0; i < N_COMM_CASES; i++) {
			struct comm_case one = comm_cases[i];
			CHECK_OK(comm_inproc_run(sizes[k], NULL, run_case, &one));
		}
	}
}

/* Nodes 0 0 1 1 2 for ranks 0 to 4. */
static const int five_on_three[] = { 0, 0, 1, 1, 2 };

static enum err sees_nodes(struct comm *c, void *arg)
{
	struct comm *pair;
	(void)arg;
	WANT(comm_n_nodes(c) == 3 && !strcmp(comm_link(c), "network") && !strcmp(comm_name(c), "world"));
	TRY(comm_split(c, comm_node_of(c, comm_rank(c)), 0, "node", &pair));
	WANT(comm_n_nodes(pair) == 1 && comm_node_of(pair, 0) == five_on_three[comm_rank(c)]);
	WANT(!strcmp(comm_link(pair), comm_rank(c) == 4 ? "self" : "memory"));
	comm_destroy(pair);
	return ERR_OK;
}

TEST(nodes_are_inherited_and_name_the_link) { CHECK_OK(comm_inproc_run(5, five_on_three, sees_nodes, NULL)); }

#define WANT_STATS(n_calls, n_bytes, n_between)                                                 \
	do {                                                                                    \
		WANT(comm_stats(c)->calls == (n_calls));                                        \
		WANT(comm_stats(c)->bytes == (uint64_t)(n_bytes));                              \
		WANT(comm_stats(c)->bytes_between_nodes == (uint64_t)(n_between));              \
		comm_reset_stats(c);                                                            \
	} while (0)

/* Worked out by hand from the definition in comm.h, for the five ranks on three nodes above. */
static enum err counts(struct comm *c, void *arg)
{
	int me = comm_rank(c);
	char data[64] = { 0 }, to[64] = { 0 };
	int64_t items[15] = { 0 }, mine[5];
	(void)arg;
	TRY(comm_barrier(c));
	WANT_STATS(1, 0, 0);
	TRY(comm_bcast(c, data, 40, 3));
	WANT_STATS(1, me == 3 ? 40 : 0, me == 3 ? 40 : 0);
	TRY(comm_allreduce(c, items, 3, COMM_I64, COMM_SUM));
	TRY(comm_allreduce(c, data, 7, COMM_U8, COMM_MAX));
	WANT_STATS(2, 3 * 8 + 7, 3 * 8 + 7);

	static const size_t bytes[5] = { 0, 10, 20, 3, 1 }, offsets[5] = { 0, 0, 10, 30, 33 };
	TRY(comm_allgather(c, data, to, bytes, offsets));
	WANT_STATS(1, bytes[me], bytes[me]);

	/* 15 items of 8 bytes, 1 to 5 per rank: all but one's own are seen by others, those of the same node stay on it */
	static const size_t parts[5] = { 1, 2, 3, 4, 5 };
	static const unsigned seen[5] = { 14, 13, 12, 11, 10 }, elsewhere[5] = { 12, 12, 8, 8, 10 };
	TRY(comm_reduce_scatter_i64(c, items, mine, parts));
	WANT_STATS(1, seen[me] * 8, elsewhere[me] * 8);

	/* everybody sends rank r r bytes: 0 1 2 3 4 */
	static const size_t in_at[5] = { 0, 5, 10, 15, 20 };
	static const unsigned sent[5] = { 10, 9, 8, 7, 6 }, crossed[5] = { 9, 9, 5, 5, 6 };
	size_t out[5] = { 0, 1, 2, 3, 4 }, in[5], m = (size_t)me;
	for (int r = 0; r < 5; r++)
		in[r] = m;
	TRY(comm_alltoall(c, data, out, in_at, to, in, in_at));
	WANT_STATS(1, sent[me], crossed[me]);

	if (me == 1) {
		TRY(comm_send(c, 0, 0, data, 12));   /* same node */
		TRY(comm_send(c, 4, 0, data, 30));
		WANT_STATS(2, 42, 30);
	} else if (me == 0 || me == 4) {
		TRY(comm_recv(c, 1, 0, data, me ? 30 : 12));
		WANT_STATS(1, 0, 0);
	}
	struct comm *self;
	TRY(comm_split(c, me, 0, "self", &self));
	WANT_STATS(1, 0, 0);
	TRY(comm_allreduce(self, items, 3, COMM_I64, COMM_SUM));
	TRY(comm_bcast(self, data, 40, 0));
	size_t one = 8, zero = 0;
	TRY(comm_alltoall(self, data, &one, &zero, to, &one, &zero));
	const struct comm_stats *alone = comm_stats(self);
	WANT(alone->calls == 3 && alone->bytes == 0 && alone->bytes_between_nodes == 0);
	comm_destroy(self);
	return ERR_OK;
}

TEST(counters_are_what_hand_calculation_says) { CHECK_OK(comm_inproc_run(5, five_on_three, counts, NULL)); }

/* --- failures --- */

/* What the other ranks wait in while rank 2 gives up. */
enum place { IN_BARRIER, IN_REDUCE, IN_CHILD, IN_RECV, IN_SEND, N_PLACES };
struct giving_up { enum place place; atomic_int lost; };

static enum err waits_or_fails(struct comm *c, void *arg)
{
	struct giving_up *g = arg;
	static char large[100000];
	struct comm *child;
	int64_t x = 1;
	enum err e = ERR_OK;
	TRY(comm_split(c, 0, 0, "child", &child));
	if (comm_rank(c) == 2) {
		comm_destroy(child);
		clock_sleep_us(20000);   /* the others wait by then, asleep */
		return ERR(MODEL, "tensor x is short");
	}
	switch (g->place) {
	case IN_BARRIER: e = comm_barrier(c); break;
	case IN_REDUCE: e = comm_allreduce(c, &x, 1, COMM_I64, COMM_SUM); break;
	case IN_CHILD: e = comm_allreduce(child, &x, 1, COMM_I64, COMM_SUM); break;
	case IN_RECV: e = comm_recv(c, 2, 0, &x, sizeof x); break;
	case IN_SEND: e = comm_send(c, 2, 0, large, sizeof large); break;
	case N_PLACES: break;
	}
	comm_destroy(child);
	atomic_fetch_add(&g->lost, e == ERR_LOST);
	return e;
}

TEST(a_rank_that_fails_releases_all_others_and_its_sentence_comes_out)
{
	for (int place = 0; place < N_PLACES; place++) {
		struct giving_up g = { .place = (enum place)place };
		CHECK_ERR(comm_inproc_run(4, NULL, waits_or_fails, &g), MODEL, "tensor x is short");
		CU_ASSERT_EQUAL(err_last()->rank, 2);
		CU_ASSERT_EQUAL(atomic_load(&g.lost), 3);
	}
}

/* A rank may fail while others are anywhere in a stream of collectives: none of them may read memory that is gone
 * (the sanitizers look) or stay behind. */
static enum err fails_somewhere(struct comm *c, void *arg)
{
	int after = *(const int *)arg;
	for (int i = 0;; i++) {
		int64_t *data;
		if (comm_rank(c) == 1 && i == after)
			return ERR(WORK, "after %d", after);
		TRY(MEM_NEW(1000, int64_t, &data));
		enum err e = comm_allreduce(c, data, 1000, COMM_I64, COMM_SUM);
		mem_free(data);
		TRY(e);
	}
}

TEST(a_failure_at_any_time_is_safe)
{
	for (int after = 0; after < 40; after++)
		CHECK_ERR(comm_inproc_run(5, NULL, fails_somewhere, &after), WORK, "after");
}

/* All ranks return the agreed error: the one who decided it is named, not the lowest who repeats it. */
static enum err agrees(struct comm *c, void *arg)
{
	(void)arg;
	return comm_agree(c, comm_rank(c) == 3 ? ERR(FIT, "no room on rank 3") : ERR_OK);
}

TEST(an_agreed_error_keeps_its_rank)
{
	CHECK_ERR(comm_inproc_run(4, NULL, agrees, NULL), FIT, "no room on rank 3");
	CU_ASSERT_EQUAL(err_last()->rank, 3);
}

static enum err calls_differ(struct comm *c, void *arg)
{
	int32_t x[2] = { 0, 0 };
	(void)arg;
	return comm_rank(c) == 1 ? comm_bcast(c, x, 8, 0) : comm_allreduce(c, x, 2, COMM_I32, COMM_SUM);
}

static enum err sizes_differ(struct comm *c, void *arg)
{
	char data[8] = { 0 };
	(void)arg;
	return comm_rank(c) == 0 ? comm_send(c, 1, 0, data, 8) : comm_recv(c, 0, 0, data, 4);
}

static enum err parts_differ(struct comm *c, void *arg)
{
	char from[16] = { 0 }, to[16];
	size_t bytes[2] = { 4, 4 }, offsets[2] = { 0, 8 };
	(void)arg;
	if (comm_rank(c) == 1)
		bytes[0] = 8;
	return comm_allgather(c, from, to, bytes, offsets);
}

TEST(ranks_that_disagree_are_told)
{
	CHECK_ERR(comm_inproc_run(3, NULL, calls_differ, NULL), BUG,
		  "world: rank 0 calls allreduce of 8 while rank 1 calls bcast of 8");
	CHECK_ERR(comm_inproc_run(2, NULL, sizes_differ, NULL), BUG, "rank 0 hands rank 1 8 bytes, which expects 4");
	CHECK_ERR(comm_inproc_run(2, NULL, parts_differ, NULL), BUG, "rank 0 hands rank 1 4 bytes, which expects 8");
}

static enum err asks_nonsense(struct comm *c, void *arg)
{
	struct comm *out = NULL;
	char x = 0;
	(void)arg;
	WANT(comm_bcast(c, &x, 1, 2) == ERR_BUG && comm_bcast(c, &x, 1, -1) == ERR_BUG);
	WANT(comm_send(c, comm_rank(c), 0, &x, 1) == ERR_BUG && comm_recv(c, 7, 0, &x, 1) == ERR_BUG);
	WANT(comm_split(c, comm_rank(c) ? -1 : 0, 0, "bad", &out) == ERR_BUG && !out);
	return comm_barrier(c);   /* nothing of that got the ranks out of step */
}

TEST(ranks_and_colours_out_of_range_are_refused) { CHECK_OK(comm_inproc_run(2, NULL, asks_nonsense, NULL)); }

/* --- memory --- */

static enum err splits_without_memory(struct comm *c, void *arg)
{
	struct comm *out = NULL;
	int nth = *(const int *)arg, n_ranks = comm_size(c);
	TRY(comm_barrier(c));
	if (comm_rank(c) == 0)
		mem_fail_at(nth);
	TRY(comm_barrier(c));
	int32_t failed = comm_split(c, comm_rank(c) % 2, 0, "half", &out) != ERR_OK;
	int32_t failures = failed;
	comm_destroy(out);
	TRY(comm_allreduce(c, &failures, 1, COMM_I32, COMM_SUM));
	WANT(failures == 0 || failures == n_ranks);
	return failures ? ERR(MEMORY, "as it should") : ERR_OK;
}

TEST(a_split_without_memory_fails_on_all_ranks)
{
	int failed = 0, nth = 1;
	for (;; nth++) {   /* until the nth allocation is one that no longer happens */
		enum err e = comm_inproc_run(4, NULL, splits_without_memory, &nth);
		mem_fail_at(0);
		if (!e)
			break;
		CU_ASSERT_EQUAL(e, ERR_MEMORY);
		failed++;
	}
	CU_ASSERT_EQUAL(failed, 4 * 2 + 4 + 2 * 3);   /* 4 comms with nodes, 4 seats, 2 groups of three blocks */
}

/* --- waiting --- */

static enum err many_rounds(struct comm *c, void *arg)
{
	int64_t x = 0;
	(void)arg;
	for (int i = 0; i < 2000; i++)
		TRY(comm_allreduce(c, &x, 1, COMM_I64, COMM_SUM));
	return ERR_OK;
}

TEST(more_ranks_than_cores_do_not_crawl)
{
	/* spinning through time slices would take 2000 x 16 x 4 ms, which the test's time limit does not allow */
	CHECK_OK(comm_inproc_run(16, NULL, many_rounds, NULL));
}

TEST_MAIN("comm", CASE(every_collective_is_right_on_1_to_16_ranks), CASE(nodes_are_inherited_and_name_the_link),
	  CASE(counters_are_what_hand_calculation_says), CASE(a_rank_that_fails_releases_all_others_and_its_sentence_comes_out),
	  CASE(a_failure_at_any_time_is_safe), CASE(an_agreed_error_keeps_its_rank), CASE(ranks_that_disagree_are_told),
	  CASE(ranks_and_colours_out_of_range_are_refused), CASE(a_split_without_memory_fails_on_all_ranks),
	  CASE(more_ranks_than_cores_do_not_crawl))
