/* A run is published by raising `epoch`; workers report by raising `done`. Waiting spins, then yields, then sleeps on a
 * condition variable, so that ranks which outnumber the cores do not starve each other. `work`, `arg` and `stop` are
 * written by the caller before epoch rises, and read by workers after it. */
#include "base/pool.h"

#include "base/clock.h"
#include "base/mem.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

struct worker {
	struct pool *pool;
	pthread_t thread;
	int index;
};

struct pool {
	int n_threads;
	int n_started;
	pool_work *work;
	void *arg;
	int stop;
	_Atomic unsigned epoch;
	_Atomic int done;
	_Atomic int sleepers;
	pthread_mutex_t lock;     /* guards sleeping only */
	pthread_cond_t wake;
	struct worker *workers;   /* 1 .. n_threads-1 */
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

static void wait_epoch(struct pool *p, unsigned seen)
{
	enum { ROUNDS = 1000 };
	for (unsigned round = 0; atomic_load_explicit(&p->epoch, memory_order_acquire) == seen;) {
		if (round < ROUNDS) {
			clock_wait(&round);
			continue;
		}
		pthread_mutex_lock(&p->lock);
		atomic_fetch_add(&p->sleepers, 1);
		while (atomic_load(&p->epoch) == seen)
			pthread_cond_wait(&p->wake, &p->lock);
		atomic_fetch_sub(&p->sleepers, 1);
		pthread_mutex_unlock(&p->lock);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	set_float_environment();
	for (unsigned seen = 0;; seen++) {
		wait_epoch(p, seen);
		if (p->stop)
			return NULL;
		p->work(p->arg, w->index, p->n_threads);
		atomic_fetch_add_explicit(&p->done, 1, memory_order_release);
	}
}

static void publish(struct pool *p)
{
	atomic_fetch_add(&p->epoch, 1);
	if (atomic_load(&p->sleepers)) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->wake);
		pthread_mutex_unlock(&p->lock);
	}
}

enum err pool_create(int n_threads, const int *cpus, int n_cpus, struct pool **out)
{
	struct pool *p;
	enum err e;
	TRY(MEM_NEW(1, struct pool, &p));
	p->n_threads = n_threads;
	p->n_started = 1;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
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
		work(arg, 0, 1);
		return;
	}
	p->work = work;
	p->arg = arg;
	atomic_store(&p->done, 0);
	publish(p);
	work(arg, 0, p->n_threads);
	for (unsigned round = 0; atomic_load_explicit(&p->done, memory_order_acquire) < p->n_threads - 1;)
		clock_wait(&round);
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
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	mem_free(p->workers);
	mem_free(p);
}
