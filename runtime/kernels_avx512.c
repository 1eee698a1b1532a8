/* The kernels with AVX-512 (F, BW, VL, DQ): a part is a register of 16 lanes, tiles of 4 rows x 4 tokens in 16 of the 32
 * registers. Without the instruction set at compile time the table is the plain one and never usable. */
#ifdef __AVX512F__
#include <immintrin.h>

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
#endif

#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_avx512, "avx512", kernels_avx512_usable);
