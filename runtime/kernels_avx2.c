/* The kernels with AVX2, FMA and F16C: two parts of 8 lanes, tiles of 4 rows x 3 tokens in 12 of the 16 registers. Without
 * the instruction set at compile time (another processor family) the table is the plain one and never usable. */
#ifdef __AVX2__
#include <immintrin.h>

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
#endif

#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_avx2, "avx2", kernels_avx2_usable);
