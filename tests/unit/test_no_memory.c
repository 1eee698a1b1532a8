/* timeout: 300
 * Every allocation of a session may fail: each one in turn does, and each time the answer is one clean error, with nothing
 * leaked (under the asan preset) and nobody left waiting. */
#include "base/mem.h"
#include "tests/same_bits.h"
#include "tests/test.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

struct trial {
	const char *model;
	struct layout layout;
	int64_t nth;                 /* the allocation that fails */
	int generate;                /* 0: count from session_create; 1: from session_generate */
	const struct cluster *cluster;
	int hidden;                  /* out: the allocation failed, but no error was given */
};

/* Past the last allocation of the part under test, the very next one must be the nth. */
static int still_to_come(void)
{
	char *p = NULL;
	enum err e = MEM_NEW(1, char, &p);
	mem_free(p);
	return e == ERR_MEMORY;
}

static enum err create_and_run(struct comm *world, struct trial *t, struct place *place, struct session **s)
{
	struct session_wish wish = { .model_path = t->model, .isa = "c" };
	static const int32_t prompt[] = { 3, 1, 4, 1, 5 };
	struct request request = { .prompt = prompt, .n_prompt = 5, .max_tokens = 2, .all_logits = 1 };
	struct generation g = { 0 };
	float *logits = NULL;
	int head = comm_rank(world) == 0, swept = head && comm_size(world) == 1;
	wish.plan.layout = t->layout;
	wish.plan.threads = 1;
	wish.plan.step_tokens = 64;
	wish.plan.sequences = 2;
	wish.plan.context = 64;
	TRY(comm_barrier(world));
	if (head && !t->generate)
		mem_fail_at(t->nth);
	enum err e = session_create(world, &wish, place, s);
	if (!e && swept && !t->generate)
		t->hidden = !still_to_come();
	if (!t->generate || e) {
		if (head)
			mem_fail_at(0);
		return e;
	}
	if (head) {
		e = MEM_NEW((size_t)(5 * (*s)->model.n_vocab), float, &logits);
		g = (struct generation){ .requests = &request, .n_requests = 1, .ignore_eos = 1, .all_logits = logits };
	}
	TRY(comm_barrier(world));
	if (head)
		mem_fail_at(t->nth);
	if (!e)
		e = session_generate(*s, &g);
	if (!e && swept)
		t->hidden = !still_to_come();
	if (head)
		mem_fail_at(0);
	answers_free(g.answers, g.n_answers);
	mem_free(logits);
	return e;
}

static enum err body(struct comm *world, void *arg)
{
	struct trial *t = arg;
	struct place place = { 0 };
	struct session *s = NULL;
	enum err e = place_invent(t->cluster, comm_size(world), 0, &place);
	if (!e)
		e = create_and_run(world, t, &place, &s);
	session_destroy(s);
	place_free(&place);
	return e;
}

/* Fails the 1st, 2nd, ... allocation until one is beyond the last. Gives how many there are. */
static int64_t sweep(struct trial t, int n_ranks)
{
	int nodes[8] = { 0 };
	struct cluster c;
	CU_ASSERT_EQUAL_FATAL(cluster_read("pack:1 core:8 pu:1", &c), ERR_OK);
	t.cluster = &c;
	for (t.nth = 1; t.nth < 20000; t.nth++) {
		enum err e = comm_inproc_run(n_ranks, nodes, body, &t);
		mem_fail_at(0);
		if (t.hidden)
			fprintf(stderr, "%s: allocation %lld failed without an error\n", t.model, (long long)t.nth);
		CU_ASSERT_FATAL(!t.hidden);
		if (!e)
			break;
		if (e != ERR_MEMORY || !strstr(err_sentence(), "no memory"))
			fprintf(stderr, "%s: allocation %lld: %s: %s\n", t.model, (long long)t.nth, err_name(e), err_sentence());
		CU_ASSERT_EQUAL(e, ERR_MEMORY);
		CU_ASSERT(strstr(err_sentence(), "no memory") != NULL);
	}
	cluster_free(&c);
	return t.nth - 1;
}

static const char *const names[] = { MODELS "llama-bias", MODELS "llama-sharded", MODELS "mixtral-8x2",
				     MODELS "gguf-llama-mixed/model.gguf" };

TEST(each_allocation_of_session_create_may_fail)
{
	for (int i = 0; i < 4; i++) {
		int64_t n = sweep((struct trial){ .model = names[i], .layout = { .tp = 1, .pp = 1, .dp = 1 } }, 1);
		printf("%lld ", (long long)n);
		CU_ASSERT(n > 50);
	}
}

TEST(each_allocation_of_session_generate_may_fail)
{
	for (int i = 0; i < 4; i++) {
		int64_t n = sweep((struct trial){ .model = names[i], .layout = { .tp = 1, .pp = 1, .dp = 1 }, .generate = 1 }, 1);
		printf("%lld ", (long long)n);
		CU_ASSERT(n > 8);
	}
}

/* Which rank's allocation is the nth depends on their timing: the error is agreed all the same, and nobody waits on. */
TEST(with_several_ranks_all_get_the_error)
{
	int nodes[4] = { 0 }, failed = 0;
	struct cluster c;
	CU_ASSERT_EQUAL_FATAL(cluster_read("pack:1 core:8 pu:1", &c), ERR_OK);
	struct trial t = { .model = MODELS "mixtral-8x2", .layout = { .tp = 2, .pp = 2, .dp = 1 }, .cluster = &c };
	for (t.generate = 0; t.generate < 2; t.generate++)
		for (t.nth = 1; t.nth < 600; t.nth += t.nth < 100 ? 3 : 17) {
			enum err e = comm_inproc_run(4, nodes, body, &t);
			mem_fail_at(0);
			failed += e == ERR_MEMORY;
			if (e && e != ERR_MEMORY)
				fprintf(stderr, "allocation %lld: %s: %s\n", (long long)t.nth, err_name(e), err_sentence());
			CU_ASSERT(e == ERR_OK || e == ERR_MEMORY);
		}
	cluster_free(&c);
	printf("%d failed ", failed);
	CU_ASSERT(failed > 40);
}

TEST_MAIN("no memory", CASE(each_allocation_of_session_create_may_fail), CASE(each_allocation_of_session_generate_may_fail),
	  CASE(with_several_ranks_all_get_the_error))
