#include "runtime/limits.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum { READ_BYTES = 256 << 20, READ_PIECES = 4, READ_ROUNDS = 6,   /* a try reads one piece */
       ROWS = 64, COLS = 512, TOKENS = 32, PRODUCT_ROUNDS = 50, TRIES = 6,
       TRY_US = 4000, MAX_PEAK_ROUNDS = 1 << 24 };

struct probe {
	const struct kernels *k;
	unsigned char *block;
	int piece;
	float *matrix, *x, *y, *scratch;   /* one set per thread for the last two */
	int64_t (*peak)(int64_t rounds);
	int64_t rounds;
	_Atomic int64_t ops;
	_Atomic uint64_t words;            /* keeps the compiler from dropping the reads */
};

static void touch_part(void *arg, int thread, int n_threads)
{
	struct probe *p = arg;
	int64_t begin, end;
	pool_part(READ_BYTES, KERNEL_READ_UNIT, thread, n_threads, &begin, &end);
	memset(p->block + begin, thread + 1, (size_t)(end - begin));
}

/* A piece of what this thread has touched. */
static void read_part(void *arg, int thread, int n_threads)
{
	struct probe *p = arg;
	int64_t begin, end, from, to;
	pool_part(READ_BYTES, KERNEL_READ_UNIT, thread, n_threads, &begin, &end);
	pool_part(end - begin, KERNEL_READ_UNIT, p->piece, READ_PIECES, &from, &to);
	p->words |= p->k->read_all(p->block + begin + from, to - from);
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

static void peak_part(void *arg, int thread, int n_threads)
{
	struct probe *p = arg;
	(void)thread, (void)n_threads;
	p->ops += p->peak(p->rounds);
}

static double seconds(struct pool *pool, pool_work *work, struct probe *p)
{
	long long began = clock_us();
	pool_run(pool, work, p);
	return (double)(clock_us() - began + 1) * 1e-6;
}

/* Seconds of the fastest try. */
static double fastest(struct pool *pool, pool_work *work, struct probe *p)
{
	double best = seconds(pool, work, p);
	for (int i = 1; i < TRIES; i++) {
		double s = seconds(pool, work, p);
		best = s < best ? s : best;
	}
	return best;
}

static double measure_read(struct pool *pool, struct probe *p)
{
	double best = 0;
	for (int i = 0; i < READ_PIECES * READ_ROUNDS; i++) {
		p->piece = i % READ_PIECES;
		double gbps = (double)READ_BYTES / READ_PIECES / seconds(pool, read_part, p) / 1e9;
		best = gbps > best ? gbps : best;
	}
	return best;
}

/* As many rounds as take a while, then the best of several tries. */
static double measure_peak(struct pool *pool, int64_t (*peak)(int64_t rounds), struct probe *p)
{
	p->peak = peak;
	for (p->rounds = 4096; p->rounds < MAX_PEAK_ROUNDS && fastest(pool, peak_part, p) < TRY_US * 1e-6; p->rounds *= 2)
		;
	p->ops = 0;
	double s = fastest(pool, peak_part, p);
	return (double)p->ops / TRIES / s / 1e9;
}

enum err limits_measure(struct pool *pool, const struct kernels *k, struct limits *out)
{
	struct probe p = { .k = k };
	struct limits found;
	size_t n_threads = (size_t)pool_threads(pool);
	enum err e;
	TRY_OR(free_all, e, mem_alloc_aligned(READ_BYTES, 4096, "bandwidth probe", &p.block));
	TRY_OR(free_all, e, MEM_NEW(ROWS * COLS, float, &p.matrix));
	TRY_OR(free_all, e, MEM_NEW(TOKENS * COLS, float, &p.x));
	TRY_OR(free_all, e, MEM_NEW(n_threads * ROWS * TOKENS, float, &p.y));
	TRY_OR(free_all, e, MEM_NEW(n_threads * KERNEL_SCRATCH_ROWS * COLS, float, &p.scratch));
	pool_run(pool, touch_part, &p);
	found.read_gbps = measure_read(pool, &p);
	found.f32_gops = 2.0 * ROWS * COLS * TOKENS * PRODUCT_ROUNDS * (double)n_threads / fastest(pool, product_part, &p) / 1e9;
	found.int8_gops = measure_peak(pool, k->peak_int8, &p);
	found.bf16_gops = measure_peak(pool, k->peak_bf16, &p);
	*out = found;
free_all:
	mem_free_aligned(p.block);
	mem_free(p.matrix);
	mem_free(p.x);
	mem_free(p.y);
	mem_free(p.scratch);
	return e;
}
