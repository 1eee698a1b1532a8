#include "runtime/trace.h"

#include "base/mem.h"

enum { PINGS = 16, TAG_PING = 1, TAG_TRACE = 2, AT_ONCE = 1024,      /* spans in a message */
       MOST_SPANS = 1 << 20, MOST_SPANS_OF_RANK = 1 << 16 };

const char *const trace_names[TRACE_WHAT_COUNT] = {
	[TRACE_DECIDE] = "decide", [TRACE_RESULTS] = "results", [TRACE_WAIT_STEP] = "wait for step", [TRACE_STEP] = "step",
	[TRACE_EMBED] = "embed", [TRACE_WAIT_ROWS] = "wait for rows", [TRACE_LAYERS] = "layers", [TRACE_SEND] = "send rows",
	[TRACE_SAMPLE] = "sample"
};

int64_t trace_usual_spans(int n_ranks)
{
	return n_ranks <= MOST_SPANS / MOST_SPANS_OF_RANK ? MOST_SPANS_OF_RANK : MOST_SPANS / n_ranks + 1;
}

/* --- recording --- */

void trace_put(struct trace *t, enum trace_what what, long long began_us, const struct trace_span *step)
{
	if (!t || !t->capacity)
		return;
	struct trace_span *span = &t->spans[t->n_seen++ % t->capacity];
	*span = *step;
	span->what = (int16_t)what;
	span->begin_us = began_us;
	span->us = (int32_t)(clock_us() - began_us);
	if (what != TRACE_STEP)
		span->exchange_us = 0;
}

struct trace_span trace_step(const struct step *step, int64_t number, int lane, int replica)
{
	struct trace_span s = { .step = (int32_t)number, .lane = (int16_t)lane };
	for (int32_t i = 0; i < step->n_slices; i++)
		if (replica < 0 || step->slices[i].replica == replica) {
			s.tokens += step->slices[i].n_tokens;
			s.slices++;
		}
	return s;
}

/* --- clocks --- */

int64_t trace_clock_offset(const struct clock_ping *pings, int n)
{
	const struct clock_ping *best = pings;
	for (int i = 1; i < n; i++)
		if (pings[i].received_us - pings[i].sent_us < best->received_us - best->sent_us)
			best = &pings[i];
	return best->theirs_us - (best->sent_us + (best->received_us - best->sent_us) / 2);
}

/* Between the head and another rank, which learns how far its clock is ahead. */
static enum err ping(struct comm *world, int rank, int64_t *offset_us)
{
	struct clock_ping pings[PINGS];
	int64_t said = 0;
	for (int i = 0; i < PINGS; i++) {
		if (comm_rank(world) == 0) {
			TRY(comm_recv(world, rank, TAG_PING, &said, sizeof said));
			said = clock_us();
			TRY(comm_send(world, rank, TAG_PING, &said, sizeof said));
			continue;
		}
		pings[i].sent_us = clock_us();
		TRY(comm_send(world, 0, TAG_PING, &said, sizeof said));
		TRY(comm_recv(world, 0, TAG_PING, &said, sizeof said));
		pings[i].theirs_us = said;
		pings[i].received_us = clock_us();
	}
	if (comm_rank(world) == rank)
		*offset_us = -trace_clock_offset(pings, PINGS);
	return ERR_OK;
}

/* The lowest rank on a rank's node. */
static int first_of_node(struct comm *world, int rank)
{
	int first = 0;
	while (comm_node_of(world, first) != comm_node_of(world, rank))
		first++;
	return first;
}

static enum err align(struct comm *world, int64_t *offset_us)
{
	int me = comm_rank(world);
	int64_t *all = NULL, mine = 0;
	size_t *offsets = NULL;
	for (int r = 1; r < comm_size(world); r++)
		if (first_of_node(world, r) == r && (me == 0 || me == r))
			TRY(ping(world, r, &mine));
	TRY(comm_gather_bytes(world, &mine, sizeof mine, (unsigned char **)&all, &offsets));
	*offset_us = all[first_of_node(world, me)];
	mem_free(all);
	mem_free(offsets);
	return ERR_OK;
}

enum err trace_create(struct comm *world, int64_t n_spans, struct trace **out)
{
	struct trace *t = NULL;
	int64_t began_us;
	enum err e = MEM_NEW(1, struct trace, &t);
	if (!e)
		e = MEM_NEW((size_t)n_spans, struct trace_span, &t->spans);
	TRY_OR(destroy, e, comm_agree(world, e));
	t->capacity = n_spans;
	TRY_OR(destroy, e, align(world, &t->offset_us));
	began_us = clock_us();
	TRY_OR(destroy, e, comm_bcast(world, &began_us, sizeof began_us, 0));
	timeline_begin(&t->timeline, began_us + t->offset_us);
	*out = t;
	return ERR_OK;
destroy:
	trace_destroy(t);
	return e;
}

void trace_destroy(struct trace *t)
{
	if (!t)
		return;
	mem_free(t->spans);
	mem_free(t);
}

/* --- gathering --- */

/* Spans from number `at` of those that are kept, by the head's clock; gives how many. */
static int64_t copy_spans(const struct trace *t, int64_t at, int64_t n_spans, struct trace_span *to)
{
	int64_t first = t->n_seen - n_spans, n = n_spans - at < AT_ONCE ? n_spans - at : AT_ONCE;
	for (int64_t i = 0; i < n; i++) {
		to[i] = t->spans[(first + at + i) % t->capacity];
		to[i].begin_us -= t->offset_us;
	}
	return n;
}

static enum err send_spans(const struct trace *t, struct comm *world, int64_t n_spans, struct trace_span *room)
{
	for (int64_t at = 0, n; at < n_spans; at += n) {
		n = copy_spans(t, at, n_spans, room);
		TRY(comm_send(world, 0, TAG_TRACE, room, (size_t)n * sizeof *room));
	}
	return ERR_OK;
}

/* What the taker says goes to *taken; the others' messages are received all the same. */
static enum err take_spans(const struct trace *t, struct comm *world, int rank, int64_t n_spans, struct trace_span *room,
			   const struct trace_taker *taker, enum err *taken)
{
	for (int64_t at = 0, n; at < n_spans; at += n) {
		n = n_spans - at < AT_ONCE ? n_spans - at : AT_ONCE;
		if (rank == 0)
			copy_spans(t, at, n_spans, room);
		else
			TRY(comm_recv(world, rank, TAG_TRACE, room, (size_t)n * sizeof *room));
		if (!*taken)
			*taken = taker->take(taker->arg, rank, room, n);
	}
	return ERR_OK;
}

static enum err take_all(const struct trace *t, struct comm *world, const struct trace_rank *mine, struct trace_rank *ranks,
			 struct trace_span *room, const struct trace_taker *taker)
{
	enum err taken = ERR_OK;
	for (int r = 0; r < comm_size(world); r++) {
		if (r == 0)
			ranks[r] = *mine;
		else
			TRY(comm_recv(world, r, TAG_TRACE, &ranks[r], sizeof ranks[r]));
		TRY(take_spans(t, world, r, ranks[r].n_spans, room, taker, &taken));
	}
	return taken;
}

enum err trace_gather(const struct trace *t, struct comm *world, struct trace_rank *mine, struct trace_rank *ranks,
		      const struct trace_taker *taker)
{
	struct trace_span *room = NULL;
	int32_t with_spans = taker && taker->take;
	enum err e = MEM_NEW(AT_ONCE, struct trace_span, &room);
	TRY_OR(free_room, e, comm_agree(world, e));
	TRY_OR(free_room, e, comm_bcast(world, &with_spans, sizeof with_spans, 0));
	mine->timeline = t->timeline;
	mine->timeline.began_us -= t->offset_us;
	mine->offset_us = t->offset_us;
	mine->n_spans = !with_spans ? 0 : t->n_seen < t->capacity ? t->n_seen : t->capacity;
	mine->n_dropped = with_spans ? t->n_seen - mine->n_spans : 0;
	if (comm_rank(world) == 0) {
		e = take_all(t, world, mine, ranks, room, taker);
	} else {
		e = comm_send(world, 0, TAG_TRACE, mine, sizeof *mine);
		if (!e)
			e = send_spans(t, world, mine->n_spans, room);
	}
free_room:
	mem_free(room);
	return e;
}
