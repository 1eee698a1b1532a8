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

/* What a KV cache of int8 may add to the mean divergence; what it does: docs/PERFORMANCE.md. */
#define KV_INT8_MEAN 0.002

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
static float *logits_of(const struct bits_prompt *text, enum arithmetic arithmetic, enum kv_type kv_type)
{
	struct bits_run b = smollm2_base();
	struct bits_result r;
	b.prompts = text;
	b.n_prompts = 1;
	b.new_tokens = 1;
	b.context = 512;
	b.threads = 2;
	b.arithmetic = arithmetic;
	b.kv_type = kv_type;
	CU_ASSERT_EQUAL_FATAL(MEM_NEW((size_t)text->n * SMOLLM2_VOCAB, float, &b.all_logits), ERR_OK);
	CHECK_OK(bits_run(&b, &r));
	return b.all_logits;
}

static void compare_with(const float *want, const struct bits_prompt *text, enum arithmetic arithmetic, enum kv_type kv_type,
			 struct comparison *c)
{
	float *got = logits_of(text, arithmetic, kv_type);
	for (int at = 0; at < text->n; at++) {
		const float *a = want + (int64_t)at * SMOLLM2_VOCAB, *b = got + (int64_t)at * SMOLLM2_VOCAB;
		c->kl[c->n++] = divergence(a, b);
		c->same_top += first_token(a) == first_token(b);
	}
	mem_free(got);
}

enum { DEFAULT, DEFAULT_KV_INT8, FLOAT_KV_INT8, WAYS };

static void compare(const struct bits_prompt *text, struct comparison *c)
{
	float *want = logits_of(text, ARITHMETIC_F32, KV_F32);
	compare_with(want, text, ARITHMETIC_DEFAULT, KV_F32, &c[DEFAULT]);
	compare_with(want, text, ARITHMETIC_DEFAULT, KV_INT8, &c[DEFAULT_KV_INT8]);
	compare_with(want, text, ARITHMETIC_F32, KV_INT8, &c[FLOAT_KV_INT8]);
	mem_free(want);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Sorts c and says it. */
static double mean_of(const char *name, struct comparison *c)
{
	double mean = 0;
	qsort(c->kl, POSITIONS, sizeof c->kl[0], by_value);
	for (int i = 0; i < POSITIONS; i++)
		mean += c->kl[i] / POSITIONS;
	printf("\n    %-22s KL mean %.6f, median %.6f, 99 %% %.6f; same first token %.2f %%", name, mean, c->kl[POSITIONS / 2],
	       c->kl[POSITIONS * 99 / 100], 100.0 * c->same_top / POSITIONS);
	return mean;
}

TEST(probabilities_are_no_further_from_float_than_llama_cpps)
{
	static struct comparison c[WAYS];
	json_t *golden;
	CU_ASSERT_EQUAL_FATAL(json_parse_file(QUALITY, 1 << 20, ERR_IO, &golden), ERR_OK);
	json_t *theirs = json_object_get(golden, "llama_cpp"), *texts = json_object_get(golden, "contexts");
	CU_ASSERT_EQUAL_FATAL(json_array_size(texts), TEXTS);
	for (size_t i = 0; i < TEXTS; i++) {
		struct bits_prompt text = { .n = 0 };
		golden_ids(json_array_get(texts, i), &text);
		CU_ASSERT_EQUAL_FATAL(text.n, TEXT_TOKENS);
		compare(&text, c);
	}
	double limit = json_number_value(json_object_get(theirs, "mean")), mean = mean_of("default", &c[DEFAULT]);
	double with_kv = mean_of("default, KV cache int8", &c[DEFAULT_KV_INT8]), kv = mean_of("f32, KV cache int8", &c[FLOAT_KV_INT8]);
	printf("\n    %-22s KL mean %.6f  ", "llama.cpp", limit);
	CU_ASSERT(mean > 1e-5);                  /* 0 would mean that both runs took the same arithmetic */
	CU_ASSERT(mean <= limit);
	CU_ASSERT(kv > 1e-7);
	CU_ASSERT(kv <= KV_INT8_MEAN);
	CU_ASSERT(with_kv <= limit + KV_INT8_MEAN);
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
