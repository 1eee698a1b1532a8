/* labels: unit
 * timeout: 240
 * Collectives through shared memory, with ranks that are threads: thousands of calls back to back, of sizes at and beside the
 * borders of a slot, with ranks that come late at random. Expected values are plain loops over what every rank is known
 * to bring. */
#include "base/clock.h"
#include "base/mem.h"
#include "parallel/comm_items.h"
#include "parallel/shared_reduce.h"
#include "tests/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { SLOT_BYTES = 512, MOST_RANKS = 8, MOST_BYTES = 6 * SLOT_BYTES, CALLS = 600, TYPES = 6, OPS = 3 };

/* A generator that all ranks may start alike. */
static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

struct run {
	void *memory;
	int size;
	atomic_int lost;             /* makes every wait give up */
	atomic_int wrong;
};

struct rank {
	struct run *run;
	int rank;
	pthread_t thread;
	uint32_t delays;             /* state of this rank's own delays */
	struct shared_reduce s;
	unsigned char data[MOST_BYTES + 64], to[MOST_BYTES + 64];
};

/* By now and then late: not at all, a moment, a turn of the others, a sleep. */
static void come_late(struct rank *r)
{
	uint32_t how = next(&r->delays) % 64;
	if (how >= 40 && how < 56)
		for (volatile uint32_t i = next(&r->delays) % 3000; i; i = i - 1)
			;
	else if (how >= 56 && how < 63)
		sched_yield();
	else if (how == 63)
		clock_sleep_us(next(&r->delays) % 100);
}

static enum err wait_in_test(void *arg, unsigned *round)
{
	struct rank *r = arg;
	clock_wait(round);
	return atomic_load(&r->run->lost) ? ERR(LOST, "another rank is gone") : ERR_OK;
}

/* Byte i of what a rank brings to a call; any bytes are good integers. */
static unsigned char byte_of(int rank, int call, size_t i)
{
	return (unsigned char)((rank + 1) * 37 + call * 11 + (int)(i % 4093) * 29 + (int)(i / 8 % 251));
}

/* A float that sums to other bits in another order. */
static float float_of(int rank, int call, size_t i)
{
	uint32_t state = (uint32_t)(rank * 7919 + call * 104729) + (uint32_t)i;
	float f = (float)next(&state) - 8388608.0f;
	return next(&state) % 3 ? f : f * 0x1p-20f;
}

static void bring(void *to, int rank, int call, size_t bytes, int floats)
{
	unsigned char *b = to;
	for (size_t i = 0; i < bytes; i++)
		b[i] = byte_of(rank, call, i);
	for (size_t i = 0; floats && i < bytes / sizeof(float); i++) {
		float f = float_of(rank, call, i);
		memcpy(b + i * sizeof f, &f, sizeof f);
	}
}

/* What `to` must be: rank 0's, then each other rank's added, in order. */
static void expect(void *to, int size, int call, size_t n, enum comm_type type, enum comm_op op)
{
	unsigned char other[MOST_BYTES];
	size_t bytes = n * comm_type_bytes(type);
	bring(to, 0, call, bytes, type == COMM_F32);
	for (int r = 1; r < size; r++) {
		bring(other, r, call, bytes, type == COMM_F32);
		comm_combine(to, other, n, type, op);
	}
}

/* Sizes of all kinds: none, one item, around the borders of slots, any. */
static size_t size_of_call(uint32_t *state, size_t item)
{
	size_t slots = next(state) % 5 * (SLOT_BYTES / item);
	switch (next(state) % 5) {
	case 0: return next(state) % 2;
	case 1: return slots + next(state) % 3;
	case 2: return slots ? slots - 1 : 0;
	default: return next(state) % (MOST_BYTES / item + 1);
	}
}

static int reduces_right(struct rank *r, int call, uint32_t *state)
{
	unsigned char want[MOST_BYTES];
	enum comm_type type = (enum comm_type)(next(state) % TYPES);
	enum comm_op op = (enum comm_op)(next(state) % OPS);
	size_t item = comm_type_bytes(type), n = size_of_call(state, item);
	bring(r->data, r->rank, call, n * item, type == COMM_F32);
	expect(want, r->run->size, call, n, type, op);
	r->data[n * item] = 0xee;
	come_late(r);
	return !shared_allreduce(&r->s, r->data, n, type, op) && !memcmp(r->data, want, n * item) && r->data[n * item] == 0xee;
}

static int gathers_right(struct rank *r, int call, uint32_t *state)
{
	size_t bytes[MOST_RANKS], offsets[MOST_RANKS], at = 3;
	int in_place = next(state) % 2 == 0, right;
	for (int k = 0; k < r->run->size; k++, at += bytes[k - 1] + 1) {
		bytes[k] = next(state) % 4 ? size_of_call(state, 1) / (size_t)r->run->size : 0;
		offsets[k] = at;
	}
	unsigned char *from = in_place ? r->to + offsets[r->rank] : r->data;
	memset(r->to, 0xee, sizeof r->to);
	bring(from, r->rank, call, bytes[r->rank], 0);
	come_late(r);
	right = !shared_allgather(&r->s, from, r->to, bytes, offsets);
	for (int k = 0; k < r->run->size; k++) {
		for (size_t i = 0; i < bytes[k]; i++)
			right &= r->to[offsets[k] + i] == byte_of(k, call, i);
		right &= r->to[offsets[k] - 1] == 0xee && r->to[offsets[k] + bytes[k]] == 0xee;
	}
	return right;
}

static int scatters_right(struct rank *r, int call, uint32_t *state)
{
	int64_t data[MOST_BYTES / 8], want[MOST_BYTES / 8], to[MOST_BYTES / 8 + 1];
	size_t counts[MOST_RANKS] = { 0 }, total = 0, begin = 0;
	for (int k = 0; k < r->run->size; k++) {
		counts[k] = next(state) % 4 ? size_of_call(state, 8) / (size_t)r->run->size : 0;
		begin += k < r->rank ? counts[k] : 0;
		total += counts[k];
	}
	size_t mine = counts[r->rank];
	bring(data, r->rank, call, total * 8, 0);
	expect(want, r->run->size, call, total, COMM_I64, COMM_SUM);
	to[mine] = -77;
	come_late(r);
	return !shared_reduce_scatter_i64(&r->s, data, to, counts) && !memcmp(to, want + begin, mine * 8) && to[mine] == -77;
}

static void *calls(void *arg)
{
	struct rank *r = arg;
	uint32_t state = 1;
	for (int call = 0; call < CALLS && !atomic_load(&r->run->lost); call++) {
		uint32_t what = next(&state) % 4;
		int right = what == 0 ? gathers_right(r, call, &state) : what == 1 ? scatters_right(r, call, &state) :
			    reduces_right(r, call, &state);
		if (!right) {
			if (!atomic_exchange(&r->run->lost, 1))
				fprintf(stderr, "rank %d of %d: call %d of kind %u\n", r->rank, r->run->size, call, what);
			atomic_store(&r->run->wrong, 1);
		}
	}
	return NULL;
}

static struct rank ranks[MOST_RANKS];

/* Runs body in `size` threads that share memory; returns whether anything was wrong. */
static int run_ranks(int size, void *(*body)(void *))
{
	struct run run = { .size = size };
	CHECK_OK(mem_alloc_aligned(shared_reduce_bytes(SLOT_BYTES, size), 64, "shared memory", &run.memory));
	memset(run.memory, 0, shared_reduce_bytes(SLOT_BYTES, size));
	for (int k = 0; k < size; k++) {
		ranks[k] = (struct rank){ .run = &run, .rank = k, .delays = (uint32_t)(size * 100 + k) };
		shared_reduce_start(&ranks[k].s, run.memory, SLOT_BYTES, k, size, wait_in_test, &ranks[k]);
	}
	for (int k = 0; k < size; k++)
		CU_ASSERT_FATAL(!pthread_create(&ranks[k].thread, NULL, body, &ranks[k]));
	for (int k = 0; k < size; k++)
		pthread_join(ranks[k].thread, NULL);
	mem_free_aligned(run.memory);
	return atomic_load(&run.wrong);
}

TEST(calls_of_any_size_back_to_back_are_right_on_2_to_8_ranks)
{
	for (int size = 2; size <= MOST_RANKS; size++)
		CU_ASSERT_FALSE(run_ranks(size, calls));
}

/* Rank 1 never comes. */
static void *one_is_missing(void *arg)
{
	struct rank *r = arg;
	int64_t x = 1;
	if (r->rank == 1) {
		clock_sleep_us(2000);
		atomic_store(&r->run->lost, 1);
		return NULL;
	}
	enum err e = shared_allreduce(&r->s, &x, 1, COMM_I64, COMM_SUM);
	atomic_fetch_or(&r->run->wrong, e != ERR_LOST || strcmp(err_sentence(), "another rank is gone"));
	return NULL;
}

TEST(a_wait_that_gives_up_ends_the_call) { CU_ASSERT_FALSE(run_ranks(3, one_is_missing)); }

/* Rank 1 brings less. */
static void *one_brings_less(void *arg)
{
	struct rank *r = arg;
	int64_t x[2] = { 1, 2 };
	enum err e = shared_allreduce(&r->s, x, r->rank == 1 ? 1 : 2, COMM_I64, COMM_SUM);
	atomic_fetch_or(&r->run->wrong, e != ERR_BUG || !strstr(err_sentence(), "brings 8"));
	return NULL;
}

TEST(sizes_that_differ_are_a_bug_on_every_rank) { CU_ASSERT_FALSE(run_ranks(3, one_brings_less)); }

TEST(a_slot_has_a_line_for_each_rank)
{
	CU_ASSERT(shared_reduce_fits(SLOT_BYTES, 8));
	CU_ASSERT_FALSE(shared_reduce_fits(SLOT_BYTES, 9));
}

TEST_MAIN("shared_reduce", CASE(calls_of_any_size_back_to_back_are_right_on_2_to_8_ranks), CASE(a_wait_that_gives_up_ends_the_call),
	  CASE(sizes_that_differ_are_a_bug_on_every_rank), CASE(a_slot_has_a_line_for_each_rank))
