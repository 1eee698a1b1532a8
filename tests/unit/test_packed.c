/* labels: unit
 * The default arithmetic of quantised weights: what quantize writes, and products of packed weights against the documented
 * order walked here one item at a time, against double precision, and row by row, in every table. */
#include "runtime/pack.h"
#include "tests/kernel_data.h"
#include "tests/test.h"

#include <math.h>

static struct weight pack(const struct weight *raw)
{
	struct weight w = *raw;
	w.form = pack_form_of(raw->type);
	w.data = aligned_alloc(64, (size_t)pack_bytes(raw->type, raw->rows, raw->cols));
	if (!w.data)
		abort();
	pack_rows(&w, 0, raw->rows, raw->data);
	return w;
}

/* --- activations --- */

static void check_quantized(const float *x, int64_t n, const struct act_block *got)
{
	for (int64_t b = 0; b < act_blocks(n); b++) {
		float largest = 0;
		int32_t sum[2] = { 0, 0 };
		int is_finite = 1;
		for (int64_t i = 0; i < 32 && b * 32 + i < n; i++) {
			is_finite &= isfinite(x[b * 32 + i]) != 0;
			largest = fmaxf(largest, fabsf(x[b * 32 + i]));
		}
		if (!is_finite) {
			CU_ASSERT(isnan(got[b].d) && isnan(got[b].ds));
			continue;
		}
		float inverse = largest < 0x1p-100f ? 0.0f : 127.0f / largest;
		for (int64_t i = 0; i < 32; i++) {
			float v = b * 32 + i < n ? x[b * 32 + i] : 0.0f;
			int32_t q = (int32_t)lrintf(v * inverse);
			CU_ASSERT_EQUAL(got[b].q[i], q);
			CU_ASSERT(q >= -127 && q <= 127);
			sum[i / 16] += q;
		}
		int32_t all = sum[0] + sum[1];
		CU_ASSERT_EQUAL(got[b].d, largest < 0x1p-100f ? 0.0f : largest / 127.0f);
		CU_ASSERT_EQUAL(got[b].ds, got[b].d * (float)all);
		CU_ASSERT_EQUAL(got[b].start8, -8 * all);
		CU_ASSERT_EQUAL(got[b].start16, -16 * all);
		CU_ASSERT_EQUAL(got[b].start128, -128 * all);
		CU_ASSERT_EQUAL(got[b].start32[0], -32 * sum[0]);
		CU_ASSERT_EQUAL(got[b].start32[1], -32 * sum[1]);
	}
}

TEST(activations_are_rounded_to_nearest_even_of_127_steps)
{
	static const float edges[] = { 0.0f, -0.0f, 1e-45f, 1e-38f, 0x1p-100f, 0x1.fp-101f, 3.4e38f, -3.4e38f, NAN, INFINITY };
	for (int round = 0; round < 400; round++) {
		struct act_block got[8];
		int64_t n = 1 + random_below(200);
		float *x = random_floats(n), size = ldexpf(1.0f, (int)random_below(200) - 100);
		for (int64_t i = 0; i < n; i++)
			x[i] *= size;
		if (round % 2)
			x[random_below(n)] = edges[random_below(10)];
		if (round % 8 == 4)   /* halves: ties */
			for (int64_t i = 0; i < n; i++)
				x[i] = i % 32 ? (float)(random_below(254) - 127) * 0.5f : 127.0f;
		FOR_TABLES(k) {
			memset(got, 0x55, sizeof got);
			k->quantize(x, n, got);
			check_quantized(x, n, got);
			CU_ASSERT_EQUAL(got[act_blocks(n)].start8, 0x55555555);   /* nothing behind the last */
		}
		free(x);
	}
}

/* sum of (x - d * q)^2, and that the sums are those of q. */
static double squared_error(const float *x, int64_t n, const struct act_block *got)
{
	double error = 0;
	for (int64_t b = 0; b < act_blocks(n); b++) {
		int32_t sum[2] = { 0, 0 };
		for (int64_t i = 0; i < 32; i++) {
			double v = b * 32 + i < n ? (double)x[b * 32 + i] : 0;
			error += (v - (double)got[b].d * got[b].q[i]) * (v - (double)got[b].d * got[b].q[i]);
			sum[i / 16] += got[b].q[i];
		}
		CU_ASSERT_EQUAL(got[b].ds, got[b].d * (float)(sum[0] + sum[1]));
		CU_ASSERT_EQUAL(got[b].start8, -8 * (sum[0] + sum[1]));
		CU_ASSERT_EQUAL(got[b].start16, -16 * (sum[0] + sum[1]));
		CU_ASSERT_EQUAL(got[b].start128, -128 * (sum[0] + sum[1]));
		CU_ASSERT(got[b].start32[0] == -32 * sum[0] && got[b].start32[1] == -32 * sum[1]);
	}
	return error;
}

/* Never further than plain rounding, and by a quarter nearer over many blocks (of the errors of eight independent roundings
 * of 32 numbers, which spread by 0.16 of their mean, the least lies 1.4 of that below it; a little is lost by coarser steps). */
TEST(fine_rounding_is_nearer_and_has_the_same_bits_in_every_table)
{
	double plain = 0, fine = 0;
	int worse = 0;
	for (int round = 0; round < 200; round++) {
		struct act_block once[8], want[8], got[8];
		int64_t n = 1 + random_below(200);
		float *x = random_floats(n), size = ldexpf(1.0f, (int)random_below(60) - 30);
		for (int64_t i = 0; i < n; i++)
			x[i] *= size;
		memset(want, 0x55, sizeof want);
		kernel_tables[0]->quantize(x, n, once);
		kernel_tables[0]->quantize_finely(x, n, want);
		double before = squared_error(x, n, once), after = squared_error(x, n, want);
		worse += after > before * (1 + 1e-4);
		plain += before / (double)size / (double)size;
		fine += after / (double)size / (double)size;
		FOR_TABLES(k) {
			memset(got, 0x55, sizeof got);
			k->quantize_finely(x, n, got);
			CU_ASSERT_EQUAL(memcmp(got, want, sizeof got), 0);
		}
		free(x);
	}
	printf("error %.2f of plain rounding's  ", fine / plain);
	CU_ASSERT_EQUAL(worse, 0);
	CU_ASSERT(fine < 0.85 * plain);
}

TEST(fine_rounding_treats_edges_as_plain_rounding_does)
{
	static const float edges[] = { 0.0f, 1e-45f, 0x1.fp-101f, 3.4e38f, -3.4e38f, NAN, INFINITY };
	for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
		float x[32] = { 0 };
		struct act_block plain, fine;
		x[7] = edges[i];
		x[20] = edges[i] / 3;
		FOR_TABLES(k) {
			k->quantize(x, 32, &plain);
			k->quantize_finely(x, 32, &fine);
			CU_ASSERT_EQUAL(memcmp(&plain, &fine, sizeof fine), 0);
		}
	}
}

/* --- the documented order --- */

/* Codes are recovered from the widened row with scale and minimum known: instead the format is read again, plainly. */
struct numbers { int q[32]; float scale[2], minimum; };

static float half_at(const unsigned char *p) { return wtype_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* Q6 bits of group g's scale and minimum (Q4_K, Q5_K), by the bit positions of the format: for g < 4 bits 0-5 of bytes g and
 * g+4, else four bits of byte g+4 and two of g-4 and g. */
static void k_scale(const unsigned char *s, int64_t g, int *scale, int *minimum)
{
	*scale = g < 4 ? s[g] % 64 : s[g + 4] % 16 + s[g - 4] / 64 * 16;
	*minimum = g < 4 ? s[g + 4] % 64 : s[g + 4] / 16 + s[g] / 64 * 16;
}

static struct numbers block_of(enum wtype type, const unsigned char *row, int64_t i)
{
	struct numbers out = { .minimum = 0 };
	float wide[256], unit[2];
	const unsigned char *p = row + i * 32 / wtypes[type].block * wtypes[type].block_bytes;
	int scale, minimum;
	wtypes[type].widen(p, wide, wtypes[type].block);
	out.scale[0] = out.scale[1] = half_at(type == WTYPE_Q6_K ? p + 208 : p);
	if (type == WTYPE_Q6_K) {
		out.scale[1] *= (float)(int8_t)p[192 + i % 8 * 2 + 1];
		out.scale[0] *= (float)(int8_t)p[192 + i % 8 * 2];
	} else if (type == WTYPE_Q4_K || type == WTYPE_Q5_K) {
		k_scale(p + 4, i % 8, &scale, &minimum);
		out.scale[0] = out.scale[1] *= (float)scale;
		out.minimum = -(half_at(p + 2) * (float)minimum);
	} else if (type == WTYPE_Q4_1 || type == WTYPE_Q5_1) {
		out.minimum = half_at(p + 2);
	}
	for (int j = 0; j < 32; j++) {
		unit[j / 16] = out.scale[j / 16];
		float v = wide[i * 32 % wtypes[type].block + j];
		out.q[j] = unit[j / 16] == 0.0f ? 0 : (int)lrint(((double)v - (double)out.minimum) / (double)unit[j / 16]);
	}
	return out;
}

/* sum over blocks [from, to) of row r; size: of the terms, for tolerances; exact: the same in double. */
static float walk(const struct weight *raw, int64_t r, const struct act_block *x, int64_t from, int64_t to, double *exact,
		  double *size)
{
	float acc = 0;
	float wide[256];
	*exact = *size = 0;
	for (int64_t b = from; b < to; b++) {
		const unsigned char *row = raw->data + r * raw->row_bytes;
		struct numbers w = block_of(raw->type, row, b);
		int32_t sum[2] = { 0, 0 }, joined = raw->type != WTYPE_Q6_K;
		for (int j = 0; j < 32; j++)
			sum[joined ? 0 : j / 16] += w.q[j] * x[b].q[j];
		acc = fmaf((float)sum[0], w.scale[0] * x[b].d, acc);
		if (!joined)
			acc = fmaf((float)sum[1], w.scale[1] * x[b].d, acc);
		if (pack_has_minimum(raw->type))
			acc = fmaf(w.minimum, x[b].ds, acc);
		int64_t block = wtypes[raw->type].block;
		wtypes[raw->type].widen(row + b * 32 / block * wtypes[raw->type].block_bytes, wide, block);
		for (int j = 0; j < 32; j++) {
			double term = (double)wide[b * 32 % block + j] * x[b].q[j] * (double)x[b].d;
			*exact += term;
			*size += fabs(term) + (double)fabsf(w.minimum * x[b].ds) / 32;
		}
	}
	return acc;
}

struct shape { int64_t rows, cols, begin, end, n, ldx, ldy; };

static struct shape random_shape(enum wtype type)
{
	struct shape s;
	int64_t block = wtypes[type].block;
	s.rows = 1 + random_below(50);
	s.cols = block * (1 + random_below(block == 32 ? 12 : 3));
	s.begin = random_below(s.rows) / 16 * 16;
	s.end = s.begin + 1 + random_below(s.rows - s.begin);
	s.n = 1 + random_below(70);
	s.ldx = s.cols / 32 + random_below(3);
	s.ldy = s.rows + random_below(5);
	return s;
}

static struct act_block *random_blocks(struct shape s)
{
	struct act_block *x = aligned_alloc(64, (size_t)(s.n * s.ldx) * sizeof *x);
	float *v = random_floats(s.cols);
	if (!x)
		abort();
	memset(x, 0xff, (size_t)(s.n * s.ldx) * sizeof *x);
	for (int64_t b = 0; b < s.n; b++) {
		for (int64_t k = 0; k < s.cols; k++)
			v[k] = b % 7 == 3 ? (k % 2 ? 1.0f : -1.0f) : random_float();   /* some rows of the largest codes */
		kernel_tables[0]->quantize(v, s.cols, x + b * s.ldx);
	}
	free(v);
	return x;
}

static void check_matmul(enum wtype type, struct shape s, int with_bias)
{
	struct weight raw = random_weight(type, s.rows, s.cols), w = pack(&raw);
	struct act_block *x = random_blocks(s);
	size_t bytes = (size_t)(s.n * s.ldy) * sizeof(float);
	float *bias = random_floats(s.rows), *want = random_floats(s.n * s.ldy), *y = room(bytes), *before = room(bytes);
	float *scratch = aligned_alloc(64, (size_t)(KERNEL_SCRATCH_ROWS * s.cols) * sizeof *scratch);
	double exact, size;
	memcpy(before, want, bytes);
	for (int64_t b = 0; b < s.n; b++)
		for (int64_t r = s.begin; r < s.end; r++) {
			float sum = walk(&raw, r, x + b * s.ldx, 0, s.cols / 32, &exact, &size);
			CU_ASSERT(fabs((double)sum - exact) <= 1e-5 * size);
			want[b * s.ldy + r] = with_bias ? sum + bias[r] : sum;
		}
	FOR_TABLES(k) {
		memcpy(y, before, bytes);   /* what is outside begin..end must stay */
		k->packed_matmul(&w, s.begin, s.end, with_bias ? bias : NULL, x, s.ldx, s.n, y, s.ldy, scratch);
		CU_ASSERT(same_bits(y, want, s.n * s.ldy));
		for (int64_t b = 0; b < s.n; b += 5) {   /* a row alone */
			k->packed_matmul(&w, s.begin, s.end, with_bias ? bias : NULL, x + b * s.ldx, s.ldx, 1, y, s.ldy, scratch);
			CU_ASSERT(same_bits(y + s.begin, want + b * s.ldy + s.begin, s.end - s.begin));
		}
	}
	free(raw.data), free(w.data), free(x), free(bias), free(want), free(y), free(before), free(scratch);
}

TEST(a_packed_product_has_the_documented_bits_in_every_table_and_batch)
{
	for (int type = 0; type < WTYPE_COUNT; type++)
		for (int round = 0; round < 16 && pack_bits((enum wtype)type); round++)
			check_matmul((enum wtype)type, random_shape((enum wtype)type), round & 1);
}

/* Every number of tokens, and enough columns that the activations are taken in chunks. */
TEST(no_number_of_tokens_is_special)
{
	for (int64_t n = 1; n <= 40; n++)
		check_matmul(n % 2 ? WTYPE_Q4_0 : WTYPE_Q6_K, (struct shape){ 17, 256, 0, 17, n, 8, 17 }, 0);
	check_matmul(WTYPE_Q4_1, (struct shape){ 16, 8192, 0, 16, 67, 256, 16 }, 1);
}

/* The largest codes against the largest activations: nothing in between may saturate. */
TEST(the_largest_integers_do_not_saturate)
{
	for (int type = 0; type < WTYPE_COUNT; type++)
		for (int sign = -1; sign <= 1 && pack_bits((enum wtype)type); sign += 2)
			for (int fill = 0; fill < 3; fill++) {
				int64_t cols = 256, n_bytes = wtype_row_bytes((enum wtype)type, cols);
				struct weight raw = { (enum wtype)type, 1, cols, n_bytes, room((size_t)n_bytes), PACK_ROWS };
				memset(raw.data, (int[]){ 0xff, 0x00, 0x80 }[fill], (size_t)n_bytes);
				for (int64_t at = 0; at < n_bytes; at += wtypes[type].block_bytes) {   /* f16 1 and 1 */
					unsigned char *half = raw.data + at + (type == WTYPE_Q6_K ? 208 : 0);
					memcpy(half, (unsigned char[]){ 0x00, 0x3c }, 2);
					if (pack_has_minimum((enum wtype)type))
						memcpy(half + 2, (unsigned char[]){ 0x00, 0x3c }, 2);
				}
				struct weight w = pack(&raw);
				struct act_block x[8];
				float v[256], y, *scratch = random_floats(KERNEL_SCRATCH_ROWS * cols);
				double exact, size;
				for (int k = 0; k < 256; k++)
					v[k] = (float)sign;
				kernel_tables[0]->quantize(v, cols, x);
				float want = walk(&raw, 0, x, 0, 8, &exact, &size);
				CU_ASSERT(fabs((double)want - exact) <= 1e-5 * size);
				FOR_TABLES(k) {
					k->packed_matmul(&w, 0, 1, NULL, x, 8, 1, &y, 1, scratch);
					CU_ASSERT_EQUAL(y, want);
				}
				free(raw.data), free(w.data), free(scratch);
			}
}

TEST(what_is_not_finite_becomes_nan_in_its_row_alone)
{
	struct shape s = { 20, 256, 0, 20, 19, 8, 20 };
	for (int type = 0; type < WTYPE_COUNT; type++) {
		if (!pack_bits((enum wtype)type))
			continue;
		struct weight raw = random_weight((enum wtype)type, s.rows, s.cols), w = pack(&raw);
		struct act_block *x = random_blocks(s);
		float v[256] = { 0 }, *y = room((size_t)(s.n * s.ldy) * 4), *clean = room((size_t)(s.n * s.ldy) * 4);
		float *scratch = random_floats(KERNEL_SCRATCH_ROWS * s.cols);
		int64_t *acc = room((size_t)(s.n * s.ldy) * 8), bad[19];
		FOR_TABLES(k) {
			k->quantize(v, s.cols, x + 5 * s.ldx);   /* zeros give zeros */
			k->packed_matmul(&w, 0, s.rows, NULL, x, s.ldx, s.n, clean, s.ldy, scratch);
			for (int64_t r = 0; r < s.rows; r++)
				CU_ASSERT_EQUAL(clean[5 * s.ldy + r], 0.0f);
			for (int spoil = 0; spoil < 3; spoil++) {
				v[77] = (float[]){ NAN, INFINITY, -INFINITY }[spoil];
				k->quantize(v, s.cols, x + 5 * s.ldx);
				k->packed_matmul(&w, 0, s.rows, NULL, x, s.ldx, s.n, y, s.ldy, scratch);
				for (int64_t b = 0; b < s.n; b++)
					for (int64_t r = 0; r < s.rows; r++)
						CU_ASSERT(b == 5 ? isnan(y[b * s.ldy + r])
								 : same_bits(y + b * s.ldy + r, clean + b * s.ldy + r, 1));
				memset(bad, 0, sizeof bad);
				k->packed_fixed(&w, 0, s.rows, 64, NULL, x, s.ldx, s.n, acc, s.ldy, bad, scratch);
				for (int64_t b = 0; b < s.n; b++)
					CU_ASSERT_EQUAL(bad[b], b == 5 ? s.rows : 0);   /* one run of the four in every row */
			}
			v[77] = 0.0f;
		}
		free(raw.data), free(w.data), free(x), free(y), free(clean), free(scratch), free(acc);
	}
}

static void check_fixed(enum wtype type, struct shape s, int64_t run, int gated)
{
	struct weight raw = random_weight(type, s.rows, s.cols), w = pack(&raw);
	struct act_block *x = random_blocks(s);
	float *gate = random_floats(s.n), *scratch = random_floats(KERNEL_SCRATCH_ROWS * s.cols);
	size_t acc_bytes = (size_t)(s.n * s.ldy) * sizeof(int64_t), bad_bytes = (size_t)s.n * sizeof(int64_t);
	int64_t *want = room(acc_bytes), *want_bad = room(bad_bytes), *acc = room(acc_bytes), *bad = room(bad_bytes);
	double exact, size;
	x[random_below(s.n) * s.ldx].d = 3e20f;
	x[random_below(s.n) * s.ldx].d = NAN;
	for (int64_t i = 0; i < s.n * s.ldy; i++)
		want[i] = 1000 * i;
	for (int64_t b = 0; b < s.n; b++)
		for (int64_t r = s.begin; r < s.end; r++)
			for (int64_t at = 0; at < s.cols; at += run) {
				int64_t end = s.cols - at < run ? s.cols : at + run;
				float sum = walk(&raw, r, x + b * s.ldx, at / 32, end / 32, &exact, &size);
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
		k->packed_fixed(&w, s.begin, s.end, run, gated ? gate : NULL, x, s.ldx, s.n, acc, s.ldy, bad, scratch);
		CU_ASSERT(!memcmp(acc, want, acc_bytes));
		CU_ASSERT(!memcmp(bad, want_bad, bad_bytes));
	}
	free(raw.data), free(w.data), free(x), free(gate), free(scratch), free(want), free(want_bad), free(acc), free(bad);
}

TEST(fixed_point_sums_restart_at_every_run_and_count_what_does_not_fit)
{
	static const int64_t runs[] = { 32, 64, 96, 256, 4096 };
	for (int type = 0; type < WTYPE_COUNT; type++)
		for (int round = 0; round < 10 && pack_bits((enum wtype)type); round++)
			check_fixed((enum wtype)type, random_shape((enum wtype)type), runs[round % 5], round & 1);
}

/* Numbers of magnitude below 2^most, half of them halfway between two multiples of 2^-32. */
static float random_run(int most)
{
	int exponent = most - 1 - (int)random_below(random_below(2) ? 4 : 70);
	float v = ldexpf(1.0f + fabsf(random_float()), exponent);
	if (random_below(2) && most < 0)
		v = ldexpf((float)(2 * random_below(1 << 10) + 1), -33);
	return random_below(2) ? v : -v;
}

/* Rows whose only code is 1, so that a run's sum is its activations' scale. */
TEST(a_run_of_any_size_becomes_the_nearest_even_multiple)
{
	enum { ROWS = 40, RUNS = 9, TOKENS = 13, COLS = RUNS * 32 };
	static const float borders[] = { 4095.9998f, 4096.0f, -4096.0f, 16777215.0f, 16777216.0f, -16777216.0f, 0.0f, -0.0f, 0x1p-33f, 0x1.8p-32f };
	struct weight raw = random_weight(WTYPE_Q8_0, ROWS, COLS), w;
	struct act_block *x = aligned_alloc(64, TOKENS * RUNS * sizeof *x);
	float *scratch = random_floats(KERNEL_SCRATCH_ROWS * COLS), gate[TOKENS];
	for (int64_t i = 0; i < ROWS * RUNS; i++)
		memcpy(memset(raw.data + i * 34, 0, 34), (unsigned char[]){ 0, 0x3c, 1 }, 3);
	w = pack(&raw);
	for (int round = 0; round < 400; round++) {
		int64_t want[TOKENS] = { 0 }, want_bad[TOKENS] = { 0 }, acc[TOKENS][ROWS], bad[TOKENS];
		int most = (int[]){ -12, 0, 12, 26 }[round % 4], gated = round & 4;
		memset(x, 0, TOKENS * RUNS * sizeof *x);
		for (int64_t i = 0; i < TOKENS * RUNS; i++) {
			x[i].d = random_run(most);
			if (round % 8 == 3 && random_below(20) == 0)
				x[i].d = borders[random_below(10)];
			x[i].q[0] = 1;
			x[i].start128 = -128;
			gate[i / RUNS] = i % RUNS ? gate[i / RUNS] : fabsf(random_float());
			float sum = gated ? gate[i / RUNS] * x[i].d : x[i].d;
			if (fabsf(sum) < 16777216.0f)
				want[i / RUNS] += llrintl((long double)sum * 4294967296.0L);
			else
				want_bad[i / RUNS] += ROWS;
		}
		FOR_TABLES(k) {
			memset(acc, 0, sizeof acc), memset(bad, 0, sizeof bad);
			k->packed_fixed(&w, 0, ROWS, 32, gated ? gate : NULL, x, RUNS, TOKENS, acc[0], ROWS, bad, scratch);
			for (int64_t i = 0; i < TOKENS * ROWS; i++)
				CU_ASSERT_EQUAL(acc[i / ROWS][i % ROWS], want[i / ROWS]);
			CU_ASSERT(!memcmp(bad, want_bad, sizeof bad));
		}
	}
	free(raw.data), free(w.data), free(x), free(scratch);
}

TEST_MAIN("packed", CASE(activations_are_rounded_to_nearest_even_of_127_steps),
	  CASE(fine_rounding_is_nearer_and_has_the_same_bits_in_every_table),
	  CASE(fine_rounding_treats_edges_as_plain_rounding_does),
	  CASE(a_packed_product_has_the_documented_bits_in_every_table_and_batch), CASE(no_number_of_tokens_is_special),
	  CASE(the_largest_integers_do_not_saturate), CASE(what_is_not_finite_becomes_nan_in_its_row_alone),
	  CASE(fixed_point_sums_restart_at_every_run_and_count_what_does_not_fit),
	  CASE(a_run_of_any_size_becomes_the_nearest_even_multiple))
