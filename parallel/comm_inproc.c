/* The in-process communicator: ranks are threads, and a collective is a blackboard.
 *
 * A group is what one communicator is: a slot per rank, a barrier, and a mailbox per pair. A collective goes
 *
 *     post own pointers in own slot -> enter (all have posted) -> copy from or add over the others' slots -> leave
 *
 * and so copies each byte once and allocates nothing. What must hold:
 *   - Between enter and leave a rank only touches memory: no calls that can fail or wait. So once one rank has passed
 *     enter, all reach leave, and leave need not look at failures; nobody returns while another reads its buffer.
 *   - A rank that gives up in enter withdraws its arrival in the same word that counts arrivals, so enter is passed by
 *     all ranks or by none.
 *   - A world has one failure flag for all groups split from it.
 *
 * Messages do as MPI's do: up to EAGER_BYTES they are copied and the sender goes on, larger ones wait for the receiver;
 * tags choose among the messages of one sender, in their order. */
#include "parallel/comm_impl.h"

#include "base/clock.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { EAGER_BYTES = 4096, LINE = 64, BLOCK_BYTES = 4096 };

enum action { DO_BARRIER, DO_BCAST, DO_ALLREDUCE, DO_ALLGATHER, DO_REDUCE_SCATTER, DO_ALLTOALL, DO_SPLIT };
static const char *const action_names[] = {
	"barrier", "bcast", "allreduce", "allgather", "reduce_scatter", "alltoall", "split",
};

struct message {
	struct message *next;
	int tag;
	size_t bytes;
	const void *data;        /* of the sender, or room */
	atomic_int taken;        /* 1: the receiver is done with data */
	unsigned char room[];    /* (EAGER_BYTES) when sent eagerly */
};

struct mailbox {
	pthread_mutex_t lock;    /* guards the lists */
	struct message *first, *unused;
};

struct slot {
	enum action action;
	size_t n;                /* what all must pass alike: bytes, items, the root */
	const void *from;
	const size_t *bytes, *offsets;
	int colour, key, no_room;
	struct group *child;     /* made by the first rank of a colour */
};

struct world {
	atomic_int failed;
	atomic_int *echoed;      /* (n_ranks) 1 once that rank saw another's failure */
};

struct group {
	struct world *world;
	int size;
	atomic_int users;
	_Atomic uint64_t arrivals;   /* generation << 32 | arrived */
	struct slot *slots;      /* (size) */
	struct mailbox *boxes;   /* (size * size), [to * size + from] */
};

/* One rank's view: what comm.impl points at. */
struct seat { struct group *group; int world_rank; };

static struct group *group_of(const struct comm *c) { return ((const struct seat *)c->impl)->group; }

/* --- groups --- */

static void group_free(struct group *g)
{
	size_t n = (size_t)g->size;
	for (size_t i = 0; g->boxes && i < n * n; i++) {
		struct message *lists[] = { g->boxes[i].unused, g->boxes[i].first };
		for (int k = 0; k < 2; k++) {
			for (struct message *m = lists[k], *next; m; m = next) {
				next = m->next;
				mem_free(m);
			}
		}
		pthread_mutex_destroy(&g->boxes[i].lock);
	}
	mem_free(g->boxes);
	mem_free_aligned(g->slots);
	mem_free_aligned(g);
}

static enum err group_new(struct world *world, int size, struct group **out)
{
	struct group *g;
	size_t n = (size_t)size;
	TRY(mem_alloc_aligned(sizeof *g, LINE, "group of ranks", &g));
	memset(g, 0, sizeof *g);
	g->world = world;
	g->size = size;
	atomic_init(&g->users, size);
	atomic_init(&g->arrivals, 0);
	enum err e = mem_alloc_aligned(n * sizeof *g->slots, LINE, "slots of ranks", &g->slots);
	if (!e)
		e = MEM_NEW(n * n, struct mailbox, &g->boxes);
	if (e) {
		group_free(g);
		return e;
	}
	memset(g->slots, 0, n * sizeof *g->slots);
	for (size_t i = 0; i < n * n; i++)
		pthread_mutex_init(&g->boxes[i].lock, NULL);
	*out = g;
	return ERR_OK;
}

static void inproc_destroy(struct comm *c)
{
	if (!c->impl)
		return;
	struct group *g = group_of(c);
	if (atomic_fetch_sub(&g->users, 1) == 1)
		group_free(g);
	mem_free(c->impl);
}

/* --- the barrier --- */

static enum err lost(const struct comm *c)
{
	const struct seat *seat = c->impl;
	atomic_store(&seat->group->world->echoed[seat->world_rank], 1);
	return ERR(LOST, "communicator %s: another rank failed", c->name);
}

static int world_failed(const struct group *g) { return atomic_load(&g->world->failed); }

/* Counts this rank in; returns the generation it waits to end. */
static uint64_t arrive(struct group *g)
{
	uint64_t now = atomic_fetch_add(&g->arrivals, 1);
	if ((now & UINT32_MAX) + 1 == (uint64_t)g->size)
		atomic_store(&g->arrivals, ((now >> 32) + 1) << 32);
	return now >> 32;
}

/* True when this rank could take its arrival back: the generation then cannot end. */
static int withdraw(struct group *g, uint64_t generation)
{
	uint64_t now = atomic_load(&g->arrivals);
	while (now >> 32 == generation && (now & UINT32_MAX) != (uint64_t)g->size)
		if (atomic_compare_exchange_weak(&g->arrivals, &now, now - 1))
			return 1;
	return 0;
}

static enum err enter(struct comm *c)
{
	struct group *g = group_of(c);
	unsigned round = 0;
	if (world_failed(g))
		return lost(c);
	uint64_t generation = arrive(g);
	while (atomic_load(&g->arrivals) >> 32 == generation) {
		if (world_failed(g) && withdraw(g, generation))
			return lost(c);
		clock_wait(&round);
	}
	return ERR_OK;
}

static void leave(struct comm *c)
{
	struct group *g = group_of(c);
	unsigned round = 0;
	uint64_t generation = arrive(g);
	while (atomic_load(&g->arrivals) >> 32 == generation)
		clock_wait(&round);
}

/* Posts what this rank brings and waits for all. Ranks that call different things, or with a different n, all see it. */
static enum err meet(struct comm *c, struct slot mine)
{
	struct slot *slots = group_of(c)->slots;
	slots[c->rank] = mine;
	TRY(enter(c));
	for (int r = 0; r < c->size; r++) {
		if (slots[r].action == slots[0].action && slots[r].n == slots[0].n)
			continue;
		struct slot first = slots[0], other = slots[r];
		leave(c);
		return ERR(BUG, "communicator %s: rank 0 calls %s of %zu while rank %d calls %s of %zu", c->name,
			   action_names[first.action], first.n, r, action_names[other.action], other.n);
	}
	return ERR_OK;
}

static enum err mismatch(struct comm *c, const char *what, int from, size_t sent, size_t expected)
{
	return ERR(BUG, "communicator %s: %s: rank %d hands rank %d %zu bytes, which expects %zu", c->name, what, from,
		   c->rank, sent, expected);
}

/* --- collectives --- */

static void copy(void *to, const void *from, size_t bytes)
{
	if (bytes && to != from)
		memcpy(to, from, bytes);
}

static enum err inproc_barrier(struct comm *c)
{
	TRY(meet(c, (struct slot){ .action = DO_BARRIER }));
	leave(c);
	return ERR_OK;
}

static enum err inproc_bcast(struct comm *c, void *data, size_t bytes, int root)
{
	TRY(meet(c, (struct slot){ .action = DO_BCAST, .n = bytes, .from = data }));
	if (c->rank != root)
		copy(data, group_of(c)->slots[root].from, bytes);
	leave(c);
	return ERR_OK;
}

#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

/* Rank r combines the r-th part of everybody's data, in rank order, and writes it back to everybody: no two ranks touch
 * the same bytes, so this works in place. */
static enum err inproc_allreduce(struct comm *c, void *data, size_t n, enum comm_type type, enum comm_op op)
{
	const struct slot *slots = group_of(c)->slots;
	size_t item = comm_type_bytes(type), block_items = BLOCK_BYTES / item;
	_Alignas(LINE) unsigned char sum[BLOCK_BYTES];
	TRY(meet(c, (struct slot){ .action = DO_ALLREDUCE, .n = n * item, .from = data }));
	size_t per_rank = (n + (size_t)c->size - 1) / (size_t)c->size;
	size_t begin = SMALLER(per_rank * (size_t)c->rank, n), end = SMALLER(begin + per_rank, n);
	for (size_t at = begin, some; at < end; at += some) {
		some = SMALLER(end - at, block_items);
		memcpy(sum, (const char *)slots[0].from + at * item, some * item);
		for (int r = 1; r < c->size; r++)
			comm_combine(sum, (const char *)slots[r].from + at * item, some, type, op);
		for (int r = 0; r < c->size; r++)   /* everyone's data is writable: it is in place */
			memcpy((char *)slots[r].from + at * item, sum, some * item);
	}
	leave(c);
	return ERR_OK;
}

static enum err inproc_allgather(struct comm *c, const void *from, void *to, const size_t *bytes, const size_t *offsets)
{
	const struct slot *slots = group_of(c)->slots;
	enum err e = ERR_OK;
	TRY(meet(c, (struct slot){ .action = DO_ALLGATHER, .from = from, .bytes = bytes }));
	for (int r = 0; r < c->size; r++) {
		if (slots[r].bytes[r] != bytes[r])
			e = mismatch(c, "allgather", r, slots[r].bytes[r], bytes[r]);
		else
			copy((char *)to + offsets[r], slots[r].from, bytes[r]);
	}
	leave(c);
	return e;
}

static enum err inproc_reduce_scatter(struct comm *c, const int64_t *data, int64_t *to, const size_t *counts)
{
	const struct slot *slots = group_of(c)->slots;
	size_t begin = 0, total = 0, n = counts[c->rank];
	for (int r = 0; r < c->size; r++) {
		if (r < c->rank)
			begin += counts[r];
		total += counts[r];
	}
	enum { BLOCK = BLOCK_BYTES / sizeof(int64_t) };
	int64_t sum[BLOCK];
	TRY(meet(c, (struct slot){ .action = DO_REDUCE_SCATTER, .n = total, .from = data }));
	for (size_t at = 0, some; at < n; at += some) {
		some = SMALLER(n - at, (size_t)BLOCK);
		memset(sum, 0, sizeof sum);
		for (int r = 0; r < c->size; r++)
			comm_combine(sum, (const int64_t *)slots[r].from + begin + at, some, COMM_I64, COMM_SUM);
		memcpy(to + at, sum, some * sizeof *sum);
	}
	leave(c);
	return ERR_OK;
}

static enum err inproc_alltoall(struct comm *c, const void *from, const size_t *from_bytes, const size_t *from_offsets,
				void *to, const size_t *to_bytes, const size_t *to_offsets)
{
	const struct slot *slots = group_of(c)->slots;
	enum err e = ERR_OK;
	struct slot mine = { .action = DO_ALLTOALL, .from = from, .bytes = from_bytes, .offsets = from_offsets };
	TRY(meet(c, mine));
	for (int r = 0; r < c->size; r++) {
		size_t bytes = slots[r].bytes[c->rank];
		if (bytes != to_bytes[r])
			e = mismatch(c, "alltoall", r, bytes, to_bytes[r]);
		else
			copy((char *)to + to_offsets[r], (const char *)slots[r].from + slots[r].offsets[c->rank], bytes);
	}
	leave(c);
	return e;
}

/* --- messages --- */

static struct mailbox *box_of(struct comm *c, int from, int to)
{
	struct group *g = group_of(c);
	return &g->boxes[(size_t)to * (size_t)g->size + (size_t)from];
}

static void append(struct mailbox *box, struct message *m)
{
	struct message **end = &box->first;
	while (*end)
		end = &(*end)->next;
	m->next = NULL;
	*end = m;
}

/* Takes m out of the list; 0 when it is not there any more. */
static int unlink_message(struct mailbox *box, const struct message *m)
{
	for (struct message **at = &box->first; *at; at = &(*at)->next) {
		if (*at == m) {
			*at = m->next;
			return 1;
		}
	}
	return 0;
}

static enum err send_eager(struct mailbox *box, int tag, const void *data, size_t bytes)
{
	pthread_mutex_lock(&box->lock);
	struct message *m = box->unused;
	if (m)
		box->unused = m->next;
	pthread_mutex_unlock(&box->lock);
	if (!m)
		TRY(mem_alloc(1, sizeof *m + EAGER_BYTES, "message", &m));
	copy(m->room, data, bytes);
	m->tag = tag;
	m->bytes = bytes;
	m->data = m->room;
	pthread_mutex_lock(&box->lock);
	append(box, m);
	pthread_mutex_unlock(&box->lock);
	return ERR_OK;
}

static enum err inproc_send(struct comm *c, int to, int tag, const void *data, size_t bytes)
{
	struct mailbox *box = box_of(c, c->rank, to);
	unsigned round = 0;
	if (world_failed(group_of(c)))
		return lost(c);
	if (bytes <= EAGER_BYTES)
		return send_eager(box, tag, data, bytes);
	struct message m = { .tag = tag, .bytes = bytes, .data = data };
	pthread_mutex_lock(&box->lock);
	append(box, &m);
	pthread_mutex_unlock(&box->lock);
	while (!atomic_load(&m.taken)) {
		if (world_failed(group_of(c))) {
			pthread_mutex_lock(&box->lock);
			int withdrawn = unlink_message(box, &m);
			pthread_mutex_unlock(&box->lock);
			if (withdrawn)
				return lost(c);
		}
		clock_wait(&round);
	}
	return ERR_OK;
}

static struct message *take(struct mailbox *box, int tag)
{
	pthread_mutex_lock(&box->lock);
	struct message *m = box->first;
	while (m && m->tag != tag)
		m = m->next;
	if (m)
		unlink_message(box, m);
	pthread_mutex_unlock(&box->lock);
	return m;
}

/* Copies at most `room` bytes of a message that was taken, and gives it back; how many there were. */
static size_t empty(struct mailbox *box, struct message *m, void *data, size_t room)
{
	size_t sent = m->bytes;
	if (sent <= room)
		copy(data, m->data, sent);
	if (m->data == m->room) {
		pthread_mutex_lock(&box->lock);
		m->next = box->unused;
		box->unused = m;
		pthread_mutex_unlock(&box->lock);
	} else {
		atomic_store(&m->taken, 1);   /* m is gone from here on */
	}
	return sent;
}

static enum err inproc_recv(struct comm *c, int from, int tag, void *data, size_t bytes)
{
	struct mailbox *box = box_of(c, from, c->rank);
	struct message *m;
	unsigned round = 0;
	while (!(m = take(box, tag))) {
		if (world_failed(group_of(c)))
			return lost(c);
		clock_wait(&round);
	}
	size_t sent = empty(box, m, data, bytes);
	return sent == bytes ? ERR_OK : mismatch(c, "message", from, sent, bytes);
}

/* A message that is sent lies in the transfer itself. One that is received is looked for when the receiver asks. */
static enum err inproc_start(struct comm_transfer *t)
{
	_Static_assert(sizeof(struct message) <= sizeof t->impl, "a message must fit into a transfer");
	struct message *m = (void *)t->impl;
	if (world_failed(group_of(t->c)))
		return lost(t->c);
	if (!t->sends)
		return ERR_OK;
	struct mailbox *box = box_of(t->c, t->c->rank, t->peer);
	if (t->bytes <= EAGER_BYTES) {
		atomic_store(&m->taken, 1);
		return send_eager(box, t->tag, t->data, t->bytes);
	}
	*m = (struct message){ .tag = t->tag, .bytes = t->bytes, .data = t->data };
	pthread_mutex_lock(&box->lock);
	append(box, m);
	pthread_mutex_unlock(&box->lock);
	return ERR_OK;
}

static enum err inproc_test(struct comm_transfer *t, int *done)
{
	struct mailbox *box = t->sends ? box_of(t->c, t->c->rank, t->peer) : box_of(t->c, t->peer, t->c->rank);
	struct message *m = (void *)t->impl;
	if (t->sends && atomic_load(&m->taken)) {
		*done = 1;
		return ERR_OK;
	}
	if (!t->sends && (m = take(box, t->tag))) {
		size_t sent = empty(box, m, t->data, t->bytes);
		if (sent > t->bytes)
			return mismatch(t->c, "message", t->peer, sent, t->bytes);
		t->bytes = sent;
		*done = 1;
		return ERR_OK;
	}
	if (!world_failed(group_of(t->c)))
		return ERR_OK;
	pthread_mutex_lock(&box->lock);
	int taken = t->sends && !unlink_message(box, m);
	pthread_mutex_unlock(&box->lock);
	if (!taken)
		return lost(t->c);
	return ERR_OK;    /* its receiver has it in hand */
}

/* --- split --- */

/* Rank's place in its colour, and how many there are. */
static int place_in_colour(const struct slot *slots, int n, int rank, int *size)
{
	int place = 0;
	*size = 0;
	for (int r = 0; r < n; r++) {
		if (slots[r].colour != slots[rank].colour)
			continue;
		++*size;
		place += slots[r].key < slots[rank].key || (slots[r].key == slots[rank].key && r < rank);
	}
	return place;
}

static struct group *group_of_colour(const struct slot *slots, int n, int colour)
{
	for (int r = 0; r < n; r++)
		if (slots[r].colour == colour && slots[r].child)
			return slots[r].child;
	return NULL;
}

/* What went wrong anywhere, so that all ranks fail alike. */
static int split_failed(const struct slot *slots, int n)
{
	for (int r = 0; r < n; r++)
		if (slots[r].no_room || !group_of_colour(slots, n, slots[r].colour))
			return 1;
	return 0;
}

static enum err inproc_split(struct comm *c, int colour, int key, struct comm *child)
{
	const struct seat *mine = c->impl;
	struct slot *slots = mine->group->slots;
	struct seat *seat = NULL;
	struct group *made = NULL;
	int no_room = MEM_NEW(1, struct seat, &seat) != ERR_OK, size;
	enum err e = meet(c, (struct slot){ .action = DO_SPLIT, .colour = colour, .key = key, .no_room = no_room });
	if (e) {
		mem_free(seat);
		return e;
	}
	int place = place_in_colour(slots, c->size, c->rank, &size);
	if (place == 0 && group_new(mine->group->world, size, &made) == ERR_OK)
		slots[c->rank].child = made;
	leave(c);   /* all groups are made; the slots stay as they are until all have left once more */
	struct group *group = group_of_colour(slots, c->size, colour);
	int failed = split_failed(slots, c->size);
	leave(c);
	if (failed) {
		if (made)
			group_free(made);
		mem_free(seat);
		return ERR(MEMORY, "communicator %s: no memory to split it", c->name);
	}
	*seat = (struct seat){ group, mine->world_rank };
	child->impl = seat;
	child->rank = place;
	child->size = size;
	return ERR_OK;
}

static const struct comm_ops inproc_ops = {
	.name = "in process",
	.barrier = inproc_barrier,
	.bcast = inproc_bcast,
	.allreduce = inproc_allreduce,
	.allgather = inproc_allgather,
	.reduce_scatter_i64 = inproc_reduce_scatter,
	.alltoall = inproc_alltoall,
	.send = inproc_send,
	.recv = inproc_recv,
	.start = inproc_start,
	.test = inproc_test,
	.split = inproc_split,
	.destroy = inproc_destroy,
};

/* --- running a world --- */

typedef enum err rank_body(struct comm *world, void *arg);

/* One rank and what became of it. */
struct rank_thread {
	struct world *world;
	struct comm *comm;
	int rank;
	rank_body *body;
	void *arg;
	pthread_t thread;
	int started;
	struct err_record record;   /* code ERR_OK when the body returned that */
};

static void *run_rank(void *arg)
{
	struct rank_thread *t = arg;
	err_set_rank(t->rank);
	err_clear();
	enum err e = t->body(t->comm, t->arg);
	if (e) {
		t->record = *err_last();
		t->record.code = e;
		atomic_store(&t->world->failed, 1);
	}
	return NULL;
}

/* The error of the lowest failing rank that did not just see another one fail. */
static enum err result_of(const struct world *world, const struct rank_thread *ranks, int n)
{
	for (int echoes = 0; echoes < 2; echoes++) {
		for (int r = 0; r < n; r++) {
			enum err e = ranks[r].record.code;
			int echo = e == ERR_LOST && atomic_load(&world->echoed[r]);
			if (e && (!echo || echoes)) {
				err_restore(&ranks[r].record);
				return e;
			}
		}
	}
	return ERR_OK;
}

static enum err make_world_comm(struct group *g, int rank, const int *node_of, struct comm **out)
{
	struct comm *c;
	TRY(comm_new(&inproc_ops, "world", g->size, &c));
	enum err e = MEM_NEW(1, struct seat, &c->impl);
	if (e) {
		comm_destroy(c);
		return e;
	}
	*(struct seat *)c->impl = (struct seat){ g, rank };
	c->rank = rank;
	c->size = g->size;
	*out = c;
	return node_of ? comm_set_nodes(c, node_of) : ERR_OK;
}

static enum err start_ranks(struct rank_thread *ranks, int n, struct world *world)
{
	enum err e = ERR_OK;
	for (int r = 1; r < n && !e; r++) {
		int failed = pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
		ranks[r].started = !failed;
		if (failed)
			e = ERR(WORK, "no thread for rank %d of %d: %s", r, n, strerror(failed));
	}
	if (e)
		atomic_store(&world->failed, 1);
	else
		run_rank(&ranks[0]);   /* rank 0 is the caller's thread */
	for (int r = 1; r < n; r++)
		if (ranks[r].started)
			pthread_join(ranks[r].thread, NULL);
	return e;
}

enum err comm_inproc_run(int n_ranks, const int *node_of, rank_body *body, void *arg)
{
	struct world world = { 0 };
	struct group *group = NULL;
	struct rank_thread *ranks = NULL;
	int made = 0;
	if (n_ranks < 1)
		return ERR(BUG, "a world of %d ranks", n_ranks);
	size_t n = (size_t)n_ranks;
	enum err e;
	TRY_OR(free_world, e, MEM_NEW(n, atomic_int, &world.echoed));
	TRY_OR(free_world, e, MEM_NEW(n, struct rank_thread, &ranks));
	TRY_OR(free_world, e, group_new(&world, n_ranks, &group));
	for (; made < n_ranks; made++) {
		struct rank_thread *t = &ranks[made];
		*t = (struct rank_thread){ .world = &world, .rank = made, .body = body, .arg = arg };
		TRY_OR(free_world, e, make_world_comm(group, made, node_of, &t->comm));
	}
	TRY_OR(free_world, e, start_ranks(ranks, n_ranks, &world));
	e = result_of(&world, ranks, n_ranks);
free_world:
	for (int r = 0; r < made; r++)
		comm_destroy(ranks[r].comm);
	if (group && made < n_ranks)
		group_free(group);
	mem_free(ranks);
	mem_free(world.echoed);
	return e;
}
