#include "launcher/batch_work.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/stop_text.h"

#include <stdio.h>
#include <string.h>

/* One answer to a line. */
struct choice {
	struct answer a;
	struct bytes text;
	struct detokenizer detokenizer;
	struct stop_text stop;
	struct held held;            /* where the line has a format */
	int is_over;                 /* its document is whole, with the last token */
	long long first_us;          /* when its first token came; 0: not yet */
};

struct line {
	struct batch_request r;
	struct tokens prompt;
	struct token_bias *biases;
	int64_t left;                /* answers that are not done */
	int dropped;
	long long came_us;           /* when the engine got the first of its answers; 0: not yet */
	const char *fault_code;      /* NULL: none */
	char fault[sizeof ((struct batch_request *)0)->fault];
	struct choice *choices;      /* (n) */
	int64_t n;
	struct format *format;       /* NULL: none; as for the rest */
	int32_t *stops;              /* tokens that may end a document */
	int n_stops;
	int64_t handed;              /* answers that the engine has */
	struct line *next;           /* among the siblings */
};

void batch_defaults(const struct recipe *r, struct batch_sampling *out)
{
	*out = (struct batch_sampling){
		.temperature = r->generation.temperature, .top_p = r->generation.top_p, .min_p = r->generation.min_p,
		.repetition_penalty = r->generation.repetition_penalty, .presence_penalty = r->generation.presence_penalty,
		.frequency_penalty = r->generation.frequency_penalty, .top_k = r->generation.top_k, .seed = r->generation.seed,
		.n = r->generation.n, .max_tokens = r->generation.max_tokens, .min_tokens = r->generation.min_tokens,
		.logprobs = r->generation.logprobs > 0, .top_logprobs = r->generation.logprobs,
		.ignore_eos = r->generation.ignore_eos };
}

static void line_free(struct line *l)
{
	for (int64_t i = 0; l->choices && i < l->n; i++) {
		answer_free(&l->choices[i].a);
		bytes_free(&l->choices[i].text);
		stop_text_free(&l->choices[i].stop);
		held_free(&l->choices[i].held);
	}
	format_release(l->format);
	mem_free(l->stops);
	batch_request_free(&l->r);
	tokens_free(&l->prompt);
	mem_free(l->biases);
	mem_free(l->choices);
	mem_free(l);
}

/* Ends the batch; the sentence is kept. */
static void fail(struct batch_work *w, enum err e)
{
	if (!e || w->error)
		return;
	w->error = e;
	w->record = *err_last();
}

/* --- results --- */

static enum err append(struct batch_work *w, uint64_t line, int fault)
{
	TRY(w->text.error);
	w->done++;
	w->faults += fault;
	return journal_append(w->journal, line, bytes_text(&w->text), w->text.size, fault, clock_us());
}

static enum err append_fault(struct batch_work *w, const struct batch_request *r, const char *code, const char *message)
{
	bytes_clear(&w->text);
	TRY(batch_output_fault(&w->output, r->line, r->custom_id, code, message, &w->text));
	return append(w, r->line, 1);
}

/* The sentence that is recorded becomes the line's result. */
static enum err append_error(struct batch_work *w, const struct batch_request *r, enum err e)
{
	char message[sizeof r->fault];
	if (e == ERR_MEMORY || e == ERR_BUG)
		return e;
	snprintf(message, sizeof message, "line %llu: %s", (unsigned long long)r->line + 1, err_sentence());
	err_clear();
	return append_fault(w, r, "invalid_request", message);
}

/* Texts of tokens are one after the other in `room`; `at` counts them. */
struct pieces { struct bytes *room; size_t *ends; int64_t at; };

static enum err put_piece(const struct batch_work *w, struct pieces *p, int32_t token)
{
	TRY(tokenizer_piece(w->tokenizer, token, p->room));
	p->ends[p->at++] = p->room->size;
	return p->room->error;
}

static struct batch_text piece_at(const struct pieces *p, int64_t i)
{
	size_t begin = i ? p->ends[i - 1] : 0;
	return (struct batch_text){ bytes_text(p->room) + begin, p->ends[i] - begin };
}

struct shown_logprobs { struct batch_logprob *of; struct batch_best *best; struct bytes room; size_t *ends; };

static void shown_free(struct shown_logprobs *s)
{
	bytes_free(&s->room);
	mem_free(s->of);
	mem_free(s->best);
	mem_free(s->ends);
}

/* The log-probabilities of n tokens of an answer. Its pieces are put first, as the room may move while it grows. */
static enum err show_logprobs(const struct batch_work *w, const struct answer *a, int64_t n, struct shown_logprobs *s)
{
	struct pieces p = { .room = &s->room };
	int64_t n_best = 0, best = 0;
	for (int64_t i = 0; i < n; i++)
		n_best += a->logprobs[i].n;
	TRY(MEM_NEW((size_t)n, struct batch_logprob, &s->of));
	TRY(MEM_NEW((size_t)n_best, struct batch_best, &s->best));
	TRY(MEM_NEW((size_t)(n + n_best), size_t, &s->ends));
	p.ends = s->ends;
	for (int64_t i = 0; i < n; i++) {
		TRY(put_piece(w, &p, a->tokens[i]));
		for (int32_t k = 0; k < a->logprobs[i].n; k++)
			TRY(put_piece(w, &p, a->logprobs[i].best[k].token));
	}
	p.at = 0;
	for (int64_t i = 0; i < n; i++) {
		s->of[i] = (struct batch_logprob){ piece_at(&p, p.at++), (double)a->logprobs[i].chosen, s->best + best,
						   a->logprobs[i].n };
		for (int32_t k = 0; k < a->logprobs[i].n; k++)
			s->best[best++] = (struct batch_best){ piece_at(&p, p.at++), (double)a->logprobs[i].best[k].logprob };
	}
	return ERR_OK;
}

/* Tokens of an answer that its text is made of: all but a stop token at its end. */
static int64_t text_tokens(const struct choice *c)
{
	int by_token = c->a.finish == FINISH_STOP && c->stop.found < 0 && !c->is_over && c->a.n_tokens > 0;
	return c->a.n_tokens - by_token;
}

static enum err append_answers(struct batch_work *w, struct line *l)
{
	struct batch_choice *choices = NULL;
	struct shown_logprobs *shown = NULL;
	struct batch_usage usage = { .prompt_tokens = l->prompt.n };
	enum err e = MEM_NEW((size_t)l->n, struct batch_choice, &choices);
	if (!e)
		e = MEM_NEW((size_t)l->n, struct shown_logprobs, &shown);
	for (int64_t i = 0; !e && i < l->n; i++) {
		struct choice *c = &l->choices[i];
		choices[i] = (struct batch_choice){ .text = { bytes_text(&c->text), c->text.size },
						    .finish_reason = c->a.finish == FINISH_STOP ? "stop" : "length" };
		usage.completion_tokens += c->a.n_tokens;
		e = c->text.error;
		if (e || !c->a.logprobs)
			continue;
		e = show_logprobs(w, &c->a, text_tokens(c), &shown[i]);
		choices[i].logprobs = shown[i].of;
		choices[i].n_logprobs = text_tokens(c);
	}
	bytes_clear(&w->text);
	if (!e)
		e = batch_output_answer(&w->output, &l->r, choices, l->n, &usage, &w->text);
	if (!e)
		e = append(w, l->r.line, 0);
	for (int64_t i = 0; shown && i < l->n; i++)
		shown_free(&shown[i]);
	mem_free(shown);
	mem_free(choices);
	return e;
}

/* --- from a line to a request --- */

static enum err tokenize_chat(struct batch_work *w, struct line *l)
{
	const struct template *t = chat_templates_pick(w->templates, l->r.tools != NULL);
	struct template_result text = { 0 };
	if (!t)
		return ERR(WORK, "the model has no chat template; send prompts to /v1/completions");
	enum err e = chat_parse_arguments(l->r.messages);
	if (!e)
		e = template_render(t, &(struct template_input){ .messages = l->r.messages, .tools = l->r.tools,
			.variables = l->r.template_arguments, .own = w->templates->own, .add_generation_prompt = 1,
			.now_s = w->output.created }, &text);
	if (!e)
		e = template_tokenize(t, &text, w->tokenizer, &l->prompt);
	template_result_free(&text);
	return e;
}

static enum err tokenize(struct batch_work *w, struct line *l)
{
	if (l->r.kind == BATCH_CHAT)
		return tokenize_chat(w, l);
	if (l->r.prompt)
		return tokenizer_encode(w->tokenizer, l->r.prompt, l->r.prompt_bytes, TOKENIZE_ADD_SPECIAL, &l->prompt);
	for (int64_t i = 0; i < l->r.n_prompt_ids; i++)
		TRY(tokens_push(&l->prompt, l->r.prompt_ids[i]));
	return ERR_OK;
}

static void begin_choices(struct batch_work *w, struct line *l)
{
	const struct recipe_strings *usual = &w->recipe->generation.stop;
	for (int64_t i = 0; i < l->n; i++)
		if (l->r.n_stops)
			stop_text_begin(&l->choices[i].stop, l->r.stops, (int)l->r.n_stops);
		else
			stop_text_begin(&l->choices[i].stop, (const char *const *)usual->items, usual->n);
}

/* Masks for the first token of each answer. */
static enum err hold(struct batch_work *w, struct line *l)
{
	int n_eos = l->r.sampling.ignore_eos ? 0 : w->model->n_eos;
	if (!w->formats)
		TRY(formats_create(w->tokenizer, w->model->n_vocab, &w->formats));
	TRY(formats_find(w->formats, l->r.response_format, &l->format));
	TRY(MEM_NEW((size_t)(n_eos + l->r.n_stop_ids), int32_t, &l->stops));
	for (int i = 0; i < n_eos; i++)
		l->stops[l->n_stops++] = w->model->eos[i];
	for (int64_t i = 0; i < l->r.n_stop_ids; i++)
		l->stops[l->n_stops++] = l->r.stop_ids[i];
	for (int64_t i = 0; i < l->n; i++)
		TRY(format_begin(l->format, l->stops, l->n_stops, &l->choices[i].held));
	return ERR_OK;
}

static enum err make_line(struct batch_work *w, const struct batch_request *r, struct line **out)
{
	struct line *l;
	enum err e;
	TRY(MEM_NEW(1, struct line, &l));
	l->r = *r;
	if (r->custom_id == r->made_id)
		l->r.custom_id = l->r.made_id;
	l->n = l->left = r->sampling.n;
	TRY_OR(free_it, e, tokenize(w, l));
	TRY_OR(free_it, e, MEM_NEW((size_t)l->n, struct choice, &l->choices));
	TRY_OR(free_it, e, MEM_NEW((size_t)r->n_biases, struct token_bias, &l->biases));
	for (int64_t i = 0; i < r->n_biases; i++)
		l->biases[i] = (struct token_bias){ r->biases[i].token, r->biases[i].bias };
	begin_choices(w, l);
	if (r->response_format)
		TRY_OR(free_it, e, hold(w, l));
	*out = l;
	return ERR_OK;
free_it:
	l->r = (struct batch_request){ 0 };   /* stays the caller's */
	line_free(l);
	return e;
}

/* The line's answers, or the next of those that are held to a format. */
static void make_request(const struct batch_work *w, struct line *l, struct request *out)
{
	const struct batch_sampling *s = &l->r.sampling;
	*out = w->wishes.request;
	out->prompt = l->prompt.ids, out->n_prompt = l->prompt.n;
	out->max_tokens = s->max_tokens, out->min_tokens = s->min_tokens, out->n = (int)s->n, out->ignore_eos = s->ignore_eos;
	out->sample = (struct sample_params){
		.temperature = (float)s->temperature, .top_k = (int32_t)s->top_k, .top_p = (float)s->top_p, .min_p = (float)s->min_p,
		.seed = (uint64_t)s->seed, .logprobs = s->logprobs ? 1 + (int32_t)s->top_logprobs : 0 };
	out->repetition_penalty = (float)s->repetition_penalty;
	out->frequency_penalty = (float)s->frequency_penalty;
	out->presence_penalty = (float)s->presence_penalty;
	if (l->r.n_biases)
		out->biases = l->biases, out->n_biases = (int)l->r.n_biases;
	if (l->r.n_stop_ids)
		out->stop_tokens = l->r.stop_ids, out->n_stop_tokens = (int)l->r.n_stop_ids;
	out->tag = l;
	if (!l->format)
		return;
	out->mask = l->choices[l->handed].held.allowed;
	out->sample.choice = (uint32_t)l->handed++;
	out->n = 1;
}

/* Reads a line. *out stays NULL when there is nothing to compute for it. */
static enum err read_line(struct batch_work *w, struct line **out)
{
	struct batch_request r;
	int more;
	*out = NULL;
	TRY(batch_input_next(w->input, &r, &more));
	if (!more) {
		w->ended = 1;
		return journal_input_end(w->journal);
	}
	enum err e = journal_input(w->journal, batch_input_lines(w->input), batch_input_digest(w->input));
	if (!e && !journal_has(w->journal, r.line)) {
		e = r.fault_code ? append_fault(w, &r, r.fault_code, r.fault) : make_line(w, &r, out);
		if (!e && *out)
			return ERR_OK;
		if (e && !r.fault_code)
			e = append_error(w, &r, e);
	}
	batch_request_free(&r);
	return e;
}

/* --- answers of a line that are handed over one by one --- */

static void unlink_siblings(struct batch_work *w, struct line *l)
{
	struct line **at = &w->siblings;
	while (*at && *at != l)
		at = &(*at)->next;
	if (*at)
		*at = l->next;
	l->next = NULL;
}

static void link_siblings(struct batch_work *w, struct line *l)
{
	struct line **at = &w->siblings;
	while (*at)
		at = &(*at)->next;
	*at = l;
}

/* Those that the engine does not have are not computed; the line gets no result but its fault. */
static void drop_siblings(struct batch_work *w, struct line *l)
{
	if (!l->format || l->handed == l->n)
		return;
	unlink_siblings(w, l);
	w->unhanded--;
	l->left -= l->n - l->handed;
	l->handed = l->n;
	l->dropped |= !l->fault_code;
}

static void hand_sibling(struct batch_work *w, struct request *r)
{
	struct line *l = w->siblings;
	make_request(w, l, r);
	if (l->handed < l->n)
		return;
	unlink_siblings(w, l);
	w->unhanded--;
}

static void end_line(struct batch_work *w, struct line *l)
{
	w->running--;
	w->dropped += l->dropped;
	if (l->fault_code)
		fail(w, append_fault(w, &l->r, l->fault_code, l->fault));
	else if (!l->dropped)
		fail(w, append_answers(w, l));
	line_free(l);
}

/* The engine takes nothing any more. */
static void drop_all_siblings(struct batch_work *w)
{
	w->no_more = 1;
	while (w->siblings) {
		struct line *l = w->siblings;
		drop_siblings(w, l);
		if (!l->left)
			end_line(w, l);
	}
}

/* --- the engine's calls --- */

/* There is nothing to do, or something again. */
static void count_idle(struct batch_work *w, int is_idle)
{
	if (is_idle == (w->idle_since_us != 0))
		return;
	long long now = clock_us();
	w->idle_us += is_idle ? 0 : now - w->idle_since_us;
	w->idle_since_us = is_idle ? now : 0;
}

/* An answer as the timings want it. */
static void count_answer(struct batch_work *w, const struct line *l, const struct choice *c)
{
	struct timed_answer t = { .came_us = l->came_us, .first_us = c->first_us, .ended_us = clock_us(), .n_prompt = l->prompt.n,
				  .n_tokens = c->a.n_tokens };
	if (l->dropped)
		return;
	timed_answer_name(&t, l->r.custom_id ? l->r.custom_id : "");
	timings_add(&w->timings, &t);
}

static enum engine_next next(void *arg, struct request *r)
{
	struct batch_work *w = arg;
	struct line *l = NULL;
	if (w->siblings && !w->error) {
		hand_sibling(w, r);
		return ENGINE_REQUEST;
	}
	while (!l && !w->ended && !w->error) {
		if (!batch_input_ready(w->input)) {
			count_idle(w, w->running == 0);
			return ENGINE_NONE_NOW;
		}
		fail(w, read_line(w, &l));
		if (!l)
			fail(w, journal_tick(w->journal, clock_us()));
	}
	count_idle(w, 0);
	if (!l)
		return w->unhanded && !w->error ? ENGINE_NONE_NOW : ENGINE_NO_MORE;
	make_request(w, l, r);
	w->unhanded += l->format && l->handed < l->n;
	w->running++;
	l->came_us = clock_us();
	return ENGINE_REQUEST;
}

/* A token of an answer that is held to a format: what may come after it. */
static int hold_on(struct batch_work *w, struct line *l, struct choice *c, const struct answer *a, int32_t id)
{
	if (a->n_tokens == 1 && a->choice == 0 && l->handed < l->n && !w->no_more)
		link_siblings(w, l);
	if (a->finish == FINISH_STOP)
		return 0;
	fail(w, held_token(&c->held, id, &c->is_over));
	return c->is_over;
}

static int token(void *arg, const struct answer *a, int32_t id)
{
	struct batch_work *w = arg;
	struct line *l = a->tag;
	struct choice *c = &l->choices[a->choice];
	int is_over = l->format && hold_on(w, l, c, a, id);
	w->tokens++;
	if (!c->first_us)
		c->first_us = clock_us();
	if (a->finish == FINISH_STOP)   /* a stop token has no text */
		return 0;
	bytes_clear(&w->text);
	fail(w, detokenizer_put(&c->detokenizer, w->tokenizer, id, &w->text));
	return stop_text_put(&c->stop, bytes_text(&w->text), w->text.size, &c->text) || is_over;
}

static void end_text(struct batch_work *w, struct choice *c)
{
	bytes_clear(&w->text);
	detokenizer_end(&c->detokenizer, &w->text);
	stop_text_put(&c->stop, bytes_text(&w->text), w->text.size, &c->text);
	stop_text_end(&c->stop, &c->text);
}

static void done(void *arg, struct answer *a)
{
	struct batch_work *w = arg;
	struct line *l = a->tag;
	struct choice *c = &l->choices[a->choice];
	if (a->finish == FINISH_DROPPED || a->finish == FINISH_CANCELLED)
		l->dropped = 1;
	if ((a->finish == FINISH_REFUSED || a->finish == FINISH_ERROR) && !l->fault_code) {
		l->fault_code = a->finish == FINISH_REFUSED ? "invalid_request" : "server_error";
		snprintf(l->fault, sizeof l->fault, "line %llu: %s", (unsigned long long)l->r.line + 1,
			 a->error ? a->error : "no token could be chosen");
	}
	if (w->no_more || (a->finish != FINISH_STOP && a->finish != FINISH_LENGTH))
		drop_siblings(w, l);
	if (a->finish == FINISH_REFUSED && a->code == ERR_MEMORY)
		fail(w, ERR(MEMORY, "%s", l->fault));
	if (c->stop.found < 0)
		end_text(w, c);
	c->a = *a;
	a->tokens = NULL;
	a->logprobs = NULL;
	a->error = NULL;
	count_answer(w, l, c);
	if (--l->left == 0)
		end_line(w, l);
}

static enum engine_order order(void *arg, struct engine *e)
{
	struct batch_work *w = arg;
	long long now = clock_us();
	(void)e;
	fail(w, journal_tick(w->journal, now));
	struct batch_times times = w->times(w->arg);
	int is_last_call = w->error || now >= times.drop_at_us;
	if (is_last_call || now >= times.admit_until_us)
		drop_all_siblings(w);
	if (is_last_call)
		return ENGINE_DROP_ALL;
	return now >= times.admit_until_us ? ENGINE_ADMIT_NO_MORE : ENGINE_GO_ON;
}

void batch_work_calls(struct batch_work *w, struct engine_calls *calls)
{
	*calls = (struct engine_calls){ .next = next, .token = token, .done = done, .order = order, .arg = w };
}

void batch_work_free(struct batch_work *w)
{
	w->error = w->error ? w->error : ERR_LOST;
	drop_all_siblings(w);
	formats_destroy(w->formats);
	bytes_free(&w->text);
}

enum err batch_work_end(struct batch_work *w)
{
	count_idle(w, 0);
	if (!w->error)
		return journal_commit(w->journal, clock_us());
	err_restore(&w->record);
	return w->error;
}
