/* The default arithmetic of BF16 weights: panels of 16 rows (PACK_BF16, pack.h) times activations rounded to bf16, included by
 * kernels_impl.h and compiled for an instruction set.
 *
 * A lane is a row of the panel: no sum crosses lanes. Of one output, for its pairs of columns (2i, 2i+1) in order of i:
 *
 *   acc  = fma(w[2i+1], x[2i+1], acc)
 *   acc  = fma(w[2i], x[2i], acc)
 *
 * from acc = +0; the column that an odd number's last pair lacks is 0 times 0. A number below 2^-126 counts as a zero of its
 * sign, as an operand and as a result (one that rounds to 24 bits below 2^-126, whatever the exponent). This is what
 * AVX512-BF16's VDPBF16PS does, and what x86's fused multiply-adds do while their control word says FTZ and DAZ. (Arm's
 * flush decides before it rounds: it is another one.)
 *
 * x is rounded to nearest even; below 2^-126 it is a zero of its sign first; NaN stays NaN.
 *
 * Activations of a chunk of tokens are rounded once into the thread's scratch, laid out as tiles read them: pair after pair,
 * the tokens of a tile side by side. Of long rows only a block of columns is, so that both factors stay in the second
 * cache; sums wait in memory between blocks, which changes no bit. */

/* ---- the plain definition ---- */

/* A bf16 as an operand. */
INLINE float bf16_operand(uint16_t h) { return from_bits((h & 0x7f80 ? h : h & 0x8000u) << 16); }

/* A float rounded to bf16, as a float. */
INLINE float bf16_rounded(float x)
{
	uint32_t bits = to_bits(x);
	if (x != x)
		return from_bits((bits | 0x400000u) & 0xffff0000u);
	if (!(bits & 0x7f800000u))
		return from_bits(bits & 0x80000000u);
	return from_bits((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}

/* w and x are operands. Only a result of 2^-126 leaves open on which side the sum was. The double is exact near the border:
 * 2^-126 - 2^-151, the least that rounds up to 2^-126. */
INLINE float bf16_fma(float w, float x, float acc)
{
	float sum = fmaf(w, x, acc);
	if (!(fabsf(sum) <= 0x1p-126f) || fabs((double)w * (double)x + (double)acc) >= 0x1p-126 - 0x1p-151)
		return sum;
	return copysignf(0.0f, sum);
}

#ifndef BF16_LANES
/* A strip: the lanes that a register holds. BF16_MAX_n: most tokens of a tile of n panels. */
#define BF16_LANES LANES
#define BF16_MAX_1 1
#define BF16_MAX_2 1
#define BF16_MAX_4 1
typedef struct { float even, odd; } bf16_pair;               /* the activations of one token and pair of columns */
typedef struct { float v[LANES]; } bf16_sums;
typedef struct { float even[LANES], odd[LANES]; } bf16_weights;
typedef bf16_pair bf16_spread;

INLINE bf16_sums bf16_sums_load(const float *from)
{
	bf16_sums s;
	memcpy(s.v, from, sizeof s.v);
	return s;
}

INLINE void bf16_sums_store(float *to, bf16_sums s) { memcpy(to, s.v, sizeof s.v); }

INLINE bf16_weights bf16_weights_load(const unsigned char *from)
{
	bf16_weights w;
	for (int l = 0; l < LANES; l++) {
		w.even[l] = bf16_operand((uint16_t)(from[4 * l] | from[4 * l + 1] << 8));
		w.odd[l] = bf16_operand((uint16_t)(from[4 * l + 2] | from[4 * l + 3] << 8));
	}
	return w;
}

INLINE bf16_spread bf16_pair_load(const bf16_pair *x) { return *x; }

INLINE bf16_sums bf16_add(bf16_sums s, bf16_weights w, bf16_spread x)
{
	for (int l = 0; l < LANES; l++)
		s.v[l] = bf16_fma(w.even[l], x.even, bf16_fma(w.odd[l], x.odd, s.v[l]));
	return s;
}

/* 16 activations to 8 pairs. */
INLINE void bf16_round16(const float *x, bf16_pair *to)
{
	for (int i = 0; i < 8; i++)
		to[i] = (bf16_pair){ bf16_rounded(x[2 * i]), bf16_rounded(x[2 * i + 1]) };
}

#define bf16_flush_begin() 0u
#define bf16_flush_end(was) (void)(was)
#endif

enum { BF16_STRIPS = PANEL_ROWS / BF16_LANES,    /* of a panel */
       BF16_STRIP_BYTES = PAIR_BYTES / BF16_STRIPS,
       BF16_MAX_TOKENS = BF16_MAX_1,             /* of a tile */
       BF16_MAX_PANELS = 4,
       BF16_CHUNK_TOKENS = 96,                   /* rounded at once, when there is scratch for them */
       BF16_BLOCK_COLS = 2048,                   /* of so many columns, or of a longer run */
       BF16_AHEAD_BYTES = 4096 };                /* of the prefetch, in each panel */

/* ---- a tile ---- */

/* sum[q * n_tokens + t][r] += n_pairs pairs of columns of panel q, panel_bytes apart, and token t. n_panels and n_tokens are
 * constants at every call. ahead: what the prefetch adds. */
INLINE void bf16_run(int n_panels, int n_tokens, const unsigned char *panel, int64_t panel_bytes, int64_t n_pairs, int64_t ahead,
		     const bf16_pair *x, float (*sum)[PANEL_ROWS])
{
	bf16_sums acc[BF16_MAX_PANELS * BF16_STRIPS][BF16_MAX_TOKENS];
	int n_strips = n_panels * BF16_STRIPS;
	for (int q = 0; q < n_strips; q++)
		for (int t = 0; t < n_tokens; t++)
			acc[q][t] = bf16_sums_load(sum[q / BF16_STRIPS * n_tokens + t] + q % BF16_STRIPS * BF16_LANES);
	for (int64_t i = 0; i < n_pairs; i++, panel += PAIR_BYTES, x += n_tokens) {
		bf16_weights w[BF16_MAX_PANELS * BF16_STRIPS];
		for (int q = 0; q < n_panels; q++)
			__builtin_prefetch(panel + q * panel_bytes + ahead);
		for (int q = 0; q < n_strips; q++)
			w[q] = bf16_weights_load(panel + q / BF16_STRIPS * panel_bytes + q % BF16_STRIPS * BF16_STRIP_BYTES);
		for (int t = 0; t < n_tokens; t++) {
			bf16_spread xs = bf16_pair_load(x + t);
			for (int q = 0; q < n_strips; q++)
				acc[q][t] = bf16_add(acc[q][t], w[q], xs);
		}
	}
	for (int q = 0; q < n_strips; q++)
		for (int t = 0; t < n_tokens; t++)
			bf16_sums_store(sum[q / BF16_STRIPS * n_tokens + t] + q % BF16_STRIPS * BF16_LANES, acc[q][t]);
}

typedef void bf16_tile(const unsigned char *panel, int64_t panel_bytes, int64_t n_pairs, int64_t ahead, const bf16_pair *x,
		       float (*sum)[PANEL_ROWS]);

#define BF16_TILE(p, n)                                                                                                  \
	static void bf16_tile_##p##_##n(const unsigned char *panel, int64_t panel_bytes, int64_t n_pairs, int64_t ahead, \
					const bf16_pair *x, float (*sum)[PANEL_ROWS])                                    \
	{                                                                                                                \
		bf16_run(p, n, panel, panel_bytes, n_pairs, ahead, x, sum);                                              \
	}
#if BF16_MAX_1 == 12
#define BF16_SIZES(X)                                                                                                       \
	X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(1, 5) X(1, 6) X(1, 7) X(1, 8) X(1, 9) X(1, 10) X(1, 11) X(1, 12)                  \
	X(2, 1) X(2, 2) X(2, 3) X(2, 4) X(2, 5) X(2, 6) X(2, 7) X(2, 8) X(2, 9) X(2, 10) X(2, 11) X(2, 12)                  \
	X(4, 1) X(4, 2) X(4, 3) X(4, 4)
#elif BF16_MAX_1 == 4
#define BF16_SIZES(X) X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(2, 1) X(2, 2) X(4, 1)
#else
#define BF16_SIZES(X) X(1, 1) X(2, 1) X(4, 1)
#endif
BF16_SIZES(BF16_TILE)

#define BF16_ENTRY(p, n) [p][n] = bf16_tile_##p##_##n,
static bf16_tile *const bf16_tiles[BF16_MAX_PANELS + 1][BF16_MAX_TOKENS + 1] = { BF16_SIZES(BF16_ENTRY) };

/* ---- activations ---- */

/* Columns [0, cols) of n_tokens rows to pairs, as a tile of so many tokens reads them. */
static void bf16_round_tile(const float *x, int64_t ldx, int64_t n_tokens, int64_t cols, bf16_pair *to)
{
	bf16_pair pairs[8];
	float last[16] = { 0 };
	int64_t whole = cols / 16 * 16, t = 0;
#ifdef BF16_ROUND_4
	for (; t + 4 <= n_tokens; t += 4)
		for (int64_t k = 0; k < whole; k += 16)
			bf16_round_4(x + t * ldx + k, ldx, to + k / 2 * n_tokens + t, n_tokens);
#endif
	for (; t < n_tokens; t++)
		for (int64_t k = 0; k < whole; k += 16) {
			if (n_tokens == 1) {
				bf16_round16(x + k, to + k / 2);
				continue;
			}
			bf16_round16(x + t * ldx + k, pairs);
			for (int64_t i = 0; i < 8; i++)
				to[(k / 2 + i) * n_tokens + t] = pairs[i];
		}
	for (t = 0; t < n_tokens && whole < cols; t++) {
		memcpy(last, x + t * ldx + whole, (size_t)(cols - whole) * sizeof *x);
		bf16_round16(last, pairs);
		for (int64_t i = 0; i < pack_pairs(cols - whole); i++)
			to[(whole / 2 + i) * n_tokens + t] = pairs[i];
	}
}

/* ---- a matrix ---- */

/* A chunk of tokens and a block of columns: what is in the scratch, and who is multiplied with it. */
struct bf16_work {
	const struct weight *w;
	int64_t panel_bytes, first_pair, n_pairs;
	int64_t n_tokens, max_tokens;    /* of the chunk, of a tile */
	int max_panels;
	const bf16_pair *x;
};

/* Tokens of the next tile: as few tiles as there can be, of nearly the same size. */
INLINE int64_t bf16_tile_tokens(const struct bf16_work *k, int64_t n_left)
{
	int64_t tiles = (n_left + k->max_tokens - 1) / k->max_tokens;
	return (n_left + tiles - 1) / tiles;
}

/* Few tokens take many panels at a time, which hides how long an addition takes; many tokens as many as registers allow. */
static void bf16_shape(struct bf16_work *k, int64_t n)
{
	k->max_panels = n <= BF16_MAX_4 ? 4 : n <= BF16_MAX_2 || BF16_MAX_2 == BF16_MAX_1 ? 2 : 1;
	k->max_tokens = k->max_panels == 4 ? BF16_MAX_4 : k->max_panels == 2 ? BF16_MAX_2 : BF16_MAX_1;
}

/* Columns and tokens that are rounded at once, of n tokens; blocks of columns are multiples of `step`. */
static void bf16_chunk(int64_t cols, int64_t step, int64_t n, int64_t *block, int64_t *tokens)
{
	int64_t room = KERNEL_SCRATCH_ROWS * cols * (int64_t)sizeof(float) / (int64_t)sizeof(bf16_pair);
	*block = cols;
	if (n * cols > BF16_CHUNK_TOKENS * BF16_BLOCK_COLS && step < cols)
		*block = step < BF16_BLOCK_COLS ? BF16_BLOCK_COLS / step * step : step;
	if (*block > cols)
		*block = cols;
	*tokens = room / pack_pairs(*block);
	if (*tokens > BF16_CHUNK_TOKENS)
		*tokens = BF16_CHUNK_TOKENS;
	if (*tokens > BF16_MAX_TOKENS)
		*tokens = *tokens / BF16_MAX_TOKENS * BF16_MAX_TOKENS;
}

static void bf16_round_chunk(struct bf16_work *k, const float *x, int64_t ldx, int64_t cols, float *scratch)
{
	bf16_pair *to = (bf16_pair *)(void *)scratch;
	k->n_pairs = pack_pairs(cols);
	k->x = to;
	for (int64_t t = 0, n; t < k->n_tokens; t += n) {
		n = bf16_tile_tokens(k, k->n_tokens - t);
		bf16_round_tile(x + t * ldx, ldx, n, cols, to + t * k->n_pairs);
	}
}

/* How many panels from row r on go together. */
static int bf16_panels(const struct bf16_work *k, int64_t r, int64_t end)
{
	int64_t left = (end - r + PANEL_ROWS - 1) / PANEL_ROWS;
	int n = k->max_panels;
	while (n > left)
		n /= 2;
	return n;
}

/* What one tile computes, (n_panels, n) rows of sums: panels from row r on, of rows up to `end`, and n tokens from t on. */
struct bf16_place { int64_t r, end, t, n; int n_panels; };

/* sum += pairs [from, to) of the block. Near the end of the panels the prefetch goes on in those that come next. */
static void bf16_pairs(const struct bf16_work *k, const struct bf16_place *p, int64_t from, int64_t to, float (*sum)[PANEL_ROWS])
{
	bf16_tile *add = bf16_tiles[p->n_panels][p->n];
	const unsigned char *panel = k->w->data + p->r / PANEL_ROWS * k->panel_bytes;
	const bf16_pair *x = k->x + p->t * k->n_pairs;
	int64_t turn = (k->panel_bytes - BF16_AHEAD_BYTES) / PAIR_BYTES - k->first_pair;
	turn = turn < from ? from : turn > to ? to : turn;
	uint32_t was = bf16_flush_begin();
	if (from < turn)
		add(panel + (k->first_pair + from) * PAIR_BYTES, k->panel_bytes, turn - from, BF16_AHEAD_BYTES, x + from * p->n, sum);
	if (turn < to)
		add(panel + (k->first_pair + turn) * PAIR_BYTES, k->panel_bytes, to - turn,
		    BF16_AHEAD_BYTES + (p->n_panels - 1) * k->panel_bytes, x + turn * p->n, sum);
	bf16_flush_end(was);
}

/* Rows of panel q that are wanted. */
INLINE int64_t bf16_panel_rows(const struct bf16_place *p, int q)
{
	int64_t n = p->end - p->r - q * PANEL_ROWS;
	return n < PANEL_ROWS ? n : PANEL_ROWS;
}

/* y, of the chunk's first token, to sums and back. */
static void bf16_from_y(const struct bf16_place *p, const float *y, int64_t ldy, float (*sum)[PANEL_ROWS])
{
	for (int q = 0; q < p->n_panels; q++)
		for (int64_t t = 0; t < p->n; t++)
			memcpy(sum[q * p->n + t], y + (p->t + t) * ldy + p->r + q * PANEL_ROWS,
			       (size_t)bf16_panel_rows(p, q) * sizeof *y);
}

static void bf16_to_y(const struct bf16_place *p, float (*sum)[PANEL_ROWS], const float *bias, float *y, int64_t ldy)
{
	for (int q = 0; q < p->n_panels; q++)
		for (int64_t t = 0; t < p->n; t++) {
			int64_t r = p->r + q * PANEL_ROWS, n_rows = bf16_panel_rows(p, q);
			float *from = sum[q * p->n + t], *to = y + (p->t + t) * ldy + r;
			for (int64_t i = 0; i < n_rows && bias; i++)
				from[i] += bias[r + i];
			memcpy(to, from, (size_t)n_rows * sizeof *to);
		}
}

/* y of the chunk: what earlier blocks of columns gave, or 0, and this one. */
static void bf16_matmul_block(const struct bf16_work *k, int64_t begin, int64_t end, const float *bias, float *y, int64_t ldy)
{
	float sum[BF16_MAX_PANELS * BF16_MAX_TOKENS][PANEL_ROWS] = { { 0 } };    /* rows that are not wanted are computed too */
	int is_last = k->first_pair + k->n_pairs == pack_pairs(k->w->cols);
	struct bf16_place p = { .r = begin, .end = end };
	for (; p.r < end; p.r += p.n_panels * PANEL_ROWS) {
		p.n_panels = bf16_panels(k, p.r, end);
		for (p.t = 0; p.t < k->n_tokens; p.t += p.n) {
			p.n = bf16_tile_tokens(k, k->n_tokens - p.t);
			if (k->first_pair)
				bf16_from_y(&p, y, ldy, sum);
			else
				memset(sum, 0, (size_t)(p.n_panels * p.n) * sizeof *sum);
			bf16_pairs(k, &p, 0, k->n_pairs, sum);
			bf16_to_y(&p, sum, is_last ? bias : NULL, y, ldy);
		}
	}
}

static void bf16_matmul(const struct weight *w, int64_t begin, int64_t end, const float *bias, const float *x, int64_t ldx,
			int64_t n, float *y, int64_t ldy, float *scratch)
{
	struct bf16_work k = { .w = w, .panel_bytes = pack_panel_bytes(w->type, w->cols) };
	int64_t block, tokens;
	bf16_shape(&k, n);
	bf16_chunk(w->cols, 2, n, &block, &tokens);
	for (int64_t b = 0; b < n; b += tokens)
		for (int64_t at = 0; at < w->cols; at += block) {
			k.n_tokens = n - b < tokens ? n - b : tokens;
			k.first_pair = at / 2;
			bf16_round_chunk(&k, x + b * ldx + at, ldx, w->cols - at < block ? w->cols - at : block, scratch);
			bf16_matmul_block(&k, begin, end, bias, y + b * ldy, ldy);
		}
}

/* total and bad += one run's sums. */
static void bf16_add_run(const struct bf16_place *p, float (*sum)[PANEL_ROWS], const float *gate, int64_t (*total)[PANEL_ROWS],
			 int64_t *bad)
{
	for (int q = 0; q < p->n_panels; q++)
		for (int64_t t = 0; t < p->n; t++) {
			part factor = part_set1(gate ? gate[p->t + t] * 0x1p32f : 0x1p32f);
			for (int lane = 0; lane < PANEL_ROWS; lane += PART_LANES) {
				float *v = sum[q * p->n + t] + lane;
				int64_t *to = total[q * p->n + t] + lane;
				part fixed = part_mul(part_load(v), factor);
				if (part_fixed(fixed, to))
					continue;
				part_store(v, fixed);
				part_fixed_some(v, (int)bf16_panel_rows(p, q) - lane, to, &bad[p->t + t]);
			}
		}
}

static void bf16_to_acc(const struct bf16_place *p, int64_t (*total)[PANEL_ROWS], int64_t *acc, int64_t lda)
{
	for (int q = 0; q < p->n_panels; q++)
		for (int64_t t = 0; t < p->n; t++) {
			int64_t *to = acc + (p->t + t) * lda + p->r + q * PANEL_ROWS;
			for (int64_t i = 0; i < bf16_panel_rows(p, q); i++)
				to[i] = (int64_t)((uint64_t)to[i] + (uint64_t)total[q * p->n + t][i]);
		}
}

/* acc += the runs that the block consists of, each of `run` pairs but for the last; acc, bad and gate of the chunk's first
 * token. */
static void bf16_fixed_block(const struct bf16_work *k, int64_t begin, int64_t end, int64_t run, const float *gate, int64_t *acc,
			     int64_t lda, int64_t *bad)
{
	float sum[BF16_MAX_PANELS * BF16_MAX_TOKENS][PANEL_ROWS];
	int64_t total[BF16_MAX_PANELS * BF16_MAX_TOKENS][PANEL_ROWS];
	struct bf16_place p = { .r = begin, .end = end };
	for (; p.r < end; p.r += p.n_panels * PANEL_ROWS) {
		p.n_panels = bf16_panels(k, p.r, end);
		for (p.t = 0; p.t < k->n_tokens; p.t += p.n) {
			p.n = bf16_tile_tokens(k, k->n_tokens - p.t);
			memset(total, 0, (size_t)(p.n_panels * p.n) * sizeof *total);
			for (int64_t from = 0; from < k->n_pairs; from += run) {
				memset(sum, 0, (size_t)(p.n_panels * p.n) * sizeof *sum);
				bf16_pairs(k, &p, from, k->n_pairs - from < run ? k->n_pairs : from + run, sum);
				bf16_add_run(&p, sum, gate, total, bad);
			}
			bf16_to_acc(&p, total, acc, lda);
		}
	}
}

static void bf16_matmul_fixed(const struct weight *w, int64_t begin, int64_t end, int64_t run, const float *gate, const float *x,
			      int64_t ldx, int64_t n, int64_t *acc, int64_t lda, int64_t *bad, float *scratch)
{
	struct bf16_work k = { .w = w, .panel_bytes = pack_panel_bytes(w->type, w->cols) };
	int64_t block, tokens;
	bf16_shape(&k, n);
	bf16_chunk(w->cols, run, n, &block, &tokens);
	for (int64_t b = 0; b < n; b += tokens)
		for (int64_t at = 0; at < w->cols; at += block) {
			k.n_tokens = n - b < tokens ? n - b : tokens;
			k.first_pair = at / 2;
			bf16_round_chunk(&k, x + b * ldx + at, ldx, w->cols - at < block ? w->cols - at : block, scratch);
			bf16_fixed_block(&k, begin, end, pack_pairs(run), gate ? gate + b : NULL, acc + b * lda, lda, bad + b);
		}
}
