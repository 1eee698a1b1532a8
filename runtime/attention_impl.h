/* Attention over the paged cache, included by kernels_impl.h and compiled for an instruction set.
 *
 * Blocks of 32 positions from position 0. m: running maximum, l: running sum, out: running weighted sum of V. Per block:
 * s_j = scale * dot(q, k_j); the block's maximum; when it exceeds m, l and out are multiplied by exp(m - new m);
 * p_j = exp(s_j - m); l += tree over 16 lanes of p_j + p_(j+16), masked p_j being 0; out_d = fma(p_j, v_jd, out_d) in
 * order of the visible j. At the end out_d / l. A block with no visible position would change nothing and is not walked,
 * so the result does not depend on where the walk starts.
 *
 * All query heads of a kv head, of several rows that follow each other in one sequence, walk the blocks together: K and V
 * are widened once for all of them and met in tiles. Each query sees the operations above, in that order.
 *
 * From ACROSS_QUERIES on a lane is a query: groups of 16, whose q are transposed once, so that neither dot products nor the
 * block's maximum and sum cross lanes. The 16 lanes of a dot product are then sums one after the other, added by the tree. */

enum { QUERIES = 64,                        /* that walk together */
       SCORES = KV_PAGE_TOKENS + PANEL,     /* of a query: whole panels may be written from any of the 32 on */
       VALUE_PARTS = PARTS == 1 ? 4 : 2,    /* of a tile of out: 4 queries wide */
       VALUE_QUERIES = 4,
       ACROSS_QUERIES = 12,
       ACROSS_PARTS = PARTS == 1 ? 4 : 2,   /* of queries in a tile of scores, and keys */
       ACROSS_KEYS = 2 };

/* Where the products, scores and then weights of a block are: query i, position j at p[i * query + j * key]. */
struct weights_of_block { float *p; int64_t query, key; };

struct query {
	const float *q;
	float *out;
	int64_t pos, first;                 /* sees positions first .. pos */
	float m, l;
	int from, to;                       /* of this block */
};

/* p[i][j] = dot(q_i, k_j) for n_keys rows of floats at `keys`, j counted from `at`. */
static void scores(const float *keys, int64_t n_keys, int64_t d, const struct query *queries, int64_t n, float (*p)[SCORES],
		   int64_t at)
{
	float out[TILE_TOKENS][PANEL] = { { 0 } };
	for (int64_t j = 0; j < n_keys; j += PANEL) {
		const float *rows[PANEL], *q[TILE_TOKENS];
		int64_t n_rows = n_keys - j < PANEL ? n_keys - j : PANEL;
		for (int64_t i = 0; i < PANEL; i++)
			rows[i] = keys + (j + (i < n_rows ? i : n_rows - 1)) * d;
		for (int64_t i = 0; i < n; i += TILE_TOKENS) {
			int64_t n_tile = n - i < TILE_TOKENS ? n - i : TILE_TOKENS;
			for (int64_t t = 0; t < TILE_TOKENS; t++)
				q[t] = queries[i + (t < n_tile ? t : n_tile - 1)].q;
			if (n_tile == 1) {
				dots_8x1(rows, q, d, out);
			} else {
				dots_4xt(rows, q, d, out);
				if (n_rows > HALF_PANEL)
					dots_4xt(rows + HALF_PANEL, q, d, (float (*)[PANEL])(void *)(out[0] + HALF_PANEL));
			}
			for (int64_t t = 0; t < n_tile; t++)   /* in the pieces that dots wrote, which the processor forwards */
				for (int64_t r = 0; r < PANEL; r += 4)
					memcpy(p[i + t] + at + j + r, out[t] + r, 4 * sizeof(float));
		}
	}
}

INLINE uint32_t if_seen(int j, int from, int to) { return 0u - (uint32_t)((j >= from) & (j < to)); }

/* Products become scores and then weights; l and out are brought to the new maximum. */
static void weigh(struct query *q, int64_t d, float scale, float *restrict p)
{
	const int from = q->from, to = q->to;
	const float m = q->m;
	float lane[LANES], seen[KV_PAGE_TOKENS];
	for (int j = 0; j < KV_PAGE_TOKENS; j++) {
		uint32_t keep = if_seen(j, from, to);
		seen[j] = from_bits((to_bits(scale * p[j]) & keep) | (0xff800000u & ~keep));   /* -inf */
	}
	for (int j = 0; j < LANES; j++)
		lane[j] = seen[j] > m ? seen[j] : m;
	for (int j = 0; j < LANES; j++)
		lane[j] = seen[j + LANES] > lane[j] ? seen[j + LANES] : lane[j];
	const float top = max16(lane);
	if (top > m) {
		float shrink = exp_one(m - top), *restrict out = q->out;
		q->l *= shrink;
		for (int64_t i = 0; i < d; i++)
			out[i] *= shrink;
		q->m = top;
	}
	for (int j = 0; j < KV_PAGE_TOKENS; j++)
		p[j] = from_bits(to_bits(exp_one(seen[j] - top)) & if_seen(j, from, to));
	for (int j = 0; j < LANES; j++)
		lane[j] = p[j] + p[j + LANES];
	q->l += tree16(lane);
}

INLINE struct weights_of_block weights_from(struct weights_of_block w, int64_t query)
{
	w.p += query * w.query;
	return w;
}

/* out of n queries += p_j v_j for j in [from, to), n_parts parts of columns; v: of j = 0, stride d. */
INLINE void values_tile(int n, int n_parts, const float *v, int64_t d, int64_t from, int64_t to,
			struct weights_of_block w, float *const *out)
{
	part acc[VALUE_QUERIES][VALUE_PARTS];
	for (int i = 0; i < n; i++)
		for (int c = 0; c < n_parts; c++)
			acc[i][c] = part_load(out[i] + c * PART_LANES);
	for (int64_t j = from; j < to; j++) {
		part row[VALUE_PARTS];
		for (int c = 0; c < n_parts; c++)
			row[c] = part_load(v + j * d + c * PART_LANES);
		for (int i = 0; i < n; i++) {
			part weight = part_set1(w.p[i * w.query + j * w.key]);
			for (int c = 0; c < n_parts; c++)
				acc[i][c] = part_fma(weight, row[c], acc[i][c]);
		}
	}
	for (int i = 0; i < n; i++)
		for (int c = 0; c < n_parts; c++)
			part_store(out[i] + c * PART_LANES, acc[i][c]);
}

/* The same for all columns. n is a constant at every call. */
INLINE void values_rows(int n, const float *v, int64_t d, int64_t from, int64_t to,
			struct weights_of_block w, float *const *out)
{
	float *at[VALUE_QUERIES];
	int64_t c = 0;
	if (from >= to)
		return;
	for (; c + VALUE_PARTS * PART_LANES <= d; c += VALUE_PARTS * PART_LANES) {
		for (int i = 0; i < n; i++)
			at[i] = out[i] + c;
		values_tile(n, VALUE_PARTS, v + c, d, from, to, w, at);
	}
	for (; c + PART_LANES <= d; c += PART_LANES) {
		for (int i = 0; i < n; i++)
			at[i] = out[i] + c;
		values_tile(n, 1, v + c, d, from, to, w, at);
	}
	for (; c < d; c++)
		for (int i = 0; i < n; i++)
			for (int64_t j = from; j < to; j++)
				out[i][c] = fmaf(w.p[i * w.query + j * w.key], v[j * d + c], out[i][c]);
}

static void values_one(const float *v, int64_t d, int64_t from, int64_t to, struct weights_of_block w,
		       float *const *out)
{
	values_rows(1, v, d, from, to, w, out);
}

static void values_four(const float *v, int64_t d, int64_t from, int64_t to, struct weights_of_block w,
		       float *const *out)
{
	values_rows(VALUE_QUERIES, v, d, from, to, w, out);
}

/* Four queries take together what all of them see, and alone what is before and behind it. Nobody adds what it does not
 * see: its weight is 0, but 0 times a stored number may be NaN or change a sign. */
static void values(const float *v, int64_t d, const struct query *queries, int64_t n, struct weights_of_block w)
{
	for (int64_t i = 0; i < n; i += VALUE_QUERIES) {
		int64_t n_tile = n - i < VALUE_QUERIES ? n - i : VALUE_QUERIES;
		float *out[VALUE_QUERIES];
		int from = 0, to = KV_PAGE_TOKENS;
		for (int64_t t = 0; t < n_tile; t++) {
			const struct query *q = &queries[i + t];
			out[t] = q->out;
			from = q->from > from ? q->from : from;
			to = q->to < to ? q->to : to;
		}
		if (n_tile < VALUE_QUERIES || from >= to)
			from = to = KV_PAGE_TOKENS;
		for (int64_t t = 0; t < n_tile; t++)
			values_one(v, d, queries[i + t].from, from < queries[i + t].to ? from : queries[i + t].to, weights_from(w, i + t),
				   out + t);
		values_four(v, d, from, to, weights_from(w, i), out);
		for (int64_t t = 0; t < n_tile; t++)
			values_one(v, d, to, queries[i + t].to, weights_from(w, i + t), out + t);
	}
}

#ifndef part_keep
#define part_keep(p) (void)(p)
#endif

/* m and l of every query. */
struct running { float m[QUERIES], l[QUERIES]; };

#include "runtime/attention_across_impl.h"

/* Products and weights of n queries with n_keys keys, positions `at` .. of the block. */
static struct weights_of_block weigh_block(const float *keys, int64_t n_keys, int64_t at, int64_t d, float scale,
					   struct query *queries, int64_t n, float *p)
{
	float (*rows)[SCORES] = (float (*)[SCORES])(void *)p;
	scores(keys, n_keys, d, queries, n, rows, at);
	for (int64_t t = 0; t < n; t++)
		weigh(&queries[t], d, scale, rows[t]);
	return (struct weights_of_block){ p, SCORES, 1 };
}

/* The same for queries [i, end) of all, which are turned; from whole groups on. */
static struct weights_of_block weigh_block_across(const float *keys, int64_t n_keys, int64_t at, int64_t d, float scale,
						  struct query *queries, int64_t i, int64_t end, int64_t n, const float *turned, float *p,
						  struct running *r)
{
	int64_t first = i / LANES * LANES, groups = (end - first + LANES - 1) / LANES;
	scores_across(keys, n_keys, d, turned + first * d, groups, p + first + at * QUERIES);
	for (int64_t g = first; g < end; g += LANES)
		weigh_across(queries + g, n - g < LANES ? n - g : LANES, d, scale, p + g, r->m + g, r->l + g);
	return (struct weights_of_block){ p + i, 1, QUERIES };
}

/* n queries in order of position, at most QUERIES. */
static void attend(const struct kv_layer *kv, const int32_t *pages, int64_t h, float scale, struct query *queries, int64_t n)
{
	float room[KV_PAGE_TOKENS * KERNEL_MAX_HEAD_DIM], turned[QUERIES * KERNEL_MAX_HEAD_DIM], p[QUERIES * SCORES];
	int64_t d = kv->n_head_dim, i = 0, end = 0;
	struct running r;
	int across = n >= ACROSS_QUERIES;
	if (across)
		turn_queries(queries, n, d, turned);
	for (int q = 0; across && q < QUERIES; q++) {
		r.m[q] = -INFINITY;
		r.l[q] = 0.0f;
	}
	for (int64_t block = queries[0].first / KV_PAGE_TOKENS; block <= queries[n - 1].pos / KV_PAGE_TOKENS; block++) {
		int64_t start = block * KV_PAGE_TOKENS;
		for (; queries[i].pos < start; i++)
			queries[i].from = queries[i].to = 0;
		while (end < n && queries[end].first < start + KV_PAGE_TOKENS)
			end++;
		for (int64_t t = i; t < end; t++) {
			struct query *q = &queries[t];
			q->from = (int)(q->first > start ? q->first - start : 0);
			q->to = (int)(q->pos - start < KV_PAGE_TOKENS ? q->pos - start + 1 : KV_PAGE_TOKENS);
		}
		if (i == end)
			continue;
		int64_t from = queries[i].from, n_keys = queries[end - 1].to - from;
		int64_t offset = kv_offset(kv, pages, h, start);
		const float *keys = kv_widen(kv, kv->k + offset, from, room, n_keys);
		struct weights_of_block w = across ? weigh_block_across(keys, n_keys, from, d, scale, queries, i, end, n, turned, p, &r)
						   : weigh_block(keys, n_keys, from, d, scale, queries + i, end - i, p);
		values(kv_widen(kv, kv->v + offset, from, room, n_keys) - from * d, d, queries + i, end - i, w);
	}
	for (i = 0; i < n; i++) {
		float l = across ? r.l[i] : queries[i].l;
		for (int64_t c = 0; c < d; c++)
			queries[i].out[c] /= l;
	}
}

static void attention_rows(const struct kv_layer *kv, const int32_t *pages, int64_t h, int64_t pos, int64_t n_rows,
			   int64_t n_heads, int64_t window, float scale, const float *q, int64_t ldq, float *out, int64_t ldo)
{
	struct query queries[QUERIES];
	int64_t d = kv->n_head_dim, all = n_rows * n_heads;
	for (int64_t i = 0, n; i < all; i += n) {
		n = all - i < QUERIES ? all - i : QUERIES;
		for (int64_t t = 0; t < n; t++) {
			int64_t row = (i + t) / n_heads, head = (i + t) % n_heads, at = pos + row;
			queries[t] = (struct query){ .q = q + row * ldq + head * d, .out = out + row * ldo + head * d, .pos = at,
						     .first = window > 0 && at >= window ? at - window + 1 : 0, .m = -INFINITY };
			memset(queries[t].out, 0, (size_t)d * sizeof(float));
		}
		attend(kv, pages, h, scale, queries, n);
	}
}

static void attention(const struct kv_layer *kv, const int32_t *pages, int64_t h, int64_t pos, int64_t window, float scale,
		      const float *q, float *out)
{
	attention_rows(kv, pages, h, pos, 1, 1, window, scale, q, 0, out, 0);
}
