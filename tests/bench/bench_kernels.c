/* Prints the speed of the kernels that take the time of a step, for every table that runs here, on one thread, by the
 * time this thread had a core. */
#include "runtime/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROWS = 576, COLS = 1536, MAX_TOKENS = 64, RUN = 96, HEAD_DIM = 64, CONTEXT = 1024 };

static long long used_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000ll + t.tv_nsec / 1000;
}

static float random_float(void)
{
	static uint32_t state = 1;
	state = state * 1664525u + 1013904223u;
	return (float)(state >> 8) * 0x1p-23f - 1.0f;
}

static float *random_floats(int64_t n)
{
	float *x = malloc((size_t)n * sizeof *x);
	if (!x)
		exit(1);
	for (int64_t i = 0; i < n; i++)
		x[i] = random_float();
	return x;
}

/* A weight of random numbers: for the quantised type random nibbles with scale and offset 1 (half 0x3c00). */
static struct weight random_weight(enum wtype type)
{
	struct weight w = { type, ROWS, COLS, wtype_row_bytes(type, COLS), NULL };
	if (type == WTYPE_F32) {
		w.data = (unsigned char *)random_floats(ROWS * COLS);
		return w;
	}
	int64_t bytes = w.row_bytes * ROWS;
	w.data = malloc((size_t)bytes);
	if (!w.data)
		exit(1);
	for (int64_t i = 0; i < bytes; i++) {
		int64_t place = i % wtypes[type].block_bytes;
		w.data[i] = place < 4 ? (place & 1 ? 0x3c : 0) : (unsigned char)(random_float() * 127.0f + 128.0f);
	}
	return w;
}

static void bench_matmul(const struct kernels *k, enum wtype type, int64_t n, int fixed)
{
	struct weight w = random_weight(type);
	float *x = random_floats(MAX_TOKENS * COLS), *y = random_floats(MAX_TOKENS * ROWS);
	float *scratch = random_floats(KERNEL_SCRATCH_ROWS * COLS);
	int64_t *acc = calloc(MAX_TOKENS * ROWS, sizeof *acc), bad[MAX_TOKENS] = { 0 }, rounds = 0;
	long long start = used_us(), used;
	do {
		if (fixed)
			k->matmul_fixed(&w, 0, ROWS, RUN, NULL, x, COLS, n, acc, ROWS, bad, scratch);
		else
			k->matmul(&w, 0, ROWS, NULL, x, COLS, n, y, ROWS, scratch);
		rounds++;
		used = used_us() - start;
	} while (used < 200000);
	printf("%-7s %-12s %-5s n=%-3d %8.2f GFLOP/s\n", k->name, fixed ? "matmul_fixed" : "matmul", wtypes[type].name,
	       (int)n, 2.0 * ROWS * COLS * (double)n * (double)rounds / (double)used / 1e3);
	free(w.data), free(x), free(y), free(scratch), free(acc);
}

static void bench_attention(const struct kernels *k, enum kv_type type)
{
	int32_t pages[CONTEXT / KV_PAGE_TOKENS];
	float *keys = random_floats(CONTEXT * HEAD_DIM), *values = random_floats(CONTEXT * HEAD_DIM), out[HEAD_DIM];
	struct kv_layer kv = { type, 1, HEAD_DIM, calloc(CONTEXT * HEAD_DIM, 4), calloc(CONTEXT * HEAD_DIM, 4) };
	int64_t rounds = 0;
	for (int i = 0; i < CONTEXT / KV_PAGE_TOKENS; i++)
		pages[i] = i;
	for (int i = 0; i < CONTEXT; i++)
		k->kv_store(&kv, pages, i, keys + i * HEAD_DIM, values + i * HEAD_DIM);
	long long start = used_us(), used;
	do {
		k->attention(&kv, pages, 0, CONTEXT - 1, 0, 0.125f, keys, out);
		rounds++;
		used = used_us() - start;
	} while (used < 200000);
	printf("%-7s attention    %-5s D=%-3d %8.2f ns per position\n", k->name, kv_type_names[type], HEAD_DIM,
	       (double)used * 1e3 / CONTEXT / (double)rounds);
	free(keys), free(values), free(kv.k), free(kv.v);
}

int main(void)
{
	static const int tokens[] = { 1, 8, 64 };
	for (int i = 0; kernel_tables[i]; i++) {
		const struct kernels *k = kernel_tables[i];
		if (!k->usable())
			continue;
		for (int n = 0; n < 3; n++) {
			bench_matmul(k, WTYPE_F32, tokens[n], 0);
			bench_matmul(k, WTYPE_Q4_1, tokens[n], 0);
			bench_matmul(k, WTYPE_F32, tokens[n], 1);
		}
		for (int type = 0; type < KV_TYPE_COUNT; type++)
			bench_attention(k, (enum kv_type)type);
	}
	return 0;
}
