/* What kernels_avx512.c and kernels_avx512vnni.c have in common: a part is a register of 16 lanes, tiles of floats are 4 rows
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

/* ---- packed weights: a lane is a row, a plane of codes a register ---- */

#define PACKED_TILE_TOKENS 8
typedef __m512i codes;

#define codes_load(from) _mm512_loadu_si512(from)
#define codes_store(to, c) _mm512_storeu_si512(to, c)
#define codes_or(a, b) _mm512_or_si512(a, b)
#define part_set1(x) _mm512_set1_ps(x)
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
#endif

#endif
