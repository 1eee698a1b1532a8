/* Communicators: a table of functions with two fillings, MPI between processes and an in-process one where ranks are
 * threads (for tests, and for one process without mpirun). Every communicator counts its calls and bytes.
 *
 * Every function here is COLLECTIVE over its communicator, send and recv over their two ranks. Functions return ERR_LOST
 * or ERR_WORK when the transport failed; what other ranks then see is not defined, so boundaries use comm_agree.
 * One thread per rank calls these. Waiting yields the core. */
#ifndef SHARDRUN_PARALLEL_COMM_H
#define SHARDRUN_PARALLEL_COMM_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum comm_type { COMM_U8, COMM_I32, COMM_U32, COMM_I64, COMM_U64, COMM_F32 };
enum comm_op { COMM_SUM, COMM_MAX, COMM_MIN };

/* bytes: what this rank handed in to be seen by others (an all-reduce of n items counts n items once, a broadcast counts
 * at the root, send counts at the sender), 0 on a communicator of one rank. bytes_between_nodes: the part of bytes for
 * which some receiver sits on another node. */
struct comm_stats { uint64_t calls, bytes, bytes_between_nodes; };

struct comm;
struct comm_ops;           /* see comm_impl.h */

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
const char *comm_name(const struct comm *c);
int comm_node_of(const struct comm *c, int rank);     /* number of that rank's node, see comm_set_nodes */
int comm_n_nodes(const struct comm *c);               /* distinct nodes among its ranks */
const struct comm_stats *comm_stats(const struct comm *c);
void comm_reset_stats(struct comm *c);
const char *comm_link(const struct comm *c);          /* "self", "memory" (one node), "network" */

enum err comm_barrier(struct comm *c);
enum err comm_bcast(struct comm *c, void *data, size_t bytes, int root);
/* In place, n items. SUM of integers wraps. */
enum err comm_allreduce(struct comm *c, void *data, size_t n, enum comm_type type, enum comm_op op);
/* Part r of `to` (bytes[r] at offsets[r], alike on all ranks) comes from rank r; `from` may be that rank's own part of
 * `to`. */
enum err comm_allgather(struct comm *c, const void *from, void *to, const size_t *bytes, const size_t *offsets);
/* `data` holds sum(counts) items on every rank; rank r gets the sum of its counts[r] items in `to`. */
enum err comm_reduce_scatter_i64(struct comm *c, const int64_t *data, int64_t *to, const size_t *counts);
/* Bytes to and from every rank. */
enum err comm_alltoall(struct comm *c, const void *from, const size_t *from_bytes, const size_t *from_offsets,
		       void *to, const size_t *to_bytes, const size_t *to_offsets);
/* Messages of one sender with one tag (>= 0) arrive in their order. Up to 4 KiB a send goes on at once; a larger one may
 * wait for its receiver. The receiver names the exact size. Nobody sends to itself. */
enum err comm_send(struct comm *c, int to, int tag, const void *data, size_t bytes);
enum err comm_recv(struct comm *c, int from, int tag, void *data, size_t bytes);
/* Messages under way, for a rank that has other things to do meanwhile. The transfer is the caller's memory, in use from isend or
 * irecv until comm_complete has returned or comm_test has said so; until then the sender does not change the data and the receiver
 * does not look at it. A receiver names the most bytes that it has room for; `bytes` of the transfer is then what has come. They
 * match comm_send and comm_recv, and keep their order. At most COMM_TRANSFER_BYTES. A rank that ends with transfers under way ends
 * its job. */
enum { COMM_TRANSFER_BYTES = 1 << 30 };
struct comm_transfer {
	struct comm *c;
	int peer, tag, sends;
	void *data;
	size_t bytes;
	void *impl[8];
};
enum err comm_isend(struct comm *c, int to, int tag, const void *data, size_t bytes, struct comm_transfer *t);
enum err comm_irecv(struct comm *c, int from, int tag, void *data, size_t most, struct comm_transfer *t);
enum err comm_test(struct comm_transfer *t, int *done);
enum err comm_complete(struct comm_transfer *t);      /* waits without holding the core */
/* Ranks of equal colour (>= 0), ordered by key, then by rank in c. The name is copied. *out is the caller's. */
enum err comm_split(struct comm *c, int colour, int key, const char *name, struct comm **out);
void comm_destroy(struct comm *c);                    /* takes NULL */

/* All ranks pass what happened to them (ERR_OK, or the code whose sentence is recorded); all return the error of the lowest
 * failing rank, with its sentence, or ERR_OK. */
enum err comm_agree(struct comm *c, enum err mine);
/* Variable-size gather of byte strings to every rank: *all and offsets (size+1 entries) are the caller's (mem_free). */
enum err comm_gather_bytes(struct comm *c, const void *mine, size_t bytes, unsigned char **all, size_t **offsets);
/* Bytes from root to all; on other ranks *data is allocated and the caller's. */
enum err comm_bcast_bytes(struct comm *c, void **data, size_t *bytes, int root);

/* node_of[size], copied; used for the counters and inherited by splits. */
enum err comm_set_nodes(struct comm *c, const int *node_of);

/* When all ranks are processes of one node: from now on all-reduces, all-gathers and reduce-scatters go through memory that
 * they share (shared_reduce.h), which is up to four times faster than MPI. Takes 128 KiB and 128 bytes of /dev/shm per rank
 * until comm_destroy; where that is not to be had, one line warns and everything goes on over MPI. Results, counters and what a
 * lost rank does to the others are the same either way. Does nothing on other communicators. */
enum err comm_share_memory(struct comm *c);
int comm_shares_memory(const struct comm *c);         /* 1 when that has come true */
/* Where it has: ranks that read each other's data where it lies meet here, and see what was written before. Count like a
 * reduce-scatter of these counts, and like an all-gather of which this rank brings `mine` of `all` bytes. */
enum err comm_meet_scatter_i64(struct comm *c, const size_t *counts);
enum err comm_meet_gather(struct comm *c, size_t mine, size_t all);

/* --- MPI (comm_mpi.c) --- */
/* MPI_Init with what is needed (yield when ranks exceed cores; only what neither environment nor site set), errors
 * returned. Gives the world. Refuses N singletons under srun (ERR_FIT). */
enum err comm_mpi_start(int *argc, char ***argv, struct comm **world);
/* Finds which ranks share a node: MPI_COMM_TYPE_SHARED, confirmed by a probe file in /dev/shm; calls comm_set_nodes. */
enum err comm_mpi_find_nodes(struct comm *world);
/* After a last barrier. */
void comm_mpi_finish(struct comm *world);
/* Ends every rank of the job now, with this exit status. */
void comm_mpi_abort(int status);
int comm_mpi_is_started_by_launcher(void);   /* 1 under mpirun or srun, judged by the environment */
/* What the transport is, for reports: "Open MPI 4.1.4". */
const char *comm_mpi_version(void);

/* --- in process (comm_inproc.c) --- */
/* Runs body(world, arg) in n_ranks threads (rank 0 is the caller's), each with its own rank of one world, which is not the
 * body's to destroy; node_of as in comm_set_nodes or NULL (all on node 0). Returns the error of the lowest rank that failed
 * by itself; a rank that returns early with an error makes the others' calls fail with ERR_LOST instead of hanging. */
enum err comm_inproc_run(int n_ranks, const int *node_of, enum err (*body)(struct comm *world, void *arg), void *arg);

#endif
