/* Numbers for the tests of kernels: a small generator, and every table that runs on this processor. */
#ifndef SHARDRUN_TESTS_KERNEL_DATA_H
#define SHARDRUN_TESTS_KERNEL_DATA_H

#include "runtime/kernels.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Knuth's linear congruential generator (MMIX); the high bits. */
static uint64_t random_state = 42;

static inline uint32_t random_u32(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 32);
}

static inline int64_t random_below(int64_t n) { return (int64_t)(random_u32() % (uint64_t)n); }

static inline float random_float(void)   /* [-1, 1) */
{
	return (float)(random_u32() >> 8) * 0x1p-23f - 1.0f;
}

static inline void *room(size_t bytes)
{
	void *p = calloc(bytes ? bytes : 1, 1);
	if (!p)
		abort();
	return p;
}

static inline float *random_floats(int64_t n)
{
	float *x = room((size_t)n * sizeof *x);
	for (int64_t i = 0; i < n; i++)
		x[i] = random_float();
	return x;
}

static inline int same_bits(const float *a, const float *b, int64_t n) { return !memcmp(a, b, (size_t)n * sizeof *a); }

/* Random bytes, with the sign and exponent of every f16 in them kept small. */
static inline struct weight random_weight(enum wtype type, int64_t rows, int64_t cols)
{
	static const int halves[WTYPE_COUNT][3] = {   /* how many f16 numbers a block has, and where */
		[WTYPE_Q8_0] = { 1, 0 }, [WTYPE_Q4_0] = { 1, 0 }, [WTYPE_Q4_1] = { 2, 0, 2 }, [WTYPE_Q5_0] = { 1, 0 },
		[WTYPE_Q5_1] = { 2, 0, 2 }, [WTYPE_Q4_K] = { 2, 0, 2 }, [WTYPE_Q5_K] = { 2, 0, 2 }, [WTYPE_Q6_K] = { 1, 208 }
	};
	struct weight w = { type, rows, cols, wtype_row_bytes(type, cols), NULL, PACK_ROWS };
	int64_t bytes = w.row_bytes * rows, size = wtypes[type].block_bytes;
	w.data = room((size_t)bytes);
	for (int64_t i = 0; i < bytes; i++)
		w.data[i] = (unsigned char)random_u32();
	for (int64_t block = 0; block < bytes; block += size) {
		if (type == WTYPE_F32) {
			float f = random_float();
			memcpy(w.data + block, &f, 4);
		} else if (type == WTYPE_F16 || type == WTYPE_BF16) {
			w.data[block + 1] &= 0xbf;
		} else {
			for (int h = 0; h < halves[type][0]; h++)
				w.data[block + halves[type][1 + h] + 1] &= 0xaf;
		}
	}
	return w;
}

#define FOR_TABLES(k)                                                                           \
	for (const struct kernels *const *table_ = kernel_tables, *k; (k = *table_) != NULL; table_++) \
		if (k->usable())

#endif
