/* Prints the speed of the kernels that take the time of a step, on one thread, by the time this thread had a core.
 * Arguments, in any order: names of tables (all that run here otherwise); "products", "bf16" (of the products only those) or
 * "others" (all otherwise). */
#include "runtime/kernels.h"
#include "runtime/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUN = 96, HEAD_DIM = 64, CONTEXT = 1024, PROMPT = 512, HEADS = 3,
       PROMPT_ROWS = 16, QUANTIZED = 1536,
       TRIALS = 6, TRIAL_US = 12000,
       COLD_BYTES = 400 << 20 };   /* of copies of a matrix that one token walks: more than the caches hold */

static long long used_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000ll + t.tv_nsec / 1000;
}

/* best = microseconds of one run, the best of some trials: neighbours on the machine only ever slow things down. */
#define BEST_US(best, run)                                                      \
	for (int trial_ = 0; trial_ < TRIALS; trial_++) {                       \
		long long start_ = used_us(), used_, n_ = 0;                    \
		do {                                                            \
			run;                                                    \
			n_++;                                                   \
			used_ = used_us() - start_;                             \
		} while (used_ < TRIAL_US);                                     \
		if (trial_ == 0 || (double)used_ / (double)n_ < (best))         \
			(best) = (double)used_ / (double)n_;                    \
	}

static float random_float(void)
{
	static uint32_t state = 1;
	state = state * 1664525u + 1013904223u;
	return (float)(state >> 8) * 0x1p-23f - 1.0f;
}

static void *room(int64_t bytes)
{
	void *p = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
	if (!p)
		exit(1);
	return memset(p, 0, (size_t)bytes);
}

static float *random_floats(int64_t n)
{
	float *x = room(n * (int64_t)sizeof *x);
	for (int64_t i = 0; i < n; i++)
		x[i] = random_float();
	return x;
}

/* A weight of random bytes in which every f16 is small (exponents of the high byte kept down). */
static struct weight random_weight(enum wtype type, int64_t rows, int64_t cols)
{
	struct weight w = { type, rows, cols, wtype_row_bytes(type, cols), NULL, PACK_ROWS };
	if (type == WTYPE_F32) {
		w.data = (unsigned char *)random_floats(rows * cols);
		return w;
	}
	int64_t bytes = w.row_bytes * rows;
	w.data = room(bytes);
	for (int64_t i = 0; i < bytes; i++)
		w.data[i] = (unsigned char)(random_float() * 127.0f + 128.0f) & 0x3b;
	return w;
}

static struct weight packed_weight(enum wtype type, int64_t rows, int64_t cols, int64_t copies)
{
	struct weight raw = random_weight(type, rows, cols), w = raw;
	int64_t bytes = pack_bytes(type, rows, cols);
	w.form = pack_form_of(type);
	w.data = room(bytes * copies);
	pack_rows(&w, 0, rows, raw.data);
	for (int64_t i = 1; i < copies; i++)
		memcpy(w.data + i * bytes, w.data, (size_t)bytes);
	free(raw.data);
	return w;
}

static void bench_packing(enum wtype type, int64_t rows, int64_t cols)
{
	struct weight raw = random_weight(type, rows, cols), w = packed_weight(type, rows, cols, 1);
	double best = 0;
	BEST_US(best, pack_rows(&w, 0, rows, raw.data));
	printf("%-10s packing       %-5s %4d x %-4d            %8.0f M weights/s\n", "", wtypes[type].name, (int)rows, (int)cols,
	       (double)(rows * cols) / best);
	free(raw.data), free(w.data);
}

struct packed_run {
	const struct kernels *k;
	struct weight *w;
	int fixed;
	const struct act_block *q;
	int64_t blocks, n;
	float *y;
	int64_t *acc, *bad;
	float *scratch;
};

/* The next of the copies that begin at `first`. */
static void run_packed(const struct packed_run *r, unsigned char *first, int64_t copies, int64_t *rounds)
{
	int64_t rows = r->w->rows;
	r->w->data = first + (*rounds)++ % copies * pack_bytes(r->w->type, rows, r->w->cols);
	if (r->fixed)
		r->k->packed_fixed(r->w, 0, rows, RUN, NULL, r->q, r->blocks, r->n, r->acc, rows + 1, r->bad, r->scratch);
	else
		r->k->packed_matmul(r->w, 0, rows, NULL, r->q, r->blocks, r->n, r->y, rows, r->scratch);
}

/* cold: walks copies that no cache holds, so that the rate is memory's. */
static void bench_packed(const struct kernels *k, enum wtype type, int64_t rows, int64_t cols, int64_t n, int fixed, int cold)
{
	int64_t bytes = pack_bytes(type, rows, cols), copies = cold ? COLD_BYTES / bytes + 1 : 1, blocks = act_blocks(cols);
	struct weight first = packed_weight(type, rows, cols, copies), w = first;
	float *x = random_floats(cols), *y = room(n * rows * 4), *scratch = room(KERNEL_SCRATCH_ROWS * cols * 4);
	struct act_block *q = room(n * blocks * (int64_t)sizeof *q);
	int64_t *acc = room(n * (rows + 1) * 8), *bad = room(n * 8), rounds = 0;
	for (int64_t b = 0; b < n; b++)
		k->quantize(x, cols, q + b * blocks);
	double best = 0;
	BEST_US(best, run_packed(&(struct packed_run){ k, &w, fixed, q, blocks, n, y, acc, bad, scratch }, first.data, copies, &rounds));
	printf("%-10s %-13s %-5s %4d x %-4d n=%-3d%s %8.1f G op/s %7.2f GB/s\n", k->name, fixed ? "packed_fixed" : "packed_matmul",
	       wtypes[type].name, (int)rows, (int)cols, (int)n, cold ? " cold" : "     ",
	       2.0 * (double)(rows * cols * n) / best / 1e3, (double)bytes / best / 1e3);
	free(first.data), free(x), free(y), free(scratch), free(q), free(acc), free(bad);
}

/* BF16 weights as they are packed, times floats that the kernel rounds. */
static void bench_bf16(const struct kernels *k, int64_t rows, int64_t cols, int64_t n, int fixed, int cold)
{
	int64_t bytes = pack_bytes(WTYPE_BF16, rows, cols), copies = cold ? COLD_BYTES / bytes + 1 : 1, rounds = 0;
	struct weight first = packed_weight(WTYPE_BF16, rows, cols, copies), w = first;
	float *x = random_floats(n * cols), *y = room(n * rows * 4), *scratch = room(KERNEL_SCRATCH_ROWS * cols * 4);
	int64_t *acc = room(n * (rows + 1) * 8), *bad = room(n * 8);
	double best = 0;
	BEST_US(best, w.data = first.data + rounds++ % copies * bytes;
		fixed ? k->matmul_fixed(&w, 0, rows, RUN, NULL, x, cols, n, acc, rows + 1, bad, scratch)
		      : k->matmul(&w, 0, rows, NULL, x, cols, n, y, rows, scratch));
	printf("%-10s %-13s BF16  %4d x %-4d n=%-3d%s %8.1f G op/s %7.2f GB/s\n", k->name, fixed ? "matmul_fixed" : "matmul",
	       (int)rows, (int)cols, (int)n, cold ? " cold" : "     ", 2.0 * (double)(rows * cols * n) / best / 1e3,
	       (double)bytes / best / 1e3);
	free(first.data), free(x), free(y), free(scratch), free(acc), free(bad);
}

static void bench_bf16_products(const struct kernels *k)
{
	static const int tokens[] = { 1, 2, 3, 4, 5, 8, 12, 13, 16, 32, 64, 512 };
	for (int large = 0; large < 2; large++) {
		int64_t rows = large ? 1024 : 576, cols = large ? 4096 : 1536;
		bench_packing(WTYPE_BF16, rows, cols);
		bench_bf16(k, rows, cols, 1, 0, 1);
		bench_bf16(k, rows, cols, 1, 1, 1);
		for (size_t n = 0; n < sizeof tokens / sizeof tokens[0]; n++)
			bench_bf16(k, rows, cols, tokens[n], 0, 0);
		bench_bf16(k, rows, cols, 8, 1, 0);
		bench_bf16(k, rows, cols, 512, 1, 0);
	}
}

static void bench_matmul(const struct kernels *k, enum wtype type, int64_t n)
{
	enum { ROWS = 576, COLS = 1536 };
	struct weight w = random_weight(type, ROWS, COLS);
	float *x = random_floats(n * COLS), *y = room(n * ROWS * 4), *scratch = room(KERNEL_SCRATCH_ROWS * COLS * 4);
	double best = 0;
	BEST_US(best, k->matmul(&w, 0, ROWS, NULL, x, COLS, n, y, ROWS, scratch));
	printf("%-10s matmul        %-5s %4d x %-4d n=%-3d      %8.1f G op/s\n", k->name, wtypes[type].name, ROWS, COLS, (int)n,
	       2.0 * ROWS * COLS * (double)n / best / 1e3);
	free(w.data), free(x), free(y), free(scratch);
}

static void run_quantize(const struct kernels *k, const float *x, struct act_block *q)
{
	for (int i = 0; i < 100; i++)
		k->quantize(x, QUANTIZED, q);
}

static void bench_quantize(const struct kernels *k)
{
	float *x = random_floats(QUANTIZED);
	struct act_block *q = room(act_blocks(QUANTIZED) * (int64_t)sizeof *q);
	double best = 0;
	BEST_US(best, run_quantize(k, x, q));
	printf("%-10s quantize      %8.2f G activations/s\n", k->name, 100.0 * QUANTIZED / best / 1e3);
	free(x), free(q);
}

static void store_token(const struct kernels *k, const struct kv_layer *kv, const int32_t *pages, int64_t pos, const float *key,
			const float *value)
{
	k->kv_store(kv, kv->k, pages, pos, 0, HEAD_DIM, key);
	k->kv_store(kv, kv->v, pages, pos, 0, HEAD_DIM, value);
}

static void bench_attention(const struct kernels *k, enum kv_type type)
{
	int32_t pages[CONTEXT / KV_PAGE_TOKENS];
	float *keys = random_floats(CONTEXT * HEAD_DIM), *values = random_floats(CONTEXT * HEAD_DIM), out[HEAD_DIM];
	struct kv_layer kv = { type, 1, HEAD_DIM, room(CONTEXT * HEAD_DIM * 4), room(CONTEXT * HEAD_DIM * 4) };
	for (int i = 0; i < CONTEXT / KV_PAGE_TOKENS; i++)
		pages[i] = i;
	for (int i = 0; i < CONTEXT; i++)
		store_token(k, &kv, pages, i, keys + i * HEAD_DIM, values + i * HEAD_DIM);
	double best = 0;
	BEST_US(best, k->attention(&kv, pages, 0, CONTEXT - 1, 0, 0.125f, keys, out));
	printf("%-10s attention     %-5s D=%-3d %8.2f ns per position\n", k->name, kv_type_names[type], HEAD_DIM,
	       best * 1e3 / CONTEXT);
	free(keys), free(values), free(kv.k), free(kv.v);
}

static void run_prompt(const struct kernels *k, const struct kv_layer *kv, const int32_t *pages, const float *q, float *out)
{
	for (int64_t i = 0; i < PROMPT; i += PROMPT_ROWS)
		k->attention_rows(kv, pages, 0, i, PROMPT_ROWS, HEADS, 0, 0.125f, q + i * HEADS * HEAD_DIM, HEADS * HEAD_DIM,
				  out + i * HEADS * HEAD_DIM, HEADS * HEAD_DIM);
}

/* All rows of a prompt, 3 query heads to a kv head, in calls of 16 rows. */
static void bench_prompt(const struct kernels *k, enum kv_type type)
{
	int32_t pages[PROMPT / KV_PAGE_TOKENS];
	float *q = random_floats(PROMPT * HEADS * HEAD_DIM), *out = room(PROMPT * HEADS * HEAD_DIM * 4);
	struct kv_layer kv = { type, 1, HEAD_DIM, room(PROMPT * HEAD_DIM * 4), room(PROMPT * HEAD_DIM * 4) };
	for (int i = 0; i < PROMPT / KV_PAGE_TOKENS; i++)
		pages[i] = i;
	for (int i = 0; i < PROMPT; i++)
		store_token(k, &kv, pages, i, q + i * HEADS * HEAD_DIM, q + i * HEADS * HEAD_DIM + HEAD_DIM);
	double best = 0;
	BEST_US(best, run_prompt(k, &kv, pages, q, out));
	double positions = PROMPT * (PROMPT + 1) / 2 * HEADS;
	printf("%-10s prompt of 512 %-5s D=%-3d %8.2f ns per position %8.1f G op/s\n", k->name, kv_type_names[type], HEAD_DIM,
	       best * 1e3 / positions, positions * 4 * HEAD_DIM / best / 1e3);
	free(q), free(out), free(kv.k), free(kv.v);
}

static int named(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return 1;
	return 0;
}

static void bench_products(const struct kernels *k)
{
	static const enum wtype types[] = { WTYPE_Q4_0, WTYPE_Q4_1, WTYPE_Q8_0, WTYPE_Q5_0, WTYPE_Q4_K, WTYPE_Q6_K };
	static const int tokens[] = { 1, 2, 4, 8, 16, 64, 512 };
	for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
		for (int large = 0; large < 2; large++) {
			int64_t rows = large ? 1024 : 576, cols = large ? 4096 : 1536;
			bench_packing(types[t], rows, cols);
			bench_packed(k, types[t], rows, cols, 1, 0, 1);
			bench_packed(k, types[t], rows, cols, 2, 0, 1);
			bench_packed(k, types[t], rows, cols, 4, 0, 1);
			for (size_t n = 0; n < sizeof tokens / sizeof tokens[0]; n++)
				bench_packed(k, types[t], rows, cols, tokens[n], 0, 0);
			bench_packed(k, types[t], rows, cols, 8, 1, 0);
			bench_packed(k, types[t], rows, cols, 512, 1, 0);
		}
	bench_bf16_products(k);
	bench_matmul(k, WTYPE_F32, 1);
	bench_matmul(k, WTYPE_F32, 64);
	bench_matmul(k, WTYPE_Q4_1, 64);
}

int main(int argc, char **argv)
{
	int some_tables = 0, products = named("products", argc, argv), others = named("others", argc, argv);
	int bf16 = named("bf16", argc, argv);
	for (int i = 0; kernel_tables[i]; i++)
		some_tables |= named(kernel_tables[i]->name, argc, argv);
	for (int i = 0; kernel_tables[i]; i++) {
		const struct kernels *k = kernel_tables[i];
		if (!k->usable() || (some_tables && !named(k->name, argc, argv)))
			continue;
		if (bf16)
			bench_bf16_products(k);
		if (products || (!others && !bf16))
			bench_products(k);
		if ((products || bf16) && !others)
			continue;
		bench_quantize(k);
		for (int type = 0; type < KV_TYPE_COUNT; type++)
			bench_attention(k, (enum kv_type)type);
		for (int type = 0; type < KV_TYPE_COUNT; type++)
			bench_prompt(k, (enum kv_type)type);
	}
	return 0;
}
