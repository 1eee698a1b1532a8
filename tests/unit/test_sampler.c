/* labels: unit
 * timeout: 240
 * A token is chosen the same on any number of ranks, from the set that top-k, top-p and min-p leave (found here from one
 * sorted array in long double), with the probabilities of the softmax over it. */
#include "runtime/sampler.h"
#include "base/mem.h"
#include "tests/kernel_data.h"
#include "tests/test.h"

#include <math.h>

enum { MAX_VOCAB = 512 };

/* One question, asked for positions 0 .. n_draws-1 on some number of ranks; rank 0 writes the answers. */
struct question {
	const float *logits;
	int64_t n_vocab;
	struct sample_params p;
	int n_draws;
	int32_t *tokens;
	int disagreed;
	/* may be left out */
	const struct adjustments *adjust;
	const int32_t *later;                /* tokens that the answer gets after the adjustments are told its first ones */
	int n_later;
	struct sample_logprobs *logprobs;    /* of each draw; out */
	int fault;                           /* out: the last one */
	struct pool *pool;                   /* of the only rank */
};

static void tell(struct sampler *s, const struct question *q)
{
	struct adjustments later = *q->adjust, other = *q->adjust;
	other.slot = (q->adjust->slot + 1) % 3;      /* another sequence's, which must not be seen */
	sampler_note(s, &other, NULL, 0);
	sampler_note(s, q->adjust, NULL, 0);
	other.slot = (q->adjust->slot + 2) % 3;
	sampler_note(s, &other, NULL, 0);
	later.n_prompt = later.n_answer = 0;
	for (int i = 0; i < q->n_later; i++)
		sampler_note(s, &later, &q->later[i], 1);
}

static enum err ask_body(struct comm *world, void *arg)
{
	struct question *q = arg;
	int rank = comm_rank(world), size = comm_size(world);
	/* Uneven: rank r gets from V r^2 / size^2 on, so small vocabularies leave the first ranks without any token. */
	int64_t begin = q->n_vocab * rank * rank / (size * size);
	int64_t end = q->n_vocab * (rank + 1) * (rank + 1) / (size * size);
	struct sampler *s;
	enum err e = ERR_OK;
	TRY(sampler_create(&(struct sampler_size){ end - begin, begin, 3, 80, size, q->pool ? pool_threads(q->pool) : 1 }, q->pool, &s));
	if (q->adjust)
		tell(s, q);
	for (int i = 0; i < q->n_draws && !e; i++) {
		int32_t token = -1, extremes[2];
		enum sample_fault fault;
		uint64_t best = kernels_best()->best_key(q->logits + begin, end - begin, begin);
		comm_allreduce(world, &best, 1, COMM_U64, COMM_MAX);
		struct sample_row row = { .logits = q->logits + begin, .best = best, .position = i, .p = &q->p,
					  .adjust = q->adjust };
		e = sampler_choose(s, world, kernels_best(), &row, &token, &fault);
		if (rank == 0)
			q->fault = (int)fault;
		if (e || fault)
			break;
		if (q->logprobs) {
			struct sample_logprobs logprobs;
			e = sampler_logprobs(s, world, kernels_best(), &row, token, &logprobs);
			if (rank == 0)
				q->logprobs[i] = logprobs;
		}
		extremes[0] = token, extremes[1] = -token;
		if (i % 16 == 0) {   /* all ranks got the same */
			e = comm_allreduce(world, extremes, 2, COMM_I32, COMM_MAX);
			if (!e && extremes[0] != -extremes[1])
				q->disagreed = 1;
		}
		if (rank == 0)
			q->tokens[i] = token;
	}
	sampler_destroy(s);
	return e;
}

static enum err ask(int n_ranks, const float *logits, int64_t n_vocab, struct sample_params p, int n_draws, int32_t *tokens)
{
	struct question q = { .logits = logits, .n_vocab = n_vocab, .p = p, .n_draws = n_draws, .tokens = tokens };
	enum err e = comm_inproc_run(n_ranks, NULL, ask_body, &q);
	CU_ASSERT_EQUAL(q.disagreed, 0);
	return e;
}

static int32_t ask_one(int n_ranks, const float *logits, int64_t n_vocab, struct sample_params p)
{
	int32_t token = -1;
	CHECK_OK(ask(n_ranks, logits, n_vocab, p, 1, &token));
	return token;
}

/* Which tokens are left and with what probability, from one sorted array. Returns how many; 0 when a cut is so near to a
 * sum that long double and fixed point may disagree. */
struct ranked { float logit; int32_t id; };

static int by_logit_then_id(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : x->id - y->id;
}

static int reference(const float *logits, int n_vocab, struct sample_params p, long double *probability)
{
	struct ranked order[MAX_VOCAB];
	long double share[MAX_VOCAB], sum = 0, walked = 0, left = 0;
	int n, kept, result = 0;
	for (int i = 0; i < n_vocab; i++)
		order[i] = (struct ranked){ logits[i], i };
	qsort(order, (size_t)n_vocab, sizeof order[0], by_logit_then_id);
	n = p.top_k > 0 && p.top_k < n_vocab ? p.top_k : n_vocab;
	for (int i = 0; i < n; i++)
		sum += share[i] = expl(((long double)order[i].logit - (long double)order[0].logit) /
				       (long double)p.temperature);
	for (kept = 0; kept < n && (kept == 0 || walked < (long double)p.top_p * sum); kept++) {
		walked += share[kept];
		if (p.top_p < 1 && fabsl(walked / sum - (long double)p.top_p) < 1e-5L)
			return 0;
	}
	if (p.top_p >= 1)
		kept = n;
	for (int i = 0; i < n_vocab; i++)
		probability[i] = 0;
	for (int i = 0; i < kept; i++) {
		if (fabsl(share[i] - (long double)p.min_p) < 1e-5L)
			return 0;
		if (share[i] >= (long double)p.min_p) {
			probability[order[i].id] = share[i];
			left += share[i];
			result++;
		}
	}
	for (int i = 0; i < n_vocab; i++)
		probability[i] /= left;
	return result;
}

/* Sum of (seen - expected)^2 / expected; *outside counts draws that must not happen. */
static double chi_square(const int32_t *tokens, int n_draws, const long double *probability, int n_vocab, int *outside)
{
	int seen[MAX_VOCAB] = { 0 };
	double sum = 0;
	*outside = 0;
	for (int i = 0; i < n_draws; i++)
		seen[tokens[i]]++;
	for (int i = 0; i < n_vocab; i++) {
		double expected = (double)probability[i] * n_draws;
		if (expected > 0)
			sum += (seen[i] - expected) * (seen[i] - expected) / expected;
		else
			*outside += seen[i];
	}
	return sum;
}

/* Known answers of Random123 1.14 (tests/kat_vectors, philox4x32 10). */
TEST(the_generator_is_philox)
{
	CU_ASSERT_EQUAL(sampler_random(0, 0, 0, 0), 0xe169c58d6627e8d5u);
	CU_ASSERT_EQUAL(sampler_random(UINT64_MAX, UINT32_MAX, UINT64_MAX, UINT32_MAX), 0x41c83b0e408f276du);
	uint64_t digits_of_pi = sampler_random(0x299f31d0a4093822u, 0x03707344u, 0x85a308d3243f6a88u, 0x13198a2eu);
	CU_ASSERT_EQUAL(digits_of_pi, 0x94fdccebd16cfe09u);
}

TEST(greedy_takes_the_lowest_of_the_best)
{
	float logits[40];
	struct sample_params greedy = { .temperature = 0, .top_k = 3, .top_p = 0.5f, .min_p = 0.5f, .seed = 1 };
	for (int ranks = 1; ranks <= 5; ranks++) {
		for (int i = 0; i < 40; i++)
			logits[i] = -3.0f;
		CU_ASSERT_EQUAL(ask_one(ranks, logits, 40, greedy), 0);
		logits[37] = logits[12] = logits[30] = -1.0f;
		CU_ASSERT_EQUAL(ask_one(ranks, logits, 40, greedy), 12);
		logits[20] = 0.0f;
		logits[11] = -0.0f;   /* equal to +0, so the lower id */
		CU_ASSERT_EQUAL(ask_one(ranks, logits, 40, greedy), 11);
		logits[39] = 1e-45f;
		CU_ASSERT_EQUAL(ask_one(ranks, logits, 40, greedy), 39);
		for (int i = 0; i < 39; i++)
			logits[i] = -INFINITY;
		CU_ASSERT_EQUAL(ask_one(ranks, logits, 40, greedy), 39);
	}
}

/* Every rank ends with the same fault, or their next reduction would never end. */
TEST(logits_that_are_no_numbers_are_a_fault_on_all_ranks)
{
	static const struct { float value; int fault; } cases[] = { { NAN, SAMPLE_NAN }, { -NAN, SAMPLE_NAN }, { INFINITY, SAMPLE_INFINITE } };
	float logits[30] = { 0 };
	for (int ranks = 1; ranks <= 3; ranks++)
		for (int place = 0; place < 30; place += 29)
			for (int c = 0; c < 3; c++)
				for (int warm = 0; warm < 2; warm++) {
					int32_t token = -7;
					struct question q = { .logits = logits, .n_vocab = 30, .n_draws = 2, .tokens = &token,
							      .p = { .temperature = (float)warm, .top_p = 1 } };
					logits[place] = cases[c].value;
					CHECK_OK(comm_inproc_run(ranks, NULL, ask_body, &q));
					CU_ASSERT_EQUAL(q.fault, cases[c].fault);
					CU_ASSERT_EQUAL(token, -7);
					logits[place] = 0;
				}
	for (int i = 0; i < 30; i++)
		logits[i] = -INFINITY;
	int32_t token = -7;
	struct question q = { .logits = logits, .n_vocab = 30, .n_draws = 1, .tokens = &token };
	CHECK_OK(comm_inproc_run(2, NULL, ask_body, &q));
	CU_ASSERT_EQUAL(q.fault, SAMPLE_INFINITE);
}

TEST(cuts_at_ties_go_to_the_lower_ids)
{
	const float two[4] = { 1.0f, 5.0f, 1.0f, 5.0f };
	int32_t tokens[200];
	struct { struct sample_params p; int first, second; } cases[] = {
		{ { .temperature = 1, .top_k = 1, .top_p = 1 }, 1, 0 },
		{ { .temperature = 1, .top_k = 2, .top_p = 1 }, 1, 1 },
		{ { .temperature = 1, .top_k = 2, .top_p = 0.5f }, 1, 0 },        /* the first alone is a half exactly */
		{ { .temperature = 1, .top_k = 2, .top_p = 0.500001f }, 1, 1 },
		{ { .temperature = 1, .top_p = 0.4f }, 1, 0 },
		{ { .temperature = 1, .top_p = 1, .min_p = 1 }, 1, 1 },           /* both are the maximum */
		{ { .temperature = 1, .top_p = 0 }, 1, 0 },                       /* never empty */
		{ { .temperature = 0.01f, .top_p = 1 }, 1, 1 },
	};
	for (int ranks = 1; ranks <= 3; ranks++)
		for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
			int seen[4] = { 0 };
			cases[i].p.seed = 9;
			CHECK_OK(ask(ranks, two, 4, cases[i].p, 200, tokens));
			for (int t = 0; t < 200; t++)
				seen[tokens[t]]++;
			CU_ASSERT_EQUAL(seen[1] > 0, cases[i].first);
			CU_ASSERT_EQUAL(seen[3] > 0, cases[i].second);
			CU_ASSERT_EQUAL(seen[0] + seen[2], 0);
		}
}

TEST(what_is_left_is_what_one_sorted_array_says)
{
	enum { DRAWS = 300 };
	int32_t *one = room(DRAWS * sizeof *one), *many = room(DRAWS * sizeof *many);
	int compared = 0;
	for (int round = 0; round < 72; round++) {
		float logits[16];
		long double probability[MAX_VOCAB];
		int n_vocab = 2 + (int)random_below(15), outside, missing = 0, seen[16] = { 0 };
		float temperature = 0.5f + 0.25f * (float)random_below(6);
		struct sample_params p = { .temperature = temperature, .top_p = 1, .seed = random_u32() };
		for (int i = 0; i < n_vocab; i++)   /* from a few values, so that ties meet every cut */
			logits[i] = 0.4f * (float)random_below(4) - 1.0f;
		if (round & 1)
			p.top_k = 1 + (int32_t)random_below(n_vocab + 2);
		if (round & 2)
			p.top_p = 0.05f * (float)(1 + random_below(19));
		if (round & 4)
			p.min_p = 0.1f * (float)random_below(9);
		if (!reference(logits, n_vocab, p, probability))
			continue;
		compared++;
		CHECK_OK(ask(1, logits, n_vocab, p, DRAWS, one));
		CHECK_OK(ask(2 + round % 2, logits, n_vocab, p, DRAWS, many));
		CU_ASSERT(!memcmp(one, many, DRAWS * sizeof *one));
		chi_square(one, DRAWS, probability, n_vocab, &outside);
		CU_ASSERT_EQUAL(outside, 0);
		for (int i = 0; i < DRAWS; i++)
			seen[one[i]]++;
		for (int i = 0; i < n_vocab; i++)
			missing += probability[i] > 0.04L && !seen[i];   /* 0.96^300 = 5e-6 */
		CU_ASSERT_EQUAL(missing, 0);
	}
	CU_ASSERT(compared > 48);
	free(one), free(many);
}

/* Wide vocabularies, where a cut is many digits deep: the draw is the reference's own argmax of log-probability + noise. */
TEST(a_draw_is_the_best_of_probability_and_noise)
{
	enum { DRAWS = 40 };
	int32_t tokens[DRAWS];
	for (int round = 0; round < 40; round++) {
		float *logits = random_floats(MAX_VOCAB);
		long double probability[MAX_VOCAB];
		struct sample_params p = { .temperature = 0.7f, .top_p = 1, .seed = 100 + (uint64_t)round };
		p.choice = (uint32_t)round;
		for (int i = 0; i < MAX_VOCAB; i++)
			logits[i] = round % 5 ? 8 * logits[i] : 1.0f + 1e-6f * logits[i];
		p.top_k = round & 1 ? 1 + (int32_t)random_below(200) : 0;
		p.top_p = round & 2 ? 0.9f : 1;
		p.min_p = round & 4 ? 0.01f : 0;
		if (reference(logits, MAX_VOCAB, p, probability)) {
			CHECK_OK(ask(1 + round % 3, logits, MAX_VOCAB, p, DRAWS, tokens));
			for (int pos = 0; pos < DRAWS; pos++) {
				long double best = -INFINITY, score[MAX_VOCAB];
				for (int i = 0; i < MAX_VOCAB; i++) {
					uint64_t bits = sampler_random(p.seed, p.choice, (uint64_t)pos, (uint32_t)i);
					long double u = ((long double)(bits >> 12) + 0.5L) / 4503599627370496.0L;
					score[i] = logl(probability[i]) - logl(-logl(u));
					best = score[i] > best ? score[i] : best;
				}
				CU_ASSERT(score[tokens[pos]] >= best - 1e-5L);
			}
		}
		free(logits);
	}
}

TEST(ten_thousand_draws_are_the_same_on_any_number_of_ranks_and_follow_the_softmax)
{
	enum { VOCAB = 20, DRAWS = 10000 };
	static const int ranks[] = { 2, 3, 5 };
	int32_t *one = room(DRAWS * sizeof *one), *many = room(DRAWS * sizeof *many);
	float logits[VOCAB];
	long double probability[MAX_VOCAB];
	int outside;
	for (int i = 0; i < VOCAB; i++)
		logits[i] = 2 * random_float();
	for (int kind = 0; kind < 2; kind++) {
		struct sample_params p = { .temperature = 0.9f, .top_p = 1, .seed = 2026 };
		if (kind) {
			p.top_k = 12;
			p.top_p = 0.9f;
		}
		int left = reference(logits, VOCAB, p, probability);
		CHECK_OK(ask(1, logits, VOCAB, p, DRAWS, one));
		/* Chi-square, upper 0.1 % points: 43.82 for 19 degrees of freedom, 31.26 for 11 (NIST handbook). */
		CU_ASSERT(left > 1 && left <= VOCAB);
		CU_ASSERT(chi_square(one, DRAWS, probability, VOCAB, &outside) < (kind ? 31.26 : 43.82));
		CU_ASSERT_EQUAL(outside, 0);
		for (int r = 0; r < (kind ? 1 : 3); r++) {
			CHECK_OK(ask(ranks[r], logits, VOCAB, p, DRAWS, many));
			CU_ASSERT(!memcmp(one, many, DRAWS * sizeof *one));
		}
	}
	free(one), free(many);
}

TEST(seed_and_choice_and_position_each_change_the_draws)
{
	enum { DRAWS = 64 };
	float logits[16] = { 0 };
	int32_t base[DRAWS], other[DRAWS];
	struct sample_params p = { .temperature = 1, .top_p = 1, .seed = 5 };
	int distinct = 0;
	CHECK_OK(ask(1, logits, 16, p, DRAWS, base));
	for (int i = 1; i < DRAWS; i++)
		distinct += base[i] != base[0];
	CU_ASSERT(distinct > 40);
	p.choice = 1;
	CHECK_OK(ask(1, logits, 16, p, DRAWS, other));
	CU_ASSERT(memcmp(base, other, sizeof base) != 0);
	p.choice = 0, p.seed = 6;
	CHECK_OK(ask(1, logits, 16, p, DRAWS, other));
	CU_ASSERT(memcmp(base, other, sizeof base) != 0);
	p.seed = 5;
	CHECK_OK(ask(1, logits, 16, p, DRAWS, other));
	CU_ASSERT(!memcmp(base, other, sizeof base));
}

/* --- adjustments and log-probabilities, against the same in double --- */

struct text { int32_t prompt[40], answer[40]; int n_prompt, n_answer; };

/* HF transformers' RepetitionPenaltyLogitsProcessor, then OpenAI's formula for the other two, then biases and masks. */
static void adjust_in_double(const float *logits, int n_vocab, const struct adjustments *a, const struct text *t, float *out)
{
	for (int id = 0; id < n_vocab; id++) {
		double l = (double)logits[id];
		int seen = 0, count = 0, may = 1;
		for (int i = 0; i < t->n_prompt; i++)
			seen |= t->prompt[i] == id;
		for (int i = 0; i < t->n_answer; i++)
			count += t->answer[i] == id;
		if (seen || count)
			l = l < 0 ? l * (double)a->repetition : l / (double)a->repetition;
		l -= (double)a->frequency * count + (double)a->presence * (count > 0);
		for (int i = 0; i < a->n_biases; i++)
			l += a->biases[i].token == id ? (double)a->biases[i].bias : 0;
		for (int i = 0; i < a->n_banned; i++)
			may &= a->banned[i] != id;
		if (a->n_mask)
			may &= (int)(a->mask[id / 32] >> (id % 32) & 1);
		out[id] = may ? (float)l : -INFINITY;
	}
}

static void check_logprobs(const float *logits, int n_vocab, int n_best, int32_t token, const struct sample_logprobs *l)
{
	struct ranked order[MAX_VOCAB];
	double sum = 0;
	for (int i = 0; i < n_vocab; i++)
		order[i] = (struct ranked){ logits[i], i };
	qsort(order, (size_t)n_vocab, sizeof order[0], by_logit_then_id);
	for (int i = 0; i < n_vocab; i++)
		sum += exp((double)logits[i] - (double)order[0].logit);
	double base = (double)order[0].logit + log(sum);
	CU_ASSERT(fabs((double)l->chosen - ((double)logits[token] - base)) < 1e-5);
	CU_ASSERT_EQUAL(l->n, n_best < n_vocab ? n_best : n_vocab);
	for (int i = 0; i < l->n; i++) {
		CU_ASSERT_EQUAL(l->best[i].token, order[i].id);
		CU_ASSERT(fabs((double)l->best[i].logprob - ((double)order[i].logit - base)) < 1e-5);
	}
}

/* An option each with even odds. Tokens are of a small part of the vocabulary, so that they come again. */
struct options {
	struct adjustments a;
	struct text text;
	struct token_bias biases[30];
	int32_t banned[10];
	uint32_t mask[MAX_VOCAB / 32];
	struct sample_params p;
	int n_told;              /* tokens of the answer that are told at once */
};

static void make_options(struct options *o, int n_vocab)
{
	int some = n_vocab < 20 ? n_vocab : 20;
	uint32_t odds = random_u32();
	memset(o, 0, sizeof *o);
	o->text.n_prompt = 1 + (int)random_below(39);
	o->text.n_answer = (int)random_below(40);
	for (int i = 0; i < 40; i++) {
		o->text.prompt[i] = (int32_t)random_below(some) * (n_vocab / some);
		o->text.answer[i] = (int32_t)random_below(some) * (n_vocab / some);
	}
	for (int i = 0; i < 30; i++)
		o->biases[i] = (struct token_bias){ (int32_t)random_below(n_vocab), 10 * random_float() };
	for (int i = 0; i < 10; i++)
		o->banned[i] = (int32_t)random_below(n_vocab);
	for (int i = 0; i < MAX_VOCAB / 32; i++)
		o->mask[i] = random_u32() | 1;
	o->n_told = (int)random_below(o->text.n_answer + 1);
	o->a = (struct adjustments){ .repetition = odds & 1 ? 1 + 0.5f * random_float() : 1, .frequency = odds & 2 ? random_float() : 0,
				     .presence = odds & 4 ? 2 * random_float() : 0, .slot = (int32_t)random_below(3),
				     .n_prompt = o->text.n_prompt, .n_answer = o->n_told, .n_banned = odds & 8 ? 5 : 0,
				     .n_biases = odds & 16 ? 30 : 0, .n_mask = odds & 32 ? (n_vocab + 31) / 32 : 0,
				     .prompt = o->text.prompt, .answer = o->text.answer, .banned = o->banned,
				     .biases = o->biases, .mask = o->mask };
	o->p = (struct sample_params){ .temperature = odds & 64 ? 0.7f : 0, .top_k = odds & 128 ? 12 : 0, .top_p = odds & 256 ? 0.9f : 1,
				       .min_p = odds & 512 ? 0.02f : 0, .seed = odds, .choice = odds >> 20,
				       .logprobs = 1 + (int32_t)random_below(SAMPLE_MAX_BEST + 1) };
}

/* The token is as good as any by the reference's own score. */
static void check_token(const float *adjusted, int n_vocab, const struct sample_params *p, int position, int32_t token)
{
	long double probability[MAX_VOCAB], best = -INFINITY, score[MAX_VOCAB];
	if (p->temperature > 0 && !reference(adjusted, n_vocab, *p, probability))
		return;
	for (int i = 0; i < n_vocab; i++) {
		uint64_t bits = sampler_random(p->seed, p->choice, (uint64_t)position, (uint32_t)i);
		long double u = ((long double)(bits >> 12) + 0.5L) / 4503599627370496.0L;
		score[i] = p->temperature > 0 ? logl(probability[i]) - logl(-logl(u)) : (long double)adjusted[i];
		best = score[i] > best ? score[i] : best;
	}
	CU_ASSERT(score[token] >= best - 1e-5L);
}

TEST(all_options_together_agree_with_double_and_between_layouts)
{
	enum { DRAWS = 4, ROUNDS = 120 };
	static const int ranks[] = { 1, 2, 3, 5 };
	for (int round = 0; round < ROUNDS; round++) {
		int n_vocab = round % 3 ? MAX_VOCAB : 20 + (int)random_below(300);
		float *logits = random_floats(n_vocab), adjusted[MAX_VOCAB];
		int32_t tokens[2][DRAWS];
		struct sample_logprobs logprobs[2][DRAWS];
		struct options o;
		for (int i = 0; i < n_vocab; i++)
			logits[i] *= 6;
		make_options(&o, n_vocab);
		adjust_in_double(logits, n_vocab, &o.a, &o.text, adjusted);
		memset(logprobs, 0, sizeof logprobs);
		for (int r = 0; r < 4; r++) {
			struct question q = { .logits = logits, .n_vocab = n_vocab, .p = o.p, .n_draws = DRAWS, .tokens = tokens[r > 0],
					      .adjust = &o.a, .later = o.text.answer + o.n_told,
					      .n_later = o.text.n_answer - o.n_told, .logprobs = logprobs[r > 0] };
			CHECK_OK(comm_inproc_run(ranks[r], NULL, ask_body, &q));
			CU_ASSERT_EQUAL_FATAL(q.fault, SAMPLE_GOOD);
			CU_ASSERT(!r || !memcmp(tokens[0], tokens[1], sizeof tokens[0]));
			CU_ASSERT(!r || !memcmp(logprobs[0], logprobs[1], sizeof logprobs[0]));
		}
		for (int i = 0; i < DRAWS; i++) {
			CU_ASSERT(adjusted[tokens[0][i]] > -INFINITY);
			check_token(adjusted, n_vocab, &o.p, i, tokens[0][i]);
			check_logprobs(logits, n_vocab, o.p.logprobs - 1, tokens[0][i], &logprobs[0][i]);
		}
		free(logits);
	}
}

/* Wide enough that threads share a row; ties in plenty. */
TEST(any_number_of_threads_chooses_the_same)
{
	enum { WIDE = 20011, DRAWS = 12 };
	float *logits = random_floats(WIDE);
	for (int i = 0; i < WIDE; i++)
		logits[i] = (float)(int)(40 * logits[i]) / 8;
	for (int kind = 0; kind < 16; kind++) {
		int32_t tokens[2][DRAWS];
		for (int threads = 1; threads <= 5; threads += 2) {
			struct question q = { .logits = logits, .n_vocab = WIDE, .n_draws = DRAWS, .tokens = tokens[threads > 1] };
			q.p = (struct sample_params){ .temperature = kind & 8 ? 0.5f : 1.5f, .top_k = kind & 1 ? 700 : 0,
						      .top_p = kind & 2 ? 0.7f : 1, .min_p = kind & 4 ? 0.01f : 0, .seed = 77 };
			CU_ASSERT_EQUAL_FATAL(pool_create(threads, NULL, 0, &q.pool), ERR_OK);
			CHECK_OK(comm_inproc_run(1, NULL, ask_body, &q));
			CU_ASSERT(threads == 1 || !memcmp(tokens[0], tokens[1], sizeof tokens[0]));
			pool_destroy(q.pool);
		}
	}
	free(logits);
}

TEST(a_mask_that_allows_nothing_is_a_fault)
{
	float logits[70] = { 0 };
	uint32_t mask[3] = { 0 };
	int32_t token = -7;
	struct adjustments a = { .repetition = 1, .n_mask = 3, .mask = mask };
	for (int ranks = 1; ranks <= 3; ranks++) {
		struct question q = { .logits = logits, .n_vocab = 70, .n_draws = 1, .tokens = &token, .adjust = &a,
				      .p = { .temperature = 1, .top_p = 1 } };
		mask[2] = 0;
		CHECK_OK(comm_inproc_run(ranks, NULL, ask_body, &q));
		CU_ASSERT_EQUAL(q.fault, SAMPLE_NONE_ALLOWED);
		CU_ASSERT_EQUAL(token, -7);
		mask[2] = 1u << 3;
		CHECK_OK(comm_inproc_run(ranks, NULL, ask_body, &q));
		CU_ASSERT_EQUAL(q.fault, SAMPLE_GOOD);
		CU_ASSERT_EQUAL(token, 67);
		token = -7;
	}
}

TEST(adjustments_travel_whole_and_broken_ones_are_refused)
{
	struct options o;
	struct adjustments back;
	make_options(&o, 100);
	o.a.n_mask = 4, o.a.n_biases = 30, o.a.n_banned = 10, o.a.n_answer = 7;
	int64_t n = adjust_ints(&o.a);
	int32_t *wire = room((size_t)(n + 1) * sizeof *wire);
	adjust_pack(&o.a, wire);
	CHECK_OK(adjust_unpack(wire, n, &back));
	CU_ASSERT(back.repetition == o.a.repetition && back.slot == o.a.slot && back.n_prompt == o.a.n_prompt);
	CU_ASSERT(!memcmp(back.prompt, o.a.prompt, (size_t)back.n_prompt * 4) && !memcmp(back.answer, o.a.answer, 28));
	CU_ASSERT(!memcmp(back.banned, o.banned, 40) && !memcmp(back.biases, o.biases, 240) && !memcmp(back.mask, o.mask, 16));
	CHECK_ERR(adjust_unpack(wire, n + 1, &back), BUG, "say that they are");
	CHECK_ERR(adjust_unpack(wire, 3, &back), BUG, "no header");
	free(wire);
}

TEST(no_memory_is_an_error_and_nothing_leaks)
{
	struct sampler *s;
	for (int nth = 1; nth <= 13; nth++) {
		mem_fail_at(nth);
		CHECK_ERR(sampler_create(&(struct sampler_size){ 100, 0, 4, 50, 2, 1 }, NULL, &s), MEMORY, "no memory");
	}
	mem_fail_at(0);
	CHECK_OK(sampler_create(&(struct sampler_size){ 0, 0, 4, 50, 2, 1 }, NULL, &s));
	sampler_destroy(s);
	sampler_destroy(NULL);
}

TEST_MAIN("sampler", CASE(the_generator_is_philox), CASE(greedy_takes_the_lowest_of_the_best),
	  CASE(logits_that_are_no_numbers_are_a_fault_on_all_ranks), CASE(cuts_at_ties_go_to_the_lower_ids),
	  CASE(what_is_left_is_what_one_sorted_array_says), CASE(a_draw_is_the_best_of_probability_and_noise),
	  CASE(ten_thousand_draws_are_the_same_on_any_number_of_ranks_and_follow_the_softmax),
	  CASE(seed_and_choice_and_position_each_change_the_draws), CASE(all_options_together_agree_with_double_and_between_layouts),
	  CASE(any_number_of_threads_chooses_the_same),
	  CASE(a_mask_that_allows_nothing_is_a_fault), CASE(adjustments_travel_whole_and_broken_ones_are_refused),
	  CASE(no_memory_is_an_error_and_nothing_leaks))
