/* What crosses the borders between stages. */
#include "runtime/stage.h"

#include <string.h>

/* This rank's part of what crosses a border between stages, in items of x: a byte crosses the network once. */
static struct range border_part(const struct stage *s)
{
	int64_t C = s->m->n_embd;
	struct range own = stage_own_rows(s);
	if (s->is_dealt)
		return (struct range){ own.begin * C, own.end * C };
	return range_part(s->n_rows * C, 1, s->grid->layout.tp, s->grid->me.tp);
}

/* Nobody waits for the next stage: the room is free again when a step has landed that was sent in_flight steps ago. */
enum err stage_send_on(struct stage *s)
{
	struct range part = border_part(s);
	size_t bytes = (size_t)range_size(part) * 4;
	int64_t at = s->n_sent % s->limits.in_flight;
	if (s->n_sent++ >= s->limits.in_flight)
		TRY(comm_complete(&s->sent[at]));
	memcpy(s->out[at], s->x + part.begin, bytes);
	return comm_isend(s->grid->axis[AXIS_PP], s->grid->me.pp + 1, 0, s->out[at], bytes, &s->sent[at]);
}

static enum err expect(struct stage *s)
{
	return comm_irecv(s->grid->axis[AXIS_PP], s->grid->me.pp - 1, 0, s->in[s->n_received % 2], s->border_bytes, &s->coming);
}

enum err stage_open(struct stage *s)
{
	s->n_sent = s->n_received = 0;
	s->n_steps = s->busy_us = s->waiting_us = s->exchange_us = 0;
	return s->shard.first_stage ? ERR_OK : expect(s);
}

/* The receive that was begun for a step that does not come ends with an empty message. */
enum err stage_close(struct stage *s)
{
	s->n_rows = 0;
	if (!s->shard.first_stage)
		TRY(comm_complete(&s->coming));
	if (s->shard.last_stage)
		return ERR_OK;
	TRY(stage_send_on(s));
	for (int64_t i = s->n_sent > s->limits.in_flight ? s->n_sent - s->limits.in_flight : 0; i < s->n_sent; i++)
		TRY(comm_complete(&s->sent[i % s->limits.in_flight]));
	return ERR_OK;
}

enum err stage_gather_x(struct stage *s, int64_t unit)
{
	size_t bytes[LAYOUT_MAX_TP], offsets[LAYOUT_MAX_TP];
	int tp = s->grid->layout.tp;
	int64_t n = s->n_rows * s->m->n_embd;
	if (tp == 1 || n == 0 || s->is_dealt)
		return ERR_OK;
	for (int t = 0; t < tp; t++) {
		struct range r = range_part(n, unit, tp, t);
		bytes[t] = (size_t)range_size(r) * 4;
		offsets[t] = (size_t)r.begin * 4;
	}
	return comm_allgather(s->grid->axis[AXIS_TP], (char *)s->x + offsets[s->grid->me.tp], s->x, bytes, offsets);
}

/* What the stage before has sent; the next step's may come from now on. */
enum err stage_receive(struct stage *s)
{
	struct range part = border_part(s);
	size_t bytes = (size_t)range_size(part) * 4;
	long long began = clock_us();
	TRY(comm_complete(&s->coming));
	stage_waited(s, began);
	if (s->coming.bytes != bytes)
		return ERR(BUG, "%zu bytes come from the stage before, %zu expected", s->coming.bytes, bytes);
	const char *from = s->in[s->n_received++ % 2];
	TRY(expect(s));
	memcpy(s->x + part.begin, from, bytes);
	return stage_gather_x(s, 1);
}
