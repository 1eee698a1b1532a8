#include "runtime/plan.h"

#include "base/mem.h"
#include "runtime/pack.h"
#include "runtime/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_CONTEXT = 4096,
       DRAFT_ROWS = 8 };          /* see docs/PERFORMANCE.md */

int64_t plan_mask_words(const struct model *m) { return (m->n_vocab + 31) / 32; }

static enum err layout_of(const struct model *m, const struct place *p, const struct plan_wish *wish, struct layout *out)
{
	struct shard_model sm;
	struct layout_limits limits;
	struct layout l = wish->layout;
	model_shard_model(m, &sm);
	shard_limits(&sm, &limits);
	TRY(layout_complete(&l, &limits, p->n_ranks, place_ranks_per_node(p)));
	if (l.tp > MEMBER_MAX_CORES)
		return ERR(FIT, "parallel.tp: %d ranks are more than the %d that can share a layer", l.tp, MEMBER_MAX_CORES);
	*out = l;
	return ERR_OK;
}

static int rank_threads(const struct plan_wish *wish, const struct member *m)
{
	if (wish->threads > 0)
		return wish->threads;
	return m->n_cores > 0 ? m->n_cores : 1;
}

static int has_quantised_weights(const struct weights *w)
{
	for (int64_t i = 0; i < weights_count(w); i++)
		if (pack_bits(weights_at(w, i)->type))
			return 1;
	return 0;
}

static int has_bf16_matrices(const struct weights *w)
{
	for (int64_t i = 0; i < weights_count(w); i++)
		if (weights_at(w, i)->type == WTYPE_BF16 && weights_at(w, i)->n_dims > 1)
			return 1;
	return 0;
}

static enum err check_arithmetic(const struct weights *w, enum arithmetic a)
{
	if (a == ARITHMETIC_INT8 && !has_quantised_weights(w))
		return ERR(RECIPE, "runtime.activations: \"int8\" multiplies with quantised weights, and %s has none; use \"auto\" or \"f32\"",
			   weights_directory(w));
	if (a == ARITHMETIC_BF16 && !has_bf16_matrices(w))
		return ERR(RECIPE, "runtime.activations: \"bf16\" multiplies with BF16 weights, and %s has none; use \"auto\" or \"f32\"",
			   weights_directory(w));
	return ERR_OK;
}

/* KV pages: enough for all sequences, or what fits into kv_bytes on the rank where a page is largest. */
static enum err size_kv(struct plan *p, const struct model *m, const struct plan_wish *wish)
{
	int64_t per_sequence = (p->context + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
	int64_t pages = per_sequence * wish->sequences, largest = 0;
	if (wish->useful_pages > 0 && pages > wish->useful_pages)
		pages = wish->useful_pages;
	for (int r = 0; r < p->n_ranks; r++) {
		int64_t bytes = stage_page_bytes(m, &p->ranks[r].shard, wish->kv_type);
		largest = bytes > largest ? bytes : largest;
	}
	if (wish->kv_bytes > 0 && pages > wish->kv_bytes / largest)
		pages = wish->kv_bytes / largest;
	if (pages < 1)
		return ERR(FIT, "runtime.kv_bytes of %" PRId64 " is less than one page of %d tokens (%" PRId64 " bytes)",
			   wish->kv_bytes, KV_PAGE_TOKENS, largest);
	if (pages > INT32_MAX)
		return ERR(FIT, "%" PRId64 " KV pages are more than fit in 31 bits; lower runtime.context or runtime.sequences", pages);
	p->limits.n_pages = pages;
	return ERR_OK;
}

/* Numbers beside its tokens that the slices of one replica bring (adjust.h): all tokens of a sequence, and for many of them the
 * largest mask, biases and bans. Slices that find no room wait for a later step. */
static int64_t extra_of_replica(const struct plan *p, const struct model *m)
{
	enum { MASKS = 512, LISTS = 64 };
	int64_t n = p->limits.sequences;
	return p->context + (n < MASKS ? n : MASKS) * plan_mask_words(m) + (n < LISTS ? n : LISTS) * adjust_most_ints();
}

/* A step holds at most all sequences of its replicas; they may share pages, so it may name more than there are. */
static enum err size_step(struct plan *p, const struct model *m)
{
	int64_t per_sequence = (p->context + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS, pages = per_sequence * p->limits.sequences;
	p->lane_replicas = m->n_expert && !layout_experts_inside_tp(&p->layout) ? p->layout.dp : 1;
	p->step.slices = p->limits.sequences * p->lane_replicas;
	p->step.tokens = p->limits.step_tokens * p->lane_replicas;
	p->step.pages = pages * p->lane_replicas;
	p->step.extra = extra_of_replica(p, m) * p->lane_replicas;
	if (p->step.pages > INT32_MAX || p->step.tokens > INT32_MAX || p->step.extra > INT32_MAX)
		return ERR(FIT, "%" PRId64 " KV pages and %" PRId64 " tokens of %d replicas are more than fit in 31 bits; lower "
				"runtime.context, runtime.sequences, runtime.step_tokens or parallel.dp", p->step.pages,
			   p->step.tokens, p->lane_replicas);
	return ERR_OK;
}

/* What the loop of steps (engine.c) keeps beside the stage's buffers: every rank its own steps under way, the head all of them. */
static uint64_t loop_bytes(const struct plan *p, const struct model *m, const struct plan_wish *wish, int rank)
{
	const struct plan_rank *k = &p->ranks[rank];
	uint64_t row = (uint64_t)m->n_vocab * sizeof(float), step = step_room_bytes(&p->step);
	uint64_t results = step_results_bytes(p->limits.choices), in_flight = (uint64_t)p->limits.in_flight;
	struct schedule_limits drafts = { .n_replicas = p->layout.dp, .sequences = p->limits.sequences, .context = p->context,
					  .in_flight = p->limits.in_flight, .draft_rows = p->draft_rows };
	uint64_t bytes = in_flight * (step + results);
	if (rank == 0)
		bytes += in_flight * (uint64_t)p->layout.dp * (step / (uint64_t)p->lane_replicas + results) +
			 schedule_draft_bytes(&drafts);
	if (wish->logits_tokens && k->shard.last_stage && k->member.tp == 0)
		bytes += (uint64_t)p->limits.step_tokens * row;
	if (rank == 0)
		bytes += (uint64_t)wish->logits_tokens * row;
	return bytes;
}

static enum err check_memory_of_nodes(const struct plan *p, const struct cluster *c)
{
	for (int node = 0; node < c->n_nodes; node++) {
		uint64_t weights = 0, kv = 0, buffers = 0, limit = c->nodes[node].memory_limit_bytes;
		int n = 0;
		for (int r = 0; r < p->n_ranks; r++) {
			const struct plan_rank *k = &p->ranks[r];
			if (k->member.node != node)
				continue;
			weights += k->weights_bytes, kv += k->kv_bytes, buffers += k->buffer_bytes;
			n++;
		}
		if (limit && weights + kv + buffers > limit)
			return ERR(FIT, "node %s has %.2f GB for its %d ranks, but they need %.2f GB: weights %.2f, KV cache %.2f, "
					"buffers %.2f; use more nodes, or lower runtime.context, runtime.sequences or runtime.kv_bytes",
				   c->nodes[node].host, (double)limit / 1e9, n, (double)(weights + kv + buffers) / 1e9,
				   (double)weights / 1e9, (double)kv / 1e9, (double)buffers / 1e9);
	}
	return ERR_OK;
}

static enum err fill_ranks(struct plan *p, const struct model *m, const struct weights *w, const struct place *place,
			   const struct plan_wish *wish)
{
	struct member *members;
	struct shard_model sm;
	enum err e;
	model_shard_model(m, &sm);
	TRY(MEM_NEW((size_t)p->n_ranks, struct member, &members));
	e = member_assign(&place->cluster, place->facts, p->n_ranks, &p->layout, wish->use_devices, members);
	for (int r = 0; !e && r < p->n_ranks; r++) {
		p->ranks[r].member = members[r];
		shard_of(&sm, &p->layout, &members[r], &p->ranks[r].shard);
		p->ranks[r].threads = rank_threads(wish, &members[r]);
	}
	mem_free(members);
	TRY(e);
	TRY(size_kv(p, m, wish));
	TRY(size_step(p, m));
	for (int r = 0; r < p->n_ranks; r++) {
		struct plan_rank *k = &p->ranks[r];
		k->weights_bytes = rank_weights_bytes(m, w, &k->shard, wish->arithmetic);
		k->kv_bytes = (uint64_t)(stage_page_bytes(m, &k->shard, wish->kv_type) * p->limits.n_pages);
		k->loop_bytes = loop_bytes(p, m, wish, r);
		k->buffer_bytes = stage_buffer_bytes(m, &p->layout, &k->shard, &p->limits, k->threads) + k->loop_bytes;
	}
	return ERR_OK;
}

enum err plan_make(const struct model *m, const struct weights *w, const struct place *place, const struct plan_wish *wish,
		   int check_memory, struct plan *out)
{
	struct plan p = { .n_ranks = place->n_ranks };
	enum err e;
	TRY(check_arithmetic(w, wish->arithmetic));
	TRY(layout_of(m, place, wish, &p.layout));
	p.context = wish->context ? wish->context : m->n_context < DEFAULT_CONTEXT ? m->n_context : DEFAULT_CONTEXT;
	p.limits = (struct stage_limits){ .step_tokens = wish->step_tokens, .sequences = wish->sequences, .context = p.context,
					  .in_flight = p.layout.pp > 1 ? 2 * p.layout.pp : 1,
					  .kv_type = wish->kv_type,
					  .int8_rows = wish->arithmetic != ARITHMETIC_F32 && has_quantised_weights(w) };
	if (p.limits.step_tokens > p.context * p.limits.sequences)
		p.limits.step_tokens = p.context * p.limits.sequences;   /* a step cannot hold more */
	if (p.limits.sequences > p.limits.step_tokens)
		p.limits.sequences = p.limits.step_tokens;
	p.draft_rows = wish->speculates ? DRAFT_ROWS : 0;
	p.limits.choices = p.draft_rows > p.limits.sequences ? p.draft_rows : p.limits.sequences;
	TRY(MEM_NEW((size_t)p.n_ranks, struct plan_rank, &p.ranks));
	TRY_OR(free_ranks, e, fill_ranks(&p, m, w, place, wish));
	if (check_memory)
		TRY_OR(free_ranks, e, check_memory_of_nodes(&p, &place->cluster));
	*out = p;
	return ERR_OK;
free_ranks:
	plan_free(&p);
	return e;
}

void plan_free(struct plan *p)
{
	mem_free(p->ranks);
	p->ranks = NULL;
}

/* "0-3" or "0-3,8-11" into room. */
static void print_cores(const struct member *m, char *room, size_t size)
{
	size_t at = 0;
	room[0] = '\0';
	for (int i = 0; i < MEMBER_MAX_CORES && at + 16 < size; i++) {
		if (!(m->cores[i / 64] >> (i % 64) & 1))
			continue;
		int last = i;
		while (last + 1 < MEMBER_MAX_CORES && m->cores[(last + 1) / 64] >> ((last + 1) % 64) & 1)
			last++;
		at += (size_t)snprintf(room + at, size - at, last > i ? "%s%d-%d" : "%s%d", at ? "," : "", i, last);
		i = last;
	}
}

static void print_range(struct range r, char *room, size_t size)
{
	if (range_size(r) == 0)
		snprintf(room, size, "-");
	else if (range_size(r) == 1)
		snprintf(room, size, "%" PRId64, r.begin);
	else
		snprintf(room, size, "%" PRId64 "-%" PRId64, r.begin, r.end - 1);
}

static void print_bytes(uint64_t bytes, char *room, size_t size)
{
	if (bytes >= 10000000000u)
		snprintf(room, size, "%.1f GB", (double)bytes / 1e9);
	else
		snprintf(room, size, "%.2f MB", (double)bytes / 1e6);
}

void plan_print(const struct plan *p, const struct model *m, const struct cluster *c, struct bytes *to)
{
	int widest = 4, devices = 0;
	for (int i = 0; i < c->n_nodes; i++)
		if ((int)strlen(c->nodes[i].host) > widest)
			widest = (int)strlen(c->nodes[i].host);
	bytes_printf(to, "plan: %d ranks = tp %d x pp %d x dp %d", p->n_ranks, p->layout.tp, p->layout.pp, p->layout.dp);
	if (m->n_expert)
		bytes_printf(to, ", experts ep %d x etp %d%s", p->layout.ep, p->layout.etp,
			     layout_experts_inside_tp(&p->layout) ? " inside tp" : " by all-to-all");
	bytes_printf(to, "; context %" PRId64 ", %" PRId64 " sequences a replica\n", p->context, p->limits.sequences);
	for (int r = 0; r < p->n_ranks; r++)
		devices |= p->ranks[r].member.device >= 0;
	bytes_printf(to, "%4s  %-*s  %-9s  %s%2s %2s %2s %2s  %-7s  %-6s  %-7s  %11s  %11s\n", "rank", widest, "host", "cores",
		     devices ? "device   " : "", "tp", "pp", "ep", "dp", "layers", "heads", "experts", "weights", "KV cache");
	for (int r = 0; r < p->n_ranks; r++) {
		const struct plan_rank *k = &p->ranks[r];
		const struct machine *host = &c->nodes[k->member.node];
		char cores[64], device[48] = "", layers[32], heads[32], experts[32], weights[32], kv[32];
		print_cores(&k->member, cores, sizeof cores);
		print_range(k->shard.layers, layers, sizeof layers);
		print_range(k->shard.heads, heads, sizeof heads);
		print_range(m->n_expert ? k->shard.experts : (struct range){ 0, 0 }, experts, sizeof experts);
		print_bytes(k->weights_bytes, weights, sizeof weights);
		print_bytes(k->kv_bytes, kv, sizeof kv);
		if (devices)
			snprintf(device, sizeof device, "%-9.30s", k->member.device >= 0 ? host->devices[k->member.device].name : "-");
		bytes_printf(to, "%4d  %-*s  %-9s  %s%2d %2d %2d %2d  %-7s  %-6s  %-7s  %11s  %11s\n", r, widest,
			     host->host, cores, device, k->member.tp, k->member.pp, k->member.ep, k->member.dp, layers,
			     heads, experts, weights, kv);
	}
}
