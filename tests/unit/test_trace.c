/* labels: unit
 * What ranks record of themselves: the ring is bounded and says what it dropped, sums over time keep every microsecond in the same room,
 * clocks are compared by the quickest exchange, all spans of all ranks come to the head, and the file is JSON whatever hosts are called. */
#include "base/json.h"
#include "base/mem.h"
#include "launcher/trace_file.h"
#include "runtime/trace.h"
#include "tests/files.h"
#include "tests/test.h"

enum { RANKS = 5, KEPT = 3000, SEEN = 4100 };

static int64_t total(const struct timeline *t, enum timeline_row row)
{
	int64_t sum = 0;
	for (int i = 0; i < TIMELINE_BUCKETS; i++)
		sum += t->sums[row][i];
	return sum;
}

TEST(timeline_keeps_all_in_the_same_room)
{
	static struct timeline t;
	timeline_begin(&t, 1000);
	timeline_add(&t, TIMELINE_PROMPT, 0, 3);                       /* before its beginning: the first bucket's */
	CU_ASSERT_EQUAL(t.sums[TIMELINE_PROMPT][0], 3);
	timeline_add_span(&t, TIMELINE_BUSY, 1000 + TIMELINE_FIRST_US / 2, 1000 + 3 * TIMELINE_FIRST_US);
	CU_ASSERT_EQUAL(t.sums[TIMELINE_BUSY][0], TIMELINE_FIRST_US / 2);
	CU_ASSERT_EQUAL(t.sums[TIMELINE_BUSY][1], TIMELINE_FIRST_US);
	CU_ASSERT_EQUAL(t.sums[TIMELINE_BUSY][2], TIMELINE_FIRST_US);
	CU_ASSERT_EQUAL(t.sums[TIMELINE_BUSY][3], 0);
	/* An hour later: 240 buckets of 20 ms, doubled 10 times, are 4915 s; 9 times, too short. */
	timeline_add_span(&t, TIMELINE_BUSY, 3600000000, 3600000000 + 12345);
	CU_ASSERT_EQUAL(t.width_us, TIMELINE_FIRST_US << 10);
	CU_ASSERT_EQUAL(total(&t, TIMELINE_BUSY), TIMELINE_FIRST_US * 5 / 2 + 12345);
	CU_ASSERT_EQUAL(t.sums[TIMELINE_BUSY][3600000000 / t.width_us], 12345);
	timeline_widen(&t, TIMELINE_FIRST_US << 12);
	CU_ASSERT_EQUAL(t.width_us, TIMELINE_FIRST_US << 12);
	CU_ASSERT_EQUAL(total(&t, TIMELINE_BUSY), TIMELINE_FIRST_US * 5 / 2 + 12345);
	CU_ASSERT_EQUAL(total(&t, TIMELINE_PROMPT), 3);
}

TEST(clocks_are_compared_by_the_quickest_exchange)
{
	/* Their clock is 500 ahead. There and back took 10 + 10, then 1 + 90 (which alone would say 455.5), then 30 + 30. */
	const struct clock_ping pings[] = { { 1000, 1000 + 10 + 500, 1020 }, { 2000, 2000 + 1 + 500, 2091 }, { 3000, 3530, 3060 } };
	CU_ASSERT_EQUAL(trace_clock_offset(pings, 3), 500);
	CU_ASSERT_EQUAL(trace_clock_offset(pings + 1, 1), 456);
}

/* --- gathering --- */

struct gathered { int64_t n[RANKS], next[RANKS], wrong, fail_at, taken; };

static enum err take(void *arg, int rank, const struct trace_span *spans, int64_t n)
{
	struct gathered *g = arg;
	for (int64_t i = 0; i < n; i++, g->next[rank]++)
		g->wrong += spans[i].step != g->next[rank] || spans[i].tokens != rank;
	g->n[rank] += n;
	g->taken += n;
	return g->fail_at && g->taken >= g->fail_at ? ERR(IO, "the disk is full") : ERR_OK;
}

/* Rank r records SEEN spans when it is odd, else ten. */
static int64_t spans_of(int rank) { return rank % 2 ? SEEN : 10; }

static enum err record_and_gather(struct comm *world, void *arg)
{
	static struct trace_rank ranks[RANKS];
	struct gathered *g = arg;
	struct trace_rank mine = { .steps = comm_rank(world), .busy_us = 7 };
	struct trace_taker taker = { take, g };
	int me = comm_rank(world), is_head = me == 0;
	struct trace *t;
	TRY(trace_create(world, KEPT, &t));
	for (int64_t i = 0; i < spans_of(me); i++) {
		t->now = (struct trace_span){ .step = (int32_t)i, .tokens = me };
		trace_end(t, TRACE_LAYERS, trace_now(t));
	}
	timeline_add(&t->timeline, TIMELINE_STEPS, clock_us(), me);
	enum err e = trace_gather(t, world, &mine, is_head ? ranks : NULL, is_head ? &taker : NULL);
	for (int r = 0; is_head && r < RANKS; r++) {
		CU_ASSERT_EQUAL(ranks[r].steps, r);
		CU_ASSERT_EQUAL(total(&ranks[r].timeline, TIMELINE_STEPS), r);
		CU_ASSERT_EQUAL(ranks[r].timeline.began_us, ranks[0].timeline.began_us);
		CU_ASSERT(llabs((long long)ranks[r].offset_us) < 50000);          /* threads have one clock */
		CU_ASSERT_EQUAL(ranks[r].n_spans, spans_of(r) < KEPT ? spans_of(r) : KEPT);
		CU_ASSERT_EQUAL(ranks[r].n_dropped, spans_of(r) - ranks[r].n_spans);
	}
	trace_destroy(t);
	return e;
}

TEST(the_last_spans_of_every_rank_come_to_the_head)
{
	static const int node_of[RANKS] = { 0, 1, 1, 0, 2 };
	struct gathered g = { .next = { 0, SEEN - KEPT, 0, SEEN - KEPT, 0 } };
	CHECK_OK(comm_inproc_run(RANKS, node_of, record_and_gather, &g));
	CU_ASSERT_EQUAL(g.wrong, 0);
	for (int r = 0; r < RANKS; r++)
		CU_ASSERT_EQUAL(g.n[r], r % 2 ? KEPT : 10);
}

TEST(an_error_of_the_taker_leaves_nobody_waiting)
{
	struct gathered g = { .fail_at = 11 };
	CHECK_ERR(comm_inproc_run(RANKS, NULL, record_and_gather, &g), IO, "the disk is full");
	CU_ASSERT_EQUAL(g.taken, 10 + 1024);   /* the head's own, the first message of rank 1, and no more */
}

TEST(nothing_is_recorded_where_nobody_asked)
{
	struct trace no_room = { .capacity = 0 };
	CU_ASSERT_EQUAL(trace_now(NULL), 0);
	trace_end(NULL, TRACE_STEP, 0);
	trace_put(&no_room, TRACE_STEP, 0, &(struct trace_span){ 0 });
	CU_ASSERT_EQUAL(no_room.n_seen, 0);
	CU_ASSERT_EQUAL(trace_usual_spans(1), trace_usual_spans(16));
	CU_ASSERT(trace_usual_spans(4096) * 4096 <= (1 << 20) + 4096);
}

/* --- the file --- */

TEST(the_file_is_json_whatever_hosts_are_called)
{
	struct test_dir d;
	struct machine nodes[2] = { 0 };
	struct plan_rank plan_ranks[2] = { { .member = { .node = 0 } }, { .member = { .rank = 1, .node = 1, .pp = 1 } } };
	static struct session s;
	static struct trace_rank ranks[2] = { { .n_dropped = 3 }, { .offset_us = -8 } };
	const struct trace_span spans[] = { { .begin_us = 1500, .us = 20, .step = 4, .tokens = 5, .slices = 2, .what = TRACE_LAYERS } };
	struct trace_file *f;
	json_t *root;
	test_dir_make(&d);
	strcpy(nodes[0].host, "a\"b\\c</script>");
	strcpy(nodes[1].host, "not utf-8: \xff");
	s.place.cluster.nodes = nodes, s.place.cluster.n_nodes = 2;
	s.plan.ranks = plan_ranks, s.plan.n_ranks = 2, s.plan.layout = (struct layout){ .tp = 1, .pp = 2, .ep = 1, .dp = 1 };
	s.plan.lane_replicas = 1;
	char path[400];
	snprintf(path, sizeof path, "%s", test_path(&d, "t.json"));
	CHECK_OK(trace_file_open(path, &s, 1000, &f));
	CHECK_OK(trace_file_take(f, 1, spans, 1));
	CHECK_OK(trace_file_end(f, ranks, "shardrun batch '\"'"));
	CHECK_OK(json_parse_file(path, 1 << 20, ERR_IO, &root));
	json_t *events = json_object_get(root, "traceEvents"), *first = json_array_get(events, 0), *other = json_object_get(root, "otherData");
	CU_ASSERT_EQUAL(json_array_size(events), 5);
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(first, "name")), "layers");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(first, "ts")), 500);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(first, "dur")), 20);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(first, "pid")), 1);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(first, "tid")), 1);
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(json_object_get(first, "args"), "step")), 4);
	json_t *host = json_object_get(json_object_get(json_array_get(events, 1), "args"), "name");
	CU_ASSERT_STRING_EQUAL(json_string_value(host), "node 0: a\"b\\c</script>");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(other, "dropped_spans")), 3);
	CU_ASSERT_PTR_NOT_NULL(json_object_get(other, "note"));
	json_decref(root);
	CHECK_ERR(trace_file_open("/nowhere/t.json", &s, 0, &f), IO, "/nowhere/t.json");
	test_dir_remove(&d);
}

TEST_MAIN("trace", CASE(timeline_keeps_all_in_the_same_room), CASE(clocks_are_compared_by_the_quickest_exchange),
	  CASE(the_last_spans_of_every_rank_come_to_the_head), CASE(an_error_of_the_taker_leaves_nobody_waiting),
	  CASE(nothing_is_recorded_where_nobody_asked), CASE(the_file_is_json_whatever_hosts_are_called))
