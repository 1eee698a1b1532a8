/* labels: unit
 * The default arithmetic of BF16 weights: products of packed weights against the documented order walked here one column at a
 * time in integers and doubles, in every table: any shape, batch and cut of K, and all numbers at the borders. */
#include "runtime/pack.h"
#include "tests/kernel_data.h"
#include "tests/test.h"

#include <math.h>

static uint32_t bits_of(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return u;
}

static float float_of(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

/* --- the definition, once more: with the type's names and libm only --- */

static float flushed(float f) { return fpclassify(f) == FP_SUBNORMAL ? copysignf(0.0f, f) : f; }

/* 8 bits of significand, ties to even, by scaling: no bit is touched. */
static float rounded(float x)
{
	int exponent;
	if (!isfinite(x) || flushed(x) == 0.0f)
		return flushed(x);
	double fraction = frexp((double)x, &exponent);
	double near = ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
	return fabs(near) >= 0x1p128 ? copysignf(INFINITY, x) : (float)near;
}

/* fma that flushes. A sum that would round below 2^-126 were exponents without end is a zero: scaled by 2^64 it rounds like
 * that. Of a product above 2^-40 and 24 bits nothing so small remains but an exact 0. */
static float step(float w, float x, float acc)
{
	w = flushed(w), x = flushed(x), acc = flushed(acc);
	float sum = fmaf(w, x, acc);
	if (isnan(sum) || fabsf(sum) > 0x1p-100f || fabs((double)w * (double)x) > 0x1p-40)
		return sum;
	float scaled = fabsf(w) < fabsf(x) ? fmaf(w * 0x1p64f, x, acc * 0x1p64f) : fmaf(w, x * 0x1p64f, acc * 0x1p64f);
	return fabsf(scaled) < 0x1p-62f ? copysignf(0.0f, sum) : sum;
}

static float item(const struct weight *raw, int64_t r, int64_t k)
{
	uint16_t h;
	memcpy(&h, raw->data + r * raw->row_bytes + 2 * k, 2);
	return wtype_bf16_to_f32(h);
}

/* Columns [from, to) of row r times x. */
static float walk(const struct weight *raw, int64_t r, const float *x, int64_t from, int64_t to)
{
	float acc = 0.0f;
	for (int64_t k = from; k < to; k += 2) {
		acc = k + 1 < to ? step(item(raw, r, k + 1), rounded(x[k + 1]), acc) : step(0.0f, 0.0f, acc);
		acc = step(item(raw, r, k), rounded(x[k]), acc);
	}
	return acc;
}

/* --- numbers --- */

static struct weight pack(const struct weight *raw)
{
	struct weight w = *raw;
	w.form = pack_form_of(raw->type);
	w.data = aligned_alloc(64, (size_t)(pack_bytes(raw->type, raw->rows, raw->cols) + 64));
	if (!w.data)
		abort();
	pack_rows(&w, 0, raw->rows, raw->data);
	return w;
}

/* Weights of like size, as a model has them: sums then cancel and round at every step. */
static struct weight plain_weight(int64_t rows, int64_t cols)
{
	struct weight w = random_weight(WTYPE_BF16, rows, cols);
	for (int64_t i = 0; i < rows * cols; i++) {
		uint16_t h = wtype_f32_to_bf16(random_float());
		memcpy(w.data + 2 * i, &h, 2);
	}
	return w;
}

static const uint32_t edges[] = {
	0, 0x80000000u, 1, 0x807fffffu, 0x007f8000u, 0x007fffffu, 0x00800000u, 0x80800001u, 0x7f7fffffu, 0xff7f8000u, 0x7f7f7fffu,
	0x3f800000u, 0x3f808000u, 0x3f818000u, 0x3f807fffu, 0x3f808001u, 0xbf800000u, 0x1a000000u, 0x20000000u, 0x9fff0000u
};
enum { N_EDGES = sizeof edges / sizeof edges[0] };

/* Products and sums around 2^-126: exponents so that two factors meet there, among edges. */
static uint32_t small_bits(void)
{
	if (random_below(4) == 0)
		return edges[random_below(N_EDGES)];
	return (random_u32() & 0x80000000u) | (uint32_t)(52 + random_below(20)) << 23 | (random_below(2) ? random_u32() & 0x7fffffu : 0);
}

static struct weight small_weight(int64_t rows, int64_t cols)
{
	struct weight w = random_weight(WTYPE_BF16, rows, cols);
	for (int64_t i = 0; i < rows * cols; i++) {
		uint16_t h = (uint16_t)(small_bits() >> 16);
		h = (h & 0x7f80) == 0x7f80 ? 0 : h;
		memcpy(w.data + 2 * i, &h, 2);
	}
	return w;
}

/* NaN equals NaN; all else by bits. */
static int equal(float a, float b) { return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b)); }

/* --- whole products --- */

struct shape { int64_t rows, cols, begin, end, n, ldx, ldy; };

static struct shape random_shape(void)
{
	struct shape s = { .rows = 1 + random_below(100), .cols = 1 + random_below(150), .n = 1 + random_below(30) };
	s.begin = random_below((s.rows + 15) / 16) * 16;
	s.end = s.begin + 1 + random_below(s.rows - s.begin);
	s.ldx = s.cols + random_below(5);
	s.ldy = s.rows + random_below(5);
	return s;
}

static int check_product(const struct weight *raw, struct shape s, const float *x, int with_bias)
{
	struct weight w = pack(raw);
	float *bias = random_floats(s.rows), *scratch = random_floats(KERNEL_SCRATCH_ROWS * s.cols);
	float *want = random_floats(s.n * s.ldy), *y = room((size_t)(s.n * s.ldy) * 4), *before = room((size_t)(s.n * s.ldy) * 4);
	int wrong = 0;
	memcpy(before, want, (size_t)(s.n * s.ldy) * 4);
	for (int64_t b = 0; b < s.n; b++)
		for (int64_t r = s.begin; r < s.end; r++)
			want[b * s.ldy + r] = walk(raw, r, x + b * s.ldx, 0, s.cols);
	for (int64_t b = 0; b < s.n && with_bias; b++)          /* else nothing is added: + 0 would lose -0 */
		for (int64_t r = s.begin; r < s.end; r++)
			want[b * s.ldy + r] += bias[r];
	FOR_TABLES(k) {
		memcpy(y, before, (size_t)(s.n * s.ldy) * 4);
		k->matmul(&w, s.begin, s.end, with_bias ? bias : NULL, x, s.ldx, s.n, y, s.ldy, scratch);
		for (int64_t i = 0; i < s.n * s.ldy; i++)
			if (!equal(y[i], want[i]) && wrong++ == 0)
				fprintf(stderr, "%s: rows %lld cols %lld n %lld: (%lld, %lld) is %a, want %a\n", k->name,
					(long long)s.rows, (long long)s.cols, (long long)s.n, (long long)(i / s.ldy),
					(long long)(i % s.ldy), (double)y[i], (double)want[i]);
	}
	free(w.data), free(bias), free(scratch), free(want), free(y), free(before);
	return wrong;
}

TEST(a_product_has_the_documented_bits_in_every_table)
{
	for (int round = 0; round < 60; round++) {
		struct shape s = random_shape();
		struct weight raw = round % 3 ? plain_weight(s.rows, s.cols) : random_weight(WTYPE_BF16, s.rows, s.cols);
		float *x = random_floats(s.n * s.ldx);
		CU_ASSERT_EQUAL(check_product(&raw, s, x, round & 1), 0);
		free(raw.data), free(x);
	}
}

/* Batches around every size of a tile, and past a chunk. */
TEST(no_number_of_tokens_or_panels_is_special)
{
	for (int64_t n = 1; n <= 30; n++) {
		struct shape s = { 16 * (1 + n % 7), 34, 0, 16 * (1 + n % 7) - n % 3, n, 34, 128 };
		struct weight raw = plain_weight(s.rows, s.cols);
		float *x = random_floats(s.n * s.ldx);
		CU_ASSERT_EQUAL(check_product(&raw, s, x, 0), 0);
		free(raw.data), free(x);
	}
	for (int64_t n = 45; n <= 205; n += 40) {
		struct shape s = { 33, 19, 0, 33, n, 19, 33 };
		struct weight raw = plain_weight(s.rows, s.cols);
		float *x = random_floats(s.n * s.ldx);
		CU_ASSERT_EQUAL(check_product(&raw, s, x, 1), 0);
		free(raw.data), free(x);
	}
}

/* Rows long enough that sums wait between blocks of columns. */
TEST(long_rows_are_summed_in_one_order)
{
	static const int64_t cols[] = { 1023, 1024, 1025, 2047, 2304, 5001 };
	for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++) {
		struct shape s = { 35, cols[i], 16, 35, i % 2 ? 150 : 5, cols[i], 35 };
		struct weight raw = plain_weight(s.rows, s.cols);
		float *x = random_floats(s.n * s.ldx);
		CU_ASSERT_EQUAL(check_product(&raw, s, x, 1), 0);
		free(raw.data), free(x);
	}
}

/* Denormal operands, sums and results, zeros of both signs, ties and overflow of the rounding. */
TEST(numbers_at_the_borders_are_treated_alike)
{
	for (int round = 0; round < 300; round++) {
		struct shape s = { 32, 1 + random_below(6), 0, 32, 1 + random_below(14), 8, 32 };
		struct weight raw = small_weight(s.rows, s.cols);
		float *x = room((size_t)(s.n * s.ldx) * 4);
		for (int64_t i = 0; i < s.n * s.ldx; i++)
			x[i] = float_of(small_bits());
		CU_ASSERT_EQUAL(check_product(&raw, s, x, 0), 0);
		free(raw.data), free(x);
	}
}

/* Sums of 2^-126 and a product that pulls them below it, by less and by more than rounding forgives. */
TEST(a_result_is_small_when_it_is_so_after_rounding)
{
	for (int exponent = 140; exponent <= 153; exponent++)
		for (int odd = 0; odd < 4; odd++) {
			struct weight raw = random_weight(WTYPE_BF16, 16, 4);
			float x[4] = { 0x1p-63f, 0.0f, ldexpf(-1.0f, -70), 0.0f };
			struct shape s = { 16, 4, 0, 16, 1, 4, 16 };
			memset(raw.data, 0, (size_t)(raw.row_bytes * 16));
			for (int r = 0; r < 16; r++) {
				uint16_t first = wtype_f32_to_bf16(0x1p-63f);
				uint16_t second = wtype_f32_to_bf16(ldexpf(1.0f + (float)(odd + r) * 0x1p-7f, 70 - exponent));
				memcpy(raw.data + r * 8, &first, 2);
				memcpy(raw.data + r * 8 + 4, &second, 2);
			}
			CU_ASSERT_EQUAL(check_product(&raw, s, x, 0), 0);
			free(raw.data);
		}
	/* by hand: 2^-126 - 2^-151 is halfway to 2^-126 in 24 bits and rounds up; 2^-126 - 2^-150 is a number below it */
	CU_ASSERT_EQUAL(step(-0x1p-75f, 0x1p-76f, 0x1p-126f), 0x1p-126f);
	CU_ASSERT_EQUAL(step(-0x1p-75f, 0x1p-75f, 0x1p-126f), 0.0f);
}

TEST(infinities_and_nan_stay_in_their_row_and_token)
{
	static const uint32_t odd_ones[] = { 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffffffffu, 0x7f7fffffu };
	for (int round = 0; round < 40; round++) {
		struct shape s = { 37, 21, 0, 37, 17, 21, 40 };
		struct weight raw = plain_weight(s.rows, s.cols);
		float *x = random_floats(s.n * s.ldx);
		x[random_below(s.n) * s.ldx + random_below(s.cols)] = float_of(odd_ones[round % 6]);
		if (round & 1) {
			uint16_t h = (uint16_t)(odd_ones[round / 2 % 6] >> 16);
			memcpy(raw.data + random_below(s.rows * s.cols) * 2, &h, 2);
		}
		CU_ASSERT_EQUAL(check_product(&raw, s, x, round & 2), 0);
		free(raw.data), free(x);
	}
}

/* --- fixed point --- */

static int check_fixed(struct shape s, int64_t run, int gated)
{
	struct weight raw = plain_weight(s.rows, s.cols), w = pack(&raw);
	float *x = random_floats(s.n * s.ldx), *gate = random_floats(s.n), *scratch = random_floats(KERNEL_SCRATCH_ROWS * s.cols);
	size_t acc_bytes = (size_t)(s.n * s.ldy) * sizeof(int64_t), bad_bytes = (size_t)s.n * sizeof(int64_t);
	int64_t *want = room(acc_bytes), *want_bad = room(bad_bytes), *acc = room(acc_bytes), *bad = room(bad_bytes);
	int wrong = 0;
	x[random_below(s.n) * s.ldx + random_below(s.cols)] = 3e20f;
	x[random_below(s.n) * s.ldx + random_below(s.cols)] = NAN;
	x[random_below(s.n) * s.ldx + random_below(s.cols)] = INFINITY;
	for (int64_t i = 0; i < s.n * s.ldy; i++)
		want[i] = 1000 * i;
	for (int64_t b = 0; b < s.n; b++)
		for (int64_t r = s.begin; r < s.end; r++)
			for (int64_t at = 0; at < s.cols; at += run) {
				float sum = walk(&raw, r, x + b * s.ldx, at, s.cols - at < run ? s.cols : at + run);
				sum = gated ? gate[b] * sum : sum;
				if (isfinite(sum) && fabsf(sum) < 16777216.0f)
					want[b * s.ldy + r] += llrintl((long double)sum * 4294967296.0L);
				else
					want_bad[b]++;
			}
	FOR_TABLES(k) {
		for (int64_t i = 0; i < s.n * s.ldy; i++)
			acc[i] = 1000 * i;
		memset(bad, 0, bad_bytes);
		k->matmul_fixed(&w, s.begin, s.end, run, gated ? gate : NULL, x, s.ldx, s.n, acc, s.ldy, bad, scratch);
		wrong += memcmp(acc, want, acc_bytes) != 0 || memcmp(bad, want_bad, bad_bytes) != 0;
	}
	free(raw.data), free(w.data), free(x), free(gate), free(scratch), free(want), free(want_bad), free(acc), free(bad);
	return wrong;
}

TEST(fixed_point_sums_restart_at_every_run_and_count_what_does_not_fit)
{
	static const int64_t runs[] = { 2, 32, 34, 64, 96, 150, 4096 };
	for (int round = 0; round < 40; round++)
		CU_ASSERT_EQUAL(check_fixed(random_shape(), runs[round % 7], round & 1), 0);
	CU_ASSERT_EQUAL(check_fixed((struct shape){ 33, 2304, 0, 33, 100, 2304, 33 }, 96, 1), 0);
	CU_ASSERT_EQUAL(check_fixed((struct shape){ 20, 3600, 0, 20, 61, 3600, 20 }, 1200, 0), 0);
	CU_ASSERT_EQUAL(check_fixed((struct shape){ 16, 1, 0, 16, 61, 1, 16 }, 4096, 0), 0);
}

/* Any cut of K on borders of runs, as tp ranks have it, adds up to the integers of the whole. */
TEST(slices_of_columns_add_up_to_the_whole)
{
	enum { ROWS = 40, COLS = 200, RUN = 32, N = 5 };
	struct weight raw = plain_weight(ROWS, COLS), w = pack(&raw);
	float *x = random_floats(N * COLS), *scratch = random_floats(KERNEL_SCRATCH_ROWS * COLS);
	FOR_TABLES(k) {
		int64_t whole[N * ROWS] = { 0 }, bad[N] = { 0 };
		k->matmul_fixed(&w, 0, ROWS, RUN, NULL, x, COLS, N, whole, ROWS, bad, scratch);
		for (int64_t cut = RUN; cut < COLS; cut += RUN) {
			int64_t acc[N * ROWS] = { 0 };
			for (int side = 0; side < 2; side++) {
				int64_t first = side ? cut : 0, cols = side ? COLS - cut : cut;
				struct weight part = { WTYPE_BF16, ROWS, cols, 2 * cols, room(ROWS * 2 * COLS), PACK_ROWS };
				for (int64_t r = 0; r < ROWS; r++)
					memcpy(part.data + r * 2 * cols, raw.data + r * 2 * COLS + 2 * first, (size_t)cols * 2);
				struct weight packed = pack(&part);
				k->matmul_fixed(&packed, 0, ROWS, RUN, NULL, x + first, COLS, N, acc, ROWS, bad, scratch);
				free(part.data), free(packed.data);
			}
			CU_ASSERT(!memcmp(acc, whole, sizeof acc));
		}
	}
	free(raw.data), free(w.data), free(x), free(scratch);
}

/* The rounding of activations alone, by products with 1: every float near a border of two bf16. */
TEST(activations_are_rounded_to_nearest_even)
{
	struct weight raw = random_weight(WTYPE_BF16, 1, 2);
	uint16_t one[2] = { 0x3f80, 0 };
	memcpy(raw.data, one, 4);
	struct weight w = pack(&raw);
	float scratch[KERNEL_SCRATCH_ROWS * 2];
	int wrong = 0;
	for (uint32_t h = 0; h <= 0xffff; h++) {
		static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
		float x[6][2] = { { 0 } }, y[6];
		for (int i = 0; i < 6; i++)
			x[i][0] = float_of(h << 16 | low[i]);
		FOR_TABLES(k) {
			k->matmul(&w, 0, 1, NULL, x[0], 2, 6, y, 1, scratch);
			for (int i = 0; i < 6; i++)
				wrong += !equal(y[i], rounded(x[i][0]) + 0.0f);
		}
	}
	CU_ASSERT_EQUAL(wrong, 0);
	free(raw.data), free(w.data);
}

/* The control word comes back as it was: denormals elsewhere stay. */
TEST(no_kernel_leaves_denormals_switched_off)
{
	struct weight raw = plain_weight(20, 30), w = pack(&raw);
	float *x = random_floats(3 * 30), y[60], bias[20], scratch[KERNEL_SCRATCH_ROWS * 30];
	memset(raw.data, 0, (size_t)(raw.row_bytes * 20));
	pack_rows(&w, 0, 20, raw.data);
	for (int i = 0; i < 20; i++)
		bias[i] = 0x1p-140f;
	FOR_TABLES(k) {
		volatile float small = 0x1p-130f, half = 0.5f;
		k->matmul(&w, 0, 20, bias, x, 30, 3, y, 20, scratch);
		for (int i = 0; i < 60; i++)
			CU_ASSERT_EQUAL(bits_of(y[i]), bits_of(0x1p-140f));
		volatile float product = small * half;
		CU_ASSERT_EQUAL(bits_of(product), bits_of(0x1p-131f));
	}
	free(raw.data), free(w.data), free(x);
}

TEST_MAIN("bf16", CASE(a_product_has_the_documented_bits_in_every_table), CASE(no_number_of_tokens_or_panels_is_special),
	  CASE(long_rows_are_summed_in_one_order), CASE(numbers_at_the_borders_are_treated_alike),
	  CASE(a_result_is_small_when_it_is_so_after_rounding), CASE(infinities_and_nan_stay_in_their_row_and_token),
	  CASE(fixed_point_sums_restart_at_every_run_and_count_what_does_not_fit), CASE(slices_of_columns_add_up_to_the_whole),
	  CASE(activations_are_rounded_to_nearest_even), CASE(no_kernel_leaves_denormals_switched_off))
