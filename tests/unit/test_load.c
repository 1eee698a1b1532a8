/* labels: golden
 * timeout: 300
 * Every request's tokens are those that it gets alone, under load: dozens of answers at once, greedy and sampled, with penalties,
 * biases, masks, stop tokens, log-probabilities, several answers and priorities, that come at any time, share beginnings, and lose
 * their pages when these run out; on layouts of every axis. Alone is: in an engine of its own, on one rank, with pages enough. */
#include "base/mem.h"
#include "runtime/engine.h"
#include "tests/kernel_data.h"
#include "tests/test.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

enum { N = 108, MOST_EACH = 3, MOST_PROMPT = 90, MOST_NEW = 110, VOCAB = 131, CONTEXT = 208, SEQUENCES = 24, PAGES = 34 };

static struct request requests[N];
static int32_t prompts[N][MOST_PROMPT], stops[N][3];
static struct token_bias biases[N][12];
static uint32_t mask[(VOCAB + 31) / 32];

/* Five beginnings, cut anywhere and gone on with differently. Most are short, and get long answers: they grow out of the pages. */
static void make_prompt(int i, struct request *r)
{
	int alike = 4 + i * 29 % (i % 3 ? 24 : MOST_PROMPT - 12), n = alike + (i % 4 ? i * 7 % 8 : 0);
	for (int k = 0; k < n; k++)
		prompts[i][k] = k < alike ? (k * 5 + i % 5 * 17 + k / 40) % VOCAB : (int32_t)random_below(VOCAB);
	r->prompt = prompts[i];
	r->n_prompt = n;
}

static void make_requests(void)
{
	random_state = 9;
	for (int i = 0; i < (VOCAB + 31) / 32; i++)
		mask[i] = 0x5dddddd5u;
	for (int i = 0; i < N; i++) {
		struct request *r = &requests[i];
		for (int k = 0; k < 12; k++)
			biases[i][k] = (struct token_bias){ (int32_t)random_below(VOCAB), 4 * random_float() };
		for (int k = 0; k < 3; k++)
			stops[i][k] = (int32_t)random_below(VOCAB);
		*r = (struct request){ .max_tokens = i % 4 ? 60 + i * 67 % (MOST_NEW - 60) : 1 + i * 67 % 60, .priority = i % 6 == 5 ? -1 : i % 6 == 2,
			.sample = { .temperature = i % 2 ? 0.9f : 0, .top_k = i % 3 ? 40 : 0, .top_p = i % 4 ? 0.95f : 1,
				    .min_p = i % 7 ? 0 : 0.01f, .seed = 3, .choice = 10 * (uint32_t)i, .logprobs = i % 5 == 1 ? 4 : 0 },
			.repetition_penalty = i % 3 == 1 ? 1.3f : 0, .frequency_penalty = i % 4 == 1 ? 0.3f : 0,
			.presence_penalty = i % 5 == 2 ? 0.5f : 0, .biases = biases[i], .n_biases = i % 6 == 3 ? 12 : 0,
			.stop_tokens = stops[i], .n_stop_tokens = i % 4 == 2 ? 3 : 0, .min_tokens = i % 8 == 2 ? 9 : 0,
			.ignore_eos = i % 4 != 2, .mask = i % 9 == 8 ? mask : NULL, .n = i % 8 == 7 ? MOST_EACH : 1, .tag = r };
		make_prompt(i, r);
	}
}

/* A world's run: some requests in, an answer for each out. */
struct job {
	const char *model;
	struct layout layout;
	int ranks, threads;
	int64_t step_tokens, pages;
	enum arithmetic arithmetic;
	enum kv_type kv_type;
	const struct request *r;
	int n;
	struct cluster cluster;
	/* while it runs, and what came out */
	int given, out, answering, most_answering;
	struct answer (*answers)[MOST_EACH];  /* (N), by request and answer; the caller's to free */
	struct engine_counts counts;
};

/* Bursts, then pauses. */
static enum engine_next next(void *arg, struct request *r)
{
	struct job *j = arg;
	if (j->given == j->n)
		return ENGINE_NO_MORE;
	if (j->n > 1 && j->out > 0 && random_below(4) == 0)
		return ENGINE_NONE_NOW;
	*r = j->r[j->given++];
	j->out += r->n;
	return ENGINE_REQUEST;
}

static int token(void *arg, const struct answer *a, int32_t id)
{
	struct job *j = arg;
	CU_ASSERT_EQUAL(a->tokens[a->n_tokens - 1], id);
	j->answering += a->n_tokens == 1;
	j->most_answering = j->answering > j->most_answering ? j->answering : j->most_answering;
	return 0;
}

static void done(void *arg, struct answer *a)
{
	struct job *j = arg;
	const struct request *r = a->tag;
	j->out--;
	j->answering -= a->n_tokens > 0;
	j->answers[r - requests][a->choice - 10 * (uint32_t)(r - requests)] = *a;
	*a = (struct answer){ 0 };
}

static enum err body(struct comm *world, void *arg)
{
	struct job *j = arg;
	struct place place = { 0 };
	struct session *s = NULL;
	struct session_wish wish = { .model_path = j->model, .isa = "auto" };
	struct engine_calls calls = { .next = next, .token = token, .done = done, .arg = j };
	int is_head = comm_rank(world) == 0;
	wish.plan = (struct plan_wish){ .layout = j->layout, .threads = j->threads, .step_tokens = j->step_tokens, .sequences = SEQUENCES,
					.context = CONTEXT, .useful_pages = j->pages, .arithmetic = j->arithmetic, .kv_type = j->kv_type };
	enum err e = place_invent(&j->cluster, j->ranks, 0, &place);
	if (!e)
		e = session_create(world, &wish, &place, &s);
	if (!e)
		e = engine_run(s, is_head ? &calls : NULL, is_head ? &j->counts : NULL);
	session_destroy(s);
	place_free(&place);
	return e;
}

static void run(struct job *j)
{
	CU_ASSERT_EQUAL_FATAL(cluster_read("pack:1 core:32 pu:1", &j->cluster), ERR_OK);
	CHECK_OK(comm_inproc_run(j->ranks, NULL, body, j));
	cluster_free(&j->cluster);
	CU_ASSERT(j->out == 0 && j->given == j->n);
}

static void free_answers(struct answer (*answers)[MOST_EACH])
{
	for (int i = 0; i < N; i++)
		for (int c = 0; c < MOST_EACH; c++)
			answer_free(&answers[i][c]);
}

/* Each answer of each request by itself. */
static void get_alone(struct job j, struct answer (*answers)[MOST_EACH])
{
	j.layout = (struct layout){ .tp = 1, .pp = 1, .dp = 1 };
	j.ranks = j.threads = j.n = 1;
	j.step_tokens = 512;
	j.pages = 0;
	j.answers = answers;
	for (int i = 0; i < N; i++)
		for (int c = 0; c < requests[i].n; c++) {
			struct request r = requests[i];
			r.n = 1;
			r.sample.choice += (uint32_t)c;
			j.r = &r;
			j.given = 0;
			run(&j);
			CU_ASSERT(j.counts.schedule.put_back == 0 && j.counts.schedule.shared_tokens == 0);
		}
}

static int same(const struct answer *a, const struct answer *b)
{
	size_t n = (size_t)a->n_tokens;
	return a->n_tokens == b->n_tokens && n > 0 && a->finish == b->finish && a->digest == b->digest &&
	       !memcmp(a->tokens, b->tokens, n * sizeof *a->tokens) && !a->logprobs == !b->logprobs &&
	       (!a->logprobs || !memcmp(a->logprobs, b->logprobs, n * sizeof *a->logprobs));
}

/* Counts over layouts, so that the test knows that there was a load. */
static struct { int64_t shared, put_back, answers, stopped; int together; } seen;

static void compare(struct job j, struct answer (*alone)[MOST_EACH])
{
	static struct answer answers[N][MOST_EACH];
	memset(answers, 0, sizeof answers);
	j.r = requests;
	j.n = N;
	j.pages = PAGES;
	j.answers = answers;
	run(&j);
	for (int i = 0; i < N; i++)
		for (int c = 0; c < requests[i].n; c++) {
			if (!same(&answers[i][c], &alone[i][c]))
				fprintf(stderr, "tp %d pp %d dp %d ep %d: answer %d of request %d is another\n", j.layout.tp, j.layout.pp, j.layout.dp,
					j.layout.ep, c, i);
			CU_ASSERT(same(&answers[i][c], &alone[i][c]));
			seen.answers++;
			seen.stopped += answers[i][c].finish == FINISH_STOP;
		}
	seen.shared += j.counts.schedule.shared_tokens;
	seen.put_back += j.counts.schedule.put_back;
	seen.together = j.most_answering < seen.together ? j.most_answering : seen.together;
	free_answers(answers);
}

static void compare_all(const char *model, const struct job *cases, int n)
{
	static struct answer alone[N][MOST_EACH];
	struct job j = cases[0];
	memset(alone, 0, sizeof alone);
	memset(&seen, 0, sizeof seen);
	seen.together = N * MOST_EACH;
	make_requests();
	j.model = model;
	get_alone(j, alone);
	for (int i = 0; i < n; i++) {
		j = cases[i];
		j.model = model;
		compare(j, alone);
	}
	free_answers(alone);
	printf("%lld answers, %lld stopped, %lld tokens shared, %lld put back, at least %d together  ", (long long)seen.answers, (long long)seen.stopped,
	       (long long)seen.shared, (long long)seen.put_back, seen.together);
	CU_ASSERT(seen.shared > 500 * n && seen.put_back > n && seen.stopped > 5 * n && seen.together > 12);
}

TEST(a_dense_model_under_load)
{
	static const struct job cases[] = {
		{ .layout = { .tp = 1, .pp = 1, .dp = 1 }, .ranks = 1, .threads = 2, .step_tokens = 64 },
		{ .layout = { .tp = 2, .pp = 1, .dp = 1 }, .ranks = 2, .threads = 1, .step_tokens = 33 },
		{ .layout = { .tp = 3, .pp = 1, .dp = 1 }, .ranks = 3, .threads = 1, .step_tokens = 128 },
		{ .layout = { .tp = 1, .pp = 2, .dp = 1 }, .ranks = 2, .threads = 2, .step_tokens = 64 },
		{ .layout = { .tp = 1, .pp = 3, .dp = 1 }, .ranks = 3, .threads = 1, .step_tokens = 27 },
		{ .layout = { .tp = 1, .pp = 1, .dp = 2 }, .ranks = 2, .threads = 1, .step_tokens = 40 },
		{ .layout = { .tp = 2, .pp = 2, .dp = 1 }, .ranks = 4, .threads = 1, .step_tokens = 64 },
		{ .layout = { .tp = 2, .pp = 1, .dp = 2 }, .ranks = 4, .threads = 1, .step_tokens = 29 },
		{ .layout = { .tp = 1, .pp = 2, .dp = 2 }, .ranks = 4, .threads = 1, .step_tokens = 50 },
	};
	compare_all(MODELS "llama-untied", cases, sizeof cases / sizeof *cases);
}

TEST(packed_weights_and_a_short_cache_under_load)
{
	static const struct job cases[] = {
		{ .layout = { .tp = 1, .pp = 1, .dp = 1 }, .ranks = 1, .threads = 2, .step_tokens = 64, .arithmetic = ARITHMETIC_DEFAULT, .kv_type = KV_F16 },
		{ .layout = { .tp = 2, .pp = 2, .dp = 1 }, .ranks = 4, .threads = 1, .step_tokens = 31, .arithmetic = ARITHMETIC_DEFAULT, .kv_type = KV_F16 },
		{ .layout = { .tp = 2, .pp = 1, .dp = 2 }, .ranks = 4, .threads = 1, .step_tokens = 64, .arithmetic = ARITHMETIC_DEFAULT, .kv_type = KV_F16 },
	};
	compare_all(MODELS "gguf-llama-mixed", cases, sizeof cases / sizeof *cases);
}

TEST(a_model_of_experts_under_load)
{
	static const struct job cases[] = {
		{ .layout = { .tp = 1, .pp = 1, .dp = 1 }, .ranks = 1, .threads = 1, .step_tokens = 64 },
		{ .layout = { .tp = 2, .pp = 1, .dp = 1, .ep = 2 }, .ranks = 2, .threads = 1, .step_tokens = 33 },
		{ .layout = { .tp = 1, .pp = 1, .dp = 2, .ep = 2 }, .ranks = 2, .threads = 2, .step_tokens = 64 },
		{ .layout = { .tp = 1, .pp = 2, .dp = 2, .ep = 2 }, .ranks = 4, .threads = 1, .step_tokens = 29 },
		{ .layout = { .tp = 1, .pp = 1, .dp = 3, .ep = 3 }, .ranks = 3, .threads = 1, .step_tokens = 64 },
		{ .layout = { .tp = 2, .pp = 1, .dp = 2, .ep = 2, .etp = 2 }, .ranks = 4, .threads = 1, .step_tokens = 50 },
		{ .layout = { .tp = 2, .pp = 1, .dp = 2, .ep = 4 }, .ranks = 4, .threads = 1, .step_tokens = 40 },
	};
	compare_all(MODELS "mixtral-8x2", cases, sizeof cases / sizeof *cases);
}

TEST_MAIN("load", CASE(a_dense_model_under_load), CASE(packed_weights_and_a_short_cache_under_load), CASE(a_model_of_experts_under_load))
