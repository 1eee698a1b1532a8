/* labels: golden
 * timeout: 300
 * Sequences that share pages, copy parts of pages, lose their pages and are computed again get the tokens and the bits that they get
 * alone, in every layout. */
#include "tests/same_bits.h"
#include "tests/test.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

enum { PROMPTS = 16, NEW_TOKENS = 40, SEQUENCES = 8, PAGES = 12, VOCAB = 131 };

/* Three beginnings of up to 90 tokens, cut anywhere and gone on with differently; some prompts are equal. */
static void make_prompts(struct bits_prompt *prompts)
{
	uint32_t random = 1;
	for (int i = 0; i < PROMPTS; i++) {
		int alike = 7 + i * 29 % 84, more = i % 4 ? i * 7 % 11 : 0;
		prompts[i].n = alike + more;
		for (int k = 0; k < alike; k++)
			prompts[i].ids[k] = (k * 5 + i % 3 * 17 + k / 40) % VOCAB;
		for (int k = alike; k < alike + more; k++) {
			random = random * 1664525u + 1013904223u;
			prompts[i].ids[k] = (int32_t)(random >> 8) % VOCAB;
		}
	}
	prompts[PROMPTS - 1] = prompts[PROMPTS - 2];
}

static void get_alone(struct bits_run b, const struct bits_prompt *prompts, struct bits_result *alone)
{
	for (int i = 0; i < PROMPTS; i++) {
		struct bits_result r;
		b.prompts = &prompts[i];
		b.n_prompts = 1;
		b.first_choice = i;
		CHECK_OK(bits_run(&b, &r));
		CU_ASSERT_EQUAL(r.counts.put_back, 0);
		alone->digest[i] = r.digest[0];
		alone->n_tokens[i] = r.n_tokens[0];
		memcpy(alone->tokens[i], r.tokens[0], sizeof r.tokens[0]);
	}
}

static void check_together(struct bits_run b, const struct bits_prompt *prompts, const struct bits_result *alone,
			   struct schedule_counts *sums)
{
	struct bits_result r;
	b.prompts = prompts;
	b.n_prompts = PROMPTS;
	b.pages = PAGES;
	b.sequences = SEQUENCES;
	CHECK_OK(bits_run(&b, &r));
	for (int i = 0; i < PROMPTS; i++) {
		CU_ASSERT_EQUAL(r.n_tokens[i], NEW_TOKENS);
		CU_ASSERT_EQUAL(r.digest[i], alone->digest[i]);
		CU_ASSERT(!memcmp(r.tokens[i], alone->tokens[i], NEW_TOKENS * sizeof(int32_t)));
	}
	sums->shared_tokens += r.counts.shared_tokens;
	sums->put_back += r.counts.put_back;
}

TEST(scarce_pages_change_no_bit)
{
	static const struct { const char *model; struct layout layout; int ranks, threads; int64_t step_tokens; enum kv_type kv;
			      enum arithmetic arithmetic; } cases[] = {
		{ MODELS "llama-tied", { .tp = 1, .pp = 1, .dp = 1 }, 1, 1, 64, KV_F32, ARITHMETIC_F32 },
		{ MODELS "llama-tied", { .tp = 2, .pp = 2, .dp = 1 }, 4, 2, 17, KV_BF16, ARITHMETIC_F32 },
		{ MODELS "llama-tied", { .tp = 1, .pp = 1, .dp = 2 }, 2, 1, 40, KV_F16, ARITHMETIC_F32 },
		{ MODELS "llama-tied", { .tp = 2, .pp = 1, .dp = 1 }, 2, 2, 23, KV_INT8, ARITHMETIC_F32 },
		{ MODELS "mistral-window", { .tp = 3, .pp = 1, .dp = 1 }, 3, 1, 33, KV_F32, ARITHMETIC_F32 },
		{ MODELS "llama-bf16", { .tp = 2, .pp = 1, .dp = 1 }, 2, 1, 50, KV_F32, ARITHMETIC_DEFAULT },
		{ MODELS "mixtral-8x2", { .tp = 1, .pp = 2, .dp = 2, .ep = 2 }, 4, 1, 29, KV_F32, ARITHMETIC_F32 },
		{ MODELS "gguf-mixtral", { .tp = 2, .pp = 1, .dp = 1, .ep = 2 }, 2, 2, 64, KV_F32, ARITHMETIC_DEFAULT },
	};
	static struct bits_prompt prompts[PROMPTS];
	struct schedule_counts sums = { 0 };
	make_prompts(prompts);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		for (int sampled = 0; sampled < 2; sampled++) {
			static struct bits_result alone;
			struct bits_run b = { .model = cases[i].model, .layout = { .tp = 1, .pp = 1, .dp = 1 }, .ranks = 1, .threads = 1,
					      .new_tokens = NEW_TOKENS, .context = 160, .kv_type = cases[i].kv,
					      .arithmetic = cases[i].arithmetic, .temperature = sampled ? 0.8f : 0.0f };
			get_alone(b, prompts, &alone);
			b.layout = cases[i].layout;
			b.ranks = cases[i].ranks;
			b.threads = cases[i].threads;
			b.step_tokens = cases[i].step_tokens;
			check_together(b, prompts, &alone, &sums);
		}
	printf("%lld tokens shared, %lld put back  ", (long long)sums.shared_tokens, (long long)sums.put_back);
	CU_ASSERT(sums.shared_tokens > 1000 && sums.put_back > 10);
}

TEST_MAIN("scarce pages", CASE(scarce_pages_change_no_bit))
