/* Collectives of ranks that share memory, made of that memory alone: no MPI, no system calls.
 *
 * Each rank has a part of the memory: a line with its epoch, and two slots. A round goes
 *
 *     copy what I bring into my slot of this round -> raise my epoch -> wait until every epoch is as high
 *     -> read everybody's slots
 *
 * and what is longer than a slot takes several rounds. The slots alternate, epochs only grow and nothing is ever reset.
 *
 * Why two slots are enough: a rank that fills its slot in round k overwrites what it brought in round k - 2. It has left the
 * wait of round k - 1, so every rank has raised its epoch for k - 1, and a rank does that only after it has read all it
 * wants of round k - 2. One slot would not do: a rank may leave the wait of round k - 1, fill again, and so overwrite
 * what a slower one still reads. What is read in round k is what was brought in round k: the owner filled the slot before it
 * raised its epoch (release), the reader saw that epoch (acquire), and by the first half the owner cannot have come to
 * round k + 2. This holds per rank and round, so a call needs no memory of what the last one was, as long as all
 * ranks make the same calls.
 *
 * An all-reduce of little data is one such round, in which every rank adds all slots. With more data and more than two ranks, each
 * rank adds only its part of the chunk, puts that into its slot, where nobody else reads that part, raises its epoch once
 * more, and then all gather the parts: that reads 2 (n - 1) / n of the data from others instead of n - 1 times it. Both
 * combine in the order of ranks, so all ranks get the same bits, also of floats, and the same whichever way was taken.
 *
 * One thread per rank calls these, all ranks the same functions in the same order with the same sizes. */
#ifndef SHARDRUN_PARALLEL_SHARED_REDUCE_H
#define SHARDRUN_PARALLEL_SHARED_REDUCE_H

#include "parallel/comm.h"

/* One round of waiting: may give way to others. *round starts at 0 and is the callee's to count. An error gives up. */
typedef enum err shared_wait(void *arg, unsigned *round);

struct shared_reduce {
	unsigned char *memory;
	size_t part_bytes, slot_bytes;
	int rank, size;
	uint64_t epoch, round;     /* this rank's: how often it has raised its epoch, and which round it is in */
	shared_wait *wait;
	void *arg;
};

/* What each of `size` ranks takes of the memory. A multiple of the page, so that a rank's part can be its own node's. */
size_t shared_reduce_part_bytes(size_t slot_bytes);
/* 1 when slots of this size can serve so many ranks: a slot holds a cache line for each. */
int shared_reduce_fits(size_t slot_bytes, int size);
/* memory: size * shared_reduce_part_bytes(slot_bytes) bytes that every rank sees, page aligned, all zero before the first
 * rank starts. slot_bytes is a multiple of 64. Stays the caller's, for as long as *s is used. */
void shared_reduce_start(struct shared_reduce *s, void *memory, size_t slot_bytes, int rank, int size, shared_wait *wait,
			 void *arg);

/* As comm_allreduce, comm_allgather and comm_reduce_scatter_i64. ERR_BUG when ranks bring different sizes. */
enum err shared_allreduce(struct shared_reduce *s, void *data, size_t n, enum comm_type type, enum comm_op op);
enum err shared_allgather(struct shared_reduce *s, const void *from, void *to, const size_t *bytes, const size_t *offsets);
enum err shared_reduce_scatter_i64(struct shared_reduce *s, const int64_t *data, int64_t *to, const size_t *counts);

#endif
