/* The loop of steps. The head schedules a step and broadcasts it; every rank does its part; tp rank 0 of each replica's last
 * stage sends the chosen tokens back to the head, which goes on. */
#include "runtime/session.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum { TAG_RESULTS = 2, TAG_LOGITS = 3 };

struct loop {
	struct session *s;
	struct generation *g;
	struct step *step;
	struct step_result *results;      /* (sequences) of this rank's replica */
	struct step_result *incoming;     /* (sequences) of another replica, on the head */
	struct schedule *schedule;        /* head only, as below */
	float *stage_logits;              /* last stage, tp rank 0: (step_tokens, V), only while all_logits is asked for */
};

static int is_head(const struct loop *l) { return comm_rank(l->s->world) == 0; }

static enum err create_loop(struct loop *l, int wants_logits)
{
	const struct plan *p = &l->s->plan;
	struct schedule_limits limits = { .n_replicas = p->layout.dp, .n_pages = p->limits.n_pages,
					  .step_tokens = p->limits.step_tokens, .sequences = p->limits.sequences,
					  .context = p->context };
	TRY(step_create(p->step.slices, p->step.tokens, p->step.pages, &l->step));
	TRY(MEM_NEW((size_t)p->limits.sequences, struct step_result, &l->results));
	if (wants_logits && l->s->stage->shard.last_stage && l->s->grid->me.tp == 0)
		TRY(MEM_NEW((size_t)(p->limits.step_tokens * l->s->model.n_vocab), float, &l->stage_logits));
	if (!is_head(l))
		return ERR_OK;
	TRY(MEM_NEW((size_t)p->limits.sequences, struct step_result, &l->incoming));
	TRY(schedule_create(&limits, &l->schedule));
	TRY(MEM_NEW((size_t)l->g->n_requests, struct answer, &l->g->answers));
	for (int64_t i = 0; i < l->g->n_requests; i++) {
		const struct request *r = &l->g->requests[i];
		int32_t number;
		for (int64_t t = 0; t < r->n_prompt; t++)
			if (r->prompt[t] < 0 || r->prompt[t] >= l->s->model.n_vocab)
				return ERR(WORK, "prompt %lld: token %d is outside the vocabulary of %lld", (long long)i + 1, r->prompt[t],
					   (long long)l->s->model.n_vocab);
		struct request with_room = *r;
		int64_t room = r->max_tokens < l->s->plan.context ? r->max_tokens : l->s->plan.context;
		TRY(MEM_NEW((size_t)(room > 0 ? room : 0), int32_t, &l->g->answers[i].tokens));
		with_room.answer = l->g->answers[i].tokens;
		enum err e = schedule_add(l->schedule, &with_room, &number);
		if (e)
			return err_context(e, "prompt %lld", (long long)i + 1);
	}
	return ERR_OK;
}

static void destroy_loop(struct loop *l)
{
	step_destroy(l->step);
	schedule_destroy(l->schedule);
	mem_free(l->results);
	mem_free(l->incoming);
	mem_free(l->stage_logits);
}

static int is_eos(const struct model *m, int32_t token)
{
	for (int i = 0; i < m->n_eos; i++)
		if (m->eos[i] == token)
			return 1;
	return 0;
}

/* One chosen token, on the head. */
static void take(struct loop *l, const struct step_result *r)
{
	struct generation *g = l->g;
	struct answer *a = &g->answers[r->sequence];
	int more = schedule_room(l->schedule, r->sequence) > 1;
	if (r->error) {
		a->finish = FINISH_ERROR;
		schedule_token(l->schedule, r->sequence, 0, 0);
		return;
	}
	a->tokens[a->n_tokens++] = r->token;
	a->digest += r->digest;
	a->finish = more ? FINISH_NOT_YET : FINISH_LENGTH;
	if (!g->ignore_eos && is_eos(&l->s->model, r->token)) {
		a->finish = FINISH_STOP;
		more = 0;
	}
	if (g->token && g->token(g->arg, r->sequence, a, r->token)) {
		a->finish = FINISH_STOP;
		more = 0;
	}
	schedule_token(l->schedule, r->sequence, r->token, more);
}

static int replica_results(const struct step *step, int replica)
{
	int n = 0;
	for (int32_t i = 0; i < step->n_slices; i++)
		n += step->slices[i].replica == replica && step->slices[i].flags & SLICE_SAMPLE;
	return n;
}

/* Tokens from the last stages to the head. */
static enum err return_results(struct loop *l, int32_t mine)
{
	struct grid *g = l->s->grid;
	struct comm *world = l->s->world;
	int me = comm_rank(world);
	for (int d = 0; d < g->layout.dp; d++) {
		int from = grid_rank_at(g, d, g->layout.pp - 1, 0), n = replica_results(l->step, d);
		size_t bytes = (size_t)n * sizeof *l->results;
		if (n == 0)
			continue;
		if (from == me && mine != n)
			return ERR(BUG, "%d results, %d expected", mine, n);
		if (from == me && me != 0)
			TRY(comm_send(world, 0, TAG_RESULTS, l->results, bytes));
		if (me != 0)
			continue;
		if (from != 0)
			TRY(comm_recv(world, from, TAG_RESULTS, l->incoming, bytes));
		for (int i = 0; i < n; i++)
			take(l, from == 0 ? &l->results[i] : &l->incoming[i]);
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
static enum err return_logits(struct loop *l)
{
	struct session *s = l->s;
	struct comm *world = s->world;
	int me = comm_rank(world);
	for (int32_t i = 0; i < l->step->n_slices; i++) {
		const struct slice *sl = &l->step->slices[i];
		if (!(sl->flags & SLICE_ALL_LOGITS))
			continue;
		int from = grid_rank_at(s->grid, sl->replica, s->plan.layout.pp - 1, 0);
		size_t bytes = (size_t)(sl->n_tokens * s->model.n_vocab) * sizeof(float);
		const float *rows = l->stage_logits ? l->stage_logits + first_row(l->step, i) * s->model.n_vocab : NULL;
		float *to = me == 0 ? l->g->all_logits + sl->pos * s->model.n_vocab : NULL;
		if (from == 0 && me == 0)
			memcpy(to, rows, bytes);
		else if (me == from)
			TRY(comm_send(world, 0, TAG_LOGITS, rows, bytes));
		else if (me == 0)
			TRY(comm_recv(world, from, TAG_LOGITS, to, bytes));
	}
	return ERR_OK;
}

/* Whether any request wants logits: the head knows, and the last stages make room. */
static enum err ask_for_logits(const struct loop *l, int32_t *wanted)
{
	*wanted = 0;
	for (int64_t i = 0; i < l->g->n_requests; i++)
		*wanted |= l->g->requests[i].all_logits != 0;
	return comm_bcast(l->s->world, wanted, sizeof *wanted, 0);
}

/* Counts a step's time for the report: a step with any prefill is prefill. */
static void count_time(struct loop *l, double seconds)
{
	int64_t prompt = 0, decode = 0;
	for (int32_t i = 0; i < l->step->n_slices; i++) {
		const struct slice *sl = &l->step->slices[i];
		if (sl->pos < l->g->requests[sl->sequence].n_prompt)
			prompt += sl->n_tokens;
		else
			decode += sl->n_tokens;
	}
	if (prompt) {
		l->g->prefill_s += seconds;
		l->g->prefill_tokens += prompt;
	} else {
		l->g->decode_s += seconds;
		l->g->decode_tokens += decode;
	}
}

static enum err run_loop(struct loop *l)
{
	for (;;) {
		long long began = clock_us();
		int32_t n = 0;
		if (is_head(l)) {
			schedule_next(l->schedule, l->step);
			l->step->last = l->step->n_slices == 0;
		}
		TRY(step_bcast(l->step, l->s->world, 0));
		if (l->step->last)
			break;
		TRY(stage_step(l->s->stage, l->step, l->results, &n, l->stage_logits));
		TRY(return_logits(l));
		if (is_head(l))
			schedule_landed(l->schedule, l->step);
		TRY(return_results(l, n));
		if (is_head(l))
			count_time(l, (double)(clock_us() - began) * 1e-6);
	}
	if (is_head(l))
		schedule_count(l->schedule, &l->g->counts);
	if (is_head(l) && schedule_unfinished(l->schedule))
		return ERR(BUG, "%lld requests are left but none can run", (long long)schedule_unfinished(l->schedule));
	return ERR_OK;
}

enum err session_generate(struct session *s, struct generation *g)
{
	struct loop l = { .s = s, .g = g };
	int32_t wants_logits;
	TRY(ask_for_logits(&l, &wants_logits));
	enum err e = comm_agree(s->world, create_loop(&l, wants_logits));
	if (!e) {
		e = run_loop(&l);
		s->broken = e != ERR_OK;
	}
	destroy_loop(&l);
	return e;
}

void answers_free(struct answer *a, int64_t n)
{
	for (int64_t i = 0; a && i < n; i++)
		mem_free(a[i].tokens);
	mem_free(a);
}
