/* Weight types, widened to float by plain C.
 *
 * Each widen function is the reference: it does the float operations of the format's definition (ggml-quants.c,
 * dequantize_row_*, and the `gguf` package's quants.py) in that order, one rounding per operator, so its bits are those
 * of any other exact implementation. Faster code is tested against it.
 *
 * Blocks as they stand in files, little endian; d and m are f16, qs holds two 4-bit numbers per byte (low half first):
 *
 *   Q8_0   34  d | 32 x int8                                    x = q*d
 *   Q4_0   18  d | qs[16]                                       x = (q-8)*d      byte j: items j and j+16
 *   Q4_1   20  d | m | qs[16]                                   x = q*d + m
 *   Q5_0   22  d | qh[4] | qs[16]                               x = (q-16)*d     bit j of qh: fifth bit of item j
 *   Q5_1   24  d | m | qh[4] | qs[16]                           x = q*d + m
 *   Q4_K  144  d | dmin | scales[12] | qs[128]                  x = (d*sc)*q - dmin*mn     eight groups of 32
 *   Q5_K  176  d | dmin | scales[12] | qh[32] | qs[128]         as Q4_K; bit g of qh[j]: fifth bit of item j of group g
 *   Q6_K  210  ql[128] | qh[64] | int8 scales[16] | d           x = (d*sc)*(q-32)          sixteen groups of 16 */
#include "runtime/wtype.h"

#include <stddef.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "weights are used as they stand in the files, which are little endian"
#endif

static inline uint32_t bits_of(float f)
{
	union { float f; uint32_t u; } v = { f };
	return v.u;
}

static inline float float_of(uint32_t u)
{
	union { uint32_t u; float f; } v = { u };
	return v.f;
}

/* With masks instead of branches and in signed integers, so that loops over it become vector code. A signalling NaN
 * becomes quiet, as the instruction (vcvtph2ps) does it. */
static inline float widen_f16(int32_t h)
{
	int32_t magnitude = h & 0x7fff;
	uint32_t is_small = (uint32_t)-(magnitude < 0x400), is_special = (uint32_t)-(magnitude > 0x7bff);
	uint32_t is_nan = (uint32_t)-(magnitude > 0x7c00);
	uint32_t small = bits_of((float)magnitude * 0x1p-24f);   /* exact; also zero */
	uint32_t normal = ((uint32_t)magnitude << 13) + (112u << 23) + (is_special & 112u << 23);
	uint32_t u = (small & is_small) | (normal & ~is_small) | (is_nan & 0x400000u);
	return float_of(u | ((uint32_t)h & 0x8000) << 16);
}

float wtype_f16_to_f32(uint16_t h) { return widen_f16(h); }

uint16_t wtype_f32_to_f16(float f)
{
	uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
	if (magnitude > 0x7f800000)                        /* NaN: the top of the payload, quiet */
		return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
	if (magnitude >= 0x477ff000)                       /* 65520, halfway between the largest f16 and infinity */
		return (uint16_t)(sign | 0x7c00);
	if (magnitude < 0x33000000)                        /* below half of the smallest, 2^-25 */
		return (uint16_t)sign;
	uint32_t exponent = magnitude >> 23;
	uint32_t mantissa, drop;                           /* bits that do not fit */
	if (exponent < 113) {                              /* subnormal in f16 */
		mantissa = (magnitude & 0x7fffff) | 0x800000;
		drop = 126 - exponent;
	} else {
		mantissa = magnitude - (112u << 23);
		drop = 13;
	}
	uint32_t kept = mantissa >> drop, rest = mantissa & ((1u << drop) - 1), half = 1u << (drop - 1);
	kept += rest > half || (rest == half && (kept & 1));   /* a carry runs into the exponent, as it should */
	return (uint16_t)(sign | kept);
}

uint16_t wtype_f32_to_bf16(float f)
{
	uint32_t u = bits_of(f);
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float f16_at(const unsigned char *p) { return widen_f16(p[0] | p[1] << 8); }

static void widen_from_f32(const void *from, float *to, int64_t n) { memcpy(to, from, (size_t)n * sizeof *to); }

static void widen_from_f16(const void *from, float *to, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint16_t h;
		memcpy(&h, (const unsigned char *)from + 2 * i, 2);
		to[i] = widen_f16(h);
	}
}

static void widen_from_bf16(const void *from, float *to, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint16_t h;
		memcpy(&h, (const unsigned char *)from + 2 * i, 2);
		to[i] = wtype_bf16_to_f32(h);
	}
}

static void widen_q8_0(const void *from, float *to, int64_t n)
{
	const unsigned char *b = from;
	for (; n > 0; n -= 32, b += 34, to += 32) {
		float d = f16_at(b);
		for (int j = 0; j < 32; j++)
			to[j] = (float)(int8_t)b[2 + j] * d;
	}
}

/* The 32 numbers of a block of 16 bytes. Unpacking apart from the arithmetic gives the compiler two loops that it turns
 * into vector code. */
static inline void unpack_nibbles(const unsigned char *packed, int8_t *q)
{
	for (int j = 0; j < 16; j++) {
		q[j] = (int8_t)(packed[j] & 15);
		q[j + 16] = (int8_t)(packed[j] >> 4);
	}
}

/* Adds 16 to each of the 32 numbers whose bit is set. */
static inline void add_fifth_bits(const unsigned char *bits, int8_t *q)
{
	static const uint8_t masks[8] = { 1, 2, 4, 8, 16, 32, 64, 128 };
	for (int k = 0; k < 4; k++)
		for (int j = 0; j < 8; j++)
			q[8 * k + j] = (int8_t)(q[8 * k + j] | ((bits[k] & masks[j]) ? 16 : 0));
}

static void widen_q4_0(const void *from, float *to, int64_t n)
{
	const unsigned char *b = from;
	int8_t q[32];
	for (; n > 0; n -= 32, b += 18, to += 32) {
		float d = f16_at(b);
		unpack_nibbles(b + 2, q);
		for (int j = 0; j < 32; j++)
			to[j] = (float)(q[j] - 8) * d;
	}
}

static void widen_q4_1(const void *from, float *to, int64_t n)
{
	const unsigned char *b = from;
	int8_t q[32];
	for (; n > 0; n -= 32, b += 20, to += 32) {
		float d = f16_at(b), m = f16_at(b + 2);
		unpack_nibbles(b + 4, q);
		for (int j = 0; j < 32; j++)
			to[j] = (float)q[j] * d + m;
	}
}

static void widen_q5_0(const void *from, float *to, int64_t n)
{
	const unsigned char *b = from;
	int8_t q[32];
	for (; n > 0; n -= 32, b += 22, to += 32) {
		float d = f16_at(b);
		unpack_nibbles(b + 6, q);
		add_fifth_bits(b + 2, q);
		for (int j = 0; j < 32; j++)
			to[j] = (float)(q[j] - 16) * d;
	}
}

static void widen_q5_1(const void *from, float *to, int64_t n)
{
	const unsigned char *b = from;
	int8_t q[32];
	for (; n > 0; n -= 32, b += 24, to += 32) {
		float d = f16_at(b), m = f16_at(b + 2);
		unpack_nibbles(b + 8, q);
		add_fifth_bits(b + 4, q);
		for (int j = 0; j < 32; j++)
			to[j] = (float)q[j] * d + m;
	}
}

/* Scale and minimum of group g (0..7) of a Q4_K or Q5_K block, 6 bits each in 12 bytes: groups 0-3 in the low bits of
 * bytes g and g+4; groups 4-7 in the halves of byte g+4, their top two bits in those of bytes g-4 and g. */
static inline void scale_min(const unsigned char *s, int g, int *scale, int *min)
{
	if (g < 4) {
		*scale = s[g] & 63;
		*min = s[g + 4] & 63;
	} else {
		*scale = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
		*min = s[g + 4] >> 4 | (s[g] >> 6) << 4;
	}
}

static void widen_q4_k(const void *from, float *to, int64_t n)
{
	const unsigned char *b = from;
	for (; n > 0; n -= 256, b += 144) {
		float d = f16_at(b), dmin = f16_at(b + 2);
		for (int g = 0; g < 8; g++, to += 32) {
			const unsigned char *q = b + 16 + g / 2 * 32;
			int scale, min, shift = g % 2 * 4;
			scale_min(b + 4, g, &scale, &min);
			float dg = d * (float)scale, mg = dmin * (float)min;
			for (int j = 0; j < 32; j++)
				to[j] = dg * (float)(q[j] >> shift & 15) - mg;
		}
	}
}

static void widen_q5_k(const void *from, float *to, int64_t n)
{
	const unsigned char *b = from;
	for (; n > 0; n -= 256, b += 176) {
		float d = f16_at(b), dmin = f16_at(b + 2);
		const unsigned char *high = b + 16;
		for (int g = 0; g < 8; g++, to += 32) {
			const unsigned char *q = b + 48 + g / 2 * 32;
			int scale, min, shift = g % 2 * 4;
			scale_min(b + 4, g, &scale, &min);
			float dg = d * (float)scale, mg = dmin * (float)min;
			for (int j = 0; j < 32; j++)
				to[j] = dg * (float)((q[j] >> shift & 15) | (high[j] >> g & 1) << 4) - mg;
		}
	}
}

/* Two halves of 128 items; in each, run r (0..3) of 32 items takes the low or high 4 bits of ql[32 * (r % 2) + j] and
 * bits 2r, 2r+1 of qh[j]. */
static void widen_q6_k(const void *from, float *to, int64_t n)
{
	const unsigned char *b = from;
	int8_t q[32];
	for (; n > 0; n -= 256, b += 210) {
		float d = f16_at(b + 208);
		for (int r = 0; r < 8; r++, to += 32) {
			const unsigned char *low = b + r / 4 * 64 + r % 2 * 32, *high = b + 128 + r / 4 * 32;
			int low_shift = r % 4 / 2 * 4, high_shift = r % 4 * 2;
			float first = d * (float)(int8_t)b[192 + 2 * r], second = d * (float)(int8_t)b[193 + 2 * r];
			for (int j = 0; j < 32; j++)
				q[j] = (int8_t)(((low[j] >> low_shift & 15) | (high[j] >> high_shift & 3) << 4) - 32);
			for (int j = 0; j < 32; j++)
				to[j] = (j < 16 ? first : second) * (float)q[j];
		}
	}
}

const struct wtype_info wtypes[WTYPE_COUNT] = {
	[WTYPE_F32] = { "F32", "F32", 0, 1, 4, widen_from_f32 },
	[WTYPE_F16] = { "F16", "F16", 1, 1, 2, widen_from_f16 },
	[WTYPE_BF16] = { "BF16", "BF16", 30, 1, 2, widen_from_bf16 },
	[WTYPE_Q8_0] = { "Q8_0", NULL, 8, 32, 34, widen_q8_0 },
	[WTYPE_Q4_0] = { "Q4_0", NULL, 2, 32, 18, widen_q4_0 },
	[WTYPE_Q4_1] = { "Q4_1", NULL, 3, 32, 20, widen_q4_1 },
	[WTYPE_Q5_0] = { "Q5_0", NULL, 6, 32, 22, widen_q5_0 },
	[WTYPE_Q5_1] = { "Q5_1", NULL, 7, 32, 24, widen_q5_1 },
	[WTYPE_Q4_K] = { "Q4_K", NULL, 12, 256, 144, widen_q4_k },
	[WTYPE_Q5_K] = { "Q5_K", NULL, 13, 256, 176, widen_q5_k },
	[WTYPE_Q6_K] = { "Q6_K", NULL, 14, 256, 210, widen_q6_k },
};
