#include "runtime/limits.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

#include <stdio.h>

enum { CACHE_TIMES = 4, PASSES = 3,
       PIECE_BYTES = 32 << 20,           /* whose streams have whole huge pages each */
       ROWS = 64, COLS = 512, TOKENS = 32, PRODUCT_ROUNDS = 50, TRIES = 6,
       TRY_US = 4000, MAX_PEAK_ROUNDS = 1 << 24 };
static const uint64_t LEAST_READ = 64 << 20, UNKNOWN_READ = 1 << 30, MOST_READ = (uint64_t)8 << 30;

struct probe {
	const struct kernels *k;
	float *matrix, *x, *y, *scratch;   /* one set per thread for the last two */
	int64_t (*peak)(int64_t rounds);
	int64_t rounds;
	_Atomic int64_t ops;
};

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

static double seconds(struct pool *pool, pool_work *work, void *arg)
{
	long long began = clock_us();
	pool_run(pool, work, arg);
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
	TRY_OR(free_all, e, MEM_NEW(ROWS * COLS, float, &p.matrix));
	TRY_OR(free_all, e, MEM_NEW(TOKENS * COLS, float, &p.x));
	TRY_OR(free_all, e, MEM_NEW(n_threads * ROWS * TOKENS, float, &p.y));
	TRY_OR(free_all, e, MEM_NEW(n_threads * KERNEL_SCRATCH_ROWS * COLS, float, &p.scratch));
	found.f32_gops = 2.0 * ROWS * COLS * TOKENS * PRODUCT_ROUNDS * (double)n_threads / fastest(pool, product_part, &p) / 1e9;
	found.int8_gops = measure_peak(pool, k->peak_int8, &p);
	found.bf16_gops = measure_peak(pool, k->peak_bf16, &p);
	*out = found;
free_all:
	mem_free(p.matrix);
	mem_free(p.x);
	mem_free(p.y);
	mem_free(p.scratch);
	return e;
}

/* ---- memory ---- */

struct read_probe {
	struct pool *pool;
	const struct kernels *k;
	unsigned char *block;
	int64_t bytes;
	_Atomic uint64_t words;            /* keeps the compiler from dropping the reads */
};

static void touch_part(void *arg, int thread, int n_threads)
{
	struct read_probe *r = arg;
	int64_t begin, end;
	pool_part(r->bytes, KERNEL_READ_UNIT, thread, n_threads, &begin, &end);
	memset(r->block + begin, thread + 1, (size_t)(end - begin));
}

static void read_part(void *arg, int thread, int n_threads)
{
	struct read_probe *r = arg;
	int64_t begin, end;
	pool_part(r->bytes, KERNEL_READ_UNIT, thread, n_threads, &begin, &end);
	for (int64_t n; begin < end; begin += n) {
		n = end - begin < PIECE_BYTES ? end - begin : PIECE_BYTES;
		r->words |= r->k->read_all(r->block + begin, n);
	}
}

enum err read_probe_create(struct pool *pool, const struct kernels *k, uint64_t cache_bytes, uint64_t spare_bytes,
			   struct read_probe **out)
{
	uint64_t bytes = cache_bytes ? CACHE_TIMES * cache_bytes : UNKNOWN_READ;
	struct read_probe *r;
	if (bytes > spare_bytes)
		bytes = spare_bytes;
	if (bytes > MOST_READ)
		bytes = MOST_READ;
	if (bytes < LEAST_READ)
		bytes = LEAST_READ;
	bytes = bytes / KERNEL_READ_UNIT * KERNEL_READ_UNIT;
	TRY(MEM_NEW(1, struct read_probe, &r));
	*r = (struct read_probe){ .pool = pool, .k = k, .bytes = (int64_t)bytes };
	enum err e = mem_alloc_aligned(bytes, 4096, "bandwidth probe", &r->block);
	if (e) {
		mem_free(r);
		return e;
	}
	pool_run(pool, touch_part, r);
	*out = r;
	return ERR_OK;
}

uint64_t read_probe_bytes(const struct read_probe *r) { return (uint64_t)r->bytes; }

double read_probe_run(struct read_probe *r)
{
	double best = seconds(r->pool, read_part, r);
	for (int i = 1; i < PASSES; i++) {
		double s = seconds(r->pool, read_part, r);
		best = s < best ? s : best;
	}
	return (double)r->bytes / best / 1e9;
}

void read_probe_destroy(struct read_probe *r)
{
	if (!r)
		return;
	mem_free_aligned(r->block);
	mem_free(r);
}

/* ---- what there is ---- */

static int has_core(const struct plan *p, int rank, int node, int core)
{
	for (int r = rank < 0 ? 0 : rank; r < (rank < 0 ? p->n_ranks : rank + 1); r++)
		if (p->ranks[r].member.node == node && p->ranks[r].member.cores[core / 64] >> core % 64 & 1)
			return 1;
	return 0;
}

/* A last-level cache counts at the first core that has it: those of one cache follow each other. */
static uint64_t node_cache_bytes(const struct plan *p, const struct machine *m, int rank, int node)
{
	uint64_t bytes = 0;
	int last = -1;
	for (int i = 0; i < m->n_cores; i++) {
		if (!has_core(p, rank, node, i))
			continue;
		bytes += m->l2_bytes;
		if (m->cores[i].l3 >= 0 && m->cores[i].l3 != last)
			bytes += m->l3_bytes;
		last = m->cores[i].l3;
	}
	return bytes;
}

uint64_t limits_cache_bytes(const struct plan *p, const struct cluster *c, int rank)
{
	uint64_t bytes = 0;
	for (int node = 0; node < c->n_nodes; node++)
		bytes += node_cache_bytes(p, &c->nodes[node], rank, node);
	return bytes;
}

/* What Linux could give without swapping; UINT64_MAX: not known. */
static uint64_t available_bytes(void)
{
	char line[128];
	unsigned long long kib;
	uint64_t found = UINT64_MAX;
	FILE *f = fopen("/proc/meminfo", "re");
	while (f && found == UINT64_MAX && fgets(line, sizeof line, f))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			found = (uint64_t)kib << 10;
	if (f)
		fclose(f);
	return found;
}

uint64_t limits_spare_bytes(const struct plan *p, const struct cluster *c, int rank)
{
	int node = p->ranks[rank].member.node;
	uint64_t planned = 0, limit = c->nodes[node].memory_limit_bytes, spare = available_bytes();
	uint64_t n = 0;
	for (int r = 0; r < p->n_ranks; r++) {
		const struct plan_rank *k = &p->ranks[r];
		if (k->member.node != node)
			continue;
		planned += k->weights_bytes + k->kv_bytes + k->buffer_bytes;
		n++;
	}
	if (limit && spare > (limit > planned ? limit - planned : 0))
		spare = limit > planned ? limit - planned : 0;
	return spare / 2 / n;
}
