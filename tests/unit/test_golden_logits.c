/* labels: golden
 * timeout: 600
 * Logits are right: every checkpoint of tests/golden/models gives what transformers computed, within 1e-4, and every layout,
 * chunk and number of threads gives the bits of one rank while reading exactly its part of the weights. */
#include "tests/files.h"
#include "tests/golden_logits.h"
#include "tests/test.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"

enum { MAX_LOGITS = 40 * 131 };

/* tp, etp: the most that the model's numbers allow, by hand from its config: tp as many as heads, and in a dense model no
 * more than blocks of 32 FFN columns; etp no more than runs of FFN columns, which end on 32. pp: layers. */
static const struct golden { const char *name; int tp, pp, experts, etp; } models[] = {
	{ "llama-tied", 3, 2, 0, 0 }, { "llama-untied", 3, 3, 0, 0 }, { "llama-head-dim", 3, 2, 0, 0 },
	{ "llama-no-head-dim", 3, 2, 0, 0 }, { "llama-full-heads", 3, 2, 0, 0 }, { "llama-rope-llama3", 3, 2, 0, 0 },
	{ "llama-rope-llama3-v4", 3, 2, 0, 0 }, { "llama-rope-linear", 3, 2, 0, 0 }, { "llama-rope-linear-v4", 3, 2, 0, 0 },
	{ "llama-bias", 3, 2, 0, 0 }, { "llama-sharded", 3, 3, 0, 0 }, { "llama-bf16", 3, 2, 0, 0 }, { "llama-f16", 3, 2, 0, 0 },
	{ "mistral-window", 3, 2, 0, 0 }, { "mixtral-8x2", 6, 2, 8, 2 }, { "mixtral-5x3", 5, 2, 5, 2 },
	{ "gguf-llama-f32", 3, 2, 0, 0 }, { "gguf-llama-mixed", 3, 2, 0, 0 }, { "gguf-llama-k", 8, 1, 0, 0 },
	{ "gguf-llama-linear", 3, 2, 0, 0 }, { "gguf-mixtral", 8, 2, 8, 1 }, { "gguf-mixtral-split", 4, 2, 5, 2 },
};
enum { N_MODELS = sizeof models / sizeof models[0] };

static char path[512];
static struct bits_prompt prompt;
static float one[MAX_LOGITS], other[MAX_LOGITS];      /* logits of one rank, of another layout */
static struct bits_result of_one;

static struct bits_run base(const struct golden *g)
{
	struct bits_run b = { .model = path, .ranks = 1, .threads = 1, .new_tokens = 3, .prompts = &prompt, .n_prompts = 1 };
	b.layout = (struct layout){ .tp = 1, .pp = 1, .dp = 1 };
	snprintf(path, sizeof path, MODELS "%s%s", g->name, strncmp(g->name, "gguf", 4) ? "" : "/model.gguf");
	return b;
}

static enum err read_prompt(const struct golden *g)
{
	char file[512];
	json_t *list;
	snprintf(file, sizeof file, MODELS "%s/ids.json", g->name);
	TRY(json_parse_file(file, 1 << 16, ERR_IO, &list));
	golden_ids(list, &prompt);
	json_decref(list);
	return prompt.n == 40 ? ERR_OK : ERR(IO, "%s: %d ids, 40 expected", file, prompt.n);
}

static enum err run_one(const struct golden *g)
{
	struct bits_run b = base(g);
	b.all_logits = one;
	TRY(read_prompt(g));
	return bits_run(&b, &of_one);
}

TEST(logits_are_those_of_transformers)
{
	for (int i = 0; i < N_MODELS; i++) {
		char file[512];
		struct npy want = { 0 };
		CHECK_OK(run_one(&models[i]));
		snprintf(file, sizeof file, MODELS "%s/logits.npy", models[i].name);
		CHECK_OK(npy_read(file, &want));
		CU_ASSERT_EQUAL_FATAL(want.rows, 40);
		CU_ASSERT_EQUAL_FATAL(want.cols, 131);
		double d = largest_difference(one, want.data, MAX_LOGITS);
		printf("%-22s %.1e  digest %016llx\n", models[i].name, d, (unsigned long long)of_one.digest[0]);
		CU_ASSERT(d < 1e-4);
		mem_free(want.data);
	}
}

/* The default arithmetic of BF16 weights, against transformers with the inputs of all matrices rounded to bf16. No input of
 * this model lies so close to a border of two bf16 that it falls on the other side of it; that would move logits by 1e-2. */
TEST(logits_of_bf16_activations_are_those_of_transformers_with_rounded_inputs)
{
	struct golden g = { .name = "llama-bf16" };
	struct bits_run b = base(&g);
	struct npy want = { 0 };
	double moved = 0;
	CHECK_OK(run_one(&g));
	CHECK_OK(npy_read(MODELS "llama-bf16/logits-bf16.npy", &want));
	CU_ASSERT_EQUAL_FATAL(want.rows * want.cols, MAX_LOGITS);
	b.arithmetic = ARITHMETIC_BF16;
	b.all_logits = other;
	CHECK_OK(bits_run(&b, &of_one));
	for (int i = 0; i < MAX_LOGITS; i++)
		moved += fabs((double)other[i] - (double)one[i]) / MAX_LOGITS;
	double d = largest_difference(other, want.data, MAX_LOGITS);
	printf("%.1e, rounding moves them by %.1e ", d, moved);
	CU_ASSERT(d < 1e-4);
	CU_ASSERT(moved > 1e-3);
	mem_free(want.data);
}

/* Runs b and compares bits and bytes with one rank's. */
static int differs(const struct golden *g, struct bits_run *b)
{
	struct bits_result r;
	memset(other, 0xff, sizeof other);       /* NaN */
	b->all_logits = other;
	enum err e = bits_run(b, &r);
	const char *what = e ? err_sentence() : memcmp(one, other, sizeof one) ? "logits" :
			   r.digest[0] != of_one.digest[0] || memcmp(r.tokens[0], of_one.tokens[0], 3 * sizeof(int32_t)) ? "tokens" :
			   r.uneven_reads ? "bytes read" : NULL;
	if (what)
		fprintf(stderr, "%s: tp %d pp %d dp %d ep %d etp %d threads %d step %lld: %s (read %llu, expected %llu)\n", g->name,
			b->layout.tp, b->layout.pp, b->layout.dp, b->layout.ep, b->layout.etp, b->threads, (long long)b->step_tokens,
			what, (unsigned long long)r.read_bytes, (unsigned long long)r.expected_read_bytes);
	return what != NULL;
}

/* Every ep x etp of a (tp, pp, dp), or one run when the model is dense. */
static int try_experts(const struct golden *g, struct bits_run *b, int *n)
{
	int group = b->layout.tp * b->layout.dp, bad = 0;
	for (int ep = 1; ep <= (g->experts < group ? g->experts ? g->experts : 1 : group); ep++)
		for (int etp = 1; etp <= (g->experts ? g->etp : 1); etp++) {
			if (group % (ep * etp) && g->experts)
				continue;
			if (g->experts) {
				b->layout.ep = ep;
				b->layout.etp = etp;
			}
			b->threads = 1 + *n % 3;
			b->step_tokens = (int64_t[]){ 512, 5, 17 }[*n / 3 % 3];
			bad += differs(g, b);
			++*n;
		}
	return bad;
}

TEST(every_layout_gives_the_bits_of_one_rank)
{
	int n = 0;
	for (int i = 0; i < N_MODELS; i++) {
		const struct golden *g = &models[i];
		CHECK_OK(run_one(g));
		int bad = 0;
		for (int tp = 1; tp <= g->tp; tp++)
			for (int pp = 1; pp <= g->pp; pp++)
				for (int dp = 1; dp <= (g->experts ? 2 : 1) && tp * pp * dp <= 8; dp++) {
					struct bits_run b = base(g);
					b.layout = (struct layout){ .tp = tp, .pp = pp, .dp = dp };
					b.ranks = tp * pp * dp;
					bad += try_experts(g, &b, &n);
				}
		CU_ASSERT_EQUAL(bad, 0);
	}
	printf("%d layouts ", n);
	CU_ASSERT(n > 100);
}

/* One rank reads each byte of the file's tensors once. The others, by hand:
 * llama-untied (C 48, 6 heads and 2 kv heads of 8, F 88, V 131, 3 layers, F32): 4 x (2 x 131 x 48 + 48 + 3 x (2 x 48 x 48
 * + 2 x 16 x 48 + 3 x 88 x 48 + 2 x 48)) = 277440. tp 2 has heads 0-3 and 4-5, so kv heads 0-1 and 1: the second is held
 * twice, k and v, and so are the norms: 4 x (48 + 3 x (2 x 8 x 48 + 2 x 48)) = 10560 more. pp 3 holds nothing twice.
 * gguf-llama-mixed (C 64, 8 heads and 2 kv heads of 16): tp 3 has heads 0-3, 4-5, 6-7, so kv head 1 twice. Its 16 rows of
 * 64 take, in layer 0, 16 x 2 blocks of 20 (Q4_1) and of 22 (Q5_0), in layer 1, 16 x 128 (F16) and 16 x 2 x 34 (Q8_0):
 * 4480. Five norms of 64 F32 and rope_freqs of 8 F32 are there thrice: 2 x (5 x 256 + 32) = 2624. Its output and down
 * products are cut along K inside rows.
 * gguf-llama-k (C 256, 8 heads and 2 kv heads of 32, one layer, tied): tp 8 holds each kv head four times, in
 * all 64 rows of one block of Q5_K (176 bytes) and Q6_K (210): 3 x 64 x 386; three norms of 256 eight times: 7 x 3072. Its
 * output and down products are cut by rows instead, and nothing of them is held twice. */
TEST(bytes_read_are_the_tensors_and_what_is_held_twice)
{
	static const struct { const char *name; int tp, pp; uint64_t more; } cases[] = {
		{ "llama-untied", 1, 1, 0 }, { "llama-untied", 2, 3, 10560 }, { "llama-untied", 1, 3, 0 },
		{ "gguf-llama-mixed", 1, 1, 0 }, { "gguf-llama-mixed", 3, 1, 4480 + 2624 }, { "gguf-llama-k", 1, 1, 0 },
		{ "gguf-llama-k", 8, 1, 3 * 64 * 386 + 7 * 3072 },
		{ "mixtral-8x2", 1, 1, 0 }, { "gguf-mixtral-split", 1, 1, 0 }, { "llama-sharded", 1, 1, 0 }, { "llama-bf16", 1, 2, 0 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct golden g = { .name = cases[i].name };
		struct bits_run b = base(&g);
		struct bits_result r;
		struct weights *w;
		uint64_t all = 0;
		CHECK_OK(read_prompt(&g));
		CU_ASSERT_EQUAL_FATAL(weights_open(path, &w), ERR_OK);
		for (int64_t t = 0; t < weights_count(w); t++)
			all += weights_at(w, t)->bytes;
		weights_close(w);
		if (i == 0)
			CU_ASSERT_EQUAL(all, 277440);
		b.layout = (struct layout){ .tp = cases[i].tp, .pp = cases[i].pp, .dp = 1 };
		b.ranks = cases[i].tp * cases[i].pp;
		CHECK_OK(bits_run(&b, &r));
		CU_ASSERT_EQUAL(r.read_bytes, all + cases[i].more);
		CU_ASSERT_EQUAL(r.expected_read_bytes, r.read_bytes);
		CU_ASSERT_EQUAL(r.uneven_reads, 0);
	}
}

TEST(more_tp_ranks_than_parts_are_refused)
{
	for (int i = 0; i < N_MODELS; i++) {
		struct bits_run b = base(&models[i]);
		struct bits_result r;
		CHECK_OK(read_prompt(&models[i]));
		b.layout.tp = b.ranks = models[i].tp + 1;
		CHECK_ERR(bits_run(&b, &r), FIT, "tp");
	}
}

TEST(chunks_and_threads_do_not_show)
{
	for (int i = 0; i < N_MODELS; i++) {
		CHECK_OK(run_one(&models[i]));
		int bad = 0;
		for (int step = 1; step <= 40; step += step < 8 ? 3 : 13) {
			struct bits_run b = base(&models[i]);
			b.step_tokens = step;
			b.threads = 1 + step % 3;
			bad += differs(&models[i], &b);
		}
		CU_ASSERT_EQUAL(bad, 0);
	}
}

TEST(neighbours_do_not_show)
{
	for (int i = 0; i < N_MODELS; i += 7) {
		struct bits_prompt many[3];
		struct bits_run b = base(&models[i]);
		CHECK_OK(run_one(&models[i]));
		many[0] = many[2] = (struct bits_prompt){ .ids = { 5, 4, 3, 2, 7, 6 }, .n = 6 };
		many[1] = prompt;
		b.prompts = many;
		b.n_prompts = 3;
		b.all_logits = other;
		b.logits_prompt = 1;
		for (int pp = 1; pp <= models[i].pp; pp++)
			for (b.step_tokens = 4; b.step_tokens <= 64; b.step_tokens += 20) {
				struct bits_result r;
				b.layout.pp = b.ranks = pp;
				memset(other, 0xff, sizeof other);
				CHECK_OK(bits_run(&b, &r));
				CU_ASSERT_EQUAL(memcmp(one, other, sizeof one), 0);
				CU_ASSERT_EQUAL(r.digest[1], of_one.digest[0]);
			}
	}
}

/* A golden model with one item of one tensor replaced. */
static void make_broken(const struct test_dir *d, const char *golden, const char *tensor, float item)
{
	struct bytes file = { 0 }, config = { 0 };
	struct weights *w;
	char from[512];
	snprintf(from, sizeof from, MODELS "%s/config.json", golden);
	CU_ASSERT_EQUAL_FATAL(file_read_all(from, 1 << 20, &config), ERR_OK);
	snprintf(from, sizeof from, MODELS "%s/model.safetensors", golden);
	CU_ASSERT_EQUAL_FATAL(file_read_all(from, 1 << 20, &file), ERR_OK);
	CU_ASSERT_EQUAL_FATAL(weights_open(from, &w), ERR_OK);
	const struct tensor_info *t = weights_find(w, tensor);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	memcpy(file.data + t->offset + 4 * 100, &item, sizeof item);
	weights_close(w);
	test_write(d, "model.safetensors", file.data, file.size);
	test_write(d, "config.json", config.data, config.size);
	bytes_free(&file);
	bytes_free(&config);
}

/* Weights that are not numbers, or give sums out of the fixed point's range, end the answer with an error on any layout. */
TEST(logits_that_are_not_numbers_are_an_error_everywhere)
{
	static const float items[] = { NAN, INFINITY, 1e30f };
	struct test_dir d;
	test_dir_make(&d);
	CHECK_OK(read_prompt(&models[0]));
	for (int i = 0; i < 3; i++)
		for (int tp = 1; tp <= 3; tp++) {
			struct bits_run b = base(&models[0]);
			struct bits_result r;
			make_broken(&d, "llama-tied", "model.layers.0.mlp.down_proj.weight", items[i]);
			b.model = d.path;
			b.layout.tp = tp;
			b.layout.pp = 1 + i % 2;
			b.ranks = tp * b.layout.pp;
			b.step_tokens = tp == 2 ? 7 : 512;
			b.all_logits = other;
			memset(other, 0, sizeof other);
			CHECK_OK(bits_run(&b, &r));
			CU_ASSERT_EQUAL(r.n_tokens[0], 0);
			CU_ASSERT(isnan(other[MAX_LOGITS - 1]));
		}
	test_dir_remove(&d);
}

/* One broken expert of the last layer: only the tokens that it serves are lost, and the same ones on any layout. */
TEST(a_broken_expert_spoils_its_tokens_alone)
{
	static const struct layout layouts[] = {
		{ .tp = 1, .pp = 1, .dp = 1 }, { .tp = 3, .pp = 1, .dp = 1, .ep = 3, .etp = 1 },
		{ .tp = 2, .pp = 2, .dp = 1, .ep = 1, .etp = 2 }, { .tp = 2, .pp = 1, .dp = 2, .ep = 4, .etp = 1 },
		{ .tp = 2, .pp = 1, .dp = 2, .ep = 2, .etp = 2 }, { .tp = 1, .pp = 2, .dp = 3, .ep = 3, .etp = 1 },
	};
	struct golden g = { .name = "mixtral-8x2" };
	struct test_dir d;
	test_dir_make(&d);
	CHECK_OK(run_one(&g));
	make_broken(&d, g.name, "model.layers.1.block_sparse_moe.experts.0.w2.weight", NAN);
	for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
		struct bits_run b = base(&g);
		struct bits_result r;
		int lost = 0, wrong = 0;
		static unsigned char first[40];
		b.model = d.path;
		b.layout = layouts[i];
		b.ranks = b.layout.tp * b.layout.pp * b.layout.dp;
		b.all_logits = other;
		CHECK_OK(bits_run(&b, &r));
		for (int at = 0; at < 40; at++) {
			int nan = isnan(other[at * 131]) != 0;
			lost += nan;
			wrong += !nan && memcmp(one + at * 131, other + at * 131, 131 * sizeof(float));
			if (i == 0)
				first[at] = (unsigned char)nan;
			wrong += first[at] != nan;
		}
		CU_ASSERT(lost > 0 && lost < 40);
		CU_ASSERT_EQUAL(wrong, 0);
	}
	test_dir_remove(&d);
}

TEST_MAIN("golden logits", CASE(logits_are_those_of_transformers),
	  CASE(logits_of_bf16_activations_are_those_of_transformers_with_rounded_inputs),
	  CASE(every_layout_gives_the_bits_of_one_rank),
	  CASE(bytes_read_are_the_tensors_and_what_is_held_twice), CASE(more_tp_ranks_than_parts_are_refused),
	  CASE(chunks_and_threads_do_not_show), CASE(neighbours_do_not_show),
	  CASE(logits_that_are_not_numbers_are_an_error_everywhere),
	  CASE(a_broken_expert_spoils_its_tokens_alone))
