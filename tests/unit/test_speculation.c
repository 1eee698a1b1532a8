/* labels: golden
 * timeout: 300
 * Guessing from the text changes no token and no bit of the logits: greedy and sampled, in every layout, with scarce pages and prompts
 * that share them, at the end of the context, and however many tokens an answer may have. */
#include "tests/same_bits.h"
#include "tests/test.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

enum { PROMPTS = 12, NEW_TOKENS = 50, VOCAB = 131, CONTEXT = 160 };

/* Texts that repeat themselves, of many lengths and periods; some begin alike. */
static void make_prompts(struct bits_prompt *prompts)
{
	for (int i = 0; i < PROMPTS; i++) {
		prompts[i].n = 3 + i * 37 % 100;
		for (int k = 0; k < prompts[i].n; k++)
			prompts[i].ids[k] = (k % (3 + i % 4 * 5) * 11 + i % 3 * 17 + (k == 50 ? i : 0)) % VOCAB;
	}
}

static int differs(const struct bits_result *a, const struct bits_result *b, int n)
{
	for (int i = 0; i < n; i++)
		if (a->n_tokens[i] != b->n_tokens[i] || a->digest[i] != b->digest[i] ||
		    memcmp(a->tokens[i], b->tokens[i], (size_t)a->n_tokens[i] * sizeof(int32_t)))
			return 1;
	return 0;
}

/* The run with guesses against one on one rank without. */
static void compare(struct bits_run b, struct schedule_counts *sums)
{
	static struct bits_result off, on;
	struct bits_run alone = b;
	alone.layout = (struct layout){ .tp = 1, .pp = 1, .dp = 1 };
	alone.ranks = alone.threads = 1;
	alone.sequences = 1;
	alone.pages = 0;
	alone.step_tokens = 64;
	CHECK_OK(bits_run(&alone, &off));
	b.speculates = 1;
	CHECK_OK(bits_run(&b, &on));
	CU_ASSERT(off.counts.drafted == 0 && on.counts.drafted > 0);
	CU_ASSERT_EQUAL(differs(&on, &off, b.n_prompts), 0);
	sums->drafted += on.counts.drafted;
	sums->accepted += on.counts.accepted;
	sums->put_back += on.counts.put_back;
	sums->shared_tokens += on.counts.shared_tokens;
}

static void print(const struct schedule_counts *c)
{
	printf("%lld drafted, %lld accepted, %lld put back, %lld shared  ", (long long)c->drafted, (long long)c->accepted,
	       (long long)c->put_back, (long long)c->shared_tokens);
}

TEST(guesses_change_no_bit_in_any_layout)
{
	static const struct { const char *model; struct layout layout; int ranks, threads; int64_t step_tokens, sequences, pages;
			      enum kv_type kv; enum arithmetic arithmetic; } cases[] = {
		{ MODELS "llama-tied", { .tp = 1, .pp = 1, .dp = 1 }, 1, 1, 64, 1, 0, KV_F32, ARITHMETIC_F32 },
		{ MODELS "llama-tied", { .tp = 1, .pp = 1, .dp = 1 }, 1, 2, 64, 4, 7, KV_F16, ARITHMETIC_F32 },
		{ MODELS "llama-tied", { .tp = 2, .pp = 2, .dp = 1 }, 4, 1, 17, 6, 12, KV_BF16, ARITHMETIC_F32 },
		{ MODELS "llama-tied", { .tp = 2, .pp = 1, .dp = 1 }, 2, 2, 23, 5, 10, KV_INT8, ARITHMETIC_F32 },
		{ MODELS "llama-untied", { .tp = 1, .pp = 1, .dp = 2 }, 2, 1, 40, 3, 8, KV_F32, ARITHMETIC_F32 },
		{ MODELS "mistral-window", { .tp = 3, .pp = 1, .dp = 1 }, 3, 1, 33, 2, 0, KV_F32, ARITHMETIC_F32 },
		{ MODELS "llama-bf16", { .tp = 2, .pp = 1, .dp = 1 }, 2, 1, 50, 4, 9, KV_F32, ARITHMETIC_DEFAULT },
		{ MODELS "mixtral-8x2", { .tp = 1, .pp = 2, .dp = 2, .ep = 2 }, 4, 1, 29, 3, 9, KV_F32, ARITHMETIC_F32 },
		{ MODELS "gguf-mixtral", { .tp = 2, .pp = 1, .dp = 1, .ep = 2 }, 2, 2, 64, 7, 12, KV_F32, ARITHMETIC_DEFAULT },
	};
	static struct bits_prompt prompts[PROMPTS];
	struct schedule_counts sums = { 0 };
	make_prompts(prompts);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		for (int sampled = 0; sampled < 2; sampled++)
			compare((struct bits_run){ .model = cases[i].model, .layout = cases[i].layout, .ranks = cases[i].ranks,
					.threads = cases[i].threads, .step_tokens = cases[i].step_tokens,
					.sequences = cases[i].sequences, .pages = cases[i].pages, .kv_type = cases[i].kv,
					.arithmetic = cases[i].arithmetic, .new_tokens = NEW_TOKENS, .context = CONTEXT,
					.temperature = sampled ? 0.7f : 0, .prompts = prompts, .n_prompts = PROMPTS }, &sums);
	print(&sums);
	CU_ASSERT(sums.accepted > 1000 && sums.accepted < sums.drafted && sums.put_back > 0 && sums.shared_tokens > 100);
}

/* Every length, so that the last token stands at every place of a guess; and a prompt that leaves so much of the context. */
TEST(answers_end_where_they_end_without)
{
	static struct bits_prompt prompts[PROMPTS];
	struct schedule_counts sums = { 0 };
	make_prompts(prompts);
	for (int n = 12; n <= 40; n++) {
		struct bits_run b = { .model = MODELS "llama-tied", .layout = { .tp = 1, .pp = 1, .dp = 1 }, .ranks = 1, .threads = 1,
				      .step_tokens = 64, .sequences = 2, .prompts = prompts, .n_prompts = 3 };
		b.new_tokens = n;
		compare(b, &sums);
		b.new_tokens = BITS_MAX_NEW;
		b.context = prompts[2].n + n;
		compare(b, &sums);
	}
	print(&sums);
	CU_ASSERT(sums.accepted > 500);
}

/* Eight sequences or more: none; fewer: some. */
TEST(large_batches_are_not_guessed_for)
{
	static struct bits_prompt prompts[PROMPTS];
	static struct bits_result r;
	for (int i = 0; i < PROMPTS; i++) {
		prompts[i].n = 30;
		for (int k = 0; k < 30; k++)
			prompts[i].ids[k] = k % 3 + i;
	}
	for (int n = 7; n <= 8; n++) {
		struct bits_run b = { .model = MODELS "llama-tied", .layout = { .tp = 1, .pp = 1, .dp = 1 }, .ranks = 1, .threads = 1,
				      .sequences = PROMPTS, .prompts = prompts, .n_prompts = n, .new_tokens = 30, .speculates = 1 };
		CHECK_OK(bits_run(&b, &r));
		CU_ASSERT_EQUAL(r.counts.drafted > 0, n == 7);
	}
}

TEST_MAIN("speculation", CASE(guesses_change_no_bit_in_any_layout), CASE(answers_end_where_they_end_without),
	  CASE(large_batches_are_not_guessed_for))
