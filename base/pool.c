/* A run is published by raising `epoch`; each worker reports by writing that number to its own `done`. What the caller
 * writes and what a worker writes lie on different cache lines, so that a run costs each worker one line in each direction.
 *
 * Waiting spins, then yields, then sleeps, so that ranks which outnumber the cores do not starve each other. How long a thread
 * spins follows what it has met: a wait that ended while it spun doubles its patience, one that did not halves it. A yield that
 * does not come back at once gave the core to a stranger for a whole turn: then it is better to sleep, as the kernel soon
 * runs whoever wakes (measured with a compiler on each core: a model of many small regions goes up to 25 times faster).
 *
 * Sleeping is on futexes: who sleeps says so first and then looks once more, who ends the wait changes the number first and then
 * looks whether anybody sleeps. `work`, `arg` and `stop` are written by the caller before epoch rises, and read
 * by workers after it. */
#include "base/pool.h"

#include "base/clock.h"
#include "base/mem.h"

#include <fenv.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

enum { LINE = 64, LEAST_SPINS = 64, MOST_SPINS = 512, QUICK_SPINS = 256, MOST_YIELDS = 800,
       LONG_YIELD_US = 100, REMEMBERED_WAITS = 200 };

struct worker {
	struct pool *pool;
	pthread_t thread;
	int index;
	unsigned char before[LINE];
	_Atomic unsigned done;    /* the last run that this worker has finished */
	unsigned char between[LINE];
	_Atomic uint64_t taken;   /* of its part (thread 0's stands in workers[0]): in which run, how many units from its beginning,
				     how many from its end: 32, 16 and 16 bits */
	unsigned char behind[LINE];
};

struct pool {
	int n_threads;
	int n_started;
	struct worker *workers;   /* (n_threads), the first without a thread */
	unsigned char before[LINE];
	pool_work *work;
	void *arg;
	int stop;
	_Atomic unsigned epoch;
	unsigned char behind[LINE];
	unsigned spins;           /* the caller's patience */
	_Atomic int sleepers, caller_sleeps;
};

static void set_float_environment(void)
{
	fesetround(FE_TONEAREST);
#ifdef __SSE__
	_mm_setcsr(_mm_getcsr() & ~0x8040u);   /* flush-to-zero and denormals-are-zero off */
#elif defined(__aarch64__)
	uint64_t control;
	__asm__ volatile("mrs %0, fpcr" : "=r"(control));
	control &= ~((uint64_t)1 << 24 | (uint64_t)1 << 19);   /* the same, and for f16 */
	__asm__ volatile("msr fpcr, %0" : : "r"(control));
#endif
}

static void pin(pthread_t thread, int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pthread_setaffinity_np(thread, sizeof set, &set);   /* a hint: failing costs speed, not results */
}

static void relax(void)
{
#ifdef __SSE__
	_mm_pause();
#endif
}

/* Whether *at became `wanted` within *spins looks. */
static int spin_until(const _Atomic unsigned *at, unsigned wanted, unsigned *spins)
{
	for (unsigned i = 0; i < *spins; i++) {
		if (atomic_load_explicit(at, memory_order_acquire) == wanted) {
			*spins = *spins < MOST_SPINS / 2 ? *spins * 2 : MOST_SPINS;
			return 1;
		}
		if (i >= QUICK_SPINS)   /* a pause is up to 50 ns long */
			relax();
	}
	*spins = *spins > LEAST_SPINS * 2 ? *spins / 2 : LEAST_SPINS;
	return 0;
}

/* Whether *at became `wanted` while yielding comes back at once, as nobody else wants the core. When it does not, that is
 * remembered for the thread's next waits. */
static int yield_until(const _Atomic unsigned *at, unsigned wanted)
{
	static _Thread_local int crowded;
	if (crowded > 0) {
		crowded--;
		return 0;
	}
	for (int i = 0; i < MOST_YIELDS; i++) {
		if (atomic_load_explicit(at, memory_order_acquire) == wanted)
			return 1;
		long long began = clock_us();
		sched_yield();
		if (clock_us() - began > LONG_YIELD_US) {
			crowded = REMEMBERED_WAITS;
			return 0;
		}
	}
	return 0;
}

static void sleep_until(_Atomic unsigned *at, unsigned wanted, _Atomic int *sleepers)
{
	atomic_fetch_add(sleepers, 1);
	for (unsigned seen; (seen = atomic_load(at)) != wanted;)
		syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	atomic_fetch_sub(sleepers, 1);
}

static void wake(_Atomic unsigned *at, const _Atomic int *sleepers)
{
	if (atomic_load(sleepers))
		syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Until the epoch is `wanted`: the caller does not run ahead of its workers, so no number is skipped. */
static void wait_epoch(struct pool *p, unsigned wanted, unsigned *spins)
{
	if (spin_until(&p->epoch, wanted, spins))
		return;
	if (!yield_until(&p->epoch, wanted))
		sleep_until(&p->epoch, wanted, &p->sleepers);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	unsigned spins = MOST_SPINS;
	set_float_environment();
	for (unsigned epoch = 1;; epoch++) {
		wait_epoch(p, epoch, &spins);
		if (p->stop)
			return NULL;
		p->work(p->arg, w->index, p->n_threads);
		atomic_store(&w->done, epoch);
		wake(&w->done, &p->caller_sleeps);
	}
}

static void publish(struct pool *p)
{
	atomic_fetch_add(&p->epoch, 1);
	wake(&p->epoch, &p->sleepers);
}

enum err pool_create(int n_threads, const int *cpus, int n_cpus, struct pool **out)
{
	struct pool *p;
	enum err e;
	TRY(MEM_NEW(1, struct pool, &p));
	p->n_threads = n_threads;
	p->n_started = 1;
	p->spins = MOST_SPINS;
	e = MEM_NEW((size_t)n_threads, struct worker, &p->workers);
	set_float_environment();
	if (n_cpus > 0)
		pin(pthread_self(), cpus[0]);
	for (int i = 1; !e && i < n_threads; i++) {
		struct worker *w = &p->workers[i];
		*w = (struct worker){ .pool = p, .index = i };
		if (pthread_create(&w->thread, NULL, worker_main, w)) {
			e = ERR(WORK, "thread %d of %d could not be started", i, n_threads);
			break;
		}
		p->n_started++;
		if (n_cpus > 0)
			pin(w->thread, cpus[i % n_cpus]);
	}
	if (e) {
		pool_destroy(p);
		return e;
	}
	*out = p;
	return ERR_OK;
}

void pool_run(struct pool *p, pool_work *work, void *arg)
{
	if (p->n_threads == 1) {
		atomic_fetch_add_explicit(&p->epoch, 1, memory_order_relaxed);
		work(arg, 0, 1);
		return;
	}
	p->work = work;
	p->arg = arg;
	publish(p);
	work(arg, 0, p->n_threads);
	unsigned epoch = atomic_load_explicit(&p->epoch, memory_order_relaxed);
	for (int i = 1; i < p->n_threads; i++)
		if (!spin_until(&p->workers[i].done, epoch, &p->spins) && !yield_until(&p->workers[i].done, epoch))
			sleep_until(&p->workers[i].done, epoch, &p->caller_sleeps);
}

/* Takes some of a part's units, from its beginning or its end, and gives their number. What another run has left there counts as
 * none taken. */
static int take_units(_Atomic uint64_t *taken, unsigned epoch, int units, int several, int from_end, int *first)
{
	uint64_t was = atomic_load_explicit(taken, memory_order_relaxed), now;
	for (;;) {
		now = was >> 32 == epoch ? was : (uint64_t)epoch << 32;
		int begin = (int)(now >> 16 & 0xffff), left = units - begin - (int)(now & 0xffff);
		int n = several == 0 ? left : (left + 1) / 2;
		if (left == 0)
			return 0;
		if (several && n > several)
			n = n / several * several;
		*first = from_end ? begin + left - n : begin;
		now += from_end ? (uint64_t)n : (uint64_t)n << 16;
		if (atomic_compare_exchange_weak_explicit(taken, &was, now, memory_order_relaxed, memory_order_relaxed))
			return n;
	}
}

int pool_take(struct pool *p, int64_t n, int64_t unit, int several, int thread, int64_t *begin, int64_t *end)
{
	enum { MOST_UNITS = 0xffff };   /* in a part: what 16 bits count */
	unsigned epoch = atomic_load_explicit(&p->epoch, memory_order_relaxed);
	int owners = several ? p->n_threads : 1;
	while (n / unit / p->n_threads >= MOST_UNITS)
		unit *= 2;
	for (int i = 0, first; i < owners; i++) {
		int owner = (thread + i) % p->n_threads;
		int64_t from, to;
		pool_part(n, unit, owner, p->n_threads, &from, &to);
		int units = (int)((to - from + unit - 1) / unit);
		int taken = take_units(&p->workers[owner].taken, epoch, units, several, i > 0, &first);
		if (taken == 0)
			continue;
		*begin = from + first * unit;
		*end = *begin + taken * unit < to ? *begin + taken * unit : to;
		return 1;
	}
	return 0;
}

int pool_threads(const struct pool *p) { return p->n_threads; }

void pool_destroy(struct pool *p)
{
	if (!p)
		return;
	p->stop = 1;
	publish(p);
	for (int i = 1; i < p->n_started; i++)
		pthread_join(p->workers[i].thread, NULL);
	mem_free(p->workers);
	mem_free(p);
}
