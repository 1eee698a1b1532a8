/* labels: golden
 * timeout: 600
 * What the default arithmetic costs in quality: over four texts of 500 tokens, SmolLM2's next-token probabilities lie no further
 * from those of the f32 arithmetic (which test_smollm2.c holds to transformers) than llama.cpp's from transformers' on the
 * same file; and the greedy text is that of transformers, with every kernel table that this machine has.
 * tests/golden/make_quality.py measured llama.cpp. */
#include "tests/smollm2.h"

#include "runtime/kernels.h"

#define QUALITY SOURCE_DIR "/tests/golden/quality/golden.json"

enum { TEXTS = 4, TEXT_TOKENS = 500, POSITIONS = TEXTS * TEXT_TOKENS };

struct comparison { double kl[POSITIONS]; int n, same_top; };

/* sum p log(p / q) of the next token, p from the logits `a`, q from `b`. */
static double divergence(const float *a, const float *b)
{
	double top_a = -INFINITY, top_b = -INFINITY, sum_a = 0, sum_b = 0, sum = 0;
	for (int v = 0; v < SMOLLM2_VOCAB; v++) {
		top_a = a[v] > top_a ? a[v] : top_a;
		top_b = b[v] > top_b ? b[v] : top_b;
	}
	for (int v = 0; v < SMOLLM2_VOCAB; v++) {
		double p = exp(a[v] - top_a);
		sum_a += p;
		sum_b += exp(b[v] - top_b);
		sum += p * ((a[v] - top_a) - (b[v] - top_b));
	}
	return sum / sum_a - log(sum_a) + log(sum_b);
}

static int first_token(const float *logits)
{
	int best = 0;
	for (int v = 1; v < SMOLLM2_VOCAB; v++)
		best = logits[v] > logits[best] ? v : best;
	return best;
}

/* The logits of all positions of one text, as `run` and `serve` compute them. */
static float *logits_of(const struct bits_prompt *text, enum arithmetic arithmetic)
{
	struct bits_run b = smollm2_base();
	struct bits_result r;
	b.prompts = text;
	b.n_prompts = 1;
	b.new_tokens = 1;
	b.context = 512;
	b.threads = 2;
	b.arithmetic = arithmetic;
	CU_ASSERT_EQUAL_FATAL(MEM_NEW((size_t)text->n * SMOLLM2_VOCAB, float, &b.all_logits), ERR_OK);
	CHECK_OK(bits_run(&b, &r));
	return b.all_logits;
}

static void compare(const struct bits_prompt *text, struct comparison *c)
{
	float *want = logits_of(text, ARITHMETIC_F32), *got = logits_of(text, ARITHMETIC_DEFAULT);
	for (int at = 0; at < text->n; at++) {
		const float *a = want + (int64_t)at * SMOLLM2_VOCAB, *b = got + (int64_t)at * SMOLLM2_VOCAB;
		c->kl[c->n++] = divergence(a, b);
		c->same_top += first_token(a) == first_token(b);
	}
	mem_free(want);
	mem_free(got);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

TEST(probabilities_are_no_further_from_float_than_llama_cpps)
{
	static struct comparison c;
	json_t *golden;
	double mean = 0;
	CU_ASSERT_EQUAL_FATAL(json_parse_file(QUALITY, 1 << 20, ERR_IO, &golden), ERR_OK);
	json_t *theirs = json_object_get(golden, "llama_cpp"), *texts = json_object_get(golden, "contexts");
	CU_ASSERT_EQUAL_FATAL(json_array_size(texts), TEXTS);
	for (size_t i = 0; i < TEXTS; i++) {
		struct bits_prompt text = { .n = 0 };
		golden_ids(json_array_get(texts, i), &text);
		CU_ASSERT_EQUAL_FATAL(text.n, TEXT_TOKENS);
		compare(&text, &c);
	}
	qsort(c.kl, POSITIONS, sizeof c.kl[0], by_value);
	for (int i = 0; i < POSITIONS; i++)
		mean += c.kl[i] / POSITIONS;
	printf("\n    KL mean %.6f (llama.cpp %.6f), median %.6f (%.6f), 99 %% %.6f (%.6f); same first token %.2f %% (%.2f %%)  ", mean,
	       json_number_value(json_object_get(theirs, "mean")), c.kl[POSITIONS / 2],
	       json_number_value(json_object_get(theirs, "median")), c.kl[POSITIONS * 99 / 100],
	       json_number_value(json_object_get(theirs, "p99")), 100.0 * c.same_top / POSITIONS,
	       100 * json_number_value(json_object_get(theirs, "same_top")));
	CU_ASSERT(mean > 1e-5);                  /* 0 would mean that both runs took the same arithmetic */
	CU_ASSERT(mean <= json_number_value(json_object_get(theirs, "mean")));
	json_decref(golden);
}

TEST(greedy_text_is_that_of_transformers_with_all_kernels)
{
	int tables = 0;
	for (int t = 0; kernel_tables[t]; t++) {
		struct bits_run b = smollm2_base();
		struct bits_result r;
		if (!kernel_tables[t]->usable())
			continue;
		b.arithmetic = ARITHMETIC_DEFAULT;
		b.isa = kernel_tables[t]->name;
		b.threads = 2;
		b.prompts = smollm2_prompts;
		b.new_tokens = SMOLLM2_GREEDY;
		CHECK_OK(bits_run(&b, &r));
		for (int i = 0; i < 2; i++) {
			CU_ASSERT_EQUAL(r.n_tokens[i], SMOLLM2_GREEDY);
			CU_ASSERT_EQUAL(memcmp(r.tokens[i], smollm2_greedy[i], sizeof smollm2_greedy[i]), 0);
		}
		tables++;
	}
	printf("%d tables  ", tables);
	CU_ASSERT(tables >= 1);
}

SMOLLM2_MAIN("Quality", CASE(probabilities_are_no_further_from_float_than_llama_cpps),
	     CASE(greedy_text_is_that_of_transformers_with_all_kernels))
