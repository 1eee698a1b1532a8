/* The MPI filling of a communicator.
 *
 * Counts are size_t here and int in MPI: what does not fit goes in chunks, and whether it fits is judged by numbers that
 * all ranks share, so all take the same way. Where a rank may wait long, for the next step or the next message, it polls
 * with a back-off instead of blocking in MPI, which would burn its core; short exchanges between ranks that work side by
 * side block, which is faster. Errors are returned, never fatal. */
#include "parallel/comm_mpi.h"

#include "base/clock.h"
#include "base/mem.h"
#include "parallel/comm_impl.h"

#include <sched.h>
#include <string.h>

/* What goes in one call of MPI; below INT_MAX. A test compiles this file with a small one. */
#ifndef COMM_MPI_CHUNK_BYTES
#define COMM_MPI_CHUNK_BYTES (1 << 30)
#endif

enum { CHUNK_BYTES = COMM_MPI_CHUNK_BYTES, POLLED_BYTES = 1 << 16, EXCHANGE_TAG = 0, FIRST_USER_TAG = 1 };

struct handle {
	MPI_Comm mpi;
	int *counts, *displacements;   /* (size) room, so that a call allocates nothing */
	MPI_Request *requests;         /* (2 * size) */
};

static struct handle *handle_of(const struct comm *c) { return c->impl; }
MPI_Comm comm_mpi_handle(const struct comm *c) { return handle_of(c)->mpi; }

/* --- errors and waiting --- */

enum err comm_mpi_check(int code, const char *comm_name, const char *call)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length, class = MPI_ERR_OTHER;
	if (code == MPI_SUCCESS)
		return ERR_OK;
	MPI_Error_class(code, &class);
	MPI_Error_string(code, text, &length);
	switch (class) {
	case MPI_ERR_TRUNCATE: case MPI_ERR_ARG: case MPI_ERR_COUNT: case MPI_ERR_BUFFER: case MPI_ERR_TAG:
	case MPI_ERR_RANK: case MPI_ERR_COMM: case MPI_ERR_TYPE: case MPI_ERR_OP: case MPI_ERR_ROOT: case MPI_ERR_REQUEST:
		return ERR(WORK, "communicator %s: %s: %s", comm_name, call, text);
	default:
		return ERR(LOST, "communicator %s: %s: %s", comm_name, call, text);
	}
}

#define TRY_MPI(c, call, code) TRY(comm_mpi_check((code), (c)->name, (call)))

/* Waits for a request without holding the core. The status may be MPI_STATUS_IGNORE. */
static int wait_gently(MPI_Request *request, MPI_Status *status)
{
	unsigned round = 0;
	for (;;) {
		int done = 0, code = MPI_Test(request, &done, status);
		if (code != MPI_SUCCESS || done)
			return code;
		clock_wait(&round);
	}
}

static int chunk_at(size_t at, size_t bytes)
{
	size_t left = at < bytes ? bytes - at : 0;
	return (int)(left < CHUNK_BYTES ? left : CHUNK_BYTES);
}

/* --- collectives --- */

static enum err mpi_barrier(struct comm *c)
{
	MPI_Request request;
	TRY_MPI(c, "barrier", MPI_Ibarrier(handle_of(c)->mpi, &request));
	TRY_MPI(c, "barrier", wait_gently(&request, MPI_STATUS_IGNORE));
	return ERR_OK;
}

static enum err mpi_bcast(struct comm *c, void *data, size_t bytes, int root)
{
	MPI_Comm mpi = handle_of(c)->mpi;
	if (bytes <= POLLED_BYTES && bytes <= CHUNK_BYTES) {   /* small ones tell what comes next: the wait may be long */
		MPI_Request request;
		TRY_MPI(c, "bcast", MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, mpi, &request));
		TRY_MPI(c, "bcast", wait_gently(&request, MPI_STATUS_IGNORE));
		return ERR_OK;
	}
	for (size_t at = 0; at < bytes; at += CHUNK_BYTES)
		TRY_MPI(c, "bcast", MPI_Bcast((char *)data + at, chunk_at(at, bytes), MPI_BYTE, root, mpi));
	return ERR_OK;
}

static MPI_Datatype mpi_type(enum comm_type type)
{
	switch (type) {
	case COMM_U8: return MPI_UINT8_T;
	case COMM_I32: return MPI_INT32_T;
	case COMM_U32: return MPI_UINT32_T;
	case COMM_I64: return MPI_INT64_T;
	case COMM_U64: return MPI_UINT64_T;
	case COMM_F32: return MPI_FLOAT;
	}
	return MPI_DATATYPE_NULL;
}

static MPI_Op mpi_op(enum comm_op op) { return op == COMM_SUM ? MPI_SUM : op == COMM_MAX ? MPI_MAX : MPI_MIN; }

static enum err mpi_allreduce(struct comm *c, void *data, size_t n, enum comm_type type, enum comm_op op)
{
	size_t item = comm_type_bytes(type), most = CHUNK_BYTES / item;
	for (size_t at = 0; at < n; at += most) {
		int some = (int)(n - at < most ? n - at : most);
		TRY_MPI(c, "allreduce", MPI_Allreduce(MPI_IN_PLACE, (char *)data + at * item, some, mpi_type(type), mpi_op(op),
						      handle_of(c)->mpi));
	}
	return ERR_OK;
}

/* Fills the handle's counts and displacements (one after the other without offsets); 0 when that is too much for one call,
 * which comes out the same on all ranks. */
static int fill_counts(const struct comm *c, const size_t *counts, const size_t *offsets, size_t item)
{
	const struct handle *h = handle_of(c);
	size_t end = 0;
	for (int r = 0; r < c->size; r++) {
		size_t at = offsets ? offsets[r] : end;
		if (at > CHUNK_BYTES / item || counts[r] > CHUNK_BYTES / item - at)
			return 0;
		h->counts[r] = (int)counts[r];
		h->displacements[r] = (int)at;
		end = at + counts[r];
	}
	return 1;
}

static enum err mpi_allgather(struct comm *c, const void *from, void *to, const size_t *bytes, const size_t *offsets)
{
	struct handle *h = handle_of(c);
	char *own = (char *)to + offsets[c->rank];
	if (bytes[c->rank] && own != from)
		memmove(own, from, bytes[c->rank]);
	if (fill_counts(c, bytes, offsets, 1)) {
		TRY_MPI(c, "allgather", MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, to, h->counts, h->displacements, MPI_BYTE,
						       h->mpi));
		return ERR_OK;
	}
	for (int r = 0; r < c->size; r++)
		TRY(mpi_bcast(c, (char *)to + offsets[r], bytes[r], r));
	return ERR_OK;
}

static enum err reduce_to(struct comm *c, const int64_t *data, int64_t *to, size_t n, int root)
{
	size_t most = CHUNK_BYTES / sizeof *data;
	for (size_t at = 0; at < n; at += most) {
		int some = (int)(n - at < most ? n - at : most);
		TRY_MPI(c, "reduce", MPI_Reduce(data + at, c->rank == root ? to + at : NULL, some, MPI_INT64_T, MPI_SUM, root,
						handle_of(c)->mpi));
	}
	return ERR_OK;
}

static enum err mpi_reduce_scatter(struct comm *c, const int64_t *data, int64_t *to, const size_t *counts)
{
	struct handle *h = handle_of(c);
	if (fill_counts(c, counts, NULL, sizeof *data)) {
		TRY_MPI(c, "reduce_scatter", MPI_Reduce_scatter(data, to, h->counts, MPI_INT64_T, MPI_SUM, h->mpi));
		return ERR_OK;
	}
	for (int r = 0; r < c->size; data += counts[r++])
		TRY(reduce_to(c, data, to, counts[r], r));
	return ERR_OK;
}

/* One chunk to and from every rank. Ranks start with their neighbour, so that not all send to rank 0 first. */
static enum err exchange_chunk(struct comm *c, size_t at, const char *from, const size_t *from_bytes,
			       const size_t *from_offsets, char *to, const size_t *to_bytes, const size_t *to_offsets)
{
	struct handle *h = handle_of(c);
	int n = 0;
	for (int k = 1; k < c->size; k++) {
		int r = (c->rank + c->size - k) % c->size;
		if (at < to_bytes[r])
			TRY_MPI(c, "alltoall", MPI_Irecv(to + to_offsets[r] + at, chunk_at(at, to_bytes[r]), MPI_BYTE, r,
							 EXCHANGE_TAG, h->mpi, &h->requests[n++]));
	}
	for (int k = 1; k < c->size; k++) {
		int r = (c->rank + k) % c->size;
		if (at < from_bytes[r])
			TRY_MPI(c, "alltoall", MPI_Isend(from + from_offsets[r] + at, chunk_at(at, from_bytes[r]), MPI_BYTE, r,
							 EXCHANGE_TAG, h->mpi, &h->requests[n++]));
	}
	TRY_MPI(c, "alltoall", MPI_Waitall(n, h->requests, MPI_STATUSES_IGNORE));
	return ERR_OK;
}

/* Messages instead of MPI_Alltoallv: no rank knows the sizes of all, so none could say whether they fit an int, and with
 * experts many parts are empty: those are not sent at all. */
static enum err mpi_alltoall(struct comm *c, const void *from, const size_t *from_bytes, const size_t *from_offsets,
			     void *to, const size_t *to_bytes, const size_t *to_offsets)
{
	size_t most = 0, own = from_bytes[c->rank];
	for (int r = 0; r < c->size; r++) {
		if (r != c->rank && from_bytes[r] > most)
			most = from_bytes[r];
		if (r != c->rank && to_bytes[r] > most)
			most = to_bytes[r];
	}
	if (own)
		memmove((char *)to + to_offsets[c->rank], (const char *)from + from_offsets[c->rank], own);
	for (size_t at = 0; at < most; at += CHUNK_BYTES)
		TRY(exchange_chunk(c, at, from, from_bytes, from_offsets, to, to_bytes, to_offsets));
	return ERR_OK;
}

/* --- messages --- */

static enum err mpi_send(struct comm *c, int to, int tag, const void *data, size_t bytes)
{
	size_t at = 0;
	do {   /* an empty message is one, too */
		MPI_Request request;
		TRY_MPI(c, "send", MPI_Isend((const char *)data + at, chunk_at(at, bytes), MPI_BYTE, to, FIRST_USER_TAG + tag,
					     handle_of(c)->mpi, &request));
		TRY_MPI(c, "send", wait_gently(&request, MPI_STATUS_IGNORE));
		at += CHUNK_BYTES;
	} while (at < bytes);
	return ERR_OK;
}

static enum err mpi_recv(struct comm *c, int from, int tag, void *data, size_t bytes)
{
	size_t at = 0;
	do {
		MPI_Request request;
		MPI_Status status;
		int got, want = chunk_at(at, bytes);
		TRY_MPI(c, "recv", MPI_Irecv((char *)data + at, want, MPI_BYTE, from, FIRST_USER_TAG + tag, handle_of(c)->mpi,
					     &request));
		TRY_MPI(c, "recv", wait_gently(&request, &status));
		TRY_MPI(c, "recv", MPI_Get_count(&status, MPI_BYTE, &got));
		if (got != want)
			return ERR(BUG, "communicator %s: message: rank %d hands rank %d %d bytes, which expects %d", c->name,
				   from, c->rank, got, want);
		at += CHUNK_BYTES;
	} while (at < bytes);
	return ERR_OK;
}

static enum err mpi_start(struct comm_transfer *t)
{
	_Static_assert(sizeof(MPI_Request) <= sizeof t->impl, "a request must fit into a transfer");
	MPI_Request request;
	if (t->sends)
		TRY_MPI(t->c, "isend", MPI_Isend(t->data, (int)t->bytes, MPI_BYTE, t->peer, FIRST_USER_TAG + t->tag,
						 handle_of(t->c)->mpi, &request));
	else
		TRY_MPI(t->c, "irecv", MPI_Irecv(t->data, (int)t->bytes, MPI_BYTE, t->peer, FIRST_USER_TAG + t->tag,
						 handle_of(t->c)->mpi, &request));
	memcpy(t->impl, &request, sizeof request);
	return ERR_OK;
}

static enum err mpi_test(struct comm_transfer *t, int *done)
{
	MPI_Request request;
	MPI_Status status;
	int got = 0;
	memcpy(&request, t->impl, sizeof request);
	int code = MPI_Test(&request, done, &status);
	memcpy(t->impl, &request, sizeof request);
	TRY_MPI(t->c, "test", code);
	if (!*done || t->sends)
		return ERR_OK;
	TRY_MPI(t->c, "test", MPI_Get_count(&status, MPI_BYTE, &got));
	t->bytes = (size_t)got;
	return ERR_OK;
}

/* --- waiting outside MPI --- */

/* Ranks with a core each spin for about 100 us before they give way, as MPI does for ever: whoever yields to a stranger is not
 * back for milliseconds; and they do not sleep, as they wait for each other only, never for work to come. Meanwhile
 * messages to others must leave, and a lost rank must be heard of, as inside MPI: any call that looks for messages does
 * both, and what it finds is not ours to take. */
static enum err mpi_wait(void *comm, unsigned *round)
{
	enum { SPINS = 20000, PROGRESS_ROUNDS = 32 };
	struct comm *c = comm;
	unsigned spins = comm_mpi_cores_are_short() ? 0 : SPINS;
	int found;
	if (!spins)
		clock_wait(round);
	else if (++*round > spins)
		sched_yield();
	if (*round > spins && *round % PROGRESS_ROUNDS == 0)
		TRY_MPI(c, "progress", MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, handle_of(c)->mpi, &found, MPI_STATUS_IGNORE));
	return ERR_OK;
}

/* --- making and freeing --- */

static void handle_free(struct handle *h)
{
	if (!h)
		return;
	mem_free(h->counts);
	mem_free(h->displacements);
	mem_free(h->requests);
	mem_free(h);
}

static enum err handle_new(int size, struct handle **out)
{
	struct handle *h;
	size_t n = (size_t)size;
	TRY(MEM_NEW(1, struct handle, &h));
	h->mpi = MPI_COMM_NULL;
	enum err e = MEM_NEW(n, int, &h->counts);
	if (!e)
		e = MEM_NEW(n, int, &h->displacements);
	if (!e)
		e = MEM_NEW(2 * n, MPI_Request, &h->requests);
	if (e) {
		handle_free(h);
		return e;
	}
	*out = h;
	return ERR_OK;
}

static void mpi_destroy(struct comm *c)
{
	struct handle *h = handle_of(c);
	int over = 0;
	MPI_Finalized(&over);
	if (h && h->mpi != MPI_COMM_NULL && !over)
		MPI_Comm_free(&h->mpi);
	handle_free(h);
}

static void adopt(struct comm *c, struct handle *h)
{
	MPI_Comm_set_errhandler(h->mpi, MPI_ERRORS_RETURN);
	MPI_Comm_set_name(h->mpi, c->name);
	MPI_Comm_rank(h->mpi, &c->rank);
	MPI_Comm_size(h->mpi, &c->size);
	c->impl = h;
}

static enum err mpi_split(struct comm *c, int colour, int key, struct comm *child)
{
	struct handle *h = NULL;
	enum err e = comm_agree(c, handle_new(c->size, &h));
	if (!e)
		e = comm_mpi_check(MPI_Comm_split(handle_of(c)->mpi, colour, key, &h->mpi), c->name, "split");
	if (e) {
		handle_free(h);
		return e;
	}
	adopt(child, h);
	return ERR_OK;
}

static const struct comm_ops mpi_ops = {
	.name = "mpi",
	.barrier = mpi_barrier,
	.bcast = mpi_bcast,
	.allreduce = mpi_allreduce,
	.allgather = mpi_allgather,
	.reduce_scatter_i64 = mpi_reduce_scatter,
	.alltoall = mpi_alltoall,
	.send = mpi_send,
	.recv = mpi_recv,
	.start = mpi_start,
	.test = mpi_test,
	.split = mpi_split,
	.wait = mpi_wait,
	.destroy = mpi_destroy,
};

enum err comm_mpi_wrap(MPI_Comm mpi, const char *name, struct comm **out)
{
	int size;
	struct comm *c;
	struct handle *h;
	TRY(comm_mpi_check(MPI_Comm_size(mpi, &size), name, "size"));
	TRY(comm_new(&mpi_ops, name, size, &c));
	enum err e = handle_new(size, &h);
	if (e) {
		comm_destroy(c);
		return e;
	}
	h->mpi = mpi;
	adopt(c, h);
	*out = c;
	return ERR_OK;
}
