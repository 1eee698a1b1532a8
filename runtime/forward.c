/* The forward pass of one step over one stage: the same code for every layout.
 *
 *   embed (vocabulary-parallel) or receive  ->  layers  ->  send, or final norm, head and sampling
 *
 * A layer on a rank: norm; its heads of q, k, v; rope; store k, v in pages; attention of its heads; its columns of the
 * output product as fixed-point partial sums; all-reduce over tp; residual. Then the same shape for the FFN, or the
 * experts. Sums that cross ranks are exact (64-bit integers), so the layout cannot change a bit.
 *
 * Every parallel region below is one pool_run: its function gets the region's arguments and its own part. */
#include "runtime/stage.h"

#include "runtime/pack.h"
#include "runtime/rope.h"

#include <string.h>

struct region {
	struct stage *s;
	const struct layer_weights *w;
	const struct kv_layer *kv;
	const struct weight *matrix;
	const float *vector;       /* norm weights or a bias */
	const float *norm;         /* of what comes next; NULL: nothing */
	const float *in;
	struct act_rows rows;
	int64_t run, n;
	struct range out;          /* which of the C outputs the matrix's rows are */
};

static int64_t q_width(const struct stage *s) { return range_size(s->shard.heads) * s->m->n_head_dim; }
static int64_t kv_width(const struct stage *s) { return range_size(s->shard.kv_heads) * s->m->n_head_dim; }

/* --- batch --- */

static void angles_part(void *arg, int thread, int n_threads)
{
	struct stage *s = ((struct region *)arg)->s;
	int64_t begin, end, half = s->m->n_head_dim / 2;
	pool_part(s->n_rows, 1, thread, n_threads, &begin, &end);
	for (int64_t b = begin; b < end; b++)
		rope_angles(s->rope_freq, half, s->rows[b].pos, s->rope_cos + b * half, s->rope_sin + b * half);
}

static void gather_rows(struct stage *s, const struct step *step)
{
	s->n_rows = 0;
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->replica != s->grid->me.dp)
			continue;
		for (int32_t t = 0; t < sl->n_tokens; t++)
			s->rows[s->n_rows++] = (struct batch_row){ .token = step->tokens[sl->first_token + t],
				.pos = sl->pos + t, .pages = step->pages + sl->first_page };
	}
	pool_run(s->pool, angles_part, &(struct region){ .s = s });
}

/* --- beginning and end of a stage --- */

static void embed_part(void *arg, int thread, int n_threads)
{
	struct stage *s = ((struct region *)arg)->s;
	int64_t begin, end, C = s->m->n_embd;
	struct range vocab = s->shard.vocab;
	pool_part(s->n_rows, 1, thread, n_threads, &begin, &end);
	for (int64_t b = begin; b < end; b++) {
		int64_t id = s->rows[b].token;
		if (id >= vocab.begin && id < vocab.end)
			s->k->widen_row(&s->weights->embed, id - vocab.begin, s->x + b * C);
		else
			memset(s->x + b * C, 0, (size_t)C * sizeof(float));
	}
}

/* One tp rank has the row, the others have zeros: the sum of the bits is the row. */
static enum err embed(struct stage *s)
{
	pool_run(s->pool, embed_part, &(struct region){ .s = s });
	return comm_allreduce(s->grid->axis[AXIS_TP], s->x, (size_t)(s->n_rows * s->m->n_embd), COMM_U32, COMM_SUM);
}

/* Each tp rank moves its part of x, so a byte crosses the network once; the receiver gathers inside its node. */
static enum err send_on(struct stage *s)
{
	struct range part = range_part(s->n_rows * s->m->n_embd, 1, s->grid->layout.tp, s->grid->me.tp);
	if (range_size(part) == 0)
		return ERR_OK;
	return comm_send(s->grid->axis[AXIS_PP], s->grid->me.pp + 1, 0, s->x + part.begin, (size_t)range_size(part) * 4);
}

enum err stage_gather_x(struct stage *s, int64_t unit)
{
	size_t bytes[LAYOUT_MAX_TP], offsets[LAYOUT_MAX_TP];
	int tp = s->grid->layout.tp;
	int64_t n = s->n_rows * s->m->n_embd;
	if (tp == 1 || n == 0)
		return ERR_OK;
	for (int t = 0; t < tp; t++) {
		struct range r = range_part(n, unit, tp, t);
		bytes[t] = (size_t)range_size(r) * 4;
		offsets[t] = (size_t)r.begin * 4;
	}
	return comm_allgather(s->grid->axis[AXIS_TP], (char *)s->x + offsets[s->grid->me.tp], s->x, bytes, offsets);
}

static enum err receive(struct stage *s)
{
	struct range part = range_part(s->n_rows * s->m->n_embd, 1, s->grid->layout.tp, s->grid->me.tp);
	if (range_size(part))
		TRY(comm_recv(s->grid->axis[AXIS_PP], s->grid->me.pp - 1, 0, s->x + part.begin, (size_t)range_size(part) * 4));
	return stage_gather_x(s, 1);
}

/* --- products --- */

int64_t stage_unit(const struct weight *w) { return w->form == PACK_ROWS ? 1 : PANEL_ROWS; }

void stage_product(const struct stage *s, int thread, const struct weight *w, int64_t begin, int64_t end, const float *bias,
		   const struct act_rows *x, int64_t n, float *y, int64_t ldy)
{
	if (w->form == PACK_ROWS)
		s->k->matmul(w, begin, end, bias, x->f, x->ld, n, y, ldy, s->scratch[thread]);
	else
		s->k->packed_matmul(w, begin, end, bias, x->q, x->ld8, n, y, ldy, s->scratch[thread]);
}

void stage_product_fixed(const struct stage *s, int thread, const struct weight *w, int64_t begin, int64_t end, int64_t run,
			 const float *gate, const struct act_rows *x, int64_t n, int64_t *acc, int64_t *bad)
{
	int64_t lda = s->m->n_embd + 1;
	if (w->form == PACK_ROWS)
		s->k->matmul_fixed(w, begin, end, run, gate, x->f, x->ld, n, acc, lda, bad, s->scratch[thread]);
	else
		s->k->packed_fixed(w, begin, end, run, gate, x->q, x->ld8, n, acc, lda, bad, s->scratch[thread]);
}

struct quantizing { const struct kernels *k; const float *x; int64_t ld, width, n; struct act_block *to; };

static void quantize_part(void *arg, int thread, int n_threads)
{
	struct quantizing *q = arg;
	int64_t begin, end;
	pool_part(q->n, 1, thread, n_threads, &begin, &end);
	for (int64_t b = begin; b < end; b++)
		q->k->quantize(q->x + b * q->ld, q->width, q->to + b * act_blocks(q->width));
}

void stage_quantize(struct stage *s, const float *x, int64_t ld, int64_t width, int64_t n, struct act_block *to)
{
	if (s->limits.int8_rows)
		pool_run(s->pool, quantize_part, &(struct quantizing){ s->k, x, ld, width, n, to });
}

/* --- attention --- */

void stage_norm_row(struct stage *s, const float *x, const float *weights, int64_t b)
{
	int64_t C = s->m->n_embd;
	s->k->rms_norm(x, weights, s->m->norm_eps, C, s->h + b * C);
	if (s->limits.int8_rows)
		s->k->quantize(s->h + b * C, C, s->h8 + b * act_blocks(C));
}

struct act_rows stage_normed(const struct stage *s)
{
	return (struct act_rows){ s->h, s->m->n_embd, s->h8, act_blocks(s->m->n_embd) };
}

static void norm_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end, C = s->m->n_embd;
	pool_part(r->n, 1, thread, n_threads, &begin, &end);
	for (int64_t b = begin; b < end; b++)
		stage_norm_row(s, r->in + b * C, r->vector, b);
}

static void qkv_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	struct act_rows x = stage_normed(s);
	const struct { enum slot w, bias; float *out; int64_t width; } parts[] = {
		{ SLOT_Q, SLOT_Q_BIAS, s->q, q_width(s) },
		{ SLOT_K, SLOT_K_BIAS, s->key, kv_width(s) },
		{ SLOT_V, SLOT_V_BIAS, s->value, kv_width(s) },
	};
	for (int i = 0; i < 3; i++) {
		int64_t begin, end;
		const struct weight *w = &r->w->w[parts[i].w];
		pool_part(parts[i].width, stage_unit(w), thread, n_threads, &begin, &end);
		stage_product(s, thread, w, begin, end, r->w->vector[parts[i].bias], &x, s->n_rows, parts[i].out, parts[i].width);
	}
}

static void rope_and_store_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end, D = s->m->n_head_dim, half = D / 2;
	pool_part(s->n_rows, 1, thread, n_threads, &begin, &end);
	for (int64_t b = begin; b < end; b++) {
		const float *cos = s->rope_cos + b * half, *sin = s->rope_sin + b * half;
		float *key = s->key + b * kv_width(s);
		s->k->rope(s->q + b * q_width(s), range_size(s->shard.heads), D, cos, sin, s->m->rope_interleaved);
		s->k->rope(key, range_size(s->shard.kv_heads), D, cos, sin, s->m->rope_interleaved);
		s->k->kv_store(r->kv, s->rows[b].pages, s->rows[b].pos, key, s->value + b * kv_width(s));
	}
}

/* Rows of one sequence from b on, at most `most`: they follow each other in the batch. */
static int64_t rows_together(const struct stage *s, int64_t b, int64_t most)
{
	int64_t n = 1;
	while (n < most && b + n < s->n_rows && s->rows[b + n].pages == s->rows[b].pages)
		n++;
	return n;
}

/* This rank's query heads of its kv head `kv`, counted from its first head. */
static struct range heads_of(const struct stage *s, int64_t kv)
{
	int64_t group = s->m->n_head / s->m->n_kv_head, first = (s->shard.kv_heads.begin + kv) * group;
	struct range heads = { first - s->shard.heads.begin, first + group - s->shard.heads.begin };
	if (heads.begin < 0)
		heads.begin = 0;
	if (heads.end > range_size(s->shard.heads))
		heads.end = range_size(s->shard.heads);
	return heads;
}

/* Items are some rows of a sequence with all heads of a kv head, so that K and V are read once for them; when these are too
 * few for the threads, with one head each. They are dealt in turn: neighbours have like lengths. */
static void attention_part(void *arg, int thread, int n_threads)
{
	enum { ROWS = 16 };
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t D = s->m->n_head_dim, width = q_width(s), n_kv = range_size(s->shard.kv_heads), item = 0;
	float scale = (float)(1.0 / __builtin_sqrt((double)D));
	for (int64_t b = 0, n; b < s->n_rows; b += n) {
		n = rows_together(s, b, ROWS);
		for (int64_t kv = 0; kv < n_kv; kv++) {
			struct range heads = heads_of(s, kv);
			int64_t at_once = s->n_rows * n_kv < 4 * n_threads ? 1 : range_size(heads);
			for (int64_t h = heads.begin; h < heads.end; h += at_once) {
				if (item++ % n_threads != thread)
					continue;
				s->k->attention_rows(r->kv, s->rows[b].pages, kv, s->rows[b].pos, n, at_once, s->m->window, scale,
						     s->q + b * width + h * D, width, s->attn + b * width + h * D, width);
			}
		}
	}
}

static void fold_bad(struct stage *s)
{
	int64_t C = s->m->n_embd;
	for (int64_t b = 0; b < s->n_rows; b++) {
		int64_t sum = 0;
		for (int t = 0; t < pool_threads(s->pool); t++)
			sum += s->bad[t * s->limits.step_tokens + b];
		s->acc[b * (C + 1) + C] = sum;
	}
}

static void fixed_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end;
	int64_t *bad = s->bad + thread * s->limits.step_tokens, C = s->m->n_embd;
	pool_part(range_size(r->out), stage_unit(r->matrix), thread, n_threads, &begin, &end);
	memset(bad, 0, (size_t)s->n_rows * sizeof *bad);
	for (int64_t b = 0; b < s->n_rows; b++)
		memset(s->acc + b * (C + 1) + r->out.begin + begin, 0, (size_t)(end - begin) * sizeof *s->acc);
	stage_product_fixed(s, thread, r->matrix, begin, end, r->run, NULL, &r->rows, s->n_rows, s->acc + r->out.begin, bad);
}

/* acc = this rank's share of W in, in fixed point: some of K for all outputs, or all of K for the outputs `out`. */
static void partial_product(struct stage *s, const struct weight *w, struct range out, const struct act_rows *in, int64_t run)
{
	if (range_size(out) < s->m->n_embd)      /* else the threads clear what they fill */
		memset(s->acc, 0, (size_t)(s->n_rows * (s->m->n_embd + 1)) * sizeof *s->acc);
	pool_run(s->pool, fixed_part, &(struct region){ .s = s, .matrix = w, .out = out, .rows = *in, .run = run });
	fold_bad(s);
}

/* s->gathered (B, columns of all) = `in` (B, this rank's columns) of every tp rank side by side. */
static enum err gather_input(struct stage *s, const float *in, struct range (*part)(const struct shard_model *, int, int),
			     int64_t scale)
{
	size_t bytes[LAYOUT_MAX_TP], offsets[LAYOUT_MAX_TP];
	struct shard_model sm;
	int tp = s->grid->layout.tp;
	int64_t width = 0, B = s->n_rows;
	model_shard_model(s->m, &sm);
	for (int t = 0; t < tp; t++) {
		struct range r = part(&sm, tp, t);
		bytes[t] = (size_t)(range_size(r) * scale * B) * sizeof(float);
		offsets[t] = (size_t)(r.begin * scale * B) * sizeof(float);
		width = r.end * scale;
	}
	TRY(comm_allgather(s->grid->axis[AXIS_TP], in, s->unsorted, bytes, offsets));
	for (int t = 0; t < tp; t++) {
		struct range r = part(&sm, tp, t);
		int64_t columns = range_size(r) * scale;
		for (int64_t b = 0; b < B; b++)
			memcpy(s->gathered + b * width + r.begin * scale, s->unsorted + r.begin * scale * B + b * columns,
			       (size_t)columns * sizeof(float));
	}
	return ERR_OK;
}

static void residual_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end, C = s->m->n_embd;
	pool_part(s->n_rows, 1, thread, n_threads, &begin, &end);
	for (int64_t b = begin; b < end; b++) {
		s->k->add_fixed(s->x + b * C, s->acc + b * (C + 1), s->acc[b * (C + 1) + C], r->vector, C);
		if (r->norm)
			stage_norm_row(s, s->x + b * C, r->norm, b);
	}
}

enum err stage_reduce_into_x(struct stage *s, const float *bias, const float *norm)
{
	TRY(comm_allreduce(s->grid->axis[AXIS_TP], s->acc, (size_t)(s->n_rows * (s->m->n_embd + 1)), COMM_I64, COMM_SUM));
	pool_run(s->pool, residual_part, &(struct region){ .s = s, .vector = bias, .norm = norm });
	return ERR_OK;
}

static enum err attention(struct stage *s, const struct layer_weights *w, const struct kv_layer *kv)
{
	struct region r = { .s = s, .w = w, .kv = kv };
	pool_run(s->pool, qkv_part, &r);
	pool_run(s->pool, rope_and_store_part, &r);
	pool_run(s->pool, attention_part, &r);
	int64_t width = q_width(s), D = s->m->n_head_dim;
	struct act_rows in = { s->attn, width, s->attn8, act_blocks(width) };
	if (s->shard.gather_attn) {
		TRY(gather_input(s, s->attn, shard_gathered_heads, D));
		width = s->m->n_head * D;
		in = (struct act_rows){ s->gathered, width, s->attn8, act_blocks(width) };
	}
	stage_quantize(s, in.f, width, width, s->n_rows, s->attn8);
	partial_product(s, &w->w[SLOT_O], s->shard.attn_out, &in, s->m->head_run * D);
	return ERR_OK;
}

/* --- dense FFN --- */

static void gate_up_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end, F = range_size(s->shard.ffn);
	struct act_rows x = stage_normed(s);
	pool_part(F, PACK_BLOCK, thread, n_threads, &begin, &end);
	stage_product(s, thread, &r->w->w[SLOT_GATE], begin, end, r->w->vector[SLOT_GATE_BIAS], &x, s->n_rows, s->gate, F);
	stage_product(s, thread, &r->w->w[SLOT_UP], begin, end, r->w->vector[SLOT_UP_BIAS], &x, s->n_rows, s->up, F);
	for (int64_t b = 0; b < s->n_rows; b++) {
		float *gate = s->gate + b * F + begin;
		s->k->silu_mul(gate, s->up + b * F + begin, end - begin);
		if (s->limits.int8_rows && !s->shard.gather_ffn && begin < end)   /* whole blocks: begin is on one */
			s->k->quantize(gate, end - begin, s->gate8 + b * act_blocks(F) + begin / PACK_BLOCK);
	}
}

/* The FFN of the rows that are normed in s->h; then they are normed for what follows. */
static enum err dense_ffn(struct stage *s, const struct layer_weights *w, const float *next_norm)
{
	pool_run(s->pool, gate_up_part, &(struct region){ .s = s, .w = w });
	int64_t width = range_size(s->shard.ffn);
	struct act_rows in = { s->gate, width, s->gate8, act_blocks(width) };
	if (s->shard.gather_ffn) {
		TRY(gather_input(s, s->gate, shard_gathered_ffn, 1));
		width = s->m->n_ffn;
		in = (struct act_rows){ s->gathered, width, s->attn8, act_blocks(width) };
		stage_quantize(s, in.f, width, width, s->n_rows, s->attn8);
	}
	partial_product(s, &w->w[SLOT_DOWN], s->shard.ffn_out, &in, s->m->ffn_run);
	return stage_reduce_into_x(s, w->vector[SLOT_DOWN_BIAS], next_norm);
}

static enum err layers(struct stage *s)
{
	int64_t n_layers = range_size(s->shard.layers);
	for (int64_t i = 0; i < n_layers; i++) {
		const struct layer_weights *w = &s->weights->layers[i];
		const float *next_norm = i + 1 < n_layers ? w[1].vector[SLOT_ATTN_NORM] : NULL;
		if (i == 0 || s->m->n_expert)      /* a dense FFN norms for the next layer */
			pool_run(s->pool, norm_part, &(struct region){ .s = s, .vector = w->vector[SLOT_ATTN_NORM], .in = s->x,
								       .n = s->n_rows });
		TRY(attention(s, w, &s->kv[i]));
		if (s->m->n_expert) {
			TRY(experts_forward(s, w));
		} else {
			TRY(stage_reduce_into_x(s, w->vector[SLOT_O_BIAS], w->vector[SLOT_FFN_NORM]));
			TRY(dense_ffn(s, w, next_norm));
		}
	}
	return ERR_OK;
}

/* --- head and sampling --- */

static void head_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end, V = range_size(s->shard.vocab);
	struct act_rows x = stage_normed(s);
	pool_part(V, stage_unit(&s->weights->head), thread, n_threads, &begin, &end);
	stage_product(s, thread, &s->weights->head, begin, end, NULL, &x, r->n, s->logits, V);
}

/* s->logits (n, V/tp) of the n rows of `in` (n, C). */
static void head(struct stage *s, const float *in, int64_t n)
{
	struct region r = { .s = s, .vector = s->weights->final_norm, .in = in, .n = n };
	pool_run(s->pool, norm_part, &r);
	pool_run(s->pool, head_part, &r);
}

/* The last row of every slice that samples, moved to the front of x. Gives their number. */
static int64_t pick_rows(struct stage *s, const struct step *step)
{
	int64_t C = s->m->n_embd, row = 0, n = 0;
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->replica != s->grid->me.dp)
			continue;
		row += sl->n_tokens;
		if (sl->flags & SLICE_SAMPLE)
			memmove(s->x + n++ * C, s->x + (row - 1) * C, (size_t)C * sizeof(float));
	}
	return n;
}

static enum err sample(struct stage *s, const struct step *step, struct step_result *results, int32_t *n_results)
{
	struct comm *tp = s->grid->axis[AXIS_TP];
	int64_t V = range_size(s->shard.vocab), first = s->shard.vocab.begin, n = pick_rows(s, step), at = 0;
	*n_results = (int32_t)n;
	if (n == 0)
		return ERR_OK;
	if (n > s->logits_rows)
		return ERR(BUG, "%lld sequences to sample, room for %lld", (long long)n, (long long)s->logits_rows);
	head(s, s->x, n);
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->replica != s->grid->me.dp || !(sl->flags & SLICE_SAMPLE))
			continue;
		int64_t position = sl->pos + sl->n_tokens - 1;
		const float *logits = s->logits + at * V;
		struct step_result *r = &results[at];
		*r = (struct step_result){ .sequence = sl->sequence };
		s->digests[at++] = s->k->digest(logits, V, first, position);
		enum err e = sampler_choose(s->sampler, tp, s->k, logits, V, first, &sl->sample, position + 1, &r->token);
		if (e && e != ERR_WORK)
			return e;
		r->error = (int32_t)e;
	}
	TRY(comm_allreduce(tp, s->digests, (size_t)n, COMM_U64, COMM_SUM));
	for (int64_t i = 0; i < n; i++)
		results[i].digest = s->digests[i];
	return ERR_OK;
}

/* Every row's logits to tp rank 0, in blocks of the rows that there is room for. */
static enum err give_all_logits(struct stage *s, float *out)
{
	int tp = s->grid->layout.tp, me = s->grid->me.tp;
	struct comm *c = s->grid->axis[AXIS_TP];
	struct shard_model sm;
	model_shard_model(s->m, &sm);
	for (int64_t row = 0; row < s->n_rows; row += s->logits_rows) {
		int64_t n = s->n_rows - row < s->logits_rows ? s->n_rows - row : s->logits_rows;
		head(s, s->x + row * s->m->n_embd, n);
		for (int t = 0; t < tp; t++) {
			struct range v = range_part(sm.n_vocab, 1, tp, t);
			for (int64_t b = 0; b < n; b++) {
				int64_t to = (row + b) * sm.n_vocab + v.begin;
				size_t bytes = (size_t)range_size(v) * sizeof(float);
				if (t == me && me == 0)
					memcpy(out + to, s->logits + b * range_size(v), bytes);
				else if (t == me)
					TRY(comm_send(c, 0, 1, s->logits + b * range_size(v), bytes));
				else if (me == 0)
					TRY(comm_recv(c, t, 1, out + to, bytes));
			}
		}
	}
	return ERR_OK;
}

enum err stage_step(struct stage *s, const struct step *step, struct step_result *results, int32_t *n_results, float *all_logits)
{
	int want_all = 0;
	*n_results = 0;
	stage_copy_pages(s, step);
	gather_rows(s, step);
	if (s->n_rows == 0 && (!s->m->n_expert || layout_experts_inside_tp(&s->grid->layout)))
		return ERR_OK;   /* nothing to do, and no other replica waits for this one */
	for (int32_t i = 0; i < step->n_slices; i++)
		want_all |= step->slices[i].replica == s->grid->me.dp && step->slices[i].flags & SLICE_ALL_LOGITS;
	if (s->shard.first_stage)
		TRY(embed(s));
	else
		TRY(receive(s));
	TRY(layers(s));
	if (!s->shard.last_stage)
		return send_on(s);
	if (want_all)
		TRY(give_all_logits(s, all_logits));
	return sample(s, step, results, n_results);
}
