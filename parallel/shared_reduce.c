#include "parallel/shared_reduce.h"

#include "parallel/comm_items.h"

#include <stdatomic.h>
#include <string.h>

/* Processors fetch lines in pairs: an epoch has two of its own. */
enum { LINE = 64, HEAD_BYTES = 2 * LINE };

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "an epoch in memory of several processes must need no lock");

/* What a rank says of itself. `brings` alternates like the sets of slots, and is published with them. */
struct head {
	_Atomic uint64_t epoch;
	uint64_t brings[2];
};

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

int shared_reduce_fits(size_t slot_bytes, int size) { return slot_bytes / LINE >= (size_t)size; }

size_t shared_reduce_bytes(size_t slot_bytes, int size) { return (size_t)size * (HEAD_BYTES + 2 * slot_bytes); }

void shared_reduce_start(struct shared_reduce *s, void *memory, size_t slot_bytes, int rank, int size, shared_wait *wait,
			 void *arg)
{
	*s = (struct shared_reduce){
		.memory = memory, .slot_bytes = slot_bytes, .rank = rank, .size = size, .wait = wait, .arg = arg,
	};
}

/* The heads of all ranks, then the slots of the even rounds, then those of the odd ones. */
static struct head *head_of(const struct shared_reduce *s, int rank)
{
	return (struct head *)(void *)(s->memory + (size_t)rank * HEAD_BYTES);
}

static unsigned char *slot_of(const struct shared_reduce *s, int rank)
{
	size_t n = (size_t)s->size, place = ((size_t)rank + s->round / 2) % n;
	return s->memory + n * HEAD_BYTES + (s->round % 2 * n + place) * s->slot_bytes;
}

/* --- meeting --- */

static void raise_epoch(struct shared_reduce *s)
{
	atomic_store_explicit(&head_of(s, s->rank)->epoch, ++s->epoch, memory_order_release);
}

static enum err wait_for_all(struct shared_reduce *s)
{
	unsigned round = 0;
	for (int k = 1; k < s->size; k++) {   /* ranks look at different ones first */
		struct head *h = head_of(s, (s->rank + k) % s->size);
		while (atomic_load_explicit(&h->epoch, memory_order_acquire) < s->epoch)
			TRY(s->wait(s->arg, &round));
	}
	return ERR_OK;
}

/* Own slot is filled: shows it and waits for the others'. `brings` is what all must say alike. */
static enum err meet(struct shared_reduce *s, uint64_t brings)
{
	size_t which = s->round & 1;
	head_of(s, s->rank)->brings[which] = brings;
	raise_epoch(s);
	TRY(wait_for_all(s));
	for (int r = 0; r < s->size; r++) {
		uint64_t theirs = head_of(s, r)->brings[which];
		if (theirs != brings)
			return ERR(BUG, "rank %d brings %llu bytes where rank %d brings %llu", r, (unsigned long long)theirs,
				   s->rank, (unsigned long long)brings);
	}
	return ERR_OK;
}

/* --- collectives --- */

enum err shared_meet(struct shared_reduce *s, uint64_t brings)
{
	TRY(meet(s, brings));
	s->round++;   /* a round without slots: what the heads bring alternates too */
	return ERR_OK;
}

/* `to` holds what this rank brings: adds what stands at `at` in the others' slots. */
static void combine_slots(const struct shared_reduce *s, void *to, size_t at, size_t n, enum comm_type type, enum comm_op op)
{
	if (type == COMM_F32) {   /* in the order of ranks */
		memcpy(to, slot_of(s, 0) + at, n * sizeof(float));
		for (int r = 1; r < s->size; r++)
			comm_combine(to, slot_of(s, r) + at, n, type, op);
		return;
	}
	for (int k = 1; k < s->size; k++)
		comm_combine(to, slot_of(s, (s->rank + k) % s->size) + at, n, type, op);
}

/* Everyone's data is in its slot: combines this rank's part of it, then gathers the others'. */
static enum err combine_by_parts(struct shared_reduce *s, unsigned char *data, size_t n, enum comm_type type, enum comm_op op)
{
	size_t item = comm_type_bytes(type), bytes = n * item;
	size_t part = round_up((bytes + (size_t)s->size - 1) / (size_t)s->size, LINE);
	size_t begin = smaller(part * (size_t)s->rank, bytes), end = smaller(begin + part, bytes);
	combine_slots(s, data + begin, begin, (end - begin) / item, type, op);
	memcpy(slot_of(s, s->rank) + begin, data + begin, end - begin);
	raise_epoch(s);
	TRY(wait_for_all(s));
	for (int k = 1; k < s->size; k++) {
		int r = (s->rank + k) % s->size;
		begin = smaller(part * (size_t)r, bytes), end = smaller(begin + part, bytes);
		memcpy(data + begin, slot_of(s, r) + begin, end - begin);
	}
	return ERR_OK;
}

enum err shared_allreduce(struct shared_reduce *s, void *data, size_t n, enum comm_type type, enum comm_op op)
{
	size_t item = comm_type_bytes(type), most = s->slot_bytes / item;
	/* for two ranks parts read no less from the other than all does, and wait once more */
	int by_parts = s->size > 2 && n * item * (size_t)s->size > 2 * s->slot_bytes;
	for (size_t at = 0, some; at < n; at += some, s->round++) {
		unsigned char *here = (unsigned char *)data + at * item;
		some = smaller(n - at, most);
		memcpy(slot_of(s, s->rank), here, some * item);
		TRY(meet(s, (n - at) * item));
		if (by_parts)
			TRY(combine_by_parts(s, here, some, type, op));
		else
			combine_slots(s, here, 0, some, type, op);
	}
	return ERR_OK;
}

enum err shared_allgather(struct shared_reduce *s, const void *from, void *to, const size_t *bytes, const size_t *offsets)
{
	unsigned char *own = (unsigned char *)to + offsets[s->rank];
	size_t most = 0, total = 0, mine = bytes[s->rank];
	for (int r = 0; r < s->size; r++) {
		most = bytes[r] > most ? bytes[r] : most;
		total += bytes[r];
	}
	if (mine && own != from)
		memmove(own, from, mine);
	for (size_t at = 0; at < most; at += s->slot_bytes, s->round++) {
		if (at < mine)
			memcpy(slot_of(s, s->rank), own + at, smaller(mine - at, s->slot_bytes));
		TRY(meet(s, total));
		for (int k = 1; k < s->size; k++) {
			int r = (s->rank + k) % s->size;
			if (at < bytes[r])
				memcpy((unsigned char *)to + offsets[r] + at, slot_of(s, r), smaller(bytes[r] - at, s->slot_bytes));
		}
	}
	return ERR_OK;
}

/* In a round each slot holds the next run of every rank's part. */
enum err shared_reduce_scatter_i64(struct shared_reduce *s, const int64_t *data, int64_t *to, const size_t *counts)
{
	size_t run_bytes = s->slot_bytes / (size_t)s->size / LINE * LINE, run = run_bytes / sizeof *data;
	size_t most = 0, total = 0, mine = counts[s->rank];
	const int64_t *own = data;
	for (int r = 0; r < s->size; r++) {
		most = counts[r] > most ? counts[r] : most;
		total += counts[r];
		own += r < s->rank ? counts[r] : 0;
	}
	for (size_t at = 0; at < most; at += run, s->round++) {
		const int64_t *part = data;
		for (int r = 0; r < s->size; part += counts[r++])
			if (r != s->rank && at < counts[r])
				memcpy(slot_of(s, s->rank) + (size_t)r * run_bytes, part + at,
				       smaller(counts[r] - at, run) * sizeof *data);
		TRY(meet(s, total * sizeof *data));
		if (at < mine) {
			size_t some = smaller(mine - at, run);
			memcpy(to + at, own + at, some * sizeof *to);
			combine_slots(s, to + at, (size_t)s->rank * run_bytes, some, COMM_I64, COMM_SUM);
		}
	}
	return ERR_OK;
}
