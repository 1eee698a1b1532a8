#include "runtime/limits.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum { READ_BYTES = 256 << 20, READ_ROUNDS = 4, ROWS = 64, COLS = 512, TOKENS = 32, PRODUCT_ROUNDS = 200 };

struct probe {
	const struct kernels *k;
	uint64_t *block;
	float *matrix, *x, *y, *scratch;   /* one set per thread for the last two */
	_Atomic uint64_t sum;              /* keeps the compiler from dropping the reads */
};

static void touch_part(void *arg, int thread, int n_threads)
{
	struct probe *p = arg;
	int64_t begin, end;
	pool_part(READ_BYTES / 8, 512, thread, n_threads, &begin, &end);
	for (int64_t i = begin; i < end; i++)
		p->block[i] = (uint64_t)i;
}

static void read_part(void *arg, int thread, int n_threads)
{
	struct probe *p = arg;
	int64_t begin, end;
	uint64_t sums[8] = { 0 };
	pool_part(READ_BYTES / 8, 512, thread, n_threads, &begin, &end);
	for (int round = 0; round < READ_ROUNDS; round++)
		for (int64_t i = begin; i + 8 <= end; i += 8)
			for (int j = 0; j < 8; j++)
				sums[j] += p->block[i + j];
	for (int j = 0; j < 8; j++)
		p->sum += sums[j];
}

static void product_part(void *arg, int thread, int n_threads)
{
	struct probe *p = arg;
	const struct weight w = { .type = WTYPE_F32, .rows = ROWS, .cols = COLS, .row_bytes = COLS * 4,
				  .data = (unsigned char *)p->matrix };
	(void)n_threads;
	for (int round = 0; round < PRODUCT_ROUNDS; round++)
		p->k->matmul(&w, 0, ROWS, NULL, p->x, COLS, TOKENS, p->y + thread * ROWS * TOKENS, ROWS,
			     p->scratch + thread * KERNEL_SCRATCH_ROWS * COLS);
}

static double seconds(struct pool *pool, pool_work *work, struct probe *p)
{
	long long began = clock_us();
	pool_run(pool, work, p);
	return (double)(clock_us() - began + 1) * 1e-6;
}

enum err limits_measure(struct pool *pool, const struct kernels *k, struct limits *out)
{
	struct probe p = { .k = k };
	size_t n_threads = (size_t)pool_threads(pool);
	enum err e;
	TRY_OR(free_all, e, mem_alloc_aligned(READ_BYTES, 4096, "bandwidth probe", &p.block));
	TRY_OR(free_all, e, MEM_NEW(ROWS * COLS, float, &p.matrix));
	TRY_OR(free_all, e, MEM_NEW(TOKENS * COLS, float, &p.x));
	TRY_OR(free_all, e, MEM_NEW(n_threads * ROWS * TOKENS, float, &p.y));
	TRY_OR(free_all, e, MEM_NEW(n_threads * KERNEL_SCRATCH_ROWS * COLS, float, &p.scratch));
	pool_run(pool, touch_part, &p);
	seconds(pool, read_part, &p);
	out->read_gbps = (double)READ_BYTES * READ_ROUNDS / seconds(pool, read_part, &p) / 1e9;
	seconds(pool, product_part, &p);
	out->f32_gops = 2.0 * ROWS * COLS * TOKENS * PRODUCT_ROUNDS * (double)n_threads / seconds(pool, product_part, &p) / 1e9;
free_all:
	mem_free_aligned(p.block);
	mem_free(p.matrix);
	mem_free(p.x);
	mem_free(p.y);
	mem_free(p.scratch);
	return e;
}
