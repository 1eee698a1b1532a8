/* labels: golden
 * timeout: 600
 * A real model: SmolLM2-135M-Instruct from its Q4_1 GGUF (fetched by tests/download.sh; skipped, with the reason, when that
 * is not possible) gives the logits and the text of transformers on the dequantised weights, and the same bits on uneven
 * layouts: nine heads over tp 1..4, so that kv heads lie on several ranks, and 30 layers over pp 1, 2, 4, 7. */
#include "tests/smollm2.h"

/* The prompt's text gives its ids, and the tokens chosen give the text of transformers. */
static void check_text(int i, const struct bits_result *r)
{
	struct weights *w;
	struct tokenizer *t;
	struct tokens ids = { 0 };
	struct detokenizer d = { 0 };
	struct bytes text = { 0 };
	const char *prompt = smollm2_string(i, "text");
	CU_ASSERT_EQUAL_FATAL(weights_open(smollm2_path, &w), ERR_OK);
	CU_ASSERT_EQUAL_FATAL(tokenizer_open_gguf(weights_gguf(w), &t), ERR_OK);
	CHECK_OK(tokenizer_encode(t, prompt, strlen(prompt), 0, &ids));
	CU_ASSERT_EQUAL_FATAL(ids.n, smollm2_prompts[i].n);
	CU_ASSERT_EQUAL(memcmp(ids.ids, smollm2_prompts[i].ids, (size_t)ids.n * sizeof(int32_t)), 0);
	for (int k = 0; k < SMOLLM2_GREEDY; k++)
		CHECK_OK(detokenizer_put(&d, t, r->tokens[0][k], &text));
	detokenizer_end(&d, &text);
	CU_ASSERT_STRING_EQUAL(bytes_text(&text), smollm2_string(i, "greedy_text"));
	if (i == 0)
		CU_ASSERT_EQUAL(strncmp(bytes_text(&text), " Paris.", 7), 0);
	bytes_free(&text);
	tokens_free(&ids);
	tokenizer_close(t);
	weights_close(w);
}

TEST(logits_are_those_of_transformers_and_the_text_goes_on_with_paris)
{
	for (int i = 0; i < 2; i++) {
		struct bits_run b = smollm2_base();
		struct bits_result r;
		char file[512];
		struct npy want = { 0 };
		snprintf(file, sizeof file, SMOLLM2 "/logits-%d.npy", i);
		CHECK_OK(npy_read(file, &want));
		const struct bits_prompt *p = &smollm2_prompts[i];
		CU_ASSERT_EQUAL_FATAL(want.rows, p->n);
		CU_ASSERT_EQUAL_FATAL(want.cols, (SMOLLM2_VOCAB + SMOLLM2_STRIDE - 1) / SMOLLM2_STRIDE);
		b.prompts = p;
		b.n_prompts = 1;
		b.new_tokens = SMOLLM2_GREEDY;
		CU_ASSERT_EQUAL_FATAL(MEM_NEW((size_t)p->n * SMOLLM2_VOCAB, float, &b.all_logits), ERR_OK);
		CHECK_OK(bits_run(&b, &r));
		double largest = 0;
		for (int64_t at = 0; at < want.rows; at++)
			for (int64_t v = 0; v < want.cols; v++) {
				double d = largest_difference(b.all_logits + at * SMOLLM2_VOCAB + v * SMOLLM2_STRIDE,
							      want.data + at * want.cols + v, 1);
				largest = d > largest ? d : largest;
			}
		printf("%d positions: %.1e  ", p->n, largest);
		CU_ASSERT(largest < 1e-3);
		CU_ASSERT_EQUAL(memcmp(r.tokens[0], smollm2_greedy[i], SMOLLM2_GREEDY * sizeof(int32_t)), 0);
		CU_ASSERT_EQUAL(smollm2_top_misses((size_t)i, b.all_logits), 0);
		check_text(i, &r);
		mem_free(b.all_logits);
		mem_free(want.data);
	}
}

TEST(uneven_layouts_give_the_bits_of_one_rank)
{
	static const struct { int tp, pp, threads, step, together; } cases[] = {
		{ 2, 1, 2, 512, 1 }, { 3, 2, 1, 7, 0 }, { 4, 1, 1, 512, 0 }, { 1, 7, 1, 5, 1 }, { 1, 1, 3, 11, 1 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		CU_ASSERT_EQUAL(smollm2_differs(cases[i].tp, cases[i].pp, cases[i].threads, cases[i].step, cases[i].together), 0);
}

/* Prompts that say something twice, greedy and sampled. */
TEST(guesses_change_no_bit)
{
	static const struct { struct layout layout; int ranks, sampled; } cases[] = {
		{ { .tp = 1, .pp = 1, .dp = 1 }, 1, 0 }, { { .tp = 2, .pp = 2, .dp = 1 }, 4, 0 }, { { .tp = 2, .pp = 1, .dp = 1 }, 2, 1 } };
	static struct bits_prompt twice[2];
	static struct bits_result off, on;
	struct bits_run b = smollm2_base();
	int64_t accepted = 0;
	for (int i = 0; i < 2; i++) {
		int n = smollm2_prompts[i].n < SMOLLM2_LONG ? smollm2_prompts[i].n : SMOLLM2_LONG;
		for (int k = 0; k < 2 * n; k++)
			twice[i].ids[k] = smollm2_prompts[i].ids[k % n];
		twice[i].n = 2 * n;
	}
	b.prompts = twice;
	b.new_tokens = 24;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		b.temperature = cases[i].sampled ? 0.5f : 0;
		if (i == 0 || cases[i].sampled != cases[i - 1].sampled)
			CHECK_OK(bits_run(&b, &off));
		struct bits_run guessing = b;
		guessing.layout = cases[i].layout;
		guessing.ranks = cases[i].ranks;
		guessing.sequences = 2;
		guessing.speculates = 1;
		CHECK_OK(bits_run(&guessing, &on));
		CU_ASSERT(!memcmp(on.digest, off.digest, sizeof on.digest) && !memcmp(on.tokens, off.tokens, sizeof on.tokens));
		printf("%lld of %lld  ", (long long)on.counts.accepted, (long long)on.counts.drafted);
		accepted += on.counts.accepted;
	}
	CU_ASSERT(accepted >= 20);
}

/* 1536 columns are fewer than 16 runs of 128: they are cut into 8. */
TEST(a_narrow_ffn_has_eight_runs)
{
	struct weights *w;
	struct model m;
	CU_ASSERT_EQUAL_FATAL(weights_open(smollm2_path, &w), ERR_OK);
	CHECK_OK(model_describe(w, &m));
	CU_ASSERT_EQUAL(m.ffn_run, 192);
	weights_close(w);
}

SMOLLM2_MAIN("SmolLM2", CASE(a_narrow_ffn_has_eight_runs), CASE(logits_are_those_of_transformers_and_the_text_goes_on_with_paris),
	     CASE(uneven_layouts_give_the_bits_of_one_rank), CASE(guesses_change_no_bit))
