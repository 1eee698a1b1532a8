/* A fixed pool of threads that work inside kernels. The caller of pool_run is thread 0. Which items a thread works on
 * never changes a result: every item is computed by one thread in one fixed order. */
#ifndef SHARDRUN_BASE_POOL_H
#define SHARDRUN_BASE_POOL_H

#include "base/err.h"

#include <stdint.h>

struct pool;
typedef void pool_work(void *arg, int thread, int n_threads);

/* cpus: OS numbers of the cores to pin the threads to, thread i on cpus[i % n_cpus]; n_cpus 0 pins nothing. Threads
 * start with the IEEE default float environment (nearest even, no flush to zero). */
enum err pool_create(int n_threads, const int *cpus, int n_cpus, struct pool **out);
void pool_run(struct pool *p, pool_work *work, void *arg);   /* returns when every thread has returned */
int pool_threads(const struct pool *p);
void pool_destroy(struct pool *p);

/* The part of 0..n that `thread` works on, in whole multiples of `unit`. */
static inline void pool_part(int64_t n, int64_t unit, int thread, int n_threads, int64_t *begin, int64_t *end)
{
	int64_t units = (n + unit - 1) / unit;
	*begin = units * thread / n_threads * unit;
	*end = units * (thread + 1) / n_threads * unit;
	if (*begin > n)
		*begin = n;
	if (*end > n)
		*end = n;
}

/* Work that waits for memory, which serves some threads faster than others: a thread takes half of what is left of its part, then
 * half of that, and so on, and when nothing is left, from the ends of others' parts. Within `work`, until it gives 0: the next
 * piece of 0..n, in whole units, of `several` units where there are as many. One such round in a pool_run, with the same
 * n, unit and several in all threads. several 0: a thread gets what pool_part says, once. */
int pool_take(struct pool *p, int64_t n, int64_t unit, int several, int thread, int64_t *begin, int64_t *end);

#endif
