/* The kernels with AVX-512, its VNNI and its BF16, which multiplies weights and activations in bf16. Without the instruction
 * set at compile time the table is empty and never usable. */
#ifdef __AVX512BF16__
#include "runtime/kernels_avx512.h"
#include "runtime/kernels_impl.h"

#include <stdatomic.h>

/* Pairs and sums that lie at every border of the definition: both orders of the two additions differ, sums round up to the
 * least normal number and just do not, operands are denormal, zeros have signs, infinities meet. */
static int agrees(const uint16_t *w, const uint16_t *x, uint32_t acc)
{
	float want = bf16_fma(bf16_operand(w[1]), bf16_operand(x[1]), from_bits(acc & 0x7f800000u ? acc : acc & 0x80000000u)), got[LANES];
	uint32_t w_pair = w[0] | (uint32_t)w[1] << 16, x_pair = x[0] | (uint32_t)x[1] << 16;
	want = bf16_fma(bf16_operand(w[0]), bf16_operand(x[0]), want);
	__m512 sum = _mm512_castsi512_ps(_mm512_set1_epi32((int32_t)acc));
	sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32((int32_t)w_pair), (__m512bh)_mm512_set1_epi32((int32_t)x_pair));
	_mm512_storeu_ps(got, sum);
	return want != want ? got[0] != got[0] : to_bits(want) == to_bits(got[0]);
}

int kernels_avx512bf16_agrees(void)
{
	static const uint16_t items[] = {      /* 1, 1 + 2^-7, -1.4, 2^-75, -2^-76, 2^-63, -1.99 * 2^-64, the least normal and the
						  largest denormal number, -0, 3.39e38, infinity, NaN */
		0x3f80, 0x3f81, 0xbfb3, 0x1a00, 0x9980, 0x2000, 0x9fff, 0x0080, 0x007f, 0x8000, 0x7f7f, 0x7f80, 0x7fc0
	};
	static const uint32_t sums[] = {       /* 0, -0, 2^-126, -2^-126, a denormal, 1, 2^24 - 1, 3.4e38, -infinity */
		0, 0x80000000u, 0x00800000u, 0x80800000u, 0x00400000u, 0x3f800000u, 0x4b7fffffu, 0x7f7fffffu, 0xff800000u
	};
	enum { N = sizeof items / sizeof items[0] };
	static atomic_int answer;              /* 0: not known yet */
	int good = 1;
	if (answer)
		return answer > 0;
	for (uint32_t i = 0; i < N * N; i++) {
		uint16_t w[2] = { items[i % N], items[i * 7 / N % N] }, x[2] = { items[i / N], items[(i * 5 + i / N) % N] };
		for (size_t s = 0; s < sizeof sums / sizeof sums[0]; s++)
			good &= agrees(w, x, sums[s]);
	}
	answer = good ? 1 : -1;
	return good;
}

KERNELS_TABLE(kernels_avx512bf16, "avx512bf16", kernels_avx512bf16_usable);
#else
#include "runtime/kernels_isa.h"

int kernels_avx512bf16_agrees(void) { return 0; }
KERNELS_NONE(kernels_avx512bf16, "avx512bf16");
#endif
