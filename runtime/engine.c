/* The loop of steps. Every rank takes step after step as they come, and does its part. The head also decides them: while fewer than
 * in_flight of a lane are under way there is room for one. It looks after that between two layers of its own part, and
 * while it waits, so that lanes go on by themselves and stages need not wait for one another. */
#include "runtime/engine_impl.h"

#include "base/clock.h"
#include "base/mem.h"

enum { IDLE_US = 500 };

static int is_head(const struct engine *e) { return comm_rank(e->s->world) == 0; }

static enum err create(struct engine *e, int wants_logits)
{
	const struct plan *p = &e->s->plan;
	TRY(engine_create_steps(e));
	if (wants_logits && e->s->stage->shard.last_stage && e->s->grid->me.tp == 0)
		TRY(MEM_NEW((size_t)(p->limits.step_tokens * e->s->model.n_vocab), float, &e->stage_logits));
	if (!is_head(e))
		return ERR_OK;
	struct schedule_limits limits = engine_limits(e->s);
	return schedule_create(&limits, &e->schedule);
}

static void destroy(struct engine *e)
{
	engine_destroy_steps(e);
	schedule_destroy(e->schedule);
	mem_free(e->of_number);
	mem_free(e->stage_logits);
}

/* --- the head --- */

/* Gives how many drafts came true. */
static int64_t take_all(struct engine *e, const struct step *step, int replica, const struct step_results *r)
{
	int32_t at = 0, n_logprobs = 0;
	int64_t n_true = 0;
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->replica != replica || !(sl->flags & SLICE_SAMPLE))
			continue;
		n_true += engine_take(e, sl, step->tokens + slice_first_draft(sl), &r->of[at],
				      sl->sample.logprobs ? &r->logprobs[n_logprobs] : NULL);
		at += slice_choices(sl);
		n_logprobs += sl->sample.logprobs ? slice_choices(sl) : 0;
	}
	return n_true;
}

/* Counts a step's tokens but for drafts for the report, before its answers may end; gives those of prompts. */
static int64_t count_tokens(const struct engine *e, const struct step *step, int64_t *decode)
{
	int64_t prompt = 0;
	*decode = 0;
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->pos < e->of_number[sl->sequence]->r.n_prompt)
			prompt += sl->n_tokens;
		else
			*decode += sl->n_tokens - sl->n_drafts;
	}
	return prompt;
}

/* The time since the step began, or since one landed after that: these times add up to that in which there was work. */
static void count_step(struct engine *e, const struct decided *d, int64_t prompt, int64_t decode)
{
	long long now = clock_us(), since = d->began_us > e->landed_us ? d->began_us : e->landed_us;
	double seconds = (double)(now - since) * 1e-6;
	e->landed_us = now;
	e->counts.steps++;
	if (prompt) {
		e->counts.prefill_s += seconds;
		e->counts.prefill_tokens += prompt;
	} else {
		e->counts.decode_s += seconds;
		e->counts.decode_tokens += decode;
	}
}

/* n_true: drafts that came true, beyond the token that each slice which samples gives. */
static void trace_landed(struct engine *e, const struct lane *l, const struct decided *d, long long began_us, int64_t prompt, int64_t n_true)
{
	struct trace *t = e->s->stage->trace;
	struct trace_span span = trace_step(d->step, l->n_landed, l->first_replica, -1);
	int64_t n = n_true;
	for (int32_t i = 0; i < d->step->n_slices; i++)
		n += (d->step->slices[i].flags & SLICE_SAMPLE) != 0;
	timeline_add(&t->timeline, TIMELINE_ANSWER, clock_us(), n);
	timeline_add(&t->timeline, TIMELINE_PROMPT, clock_us(), prompt);
	trace_put(t, TRACE_RESULTS, began_us, &span);
}

static void land(struct engine *e, struct lane *l)
{
	struct decided *d = lane_at(e, l, l->n_landed);
	struct trace *t = e->s->stage->trace;
	long long began = trace_now(t);
	int64_t decode, n_true = 0, prompt = count_tokens(e, d->step, &decode);
	engine_landed(e, d->step);
	for (int i = 0; i < l->n_replicas; i++)
		n_true += take_all(e, d->step, l->first_replica + i, &d->of[i].results);
	count_step(e, d, prompt, decode + n_true);
	if (t)
		trace_landed(e, l, d, began, prompt, n_true);
	l->n_landed++;
}

/* Steps of a lane until it has enough under way, or nothing that could be. */
static enum err decide(struct engine *e, struct lane *l)
{
	struct trace *t = e->s->stage->trace;
	while (l->n_decided - l->n_landed < e->s->plan.limits.in_flight) {
		long long began = trace_now(t);
		struct step *step = lane_at(e, l, l->n_decided)->step;
		schedule_next(e->schedule, l->first_replica, l->n_replicas, step);
		if (!step->n_slices)
			break;
		for (int32_t i = 0; i < step->n_slices; i++)
			e->of_number[step->slices[i].sequence]->flying++;
		TRY(engine_launch(e, l));
		if (t) {
			struct trace_span span = trace_step(step, l->n_decided - 1, l->first_replica, -1);
			trace_put(t, TRACE_DECIDE, began, &span);
		}
	}
	return ERR_OK;
}

static int is_under_way(const struct engine *e)
{
	for (int i = 0; i < e->n_lanes; i++)
		if (e->lanes[i].n_landed < e->lanes[i].n_decided)
			return 1;
	return 0;
}

enum err engine_attend(struct engine *e)
{
	int has_news = 0;
	for (int i = 0; i < e->n_lanes; i++)
		for (int has_landed = 1; has_landed;) {
			TRY(engine_test_oldest(e, &e->lanes[i], &has_landed));
			if (has_landed)
				land(e, &e->lanes[i]);
			has_news |= has_landed;
		}
	if (!has_news && clock_us() - e->asked_us < IDLE_US)
		return ERR_OK;
	engine_obey(e);
	engine_pull(e);
	for (int i = 0; i < e->n_lanes; i++)
		TRY(decide(e, &e->lanes[i]));
	e->asked_us = clock_us();
	e->is_over = !is_under_way(e) && (e->no_more || schedule_unfinished(e->schedule));
	return ERR_OK;
}

static enum err attend_between(void *arg) { return engine_attend(arg); }

/* Steps without slices end the loops of all ranks. */
static enum err end_lanes(struct engine *e)
{
	for (int i = 0; i < e->n_lanes; i++) {
		struct lane *l = &e->lanes[i];
		struct step *step = lane_at(e, l, l->n_decided)->step;
		step_clear(step);
		step->last = 1;
		TRY(engine_launch(e, l));
	}
	return ERR_OK;
}

/* --- every rank --- */

/* The first replica of this rank's lane. */
static int lane_of(const struct engine *e)
{
	int n = e->s->plan.lane_replicas;
	return e->s->grid->me.dp / n * n;
}

static enum err work_on_next(struct engine *e, int *is_last)
{
	struct flight *f;
	struct trace *t = e->s->stage->trace;
	long long began = trace_now(t);
	TRY(engine_receive(e, &f));
	if (t)
		t->now = trace_step(f->step, e->n_worked, lane_of(e), e->s->grid->me.dp);
	trace_end(t, TRACE_WAIT_STEP, began);
	*is_last = f->step->last;
	if (*is_last)
		return ERR_OK;
	TRY(engine_free_results(f));
	TRY(stage_step(e->s->stage, f->step, &f->results, e->stage_logits));
	TRY(engine_return(e, f));
	e->n_worked++;
	return ERR_OK;
}

static enum err lead(struct engine *e)
{
	int is_last = 0;
	unsigned round = 0;
	while (!e->is_over) {
		TRY(engine_attend(e));
		if (e->own->n_decided > e->n_worked) {
			TRY(work_on_next(e, &is_last));
			round = 0;
		} else if (is_under_way(e)) {
			clock_wait(&round);
		} else if (!e->is_over) {
			clock_sleep_us(IDLE_US);
		}
	}
	TRY(end_lanes(e));
	return work_on_next(e, &is_last);
}

static enum err loop(struct engine *e)
{
	int is_last = 0;
	TRY(engine_open_steps(e));
	if (is_head(e))
		TRY(lead(e));
	while (!is_head(e) && !is_last)
		TRY(work_on_next(e, &is_last));
	TRY(engine_close_steps(e));
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
		int has_other_steps = is_head(&e) && e.n_lanes * s->plan.limits.in_flight > 1;
		s->stage->between = has_other_steps ? attend_between : NULL;
		s->stage->between_arg = &e;
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
