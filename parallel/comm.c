/* What all communicators have in common: checks, counters, communicators of one rank, agreement on failure and the
 * variable-size exchanges made of the plain ones. */
#include "parallel/comm_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "parallel/shared_memory.h"
#include "parallel/shared_reduce.h"

#include <stdio.h>
#include <string.h>

int comm_rank(const struct comm *c) { return c->rank; }
int comm_size(const struct comm *c) { return c->size; }
const char *comm_name(const struct comm *c) { return c->name; }
int comm_node_of(const struct comm *c, int rank) { return rank >= 0 && rank < c->size ? c->node_of[rank] : -1; }
int comm_n_nodes(const struct comm *c) { return c->n_nodes; }
const struct comm_stats *comm_stats(const struct comm *c) { return &c->stats; }
void comm_reset_stats(struct comm *c) { c->stats = (struct comm_stats){ 0, 0, 0 }; }

const char *comm_link(const struct comm *c)
{
	return c->size == 1 ? "self" : c->n_nodes == 1 ? "memory" : "network";
}

enum err comm_new(const struct comm_ops *ops, const char *name, int capacity, struct comm **out)
{
	struct comm *c;
	TRY(MEM_NEW(1, struct comm, &c));
	enum err e = MEM_NEW((size_t)capacity, int, &c->node_of);
	if (e) {
		mem_free(c);
		return e;
	}
	c->ops = ops;
	c->size = 1;
	c->n_nodes = 1;
	snprintf(c->name, sizeof c->name, "%s", name);
	*out = c;
	return ERR_OK;
}

/* What the ranks of one node share beside the filling's own means. */
struct window { struct shared_memory memory; struct shared_reduce reduce; };

static void window_destroy(struct window *w)
{
	if (!w)
		return;
	shared_memory_unmap(&w->memory);
	mem_free(w);
}

void comm_destroy(struct comm *c)
{
	if (!c)
		return;
	window_destroy(c->window);
	c->ops->destroy(c);
	mem_free(c->node_of);
	mem_free(c);
}

/* A call that hands `bytes` to all others. */
static void count_to_all(struct comm *c, size_t bytes)
{
	c->stats.calls++;
	if (c->size == 1)
		return;
	c->stats.bytes += bytes;
	if (c->n_nodes > 1)
		c->stats.bytes_between_nodes += bytes;
}

/* A part of a call that hands `bytes` to one rank; what stays here is not counted. */
static void count_to_one(struct comm *c, int rank, size_t bytes)
{
	if (rank == c->rank)
		return;
	c->stats.bytes += bytes;
	if (c->node_of[rank] != c->node_of[c->rank])
		c->stats.bytes_between_nodes += bytes;
}

static enum err check_rank(const struct comm *c, int rank, const char *what)
{
	if (rank < 0 || rank >= c->size)
		return ERR(BUG, "communicator %s: %s %d is not one of its %d ranks", c->name, what, rank, c->size);
	return ERR_OK;
}

static void keep_own_part(void *to, const void *from, size_t bytes)
{
	if (bytes && to != from)
		memmove(to, from, bytes);
}

static enum err window_result(const struct comm *c, enum err e)
{
	return e == ERR_BUG ? err_context(e, "communicator %s", c->name) : e;
}

enum err comm_barrier(struct comm *c)
{
	count_to_all(c, 0);
	return c->size == 1 ? ERR_OK : c->ops->barrier(c);
}

enum err comm_bcast(struct comm *c, void *data, size_t bytes, int root)
{
	TRY(check_rank(c, root, "root"));
	count_to_all(c, c->rank == root ? bytes : 0);
	return c->size == 1 ? ERR_OK : c->ops->bcast(c, data, bytes, root);
}

enum err comm_allreduce(struct comm *c, void *data, size_t n, enum comm_type type, enum comm_op op)
{
	count_to_all(c, n * comm_type_bytes(type));
	if (c->window)
		return window_result(c, shared_allreduce(&c->window->reduce, data, n, type, op));
	return c->size == 1 ? ERR_OK : c->ops->allreduce(c, data, n, type, op);
}

enum err comm_allgather(struct comm *c, const void *from, void *to, const size_t *bytes, const size_t *offsets)
{
	count_to_all(c, bytes[c->rank]);
	if (c->window)
		return window_result(c, shared_allgather(&c->window->reduce, from, to, bytes, offsets));
	if (c->size > 1)
		return c->ops->allgather(c, from, to, bytes, offsets);
	keep_own_part((char *)to + offsets[0], from, bytes[0]);
	return ERR_OK;
}

static void count_scatter(struct comm *c, const size_t *counts)
{
	c->stats.calls++;
	for (int r = 0; r < c->size; r++)
		count_to_one(c, r, counts[r] * sizeof(int64_t));
}

enum err comm_reduce_scatter_i64(struct comm *c, const int64_t *data, int64_t *to, const size_t *counts)
{
	count_scatter(c, counts);
	if (c->window)
		return window_result(c, shared_reduce_scatter_i64(&c->window->reduce, data, to, counts));
	if (c->size > 1)
		return c->ops->reduce_scatter_i64(c, data, to, counts);
	keep_own_part(to, data, counts[0] * sizeof *data);
	return ERR_OK;
}

enum err comm_alltoall(struct comm *c, const void *from, const size_t *from_bytes, const size_t *from_offsets,
		       void *to, const size_t *to_bytes, const size_t *to_offsets)
{
	c->stats.calls++;
	for (int r = 0; r < c->size; r++)
		count_to_one(c, r, from_bytes[r]);
	if (from_bytes[c->rank] != to_bytes[c->rank])
		return ERR(BUG, "communicator %s: rank %d sends itself %zu bytes and expects %zu", c->name, c->rank,
			   from_bytes[c->rank], to_bytes[c->rank]);
	if (c->size > 1)
		return c->ops->alltoall(c, from, from_bytes, from_offsets, to, to_bytes, to_offsets);
	keep_own_part((char *)to + to_offsets[0], (const char *)from + from_offsets[0], from_bytes[0]);
	return ERR_OK;
}

static enum err check_peer(const struct comm *c, int peer, const char *what)
{
	TRY(check_rank(c, peer, what));
	if (peer == c->rank)
		return ERR(BUG, "communicator %s: rank %d and its %s are the same", c->name, c->rank, what);
	return ERR_OK;
}

enum err comm_send(struct comm *c, int to, int tag, const void *data, size_t bytes)
{
	TRY(check_peer(c, to, "receiver"));
	c->stats.calls++;
	count_to_one(c, to, bytes);
	return c->ops->send(c, to, tag, data, bytes);
}

enum err comm_recv(struct comm *c, int from, int tag, void *data, size_t bytes)
{
	TRY(check_peer(c, from, "sender"));
	c->stats.calls++;
	return c->ops->recv(c, from, tag, data, bytes);
}

static enum err start_transfer(struct comm *c, int peer, int tag, void *data, size_t bytes, int sends, struct comm_transfer *t)
{
	TRY(check_peer(c, peer, sends ? "receiver" : "sender"));
	if (bytes > COMM_TRANSFER_BYTES)
		return ERR(BUG, "communicator %s: a transfer of %zu bytes", c->name, bytes);
	*t = (struct comm_transfer){ .c = c, .peer = peer, .tag = tag, .sends = sends, .data = data, .bytes = bytes };
	c->stats.calls++;
	if (sends)
		count_to_one(c, peer, bytes);
	return c->ops->start(t);
}

enum err comm_isend(struct comm *c, int to, int tag, const void *data, size_t bytes, struct comm_transfer *t)
{
	return start_transfer(c, to, tag, (void *)(uintptr_t)data, bytes, 1, t);
}

enum err comm_irecv(struct comm *c, int from, int tag, void *data, size_t most, struct comm_transfer *t)
{
	return start_transfer(c, from, tag, data, most, 0, t);
}

enum err comm_test(struct comm_transfer *t, int *done)
{
	*done = 0;
	return t->c->ops->test(t, done);
}

enum err comm_complete(struct comm_transfer *t)
{
	unsigned round = 0;
	for (int done = 0;;) {
		TRY(comm_test(t, &done));
		if (done)
			return ERR_OK;
		clock_wait(&round);
	}
}

/* --- nodes --- */

static int count_distinct(const int *values, int n)
{
	int distinct = 0;
	for (int i = 0; i < n; i++) {
		int j = 0;
		while (j < i && values[j] != values[i])
			j++;
		distinct += j == i;
	}
	return distinct;
}

enum err comm_set_nodes(struct comm *c, const int *node_of)
{
	memcpy(c->node_of, node_of, (size_t)c->size * sizeof *node_of);
	c->n_nodes = count_distinct(c->node_of, c->size);
	return ERR_OK;
}

/* --- agreement --- */

/* What travels of an error: struct err_record without its pointer. */
struct carried { int32_t code, rank, line; char sentence[ERR_SENTENCE_BYTES]; };

static enum err bcast_error(struct comm *c, enum err mine, int root)
{
	struct carried carried = { 0 };
	if (c->rank == root) {
		const struct err_record *last = err_last();
		carried.code = (int32_t)mine;
		carried.rank = last->rank;
		carried.line = last->line;
		memcpy(carried.sentence, last->sentence, sizeof carried.sentence);
	}
	TRY(comm_bcast(c, &carried, sizeof carried, root));
	if (c->rank == root)
		return mine;
	enum err code = carried.code > 0 && carried.code < ERR_COUNT ? (enum err)carried.code : ERR_BUG;
	struct err_record record = { .code = code, .rank = carried.rank, .file = "", .line = carried.line };
	memcpy(record.sentence, carried.sentence, sizeof record.sentence);
	err_restore(&record);
	return code;
}

enum err comm_agree(struct comm *c, enum err mine)
{
	struct err_record own = *err_last();
	int32_t first = mine ? c->rank : c->size;
	enum err e = comm_allreduce(c, &first, 1, COMM_I32, COMM_MIN);
	if (!e) {
		if (first == c->size)
			return ERR_OK;
		e = bcast_error(c, mine, first);
		if (e != ERR_LOST || !mine)
			return e;
	}
	if (!mine)
		return e;
	err_restore(&own);   /* the others cannot be asked any more: what happened here says more than that */
	return mine;
}

/* Every rank of the child knows the node it had in the parent; a sum over zeros gathers them without any memory. */
static enum err inherit_nodes(const struct comm *parent, struct comm *child)
{
	child->node_of[child->rank] = parent->node_of[parent->rank];
	if (child->size > 1)
		TRY(child->ops->allreduce(child, child->node_of, (size_t)child->size, COMM_I32, COMM_SUM));
	child->n_nodes = count_distinct(child->node_of, child->size);
	return ERR_OK;
}

enum err comm_split(struct comm *c, int colour, int key, const char *name, struct comm **out)
{
	struct comm *child = NULL;
	struct comm_stats stats = c->stats;
	enum err e = comm_new(c->ops, name, c->size, &child);
	if (!e && colour < 0)
		e = ERR(BUG, "communicator %s: rank %d splits it with colour %d", c->name, c->rank, colour);
	e = comm_agree(c, e);
	if (!e)
		e = c->ops->split(c, colour, key, child);
	if (!e)
		e = inherit_nodes(c, child);
	c->stats = stats;   /* a split is one call that carries no bytes of the caller */
	c->stats.calls++;
	if (e) {
		comm_destroy(child);
		return e;
	}
	*out = child;
	return ERR_OK;
}

/* --- the window --- */

enum { WINDOW_SLOT_BYTES = 1 << 16 };

static enum err window_create(struct comm *c, struct window **out)
{
	size_t bytes = shared_reduce_bytes(WINDOW_SLOT_BYTES, c->size);
	struct window *w = NULL;
	enum err e = comm_agree(c, MEM_NEW(1, struct window, &w));
	if (!e)
		e = shared_memory_map(c, bytes, "(sums of a node's ranks go through it)", &w->memory);
	if (e) {
		window_destroy(w);
		return e;
	}
	shared_reduce_start(&w->reduce, w->memory.at, WINDOW_SLOT_BYTES, c->rank, c->size, c->ops->wait, c);
	*out = w;
	return ERR_OK;
}

int comm_shares_memory(const struct comm *c) { return c->window != NULL; }

enum err comm_meet_scatter_i64(struct comm *c, const size_t *counts)
{
	uint64_t all = 0;
	for (int r = 0; r < c->size; r++)
		all += counts[r];
	count_scatter(c, counts);
	return window_result(c, shared_meet(&c->window->reduce, all));
}

enum err comm_meet_gather(struct comm *c, size_t mine, size_t all)
{
	count_to_all(c, mine);
	return window_result(c, shared_meet(&c->window->reduce, all));
}

enum err comm_share_memory(struct comm *c)
{
	struct comm_stats stats = c->stats;
	if (c->window || c->size == 1 || c->n_nodes > 1 || !c->ops->wait || !shared_reduce_fits(WINDOW_SLOT_BYTES, c->size))
		return ERR_OK;
	enum err e = window_create(c, &c->window);
	c->stats = stats;
	if (!e || e == ERR_LOST)
		return e;
	if (c->rank == 0)
		LOG_RANK(WARN, "communicator %s: no shared memory, its sums go through MPI, which is slower: %s", c->name, err_sentence());
	err_clear();
	return ERR_OK;
}

/* --- byte strings of any size --- */

enum err comm_gather_bytes(struct comm *c, const void *mine, size_t bytes, unsigned char **all, size_t **offsets)
{
	size_t n = (size_t)c->size, total = 0;
	size_t *sizes = NULL, *starts = NULL;
	unsigned char *data = NULL;
	enum err e = MEM_NEW(n, size_t, &sizes);
	if (!e)
		e = MEM_NEW(n + 1, size_t, &starts);
	TRY_OR(free_all, e, comm_agree(c, e));
	sizes[c->rank] = bytes;
	TRY_OR(free_all, e, comm_allreduce(c, sizes, n, COMM_U64, COMM_SUM));
	for (size_t r = 0; r < n; r++) {
		starts[r] = total;
		total += sizes[r];
	}
	starts[n] = total;
	e = mem_alloc(total, 1, "gathered bytes", &data);
	TRY_OR(free_all, e, comm_agree(c, e));
	TRY_OR(free_all, e, comm_allgather(c, mine, data, sizes, starts));
	mem_free(sizes);
	*all = data;
	*offsets = starts;
	return ERR_OK;
free_all:
	mem_free(sizes);
	mem_free(starts);
	mem_free(data);
	return e;
}

enum err comm_bcast_bytes(struct comm *c, void **data, size_t *bytes, int root)
{
	uint64_t size = c->rank == root ? *bytes : 0;
	void *room = NULL;
	TRY(comm_bcast(c, &size, sizeof size, root));
	enum err e = c->rank == root ? ERR_OK : mem_alloc(size, 1, "bytes from the root", &room);
	e = comm_agree(c, e);
	if (!e)
		e = comm_bcast(c, c->rank == root ? *data : room, size, root);
	if (e) {
		mem_free(room);
		return e;
	}
	if (c->rank != root) {
		*data = room;
		*bytes = size;
	}
	return ERR_OK;
}
