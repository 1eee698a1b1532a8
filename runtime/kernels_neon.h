/* What kernels_neon.c and kernels_neondot.c have in common: four parts of 4 lanes, tiles of floats are 4 rows x 4 tokens in
 * 16 of the 32 registers. Nothing on another processor family.
 *
 * Codes are unsigned and activations signed, and Arm multiplies bytes of one kind: codes of 4 to 6 bits are the same number
 * either way; those of 8 bits become signed ones, code - 128, whose sums start at 0. */
#ifndef SHARDRUN_RUNTIME_KERNELS_NEON_H
#define SHARDRUN_RUNTIME_KERNELS_NEON_H
#ifdef __aarch64__
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define PARTS 4
#define TILE_TOKENS 4
typedef float32x4_t part;

#define part_zero() vdupq_n_f32(0.0f)
#define part_load(from) vld1q_f32(from)
#define part_fma(a, b, c) vfmaq_f32(c, a, b)

/* Two halves of a next to two of b: lanes 0 1 and 2 3 of each. */
static inline float32x4_t low_halves(float32x4_t a, float32x4_t b)
{
	return vreinterpretq_f32_f64(vtrn1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

static inline float32x4_t high_halves(float32x4_t a, float32x4_t b)
{
	return vreinterpretq_f32_f64(vtrn2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

/* Lanes i and i+8 are in parts p and p+2, lanes i and i+4 in parts p and p+1; then four vectors are halved together, so
 * every addition is one of the fixed tree. */
static inline void part_sum4(const part *a, float *out)
{
	float32x4_t t[4];
	for (int i = 0; i < 4; i++)
		t[i] = vaddq_f32(vaddq_f32(a[i], a[8 + i]), vaddq_f32(a[4 + i], a[12 + i]));
	float32x4_t s01 = vaddq_f32(low_halves(t[0], t[1]), high_halves(t[0], t[1]));
	float32x4_t s23 = vaddq_f32(low_halves(t[2], t[3]), high_halves(t[2], t[3]));
	vst1q_f32(out, vpaddq_f32(s01, s23));
}

static inline float tree16(const float *lanes)
{
	float32x4_t t = vaddq_f32(vaddq_f32(vld1q_f32(lanes), vld1q_f32(lanes + 8)),
				  vaddq_f32(vld1q_f32(lanes + 4), vld1q_f32(lanes + 12)));
	return vpadds_f32(vadd_f32(vget_low_f32(t), vget_high_f32(t)));
}

static inline float max16(const float *lanes)
{
	return vmaxvq_f32(vmaxq_f32(vmaxq_f32(vld1q_f32(lanes), vld1q_f32(lanes + 4)),
				    vmaxq_f32(vld1q_f32(lanes + 8), vld1q_f32(lanes + 12))));
}

/* ---- packed weights: a lane is a row, a quarter of a plane of codes a register ---- */

typedef uint8x16_t codes;

#define codes_load(from) vld1q_u8(from)
#define codes_store(to, c) vst1q_u8(to, c)
#define codes_or(a, b) vorrq_u8(a, b)
#define part_set1(x) vdupq_n_f32(x)
#define part_max(a, b) vbslq_f32(vcgtq_f32(a, b), a, b)   /* b when one is NaN */
#define part_add(a, b) vaddq_f32(a, b)
#define part_mul(a, b) vmulq_f32(a, b)
#define part_store(to, p) vst1q_f32(to, p)

static inline part part_of_halves(const unsigned char *from)
{
	return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from)));
}

static inline uint8x8_t four_bytes(const unsigned char *from)
{
	uint32_t four;
	memcpy(&four, from, sizeof four);
	return vcreate_u8(four);
}

static inline part part_of_bytes(const unsigned char *from)
{
	return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four_bytes(from)))));
}

static inline part part_of_int8(const unsigned char *from)
{
	return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four_bytes(from))))));
}

/* With operators, whose shifts by a constant are one instruction; the ones that shift by a register are not. */
static inline codes codes_bits(codes c, int left, int mask)
{
	codes shifted = left < 0 ? c >> -left : c << left;
	return left < 0 && mask == 255 >> -left ? shifted : vandq_u8(shifted, vdupq_n_u8((uint8_t)mask));
}

static inline int8x16_t signed_codes(int bits, codes c)
{
	return vreinterpretq_s8_u8(bits == 8 ? veorq_u8(c, vdupq_n_u8(0x80)) : c);
}

#ifdef __ARM_FEATURE_DOTPROD
#define PACKED_TILE_TOKENS 8      /* 8 sums as integers, 8 as floats, 16 activations of each token */
typedef int32x4_t int_sums;

#define sums_start(bits, start) vdupq_n_s32((bits) == 8 ? 0 : (start))
#define part_of_sums(bits, s) vcvtq_f32_s32(s)

/* Four groups in turn use a register of 16 activations: the instruction picks the group's four. */
static inline int_sums sums_add(int bits, int groups, int_sums s, codes c, const int8_t *x)
{
	int8x16_t w = signed_codes(bits, c);
	int turn = (groups - 1) % 4;
	int8x16_t x16 = vld1q_s8(x - 4 * turn);
	switch (turn) {
	case 0: return vdotq_laneq_s32(s, w, x16, 0);
	case 1: return vdotq_laneq_s32(s, w, x16, 1);
	case 2: return vdotq_laneq_s32(s, w, x16, 2);
	default: return vdotq_laneq_s32(s, w, x16, 3);
	}
}
#else
/* Products are summed in 16 bits, which as many groups as below cannot overflow (15 or 31 * 127 * 8 = 31496, 63 * 127 * 4 =
 * 32004, 128 * 127 * 2 = 32512), then each lane's four in 32. */
#define PACKED_TILE_TOKENS 4
typedef struct { int32x4_t wide; int16x8_t low, high; } int_sums;

static inline int_sums sums_start(int bits, int32_t start)
{
	return (int_sums){ vdupq_n_s32(bits == 8 ? 0 : start), vdupq_n_s16(0), vdupq_n_s16(0) };
}

static inline int_sums sums_add(int bits, int groups, int_sums s, codes c, const int8_t *x)
{
	int fold_after = bits <= 5 ? 8 : bits == 6 ? 4 : 2;
	int8x16_t w = signed_codes(bits, c), four = vreinterpretq_s8_u8(vcombine_u8(four_bytes((const unsigned char *)x),
										     vcreate_u8(0)));
	four = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(four), 0));
	s.low = vmlal_s8(s.low, vget_low_s8(w), vget_low_s8(four));
	s.high = vmlal_high_s8(s.high, w, four);
	if (groups % fold_after)
		return s;
	s.wide = vaddq_s32(s.wide, vpaddq_s32(vpaddlq_s16(s.low), vpaddlq_s16(s.high)));
	s.low = s.high = vdupq_n_s16(0);
	return s;
}

#define part_of_sums(bits, s) vcvtq_f32_s32((s).wide)
#endif

/* See packed_impl.h: the conversion rounds to nearest even. */
#define PART_FIXED
static inline int part_fixed(float32x4_t v, int64_t *total)
{
	if (__builtin_expect(vminvq_u32(vcaltq_f32(v, vdupq_n_f32(0x1p56f))) == 0, 0))
		return 0;
	int64x2_t low = vcvtnq_s64_f64(vcvt_f64_f32(vget_low_f32(v))), high = vcvtnq_s64_f64(vcvt_high_f64_f32(v));
	vst1q_s64(total, vaddq_s64(vld1q_s64(total), low));
	vst1q_s64(total + 2, vaddq_s64(vld1q_s64(total + 2), high));
	return 1;
}

/* ---- activations as int8: see packed_impl.h ---- */

#define PART_QUANTIZE
static inline uint32_t largest32(const float *v)
{
	uint32x4_t top = vdupq_n_u32(0);
	for (int i = 0; i < 8; i++)
		top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(v + 4 * i))));
	return vmaxvq_u32(top);
}

static inline void round32(const float *v, float inverse, int8_t *q, int32_t *sum)
{
	for (int half = 0; half < 2; half++, v += 16, q += 16) {
		int32x4_t n[4];
		for (int i = 0; i < 4; i++)
			n[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(v + 4 * i), inverse));
		int16x8_t low = vcombine_s16(vmovn_s32(n[0]), vmovn_s32(n[1])), high = vcombine_s16(vmovn_s32(n[2]), vmovn_s32(n[3]));
		vst1q_s8(q, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
		sum[half] = vaddvq_s32(vaddq_s32(vaddq_s32(n[0], n[1]), vaddq_s32(n[2], n[3])));
	}
}
#endif

#endif
