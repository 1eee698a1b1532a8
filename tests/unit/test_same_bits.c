/* labels: golden
 * timeout: 900
 * Any layout, same bits: the bundled model over every (tp, pp, dp, ep, etp) of up to 8 ranks, with 1 to 3 threads, prompts
 * alone or together, prefill whole or in chunks, gives the logits of one rank, and the tokens that transformers gave. Each layout
 * runs with one choice of the latter; with SAME_BITS_PRODUCT set with every one (ctest's same_bits_product). */
#include "tests/same_bits.h"
#include "tests/test.h"

#define MODEL SOURCE_DIR "/configs/models/jargon-moe"
enum { N_PROMPTS = 4, NEW = 10,
       CHOICES = 12 };              /* 3 numbers of threads x chunked or whole x alone or together */

static struct bits_prompt prompts[BITS_MAX_PROMPTS];
static int32_t greedy[BITS_MAX_PROMPTS][BITS_MAX_NEW];
static struct bits_result one;      /* of one rank, one thread, prompts alone, whole prefill */

static struct bits_run base(void)
{
	struct bits_run b = { .model = MODEL, .ranks = 1, .threads = 1, .new_tokens = NEW, .prompts = prompts, .n_prompts = N_PROMPTS };
	b.layout = (struct layout){ .tp = 1, .pp = 1, .dp = 1 };
	return b;
}

/* Runs b and compares with `one`. Gives 0 when equal. */
static int differs(const struct bits_run *b, const char *what)
{
	struct bits_result r;
	enum err e = bits_run(b, &r);
	int bad = e != ERR_OK;
	for (int i = 0; !bad && i < b->n_prompts; i++)
		bad = r.digest[i] != one.digest[i] || r.n_tokens[i] != one.n_tokens[i] ||
		      memcmp(r.tokens[i], one.tokens[i], (size_t)r.n_tokens[i] * sizeof(int32_t));
	bad |= r.uneven_reads;
	if (bad)
		fprintf(stderr, "tp %d pp %d dp %d ep %d etp %d threads %d %s: %s\n", b->layout.tp, b->layout.pp, b->layout.dp,
			b->layout.ep, b->layout.etp, b->threads, what, e ? err_sentence() : r.uneven_reads ? "bytes read" : "bits");
	return bad;
}

TEST(one_rank_gives_the_tokens_of_transformers)
{
	struct bits_run b = base();
	CU_ASSERT_EQUAL_FATAL(bits_read_expected(MODEL "/expected.json", prompts, greedy, BITS_MAX_PROMPTS), 10);
	b.n_prompts = 10;
	b.new_tokens = 48;
	b.sequences = 1;
	struct bits_result r;
	CHECK_OK(bits_run(&b, &r));
	for (int i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(r.n_tokens[i], 48);
		CU_ASSERT_EQUAL(memcmp(r.tokens[i], greedy[i], 48 * sizeof(int32_t)), 0);
	}
}

TEST(threads_neighbours_and_chunks_do_not_show)
{
	struct bits_run b = base();
	b.sequences = 1;
	CHECK_OK(bits_run(&b, &one));
	for (int i = 1; i < N_PROMPTS; i++)
		CU_ASSERT_NOT_EQUAL(one.digest[0], one.digest[i]);
	for (b.threads = 1; b.threads <= 3; b.threads++)
		for (b.sequences = 1; b.sequences <= 4; b.sequences += 3)
			for (b.step_tokens = 3; b.step_tokens <= 512; b.step_tokens = b.step_tokens == 3 ? 7 : b.step_tokens + 505)
				CU_ASSERT_EQUAL(differs(&b, "one rank"), 0);
}

TEST(every_kernel_table_gives_the_same_bits)
{
	struct bits_run b = base();
	for (int i = 0; kernel_tables[i]; i++) {
		if (!kernel_tables[i]->usable()) {
			printf("skipped %s: this processor has it not\n", kernel_tables[i]->name);
			continue;
		}
		b.isa = kernel_tables[i]->name;
		CU_ASSERT_EQUAL(differs(&b, b.isa), 0);
	}
}

/* All expert layouts of a (tp, pp, dp). */
static int try_experts(struct bits_run *b, int *n_run)
{
	int group = b->layout.tp * b->layout.dp, bad = 0;
	for (int ep = 1; ep <= group && ep <= 8; ep++) {
		for (int etp = 1; etp <= 8 && ep * etp <= group; etp++) {
			if (group % (ep * etp))
				continue;
			b->layout.ep = ep;
			b->layout.etp = etp;
			for (int i = 0; i < CHOICES; i++) {
				if (!getenv("SAME_BITS_PRODUCT") && i != *n_run % CHOICES)
					continue;
				b->threads = 1 + i % 3;
				b->step_tokens = i / 3 % 2 ? 5 : 512;
				b->sequences = i / 6 ? 4 : 1;
				bad += differs(b, "");
			}
			++*n_run;
		}
	}
	return bad;
}

TEST(every_layout_of_up_to_8_ranks)
{
	int n_run = 0, bad = 0;
	for (int tp = 1; tp <= 6; tp++)
		for (int pp = 1; pp <= 6 && tp * pp <= 8; pp++)
			for (int dp = 1; tp * pp * dp <= 8; dp++) {
				struct bits_run b = base();
				b.layout = (struct layout){ .tp = tp, .pp = pp, .dp = dp };
				b.ranks = tp * pp * dp;
				bad += try_experts(&b, &n_run);
			}
	printf("%d layouts\n", n_run);
	CU_ASSERT_EQUAL(bad, 0);
	CU_ASSERT(n_run > 60);
}

TEST(a_seeded_draw_does_not_depend_on_the_layout)
{
	struct bits_run b = base();
	struct bits_result r, s;
	b.temperature = 3.0f;
	CHECK_OK(bits_run(&b, &r));
	CU_ASSERT_NOT_EQUAL(memcmp(r.tokens, one.tokens, sizeof r.tokens), 0);
	for (int tp = 2; tp <= 5; tp++) {
		b.layout.tp = b.ranks = tp;
		CHECK_OK(bits_run(&b, &s));
		CU_ASSERT_EQUAL(memcmp(r.tokens, s.tokens, sizeof r.tokens), 0);
		CU_ASSERT_EQUAL(memcmp(r.digest, s.digest, sizeof r.digest), 0);
	}
}

TEST(a_matrix_that_cannot_be_cut_along_k_gives_the_same_bits)
{
	static const struct { const char *model; int tp[5]; } cases[] = {
		{ SOURCE_DIR "/tests/golden/models/gguf-llama-k", { 2, 3, 5, 8 } },      /* one run of heads, two of FFN columns */
		{ SOURCE_DIR "/tests/golden/models/llama-bias", { 2, 3 } },              /* two runs of heads, three of columns */
		{ SOURCE_DIR "/tests/golden/models/gguf-llama-mixed", { 2, 3 } },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct bits_run b = base();
		struct bits_result r, s;
		struct bits_prompt ids = { .n = 40 };
		for (int k = 0; k < ids.n; k++)
			ids.ids[k] = (k * 37 + 11) % 131;
		b.model = cases[i].model;
		b.prompts = &ids;
		b.n_prompts = 1;
		CHECK_OK(bits_run(&b, &r));
		for (int k = 0; k < 5 && cases[i].tp[k]; k++) {
			b.layout.tp = b.ranks = cases[i].tp[k];
			b.threads = 1 + k % 2;
			CHECK_OK(bits_run(&b, &s));
			CU_ASSERT_EQUAL(r.digest[0], s.digest[0]);
			CU_ASSERT_EQUAL(s.uneven_reads, 0);
		}
	}
}

/* Quantised and BF16 weights in their default arithmetic: one digest over kernels, threads, chunks and layouts; another than f32's. */
TEST(packed_weights_give_the_same_bits)
{
	static const char *const models[] = { "tests/golden/models/gguf-llama-mixed", "tests/golden/models/gguf-llama-k",
					      "tests/golden/models/gguf-mixtral", "tests/golden/models/llama-bf16",
					      "configs/models/jargon-moe" };
	static const struct layout layouts[] = {
		{ .tp = 2, .pp = 1, .dp = 1 }, { .tp = 3, .pp = 1, .dp = 1 }, { .tp = 1, .pp = 1, .dp = 2 },
		{ .tp = 2, .pp = 1, .dp = 2 }, { .tp = 1, .pp = 1, .dp = 4 },
	};
	for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
		struct bits_run b = base();
		struct bits_result f32, r, s;
		struct bits_prompt ids[2] = { { .n = 40 }, { .n = 5 } };
		char path[512];
		snprintf(path, sizeof path, "%s/%s", SOURCE_DIR, models[i]);
		for (int k = 0; k < 40; k++)
			ids[0].ids[k] = ids[1].ids[k % 5] = (k * 37 + 11) % 131;
		b.model = path;
		b.prompts = ids;
		b.n_prompts = 2;
		CHECK_OK(bits_run(&b, &f32));
		b.arithmetic = ARITHMETIC_DEFAULT;
		CHECK_OK(bits_run(&b, &r));
		CU_ASSERT_NOT_EQUAL(r.digest[0], f32.digest[0]);
		printf("%s: digest %016llx\n", models[i], (unsigned long long)r.digest[0]);
		for (int t = 0; kernel_tables[t]; t++) {
			b.isa = kernel_tables[t]->name;
			b.threads = 1 + t;
			b.step_tokens = t % 2 ? 3 : 512;
			if (!kernel_tables[t]->usable())
				continue;
			CHECK_OK(bits_run(&b, &s));
			CU_ASSERT_EQUAL(memcmp(r.digest, s.digest, sizeof r.digest), 0);
		}
		b.isa = NULL;
		for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
			b.layout = layouts[l];
			b.ranks = b.layout.tp * b.layout.dp;
			b.threads = 1 + (int)l % 3;
			b.step_tokens = l % 2 ? 7 : 512;
			CHECK_OK(bits_run(&b, &s));
			CU_ASSERT_EQUAL(memcmp(r.digest, s.digest, sizeof r.digest), 0);
			CU_ASSERT_EQUAL(s.uneven_reads, 0);
		}
	}
}

TEST(kv_types_differ_but_not_by_layout)
{
	for (int type = KV_F16; type < KV_TYPE_COUNT; type++) {
		struct bits_run b = base();
		struct bits_result r, s;
		b.kv_type = (enum kv_type)type;
		CHECK_OK(bits_run(&b, &r));
		CU_ASSERT_NOT_EQUAL(r.digest[0], one.digest[0]);
		for (int t = 0; kernel_tables[t]; t++) {   /* V is cut between threads, but not what shares a scale */
			b.isa = kernel_tables[t]->name;
			b.threads = 1 + t % 5;
			if (!kernel_tables[t]->usable())
				continue;
			CHECK_OK(bits_run(&b, &s));
			CU_ASSERT_EQUAL(memcmp(r.digest, s.digest, sizeof r.digest), 0);
		}
		b.isa = NULL;
		b.threads = 2;
		b.layout = (struct layout){ .tp = 3, .pp = 2, .dp = 1 };
		b.ranks = 6;
		b.step_tokens = 4;
		CHECK_OK(bits_run(&b, &s));
		CU_ASSERT_EQUAL(memcmp(r.digest, s.digest, sizeof r.digest), 0);
		b.layout = (struct layout){ .tp = 1, .pp = 1, .dp = 2 };
		b.ranks = 2;
		b.step_tokens = 9;
		CHECK_OK(bits_run(&b, &s));
		CU_ASSERT_EQUAL(memcmp(r.digest, s.digest, sizeof r.digest), 0);
	}
}

TEST(tp_stays_inside_nodes_and_a_border_carries_4_bytes_an_item)
{
	struct bits_run b = base();
	struct bits_result r;
	b.layout = (struct layout){ .tp = 2, .pp = 4, .dp = 1 };
	b.ranks = 8;
	b.nodes = 4;
	CHECK_OK(bits_run(&b, &r));
	int64_t tokens = 0, C = 192;
	for (int i = 0; i < N_PROMPTS; i++)
		tokens += prompts[i].n + NEW - 1;
	tokens -= r.counts.shared_tokens;            /* found in pages, not computed */
	for (int i = 0; i < GRID_TRAFFIC_ROWS; i++) {
		if (!strcmp(r.traffic[i].axis, "tp")) {
			CU_ASSERT(r.traffic[i].stats.bytes > 0);
			CU_ASSERT_EQUAL(r.traffic[i].stats.bytes_between_nodes, 0);
		}
		if (!strcmp(r.traffic[i].axis, "pp")) {
			CU_ASSERT_EQUAL(r.traffic[i].stats.bytes, (uint64_t)(3 * 4 * C * tokens));
			CU_ASSERT_EQUAL(r.traffic[i].stats.bytes_between_nodes, (uint64_t)(3 * 4 * C * tokens));
		}
	}
}

TEST_MAIN("same bits", CASE(one_rank_gives_the_tokens_of_transformers), CASE(threads_neighbours_and_chunks_do_not_show),
	  CASE(every_kernel_table_gives_the_same_bits), CASE(every_layout_of_up_to_8_ranks),
	  CASE(a_seeded_draw_does_not_depend_on_the_layout), CASE(a_matrix_that_cannot_be_cut_along_k_gives_the_same_bits), CASE(packed_weights_give_the_same_bits), CASE(kv_types_differ_but_not_by_layout),
	  CASE(tp_stays_inside_nodes_and_a_border_carries_4_bytes_an_item))
