/* The kernels with AVX2, FMA and F16C: two parts of 8 lanes, tiles of 4 rows x 3 tokens in 12 of the 16 registers. Without
 * the instruction set at compile time (another processor family) the table is empty and never usable. */
#ifdef __AVX2__
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define PARTS 2
#define TILE_TOKENS 3
typedef __m256 part;

#define part_zero() _mm256_setzero_ps()
#define part_load(from) _mm256_loadu_ps(from)
#define part_fma(a, b, c) _mm256_fmadd_ps(a, b, c)

/* Adds lanes i and i+8 (the parts), then halves four vectors at a time: a step pairs what belongs together by a shuffle
 * of two vectors, so every addition is one of the fixed tree. */
static inline void part_sum4(const part *a, float *out)
{
	__m256 s0 = _mm256_add_ps(a[0], a[4]), s1 = _mm256_add_ps(a[1], a[5]);
	__m256 s2 = _mm256_add_ps(a[2], a[6]), s3 = _mm256_add_ps(a[3], a[7]);
	__m256 s01 = _mm256_add_ps(_mm256_permute2f128_ps(s0, s1, 0x20), _mm256_permute2f128_ps(s0, s1, 0x31));
	__m256 s23 = _mm256_add_ps(_mm256_permute2f128_ps(s2, s3, 0x20), _mm256_permute2f128_ps(s2, s3, 0x31));
	__m256 t = _mm256_add_ps(_mm256_shuffle_ps(s01, s23, 0x44), _mm256_shuffle_ps(s01, s23, 0xee));
	__m256 u = _mm256_add_ps(_mm256_shuffle_ps(t, t, 0x88), _mm256_shuffle_ps(t, t, 0xdd));
	_mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(u), _mm256_extractf128_ps(u, 1)));
}

static inline float tree16(const float *lanes)
{
	__m256 a = _mm256_add_ps(_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes + 8));
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float max16(const float *lanes)
{
	__m256 a = _mm256_max_ps(_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes + 8));
	__m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_max_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* ---- packed weights: a lane is a row, half a plane of codes a register ---- */

#define PACKED_TILE_TOKENS 4
typedef __m256i codes;

#define codes_load(from) _mm256_loadu_si256((const __m256i *)(const void *)(from))
#define codes_store(to, c) _mm256_storeu_si256((__m256i *)(void *)(to), c)
#define codes_or(a, b) _mm256_or_si256(a, b)
#define part_set1(x) _mm256_set1_ps(x)
#define part_max(a, b) _mm256_max_ps(a, b)   /* b when one is NaN */
#define part_add(a, b) _mm256_add_ps(a, b)
#define part_mul(a, b) _mm256_mul_ps(a, b)
#define part_store(to, p) _mm256_storeu_ps(to, p)
#define part_of_halves(from) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from)))
#define part_of_bytes(from) _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(from))))
#define part_of_int8(from) _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(from))))

/* Shifts of 16 bits: what crosses from byte to byte is masked away. */
static inline codes codes_bits(codes c, int left, int mask)
{
	__m256i shifted = left < 0 ? _mm256_srli_epi16(c, -left) : _mm256_slli_epi16(c, left);
	return _mm256_and_si256(shifted, _mm256_set1_epi8((char)mask));
}

/* Pairs of products are summed in 16 bits, which as many groups as below cannot overflow (15 * 127 * 2 * 8 = 30480), then
 * in 32. Codes of 8 bits become signed numbers again and give their sign to the activations (128 * 127 * 2 = 32512);
 * these sums start at 0. */
typedef struct { __m256i wide, narrow; } int_sums;

static inline int_sums sums_start(int bits, int32_t start)
{
	return (int_sums){ _mm256_set1_epi32(bits == 8 ? 0 : start), _mm256_setzero_si256() };
}

static inline int_sums sums_fold(int_sums s)
{
	s.wide = _mm256_add_epi32(s.wide, _mm256_madd_epi16(s.narrow, _mm256_set1_epi16(1)));
	s.narrow = _mm256_setzero_si256();
	return s;
}

static inline int_sums sums_add(int bits, int groups, int_sums s, codes c, const int8_t *x)
{
	int fold_after = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
	int32_t four;
	memcpy(&four, x, sizeof four);
	__m256i a = _mm256_set1_epi32(four);
	if (bits == 8) {
		__m256i w = _mm256_xor_si256(c, _mm256_set1_epi8((char)0x80));
		a = _mm256_sign_epi8(a, w);
		c = _mm256_abs_epi8(w);
	}
	s.narrow = _mm256_add_epi16(s.narrow, _mm256_maddubs_epi16(c, a));
	return groups % fold_after ? s : sums_fold(s);
}

#define part_of_sums(bits, s) _mm256_cvtepi32_ps((s).wide)

/* As to_fixed does it, 4 lanes at a time; the two offsets are taken off together. */
static inline __m256i fixed4(__m128 v)
{
	const double magic = 0x1.8p52;
	int64_t bits;
	memcpy(&bits, &magic, sizeof bits);
	__m256d m = _mm256_set1_pd(magic), x = _mm256_mul_pd(_mm256_cvtps_pd(v), _mm256_set1_pd(0x1p-32));
	__m256d whole = _mm256_add_pd(x, m);
	__m256d rest = _mm256_fmadd_pd(_mm256_sub_pd(x, _mm256_sub_pd(whole, m)), _mm256_set1_pd(0x1p32), m);
	__m256i sum = _mm256_add_epi64(_mm256_slli_epi64(_mm256_castpd_si256(whole), 32), _mm256_castpd_si256(rest));
	return _mm256_sub_epi64(sum, _mm256_set1_epi64x((int64_t)(((uint64_t)bits << 32) + (uint64_t)bits)));
}

/* See packed_impl.h. */
#define PART_FIXED
static inline int part_fixed(__m256 v, int64_t *total)
{
	__m256 size = _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
	if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(size, _mm256_set1_ps(0x1p56f), _CMP_LT_OQ)) != 0xff, 0))
		return 0;
	__m256i *to = (__m256i *)(void *)total;
	_mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to), fixed4(_mm256_castps256_ps128(v))));
	_mm256_storeu_si256(to + 1, _mm256_add_epi64(_mm256_loadu_si256(to + 1), fixed4(_mm256_extractf128_ps(v, 1))));
	return 1;
}

#define PART_SPLIT
typedef __m256i unfit_lanes;        /* see packed_impl.h */
#define unfit_none() _mm256_setzero_si256()
#define unfit_any(unfit) (!_mm256_testz_si256(unfit, _mm256_set1_epi32(-0x800000)))

static inline void part_split(__m256 v, float first, float second, uint32_t *coarse, uint32_t *fine, unfit_lanes *unfit)
{
	__m256i *c = (__m256i *)(void *)coarse, *f = (__m256i *)(void *)fine;
	__m256 added = _mm256_set1_ps(first), t = _mm256_add_ps(v, added);
	__m256 u = _mm256_sub_ps(v, _mm256_sub_ps(t, _mm256_set1_ps(first + second)));
	_mm256_storeu_si256(c, _mm256_add_epi32(_mm256_loadu_si256(c), _mm256_castps_si256(t)));
	_mm256_storeu_si256(f, _mm256_add_epi32(_mm256_loadu_si256(f), _mm256_castps_si256(u)));
	*unfit = _mm256_or_si256(*unfit, _mm256_castps_si256(_mm256_xor_ps(t, added)));
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
	__m256i a = _mm256_setzero_si256(), size = _mm256_set1_epi32(0x7fffffff);
	for (int i = 0; i < 4; i++)
		a = _mm256_max_epi32(a, _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(v + 8 * i)), size));
	return largest_lane(a);
}

static inline void round32(const float *v, float inverse, int8_t *q, int32_t *sum)
{
	__m256i n[4];
	for (int i = 0; i < 4; i++)
		n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(v + 8 * i), _mm256_set1_ps(inverse)));
	__m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
	bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
	_mm256_storeu_si256((__m256i *)(void *)q, bytes);
	sum_lanes(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3]), sum);
}

/* ---- BF16 weights: see bf16_impl.h ---- */

#define BF16_LANES 8
#define BF16_MAX_1 4              /* 1 panel: 8 sums, 4 of weights */
#define BF16_MAX_2 2
#define BF16_MAX_4 1
typedef struct { float even, odd; } bf16_pair;
typedef __m256 bf16_sums;
typedef struct { __m256 even, odd; } bf16_weights, bf16_spread;

#define bf16_sums_load(from) _mm256_loadu_ps(from)
#define bf16_sums_store(to, s) _mm256_storeu_ps(to, s)
#define bf16_pair_load(x) ((bf16_spread){ _mm256_set1_ps((x)->even), _mm256_set1_ps((x)->odd) })
#define bf16_add(s, w, x) _mm256_fmadd_ps((w).even, (x).even, _mm256_fmadd_ps((w).odd, (x).odd, s))

static inline bf16_weights bf16_weights_load(const unsigned char *from)
{
	__m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)from);
	return (bf16_weights){ _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
			       _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000))) };
}

static inline __m256i bf16_round8(const float *x)
{
	__m256 v = _mm256_loadu_ps(x);
	__m256i bits = _mm256_castps_si256(v), is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
	__m256i normal = _mm256_cmpgt_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)), _mm256_set1_epi32(0x7fffff));
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	__m256i near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
	near = _mm256_blendv_epi8(near, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), is_nan);
	__m256i kept = _mm256_or_si256(_mm256_and_si256(normal, _mm256_set1_epi32(-0x10000)), _mm256_set1_epi32(INT32_MIN));
	return _mm256_and_si256(near, kept);
}

static inline void bf16_round16(const float *x, bf16_pair *to)
{
	_mm256_storeu_si256((__m256i *)(void *)to, bf16_round8(x));
	_mm256_storeu_si256((__m256i *)(void *)(to + 4), bf16_round8(x + 8));
}

/* FTZ and DAZ. Tiles are called in between, through pointers, so that no operation leaves its place. */
static inline uint32_t bf16_flush_begin(void)
{
	uint32_t was = _mm_getcsr();
	_mm_setcsr(was | 0x8040);
	return was;
}

#define bf16_flush_end(was) _mm_setcsr(was)

#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_avx2, "avx2", kernels_avx2_usable);
#else
#include "runtime/kernels_isa.h"

KERNELS_NONE(kernels_avx2, "avx2");
#endif
