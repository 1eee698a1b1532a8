/* Collectives of ranks that share memory, made of that memory alone: no MPI, no system calls.
 *
 * The memory holds a line for each rank with its epoch, and two sets of slots, one slot for each rank in a set. A round goes
 *
 *     copy what I bring into my slot of this round -> raise my epoch -> wait until every epoch is as high
 *     -> read everybody's slots
 *
 * and what is longer than a slot takes several rounds. The sets alternate, epochs only grow, nothing is ever reset.
 *
 * Why two sets are enough: who fills a slot in round k overwrites what some rank brought in round k - 2. It has left the wait
 * of round k - 1, so every rank has raised its epoch for k - 1, and a rank does that only after it has read all that it
 * wants of round k - 2. One set would not do: a rank may leave the wait of round k - 1, fill again, and so overwrite what
 * a slower one still reads. What is read in round k is what was brought in round k: its owner filled the slot before it raised
 * its epoch (release), the reader saw that epoch (acquire), and before this reader raises its own again nobody gets as far as
 * round k + 2. This holds round by round, so a call need not know what the last one was, as long as all ranks make the
 * same calls.
 *
 * Within a set the ranks change places every time it is used. The slot that a rank fills is one that it has read two
 * rounds before, so its lines are in this core's cache already, and with two ranks in nobody else's: a line crosses from core to
 * core once a round instead of twice (measured: 8 KiB take 1.3 us instead of 2.0).
 *
 * An all-reduce of little data is one such round, in which every rank adds all slots. With more data and more than two
 * ranks, each rank adds only its part of the chunk, puts that into its slot, where nobody else reads that part, raises its
 * epoch once more, and then all gather the parts: that reads 2 (n - 1) / n of the data from others instead of n - 1
 * times it. Integers may be combined in any order; floats are in the order of ranks, so all ranks get the same bits, and the
 * same whichever way was taken.
 *
 * One thread per rank calls these, all ranks the same functions in the same order with the same sizes. */
#ifndef SHARDRUN_PARALLEL_SHARED_REDUCE_H
#define SHARDRUN_PARALLEL_SHARED_REDUCE_H

#include "parallel/comm.h"

/* One round of waiting: may give way to others. *round starts at 0 and is the callee's to count. An error gives up. */
typedef enum err shared_wait(void *arg, unsigned *round);

struct shared_reduce {
	unsigned char *memory;
	size_t slot_bytes;
	int rank, size;
	uint64_t epoch, round;     /* this rank's: how often it has raised its epoch, and which round it is in */
	shared_wait *wait;
	void *arg;
};

/* 1 when slots of this size can serve so many ranks: a slot holds a cache line for each. */
int shared_reduce_fits(size_t slot_bytes, int size);
/* slot_bytes is a multiple of 64. */
size_t shared_reduce_bytes(size_t slot_bytes, int size);
/* memory: shared_reduce_bytes(slot_bytes, size) bytes that every rank sees, aligned to 64, all zero before the first rank
 * starts; stays the caller's. */
void shared_reduce_start(struct shared_reduce *s, void *memory, size_t slot_bytes, int rank, int size, shared_wait *wait,
			 void *arg);

/* Waits until all ranks have come, and made visible what each has written before; `brings` is what all must say alike. */
enum err shared_meet(struct shared_reduce *s, uint64_t brings);
/* As comm_allreduce, comm_allgather and comm_reduce_scatter_i64. ERR_BUG when ranks bring different sizes. */
enum err shared_allreduce(struct shared_reduce *s, void *data, size_t n, enum comm_type type, enum comm_op op);
enum err shared_allgather(struct shared_reduce *s, const void *from, void *to, const size_t *bytes, const size_t *offsets);
enum err shared_reduce_scatter_i64(struct shared_reduce *s, const int64_t *data, int64_t *to, const size_t *counts);

#endif
