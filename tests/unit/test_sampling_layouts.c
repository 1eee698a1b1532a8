/* labels: golden
 * timeout: 300
 * Requests with penalties, biases, masks, stop tokens, several answers and log-probabilities, together and with scarce pages, get in
 * every layout the tokens, log-probabilities and digests that each answer gets alone on one rank. A request whose logits are
 * not numbers ends alone. */
#include "base/json.h"
#include "base/mem.h"
#include "runtime/engine.h"
#include "tests/kernel_data.h"
#include "tests/test.h"

#include <math.h>

#define MODELS SOURCE_DIR "/tests/golden/models/"

enum { N = 14, VOCAB = 131, MOST_PROMPT = 90, MOST_NEW = 60, MOST_ANSWERS = 3 * N, EOS = 2, POISON = 77, CONTEXT = 160 };

struct set {
	struct request r[N];
	int32_t prompts[N][MOST_PROMPT];
	struct token_bias biases[N][20];
	int32_t stops[N][4];
	uint32_t mask[(VOCAB + 31) / 32];
};

struct job {
	const char *model;
	struct layout layout;
	int ranks;
	int64_t pages, sequences, step_tokens;
	const struct request *requests;
	int n, poisoned, speculates;
	struct cluster cluster;
	struct answer answers[MOST_ANSWERS];   /* out: the caller's to free */
	int n_answers;
	struct schedule_counts counts;
};

/* Embeds the token POISON as what is not a number. */
static void poison(struct session *s)
{
	const struct shard *sh = &s->stage->shard;
	const struct weight *w = &s->stage->weights->embed;
	if (!sh->first_stage || POISON < sh->vocab.begin || POISON >= sh->vocab.end)
		return;
	float *row = (float *)(void *)(w->data + (POISON - sh->vocab.begin) * w->row_bytes);
	for (int64_t i = 0; i < s->model.n_embd; i++)
		row[i] = NAN;
}

static enum err body(struct comm *world, void *arg)
{
	struct job *j = arg;
	struct place place = { 0 };
	struct session *s = NULL;
	struct generation g = { 0 };
	struct session_wish wish = { .model_path = j->model, .isa = "auto" };
	wish.plan = (struct plan_wish){ .layout = j->layout, .threads = 1, .step_tokens = j->step_tokens, .sequences = j->sequences,
					.context = CONTEXT, .useful_pages = j->pages, .speculates = j->speculates };
	enum err e = place_invent(&j->cluster, j->ranks, 0, &place);
	if (!e)
		e = session_create(world, &wish, &place, &s);
	if (!e && j->poisoned)
		poison(s);
	if (comm_rank(world) == 0)
		g = (struct generation){ .requests = j->requests, .n_requests = j->n };
	if (!e)
		e = session_generate(s, &g);
	if (!e && comm_rank(world) == 0) {
		j->n_answers = (int)g.n_answers;
		j->counts = g.counts;
		for (int i = 0; i < j->n_answers; i++) {
			j->answers[i] = g.answers[i];
			g.answers[i] = (struct answer){ 0 };
		}
	}
	answers_free(g.answers, g.n_answers);
	session_destroy(s);
	place_free(&place);
	return e;
}

static void run(struct job *j)
{
	CU_ASSERT_EQUAL_FATAL(cluster_read("pack:1 core:32 pu:1", &j->cluster), ERR_OK);
	CHECK_OK(comm_inproc_run(j->ranks, NULL, body, j));
	cluster_free(&j->cluster);
}

static void end_job(struct job *j)
{
	for (int i = 0; i < j->n_answers; i++)
		answer_free(&j->answers[i]);
}

/* Options in many mixtures; prompts from three beginnings, so that pages are shared, copied and lost. */
static void make(struct set *s)
{
	memset(s, 0, sizeof *s);
	random_state = 5;
	for (int i = 0; i < (VOCAB + 31) / 32; i++)
		s->mask[i] = 0x55555555u;              /* even tokens: end-of-text among them */
	for (int i = 0; i < N; i++) {
		int n = 5 + i * 29 % 80;
		for (int k = 0; k < n; k++)
			s->prompts[i][k] = (k * 5 + i % 3 * 17 + (k > 40 ? i : 0)) % VOCAB;
		for (int k = 0; k < 20; k++)
			s->biases[i][k] = (struct token_bias){ (int32_t)random_below(VOCAB), 4 * random_float() };
		for (int k = 0; k < 4; k++)
			s->stops[i][k] = (int32_t)random_below(VOCAB);
		s->r[i] = (struct request){ .prompt = s->prompts[i], .n_prompt = n, .max_tokens = MOST_NEW,
			.sample = { .temperature = i % 2 ? 0.9f : 0, .top_k = i % 3 ? 40 : 0, .top_p = i % 4 ? 0.95f : 1, .min_p = i % 5 ? 0 : 0.01f,
				    .seed = 3, .choice = (uint32_t)i, .logprobs = i % 3 == 1 ? 1 + i : 0 },
			.repetition_penalty = i % 3 ? 1.2f : 0, .frequency_penalty = i % 4 == 1 ? 0.3f : 0,
			.presence_penalty = i % 5 == 2 ? 0.5f : 0, .biases = s->biases[i], .n_biases = i % 4 ? 0 : 20,
			.stop_tokens = s->stops[i], .n_stop_tokens = i % 2 ? 4 : 0, .min_tokens = i % 3 ? 12 : 0,
			.ignore_eos = i % 7 == 3, .mask = i % 5 == 4 ? s->mask : NULL, .n = i % 4 == 3 ? 3 : 1 };
	}
}

/* Each answer by itself. */
static void get_alone(const struct set *s, const char *model, int poisoned, struct job *alone)
{
	alone->n_answers = 0;
	for (int i = 0; i < N; i++)
		for (int c = 0; c < s->r[i].n; c++) {
			struct request one = s->r[i];
			struct job j = { .model = model, .layout = { .tp = 1, .pp = 1, .dp = 1 }, .ranks = 1, .sequences = 4, .step_tokens = 64,
					 .requests = &one, .n = 1, .poisoned = poisoned };
			one.n = 1;
			one.sample.choice += (uint32_t)c;
			run(&j);
			alone->answers[alone->n_answers++] = j.answers[0];
		}
}

static int same(const struct answer *a, const struct answer *b)
{
	size_t n = (size_t)a->n_tokens;
	return a->n_tokens == b->n_tokens && a->finish == b->finish && a->digest == b->digest && a->choice == b->choice &&
	       (n == 0 || !memcmp(a->tokens, b->tokens, n * sizeof *a->tokens)) && !a->logprobs == !b->logprobs &&
	       (!a->logprobs || n == 0 || !memcmp(a->logprobs, b->logprobs, n * sizeof *a->logprobs)) && !a->error == !b->error &&
	       (!a->error || !strcmp(a->error, b->error));
}

static const struct { struct layout layout; int ranks; int64_t step_tokens; } layouts[] = {
	{ { .tp = 1, .pp = 1, .dp = 1 }, 1, 64 }, { { .tp = 2, .pp = 1, .dp = 1 }, 2, 33 }, { { .tp = 3, .pp = 1, .dp = 1 }, 3, 64 },
	{ { .tp = 1, .pp = 2, .dp = 1 }, 2, 17 }, { { .tp = 1, .pp = 1, .dp = 2 }, 2, 40 }, { { .tp = 2, .pp = 2, .dp = 1 }, 4, 64 },
	{ { .tp = 2, .pp = 1, .dp = 2 }, 4, 29 },
};

/* Also with guesses from the text, of which no answer alone has any. */
static void compare(const struct set *s, const char *model, int poisoned, const struct job *alone, struct schedule_counts *sums)
{
	for (size_t i = 0; i < 2 * (sizeof layouts / sizeof *layouts); i++) {
		size_t c = i / 2;
		struct job j = { .model = model, .layout = layouts[c].layout, .ranks = layouts[c].ranks, .pages = 7, .sequences = 6,
				 .step_tokens = layouts[c].step_tokens, .requests = s->r, .n = N, .poisoned = poisoned,
				 .speculates = i % 2 };
		run(&j);
		CU_ASSERT_EQUAL_FATAL(j.n_answers, alone->n_answers);
		for (int k = 0; k < j.n_answers; k++) {
			if (!same(&j.answers[k], &alone->answers[k]))
				fprintf(stderr, "case %zu%s: answer %d is another\n", c, i % 2 ? " with guesses" : "", k);
			CU_ASSERT(same(&j.answers[k], &alone->answers[k]));
		}
		CU_ASSERT_EQUAL(j.counts.drafted > 0, i % 2);
		sums->drafted += j.counts.drafted;
		sums->accepted += j.counts.accepted;
		sums->shared_tokens += j.counts.shared_tokens;
		sums->put_back += j.counts.put_back;
		end_job(&j);
	}
}

TEST(every_answer_is_the_one_it_gets_alone)
{
	static struct set s;
	static struct job alone;
	struct schedule_counts sums = { 0 };
	int stopped = 0;
	make(&s);
	get_alone(&s, MODELS "llama-tied", 0, &alone);
	compare(&s, MODELS "llama-tied", 0, &alone, &sums);
	for (int i = 0; i < alone.n_answers; i++)
		stopped += alone.answers[i].finish == FINISH_STOP;
	printf("%lld tokens shared, %lld put back, %d stopped, %lld drafted, %lld accepted  ", (long long)sums.shared_tokens,
	       (long long)sums.put_back, stopped, (long long)sums.drafted, (long long)sums.accepted);
	CU_ASSERT(sums.shared_tokens > 500 && sums.put_back > 10 && stopped > 2 && stopped < alone.n_answers);
	end_job(&alone);
}

/* Requests that may be guessed for: biases, bans and log-probabilities stay. */
TEST(guesses_change_nothing_of_an_answer)
{
	static struct set s;
	static struct job alone;
	struct schedule_counts sums = { 0 };
	int stopped = 0;
	make(&s);
	for (int i = 0; i < N; i++) {
		struct request *r = &s.r[i];
		r->repetition_penalty = r->frequency_penalty = r->presence_penalty = 0;
		r->mask = NULL;
		r->min_tokens = i % 2 ? 9 : 0;
		r->sample.logprobs = 1 + i % 4;
		r->sample.temperature *= 0.4f;
		for (int64_t k = 7 + i % 3; k < r->n_prompt; k++)
			s.prompts[i][k] = s.prompts[i][k - 7 + i % 3];
	}
	get_alone(&s, MODELS "llama-tied", 0, &alone);
	compare(&s, MODELS "llama-tied", 0, &alone, &sums);
	for (int i = 0; i < alone.n_answers; i++)
		stopped += alone.answers[i].finish == FINISH_STOP;
	printf("%d stopped, %lld drafted, %lld accepted  ", stopped, (long long)sums.drafted, (long long)sums.accepted);
	CU_ASSERT(stopped > 2 && stopped < alone.n_answers && sums.accepted > 500);
	end_job(&alone);
}

static int has(const struct request *r, int32_t token)
{
	for (int64_t i = 0; i < r->n_prompt; i++)
		if (r->prompt[i] == token)
			return 1;
	return 0;
}

TEST(logits_that_are_no_numbers_end_their_request_alone)
{
	static struct set s;
	static struct job alone;
	struct schedule_counts sums = { 0 };
	int at = 0, failed = 0, good = 0;
	make(&s);
	get_alone(&s, MODELS "llama-untied", 1, &alone);
	for (int i = 0; i < N; i++)
		for (int c = 0; c < s.r[i].n; c++, at++) {
			const struct answer *a = &alone.answers[at];
			if (has(&s.r[i], POISON)) {
				CU_ASSERT(a->finish == FINISH_ERROR && a->n_tokens == 0 && a->error && strstr(a->error, "NaN"));
				failed++;
			}
			good += a->finish != FINISH_ERROR;
		}
	printf("%d failed, %d good  ", failed, good);
	CU_ASSERT(failed > 3 && good > 3);
	compare(&s, MODELS "llama-untied", 1, &alone, &sums);
	end_job(&alone);
}

/* What an option says, seen in the answer of one request. */
static struct answer answer_to(struct request *r)
{
	struct job j = { .model = MODELS "llama-tied", .layout = { .tp = 1, .pp = 1, .dp = 1 }, .ranks = 1, .sequences = 4, .step_tokens = 64,
			 .requests = r, .n = 1 };
	run(&j);
	return j.answers[0];
}

static int count(const struct answer *a, int32_t token)
{
	int n = 0;
	for (int64_t i = 0; i < a->n_tokens; i++)
		n += a->tokens[i] == token;
	return n;
}

TEST(options_do_what_they_say)
{
	static struct set s;
	struct token_bias liked = { 9, 100 };
	make(&s);
	struct request r = { .prompt = s.prompts[1], .n_prompt = 12, .max_tokens = 30, .biases = &liked, .n_biases = 1 };
	struct answer a = answer_to(&r);
	CU_ASSERT(a.finish == FINISH_LENGTH && count(&a, 9) == 30);
	answer_free(&a);
	r.stop_tokens = &liked.token, r.n_stop_tokens = 1;
	a = answer_to(&r);
	CU_ASSERT(a.finish == FINISH_STOP && a.n_tokens == 1 && a.tokens[0] == 9);
	answer_free(&a);
	r.min_tokens = 7;
	a = answer_to(&r);
	CU_ASSERT(a.finish == FINISH_STOP && a.n_tokens == 8 && count(&a, 9) == 1 && a.tokens[7] == 9);
	answer_free(&a);
	liked.token = EOS;
	r.min_tokens = r.n_stop_tokens = 0;
	a = answer_to(&r);
	CU_ASSERT(a.finish == FINISH_STOP && a.n_tokens == 1);
	answer_free(&a);
	r.ignore_eos = 1;
	a = answer_to(&r);
	CU_ASSERT(a.finish == FINISH_LENGTH && count(&a, EOS) == 30);
	answer_free(&a);
	r.mask = s.mask, liked.token = 9;                 /* odd: not allowed, however much it is liked */
	a = answer_to(&r);
	for (int64_t i = 0; i < a.n_tokens; i++)
		CU_ASSERT_EQUAL(a.tokens[i] % 2, 0);
	answer_free(&a);
	r.mask = NULL, r.presence_penalty = 1000;         /* no token twice, but the first time the liked one */
	a = answer_to(&r);
	CU_ASSERT(count(&a, 9) == 1 && a.tokens[0] == 9);
	for (int64_t i = 0; i < a.n_tokens; i++)
		CU_ASSERT_EQUAL(count(&a, a.tokens[i]), 1);
	answer_free(&a);
}

/* --- against transformers (tests/golden/make_sampling.py) --- */

static int read_ids(const json_t *list, int32_t *to)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		to[i] = (int32_t)json_integer_value(json_array_get(list, i));
	return (int)json_array_size(list);
}

static void check_logprobs(const json_t *golden, const struct answer *a)
{
	for (size_t i = 0; i < (size_t)a->n_tokens; i++) {
		double chosen = json_real_value(json_array_get(json_object_get(golden, "logprobs"), i));
		json_t *best = json_array_get(json_object_get(golden, "best"), i);
		CU_ASSERT(fabs((double)a->logprobs[i].chosen - chosen) < 2e-4);
		CU_ASSERT_EQUAL(a->logprobs[i].n, 5);
		for (size_t k = 0; k < 5; k++)      /* two may stand the other way round when they are nearly equal */
			CU_ASSERT(fabs((double)a->logprobs[i].best[k].logprob -
				       json_real_value(json_array_get(json_array_get(best, k), 1))) < 2e-4);
	}
}

TEST(greedy_answers_are_those_of_transformers)
{
	json_t *list;
	CHECK_OK(json_parse_file(SOURCE_DIR "/tests/golden/sampling/golden.json", 1 << 20, ERR_IO, &list));
	CU_ASSERT_EQUAL_FATAL(json_array_size(list), 18);
	for (size_t i = 0; i < 18; i++) {
		json_t *golden = json_array_get(list, i), *bias = json_object_get(golden, "bias");
		int32_t prompt[MOST_PROMPT], tokens[MOST_NEW];
		struct token_bias biases[3];
		struct request r = { .prompt = prompt, .max_tokens = 30, .sample = { .logprobs = 6 }, .biases = biases };
		r.n_prompt = read_ids(json_object_get(golden, "prompt"), prompt);
		r.repetition_penalty = (float)json_real_value(json_object_get(golden, "repetition_penalty"));
		r.min_tokens = json_integer_value(json_object_get(golden, "min_tokens"));
		for (r.n_biases = 0; r.n_biases < (int)json_array_size(bias); r.n_biases++) {
			json_t *pair = json_array_get(bias, (size_t)r.n_biases);
			biases[r.n_biases] = (struct token_bias){ (int32_t)json_integer_value(json_array_get(pair, 0)),
								  (float)json_real_value(json_array_get(pair, 1)) };
		}
		struct job j = { .model = MODELS "llama-untied", .layout = { .tp = 1 + (int)i % 3, .pp = 1, .dp = 1 }, .ranks = 1 + (int)i % 3,
				 .sequences = 4, .step_tokens = 64, .requests = &r, .n = 1 };
		run(&j);
		int n = read_ids(json_object_get(golden, "tokens"), tokens);
		CU_ASSERT_EQUAL_FATAL(j.n_answers, 1);
		CU_ASSERT_EQUAL_FATAL(j.answers[0].n_tokens, n);
		CU_ASSERT(!memcmp(j.answers[0].tokens, tokens, (size_t)n * sizeof *tokens));
		CU_ASSERT_EQUAL(j.answers[0].finish, n < 30 ? FINISH_STOP : FINISH_LENGTH);
		check_logprobs(golden, &j.answers[0]);
		end_job(&j);
	}
	json_decref(list);
}

TEST_MAIN("sampling in all layouts", CASE(every_answer_is_the_one_it_gets_alone), CASE(guesses_change_nothing_of_an_answer),
	  CASE(logits_that_are_no_numbers_end_their_request_alone), CASE(options_do_what_they_say),
	  CASE(greedy_answers_are_those_of_transformers))
