/* Attention of many queries, included by attention_impl.h: dot products and weights of 16 at a time. */

/* Queries as columns: of group g, (d, 16) at to + g * 16 * d; lanes without a query are zeros. */
static void turn_queries(const struct query *queries, int64_t n, int64_t d, float *restrict to)
{
	for (int64_t i = 0; i < n; i += LANES, to += LANES * d) {
		int64_t n_lanes = n - i < LANES ? n - i : LANES, k = 0;
#ifdef PART_TURN
		const float *rows[LANES];
		for (int64_t l = 0; l < LANES; l++)
			rows[l] = queries[i + (l < n_lanes ? l : n_lanes - 1)].q;
		for (; k + LANES <= d; k += LANES)
			part_turn(rows, k, to + k * LANES);
#endif
		for (; k < d; k++)
			for (int64_t l = 0; l < LANES; l++)
				to[k * LANES + l] = l < n_lanes ? queries[i + l].q[k] : 0.0f;
	}
}

/* One lane of dot products: columns k, k + 16 ..; of n_parts parts of queries and n_keys keys. */
INLINE void one_lane(int n_parts, int n_keys, const float *const *q, const float *const *keys, int64_t d, int64_t k,
		     part (*acc)[ACROSS_KEYS])
{
	for (int i = 0; i < n_parts; i++)
		for (int j = 0; j < n_keys; j++)
			acc[i][j] = part_zero();
	for (; k < d; k += LANES) {
		part key[ACROSS_KEYS];
		for (int j = 0; j < n_keys; j++)
			key[j] = part_set1(keys[j][k]);
		for (int i = 0; i < n_parts; i++) {
			part x = part_load(q[i] + k * LANES);
			part_keep(x);
			for (int j = 0; j < n_keys; j++)
				acc[i][j] = part_fma(x, key[j], acc[i][j]);
		}
	}
}

INLINE void add_lanes(int n_parts, int n_keys, part (*acc)[ACROSS_KEYS], part (*more)[ACROSS_KEYS])
{
	for (int i = 0; i < n_parts; i++)
		for (int j = 0; j < n_keys; j++)
			acc[i][j] = part_add(acc[i][j], more[i][j]);
}

/* The tree's first two levels: lanes k, k + 8, k + 4, k + 12. */
INLINE void four_lanes(int n_parts, int n_keys, const float *const *q, const float *const *keys, int64_t d, int64_t k,
		       part (*acc)[ACROSS_KEYS])
{
	part second[ACROSS_PARTS][ACROSS_KEYS], more[ACROSS_PARTS][ACROSS_KEYS];
	one_lane(n_parts, n_keys, q, keys, d, k, acc);
	one_lane(n_parts, n_keys, q, keys, d, k + 8, more);
	add_lanes(n_parts, n_keys, acc, more);
	one_lane(n_parts, n_keys, q, keys, d, k + 4, second);
	one_lane(n_parts, n_keys, q, keys, d, k + 12, more);
	add_lanes(n_parts, n_keys, second, more);
	add_lanes(n_parts, n_keys, acc, second);
}

/* p[j * QUERIES ..] of n_keys keys (d apart), lanes of n_parts parts of queries. */
INLINE void across_tile(int n_parts, int n_keys, const float *const *q, const float *keys, int64_t d, float *p)
{
	part sum[4][ACROSS_PARTS][ACROSS_KEYS];
	const float *rows[ACROSS_KEYS];
	for (int j = 0; j < n_keys; j++)
		rows[j] = keys + j * d;
	for (int k = 0; k < 4; k++)
		four_lanes(n_parts, n_keys, q, rows, d, k, sum[k]);
	for (int k = 0; k < 2; k++)
		add_lanes(n_parts, n_keys, sum[k], sum[k + 2]);
	add_lanes(n_parts, n_keys, sum[0], sum[1]);
	for (int j = 0; j < n_keys; j++)
		for (int i = 0; i < n_parts; i++)
			part_store(p + j * QUERIES + i * PART_LANES, sum[0][i][j]);
}

#define ACROSS_TILES(n)                                                                                                   \
	static void across_##n(const float *const *q, const float *keys, int64_t n_keys, int64_t d, float *p)             \
	{                                                                                                                 \
		int64_t j = 0;                                                                                            \
		for (; j + ACROSS_KEYS <= n_keys; j += ACROSS_KEYS)                                                       \
			across_tile(n, ACROSS_KEYS, q, keys + j * d, d, p + j * QUERIES);                                 \
		for (; j < n_keys; j++)                                                                                   \
			across_tile(n, 1, q, keys + j * d, d, p + j * QUERIES);                                           \
	}
ACROSS_TILES(2)
#if PARTS == 1
ACROSS_TILES(1)
ACROSS_TILES(3)
ACROSS_TILES(4)
#endif

/* p[j][i] = dot(q_i, k_j) for n_keys rows of floats at `keys` and n_groups groups of queries, turned. */
static void scores_across(const float *keys, int64_t n_keys, int64_t d, const float *turned, int64_t n_groups, float *p)
{
	typedef void tiles(const float *const *q, const float *keys, int64_t n_keys, int64_t d, float *p);
#if PARTS == 1
	static tiles *const of_parts[ACROSS_PARTS + 1] = { NULL, across_1, across_2, across_3, across_4 };
#else
	static tiles *const of_parts[ACROSS_PARTS + 1] = { NULL, NULL, across_2 };
#endif
	for (int64_t i = 0, n; i < n_groups * PARTS; i += n) {
		const float *q[ACROSS_PARTS];
		n = n_groups * PARTS - i < ACROSS_PARTS ? n_groups * PARTS - i : ACROSS_PARTS;
		for (int64_t t = 0; t < n; t++)
			q[t] = turned + (i + t) / PARTS * LANES * d + (i + t) % PARTS * PART_LANES;
		of_parts[n](q, keys, n_keys, d, p + i * PART_LANES);
	}
}

/* Products of 16 queries become scores, those that are not seen -inf. */
static void mask_scores(float scale, const int *from, const int *to, float *restrict p)
{
	for (int j = 0; j < KV_PAGE_TOKENS; j++)
		for (int l = 0; l < LANES; l++) {
			uint32_t keep = if_seen(j, from[l], to[l]);
			p[j * QUERIES + l] = from_bits((to_bits(scale * p[j * QUERIES + l]) & keep) | (0xff800000u & ~keep));
		}
}

/* Scores are times `scale`; top: the greatest of each query and of what it was before. */
static void find_tops(float scale, float *restrict p, float *restrict top)
{
	for (int i = 0; i < LANES; i += PART_LANES) {
		part most[4];
		for (int t = 0; t < 4; t++)
			most[t] = part_load(top + i);
		for (int j = 0; j < KV_PAGE_TOKENS; j += 4)
			for (int t = 0; t < 4; t++) {
				float *at = p + (j + t) * QUERIES + i;
				part score = part_mul(part_set1(scale), part_load(at));
				part_store(at, score);
				most[t] = part_max(score, most[t]);
			}
		part_store(top + i, part_max(part_max(most[0], most[1]), part_max(most[2], most[3])));
	}
}

/* Scores become weights. */
INLINE void weigh_scores(int is_masked, const float *top, const int *from, const int *to, float *restrict p)
{
	for (int j = 0; j < KV_PAGE_TOKENS; j++)
		for (int l = 0; l < LANES; l++) {
			uint32_t keep = is_masked ? if_seen(j, from[l], to[l]) : ~0u;
			p[j * QUERIES + l] = from_bits(to_bits(exp_one(p[j * QUERIES + l] - top[l])) & keep);
		}
}

INLINE part two_weights(const float *p, int j)
{
	return part_add(part_load(p + j * QUERIES), part_load(p + (j + LANES) * QUERIES));
}

/* The sums of each query's weights, by the tree: lane j is p_j + p_(j+16). */
static void sum_weights(const float *p, float *restrict sum)
{
	for (int i = 0; i < LANES; i += PART_LANES, p += PART_LANES) {
		part s[4];
		for (int k = 0; k < 4; k++)
			s[k] = part_add(part_add(two_weights(p, k), two_weights(p, k + 8)),
					part_add(two_weights(p, k + 4), two_weights(p, k + 12)));
		part_store(sum + i, part_add(part_add(s[0], s[2]), part_add(s[1], s[3])));
	}
}

/* What weigh does, for n queries, the first ones of a group; those whose `to` is 0 have no part in the block. m, l: of the 16. */
static void weigh_across(const struct query *queries, int64_t n, int64_t d, float scale, float *p, float *restrict m, float *restrict l)
{
	float top[LANES], shrink[LANES], sum[LANES];
	int from[LANES], to[LANES], is_masked = 0, grown = 0;
	for (int64_t i = 0; i < LANES; i++) {
		const struct query *q = &queries[i < n ? i : n - 1];
		top[i] = m[i];
		from[i] = q->from;
		to[i] = q->to;
		is_masked |= from[i] > 0 || to[i] < KV_PAGE_TOKENS;
	}
	if (is_masked)
		mask_scores(scale, from, to, p);
	find_tops(is_masked ? 1.0f : scale, p, top);
	for (int i = 0; i < LANES; i++) {
		shrink[i] = top[i] > m[i] ? exp_one(m[i] - top[i]) : 1.0f;
		grown |= top[i] > m[i];
	}
	for (int64_t i = 0; grown && i < n; i++) {
		float *restrict out = queries[i].out, by = shrink[i];
		for (int64_t c = 0; by != 1.0f && c < d; c++)
			out[c] *= by;
	}
	if (is_masked)
		weigh_scores(1, top, from, to, p);
	else
		weigh_scores(0, top, from, to, p);
	sum_weights(p, sum);
	for (int i = 0; i < LANES; i++) {
		l[i] = l[i] * shrink[i] + sum[i];
		m[i] = top[i];
	}
}
