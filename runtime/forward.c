/* The forward pass of one step over one stage: the same code for every layout.
 *
 *   embed (vocabulary-parallel) or receive  ->  layers  ->  send, or final norm, head and sampling
 *
 * A layer on a rank, one parallel region (pool_run) a line; what is in brackets the caller does between regions when there are
 * few rows:
 *
 *   q, k, v; rope of k; k and v stored in pages
 *   rope of q; attention; its output quantised
 *   output product as fixed-point sums
 *   [residual; norm and quantise the rows]           or the router, too (experts.c)
 *   gate, up, activation, quantised                  or the experts
 *   down product as fixed-point sums
 *   [residual; norm and quantise the rows]
 *
 * Sums that cross ranks are exact (64-bit integers), so the layout cannot change a bit.
 *
 * Whose rows. Each tp rank has a part of the sums of every row. Few rows are all-reduced, and every rank does what is in brackets
 * for all. From DEALT_ROWS on they are dealt out (parallel/dealt_rows.h): a rank does that for its own, and shows the normed
 * rows to the others. Of x, then, it has no other rows than its own.
 *
 * Bad rows. A block of a fixed-point sum that is not finite or too large makes its whole row NaN: the blocks are counted in
 * the sum's last column. */
#include "runtime/stage.h"

#include "runtime/pack.h"
#include "runtime/rope.h"

#include <string.h>

struct region {
	struct stage *s;
	const struct layer_weights *w;
	const struct kv_layer *kv;
	const struct weight *matrix;
	const float *bias;
	const float *norm;         /* of what comes next; NULL: nothing */
	struct act_rows rows;
	int64_t run, n;
	const int64_t *from;       /* (n): rows of x, or NULL: row 0, 1 .. */
	int chooses;               /* the logits are for choosing tokens */
	struct range out;          /* which of the C outputs the matrix's rows are */
	struct range mine;         /* rows that this rank works on */
};

static int64_t q_width(const struct stage *s) { return range_size(s->shard.heads) * s->m->n_head_dim; }
static int64_t kv_width(const struct stage *s) { return range_size(s->shard.kv_heads) * s->m->n_head_dim; }

void stage_run_rows(struct stage *s, int64_t n, int64_t row_values, pool_work *work, void *arg)
{
	enum { FEW_VALUES = 8192 };   /* about what one thread norms while the others start and stop */
	if (n * row_values <= FEW_VALUES)
		work(arg, 0, 1);
	else
		pool_run(s->pool, work, arg);
}

/* How the threads share products with matrices of so many bytes (pool_take): the rows of a unit, and how many units go together.
 * Few tokens wait for memory; panels go four at a time, of long rows also by one. Else each thread has its own part. */
struct sharing { int64_t unit; int several; };

static struct sharing share_out(const struct stage *s, int64_t n_tokens, int64_t rows, int64_t bytes, int64_t unit)
{
	enum { FEW_TOKENS = 4, PANELS = 4, LARGE_BYTES = 1 << 20, LONG_BYTES = 128 << 10 };
	if (n_tokens > FEW_TOKENS || bytes / pool_threads(s->pool) < LARGE_BYTES)
		return (struct sharing){ unit, 0 };
	int64_t panels = PANELS * PANEL_ROWS;
	return bytes / rows * panels > LONG_BYTES && unit <= PANEL_ROWS ? (struct sharing){ PANEL_ROWS, PANELS } : (struct sharing){ panels, 1 };
}

/* Columns of a product's output from `at` on that go together: of many rows few, so that what is done to them next finds them in
 * the cache. */
static int64_t columns_at_once(const struct stage *s, int64_t at, int64_t end)
{
	enum { MANY_ROWS = 32, FEW_COLUMNS = 64 };
	return s->n_rows < MANY_ROWS || end - at < 2 * FEW_COLUMNS ? end - at : FEW_COLUMNS;
}

static int64_t matrix_bytes(const struct weight *w) { return rank_weights_part_bytes(w, 1); }

/* --- batch --- */

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
	s->is_dealt = s->n_rows >= DEALT_ROWS;
	s->h = s->is_dealt ? dealt_shown(s->dealt, SHOWN_H) : s->few_h;
	s->h8 = s->is_dealt ? dealt_shown(s->dealt, SHOWN_H8) : s->few_h8;
}

struct range stage_own_rows(const struct stage *s)
{
	return s->is_dealt ? dealt_own(s->dealt, s->n_rows) : (struct range){ 0, s->n_rows };
}

/* --- beginning and end of a stage --- */

static void embed_row(struct stage *s, int64_t b)
{
	int64_t C = s->m->n_embd, id = s->rows[b].token;
	struct range vocab = s->shard.vocab;
	if (id >= vocab.begin && id < vocab.end)
		s->k->widen_row(&s->weights->embed, id - vocab.begin, s->x + b * C);
	else
		memset(s->x + b * C, 0, (size_t)C * sizeof(float));
}

static void begin_part(void *arg, int thread, int n_threads)
{
	struct stage *s = ((struct region *)arg)->s;
	int64_t begin, end, half = s->m->n_head_dim / 2;
	pool_part(s->n_rows, 1, thread, n_threads, &begin, &end);
	for (int64_t b = begin; b < end; b++) {
		rope_angles(s->rope_freq, half, s->rows[b].pos, s->rope_cos + b * half, s->rope_sin + b * half);
		if (s->shard.first_stage)
			embed_row(s, b);
	}
}

/* The rows' angles and, on the first stage, their embeddings. One tp rank has the row, the others have zeros: the sum of
 * the bits is the row. */
static enum err begin(struct stage *s)
{
	enum { SINE_VALUES = 64 };   /* a sine and a cosine take the time of norming so many */
	stage_run_rows(s, s->n_rows, s->m->n_embd + s->m->n_head_dim / 2 * SINE_VALUES, begin_part, &(struct region){ .s = s });
	if (!s->shard.first_stage)
		return ERR_OK;
	return comm_allreduce(s->grid->axis[AXIS_TP], s->x, (size_t)(s->n_rows * s->m->n_embd), COMM_U32, COMM_SUM);
}

/* --- products --- */

int stage_reads_int8(const struct weight *w) { return w->form != PACK_ROWS && pack_bits(w->type) != 0; }

int64_t stage_unit(const struct weight *w) { return w->form == PACK_ROWS ? 1 : PANEL_ROWS; }

void stage_product(const struct stage *s, int thread, const struct weight *w, int64_t begin, int64_t end, const float *bias,
		   const struct act_rows *x, int64_t n, float *y, int64_t ldy)
{
	if (stage_reads_int8(w))
		s->k->packed_matmul(w, begin, end, bias, x->q, x->ld8, n, y, ldy, s->scratch[thread]);
	else
		s->k->matmul(w, begin, end, bias, x->f, x->ld, n, y, ldy, s->scratch[thread]);
}

void stage_product_fixed(const struct stage *s, int thread, const struct weight *w, int64_t begin, int64_t end, int64_t run,
			 const float *gate, const struct act_rows *x, int64_t n, int64_t *acc, int64_t *bad)
{
	int64_t lda = s->m->n_embd + 1;
	if (stage_reads_int8(w))
		s->k->packed_fixed(w, begin, end, run, gate, x->q, x->ld8, n, acc, lda, bad, s->scratch[thread]);
	else
		s->k->matmul_fixed(w, begin, end, run, gate, x->f, x->ld, n, acc, lda, bad, s->scratch[thread]);
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
		stage_run_rows(s, n, width, quantize_part, &(struct quantizing){ s->k, x, ld, width, n, to });
}

/* --- norms --- */

void stage_norm_row(struct stage *s, const float *x, const float *weights, int64_t b)
{
	int64_t C = s->m->n_embd;
	s->k->rms_norm(x, weights, s->m->norm_eps, C, s->h + b * C);
	if (s->limits.int8_rows)
		(weights == s->weights->final_norm ? s->k->quantize_finely : s->k->quantize)(s->h + b * C, C, s->h8 + b * act_blocks(C));
}

struct act_rows stage_normed(const struct stage *s)
{
	return (struct act_rows){ s->h, s->m->n_embd, s->h8, act_blocks(s->m->n_embd) };
}

static void norm_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	int64_t begin, end, C = r->s->m->n_embd;
	pool_part(range_size(r->mine), 1, thread, n_threads, &begin, &end);
	for (int64_t b = r->mine.begin + begin; b < r->mine.begin + end; b++)
		stage_norm_row(r->s, r->s->x + (r->from ? r->from[b] : b) * C, r->norm, b);
}

enum err stage_norm(struct stage *s, const float *weights)
{
	struct range mine = stage_own_rows(s);
	stage_run_rows(s, range_size(mine), s->m->n_embd, norm_part, &(struct region){ .s = s, .mine = mine, .norm = weights });
	return stage_show(s, s->shows);
}

/* --- attention --- */

/* Where part i of n of the rows of [q | k | v] begins. Whoever computes a row of k turns it by its angle, so k is cut between
 * heads only; q between units of the matrix, and v there too when they do not part what is stored together. */
static int64_t qkv_cut(const struct stage *s, int64_t unit, int i, int n)
{
	int64_t q = q_width(s), kv = kv_width(s), at = (q + 2 * kv) * i / n, D = s->m->n_head_dim, heads = D, groups = unit;
	while (heads % unit)
		heads += D;
	while (groups % kv_group(s->limits.kv_type, D))
		groups += unit;
	int in_k = at >= q && at < q + kv;
	int64_t first = at < q ? 0 : in_k ? q : q + kv, step = in_k ? heads : at < q ? unit : groups, width = at < q ? q : kv;
	int64_t within = (at - first + step / 2) / step * step;
	return first + (i == n || within > width ? width : within);
}

/* Columns [begin, end) of every row of k (turned, whole heads) or v into the pages. */
static void store_columns(const struct region *r, int is_key, int64_t begin, int64_t end)
{
	struct stage *s = r->s;
	int64_t D = s->m->n_head_dim, width = kv_width(s);
	float *from = is_key ? s->key : s->value;
	unsigned char *pool = is_key ? r->kv->k : r->kv->v;
	for (int64_t b = 0; b < s->n_rows; b++, from += width) {
		if (is_key)
			s->k->rope(from + begin, (end - begin) / D, D, s->rope_cos + b * D / 2, s->rope_sin + b * D / 2,
				   s->m->rope_interleaved);
		s->k->kv_store(r->kv, pool, s->rows[b].pages, s->rows[b].pos, begin, end, from);
	}
}

/* Rows [from, to) of [q | k | v]. */
static void qkv_rows(const struct region *r, int thread, int64_t from, int64_t to)
{
	struct stage *s = r->s;
	struct act_rows x = stage_normed(s);
	const struct { enum slot w, bias; float *out; int64_t width; } parts[] = {
		{ SLOT_Q, SLOT_Q_BIAS, s->q, q_width(s) },
		{ SLOT_K, SLOT_K_BIAS, s->key, kv_width(s) },
		{ SLOT_V, SLOT_V_BIAS, s->value, kv_width(s) },
	};
	int64_t first = 0;
	for (int i = 0; i < 3; first += parts[i++].width) {
		int64_t begin = from > first ? from - first : 0, end = to - first < parts[i].width ? to - first : parts[i].width;
		if (begin >= end)
			continue;
		stage_product(s, thread, &r->w->w[parts[i].w], begin, end, r->w->vector[parts[i].bias], &x, s->n_rows, parts[i].out,
			      parts[i].width);
		if (parts[i].w != SLOT_Q)
			store_columns(r, parts[i].w == SLOT_K, begin, end);
	}
}

static void qkv_part(void *arg, int thread, int n_threads)
{
	static const enum slot slots[] = { SLOT_Q, SLOT_K, SLOT_V };
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t unit = 1, bytes = 0, begin, end;
	for (int i = 0; i < 3; i++) {
		unit = stage_unit(&r->w->w[slots[i]]) > unit ? stage_unit(&r->w->w[slots[i]]) : unit;
		bytes += matrix_bytes(&r->w->w[slots[i]]);
	}
	int64_t rows = q_width(s) + 2 * kv_width(s);
	struct sharing share = share_out(s, s->n_rows, rows, bytes, unit);
	int n = share.several ? (int)((rows + share.unit - 1) / share.unit) : n_threads;
	while (pool_take(s->pool, n, 1, share.several, thread, &begin, &end))
		qkv_rows(r, thread, qkv_cut(s, unit, (int)begin, n), qkv_cut(s, unit, (int)end, n));
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

/* Whether attention quantises what it gives: its heads are whole blocks of the output product's input. */
static int quantizes_heads(const struct stage *s)
{
	return s->limits.int8_rows && !s->shard.gather_attn && s->m->n_head_dim % PACK_BLOCK == 0;
}

/* n_heads heads from head h on, of kv head kv, for n rows of a sequence from row b on: rope of q, attention, quantised. */
static void attend(const struct region *r, int64_t b, int64_t n, int64_t kv, int64_t h, int64_t n_heads)
{
	struct stage *s = r->s;
	int64_t D = s->m->n_head_dim, width = q_width(s), at = b * width + h * D, blocks = act_blocks(width);
	float scale = (float)(1.0 / __builtin_sqrt((double)D));
	for (int64_t i = 0; i < n; i++)
		s->k->rope(s->q + at + i * width, n_heads, D, s->rope_cos + (b + i) * D / 2, s->rope_sin + (b + i) * D / 2,
			   s->m->rope_interleaved);
	s->k->attention_rows(r->kv, s->rows[b].pages, kv, s->rows[b].pos, n, n_heads, s->m->window, scale, s->q + at, width,
			     s->attn + at, width);
	for (int64_t i = 0; quantizes_heads(s) && i < n; i++)
		s->k->quantize(s->attn + at + i * width, n_heads * D, s->attn8 + (b + i) * blocks + h * D / PACK_BLOCK);
}

/* Items are some rows of a sequence with all heads of a kv head, so that K and V are read once for them; when these are too
 * few for the threads, with one head each. They are dealt in turn: neighbours have like lengths. */
static void attention_part(void *arg, int thread, int n_threads)
{
	enum { ROWS = 16 };
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t n_kv = range_size(s->shard.kv_heads), item = 0;
	for (int64_t b = 0, n; b < s->n_rows; b += n) {
		n = rows_together(s, b, ROWS);
		for (int64_t kv = 0; kv < n_kv; kv++) {
			struct range heads = heads_of(s, kv);
			int64_t at_once = s->n_rows * n_kv < 4 * n_threads ? 1 : range_size(heads);
			for (int64_t h = heads.begin; h < heads.end; h += at_once)
				if (item++ % n_threads == thread)
					attend(r, b, n, kv, h, at_once);
		}
	}
}

/* --- products that end in the residual --- */

void stage_count_bad(struct stage *s)
{
	int64_t C = s->m->n_embd;
	for (int64_t b = 0; b < s->n_rows; b++)
		s->acc[b * (C + 1) + C] = s->bad[b];
	for (int t = 1; t < pool_threads(s->pool); t++)
		for (int64_t b = 0; b < s->n_rows; b++)
			if (s->bad[t * s->limits.step_tokens + b])
				s->acc[b * (C + 1) + C] += s->bad[t * s->limits.step_tokens + b];
}

static void fixed_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end, C = s->m->n_embd, rows = range_size(r->out);
	int64_t *bad = s->bad + thread * s->limits.step_tokens;
	struct sharing share = share_out(s, s->n_rows, rows, matrix_bytes(r->matrix), stage_unit(r->matrix));
	(void)n_threads;
	memset(bad, 0, (size_t)s->n_rows * sizeof *bad);
	while (pool_take(s->pool, rows, share.unit, share.several, thread, &begin, &end))
		for (int64_t at = begin, n; at < end; at += n) {
			n = columns_at_once(s, at, end);
			for (int64_t b = 0; b < s->n_rows; b++)
				memset(s->acc + b * (C + 1) + r->out.begin + at, 0, (size_t)n * sizeof *s->acc);
			stage_product_fixed(s, thread, r->matrix, at, at + n, r->run, NULL, &r->rows, s->n_rows, s->acc + r->out.begin, bad);
		}
}

/* acc = this rank's share of W in, in fixed point: some of K for all outputs, or all of K for the outputs `out`. */
static void partial_product(struct stage *s, const struct weight *w, struct range out, const struct act_rows *in, int64_t run)
{
	if (range_size(out) < s->m->n_embd)      /* else the threads clear what they fill */
		memset(s->acc, 0, (size_t)(s->n_rows * (s->m->n_embd + 1)) * sizeof *s->acc);
	pool_run(s->pool, fixed_part, &(struct region){ .s = s, .matrix = w, .out = out, .rows = *in, .run = run });
	stage_count_bad(s);
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

void stage_settle_row(struct stage *s, int thread, int64_t b, const float *bias)
{
	int64_t C = s->m->n_embd, *room = (int64_t *)(void *)s->scratch[thread];
	const int64_t *sums = s->is_dealt ? dealt_sum(s->dealt, b, room) : s->acc + b * (C + 1);
	s->k->add_fixed(s->x + b * C, sums, sums[C], bias, C);
}

static void settle_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end;
	pool_part(range_size(r->mine), 1, thread, n_threads, &begin, &end);
	for (int64_t b = r->mine.begin + begin; b < r->mine.begin + end; b++) {
		stage_settle_row(s, thread, b, r->bias);
		if (r->norm)
			stage_norm_row(s, s->x + b * s->m->n_embd, r->norm, b);
	}
}

enum err stage_settle(struct stage *s, const float *bias, const float *next_norm)
{
	TRY(stage_bring_sums(s));
	struct range mine = stage_own_rows(s);
	stage_run_rows(s, range_size(mine), s->m->n_embd, settle_part,
		       &(struct region){ .s = s, .mine = mine, .bias = bias, .norm = next_norm });
	return next_norm ? stage_show(s, s->shows) : ERR_OK;
}

static enum err attention(struct stage *s, const struct layer_weights *w, const struct kv_layer *kv)
{
	struct region r = { .s = s, .w = w, .kv = kv };
	pool_run(s->pool, qkv_part, &r);
	pool_run(s->pool, attention_part, &r);
	int64_t width = q_width(s), D = s->m->n_head_dim;
	struct act_rows in = { s->attn, width, s->attn8, act_blocks(width) };
	if (s->shard.gather_attn) {
		TRY(gather_input(s, s->attn, shard_gathered_heads, D));
		width = s->m->n_head * D;
		in = (struct act_rows){ s->gathered, width, s->attn8, act_blocks(width) };
	}
	if (!quantizes_heads(s))
		stage_quantize(s, in.f, width, width, s->n_rows, s->attn8);
	partial_product(s, &w->w[SLOT_O], s->shard.attn_out, &in, s->m->head_run * D);
	return ERR_OK;
}

/* --- dense FFN --- */

/* Columns [begin, end) of gate and up, activated and quantised. */
static void gate_up_columns(const struct region *r, int thread, int64_t begin, int64_t end)
{
	struct stage *s = r->s;
	int64_t F = range_size(s->shard.ffn);
	struct act_rows x = stage_normed(s);
	stage_product(s, thread, &r->w->w[SLOT_GATE], begin, end, r->w->vector[SLOT_GATE_BIAS], &x, s->n_rows, s->gate, F);
	stage_product(s, thread, &r->w->w[SLOT_UP], begin, end, r->w->vector[SLOT_UP_BIAS], &x, s->n_rows, s->up, F);
	for (int64_t b = 0; b < s->n_rows; b++) {
		float *gate = s->gate + b * F + begin;
		s->k->silu_mul(gate, s->up + b * F + begin, end - begin);
		if (s->limits.int8_rows && !s->shard.gather_ffn)   /* whole blocks: begin is on one */
			s->k->quantize(gate, end - begin, s->gate8 + b * act_blocks(F) + begin / PACK_BLOCK);
	}
}

static void gate_up_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end, F = range_size(s->shard.ffn);
	struct sharing share = share_out(s, s->n_rows, F, matrix_bytes(&r->w->w[SLOT_GATE]) + matrix_bytes(&r->w->w[SLOT_UP]), PACK_BLOCK);
	(void)n_threads;
	while (pool_take(s->pool, F, share.unit, share.several, thread, &begin, &end))
		gate_up_columns(r, thread, begin, end);
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
	return stage_settle(s, w->vector[SLOT_DOWN_BIAS], next_norm);
}

static enum err layers(struct stage *s)
{
	int64_t n_layers = range_size(s->shard.layers);
	if (n_layers)
		TRY(stage_norm(s, s->weights->layers[0].vector[SLOT_ATTN_NORM]));
	for (int64_t i = 0; i < n_layers; i++) {
		const struct layer_weights *w = &s->weights->layers[i];
		const float *next_norm = i + 1 < n_layers ? w[1].vector[SLOT_ATTN_NORM] : NULL;
		TRY(attention(s, w, &s->kv[i]));
		if (s->m->n_expert) {
			TRY(experts_forward(s, w, next_norm));
		} else {
			TRY(stage_settle(s, w->vector[SLOT_O_BIAS], w->vector[SLOT_FFN_NORM]));
			TRY(dense_ffn(s, w, next_norm));
		}
		if (s->between)
			TRY(s->between(s->between_arg));
	}
	return ERR_OK;
}

/* --- head --- */

/* Logits [begin, end), some rows of the matrix at a time; while they are in this thread's cache, their part of each row's digest
 * and its best key. */
static void head_rows(const struct region *r, int thread, int64_t begin, int64_t end)
{
	enum { AT_ONCE = 1024 };   /* rows of the matrix, whole panels */
	struct stage *s = r->s;
	int64_t V = range_size(s->shard.vocab), first = s->shard.vocab.begin;
	struct act_rows x = stage_normed(s);
	struct choosing *own = s->choosing + thread * s->logits_rows;
	for (int64_t v = begin, n; v < end; v += n) {
		n = end - v < AT_ONCE ? end - v : AT_ONCE;
		stage_product(s, thread, &s->weights->head, v, v + n, NULL, &x, r->n, s->logits, V);
		for (int64_t b = 0; r->chooses && b < r->n; b++) {
			const float *logits = s->logits + b * V + v;
			uint64_t key = s->k->best_key(logits, n, first + v);
			own[b].digest += s->k->digest(logits, n, first + v, s->rows[b].pos);
			own[b].key = key > own[b].key ? key : own[b].key;
		}
	}
}

static void head_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	const struct weight *w = &s->weights->head;
	int64_t begin, end, V = range_size(s->shard.vocab);
	struct sharing share = share_out(s, r->n, V, matrix_bytes(w), stage_unit(w));
	(void)n_threads;
	for (int64_t b = 0; b < r->n; b++)
		s->choosing[thread * s->logits_rows + b] = (struct choosing){ 0 };
	while (pool_take(s->pool, V, share.unit, share.several, thread, &begin, &end))
		head_rows(r, thread, begin, end);
}

enum err stage_head(struct stage *s, int64_t n, int chooses)
{
	struct range parts[LAYOUT_MAX_TP], mine = { 0, n };
	int tp = s->grid->layout.tp;
	for (int64_t t = 0, at = 0; s->is_dealt && t < tp; t++) {
		int64_t end = range_part(s->n_rows, 1, tp, (int)t).end;
		parts[t].begin = at;
		while (at < n && s->picked[at] < end)
			at++;
		parts[t].end = at;
	}
	if (s->is_dealt)
		mine = parts[s->grid->me.tp];
	stage_run_rows(s, range_size(mine), s->m->n_embd, norm_part,
		       &(struct region){ .s = s, .mine = mine, .from = s->picked, .norm = s->weights->final_norm });
	if (s->is_dealt)
		TRY(dealt_show(s->dealt, s->shows, parts));
	pool_run(s->pool, head_part, &(struct region){ .s = s, .n = n, .chooses = chooses });
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
		for (int64_t b = 0; b < n; b++)
			s->picked[b] = row + b;
		TRY(stage_head(s, n, 0));
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
		TRY(comm_barrier(c));   /* all have read the normed rows */
	}
	return ERR_OK;
}

/* The layers, then rows leave or tokens are chosen. */
static enum err work(struct stage *s, const struct step *step, int want_all, struct step_results *out, float *all_logits)
{
	long long began = trace_now(s->trace);
	TRY(layers(s));
	trace_end(s->trace, TRACE_LAYERS, began);
	began = trace_now(s->trace);
	if (!s->shard.last_stage) {
		TRY(stage_send_on(s));
		trace_end(s->trace, TRACE_SEND, began);
		return ERR_OK;
	}
	if (want_all)
		TRY(give_all_logits(s, all_logits));
	TRY(stage_sample(s, step, out));
	trace_end(s->trace, TRACE_SAMPLE, began);
	return ERR_OK;
}

enum err stage_forward(struct stage *s, const struct step *step, struct step_results *out, float *all_logits)
{
	long long began = trace_now(s->trace);
	int want_all = 0;
	out->n = out->n_logprobs = 0;
	stage_copy_pages(s, step);
	gather_rows(s, step);
	for (int32_t i = 0; i < step->n_slices; i++)
		want_all |= step->slices[i].replica == s->grid->me.dp && step->slices[i].flags & SLICE_ALL_LOGITS;
	TRY(begin(s));
	if (!s->shard.first_stage)
		TRY(stage_receive(s));
	else
		trace_end(s->trace, TRACE_EMBED, began);
	return work(s, step, want_all, out, all_logits);
}
