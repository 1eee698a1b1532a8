/* What kernels_avx512.c, kernels_avx512vnni.c and kernels_avx512bf16.c have in common: a part is a register of 16 lanes, tiles of floats are 4 rows
 * x 4 tokens in 16 of the 32 registers. Nothing without the instruction set at compile time. */
#ifndef SHARDRUN_RUNTIME_KERNELS_AVX512_H
#define SHARDRUN_RUNTIME_KERNELS_AVX512_H
#ifdef __AVX512F__
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define PARTS 1
#define TILE_TOKENS 4
typedef __m512 part;

#define part_zero() _mm512_setzero_ps()
#define part_load(from) _mm512_loadu_ps(from)
#define part_fma(a, b, c) _mm512_fmadd_ps(a, b, c)

/* Halves four vectors at a time: a step pairs what belongs together by a shuffle of two vectors, so every addition is one
 * of the fixed tree. After the second step each quarter of 4 lanes belongs to one sum. */
static inline void part_sum4(const part *a, float *out)
{
	__m512 s01 = _mm512_add_ps(_mm512_shuffle_f32x4(a[0], a[1], 0x44), _mm512_shuffle_f32x4(a[0], a[1], 0xee));
	__m512 s23 = _mm512_add_ps(_mm512_shuffle_f32x4(a[2], a[3], 0x44), _mm512_shuffle_f32x4(a[2], a[3], 0xee));
	__m512 t = _mm512_add_ps(_mm512_shuffle_f32x4(s01, s23, 0x88), _mm512_shuffle_f32x4(s01, s23, 0xdd));
	t = _mm512_add_ps(t, _mm512_permute_ps(t, 0x4e));
	t = _mm512_add_ps(t, _mm512_permute_ps(t, 0xb1));
	__m512i quarters = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
	_mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(quarters, t)));
}

static inline float tree16(const float *lanes)
{
	__m512 v = _mm512_loadu_ps(lanes);
	__m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float max16(const float *lanes)
{
	__m512 v = _mm512_loadu_ps(lanes);
	__m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
	__m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_max_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* to[16 * i + l] = rows[l][k + i]: blocks of 4 x 4 by their place in the load, and then within each quarter. */
#define PART_TURN
static inline void part_turn(const float *const *rows, int64_t k, float *to)
{
	for (int c = 0; c < 4; c++, k += 4, to += 64) {
		__m512 v[4];
		for (int r = 0; r < 4; r++) {
			v[r] = _mm512_castps128_ps512(_mm_loadu_ps(rows[r] + k));
			v[r] = _mm512_insertf32x4(v[r], _mm_loadu_ps(rows[r + 4] + k), 1);
			v[r] = _mm512_insertf32x4(v[r], _mm_loadu_ps(rows[r + 8] + k), 2);
			v[r] = _mm512_insertf32x4(v[r], _mm_loadu_ps(rows[r + 12] + k), 3);
		}
		__m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1])), high01 = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
		__m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3])), high23 = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
		_mm512_storeu_ps(to, _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23)));
		_mm512_storeu_ps(to + 16, _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23)));
		_mm512_storeu_ps(to + 32, _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23)));
		_mm512_storeu_ps(to + 48, _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23)));
	}
}

/* ---- packed weights: a lane is a row, a plane of codes a register ---- */

#define PACKED_TILE_TOKENS 8
typedef __m512i codes;

#define codes_load(from) _mm512_loadu_si512(from)
#define codes_store(to, c) _mm512_storeu_si512(to, c)
#define codes_or(a, b) _mm512_or_si512(a, b)
#define part_set1(x) _mm512_set1_ps(x)
#define part_max(a, b) _mm512_max_ps(a, b)   /* b when one is NaN */
#define part_keep(p) __asm__("" : "+v"(p))    /* else gcc may load it again for each use */
#define part_add(a, b) _mm512_add_ps(a, b)
#define part_mul(a, b) _mm512_mul_ps(a, b)
#define part_store(to, p) _mm512_storeu_ps(to, p)
#define part_of_halves(from) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from)))
#define part_of_bytes(from) _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(from))))
#define part_of_int8(from) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(from))))

/* Shifts of 16 bits: what crosses from byte to byte is masked away. */
static inline codes codes_bits(codes c, int left, int mask)
{
	__m512i shifted = left < 0 ? _mm512_srli_epi16(c, (unsigned)-left) : _mm512_slli_epi16(c, (unsigned)left);
	return _mm512_and_si512(shifted, _mm512_set1_epi8((char)mask));
}

static inline __m512i four_activations(const int8_t *x)
{
	int32_t four;
	memcpy(&four, x, sizeof four);
	return _mm512_set1_epi32(four);
}

/* ---- activations as int8: see packed_impl.h ---- */

#define PART_QUANTIZE
/* The sums of all lanes of a and of b. */
static inline void sum_lanes(__m256i a, __m256i b, int32_t *sum)
{
	__m256i pairs = _mm256_hadd_epi32(a, b);
	__m128i quads = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
	_mm_storel_epi64((__m128i *)(void *)sum, _mm_hadd_epi32(quads, quads));
}

static inline uint32_t largest_lane(__m256i a)
{
	__m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
	m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
	return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

static inline uint32_t largest32(const float *v)
{
	__m512i size = _mm512_set1_epi32(0x7fffffff);
	__m512i a = _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(v), size),
				     _mm512_and_si512(_mm512_loadu_si512(v + 16), size));
	return largest_lane(_mm256_max_epi32(_mm512_castsi512_si256(a), _mm512_extracti32x8_epi32(a, 1)));
}

static inline void round32(const float *v, float inverse, int8_t *q, int32_t *sum)
{
	__m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(v), _mm512_set1_ps(inverse)));
	__m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(v + 16), _mm512_set1_ps(inverse)));
	_mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtepi32_epi8(a));
	_mm_storeu_si128((__m128i *)(void *)(q + 16), _mm512_cvtepi32_epi8(b));
	sum_lanes(_mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti32x8_epi32(a, 1)),
		  _mm256_add_epi32(_mm512_castsi512_si256(b), _mm512_extracti32x8_epi32(b, 1)), sum);
}

/* See packed_impl.h: the conversion rounds to nearest even. */
#define PART_FIXED
static inline int part_fixed(__m512 v, int64_t *total)
{
	__mmask16 fits = _mm512_cmp_ps_mask(_mm512_abs_ps(v), _mm512_set1_ps(0x1p56f), _CMP_LT_OQ);
	if (__builtin_expect(fits != 0xffff, 0))
		return 0;
	__m512i low = _mm512_cvtps_epi64(_mm512_castps512_ps256(v)), high = _mm512_cvtps_epi64(_mm512_extractf32x8_ps(v, 1));
	_mm512_storeu_si512(total, _mm512_add_epi64(_mm512_loadu_si512(total), low));
	_mm512_storeu_si512(total + 8, _mm512_add_epi64(_mm512_loadu_si512(total + 8), high));
	return 1;
}

#define PART_SPLIT
typedef __m512i unfit_lanes;        /* see packed_impl.h */
#define unfit_none() _mm512_setzero_si512()
#define unfit_any(unfit) (_mm512_test_epi32_mask(unfit, _mm512_set1_epi32(-0x800000)) != 0)

static inline void part_split(__m512 v, float first, float second, uint32_t *coarse, uint32_t *fine, unfit_lanes *unfit)
{
	__m512 t = _mm512_add_ps(v, _mm512_set1_ps(first));
	__m512 u = _mm512_sub_ps(v, _mm512_sub_ps(t, _mm512_set1_ps(first + second)));
	_mm512_storeu_si512(coarse, _mm512_add_epi32(_mm512_loadu_si512(coarse), _mm512_castps_si512(t)));
	_mm512_storeu_si512(fine, _mm512_add_epi32(_mm512_loadu_si512(fine), _mm512_castps_si512(u)));
	*unfit = _mm512_ternarylogic_epi32(*unfit, _mm512_castps_si512(t), _mm512_castps_si512(_mm512_set1_ps(first)),
					   0xf6);   /* a | (b ^ c) */
}

#ifdef __AVX512VNNI__
#define PACKED_PAIR_TOKENS 6      /* 2 panels: 12 sums as integers, 12 as floats */
typedef __m512i int_sums;

#define sums_start(bits, start) _mm512_set1_epi32(start)
#define sums_add(bits, groups, s, c, x) _mm512_dpbusd_epi32(s, c, four_activations(x))
#define part_of_sums(bits, s) _mm512_cvtepi32_ps(s)
#else
/* Pairs of products are summed in 16 bits, which as many groups as below cannot overflow (15 * 127 * 2 * 8 = 30480), then
 * in 32. Codes of 8 bits become signed numbers again and give their sign to the activations (128 * 127 * 2 = 32512);
 * these sums start at 0. */
typedef struct { __m512i wide, narrow; } int_sums;

static inline int_sums sums_start(int bits, int32_t start)
{
	return (int_sums){ _mm512_set1_epi32(bits == 8 ? 0 : start), _mm512_setzero_si512() };
}

static inline int_sums sums_fold(int_sums s)
{
	s.wide = _mm512_add_epi32(s.wide, _mm512_madd_epi16(s.narrow, _mm512_set1_epi16(1)));
	s.narrow = _mm512_setzero_si512();
	return s;
}

static inline int_sums sums_add(int bits, int groups, int_sums s, codes c, const int8_t *x)
{
	int fold_after = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
	__m512i a = four_activations(x);
	if (bits == 8) {
		__m512i w = _mm512_xor_si512(c, _mm512_set1_epi8((char)0x80));
		a = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(), a);
		c = _mm512_abs_epi8(w);
	}
	s.narrow = _mm512_add_epi16(s.narrow, _mm512_maddubs_epi16(c, a));
	return groups % fold_after ? s : sums_fold(s);
}

#define part_of_sums(bits, s) _mm512_cvtepi32_ps((s).wide)
#endif

/* ---- BF16 weights: see bf16_impl.h ---- */

#define BF16_LANES 16
#define BF16_MAX_1 12
#define BF16_MAX_2 12             /* 24 sums, 2 of weights or 4 when widened */
#define BF16_MAX_4 4
typedef __m512 bf16_sums;

#define bf16_sums_load(from) _mm512_loadu_ps(from)
#define bf16_sums_store(to, s) _mm512_storeu_ps(to, s)

#define BF16_ROUND_4              /* what bf16_round16 does for 4 rows; pairs i of the 4 go to to[i * stride] */
#ifdef __AVX512BF16__
typedef uint32_t bf16_pair;
typedef __m512bh bf16_weights;
typedef __m512i bf16_spread;

#define bf16_weights_load(from) (__m512bh)_mm512_loadu_si512(from)
#define bf16_pair_load(x) _mm512_set1_epi32((int32_t)*(x))
#define bf16_add(s, w, x) _mm512_dpbf16_ps(s, w, (__m512bh)(x))
#define bf16_flush_begin() 0u
#define bf16_flush_end(was) (void)(was)

/* The conversion flushes as its definition wants. */
static inline void bf16_round16(const float *x, bf16_pair *to)
{
	_mm256_storeu_si256((__m256i *)(void *)to, (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x)));
}

static inline void bf16_round_4(const float *x, int64_t ldx, bf16_pair *to, int64_t stride)
{
	__m256i r[4], out[4];
	for (int t = 0; t < 4; t++)
		r[t] = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + t * ldx));
	__m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpackhi_epi32(r[0], r[1]);
	__m256i c = _mm256_unpacklo_epi32(r[2], r[3]), d = _mm256_unpackhi_epi32(r[2], r[3]);
	out[0] = _mm256_unpacklo_epi64(a, c), out[1] = _mm256_unpackhi_epi64(a, c);
	out[2] = _mm256_unpacklo_epi64(b, d), out[3] = _mm256_unpackhi_epi64(b, d);
	for (int i = 0; i < 4; i++) {
		_mm_storeu_si128((__m128i *)(void *)(to + i * stride), _mm256_castsi256_si128(out[i]));
		_mm_storeu_si128((__m128i *)(void *)(to + (i + 4) * stride), _mm256_extracti128_si256(out[i], 1));
	}
}
#else
typedef struct { float even, odd; } bf16_pair;
typedef struct { __m512 even, odd; } bf16_weights, bf16_spread;

#define bf16_pair_load(x) ((bf16_spread){ _mm512_set1_ps((x)->even), _mm512_set1_ps((x)->odd) })
#define bf16_add(s, w, x) _mm512_fmadd_ps((w).even, (x).even, _mm512_fmadd_ps((w).odd, (x).odd, s))

static inline bf16_weights bf16_weights_load(const unsigned char *from)
{
	__m512i pairs = _mm512_loadu_si512(from);
	return (bf16_weights){ _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
			       _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000))) };
}

static inline __m512i bf16_round(const float *x)
{
	__m512 v = _mm512_loadu_ps(x);
	__m512i bits = _mm512_castps_si512(v), top = _mm512_set1_epi32(-0x10000);
	__mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), normal = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7f800000));
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
	near = _mm512_mask_or_epi32(near, is_nan, bits, _mm512_set1_epi32(0x400000));
	return _mm512_and_si512(near, _mm512_mask_mov_epi32(_mm512_set1_epi32(INT32_MIN), normal, top));
}

static inline void bf16_round16(const float *x, bf16_pair *to) { _mm512_storeu_si512(to, bf16_round(x)); }

static inline void bf16_round_4(const float *x, int64_t ldx, bf16_pair *to, int64_t stride)
{
	__m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
	__m512i r[4], low[2], high[2];
	for (int t = 0; t < 4; t++)
		r[t] = bf16_round(x + t * ldx);
	for (int t = 0; t < 2; t++) {
		low[t] = _mm512_unpacklo_epi64(r[2 * t], r[2 * t + 1]);
		high[t] = _mm512_unpackhi_epi64(r[2 * t], r[2 * t + 1]);
	}
	__m512i out[4] = { _mm512_permutex2var_epi64(low[0], first, low[1]), _mm512_permutex2var_epi64(high[0], first, high[1]),
			   _mm512_permutex2var_epi64(low[0], last, low[1]), _mm512_permutex2var_epi64(high[0], last, high[1]) };
	for (int i = 0; i < 4; i++) {        /* two pairs each: i / 2 * 4 + i % 2 and the next but one */
		bf16_pair *at = to + (i / 2 * 4 + i % 2) * stride;
		_mm256_storeu_si256((__m256i *)(void *)at, _mm512_castsi512_si256(out[i]));
		_mm256_storeu_si256((__m256i *)(void *)(at + 2 * stride), _mm512_extracti64x4_epi64(out[i], 1));
	}
}

/* FTZ and DAZ. Tiles are called in between, through pointers, so that no operation leaves its place. */
static inline uint32_t bf16_flush_begin(void)
{
	uint32_t was = _mm_getcsr();
	_mm_setcsr(was | 0x8040);
	return was;
}

#define bf16_flush_end(was) _mm_setcsr(was)
#endif
#endif

#endif
