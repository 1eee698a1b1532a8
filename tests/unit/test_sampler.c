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
};

static enum err ask_body(struct comm *world, void *arg)
{
	struct question *q = arg;
	int rank = comm_rank(world), size = comm_size(world);
	/* Uneven: rank r gets from V r^2 / size^2 on, so small vocabularies leave the first ranks without any token. */
	int64_t begin = q->n_vocab * rank * rank / (size * size);
	int64_t end = q->n_vocab * (rank + 1) * (rank + 1) / (size * size);
	struct sampler *s;
	enum err e = ERR_OK;
	TRY(sampler_create(end - begin, begin, 1, size, &s));
	for (int i = 0; i < q->n_draws && !e; i++) {
		int32_t token = -1, extremes[2];
		enum sample_fault fault;
		uint64_t best = kernels_best()->best_key(q->logits + begin, end - begin, begin);
		comm_allreduce(world, &best, 1, COMM_U64, COMM_MAX);
		struct sample_row row = { .logits = q->logits + begin, .best = best, .position = i, .p = &q->p };
		e = sampler_choose(s, world, kernels_best(), &row, &token, &fault);
		if (e || fault)
			break;
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
	struct question q = { logits, n_vocab, p, n_draws, tokens, 0 };
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
		logits[38] = INFINITY;
		CU_ASSERT_EQUAL(ask_one(ranks, logits, 40, greedy), 38);
		greedy.temperature = 1;
		CU_ASSERT_EQUAL(ask_one(ranks, logits, 40, greedy), 38);
		greedy.temperature = 0;
		for (int i = 0; i < 40; i++)
			logits[i] = -INFINITY;
		CU_ASSERT_EQUAL(ask_one(ranks, logits, 40, greedy), 0);
	}
}

TEST(a_nan_anywhere_is_an_error_everywhere)
{
	float logits[30] = { 0 };
	int32_t token = -7;
	struct sample_params p = { .temperature = 0, .top_p = 1 };
	for (int ranks = 1; ranks <= 3; ranks++)
		for (int place = 0; place < 30; place += 29)
			for (int warm = 0; warm < 2; warm++) {
				logits[place] = warm ? NAN : -NAN;
				p.temperature = (float)warm;
				CHECK_ERR(ask(ranks, logits, 30, p, 1, &token), WORK, "NaN");
				CU_ASSERT_EQUAL(token, -7);
				logits[place] = 0;
			}
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

TEST(no_memory_is_an_error_and_nothing_leaks)
{
	struct sampler *s;
	for (int nth = 1; nth <= 10; nth++) {
		mem_fail_at(nth);
		CHECK_ERR(sampler_create(100, 0, 4, 2, &s), MEMORY, "no memory");
	}
	mem_fail_at(0);
	CHECK_OK(sampler_create(0, 0, 4, 2, &s));
	sampler_destroy(s);
	sampler_destroy(NULL);
}

TEST_MAIN("sampler", CASE(the_generator_is_philox), CASE(greedy_takes_the_lowest_of_the_best),
	  CASE(a_nan_anywhere_is_an_error_everywhere), CASE(cuts_at_ties_go_to_the_lower_ids),
	  CASE(what_is_left_is_what_one_sorted_array_says), CASE(a_draw_is_the_best_of_probability_and_noise),
	  CASE(ten_thousand_draws_are_the_same_on_any_number_of_ranks_and_follow_the_softmax),
	  CASE(seed_and_choice_and_position_each_change_the_draws), CASE(no_memory_is_an_error_and_nothing_leaks))
