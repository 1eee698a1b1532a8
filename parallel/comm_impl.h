/* What the fillings of a communicator share with comm.c; nobody else includes this.
 *
 * comm.c checks arguments, counts, and answers everything on communicators of one rank itself. A filling moves bytes:
 * its functions are called with two ranks or more (split and destroy also with one), with ranks in range, and never with
 * a message to oneself. To add a filling: write the table below, and a function that makes its world with comm_new. */
#ifndef SHARDRUN_PARALLEL_COMM_IMPL_H
#define SHARDRUN_PARALLEL_COMM_IMPL_H

#include "parallel/comm.h"
#include "parallel/comm_items.h"

struct comm_ops {
	const char *name;   /* "mpi", "in process" */
	enum err (*barrier)(struct comm *c);
	enum err (*bcast)(struct comm *c, void *data, size_t bytes, int root);
	enum err (*allreduce)(struct comm *c, void *data, size_t n, enum comm_type type, enum comm_op op);
	enum err (*allgather)(struct comm *c, const void *from, void *to, const size_t *bytes, const size_t *offsets);
	enum err (*reduce_scatter_i64)(struct comm *c, const int64_t *data, int64_t *to, const size_t *counts);
	enum err (*alltoall)(struct comm *c, const void *from, const size_t *from_bytes, const size_t *from_offsets,
			     void *to, const size_t *to_bytes, const size_t *to_offsets);
	enum err (*send)(struct comm *c, int to, int tag, const void *data, size_t bytes);
	enum err (*recv)(struct comm *c, int from, int tag, void *data, size_t bytes);
	enum err (*start)(struct comm_transfer *t);               /* sends or receives */
	enum err (*test)(struct comm_transfer *t, int *done);     /* sets bytes of one that receives */
	/* Sets rank, size and impl of `child`, which has room for every rank of c. */
	enum err (*split)(struct comm *c, int colour, int key, struct comm *child);
	/* One round of waiting for a rank of the same node, a shared_wait of shared_reduce.h whose arg is the communicator. NULL:
	 * ranks are threads, and no memory is a shorter way than this filling's. */
	enum err (*wait)(void *comm, unsigned *round);
	void (*destroy)(struct comm *c);   /* what impl holds; impl may be NULL */
};

struct comm {
	const struct comm_ops *ops;
	int rank, size;
	char name[32];
	int *node_of;      /* (size), owned, all 0 until comm_set_nodes */
	int n_nodes;
	struct comm_stats stats;
	void *impl;        /* the filling's */
	struct window *window;   /* comm_share_memory's; NULL: everything goes through the filling */
};

/* A communicator with room for `capacity` ranks; rank, size and impl are for the caller to fill. */
enum err comm_new(const struct comm_ops *ops, const char *name, int capacity, struct comm **out);

#endif
