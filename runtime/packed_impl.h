/* The default arithmetic of quantised weights: panels of 16 rows (pack.h) times activations as int8, included by
 * kernels_impl.h and compiled for an instruction set.
 *
 * A lane is a row of the panel: no sum crosses lanes. Of one output, for its blocks of 32 columns in order of k:
 *
 *   i    = start + the sum of code * q                          int32, exact in any order; start = -offset * sum of q
 *   acc  = fma((float)i, scale * d, acc)                        Q6_K: first 16 columns, then the same for the last 16
 *   acc  = fma(minimum, ds, acc)                                types that have a minimum
 *
 * from acc = +0; d and ds are the activations' (struct act_block). So the bits depend neither on the tile nor on the
 * instruction set, and a block that is not finite (d is NaN) makes every output that uses it NaN.
 *
 * Few tokens read the panel as it is packed. Many tokens share one whose codes are first spread to a byte each, with
 * scales as floats: the same integers and floats, so the same bits. */

#ifndef PACKED_TILE_TOKENS
#define PACKED_TILE_TOKENS 1
typedef struct { uint8_t v[PLANE_BYTES]; } codes;
typedef struct { int32_t v[LANES]; } int_sums;

INLINE codes codes_load(const unsigned char *from)
{
	codes c;
	memcpy(c.v, from, sizeof c.v);
	return c;
}

INLINE void codes_store(unsigned char *to, codes c) { memcpy(to, c.v, sizeof c.v); }

/* Every byte shifted left (right when negative), and masked. */
INLINE codes codes_bits(codes c, int left, int mask)
{
	for (int i = 0; i < PLANE_BYTES; i++)
		c.v[i] = (uint8_t)((left < 0 ? c.v[i] >> -left : c.v[i] << left) & mask);
	return c;
}

INLINE codes codes_or(codes a, codes b)
{
	for (int i = 0; i < PLANE_BYTES; i++)
		a.v[i] |= b.v[i];
	return a;
}

INLINE int_sums sums_start(int bits, int32_t start)
{
	int_sums s;
	(void)bits;
	for (int l = 0; l < LANES; l++)
		s.v[l] = start;
	return s;
}

/* Each lane's four codes times the four activations. Codes have `bits` bits; groups counts those of this sum so far. */
INLINE int_sums sums_add(int bits, int groups, int_sums s, codes c, const int8_t *x)
{
	(void)bits, (void)groups;
	for (int l = 0; l < LANES; l++)
		for (int j = 0; j < 4; j++)
			s.v[l] += c.v[4 * l + j] * x[j];
	return s;
}

INLINE part part_of_sums(int bits, int_sums s)
{
	part p;
	(void)bits;
	for (int l = 0; l < LANES; l++)
		p.v[l] = (float)s.v[l];
	return p;
}

INLINE part part_set1(float x)
{
	part p;
	for (int l = 0; l < LANES; l++)
		p.v[l] = x;
	return p;
}

INLINE part part_mul(part a, part b)
{
	for (int l = 0; l < LANES; l++)
		a.v[l] *= b.v[l];
	return a;
}

INLINE void part_store(float *to, part p) { memcpy(to, p.v, sizeof p.v); }

INLINE part part_of_halves(const unsigned char *from)
{
	part p;
	for (int l = 0; l < LANES; l++)
		p.v[l] = wtype_f16_to_f32((uint16_t)(from[2 * l] | from[2 * l + 1] << 8));
	return p;
}

INLINE part part_of_bytes(const unsigned char *from)
{
	part p;
	for (int l = 0; l < LANES; l++)
		p.v[l] = (float)from[l];
	return p;
}

INLINE part part_of_int8(const unsigned char *from)
{
	part p;
	for (int l = 0; l < LANES; l++)
		p.v[l] = (float)(int8_t)from[l];
	return p;
}
#endif

enum { WIDE_BLOCK_BYTES = PACK_GROUPS * PLANE_BYTES + 2 * LANES * (int)sizeof(float),   /* codes, scale, minimum or second */
       WIDE_TOKENS = 2 * PACKED_TILE_TOKENS + 1,  /* from here on spreading a panel pays */
       TILE_SIZES = PACKED_TILE_TOKENS + 1,
       RUNS_AT_ONCE = 8,               /* of a fixed-point sum, in one call of a tile */
       PREFETCH_BYTES = 4096,          /* ahead in a panel, and past its end in the next */
       CHUNK_BLOCKS = 8192,            /* of activations that stay in the second cache, 64 bytes each */
       CHUNK_MIN_TOKENS = 32 };

/* ---- activations ---- */

#ifndef PART_QUANTIZE
/* The largest magnitude of 32 numbers, as bits: those of infinity or more when one is not finite. */
INLINE uint32_t largest32(const float *v)
{
	uint32_t top = 0;
	for (int i = 0; i < PACK_BLOCK; i++) {
		uint32_t size = to_bits(v[i]) & 0x7fffffffu;
		top = size > top ? size : top;
	}
	return top;
}

/* q = nearest even of v * inverse; sum: of the first 16, of the last. */
INLINE void round32(const float *v, float inverse, int8_t *q, int32_t *sum)
{
	const float magic = 0x1.8p23f;
	sum[0] = sum[1] = 0;
	for (int i = 0; i < PACK_BLOCK; i++) {
		int32_t nearest = (int32_t)(to_bits(v[i] * inverse + magic) - to_bits(magic));
		q[i] = (int8_t)nearest;
		sum[i / LANES] += nearest;
	}
}
#endif

INLINE void quantize_block(const float *v, struct act_block *to)
{
	uint32_t top = largest32(v);
	float largest = from_bits(top);
	int32_t sum[2];
	if (top >= 0x7f800000u || largest < 0x1p-100f) {
		memset(to, 0, sizeof *to);
		if (top >= 0x7f800000u)
			to->d = to->ds = NAN;
		return;
	}
	round32(v, 127.0f / largest, to->q, sum);
	int32_t all = sum[0] + sum[1];
	to->d = largest / 127.0f;
	to->ds = to->d * (float)all;
	to->start8 = -8 * all;
	to->start16 = -16 * all;
	to->start128 = -128 * all;
	to->start32[0] = -32 * sum[0];
	to->start32[1] = -32 * sum[1];
	to->unused = 0;
}

/* A block with something that is not finite has d and ds NaN. One of numbers below 2^-100 counts as zeros. */
static void quantize(const float *x, int64_t n, struct act_block *to)
{
	int64_t k = 0;
	for (; k + PACK_BLOCK <= n; k += PACK_BLOCK)
		quantize_block(x + k, to++);
	if (k < n) {
		float v[PACK_BLOCK] = { 0 };
		memcpy(v, x + k, (size_t)(n - k) * sizeof *v);
		quantize_block(v, to);
	}
}

/* ---- a tile: a panel times a few tokens ---- */

/* Lanes of part p of group g; `at`: the block's first plane. */
INLINE codes group_codes(int bits, int wide, int p, int g, const unsigned char *at)
{
	enum { PART_BYTES = PART_LANES * 4 };
	if (wide || bits == 8)
		return codes_load(at + g * PLANE_BYTES + p * PART_BYTES);
	codes low = codes_bits(codes_load(at + g / 2 * PLANE_BYTES + p * PART_BYTES), g % 2 * -4, 15);
	if (bits == 4)
		return low;
	int high = bits - 4, plane = g / (PACK_GROUPS / high), shift = g % (PACK_GROUPS / high) * high;
	codes top = codes_load(at + (4 + plane) * PLANE_BYTES + p * PART_BYTES);
	return codes_or(low, codes_bits(top, 4 - shift, ((1 << high) - 1) << 4));
}

/* Block b's first plane. panel: as pack.h tells, or spread. */
INLINE const unsigned char *block_codes(enum wtype type, int wide, const unsigned char *panel, int64_t b)
{
	return panel + (wide ? b * WIDE_BLOCK_BYTES : pack_codes_at(type, b));
}

/* Scales of block b, and its minimums or second scales, lanes of part p. */
INLINE void block_head(enum wtype type, int wide, int p, const unsigned char *panel, int64_t b, part *scale, part *second)
{
	if (wide) {
		const unsigned char *at = block_codes(type, wide, panel, b) + PACK_GROUPS * PLANE_BYTES;
		const float *from = (const float *)(const void *)at + p * PART_LANES;
		*scale = part_load(from);
		*second = part_load(from + LANES);
		return;
	}
	const unsigned char *head = panel + pack_head_at(type, b) + p * PART_LANES * 2;
	const unsigned char *scales = panel + pack_scales_at(type, b) + p * PART_LANES;
	*scale = part_of_halves(head);
	if (type == WTYPE_Q6_K) {
		*second = part_mul(*scale, part_of_int8(scales + LANES));
		*scale = part_mul(*scale, part_of_int8(scales));
	} else if (pack_has_minimum(type)) {
		*second = part_of_halves(head + LANES * 2);
		if (pack_is_super(type)) {
			*scale = part_mul(*scale, part_of_bytes(scales));
			*second = part_mul(*second, part_of_bytes(scales + LANES));
		}
	} else {
		*second = *scale;
	}
}

INLINE int32_t start_of(enum wtype type, int half, const struct act_block *x)
{
	switch (pack_offset(type)) {
	case 8: return x->start8;
	case 16: return x->start16;
	case 128: return x->start128;
	case 32: return x->start32[half];
	default: return 0;
	}
}

/* One run of blocks [from, to): out[t][r]. All arguments before `panel` are constants at every call. */
INLINE void packed_run(enum wtype type, int wide, int n_tokens, int p, const unsigned char *panel, int64_t from, int64_t to,
		       const struct act_block *x, int64_t ldx, float (*out)[PANEL_ROWS])
{
	const int bits = pack_bits(type), n_halves = type == WTYPE_Q6_K ? 2 : 1, n_groups = PACK_GROUPS / n_halves;
	part acc[PACKED_TILE_TOKENS];
	for (int t = 0; t < n_tokens; t++)
		acc[t] = part_zero();
	for (int64_t b = from; b < to; b++) {
		const unsigned char *at = block_codes(type, wide, panel, b);
		const struct act_block *xs = x + b;
		part scale, second;
		for (int i = 0; i <= bits && !wide; i++)
			__builtin_prefetch(at + PREFETCH_BYTES + i * PLANE_BYTES);
		block_head(type, wide, p, panel, b, &scale, &second);
		for (int half = 0; half < n_halves; half++) {
			int_sums s[PACKED_TILE_TOKENS];
			for (int t = 0; t < n_tokens; t++)
				s[t] = sums_start(bits, start_of(type, half, xs + t * ldx));
			for (int i = 0; i < n_groups; i++) {
				int g = half * n_groups + i;
				codes c = group_codes(bits, wide, p, g, at);
				for (int t = 0; t < n_tokens; t++)
					s[t] = sums_add(bits, i + 1, s[t], c, xs[t * ldx].q + 4 * g);
			}
			for (int t = 0; t < n_tokens; t++)
				acc[t] = part_fma(part_of_sums(bits, s[t]),
						  part_mul(half ? second : scale, part_set1(xs[t * ldx].d)), acc[t]);
		}
		for (int t = 0; t < n_tokens && pack_has_minimum(type); t++)
			acc[t] = part_fma(second, part_set1(xs[t * ldx].ds), acc[t]);
	}
	for (int t = 0; t < n_tokens; t++)
		part_store(out[t] + p * PART_LANES, acc[t]);
}

/* The runs of [from, to), each of `run` blocks but for the last: out[i * n_tokens + t][r] of run i. */
INLINE void packed_runs(enum wtype type, int wide, int n_tokens, const unsigned char *panel, int64_t from, int64_t to, int64_t run,
			const struct act_block *x, int64_t ldx, float (*out)[PANEL_ROWS])
{
	for (int p = 0; p < PARTS; p++) {
		float (*to_run)[PANEL_ROWS] = out;
		for (int64_t b = from; b < to; b += run, to_run += n_tokens)
			packed_run(type, wide, n_tokens, p, panel, b, to - b < run ? to : b + run, x, ldx, to_run);
	}
}

/* A panel's codes a byte each, its scales floats. */
INLINE void spread(enum wtype type, const unsigned char *panel, int64_t n_blocks, unsigned char *to)
{
	const int bits = pack_bits(type);
	for (int64_t b = 0; b < n_blocks; b++, to += WIDE_BLOCK_BYTES)
		for (int p = 0; p < PARTS; p++) {
			const unsigned char *at = block_codes(type, 0, panel, b);
			float *head = (float *)(void *)(to + PACK_GROUPS * PLANE_BYTES) + p * PART_LANES;
			part scale, second;
			block_head(type, 0, p, panel, b, &scale, &second);
			for (int g = 0; g < PACK_GROUPS; g++)
				codes_store(to + g * PLANE_BYTES + p * PART_LANES * 4, group_codes(bits, 0, p, g, at));
			part_store(head, scale);
			part_store(head + LANES, second);
		}
}

typedef void packed_tile(const unsigned char *panel, int64_t from, int64_t to, int64_t run, const struct act_block *x, int64_t ldx,
			 float (*out)[PANEL_ROWS]);
struct packed_kind {
	packed_tile *tile[2][TILE_SIZES];      /* [spread panel?][tokens] */
	void (*spread)(const unsigned char *panel, int64_t n_blocks, unsigned char *to);
};

#define PACKED_TILE(type, wide, n)                                                                                            \
	static void tile_##type##_##wide##_##n(const unsigned char *panel, int64_t from, int64_t to, int64_t run,                \
					       const struct act_block *x, int64_t ldx, float (*out)[PANEL_ROWS])              \
	{                                                                                                                     \
		packed_runs(WTYPE_##type, wide, n, panel, from, to, run, x, ldx, out);                                        \
	}
#if PACKED_TILE_TOKENS == 8
#define PACKED_SIZES(X, type) X(type, 0, 1) X(type, 0, 2) X(type, 0, 3) X(type, 0, 4) X(type, 0, 5) X(type, 0, 6) \
	X(type, 0, 7) X(type, 0, 8) X(type, 1, 5) X(type, 1, 6) X(type, 1, 7) X(type, 1, 8)
#elif PACKED_TILE_TOKENS == 4
#define PACKED_SIZES(X, type) X(type, 0, 1) X(type, 0, 2) X(type, 0, 3) X(type, 0, 4) X(type, 1, 3) X(type, 1, 4)
#else
#define PACKED_SIZES(X, type) X(type, 0, 1) X(type, 1, 1)
#endif
#define PACKED_TYPES(X) X(Q4_0) X(Q4_1) X(Q4_K) X(Q5_0) X(Q5_1) X(Q5_K) X(Q6_K) X(Q8_0)
#define PACKED_FUNCTIONS(type)                                                                    \
	PACKED_SIZES(PACKED_TILE, type)                                                           \
	static void spread_##type(const unsigned char *panel, int64_t n_blocks, unsigned char *to) \
	{                                                                                         \
		spread(WTYPE_##type, panel, n_blocks, to);                                        \
	}
PACKED_TYPES(PACKED_FUNCTIONS)

#define PACKED_ENTRY(type, wide, n) .tile[wide][n] = tile_##type##_##wide##_##n,
#define PACKED_KIND(type) [WTYPE_##type] = { PACKED_SIZES(PACKED_ENTRY, type) .spread = spread_##type },
static const struct packed_kind packed_kinds[WTYPE_COUNT] = { PACKED_TYPES(PACKED_KIND) };

/* ---- a matrix ---- */

/* A panel and the tokens that are multiplied with it before the next one. */
struct packed_work {
	const struct packed_kind *kind;
	const unsigned char *panel;
	int wide;
	const struct act_block *x;
	int64_t ldx, n;
};

static int64_t chunk_tokens(const struct weight *w)
{
	int64_t tokens = CHUNK_BLOCKS / (w->cols / PACK_BLOCK + 1) / PACKED_TILE_TOKENS * PACKED_TILE_TOKENS;
	return tokens > CHUNK_MIN_TOKENS ? tokens : CHUNK_MIN_TOKENS;
}

static struct packed_work packed_work(const struct weight *w, int64_t r, const struct act_block *x, int64_t ldx, int64_t n,
				      float *scratch)
{
	int64_t blocks = w->cols / PACK_BLOCK;
	struct packed_work work = { .kind = &packed_kinds[w->type], .x = x, .ldx = ldx, .n = n };
	work.panel = w->data + r / PANEL_ROWS * pack_panel_bytes(w->type, w->cols);
	work.wide = n >= WIDE_TOKENS;
	if (work.wide) {
		work.kind->spread(work.panel, blocks, (unsigned char *)scratch);
		work.panel = (unsigned char *)scratch;
	}
	return work;
}

/* Tokens of the next tile: as few tiles as there can be, of nearly the same size. */
static int64_t tile_tokens(int64_t n_left)
{
	int64_t tiles = (n_left + PACKED_TILE_TOKENS - 1) / PACKED_TILE_TOKENS;
	return (n_left + tiles - 1) / tiles;
}

static void packed_panel(const struct packed_work *work, int n_rows, const float *bias, float *y, int64_t ldy,
			 int64_t n_blocks)
{
	float out[PACKED_TILE_TOKENS][PANEL_ROWS];
	for (int64_t b = 0; b < work->n;) {
		int64_t n_tokens = tile_tokens(work->n - b);
		work->kind->tile[work->wide][n_tokens](work->panel, 0, n_blocks, n_blocks, work->x + b * work->ldx, work->ldx,
							    out);
		for (int64_t t = 0; t < n_tokens; t++, b++)
			for (int i = 0; i < n_rows; i++)
				y[b * ldy + i] = bias ? out[t][i] + bias[i] : out[t][i];
	}
}

static void packed_matmul(const struct weight *w, int64_t begin, int64_t end, const float *bias, const struct act_block *x,
			  int64_t ldx, int64_t n, float *y, int64_t ldy, float *scratch)
{
	int64_t chunk = chunk_tokens(w);
	for (int64_t b = 0; b < n; b += chunk)
		for (int64_t r = begin; r < end; r += PANEL_ROWS) {
			int n_rows = (int)(end - r < PANEL_ROWS ? end - r : PANEL_ROWS);
			struct packed_work work = packed_work(w, r, x + b * ldx, ldx, n - b < chunk ? n - b : chunk, scratch);
			packed_panel(&work, n_rows, bias ? bias + r : NULL, y + b * ldy + r, ldy, w->cols / PACK_BLOCK);
		}
}

#ifndef PART_FIXED
/* total[i] += fixed(v[i] * gate) for the 16 rows of a panel; returns how many of the first n_rows do not fit. */
INLINE int64_t panel_fixed(const float *v, float gate, int n_rows, int64_t *total)
{
	float gated[PANEL_ROWS];
	int64_t misfits[PANEL_ROWS] = { 0 }, n = 0;
	for (int i = 0; i < PANEL_ROWS; i++)
		gated[i] = v[i] * gate;
	add_run(gated, PANEL_ROWS, total, misfits);
	for (int i = 0; i < n_rows; i++)
		n += misfits[i];
	return n;
}
#endif

/* acc and bad of the panel's first row and the work's first token. A gate of 1 changes nothing. */
static void packed_panel_fixed(const struct packed_work *work, int n_rows, int64_t run, const float *gate, int64_t *acc,
			       int64_t lda, int64_t *bad, int64_t n_blocks)
{
	float out[RUNS_AT_ONCE * PACKED_TILE_TOKENS][PANEL_ROWS];
	for (int64_t b = 0; b < work->n;) {
		int64_t n_tokens = tile_tokens(work->n - b), total[PACKED_TILE_TOKENS][PANEL_ROWS] = { { 0 } };
		for (int64_t k = 0; k < n_blocks; k += RUNS_AT_ONCE * run) {
			int64_t end = n_blocks - k < RUNS_AT_ONCE * run ? n_blocks : k + RUNS_AT_ONCE * run;
			int64_t n_runs = (end - k + run - 1) / run;
			work->kind->tile[work->wide][n_tokens](work->panel, k, end, run, work->x + b * work->ldx, work->ldx, out);
			for (int64_t t = 0; t < n_tokens; t++)
				for (int64_t i = 0; i < n_runs; i++)
					bad[b + t] += panel_fixed(out[i * n_tokens + t], gate ? gate[b + t] : 1.0f, n_rows, total[t]);
		}
		for (int64_t t = 0; t < n_tokens; t++, b++)
			for (int i = 0; i < n_rows; i++)
				acc[b * lda + i] = (int64_t)((uint64_t)acc[b * lda + i] + (uint64_t)total[t][i]);
	}
}

static void packed_fixed(const struct weight *w, int64_t begin, int64_t end, int64_t run, const float *gate,
			 const struct act_block *x, int64_t ldx, int64_t n, int64_t *acc, int64_t lda, int64_t *bad,
			 float *scratch)
{
	int64_t chunk = chunk_tokens(w), run_blocks = (run + PACK_BLOCK - 1) / PACK_BLOCK;
	for (int64_t b = 0; b < n; b += chunk)
		for (int64_t r = begin; r < end; r += PANEL_ROWS) {
			int n_rows = (int)(end - r < PANEL_ROWS ? end - r : PANEL_ROWS);
			struct packed_work work = packed_work(w, r, x + b * ldx, ldx, n - b < chunk ? n - b : chunk, scratch);
			packed_panel_fixed(&work, n_rows, run_blocks, gate ? gate + b : NULL, acc + b * lda + r, lda, bad + b,
					   w->cols / PACK_BLOCK);
		}
}
