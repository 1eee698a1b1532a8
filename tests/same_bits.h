/* Runs prompts over a model in a world of threads and gives tokens and digests: what the same-bits tests compare. */
#ifndef SHARDRUN_TESTS_SAME_BITS_H
#define SHARDRUN_TESTS_SAME_BITS_H

#include "base/json.h"
#include "base/mem.h"
#include "parallel/comm.h"
#include "runtime/session.h"

#include <stdio.h>
#include <string.h>

enum { BITS_MAX_PROMPTS = 16, BITS_MAX_NEW = 64, BITS_MAX_PROMPT = 512 };

struct bits_prompt { int32_t ids[BITS_MAX_PROMPT]; int n; };

struct bits_run {
	const char *model;
	struct layout layout;                /* all axes given, or LAYOUT_AUTO */
	int ranks, nodes;                    /* the world; ranks are dealt to the nodes in turn blocks */
	int threads;
	int64_t step_tokens, sequences, new_tokens;
	int64_t context;                     /* 0: 256 */
	int64_t pages;                       /* of the KV cache; 0: enough for all */
	int speculates;
	enum kv_type kv_type;
	enum arithmetic arithmetic;
	const char *isa;
	int tp_across_nodes;
	const struct bits_prompt *prompts;
	int n_prompts;
	float temperature;
	int first_choice;                    /* prompt i draws as answer number first_choice + i */
	float *all_logits;                   /* NULL, or room for (prompt tokens, V): the logits of one prompt's positions */
	int logits_prompt;                   /* which prompt's */
};

struct bits_result {
	uint64_t digest[BITS_MAX_PROMPTS];
	int32_t tokens[BITS_MAX_PROMPTS][BITS_MAX_NEW];
	int64_t n_tokens[BITS_MAX_PROMPTS];
	uint64_t read_bytes, expected_read_bytes;   /* summed over ranks */
	int uneven_reads;                           /* ranks that did not read exactly their shard */
	struct grid_traffic traffic[GRID_TRAFFIC_ROWS];
	struct layout layout;                       /* as completed */
	struct schedule_counts counts;
};

struct bits_job { const struct bits_run *run; struct bits_result *result; struct cluster cluster; };

static inline enum err bits_generate(struct comm *world, struct session *s, const struct bits_run *b, struct bits_result *out)
{
	struct request requests[BITS_MAX_PROMPTS];
	struct generation g = { 0 };
	memset(requests, 0, sizeof requests);
	for (int i = 0; i < b->n_prompts; i++)
		requests[i] = (struct request){ .prompt = b->prompts[i].ids, .n_prompt = b->prompts[i].n, .max_tokens = b->new_tokens,
				.sample = { .temperature = b->temperature, .top_p = 0.95f, .top_k = 50, .seed = 7,
					    .choice = (uint32_t)(b->first_choice + i) } };
	requests[b->logits_prompt].all_logits = b->all_logits != NULL;
	if (comm_rank(world) == 0)
		g = (struct generation){ .requests = requests, .n_requests = b->n_prompts, .ignore_eos = 1,
					 .all_logits = b->all_logits };
	enum err e = session_generate(s, &g);
	struct grid_traffic rows[GRID_TRAFFIC_ROWS];
	if (!e)
		e = grid_traffic(s->grid, rows);
	uint64_t sums[3] = { s->read_bytes, s->expected_read_bytes, s->read_bytes != s->expected_read_bytes };
	if (!e)
		e = comm_allreduce(world, sums, 3, COMM_U64, COMM_SUM);
	if (!e && comm_rank(world) == 0) {
		for (int i = 0; i < b->n_prompts; i++) {
			out->digest[i] = g.answers[i].digest;
			out->n_tokens[i] = g.answers[i].n_tokens;
			memcpy(out->tokens[i], g.answers[i].tokens, (size_t)g.answers[i].n_tokens * sizeof(int32_t));
		}
		memcpy(out->traffic, rows, sizeof rows);
		out->read_bytes = sums[0], out->expected_read_bytes = sums[1], out->uneven_reads = (int)sums[2];
		out->layout = s->plan.layout;
		out->counts = g.counts;
	}
	answers_free(g.answers, g.n_answers);
	return e;
}

static inline enum err bits_body(struct comm *world, void *arg)
{
	struct bits_job *j = arg;
	const struct bits_run *b = j->run;
	struct place place = { 0 };
	struct session *s = NULL;
	struct session_wish wish = { .model_path = b->model, .isa = b->isa ? b->isa : "auto" };
	wish.plan.layout = b->layout;
	wish.plan.layout.tp_across_nodes = b->tp_across_nodes;
	wish.plan.threads = b->threads;
	wish.plan.step_tokens = b->step_tokens ? b->step_tokens : 512;
	wish.plan.sequences = b->sequences ? b->sequences : 4;
	wish.plan.context = b->context ? b->context : 256;
	wish.plan.useful_pages = b->pages;
	wish.plan.speculates = b->speculates;
	wish.plan.kv_type = b->kv_type;
	wish.plan.arithmetic = b->arithmetic;
	enum err e = place_invent(&j->cluster, b->ranks, 0, &place);
	if (!e)
		e = session_create(world, &wish, &place, &s);
	if (!e)
		e = bits_generate(world, s, b, j->result);
	session_destroy(s);
	place_free(&place);
	return e;
}

static inline enum err bits_run(const struct bits_run *b, struct bits_result *out)
{
	int node_of[64] = { 0 }, nodes = b->nodes ? b->nodes : 1;
	struct bits_job j = { .run = b, .result = out };
	char spec[64];
	memset(out, 0, sizeof *out);
	snprintf(spec, sizeof spec, "%d x pack:1 core:32 pu:1", nodes);
	TRY(cluster_read(spec, &j.cluster));    /* here, not in the ranks: it forks, which threads do not take well */
	for (int n = 0, r = 0; n < nodes; n++)                /* as place_invent spreads them */
		for (int k = 0; k < b->ranks / nodes + (n < b->ranks % nodes) && r < 64; k++)
			node_of[r++] = n;
	enum err e = comm_inproc_run(b->ranks, node_of, bits_body, &j);
	cluster_free(&j.cluster);
	return e;
}

/* expected.json: prompts and greedy continuations made by another implementation. Gives the number read. */
static inline int bits_read_expected(const char *path, struct bits_prompt *prompts, int32_t (*greedy)[BITS_MAX_NEW], int max)
{
	json_t *list;
	int n = 0;
	if (json_parse_file(path, 1 << 20, ERR_MODEL, &list))
		return 0;
	for (; n < max && n < (int)json_array_size(list); n++) {
		json_t *ids = json_object_get(json_array_get(list, (size_t)n), "ids");
		json_t *tokens = json_object_get(json_array_get(list, (size_t)n), "greedy");
		prompts[n].n = (int)json_array_size(ids);
		for (int i = 0; i < prompts[n].n && i < BITS_MAX_PROMPT; i++)
			prompts[n].ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
		for (int i = 0; i < BITS_MAX_NEW; i++)
			greedy[n][i] = i < (int)json_array_size(tokens) ? (int32_t)json_integer_value(json_array_get(tokens, (size_t)i)) : -1;
	}
	json_decref(list);
	return n;
}

#endif
