#include "launcher/commands.h"

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double rate(int64_t tokens, double seconds) { return seconds > 0 ? (double)tokens / seconds : 0; }

void report_rates(const struct session *s, const struct generation *g)
{
	LOG_ROOT(INFO, "prefill %" PRId64 " tokens, %.1f tokens/s; decode %" PRId64 " tokens, %.1f tokens/s; load %.2f s; kernels %s",
		 g->prefill_tokens, rate(g->prefill_tokens, g->prefill_s), g->decode_tokens, rate(g->decode_tokens, g->decode_s),
		 s->load_s, s->kernels->name);
	report_drafts(&g->counts);
}

/* Tokens that a step gave beyond one, of the steps of a sequence with drafts. */
static double accepted_per_step(const struct schedule_counts *c)
{
	return c->draft_slices ? (double)c->accepted / (double)c->draft_slices : 0;
}

void report_drafts(const struct schedule_counts *c)
{
	if (c->drafted)
		LOG_ROOT(INFO, "speculation: %" PRId64 " tokens drafted, %" PRId64 " accepted: %.2f in each of %" PRId64 " steps", c->drafted,
			 c->accepted, accepted_per_step(c), c->draft_slices);
}

/* A machine without its name. */
static void describe_nameless(const struct machine *m, struct bytes *to)
{
	struct machine nameless = *m;   /* borrows the arrays */
	nameless.host[0] = '\0';
	bytes_clear(to);
	machine_print(&nameless, to);
}

void report_machines(const struct cluster *c, struct bytes *to)
{
	struct bytes first = { 0 }, next = { 0 };
	for (int i = 0, end; i < c->n_nodes; i = end) {
		describe_nameless(&c->nodes[i], &first);
		for (end = i + 1; end < c->n_nodes; end++) {
			describe_nameless(&c->nodes[end], &next);
			if (strcmp(bytes_text(&first), bytes_text(&next)))
				break;
		}
		machine_print(&c->nodes[i], to);
		if (end - i > 1)
			bytes_printf(to, "  and %d more like it, up to %s\n", end - i - 1, c->nodes[end - 1].host);
	}
	bytes_free(&first);
	bytes_free(&next);
}

void report_traffic(const struct grid_traffic rows[GRID_TRAFFIC_ROWS])
{
	LOG_ROOT(INFO, "%-8s %5s %5s  %-8s %10s %14s %20s", "axis", "ranks", "nodes", "link", "calls", "bytes", "bytes between nodes");
	for (int i = 0; i < GRID_TRAFFIC_ROWS; i++) {
		const struct grid_traffic *r = &rows[i];
		if (r->stats.calls)
			LOG_ROOT(INFO, "%-8s %5d %5d  %-8s %10" PRIu64 " %14" PRIu64 " %20" PRIu64, r->axis, r->ranks, r->nodes,
				 r->link, r->stats.calls, r->stats.bytes, r->stats.bytes_between_nodes);
	}
}

static json_t *layout_json(const struct plan *p)
{
	return json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "ranks", p->n_ranks, "tp", p->layout.tp, "pp", p->layout.pp, "ep",
			 p->layout.ep, "dp", p->layout.dp, "etp", p->layout.etp);
}

static const char *finish_name(enum finish f)
{
	return f == FINISH_STOP ? "stop" : f == FINISH_LENGTH ? "length" : "error";
}

/* Text as JSON can hold it: bytes that are not UTF-8 were replaced by the detokenizer, but a prompt may hold any. */
static json_t *text_json(const char *text, size_t bytes)
{
	json_t *j = text ? json_stringn(text, bytes) : NULL;
	return j ? j : json_null();
}

static json_t *token_json(int32_t token, const struct sample_logprobs *l)
{
	json_t *best = json_array();
	for (int i = 0; i < l->n; i++)
		json_array_append_new(best, json_pack("[i,f]", l->best[i].token, (double)l->best[i].logprob));
	return json_pack("{s:i,s:f,s:o}", "token", token, "logprob", (double)l->chosen, "best", best);
}

static json_t *answer_json(const struct answer *a, const char *prompt, const struct bytes *text)
{
	char digest[24];
	json_t *tokens = json_array();
	for (int64_t i = 0; i < a->n_tokens; i++)
		json_array_append_new(tokens, json_integer(a->tokens[i]));
	snprintf(digest, sizeof digest, "%016" PRIx64, a->digest);
	json_t *answer = json_pack("{s:o,s:o,s:o,s:s,s:s,s:i}", "prompt", text_json(prompt, prompt ? strlen(prompt) : 0), "text",
				   text_json(bytes_text(text), text->size), "tokens", tokens, "finish_reason",
				   finish_name(a->finish), "logits_digest", digest, "choice", (int)a->choice);
	if (a->error)
		json_object_set_new(answer, "error", json_string(a->error));
	if (a->logprobs) {
		json_t *logprobs = json_array();
		for (int64_t i = 0; i < a->n_tokens; i++)
			json_array_append_new(logprobs, token_json(a->tokens[i], &a->logprobs[i]));
		json_object_set_new(answer, "logprobs", logprobs);
	}
	return answer;
}

enum err report_run_json(const struct session *s, const struct generation *g, const struct grid_traffic rows[GRID_TRAFFIC_ROWS],
			 const char *const *prompts, const struct bytes *texts, json_t **out)
{
	json_t *results = json_array(), *communicators = json_array();
	int64_t each = g->n_requests ? g->n_answers / g->n_requests : 1;      /* all have as many */
	for (int64_t i = 0; i < g->n_answers; i++)
		json_array_append_new(results, answer_json(&g->answers[i], prompts[i / each], &texts[i]));
	for (int i = 0; i < GRID_TRAFFIC_ROWS; i++) {
		const struct grid_traffic *r = &rows[i];
		json_array_append_new(communicators, json_pack("{s:s,s:i,s:i,s:s,s:I,s:I,s:I}", "axis", r->axis, "ranks", r->ranks,
				"nodes", r->nodes, "link", r->link, "calls", (json_int_t)r->stats.calls, "bytes",
				(json_int_t)r->stats.bytes, "bytes_between_nodes", (json_int_t)r->stats.bytes_between_nodes));
	}
	json_t *speculation = json_pack("{s:I,s:I,s:I,s:f}", "steps", (json_int_t)g->counts.draft_slices, "drafted",
					(json_int_t)g->counts.drafted, "accepted", (json_int_t)g->counts.accepted, "accepted_per_step",
					accepted_per_step(&g->counts));
	*out = json_pack("{s:o,s:o,s:I,s:I,s:{s:f,s:f,s:f},s:o,s:s,s:o}", "results", results, "layout", layout_json(&s->plan),
			 "shared_tokens", (json_int_t)g->counts.shared_tokens, "put_back", (json_int_t)g->counts.put_back, "timings",
			 "load_s", s->load_s, "prefill_tokens_per_s", rate(g->prefill_tokens, g->prefill_s),
			 "decode_tokens_per_s", rate(g->decode_tokens, g->decode_s), "communicators", communicators, "kernels",
			 s->kernels->name, "speculation", speculation);
	return *out ? ERR_OK : ERR(MEMORY, "no memory for the JSON report");
}

static json_t *range_json(struct range r) { return json_pack("[I,I]", (json_int_t)r.begin, (json_int_t)r.end); }

enum err report_plan_json(const struct plan *p, const struct model *m, const struct cluster *c, json_t **out)
{
	json_t *ranks = json_array();
	for (int i = 0; i < p->n_ranks; i++) {
		const struct plan_rank *k = &p->ranks[i];
		json_t *device = k->member.device < 0 ? json_null()
						      : json_string(c->nodes[k->member.node].devices[k->member.device].name);
		json_array_append_new(ranks, json_pack("{s:i,s:s,s:o,s:i,s:i,s:i,s:i,s:o,s:o,s:o,s:I,s:I,s:I}", "rank", i, "host",
				c->nodes[k->member.node].host, "device", device, "tp", k->member.tp, "pp", k->member.pp, "ep",
				k->member.ep, "dp", k->member.dp, "layers", range_json(k->shard.layers), "heads",
				range_json(k->shard.heads), "experts",
				range_json(m->n_expert ? k->shard.experts : (struct range){ 0, 0 }), "weights_bytes",
				(json_int_t)k->weights_bytes, "kv_bytes", (json_int_t)k->kv_bytes, "buffer_bytes",
				(json_int_t)k->buffer_bytes));
	}
	*out = json_pack("{s:o,s:o}", "layout", layout_json(p), "ranks", ranks);
	return *out ? ERR_OK : ERR(MEMORY, "no memory for the JSON report");
}

enum err report_print_json(json_t *object)
{
	char *text = json_dumps(object, JSON_REAL_PRECISION(9));
	json_decref(object);
	if (!text)
		return ERR(MEMORY, "no memory for the JSON text");
	enum err e = print_out(text, strlen(text));
	free(text);
	return e ? e : print_out("\n", 1);
}

enum err print_out(const void *text, size_t bytes)
{
	const char *at = text;
	while (bytes) {
		ssize_t n = write(STDOUT_FILENO, at, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ERR(IO, "standard output cannot be written: %s", strerror(errno));
		at += n;
		bytes -= (size_t)n;
	}
	return ERR_OK;
}
