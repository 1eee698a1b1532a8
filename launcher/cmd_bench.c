/* bench: how fast the model runs here, at several numbers of sequences, beside what the machine can do at best. */
#include "launcher/commands.h"

#include "base/log.h"
#include "base/mem.h"
#include "parallel/watch.h"
#include "runtime/limits.h"
#include "runtime/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, DEFAULT_PROMPT = 128, DEFAULT_NEW = 64 };

struct row {
	int64_t sequences, prompt_tokens, new_tokens;
	double prefill[ROUNDS], decode[ROUNDS];   /* tokens/s, sorted */
	double shares[ROUNDS];                    /* of the read bandwidth around the round, in decode; sorted; 0: not known */
	double share_of_arithmetic;               /* in prefill; likewise */
};

struct bench {
	const struct options *o;
	const struct recipe *recipe;
	struct comm *world;
	enum arithmetic arithmetic;
	struct limits limits;                     /* of all ranks together */
	struct read_probe *probe;                 /* this rank's */
	double read_gbps, best_read_gbps;         /* of all ranks together: now, at best in this run */
	uint64_t probe_bytes, cache_bytes;        /* of all ranks together; 0: no caches known */
	double token_bytes;                       /* of weights that one token of one sequence reads, over all ranks */
	int64_t prompt_tokens, new_tokens;
	struct recipe_list counts;
	struct row *rows;
};

static void phase(void *arg, const char *name)
{
	(void)arg;
	watch_phase("%s", name);
}

/* Room for the largest number of sequences, dealt over the replicas. */
static enum err prepare(void *arg, struct weights *files, const struct model *m, struct plan_wish *plan)
{
	struct bench *b = arg;
	int64_t most = 1, context = b->prompt_tokens + b->new_tokens;
	(void)files;
	for (int i = 0; i < b->counts.n; i++)
		most = b->counts.items[i] > most ? b->counts.items[i] : most;
	if (context > m->n_context)
		return ERR(USAGE, "--prompt-tokens %lld and --new-tokens %lld are more than the model's context of %lld",
			   (long long)b->prompt_tokens, (long long)b->new_tokens, (long long)m->n_context);
	plan->sequences = most;
	plan->context = context;
	return ERR_OK;
}

/* Prompts of tokens that look like nothing in particular: speed does not depend on them, but for the experts they choose. */
static void fill_prompt(int32_t *ids, int64_t n, int64_t n_vocab, uint32_t seed)
{
	for (int64_t i = 0; i < n; i++)
		ids[i] = (int32_t)(sampler_random(1, seed, (uint64_t)i, 0) % (uint64_t)n_vocab);
}

/* One round: n sequences from prompt to end. The others of the world only step. */
static enum err run_round(struct bench *b, struct session *s, int64_t n, double *prefill, double *decode)
{
	struct generation g = { 0 };
	struct request *requests = NULL;
	int32_t *ids = NULL;
	enum err e = ERR_OK;
	if (comm_rank(b->world) == 0) {
		e = MEM_NEW((size_t)n, struct request, &requests);
		if (!e)
			e = MEM_NEW((size_t)(n * b->prompt_tokens), int32_t, &ids);
		for (int64_t i = 0; !e && i < n; i++) {
			fill_prompt(ids + i * b->prompt_tokens, b->prompt_tokens, s->model.n_vocab, (uint32_t)i);
			requests[i] = (struct request){ .prompt = ids + i * b->prompt_tokens, .n_prompt = b->prompt_tokens,
							.max_tokens = b->new_tokens };
		}
		g = (struct generation){ .requests = requests, .n_requests = n, .ignore_eos = 1 };
	}
	TRY_OR(free_all, e, comm_agree(b->world, e));
	TRY_OR(free_all, e, session_generate(s, &g));
	*prefill = g.prefill_s > 0 ? (double)g.prefill_tokens / g.prefill_s : 0;
	*decode = g.decode_s > 0 ? (double)g.decode_tokens / g.decode_s : 0;
free_all:
	answers_free(g.answers, g.n_answers);
	mem_free(requests);
	mem_free(ids);
	return e;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

enum part { PART_EMBEDDING, PART_EXPERTS, PART_HEAD, PART_REST };

static enum part part_of(const struct session *s, const struct tensor_info *t)
{
	if (strstr(t->name, "embed_tokens") || strstr(t->name, "token_embd"))
		return s->model.tied_embeddings ? PART_HEAD : PART_EMBEDDING;
	if (strstr(t->name, "experts.") || strstr(t->name, "_exps."))
		return PART_EXPERTS;
	return strstr(t->name, "lm_head") || !strcmp(t->name, "output.weight") ? PART_HEAD : PART_REST;
}

/* Bytes of weights, and of K and V of `context` positions, that a step with one token of each of n sequences reads, over all ranks of
 * a replica. */
static double bytes_per_step(const struct session *s, double n, double context)
{
	const struct model *m = &s->model;
	double seen = m->window && (double)m->window < context ? (double)m->window : context, unused = 1;
	double bytes = n * seen * 2 * (double)(m->n_layers * m->n_kv_head * kv_bytes(s->plan.limits.kv_type, m->n_head_dim));
	for (double i = 0; s->model.n_expert && i < n; i++)
		unused *= 1 - (double)s->model.n_expert_used / (double)s->model.n_expert;
	for (int64_t i = 0; i < weights_count(s->files); i++) {
		const struct tensor_info *t = weights_at(s->files, i);
		enum part part = part_of(s, t);
		if (part != PART_EMBEDDING)
			bytes += (double)t->bytes * (part == PART_EXPERTS ? 1 - unused : 1);
	}
	return bytes;
}

/* What products with weights of this type can do at most, in 1e9 products and sums a second. */
static double peak_gops(const struct bench *b, enum wtype type)
{
	if (b->arithmetic == ARITHMETIC_F32 || pack_form_of(type) == PACK_ROWS)
		return b->limits.f32_gops;
	return pack_bits(type) ? b->limits.int8_gops : b->limits.bf16_gops;
}

/* Seconds that a token of a prompt takes at the machine's best: a product and a sum for each weight. The head takes only the
 * last one. Attention is left out. */
static double seconds_per_token(const struct bench *b, const struct session *s)
{
	double seconds = 0;
	for (int64_t i = 0; i < weights_count(s->files); i++) {
		const struct tensor_info *t = weights_at(s->files, i);
		enum part part = part_of(s, t);
		double used = part == PART_EMBEDDING ? 0 : part == PART_HEAD ? 1 / (double)b->prompt_tokens :
			      part == PART_EXPERTS ? (double)s->model.n_expert_used / (double)s->model.n_expert : 1;
		double weights = (double)t->bytes / wtypes[t->type].block_bytes * wtypes[t->type].block;
		if (t->n_dims > 1)
			seconds += 2 * used * weights / (peak_gops(b, t->type) * 1e9);
	}
	return seconds;
}

/* What memory gives now, all ranks at the same time. */
static enum err measure_read(struct bench *b)
{
	TRY(comm_barrier(b->world));
	uint64_t kbps = (uint64_t)(read_probe_run(b->probe) * 1e6);    /* integers can be summed over ranks */
	TRY(comm_allreduce(b->world, &kbps, 1, COMM_U64, COMM_SUM));
	b->read_gbps = (double)kbps / 1e6;
	if (b->read_gbps > b->best_read_gbps)
		b->best_read_gbps = b->read_gbps;
	return ERR_OK;
}

/* Memory's speed changes within seconds where others use it too, so each round is held against what was measured just before
 * and just after it. */
static enum err run_row(struct bench *b, struct session *s, struct row *row)
{
	int replicas = s->plan.layout.dp;
	double per_replica = (double)row->sequences / replicas, context = (double)row->prompt_tokens + (double)row->new_tokens / 2;
	double step_bytes = bytes_per_step(s, per_replica < 1 ? 1 : per_replica, context) * (per_replica < 1 ? 1 : replicas);
	for (int round = -1; round < ROUNDS; round++) {   /* the first one only warms up */
		int at = round < 0 ? 0 : round;
		double before = b->read_gbps;
		TRY(run_round(b, s, row->sequences, &row->prefill[at], &row->decode[at]));
		TRY(measure_read(b));
		row->shares[at] = row->decode[at] / (double)row->sequences * step_bytes / 1e9 / ((before + b->read_gbps) / 2);
	}
	qsort(row->prefill, ROUNDS, sizeof(double), by_value);
	qsort(row->decode, ROUNDS, sizeof(double), by_value);
	qsort(row->shares, ROUNDS, sizeof(double), by_value);
	row->share_of_arithmetic = row->prefill[ROUNDS / 2] * seconds_per_token(b, s);
	return ERR_OK;
}

static enum err measure_limits(struct bench *b, struct session *s)
{
	uint64_t sums[3], bytes;
	struct limits mine;
	const struct cluster *c = &s->place.cluster;
	int rank = comm_rank(b->world);
	TRY(comm_barrier(b->world));
	enum err e = limits_measure(s->pool, s->kernels, &mine);
	if (!e)
		e = read_probe_create(s->pool, s->kernels, limits_cache_bytes(&s->plan, c, rank),
				      limits_spare_bytes(&s->plan, c, rank), &b->probe);
	TRY(comm_agree(b->world, e));
	const double each[3] = { mine.f32_gops, mine.int8_gops, mine.bf16_gops };
	for (int i = 0; i < 3; i++)
		sums[i] = (uint64_t)(each[i] * 1e6);
	TRY(comm_allreduce(b->world, sums, 3, COMM_U64, COMM_SUM));
	b->limits = (struct limits){ .f32_gops = (double)sums[0] / 1e6, .int8_gops = (double)sums[1] / 1e6,
				     .bf16_gops = (double)sums[2] / 1e6 };
	bytes = read_probe_bytes(b->probe);
	TRY(comm_allreduce(b->world, &bytes, 1, COMM_U64, COMM_SUM));
	b->probe_bytes = bytes;
	b->cache_bytes = limits_cache_bytes(&s->plan, c, -1);
	b->token_bytes = bytes_per_step(s, 1, 0);
	return measure_read(b);
}

/* By so much that most of it comes from memory. Unknown caches are taken for small. */
static int probe_exceeds_caches(const struct bench *b) { return b->probe_bytes >= 2 * b->cache_bytes; }
static int weights_exceed_caches(const struct bench *b) { return b->token_bytes > (double)b->cache_bytes; }

static enum err print_json(const struct bench *b, const struct session *s)
{
	json_t *rows = json_array();
	for (int i = 0; i < b->counts.n; i++) {
		const struct row *r = &b->rows[i];
		json_array_append_new(rows, json_pack("{s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:[f,f],s:[f,f],s:[f,f]}", "sequences", (json_int_t)r->sequences,
				"prompt_tokens", (json_int_t)r->prompt_tokens, "new_tokens", (json_int_t)r->new_tokens,
				"prefill_tokens_per_s", r->prefill[ROUNDS / 2], "decode_tokens_per_s", r->decode[ROUNDS / 2],
				"share_of_read_bandwidth", r->shares[ROUNDS / 2], "share_of_arithmetic", r->share_of_arithmetic,
				"prefill_spread", r->prefill[0], r->prefill[ROUNDS - 1], "decode_spread", r->decode[0],
				r->decode[ROUNDS - 1], "share_of_read_bandwidth_spread", r->shares[0], r->shares[ROUNDS - 1]));
	}
	const struct limits *l = &b->limits;
	json_t *limits = json_pack("{s:f,s:f,s:f,s:f,s:I,s:I,s:b}", "read_gbps", b->best_read_gbps, "f32_gops", l->f32_gops, "int8_gops",
				   l->int8_gops, "bf16_gops", l->bf16_gops, "read_probe_bytes", (json_int_t)b->probe_bytes,
				   "cache_bytes", (json_int_t)b->cache_bytes, "read_exceeds_caches", probe_exceeds_caches(b));
	json_t *object = json_pack("{s:s,s:s,s:o,s:I,s:b,s:f,s:{s:i,s:i,s:i,s:i,s:i},s:o}", "cpu",
			s->place.cluster.nodes[s->plan.ranks[0].member.node].cpu_model, "kernels", s->kernels->name, "limits", limits,
			"token_weights_bytes", (json_int_t)b->token_bytes, "weights_exceed_caches", weights_exceed_caches(b), "load_s", s->load_s,
			"layout", "ranks", s->plan.n_ranks, "tp", s->plan.layout.tp, "pp", s->plan.layout.pp, "ep",
			s->plan.layout.ep, "dp", s->plan.layout.dp, "rows", rows);
	if (!object)
		return ERR(MEMORY, "no memory for the JSON report");
	return report_print_json(object);
}

static void print_caches(const struct bench *b, struct bytes *to)
{
	double caches = (double)b->cache_bytes / 1e6;
	if (b->cache_bytes)
		bytes_printf(to, "weights exceed caches: %s (a token reads %.0f MB, the caches hold %.0f MB)%s\n",
			     weights_exceed_caches(b) ? "yes" : "no", b->token_bytes / 1e6, caches,
			     weights_exceed_caches(b) ? "" : "; the share of the read bandwidth says little");
	else
		bytes_printf(to, "weights exceed caches: not known (a token reads %.0f MB)\n", b->token_bytes / 1e6);
	if (!probe_exceeds_caches(b))
		bytes_printf(to, "no room to measure memory: the reads are of %.0f MB, beside %.0f MB of caches\n",
			     (double)b->probe_bytes / 1e6, caches);
}

static enum err print_text(const struct bench *b, const struct session *s)
{
	struct bytes text = { 0 };
	const struct limits *l = &b->limits;
	bytes_printf(&text, "%s; kernels %s; %d rank%s of %d thread%s; loaded in %.2f s\n",
		     s->place.cluster.nodes[s->plan.ranks[0].member.node].cpu_model, s->kernels->name, s->plan.n_ranks,
		     s->plan.n_ranks == 1 ? "" : "s", pool_threads(s->pool), pool_threads(s->pool) == 1 ? "" : "s", s->load_s);
	bytes_printf(&text, "at best: reads %.1f GB/s; f32 %.0f, bf16 %.0f, int8 %.0f G op/s\n", b->best_read_gbps, l->f32_gops,
		     l->bf16_gops, l->int8_gops);
	print_caches(b, &text);
	bytes_printf(&text, "%9s %7s %5s  %18s %17s %13s  %18s %17s  %s\n", "sequences", "prompt", "new", "prefill tokens/s", "(spread)",
		     "of arithmetic", "decode tokens/s", "(spread)", "of read bandwidth");
	for (int i = 0; i < b->counts.n; i++) {
		const struct row *r = &b->rows[i];
		char prefill[40], decode[40];
		snprintf(prefill, sizeof prefill, "(%.1f-%.1f)", r->prefill[0], r->prefill[ROUNDS - 1]);
		snprintf(decode, sizeof decode, "(%.1f-%.1f)", r->decode[0], r->decode[ROUNDS - 1]);
		bytes_printf(&text, "%9lld %7lld %5lld  %18.1f %17s %11.0f %%  %18.1f %17s  %.0f %%\n", (long long)r->sequences,
			     (long long)r->prompt_tokens, (long long)r->new_tokens, r->prefill[ROUNDS / 2], prefill,
			     100 * r->share_of_arithmetic, r->decode[ROUNDS / 2], decode, 100 * r->shares[ROUNDS / 2]);
	}
	enum err e = text.error ? text.error : print_out(bytes_text(&text), text.size);
	bytes_free(&text);
	return e;
}

static enum err run_all(struct bench *b, struct session *s)
{
	enum err e = MEM_NEW((size_t)b->counts.n, struct row, &b->rows);
	TRY_OR(free_rows, e, comm_agree(b->world, e));
	TRY_OR(free_rows, e, measure_limits(b, s));
	watch_phase("bench");
	for (int i = 0; i < b->counts.n; i++) {
		b->rows[i] = (struct row){ .sequences = b->counts.items[i], .prompt_tokens = b->prompt_tokens,
					   .new_tokens = b->new_tokens };
		TRY_OR(free_rows, e, run_row(b, s, &b->rows[i]));
	}
	if (comm_rank(b->world) == 0)
		e = b->o->json ? print_json(b, s) : print_text(b, s);
	e = comm_agree(b->world, e);
free_rows:
	read_probe_destroy(b->probe);
	mem_free(b->rows);
	return e;
}

static enum err body(struct comm *world, void *arg)
{
	const struct options *o = arg;
	struct bench b = { .o = o, .world = world, .prompt_tokens = o->prompt_tokens ? o->prompt_tokens : DEFAULT_PROMPT,
			   .new_tokens = o->new_tokens ? o->new_tokens : DEFAULT_NEW,
			   .counts = o->sequences.n ? o->sequences : (struct recipe_list){ .n = 3, .items = { 1, 8, 32 } } };
	struct job_session js;
	TRY(job_recipe(world, o, &js.recipe));
	b.recipe = js.recipe;
	job_wish(js.recipe, &js.wish);
	b.arithmetic = js.wish.plan.arithmetic;
	js.wish.phase = phase;
	js.wish.prepare = prepare;
	js.wish.arg = &b;
	enum err e = job_session_open(world, o, &js);
	if (!e)
		e = run_all(&b, js.session);
	return job_session_close(&js, e);
}

enum err command_bench(const struct options *o) { return job_run(body, (void *)(uintptr_t)o); }
