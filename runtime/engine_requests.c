/* Requests and answers on the head.
 *
 *   source --engine_pull--> active (waits or runs, known by the schedule's number) --engine_take--> done
 *
 * An active that has siblings leaves a template in the list `due` at its first token, from which they are made when there is room.
 * One that is cancelled while a step with it is under way is `gone`: it ends when the step has landed. */
#include "runtime/engine_impl.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct schedule_limits engine_limits(const struct session *s)
{
	const struct plan *p = &s->plan;
	return (struct schedule_limits){ .n_replicas = p->layout.dp, .n_pages = p->limits.n_pages, .step_tokens = p->limits.step_tokens,
					 .sequences = p->limits.sequences, .context = p->context,
					 .in_flight = p->limits.in_flight, .draft_rows = p->draft_rows,
					 .mask_words = plan_mask_words(&s->model) };
}

static int answers_of(const struct request *r) { return r->n > 1 ? r->n : 1; }

static int is_token(const struct session *s, int32_t token) { return token >= 0 && token < s->model.n_vocab; }

static enum err check_sampling(const struct session *s, const struct request *r)
{
	const struct sample_params *p = &r->sample;
	if (!(p->temperature >= 0) || !isfinite(p->temperature))
		return ERR(WORK, "a temperature of %g; it must be 0 or more", (double)p->temperature);
	if (!(r->repetition_penalty >= 0) || !isfinite(r->repetition_penalty))
		return ERR(WORK, "a repetition penalty of %g; it must be above 0", (double)r->repetition_penalty);
	if (!isfinite(r->frequency_penalty) || !isfinite(r->presence_penalty))
		return ERR(WORK, "a frequency penalty of %g and a presence penalty of %g; they must be numbers",
			   (double)r->frequency_penalty, (double)r->presence_penalty);
	if (p->logprobs < 0 || p->logprobs > 1 + SAMPLE_MAX_BEST)
		return ERR(WORK, "log-probabilities of %d tokens are asked for; at most %d are possible", p->logprobs - 1, SAMPLE_MAX_BEST);
	for (int i = 0; i < r->n_biases; i++)
		if (!is_token(s, r->biases[i].token) || !isfinite(r->biases[i].bias))
			return ERR(WORK, "a logit bias of %g for token %d; the vocabulary has %" PRId64, (double)r->biases[i].bias,
				   r->biases[i].token, s->model.n_vocab);
	for (int i = 0; i < r->n_stop_tokens; i++)
		if (!is_token(s, r->stop_tokens[i]))
			return ERR(WORK, "stop token %d is outside the vocabulary of %" PRId64, r->stop_tokens[i], s->model.n_vocab);
	return ERR_OK;
}

enum err engine_check(const struct session *s, const struct request *r)
{
	struct schedule_limits limits = engine_limits(s);
	for (int64_t t = 0; t < r->n_prompt; t++)
		if (!is_token(s, r->prompt[t]))
			return ERR(WORK, "token %d is outside the vocabulary of %" PRId64, r->prompt[t], s->model.n_vocab);
	TRY(check_sampling(s, r));
	struct request with_eos = *r;
	with_eos.n_stop_tokens += r->ignore_eos ? 0 : s->model.n_eos;
	return schedule_check_request(&limits, &with_eos);
}

/* --- coming --- */

static void active_free(struct active *q)
{
	if (!q)
		return;
	answer_free(&q->a);
	mem_free(q->stop_tokens);
	mem_free(q);
}

/* Puts a list of its own, with the model's end-of-text tokens unless they are ignored, in place of the request's. */
static enum err own_stop_tokens(const struct engine *e, struct active *q)
{
	const struct model *m = &e->s->model;
	int n_eos = q->r.ignore_eos ? 0 : m->n_eos;
	TRY(MEM_NEW((size_t)(n_eos + q->r.n_stop_tokens), int32_t, &q->stop_tokens));
	for (int i = 0; i < n_eos; i++)
		q->stop_tokens[i] = m->eos[i];
	for (int i = 0; i < q->r.n_stop_tokens; i++)
		q->stop_tokens[n_eos + i] = q->r.stop_tokens[i];
	q->r.stop_tokens = q->stop_tokens;
	q->r.n_stop_tokens += n_eos;
	q->r.ignore_eos = 1;
	return ERR_OK;
}

static enum err active_new(const struct engine *e, const struct request *r, struct active **out)
{
	struct active *q;
	enum err er;
	TRY(MEM_NEW(1, struct active, &q));
	q->r = *r;
	TRY_OR(free_it, er, own_stop_tokens(e, q));
	*out = q;
	return ERR_OK;
free_it:
	active_free(q);
	return er;
}

static enum err make_answer(const struct engine *e, struct active *q)
{
	int64_t room = q->r.max_tokens < e->s->plan.context ? q->r.max_tokens : e->s->plan.context;
	q->a = (struct answer){ .tag = q->r.tag, .choice = q->r.sample.choice, .n_prompt = q->r.n_prompt };
	TRY(MEM_NEW((size_t)room, int32_t, &q->a.tokens));
	q->r.answer = q->a.tokens;
	return q->r.sample.logprobs ? MEM_NEW((size_t)room, struct sample_logprobs, &q->a.logprobs) : ERR_OK;
}

static enum err add(struct engine *e, const struct request *r, int siblings, int is_sibling)
{
	struct active *q;
	enum err er;
	TRY(active_new(e, r, &q));
	q->siblings = siblings;
	q->is_sibling = is_sibling;
	TRY_OR(free_it, er, make_answer(e, q));
	TRY_OR(free_it, er, schedule_add(e->schedule, &q->r, &q->number));
	if (q->number >= e->n_numbers) {
		int64_t n = 2 * ((int64_t)q->number + 32);
		er = mem_grow(&e->of_number, (size_t)n, sizeof *e->of_number, "answers");
		if (er)
			schedule_cancel(e->schedule, q->number);
		TRY_OR(free_it, er, er);
		memset(e->of_number + e->n_numbers, 0, (size_t)(n - e->n_numbers) * sizeof *e->of_number);
		e->n_numbers = n;
	}
	e->of_number[q->number] = q;
	return ERR_OK;
free_it:
	active_free(q);
	return er;
}

static void tell_done(struct engine *e, struct answer *a)
{
	e->calls->done(e->calls->arg, a);
	answer_free(a);
}

/* n answers of a request, from choice `first` on, that never run. The error of one that is refused is the last one recorded. */
static void tell_never(struct engine *e, const struct request *r, uint32_t first, int n, enum finish why)
{
	struct err_record record = *err_last();
	for (int i = 0; i < n; i++) {
		struct answer a = { .tag = r->tag, .choice = first + (uint32_t)i, .n_prompt = r->n_prompt, .finish = why };
		if (why == FINISH_REFUSED) {
			a.code = record.code;
			if (mem_copy_string(record.sentence, &a.error))
				a.error = NULL;      /* no memory for the sentence: the code must do */
		}
		tell_done(e, &a);
	}
}

static void admit(struct engine *e, const struct request *r)
{
	int n = answers_of(r);
	enum err er = engine_check(e->s, r);
	if (!er && r->all_logits && (!e->calls->all_logits || n > 1))
		er = ERR(WORK, "logits of all positions are for one answer of one request, and not made room for here");
	if (!er)
		er = add(e, r, n - 1, 0);
	if (er)
		tell_never(e, r, r->sample.choice, n, FINISH_REFUSED);
}

/* As many wait as may run: enough for the schedule to choose from, and no more memory than that. */
static int has_room(const struct engine *e)
{
	struct schedule_counts c;
	schedule_count(e->schedule, &c);
	return c.waiting < e->s->plan.limits.sequences * e->s->plan.layout.dp;
}

/* One sibling of the first request whose siblings are due. */
static void admit_sibling(struct engine *e)
{
	struct active *first = e->due;
	first->r.sample.choice++;
	if (--first->siblings == 0)
		e->due = first->next;
	if (add(e, &first->r, 0, 1))
		tell_never(e, &first->r, first->r.sample.choice, 1, FINISH_REFUSED);
	if (first->siblings == 0)
		active_free(first);
}

void engine_pull(struct engine *e)
{
	while (has_room(e)) {
		struct request r = { 0 };
		if (e->due) {
			admit_sibling(e);
			continue;
		}
		enum engine_next said = e->no_more ? ENGINE_NO_MORE : e->calls->next(e->calls->arg, &r);
		if (said == ENGINE_NO_MORE)
			e->no_more = 1;
		if (said != ENGINE_REQUEST)
			return;
		admit(e, &r);
	}
}

/* --- going --- */

/* Its siblings may start, made from a template. */
static void let_siblings_start(struct engine *e, struct active *q)
{
	struct active **end = &e->due, *template;
	if (!q->siblings)
		return;
	if (active_new(e, &q->r, &template)) {
		tell_never(e, &q->r, q->a.choice + 1, q->siblings, FINISH_REFUSED);
	} else {
		template->siblings = q->siblings;
		while (*end)
			end = &(*end)->next;
		*end = template;
	}
	q->siblings = 0;
}

/* The schedule has given its number back: tells that it is done. Its siblings that wait for its first token end with it, or are let
 * start. Calls may cancel it, and find it gone. */
static void end(struct engine *e, struct active *q, enum finish why)
{
	e->of_number[q->number] = NULL;
	q->a.finish = why;
	if (q->siblings && why != FINISH_CANCELLED && why != FINISH_DROPPED)
		let_siblings_start(e, q);
	else
		tell_never(e, &q->r, q->a.choice + 1, q->siblings, why);
	q->siblings = 0;
	tell_done(e, &q->a);
	active_free(q);
}

/* Ends one that runs or waits: the schedule first, which may still read what it borrows. The one whose token is being told ends after
 * that. */
static void cut_short(struct engine *e, struct active *q, enum finish why)
{
	if (q != e->telling)
		schedule_cancel(e->schedule, q->number);
	if (q->flying || q == e->telling) {
		q->gone = 1;
		q->a.finish = why;
		return;
	}
	end(e, q, why);
}

static void end_due(struct engine *e, const void *tag, int all, enum finish why)
{
	for (struct active **at = &e->due, *t; (t = *at) != NULL;) {
		if (!all && t->r.tag != tag) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		tell_never(e, &t->r, t->r.sample.choice + 1, t->siblings, why);
		active_free(t);
	}
}

void engine_cancel(struct engine *e, const void *tag)
{
	for (int64_t i = 0; i < e->n_numbers; i++) {
		struct active *q = e->of_number[i];
		if (q && !q->gone && q->r.tag == tag)
			cut_short(e, q, FINISH_CANCELLED);
	}
	end_due(e, tag, 0, FINISH_CANCELLED);
}

void engine_drop_all(struct engine *e, enum finish why)
{
	for (int64_t i = 0; i < e->n_numbers; i++) {
		struct active *q = e->of_number[i];
		if (q && !q->gone)
			cut_short(e, q, why);
	}
	end_due(e, NULL, 1, why);
}

/* What has not begun; siblings of what has go on. */
static void drop_waiting(struct engine *e)
{
	for (int64_t i = 0; i < e->n_numbers; i++) {
		struct active *q = e->of_number[i];
		if (q && !q->gone && !q->is_sibling && q->a.n_tokens == 0 && schedule_is_waiting(e->schedule, q->number))
			cut_short(e, q, FINISH_DROPPED);
	}
}

void engine_obey(struct engine *e)
{
	enum engine_order order = e->calls->order ? e->calls->order(e->calls->arg, e) : ENGINE_GO_ON;
	if (order == ENGINE_DROP_ALL)
		engine_drop_all(e, FINISH_DROPPED);
	else if (order == ENGINE_ADMIT_NO_MORE && !e->no_more)
		drop_waiting(e);
	e->no_more |= order != ENGINE_GO_ON;
}

void engine_landed(struct engine *e, const struct step *step)
{
	schedule_landed(e->schedule, step);
	for (int32_t i = 0; i < step->n_slices; i++) {
		struct active *q = e->of_number[step->slices[i].sequence];
		if (--q->flying == 0 && q->gone && !(step->slices[i].flags & SLICE_SAMPLE))
			end(e, q, q->a.finish);
	}
}

static int is_stop_token(const struct active *q, int32_t token)
{
	for (int i = 0; i < q->r.n_stop_tokens; i++)
		if (q->stop_tokens[i] == token)
			return 1;
	return 0;
}

static void say_fault(struct answer *a, int32_t fault)
{
	char sentence[200];
	snprintf(sentence, sizeof sentence, "%s (for token %" PRId64 " of the answer)", sample_fault_text(fault), a->n_tokens + 1);
	a->finish = FINISH_ERROR;
	if (mem_copy_string(sentence, &a->error))
		a->error = NULL;
}

/* A token. Gives 1 when the answer goes on. One that was cancelled by a call for another result of this step has no number any more. */
static int take_one(struct engine *e, const struct step_result *r, const struct sample_logprobs *logprobs)
{
	struct active *q = e->of_number[r->sequence];
	if (!q)
		return 0;
	int64_t room = schedule_room(e->schedule, r->sequence);
	struct answer *a = &q->a;
	if (q->gone || r->fault) {
		if (!q->gone)
			say_fault(a, r->fault);
		schedule_token(e->schedule, r->sequence, 0, 0);
		end(e, q, a->finish);
		return 0;
	}
	if (logprobs)
		a->logprobs[a->n_tokens] = *logprobs;
	a->tokens[a->n_tokens++] = r->token;
	a->digest += r->digest;
	a->finish = is_stop_token(q, r->token) ? FINISH_STOP : room > 1 ? FINISH_NOT_YET : FINISH_LENGTH;
	let_siblings_start(e, q);
	e->telling = q;
	int ended = e->calls->token && e->calls->token(e->calls->arg, a, r->token);
	e->telling = NULL;
	if (ended && !q->gone)
		a->finish = FINISH_STOP;
	schedule_token(e->schedule, r->sequence, r->token, a->finish == FINISH_NOT_YET);
	if (a->finish == FINISH_NOT_YET)
		return 1;
	end(e, q, a->finish);
	return 0;
}

int64_t engine_take(struct engine *e, const struct slice *sl, const int32_t *drafts, const struct step_result *r,
		    const struct sample_logprobs *logprobs)
{
	int64_t n = 0;
	while (take_one(e, &r[n], logprobs ? &logprobs[n] : NULL) && n < sl->n_drafts && r[n].token == drafts[n])
		n++;
	return n;
}
