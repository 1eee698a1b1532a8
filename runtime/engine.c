/* The loop of steps. The head decides a step and broadcasts it; every rank does its part; tp rank 0 of each replica's last
 * stage sends the chosen tokens back to the head, which goes on. A step under way is a struct flight: deciding one, doing one's
 * part of it and taking its results are functions of their own. One is under way at a time. */
#include "runtime/engine_impl.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum { TAG_RESULTS = 2, TAG_LOGITS = 3, TAG_LOGPROBS = 4, IDLE_US = 500 };

static int is_head(const struct engine *e) { return comm_rank(e->s->world) == 0; }

static enum err create(struct engine *e, int wants_logits)
{
	const struct plan *p = &e->s->plan;
	TRY(step_create(&p->step, &e->flight.step));
	TRY(step_results_create(p->limits.sequences, &e->flight.results));
	if (wants_logits && e->s->stage->shard.last_stage && e->s->grid->me.tp == 0)
		TRY(MEM_NEW((size_t)(p->limits.step_tokens * e->s->model.n_vocab), float, &e->stage_logits));
	if (!is_head(e))
		return ERR_OK;
	struct schedule_limits limits = engine_limits(e->s);
	TRY(step_results_create(p->limits.sequences, &e->incoming));
	return schedule_create(&limits, &e->schedule);
}

static void destroy(struct engine *e)
{
	step_destroy(e->flight.step);
	step_results_free(&e->flight.results);
	step_results_free(&e->incoming);
	schedule_destroy(e->schedule);
	mem_free(e->of_number);
	mem_free(e->stage_logits);
}

/* --- deciding --- */

/* A step without slices ends the loop of all ranks. */
static enum err decide(struct engine *e, struct flight *f)
{
	while (is_head(e)) {
		engine_obey(e);
		engine_pull(e);
		schedule_next(e->schedule, f->step);
		if (f->step->n_slices || e->no_more || schedule_unfinished(e->schedule))
			break;
		clock_sleep_us(IDLE_US);
	}
	f->step->last = f->step->n_slices == 0;
	f->began_us = clock_us();
	for (int32_t i = 0; is_head(e) && i < f->step->n_slices; i++)
		e->of_number[f->step->slices[i].sequence]->flying = 1;
	return step_bcast(f->step, e->s->world, 0);
}

/* --- results --- */

static void take_all(struct engine *e, const struct step *step, int replica, const struct step_results *r)
{
	int32_t at = 0, n_logprobs = 0;
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->replica == replica && sl->flags & SLICE_SAMPLE)
			engine_take(e, &r->of[at++], sl->sample.logprobs ? &r->logprobs[n_logprobs++] : NULL);
	}
}

/* Tokens from the last stages to the head. */
static enum err return_results(struct engine *e, struct flight *f)
{
	struct grid *g = e->s->grid;
	struct comm *world = e->s->world;
	int me = comm_rank(world);
	for (int d = 0; d < g->layout.dp; d++) {
		int from = grid_rank_at(g, d, g->layout.pp - 1, 0);
		struct step_results *r = from == me ? &f->results : &e->incoming;
		int32_t n, n_logprobs;
		step_results_expect(f->step, d, &n, &n_logprobs);
		if (n == 0)
			continue;
		if (from == me && (r->n != n || r->n_logprobs != n_logprobs))
			return ERR(BUG, "%d results and %d log-probabilities, %d and %d expected", r->n, r->n_logprobs, n, n_logprobs);
		if (from == me && me != 0) {
			TRY(comm_send(world, 0, TAG_RESULTS, r->of, (size_t)n * sizeof *r->of));
			if (n_logprobs)
				TRY(comm_send(world, 0, TAG_LOGPROBS, r->logprobs, (size_t)n_logprobs * sizeof *r->logprobs));
		}
		if (me == 0 && from != 0) {
			TRY(comm_recv(world, from, TAG_RESULTS, r->of, (size_t)n * sizeof *r->of));
			if (n_logprobs)
				TRY(comm_recv(world, from, TAG_LOGPROBS, r->logprobs, (size_t)n_logprobs * sizeof *r->logprobs));
		}
		if (me == 0)
			take_all(e, f->step, d, r);
	}
	return ERR_OK;
}

/* Where slice i's rows begin among its replica's. */
static int64_t first_row(const struct step *step, int32_t i)
{
	int64_t row = 0;
	for (int32_t k = 0; k < i; k++)
		if (step->slices[k].replica == step->slices[i].replica)
			row += step->slices[k].n_tokens;
	return row;
}

/* Logits of every position of the one slice that wants them, to the head's room. */
static enum err return_logits(struct engine *e, const struct step *step)
{
	struct session *s = e->s;
	struct comm *world = s->world;
	int me = comm_rank(world);
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (!(sl->flags & SLICE_ALL_LOGITS))
			continue;
		int from = grid_rank_at(s->grid, sl->replica, s->plan.layout.pp - 1, 0);
		size_t bytes = (size_t)(sl->n_tokens * s->model.n_vocab) * sizeof(float);
		const float *rows = e->stage_logits ? e->stage_logits + first_row(step, i) * s->model.n_vocab : NULL;
		float *to = me == 0 ? e->calls->all_logits + sl->pos * s->model.n_vocab : NULL;
		if (from == 0 && me == 0)
			memcpy(to, rows, bytes);
		else if (me == from)
			TRY(comm_send(world, 0, TAG_LOGITS, rows, bytes));
		else if (me == 0)
			TRY(comm_recv(world, from, TAG_LOGITS, to, bytes));
	}
	return ERR_OK;
}

/* Counts a step's tokens for the report, before its answers may end; gives those of prompts. */
static int64_t count_tokens(const struct engine *e, const struct step *step, int64_t *decode)
{
	int64_t prompt = 0;
	*decode = 0;
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->pos < e->of_number[sl->sequence]->r.n_prompt)
			prompt += sl->n_tokens;
		else
			*decode += sl->n_tokens;
	}
	return prompt;
}

static enum err take_results(struct engine *e, struct flight *f)
{
	int64_t prompt = 0, decode = 0;
	TRY(return_logits(e, f->step));
	if (is_head(e)) {
		prompt = count_tokens(e, f->step, &decode);
		engine_landed(e, f->step);
	}
	TRY(return_results(e, f));
	if (!is_head(e))
		return ERR_OK;
	double seconds = (double)(clock_us() - f->began_us) * 1e-6;
	e->counts.steps++;
	if (prompt) {
		e->counts.prefill_s += seconds;
		e->counts.prefill_tokens += prompt;
	} else {
		e->counts.decode_s += seconds;
		e->counts.decode_tokens += decode;
	}
	return ERR_OK;
}

static enum err do_part(struct engine *e, struct flight *f)
{
	return stage_step(e->s->stage, f->step, &f->results, e->stage_logits);
}

static enum err loop(struct engine *e)
{
	struct flight *f = &e->flight;
	for (;;) {
		TRY(decide(e, f));
		if (f->step->last)
			break;
		TRY(do_part(e, f));
		TRY(take_results(e, f));
	}
	if (is_head(e))
		schedule_count(e->schedule, &e->counts.schedule);
	if (is_head(e) && schedule_unfinished(e->schedule))
		return ERR(BUG, "%lld requests are left but none can run", (long long)schedule_unfinished(e->schedule));
	return ERR_OK;
}

/* After an error inside a step, which does not land any more. */
static void give_up(struct engine *e)
{
	for (int64_t i = 0; i < e->n_numbers; i++)
		if (e->of_number[i])
			e->of_number[i]->flying = 0;
	engine_drop_all(e, FINISH_DROPPED);
}

enum err engine_run(struct session *s, const struct engine_calls *calls, struct engine_counts *counts)
{
	struct engine e = { .s = s, .calls = calls };
	int32_t wants_logits = calls && calls->all_logits;
	TRY(comm_bcast(s->world, &wants_logits, sizeof wants_logits, 0));
	enum err er = comm_agree(s->world, create(&e, wants_logits));
	if (!er) {
		er = loop(&e);
		s->broken = er != ERR_OK;
		if (er && is_head(&e))
			give_up(&e);
		if (counts)
			*counts = e.counts;
	}
	destroy(&e);
	return er;
}
