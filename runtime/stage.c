#include "runtime/stage.h"

#include "runtime/rope.h"

#include <string.h>

static int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* Columns of gate and up on this rank. */
static int64_t ffn_columns(const struct model *m, const struct shard *s)
{
	return m->n_expert ? range_size(s->expert_ffn) : range_size(s->ffn);
}

int64_t stage_page_bytes(const struct model *m, const struct shard *s, enum kv_type type)
{
	return range_size(s->layers) * 2 * range_size(s->kv_heads) * KV_PAGE_TOKENS * kv_bytes(type, m->n_head_dim);
}

/* Columns of what is gathered when a matrix is not cut along K; 0: nothing is. */
static int64_t gathered_columns(const struct model *m, const struct shard *s)
{
	return max_of(s->gather_attn ? m->n_head * m->n_head_dim : 0, s->gather_ffn ? m->n_ffn : 0);
}

/* Bytes of one row of `columns` activations as int8. */
static int64_t act_room(const struct stage_limits *limits, int64_t columns)
{
	return limits->int8_rows ? act_blocks(columns) * (int64_t)sizeof(struct act_block) : 0;
}

/* Longest row of any matrix that a thread widens. */
static int64_t longest_row(const struct model *m, const struct shard *s)
{
	return max_of(max_of(m->n_embd, gathered_columns(m, s)), max_of(range_size(s->heads) * m->n_head_dim, ffn_columns(m, s)));
}

static int64_t logits_rows(const struct shard *s, const struct stage_limits *limits)
{
	return s->last_stage ? max_of(limits->choices, 1) : 0;
}

/* One list of buffers drives both the size and the allocation: each(arg, pointer's place, bytes). */
#define BUFFERS(X, B, C, D, s)                                              \
	X(rows, (B) * (int64_t)sizeof(struct batch_row))                    \
	X(rope_cos, (B) * (D) / 2 * 4)                                      \
	X(rope_sin, (B) * (D) / 2 * 4)                                      \
	X(x, (B) * (C) * 4)                                                 \
	X(few_h, DEALT_ROWS * (C) * 4)                                      \
	X(q, (B) * range_size((s)->heads) * (D) * 4)                        \
	X(attn, (B) * range_size((s)->heads) * (D) * 4)                     \
	X(key, (B) * range_size((s)->kv_heads) * (D) * 4)                   \
	X(value, (B) * range_size((s)->kv_heads) * (D) * 4)                 \
	X(gate, (B) * (m->n_expert ? 0 : range_size((s)->ffn)) * 4)         \
	X(up, (B) * (m->n_expert ? 0 : range_size((s)->ffn)) * 4)           \
	X(few_h8, DEALT_ROWS * act_room(limits, C))                         \
	X(attn8, (B) * act_room(limits, max_of(range_size((s)->heads) * (D), gathered_columns(m, s)))) \
	X(gate8, (B) * act_room(limits, m->n_expert ? 0 : range_size((s)->ffn))) \
	X(gathered, (B) * gathered_columns(m, s) * 4)                       \
	X(unsorted, (B) * gathered_columns(m, s) * 4)                       \
	X(bad, (B) * n_threads * 8)                                         \
	X(digests, logits_rows(s, limits) * 8)                              \
	X(best_keys, logits_rows(s, limits) * 8)                            \
	X(picked, logits_rows(s, limits) * 8)                               \
	X(choosing, logits_rows(s, limits) * n_threads * (int64_t)sizeof(struct choosing)) \
	X(logits, logits_rows(s, limits) * range_size((s)->vocab) * 4)      \
	X(rope_freq, (D) / 2 * 4)

/* Most bytes that a rank sends to the next stage, or gets from the one before: a part of the rows' items that is as even as they allow. */
static int64_t border_bytes(const struct model *m, const struct stage_limits *limits, int tp)
{
	return (limits->step_tokens + tp - 1) / tp * m->n_embd * 4;
}

static struct dealt_sizes dealt_sizes(const struct model *m, const struct stage_limits *limits)
{
	struct dealt_sizes z = { .max_rows = limits->step_tokens, .n_sums = m->n_embd + 1 };
	z.shown_bytes[SHOWN_H] = (size_t)m->n_embd * sizeof(float);
	z.shown_bytes[SHOWN_H8] = (size_t)act_room(limits, m->n_embd);
	z.shown_bytes[SHOWN_CHOSEN] = (size_t)m->n_expert_used * sizeof(int32_t);
	z.shown_bytes[SHOWN_GATES] = (size_t)m->n_expert_used * sizeof(float);
	return z;
}

uint64_t stage_buffer_bytes(const struct model *m, const struct layout *l, const struct shard *s, const struct stage_limits *limits,
			    int n_threads)
{
	int64_t bytes = (int64_t)n_threads * KERNEL_SCRATCH_ROWS * longest_row(m, s) * 4;
#define X(name, size) bytes += (size) + 63;
	BUFFERS(X, limits->step_tokens, m->n_embd, m->n_head_dim, s)
#undef X
	if (s->last_stage)
		bytes += sampler_bytes(&(struct sampler_size){ range_size(s->vocab), s->vocab.begin, limits->sequences, limits->context,
							       l->tp, n_threads });
	bytes += border_bytes(m, limits, l->tp) * ((s->first_stage ? 0 : 2) + (s->last_stage ? 0 : limits->in_flight));
	struct dealt_sizes dealt = dealt_sizes(m, limits);
	bytes += (int64_t)dealt_bytes(&dealt, l->tp);
	uint64_t experts = m->n_expert ? experts_room_bytes(m, l, s, limits, n_threads) : 0;
	return (uint64_t)bytes + experts;
}

static enum err create_buffers(struct stage *st)
{
	const struct model *m = st->m;
	const struct shard *s = &st->shard;
	const struct stage_limits *limits = &st->limits;
	int n_threads = pool_threads(st->pool);
#define X(name, size) TRY(arena_alloc(st->arena, (size_t)(size), 1, &st->name));
	BUFFERS(X, limits->step_tokens, m->n_embd, m->n_head_dim, s)
#undef X
	st->logits_rows = logits_rows(s, limits);
	TRY(ARENA_NEW(st->arena, (size_t)n_threads, float *, &st->scratch));
	for (int t = 0; t < n_threads; t++)
		TRY(ARENA_NEW(st->arena, (size_t)(KERNEL_SCRATCH_ROWS * longest_row(m, s)), float, &st->scratch[t]));
	return ERR_OK;
}

static enum err create_borders(struct stage *st)
{
	size_t bytes = st->border_bytes = (size_t)border_bytes(st->m, &st->limits, st->grid->layout.tp);
	for (int i = 0; !st->shard.first_stage && i < 2; i++)
		TRY(arena_alloc(st->arena, bytes, 1, &st->in[i]));
	if (st->shard.last_stage)
		return ERR_OK;
	TRY(ARENA_NEW(st->arena, (size_t)st->limits.in_flight, struct comm_transfer, &st->sent));
	TRY(ARENA_NEW(st->arena, (size_t)st->limits.in_flight, char *, &st->out));
	for (int i = 0; i < st->limits.in_flight; i++)
		TRY(arena_alloc(st->arena, bytes, 1, &st->out[i]));
	return ERR_OK;
}

struct touch { unsigned char *block; int64_t bytes; };

static void touch_part(void *arg, int thread, int n_threads)
{
	struct touch *t = arg;
	int64_t begin, end;
	pool_part(t->bytes, 4096, thread, n_threads, &begin, &end);
	memset(t->block + begin, 0, (size_t)(end - begin));
}

/* Each layer has a K and a V pool; the threads that walk over it touch it first. */
static enum err create_kv(struct stage *st)
{
	int64_t n_layers = range_size(st->shard.layers);
	int64_t pool_bytes = stage_page_bytes(st->m, &st->shard, st->limits.kv_type) / (n_layers > 0 ? n_layers : 1) / 2 *
			     st->limits.n_pages;
	st->kv_bytes = (uint64_t)(pool_bytes * 2 * n_layers);
	TRY(ARENA_NEW(st->arena, (size_t)n_layers, struct kv_layer, &st->kv));
	TRY(mem_alloc_aligned(st->kv_bytes, 4096, "KV cache", &st->kv_block));
	for (int64_t i = 0; i < n_layers; i++) {
		struct kv_layer *kv = &st->kv[i];
		kv->type = st->limits.kv_type;
		kv->n_kv = range_size(st->shard.kv_heads);
		kv->n_head_dim = st->m->n_head_dim;
		kv->k = st->kv_block + 2 * i * pool_bytes;
		kv->v = kv->k + pool_bytes;
		pool_run(st->pool, touch_part, &(struct touch){ kv->k, 2 * pool_bytes });
	}
	return ERR_OK;
}

enum err stage_create(const struct model *m, struct grid *g, const struct kernels *k, struct pool *pool,
		      struct rank_weights *weights, const struct stage_limits *limits, struct stage **out)
{
	struct stage *st;
	struct shard_model sm;
	enum err e;
	TRY(MEM_NEW(1, struct stage, &st));
	st->m = m;
	st->grid = g;
	st->k = k;
	st->pool = pool;
	st->limits = *limits;
	model_shard_model(m, &sm);
	shard_of(&sm, &g->layout, &g->me, &st->shard);
	TRY_OR(destroy, e, arena_create("step buffers", 1 << 20, &st->arena));
	TRY_OR(destroy, e, create_buffers(st));
	TRY_OR(destroy, e, create_borders(st));
	TRY_OR(destroy, e, create_kv(st));
	if (m->n_expert)
		TRY_OR(destroy, e, experts_create(st));
	if (st->shard.last_stage)
		TRY_OR(destroy, e, sampler_create(&(struct sampler_size){ range_size(st->shard.vocab), st->shard.vocab.begin,
						  limits->sequences, limits->context, g->layout.tp, pool_threads(pool) },
						  pool, &st->sampler));
	rope_frequencies(m, weights->rope_factors, st->rope_freq);
	st->buffer_bytes = arena_used_bytes(st->arena);
	st->weights = weights;
	*out = st;
	return ERR_OK;
destroy:
	stage_destroy(st);
	return e;
}

/* Which forms of the normed rows the products with them read. */
static unsigned shown_forms(const struct stage *s)
{
	static const enum slot reads_normed[] = { SLOT_Q, SLOT_K, SLOT_V, SLOT_GATE, SLOT_UP, SLOT_EXPERT_GATE, SLOT_EXPERT_UP };
	unsigned forms = 0;
	for (int64_t i = 0; i < range_size(s->shard.layers); i++)
		for (size_t j = 0; j < sizeof reads_normed / sizeof reads_normed[0]; j++) {
			const struct weight *w = &s->weights->layers[i].w[reads_normed[j]];
			if (w->rows)
				forms |= 1u << (stage_reads_int8(w) ? SHOWN_H8 : SHOWN_H);
		}
	if (s->shard.last_stage)
		forms |= 1u << (stage_reads_int8(&s->weights->head) ? SHOWN_H8 : SHOWN_H);
	return forms;
}

enum err stage_join(struct stage *s)
{
	struct dealt_sizes sizes = dealt_sizes(s->m, &s->limits);
	TRY(dealt_create(s->grid->axis[AXIS_TP], &sizes, &s->dealt));
	s->acc = dealt_sums(s->dealt);
	s->shows = shown_forms(s);
	s->buffer_bytes += dealt_bytes(&sizes, s->grid->layout.tp);
	return ERR_OK;
}

struct copying { struct stage *s; const struct step *step; int64_t page_bytes; };

static void copy_pages_part(void *arg, int thread, int n_threads)
{
	struct copying *c = arg;
	int64_t begin, end;
	pool_part(range_size(c->s->shard.layers), 1, thread, n_threads, &begin, &end);
	for (int64_t layer = begin; layer < end; layer++)
		for (int32_t i = 0; i < c->step->n_copies; i++) {
			const struct page_copy *copy = &c->step->copies[i];
			struct kv_layer *kv = &c->s->kv[layer];
			if (copy->replica != c->s->grid->me.dp)
				continue;
			memcpy(kv->k + copy->to * c->page_bytes, kv->k + copy->from * c->page_bytes, (size_t)c->page_bytes);
			memcpy(kv->v + copy->to * c->page_bytes, kv->v + copy->from * c->page_bytes, (size_t)c->page_bytes);
		}
}

void stage_copy_pages(struct stage *s, const struct step *step)
{
	int64_t n_layers = range_size(s->shard.layers);
	if (step->n_copies && n_layers)
		pool_run(s->pool, copy_pages_part, &(struct copying){ s, step,
			 stage_page_bytes(s->m, &s->shard, s->limits.kv_type) / n_layers / 2 });
}

void stage_destroy(struct stage *s)
{
	if (!s)
		return;
	sampler_destroy(s->sampler);
	dealt_destroy(s->dealt);
	mem_free_aligned(s->kv_block);
	arena_destroy(s->arena);
	rank_weights_destroy(s->weights);
	mem_free(s);
}
