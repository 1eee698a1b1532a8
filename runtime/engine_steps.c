/* Steps and results as they travel.
 *
 * A lane is the replicas that step together. The head sends each step to the leaders (tp rank 0) of the lane's first stages; every
 * leader passes it on to the next stage's, and to its tp ranks. The leaders of the last stages send results to the head, for
 * every step, as that is how it knows that one has landed. Messages from one rank to another keep their order, and the steps of a
 * lane land in the order in which they were decided, so a slot of a ring is free again when the head uses it again. */
#include "runtime/engine_impl.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum { TAG_STEP = 1, TAG_RESULTS = 2, TAG_LOGITS = 3, TAG_LOGPROBS = 4 };

static int is_leader(const struct engine *e) { return e->s->grid->me.tp == 0; }
static int leader_of(const struct engine *e, int replica, int stage) { return grid_rank_at(e->s->grid, replica, stage, 0); }
static int me(const struct engine *e) { return comm_rank(e->s->world); }
static struct flight *flight_at(struct engine *e, int64_t n) { return &e->flights[n % e->s->plan.limits.in_flight]; }

struct decided *lane_at(const struct engine *e, const struct lane *l, int64_t n) { return &l->ring[n % e->s->plan.limits.in_flight]; }

/* --- room --- */

static enum err create_lane(struct engine *e, struct lane *l)
{
	const struct plan *p = &e->s->plan;
	TRY(MEM_NEW((size_t)p->limits.in_flight, struct decided, &l->ring));
	for (int i = 0; i < p->limits.in_flight; i++) {
		struct decided *d = &l->ring[i];
		TRY(step_create(&p->step, &d->step));
		TRY(MEM_NEW((size_t)l->n_replicas, struct awaited, &d->of));
		for (int r = 0; r < l->n_replicas; r++)
			TRY(step_results_create(p->limits.choices, &d->of[r].results));
	}
	return ERR_OK;
}

enum err engine_create_steps(struct engine *e)
{
	const struct plan *p = &e->s->plan;
	e->n_lanes = p->layout.dp / p->lane_replicas;
	TRY(MEM_NEW((size_t)p->limits.in_flight, struct flight, &e->flights));
	for (int i = 0; i < p->limits.in_flight; i++) {
		TRY(step_create(&p->step, &e->flights[i].step));
		TRY(step_results_create(p->limits.choices, &e->flights[i].results));
	}
	if (me(e) != 0)
		return ERR_OK;
	TRY(MEM_NEW((size_t)e->n_lanes, struct lane, &e->lanes));
	for (int i = 0; i < e->n_lanes; i++) {
		e->lanes[i].first_replica = i * p->lane_replicas;
		e->lanes[i].n_replicas = p->lane_replicas;
		TRY(create_lane(e, &e->lanes[i]));
	}
	e->own = &e->lanes[e->s->grid->me.dp / p->lane_replicas];
	return ERR_OK;
}

void engine_destroy_steps(struct engine *e)
{
	int n = e->s->plan.limits.in_flight;
	for (int i = 0; e->flights && i < n; i++) {
		step_destroy(e->flights[i].step);
		step_results_free(&e->flights[i].results);
	}
	for (int l = 0; e->lanes && l < e->n_lanes; l++) {
		for (int i = 0; e->lanes[l].ring && i < n; i++) {
			struct decided *d = &e->lanes[l].ring[i];
			for (int r = 0; d->of && r < e->lanes[l].n_replicas; r++)
				step_results_free(&d->of[r].results);
			mem_free(d->of);
			step_destroy(d->step);
		}
		mem_free(e->lanes[l].ring);
	}
	mem_free(e->lanes);
	mem_free(e->flights);
}

/* --- transfers that are made again and again --- */

static enum err finish_transfer(struct once_more *t)
{
	if (t->is_open)
		TRY(comm_complete(&t->transfer));
	t->is_open = 0;
	return ERR_OK;
}

static enum err start_send(struct engine *e, int to, int tag, const void *data, size_t bytes, struct once_more *t)
{
	TRY(finish_transfer(t));
	TRY(comm_isend(e->s->world, to, tag, data, bytes, &t->transfer));
	t->is_open = 1;
	return ERR_OK;
}

static enum err start_recv(struct engine *e, int from, int tag, void *data, size_t bytes, struct once_more *t)
{
	TRY(comm_irecv(e->s->world, from, tag, data, bytes, &t->transfer));
	t->is_open = 1;
	return ERR_OK;
}

static enum err test_transfer(struct once_more *t)
{
	int done = 0;
	if (t->is_open)
		TRY(comm_test(&t->transfer, &done));
	t->is_open = t->is_open && !done;
	return ERR_OK;
}

/* --- the head's part --- */

static size_t logits_bytes(const struct engine *e, const struct slice *sl)
{
	return (size_t)(sl->n_tokens * e->s->model.n_vocab) * sizeof(float);
}

/* The slice of a replica whose logits of every position are wanted, or NULL; *row: its first one among the replica's. */
static const struct slice *slice_with_logits(const struct step *step, int replica, int64_t *row)
{
	*row = 0;
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->replica == replica && sl->flags & SLICE_ALL_LOGITS)
			return sl;
		*row += sl->replica == replica ? sl->n_tokens : 0;
	}
	return NULL;
}

static float *room_for_logits(const struct engine *e, const struct slice *sl)
{
	return e->calls->all_logits + sl->pos * e->s->model.n_vocab;
}

/* What will come from a replica's last stage. */
static enum err await(struct engine *e, struct decided *d, int replica, struct awaited *a)
{
	int from = leader_of(e, replica, e->s->plan.layout.pp - 1);
	struct step_results *r = &a->results;
	int64_t row;
	step_results_expect(d->step, replica, &r->n, &r->n_logprobs);
	a->is_own = from == me(e);
	if (a->is_own)
		return ERR_OK;
	TRY(start_recv(e, from, TAG_RESULTS, r->of, (size_t)r->n * sizeof *r->of, &a->coming[0]));
	if (r->n_logprobs)
		TRY(start_recv(e, from, TAG_LOGPROBS, r->logprobs, (size_t)r->n_logprobs * sizeof *r->logprobs, &a->coming[1]));
	const struct slice *sl = slice_with_logits(d->step, replica, &row);
	return sl ? start_recv(e, from, TAG_LOGITS, room_for_logits(e, sl), logits_bytes(e, sl), &a->coming[2]) : ERR_OK;
}

enum err engine_launch(struct engine *e, struct lane *l)
{
	struct decided *d = lane_at(e, l, l->n_decided++);
	size_t bytes = step_pack(d->step);
	d->began_us = clock_us();
	for (int i = 0; i < l->n_replicas; i++) {
		int to = leader_of(e, l->first_replica + i, 0);
		if (!d->step->last)
			TRY(await(e, d, l->first_replica + i, &d->of[i]));
		if (to != me(e)) {
			TRY(start_send(e, to, TAG_STEP, d->step->wire, bytes, &d->of[i].sent));
			continue;
		}
		struct flight *own = flight_at(e, l->n_decided - 1);
		TRY(finish_transfer(&own->passed_on));
		memcpy(own->step->wire, d->step->wire, bytes);
		own->bytes = bytes;
	}
	return ERR_OK;
}

enum err engine_test_oldest(struct engine *e, struct lane *l, int *has_landed)
{
	struct decided *d = lane_at(e, l, l->n_landed);
	*has_landed = l->n_landed < l->n_decided;
	for (int i = 0; *has_landed && i < l->n_replicas; i++) {
		struct awaited *a = &d->of[i];
		for (int k = 0; k < AWAITED; k++) {
			TRY(test_transfer(&a->coming[k]));
			*has_landed &= !a->coming[k].is_open;
		}
		*has_landed &= !a->is_own || e->n_worked > l->n_landed;
	}
	return ERR_OK;
}

/* --- every rank's part --- */

/* Room for a step to come, unless the head is this rank's own. */
static enum err expect_step(struct engine *e)
{
	const struct member *m = &e->s->grid->me;
	struct flight *f = flight_at(e, e->n_received);
	int from = m->pp > 0 ? leader_of(e, m->dp, m->pp - 1) : 0;
	if (!is_leader(e) || from == me(e))
		return ERR_OK;
	TRY(finish_transfer(&f->passed_on));
	return start_recv(e, from, TAG_STEP, f->step->wire, f->step->wire_bytes, &e->coming);
}

enum err engine_open_steps(struct engine *e)
{
	TRY(expect_step(e));
	return stage_open(e->s->stage);
}

/* Waits for the step that was expected; the head looks after the other steps meanwhile. */
static enum err wait_for_step(struct engine *e, struct flight *f)
{
	unsigned round = 0;
	if (!e->coming.is_open)
		return ERR_OK;
	for (;;) {
		TRY(test_transfer(&e->coming));
		if (!e->coming.is_open)
			break;
		if (e->lanes)
			TRY(engine_attend(e));
		clock_wait(&round);
	}
	f->bytes = e->coming.transfer.bytes;
	return ERR_OK;
}

enum err engine_receive(struct engine *e, struct flight **out)
{
	const struct grid *g = e->s->grid;
	struct flight *f = *out = flight_at(e, e->n_received++);
	if (is_leader(e)) {
		TRY(wait_for_step(e, f));
		TRY(step_unpack(f->step, f->bytes));
		if (g->me.pp + 1 < g->layout.pp)
			TRY(start_send(e, leader_of(e, g->me.dp, g->me.pp + 1), TAG_STEP, f->step->wire, f->bytes, &f->passed_on));
	}
	TRY(step_bcast(f->step, g->axis[AXIS_TP], 0));
	return f->step->last ? ERR_OK : expect_step(e);
}

/* Logits of every position of the slice that wants them. Those of its next chunk are computed when the head has these. */
static enum err return_logits(struct engine *e, const struct flight *f)
{
	int64_t row;
	const struct slice *sl = slice_with_logits(f->step, e->s->grid->me.dp, &row);
	if (!sl)
		return ERR_OK;
	const float *rows = e->stage_logits + row * e->s->model.n_vocab;
	if (me(e) != 0)
		return start_send(e, 0, TAG_LOGITS, rows, logits_bytes(e, sl), &e->logits_returned);
	memcpy(room_for_logits(e, sl), rows, logits_bytes(e, sl));
	return ERR_OK;
}

/* The head's own results change places with the room for them. */
static void keep_results(struct engine *e, struct flight *f)
{
	struct decided *d = lane_at(e, e->own, e->n_worked);
	struct step_results *to = &d->of[e->s->grid->me.dp - e->own->first_replica].results, room = *to;
	*to = f->results;
	f->results = room;
}

enum err engine_return(struct engine *e, struct flight *f)
{
	struct step_results *r = &f->results;
	int32_t n, n_logprobs;
	if (!is_leader(e) || !e->s->stage->shard.last_stage)
		return ERR_OK;
	step_results_expect(f->step, e->s->grid->me.dp, &n, &n_logprobs);
	if (r->n != n || r->n_logprobs != n_logprobs)
		return ERR(BUG, "%d results and %d log-probabilities, %d and %d expected", r->n, r->n_logprobs, n, n_logprobs);
	TRY(return_logits(e, f));
	if (me(e) == 0) {
		keep_results(e, f);
		return ERR_OK;
	}
	if (n_logprobs)
		TRY(start_send(e, 0, TAG_LOGPROBS, r->logprobs, (size_t)n_logprobs * sizeof *r->logprobs, &f->returned[1]));
	return start_send(e, 0, TAG_RESULTS, r->of, (size_t)n * sizeof *r->of, &f->returned[0]);
}

/* Before this rank's part of a step fills its results again. */
enum err engine_free_results(struct flight *f)
{
	TRY(finish_transfer(&f->returned[0]));
	return finish_transfer(&f->returned[1]);
}

enum err engine_close_steps(struct engine *e)
{
	int n = e->s->plan.limits.in_flight;
	TRY(stage_close(e->s->stage));
	TRY(finish_transfer(&e->logits_returned));
	for (int i = 0; i < n; i++) {
		TRY(finish_transfer(&e->flights[i].passed_on));
		TRY(engine_free_results(&e->flights[i]));
	}
	for (int l = 0; e->lanes && l < e->n_lanes; l++)
		for (int i = 0; i < n; i++)
			for (int r = 0; r < e->lanes[l].n_replicas; r++)
				TRY(finish_transfer(&e->lanes[l].ring[i].of[r].sent));
	return ERR_OK;
}
