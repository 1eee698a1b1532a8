/* Which part of a model a rank holds.
 *
 * Every range comes from range_part: whole units, as even as they go, the first parts longer by one. So the ranges of
 * 0..parts-1 cover the whole exactly once, in order, and any two ranks (and the plan) agree on them without talking. The
 * one exception is kv_heads: a key/value head lives on every rank that holds one of its query heads, so those ranges may
 * overlap, and a rank without query heads has none. */
#include "parallel/shard.h"

#include <limits.h>

struct range range_part(int64_t n, int64_t unit, int parts, int i)
{
	int64_t units = n / unit + (n % unit != 0);
	int64_t base = units / parts, longer = units % parts;
	int64_t first = base * i + (i < longer ? i : longer);
	int64_t last = first + base + (i < longer);
	/* The last unit may be short; comparing before multiplying keeps the product below n. */
	return (struct range){ first < units ? first * unit : n, last < units ? last * unit : n };
}

struct range shard_layers(int64_t n_layers, const struct layout *l, int stage)
{
	if (!l->n_stage_layers)
		return range_part(n_layers, 1, l->pp, stage);
	struct range r = { 0, 0 };
	for (int i = 0; i <= stage; i++) {
		r.begin = r.end;
		r.end += l->stage_layers[i];
	}
	return r;
}

static struct range kv_heads_of(const struct shard_model *s, struct range heads)
{
	if (!range_size(heads) || s->n_kv_head < 1)
		return (struct range){ 0, 0 };
	int64_t per_kv = s->n_head / s->n_kv_head;   /* the model's check made this a whole number */
	return (struct range){ heads.begin / per_kv, (heads.end - 1) / per_kv + 1 };
}

/* Runs of `run` items among n, the last one short. */
static int64_t runs(int64_t n, int64_t run) { return n / run + (n % run != 0); }

/* What tp ranks cut gate and up into when down is not cut along K: whole blocks of int8 activations. */
enum { FFN_UNIT = 32 };

void shard_of(const struct shard_model *s, const struct layout *l, const struct member *m, struct shard *out)
{
	*out = (struct shard){
		.layers = shard_layers(s->n_layers, l, m->pp),
		.gather_attn = l->tp > runs(s->n_head, s->head_run),
		.gather_ffn = !s->n_expert && l->tp > runs(s->n_ffn, s->ffn_run),
		.experts = range_part(s->n_expert, 1, l->ep, m->ep),
		.expert_ffn = range_part(s->n_ffn, s->ffn_run, l->etp, m->etp),
		.vocab = range_part(s->n_vocab, 1, l->tp, m->tp),
		.first_stage = m->pp == 0,
		.last_stage = m->pp == l->pp - 1,
	};
	struct range all = { 0, s->n_embd }, mine = range_part(s->n_embd, 1, l->tp, m->tp);
	out->heads = out->gather_attn ? shard_gathered_heads(s, l->tp, m->tp) : range_part(s->n_head, s->head_run, l->tp, m->tp);
	out->ffn = out->gather_ffn ? shard_gathered_ffn(s, l->tp, m->tp) : range_part(s->n_ffn, s->ffn_run, l->tp, m->tp);
	out->attn_out = out->gather_attn ? mine : all;
	out->ffn_out = out->gather_ffn ? mine : all;
	out->kv_heads = kv_heads_of(s, out->heads);
}

struct range shard_gathered_heads(const struct shard_model *s, int tp, int i) { return range_part(s->n_head, 1, tp, i); }
struct range shard_gathered_ffn(const struct shard_model *s, int tp, int i) { return range_part(s->n_ffn, FFN_UNIT, tp, i); }

int shard_expert_owner(const struct shard_model *s, const struct layout *l, int64_t expert)
{
	int64_t base = s->n_expert / l->ep, longer = s->n_expert % l->ep;
	int64_t in_longer = longer * (base + 1);     /* experts of the parts that have one more */
	if (expert < in_longer)
		return (int)(expert / (base + 1));
	return (int)(longer + (expert - in_longer) / base);   /* base is not 0 here: expert < n_expert */
}

static int clamp(int64_t n) { return n > INT_MAX ? INT_MAX : (int)n; }

void shard_limits(const struct shard_model *s, struct layout_limits *out)
{
	*out = (struct layout_limits){
		.n_layers = clamp(s->n_layers),
		.n_experts = clamp(s->n_expert),
		.heads = clamp(s->n_head),
		.ffn_blocks = clamp(runs(s->n_ffn, s->n_expert || s->ffn_run < FFN_UNIT ? s->ffn_run : FFN_UNIT)),
	};
}

struct range shard_dim_range(const struct shard *s, enum shard_dim dim, int64_t size, int64_t scale)
{
	struct range r = { 0, 0 };
	switch (dim) {
	case SHARD_ALL: return (struct range){ 0, size };
	case SHARD_HEADS: r = s->heads; break;
	case SHARD_KV_HEADS: r = s->kv_heads; break;
	case SHARD_FFN: r = s->ffn; break;
	case SHARD_EXPERT_FFN: r = s->expert_ffn; break;
	case SHARD_EXPERTS: r = s->experts; break;
	case SHARD_VOCAB: r = s->vocab; break;
	}
	return (struct range){ r.begin * scale, r.end * scale };
}
