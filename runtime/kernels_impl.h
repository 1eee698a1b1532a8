/* The one source of the kernels: every kernels_*.c defines (or not) the `part` operations for its instruction set and
 * includes this file, which then ends in a full set of static functions. A table is made with KERNELS_TABLE.
 *
 * Lanes. A sum over K has 16 lanes; K is padded with zeros to a multiple of 16. The lanes live in PARTS parts of
 * PART_LANES lanes each: one part where a register holds 16 floats, two where it holds 8. A tile of rows x tokens keeps
 * its parts in registers over the whole of K, so weights and activations are loaded once per tile. The tile's shape
 * differs between instruction sets, the order of the additions of one output does not: lane k % 16 in order of k by fused
 * multiply-add from +0, then lane i += lane i+8, i+4, i+2, i+1.
 *
 * Fixed point. |run| < 2^24 becomes an integer below 2^56; 127 of the largest runs fit in an int64.
 *
 * NaN. Where a result is NaN its sign and payload are not promised. */
#include "runtime/kernels.h"
#include "runtime/kernels_isa.h"
#include "runtime/pack.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, PANEL = 8, HALF_PANEL = PANEL / 2 };

#ifndef PARTS
#define PARTS 1
#define TILE_TOKENS 2
typedef struct { float v[LANES]; } part;

INLINE part part_zero(void)
{
	part p = { { 0 } };
	return p;
}

INLINE part part_load(const float *from)
{
	part p;
	memcpy(p.v, from, sizeof p.v);
	return p;
}

INLINE part part_fma(part a, part b, part c)
{
	for (int l = 0; l < LANES; l++)
		c.v[l] = fmaf(a.v[l], b.v[l], c.v[l]);
	return c;
}

/* out[i] = the tree over the lanes of sum i; the parts of sum i are a[i], a[4 + i] .. */
INLINE void part_sum4(const part *a, float *out)
{
	for (int i = 0; i < 4; i++) {
		part s = a[i];
		for (int half = LANES / 2; half; half /= 2)
			for (int l = 0; l < half; l++)
				s.v[l] += s.v[l + half];
		out[i] = s.v[0];
	}
}

/* The tree over 16 lanes: of sums, and of maximums, where a NaN never wins. */
INLINE float tree16(const float *lanes)
{
	float lane[LANES];
	memcpy(lane, lanes, sizeof lane);
	for (int half = LANES / 2; half; half /= 2)
		for (int l = 0; l < half; l++)
			lane[l] += lane[l + half];
	return lane[0];
}

INLINE float max16(const float *lanes)
{
	float lane[LANES];
	memcpy(lane, lanes, sizeof lane);
	for (int half = LANES / 2; half; half /= 2)
		for (int l = 0; l < half; l++)
			lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
	return lane[0];
}
#endif

enum { PART_LANES = LANES / PARTS };

/* ---- sums of products ---- */

union bits { float f; uint32_t u; };

INLINE float from_bits(uint32_t u)
{
	union bits b = { .u = u };
	return b.f;
}

INLINE uint32_t to_bits(float f)
{
	union bits b = { .f = f };
	return b.u;
}

/* One step of 16 columns, lanes of part p only. */
INLINE void dots_step(int n_rows, int n_tokens, int p, part (*acc)[TILE_TOKENS], const float *const *w,
		      const float *const *x, int64_t k)
{
	part xs[TILE_TOKENS];
	for (int t = 0; t < n_tokens; t++)
		xs[t] = part_load(x[t] + k + p * PART_LANES);
	for (int r = 0; r < n_rows; r++) {
		part wr = part_load(w[r] + k + p * PART_LANES);
		for (int t = 0; t < n_tokens; t++)
			acc[r][t] = part_fma(wr, xs[t], acc[r][t]);
	}
}

/* out[t][r] = sum over k < n of w[r][k] x[t][k]. n_rows (4 or 8) and n_tokens are constants at every call. */
INLINE void dots(int n_rows, int n_tokens, const float *const *w, const float *const *x, int64_t n, float (*out)[PANEL])
{
	part sums[TILE_TOKENS][PANEL / 4][PARTS * 4];
	float tail[PANEL + TILE_TOKENS][LANES];
	const float *w_tail[PANEL], *x_tail[TILE_TOKENS];
	int64_t whole = n / LANES * LANES;
	if (whole < n) {
		memset(tail, 0, sizeof tail);
		for (int r = 0; r < n_rows; r++)
			w_tail[r] = memcpy(tail[r], w[r] + whole, (size_t)(n - whole) * sizeof(float));
		for (int t = 0; t < n_tokens; t++)
			x_tail[t] = memcpy(tail[PANEL + t], x[t] + whole, (size_t)(n - whole) * sizeof(float));
	}
	for (int p = 0; p < PARTS; p++) {
		part acc[PANEL][TILE_TOKENS];
		for (int r = 0; r < n_rows; r++)
			for (int t = 0; t < n_tokens; t++)
				acc[r][t] = part_zero();
		for (int64_t k = 0; k < whole; k += LANES)
			dots_step(n_rows, n_tokens, p, acc, w, x, k);
		if (whole < n)
			dots_step(n_rows, n_tokens, p, acc, w_tail, x_tail, 0);
		for (int r = 0; r < n_rows; r++)
			for (int t = 0; t < n_tokens; t++)
				sums[t][r / 4][p * 4 + r % 4] = acc[r][t];
	}
	for (int t = 0; t < n_tokens; t++)
		for (int q = 0; q < n_rows / 4; q++)
			part_sum4(sums[t][q], out[t] + q * 4);
}

/* The shapes in use: one token with a whole panel of rows, or half panels with several tokens. */
static void dots_8x1(const float *const *w, const float *const *x, int64_t n, float (*out)[PANEL])
{
	dots(PANEL, 1, w, x, n, out);
}

static void dots_4x2(const float *const *w, const float *const *x, int64_t n, float (*out)[PANEL])
{
	dots(HALF_PANEL, 2, w, x, n, out);
}

#if TILE_TOKENS > 2
static void dots_4xt(const float *const *w, const float *const *x, int64_t n, float (*out)[PANEL])
{
	dots(HALF_PANEL, TILE_TOKENS, w, x, n, out);
}
#else
#define dots_4xt dots_4x2
#endif

static float dot(const float *a, const float *b, int64_t n)
{
	const float *w[PANEL] = { a, a, a, a, a, a, a, a };
	float out[TILE_TOKENS][PANEL];
	dots(4, 1, w, &b, n, out);
	return out[0][0];
}

/* The next tokens of n_left against the panel: out[t][r] for rows r < n_rows. Returns how many tokens it did. w holds
 * PANEL pointers, the last row's repeated. */
static int64_t tile(const float *const *w, int n_rows, const float *x, int64_t ldx, int64_t n_left, int64_t k,
		    int64_t n, float (*out)[PANEL])
{
	const float *xs[TILE_TOKENS], *ws[PANEL];
	int64_t n_tokens = n_left < TILE_TOKENS ? n_left : TILE_TOKENS;
	for (int r = 0; r < PANEL; r++)
		ws[r] = w[r] + k;
	for (int64_t t = 0; t < TILE_TOKENS; t++)
		xs[t] = x + (t < n_tokens ? t : n_tokens - 1) * ldx + k;
	if (n_tokens == 1) {
		dots_8x1(ws, xs, n, out);
		return 1;
	}
	for (int r = 0; r < n_rows; r += HALF_PANEL) {
		float part_out[TILE_TOKENS][PANEL];
		if (n_tokens == 2)
			dots_4x2(ws + r, xs, n, part_out);
		else
			dots_4xt(ws + r, xs, n, part_out);
		for (int64_t t = 0; t < n_tokens; t++)
			memcpy(out[t] + r, part_out[t], HALF_PANEL * sizeof(float));
	}
	return n_tokens;
}

/* Row r.. of w as floats: rows[PANEL], those past `end` repeat the last. Float weights stay where they are. */
static int panel(const struct weight *w, int64_t r, int64_t end, float *scratch, const float **rows)
{
	int n_rows = (int)(end - r < PANEL ? end - r : PANEL);
	for (int i = 0; i < PANEL; i++) {
		if (i >= n_rows) {
			rows[i] = rows[n_rows - 1];
			continue;
		}
		const unsigned char *from = w->data + (r + i) * w->row_bytes;
		rows[i] = w->type == WTYPE_F32 ? (const float *)(const void *)from : scratch + i * w->cols;
		if (w->type != WTYPE_F32)
			wtypes[w->type].widen(from, scratch + i * w->cols, w->cols);
	}
	return n_rows;
}

/* bf16_impl.h */
static void bf16_matmul(const struct weight *w, int64_t begin, int64_t end, const float *bias, const float *x, int64_t ldx,
			int64_t n, float *y, int64_t ldy, float *scratch);
static void bf16_matmul_fixed(const struct weight *w, int64_t begin, int64_t end, int64_t run, const float *gate, const float *x,
			      int64_t ldx, int64_t n, int64_t *acc, int64_t lda, int64_t *bad, float *scratch);

static void matmul(const struct weight *w, int64_t begin, int64_t end, const float *bias, const float *x, int64_t ldx,
		   int64_t n, float *y, int64_t ldy, float *scratch)
{
	if (w->form == PACK_BF16) {
		bf16_matmul(w, begin, end, bias, x, ldx, n, y, ldy, scratch);
		return;
	}
	float out[TILE_TOKENS][PANEL];
	const float *rows[PANEL];
	for (int64_t r = begin; r < end; r += PANEL) {
		int n_rows = panel(w, r, end, scratch, rows);
		for (int64_t b = 0; b < n;) {
			int64_t n_tokens = tile(rows, n_rows, x + b * ldx, ldx, n - b, 0, w->cols, out);
			for (int64_t t = 0; t < n_tokens; t++, b++)
				for (int i = 0; i < n_rows; i++)
					y[b * ldy + r + i] = bias ? out[t][i] + bias[r + i] : out[t][i];
		}
	}
}

/* Round to nearest even of x * 2^32 for |x| < 2^24, made of operations that every instruction set has for vectors. Adding
 * 1.5 * 2^52 to a double leaves its nearest integer in the low bits. x is cut into its nearest integer and an exact rest
 * of at most 1/2; the integer adds a multiple of 2^32, so that rounding the rest to even rounds the whole to even. */
INLINE int64_t to_fixed(float x)
{
	const double magic = 0x1.8p52;
	union { double d; int64_t i; } whole, rest, zero = { .d = magic };
	whole.d = (double)x + magic;
	rest.d = ((double)x - (whole.d - magic)) * 0x1p32 + magic;
	return (int64_t)((uint64_t)(whole.i - zero.i) << 32) + (rest.i - zero.i);
}

/* total[i] += fixed(v[i]), or misfits[i]++, for n values. Comparisons are done on the
 * bits, without branches, and n is not known at compile time: otherwise gcc makes scalar code. */
static __attribute__((noinline)) void add_run(const float *restrict v, int64_t n, int64_t *restrict total,
					      int64_t *restrict misfits)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t bits = to_bits(v[i]), fits = ((bits & 0x7fffffffu) - 0x4b800000u) >> 31;   /* |v| < 2^24, no NaN */
		total[i] = (int64_t)((uint64_t)total[i] + (uint64_t)to_fixed(from_bits(bits & (0u - fits))));
		misfits[i] += 1 - (int64_t)fits;
	}
}

/* The sums of all runs of a panel for the next tokens, (n_tokens, PANEL). Returns how many tokens. */
static int64_t tile_runs(const float *const *rows, int n_rows, int64_t cols, int64_t run, const float *gate, const float *x,
			 int64_t ldx, int64_t n_left, int64_t *total, int64_t *misfits)
{
	float out[TILE_TOKENS][PANEL] = { { 0 } };   /* tile leaves a half panel without rows alone */
	int64_t n_tokens = 0;
	for (int64_t i = 0; i < TILE_TOKENS * PANEL; i++)
		total[i] = misfits[i] = 0;
	for (int64_t k = 0; k < cols; k += run) {
		n_tokens = tile(rows, n_rows, x, ldx, n_left, k, cols - k < run ? cols - k : run, out);
		for (int64_t t = 0; gate && t < n_tokens; t++)
			for (int i = 0; i < PANEL; i++)
				out[t][i] *= gate[t];
		add_run(out[0], n_tokens * PANEL, total, misfits);
	}
	return n_tokens;
}

/* acc wraps instead of overflowing, so that hostile numbers are not undefined. */
static void matmul_fixed(const struct weight *w, int64_t begin, int64_t end, int64_t run, const float *gate,
			 const float *x, int64_t ldx, int64_t n, int64_t *acc, int64_t lda, int64_t *bad, float *scratch)
{
	int64_t total[TILE_TOKENS * PANEL], misfits[TILE_TOKENS * PANEL];
	const float *rows[PANEL];
	if (w->form == PACK_BF16) {
		bf16_matmul_fixed(w, begin, end, run, gate, x, ldx, n, acc, lda, bad, scratch);
		return;
	}
	for (int64_t r = begin; r < end; r += PANEL) {
		int n_rows = panel(w, r, end, scratch, rows);
		for (int64_t b = 0; b < n;) {
			int64_t n_tokens = tile_runs(rows, n_rows, w->cols, run, gate ? gate + b : NULL, x + b * ldx, ldx,
						     n - b, total, misfits);
			for (int64_t t = 0; t < n_tokens; t++, b++)
				for (int i = 0; i < n_rows; i++) {
					uint64_t sum = (uint64_t)acc[b * lda + r + i] + (uint64_t)total[t * PANEL + i];
					acc[b * lda + r + i] = (int64_t)sum;
					bad[b] += misfits[t * PANEL + i];
				}
		}
	}
}

static void add_fixed(float *restrict x, const int64_t *restrict acc, int64_t bad, const float *restrict bias, int64_t n)
{
	if (bad) {
		for (int64_t i = 0; i < n; i++)
			x[i] = NAN;
	} else if (bias) {
		for (int64_t i = 0; i < n; i++)
			x[i] += (float)acc[i] * 0x1p-32f + bias[i];
	} else {
		for (int64_t i = 0; i < n; i++)
			x[i] += (float)acc[i] * 0x1p-32f;
	}
}

/* ---- functions of one item ---- */

/* exp(x) = 2^n exp(r), n = nearest(x / ln 2), |r| <= ln 2 / 2; 1 + r + r^2 q(r), q the polynomial that interpolates at the
 * Chebyshev nodes. 2^n is applied in two halves, so that results below 2^-126 round once and those above FLT_MAX
 * become infinite. */
INLINE float exp_one(float x)
{
	const float magic = 0x1.8p23f;
	float c = x < -106.0f ? -106.0f : x;
	c = c > 90.0f ? 90.0f : c;
	float shifted = fmaf(c, 0x1.715476p+0f, magic);
	float n = shifted - magic;
	int32_t i = (int32_t)(to_bits(shifted) - to_bits(magic));
	float r = fmaf(n, -0x1.7f7d1cp-20f, fmaf(n, -0x1.62e4p-1f, c));
	float q = fmaf(0x1.a124e6p-13f, r, 0x1.6d4318p-10f);
	q = fmaf(q, r, 0x1.1110e0p-7f);
	q = fmaf(q, r, 0x1.5554eap-5f);
	q = fmaf(q, r, 0x1.555556p-3f);
	q = fmaf(q, r, 0x1p-1f);
	q = fmaf(q * r, r, r) + 1.0f;
	int32_t low = i >> 1, high = i - low;
	return q * from_bits((uint32_t)(low + 127) << 23) * from_bits((uint32_t)(high + 127) << 23);
}

static void exp_all(const float *restrict x, float *restrict y, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = exp_one(x[i]);
}

static void silu_mul(float *restrict g, const float *restrict u, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		g[i] = g[i] / (1.0f + exp_one(-g[i])) * u[i];
}

static void rms_norm(const float *x, const float *restrict w, float eps, int64_t n, float *restrict y)
{
	float scale = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] * scale * w[i];
}

INLINE void rope_head(float *x, int64_t half, int64_t step, int64_t other, const float *restrict cos, const float *restrict sin)
{
	for (int64_t i = 0; i < half; i++) {
		float a = x[i * step], b = x[i * step + other];
		x[i * step] = a * cos[i] - b * sin[i];
		x[i * step + other] = b * cos[i] + a * sin[i];
	}
}

static void rope(float *x, int64_t n_head, int64_t n_head_dim, const float *cos, const float *sin, int interleaved)
{
	for (int64_t h = 0; h < n_head; h++, x += n_head_dim)
		if (interleaved)
			rope_head(x, n_head_dim / 2, 2, 1, cos, sin);
		else
			rope_head(x, n_head_dim / 2, 1, n_head_dim / 2, cos, sin);
}

/* ---- KV cache and attention ---- */

/* The half's exponent and fraction are moved to a float's place; the multiplication makes up for the exponents' other
 * offset and is exact, for denormals too. */
INLINE float half_to_float(uint16_t h)
{
	uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
	uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0;
	return from_bits(to_bits(from_bits(magnitude) * 0x1p112f) | special | (uint32_t)(h & 0x8000) << 16);
}

/* n floats of halves or of bf16, in `room`. */
INLINE void widen_16(enum kv_type type, const unsigned char *from, float *restrict room, int64_t n)
{
	const uint16_t *restrict narrow = (const uint16_t *)(const void *)from;
	if (type == KV_F16) {
		int64_t i = 0;
#ifdef part_of_halves
		for (; i + PART_LANES <= n; i += PART_LANES)
			part_store(room + i, part_of_halves((const unsigned char *)(const void *)(narrow + i)));
#endif
		for (; i < n; i++)
			room[i] = half_to_float(narrow[i]);
	} else {
		for (int64_t i = 0; i < n; i++)
			room[i] = from_bits((uint32_t)narrow[i] << 16);
	}
}

/* n groups of integers times their scales. */
INLINE void widen_groups(const signed char *restrict q, const float *restrict scales, int64_t group, float *restrict room,
			 int64_t n)
{
	for (int64_t g = 0; g < n; g++, q += group, room += group)
		for (int64_t i = 0; i < group; i++)
			room[i] = (float)q[i] * scales[g];
}

/* A constant number of rounds becomes a few instructions. */
static void widen_int8(const signed char *restrict q, const float *restrict scales, int64_t group, float *restrict room,
		       int64_t n)
{
	if (group == 32)
		widen_groups(q, scales, 32, room, n);
	else
		widen_groups(q, scales, group, room, n);
}

/* n positions from place `at` on of the block of a page and head as floats: where they are, or in `room`. */
INLINE const float *kv_widen(const struct kv_layer *kv, const unsigned char *block, int64_t at, float *restrict room, int64_t n)
{
	int64_t d = kv->n_head_dim;
	if (kv->type == KV_F32)
		return (const float *)(const void *)block + at * d;
	if (kv->type == KV_INT8) {
		int64_t group = kv_group(kv->type, d), groups = d / group;
		const float *scales = (const float *)(const void *)(block + KV_PAGE_TOKENS * d);
		widen_int8((const signed char *)block + at * d, scales + at * groups, group, room, n * groups);
	} else {
		widen_16(kv->type, block + at * d * 2, room, n * d);
	}
	return room;
}

/* Divides, as a reciprocal of the scale of the smallest numbers would be infinite. A scale that lost its low bits there may
 * ask for more than 127. */
static void store_group(const float *x, int64_t n, signed char *q, float *scale)
{
	float largest = 0.0f, d;
	int finite = 1;
	for (int64_t i = 0; i < n; i++) {
		float size = fabsf(x[i]);
		finite &= size < INFINITY;
		largest = size > largest ? size : largest;
	}
	*scale = d = finite ? largest / 127.0f : NAN;
	for (int64_t i = 0; i < n; i++) {
		float r = d > 0.0f ? x[i] / d : 0.0f;
		r = r > 127.0f ? 127.0f : r < -127.0f ? -127.0f : r;
		q[i] = (signed char)((r + 0x1.8p23f) - 0x1.8p23f);   /* to nearest even */
	}
}

/* Numbers [at, at + n) of a head at place `place` of a block. */
static void kv_narrow(const struct kv_layer *kv, const float *from, unsigned char *block, int64_t place, int64_t at, int64_t n)
{
	int64_t d = kv->n_head_dim, group = kv_group(kv->type, d);
	uint16_t *narrow = (uint16_t *)(void *)block + place * d + at;
	if (kv->type == KV_F32) {
		memcpy((float *)(void *)block + place * d + at, from, (size_t)n * sizeof *from);
	} else if (kv->type == KV_INT8) {
		float *scales = (float *)(void *)(block + KV_PAGE_TOKENS * d) + place * (d / group);
		for (int64_t i = 0; i < n; i += group)
			store_group(from + i, group, (signed char *)block + place * d + at + i, scales + (at + i) / group);
	} else {
		for (int64_t i = 0; i < n; i++)
			narrow[i] = kv->type == KV_F16 ? wtype_f32_to_f16(from[i]) : wtype_f32_to_bf16(from[i]);
	}
}

/* Byte offset in k and v of the block of a head that position pos lies in. */
INLINE int64_t kv_offset(const struct kv_layer *kv, const int32_t *pages, int64_t h, int64_t pos)
{
	return ((int64_t)pages[pos / KV_PAGE_TOKENS] * kv->n_kv + h) * KV_PAGE_TOKENS * kv_bytes(kv->type, kv->n_head_dim);
}

static void kv_store(const struct kv_layer *kv, unsigned char *pool, const int32_t *pages, int64_t pos, int64_t begin,
		     int64_t end, const float *x)
{
	int64_t D = kv->n_head_dim;
	for (int64_t c = begin, next; c < end; c = next) {
		int64_t h = c / D;
		next = (h + 1) * D < end ? (h + 1) * D : end;
		kv_narrow(kv, x + c, pool + kv_offset(kv, pages, h, pos), pos % KV_PAGE_TOKENS, c % D, next - c);
	}
}

/* ---- the rest ---- */

static void route(const float *logits, int64_t n, int64_t k, int32_t *experts, float *gates)
{
	float p[KERNEL_MAX_EXPERTS], lane[LANES] = { 0 }, top = -INFINITY, sum = 0.0f;
	for (int64_t i = 0; i < n; i++)
		top = logits[i] > top ? logits[i] : top;
	for (int64_t i = 0; i < n; i++) {
		p[i] = exp_one(logits[i] - top);
		lane[i % LANES] += p[i];
	}
	float total = tree16(lane);
	for (int64_t i = 0; i < n; i++)
		p[i] /= total;
	for (int64_t j = 0; j < k; j++) {
		int64_t best = -1;
		for (int64_t i = 0; i < n; i++) {
			int taken = 0;
			for (int64_t c = 0; c < j; c++)
				taken |= experts[c] == i;
			if (!taken && (best < 0 || p[i] > p[best]))
				best = i;
		}
		experts[j] = (int32_t)best;
		gates[j] = p[best];
		sum += p[best];
	}
	for (int64_t j = 0; j < k; j++)
		gates[j] /= sum;
}

static void widen_row(const struct weight *w, int64_t r, float *out)
{
	if (w->form == PACK_ROWS)
		wtypes[w->type].widen(w->data + r * w->row_bytes, out, w->cols);
	else
		pack_widen_row(w, r, out);
}

/* Unsigned order is the order of numbers, -0 as +0; a NaN is above all. */
INLINE uint32_t logit_key(float logit)
{
	uint32_t bits = to_bits(logit + 0.0f), sign = 0u - (bits >> 31);
	uint32_t is_nan = 0u - (uint32_t)((bits & 0x7fffffffu) > 0x7f800000u);
	return (bits ^ (sign | 0x80000000u)) | is_nan;
}

/* The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): a
 * bijection of 64 bits in which each input bit flips half of the output bits. */
INLINE uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint64_t digest(const float *logits, int64_t n, int64_t first_id, int64_t position)
{
	uint64_t sum = 0, key = mix((uint64_t)position + 0x9e3779b97f4a7c15u);
	for (int64_t v = 0; v < n; v++) {
		uint32_t bits = logits[v] == logits[v] ? to_bits(logits[v]) : 0x7fc00000u;
		sum += mix(key + ((uint64_t)(first_id + v) << 32 | bits));
	}
	return sum;
}

/* Whole groups first: their maximum takes no branches; only the best one is looked at again. */
static uint64_t best_key(const float *logits, int64_t n, int64_t first_id)
{
	enum { GROUP = 256 };
	uint32_t top = 0;
	int64_t at = 0;
	for (int64_t g = 0; g < n; g += GROUP) {
		int64_t size = n - g < GROUP ? n - g : GROUP;
		uint32_t best = 0;
		for (int64_t i = 0; i < size; i++) {
			uint32_t key = logit_key(logits[g + i]);
			best = key > best ? key : best;
		}
		if (best > top) {
			top = best;
			at = g;
		}
	}
	if (n <= 0 || top == UINT32_MAX)
		return n <= 0 ? 0 : UINT64_MAX;
	while (logit_key(logits[at]) != top)
		at++;
	return (uint64_t)top << 32 | (uint32_t)~(uint32_t)(first_id + at);
}

#include "runtime/packed_impl.h"
#include "runtime/bf16_impl.h"
#include "runtime/attention_impl.h"
#include "runtime/peak_impl.h"

#define KERNELS_TABLE(symbol, text, is_usable)                                                                          \
	const struct kernels symbol = {                                                                                 \
		.name = text, .usable = is_usable, .matmul = matmul, .matmul_fixed = matmul_fixed,                      \
		.quantize = quantize, .quantize_finely = quantize_finely, .packed_matmul = packed_matmul,               \
		.packed_fixed = packed_fixed,                                                                           \
		.add_fixed = add_fixed, .rms_norm = rms_norm, .silu_mul = silu_mul, .rope = rope, .kv_store = kv_store, \
		.attention = attention, .attention_rows = attention_rows, .route = route, .widen_row = widen_row,       \
		.digest = digest, .best_key = best_key, .exp = exp_all, .peak_int8 = peak_int8,                          \
		.peak_bf16 = peak_bf16, .read_all = read_all                                                            \
	}
