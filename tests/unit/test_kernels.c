/* labels: unit
 * Every table of kernels gives the bits that kernels.h documents: matrix products and fixed-point sums against a scalar
 * walk over 16 lanes written here, and against double precision; the rest against long double and against each other. */
#include "tests/kernel_data.h"
#include "tests/test.h"

#include <math.h>

/* The documented order, one item at a time. */
static float lane_dot(const float *a, const float *b, int64_t n)
{
	float lane[16] = { 0 };
	for (int64_t k = 0; k < n; k++)
		lane[k % 16] = fmaf(a[k], b[k], lane[k % 16]);
	for (int half = 8; half; half /= 2)
		for (int i = 0; i < half; i++)
			lane[i] += lane[i + half];
	return lane[0];
}

struct shape { int64_t rows, cols, begin, end, n, ldx, ldy; };

static struct shape random_shape(enum wtype type)
{
	struct shape s;
	int64_t block = wtypes[type].block;
	s.rows = 1 + random_below(37);
	s.cols = block == 1 ? 1 + random_below(150) : block * (1 + random_below(block == 32 ? 9 : 3));
	s.begin = random_below(s.rows);
	s.end = s.begin + 1 + random_below(s.rows - s.begin);
	s.n = 1 + random_below(33);
	s.ldx = s.cols + random_below(5);
	s.ldy = s.rows + random_below(5);
	return s;
}

static float *widen(const struct weight *w)
{
	float *wide = room((size_t)(w->rows * w->cols) * sizeof *wide);
	for (int64_t r = 0; r < w->rows; r++)
		wtypes[w->type].widen(w->data + r * w->row_bytes, wide + r * w->cols, w->cols);
	return wide;
}

static void check_matmul(enum wtype type, struct shape s, int with_bias)
{
	struct weight w = random_weight(type, s.rows, s.cols);
	float *wide = widen(&w), *x = random_floats(s.n * s.ldx), *bias = random_floats(s.rows);
	float *want = random_floats(s.n * s.ldy), *y = room((size_t)(s.n * s.ldy) * sizeof *y);
	float *before = room((size_t)(s.n * s.ldy) * sizeof *y), *scratch = random_floats(KERNEL_SCRATCH_ROWS * s.cols);
	memcpy(before, want, (size_t)(s.n * s.ldy) * sizeof *y);
	for (int64_t b = 0; b < s.n; b++)
		for (int64_t r = s.begin; r < s.end; r++) {
			double exact = with_bias ? (double)bias[r] : 0, size = fabs(exact);
			for (int64_t k = 0; k < s.cols; k++) {
				double product = (double)wide[r * s.cols + k] * (double)x[b * s.ldx + k];
				exact += product;
				size += fabs(product);
			}
			float got = lane_dot(wide + r * s.cols, x + b * s.ldx, s.cols);
			want[b * s.ldy + r] = with_bias ? got + bias[r] : got;
			CU_ASSERT(fabs((double)want[b * s.ldy + r] - exact) <= 1e-5 * size);
		}
	FOR_TABLES(k) {
		memcpy(y, before, (size_t)(s.n * s.ldy) * sizeof *y);   /* what is outside begin..end must stay */
		k->matmul(&w, s.begin, s.end, with_bias ? bias : NULL, x, s.ldx, s.n, y, s.ldy, scratch);
		CU_ASSERT(same_bits(y, want, s.n * s.ldy));
		for (int64_t b = 0; b < s.n; b++) {   /* a row alone */
			k->matmul(&w, s.begin, s.end, with_bias ? bias : NULL, x + b * s.ldx, s.ldx, 1, y, s.ldy, scratch);
			CU_ASSERT(same_bits(y + s.begin, want + b * s.ldy + s.begin, s.end - s.begin));
		}
		k->widen_row(&w, s.begin, scratch);
		CU_ASSERT(same_bits(scratch, wide + s.begin * s.cols, s.cols));
	}
	free(w.data), free(wide), free(x), free(bias), free(want), free(y), free(before), free(scratch);
}

TEST(a_matrix_product_has_the_documented_bits_in_every_table_and_batch)
{
	for (int type = 0; type < WTYPE_COUNT; type++)
		for (int round = 0; round < 40; round++)
			check_matmul((enum wtype)type, random_shape((enum wtype)type), round & 1);
	check_matmul(WTYPE_F32, (struct shape){ 16, 1037, 0, 16, 13, 1037, 16 }, 0);
	check_matmul(WTYPE_Q6_K, (struct shape){ 9, 1536, 0, 9, 7, 1536, 9 }, 0);
}

static void check_fixed(enum wtype type, struct shape s, int64_t run, int gated)
{
	struct weight w = random_weight(type, s.rows, s.cols);
	float *wide = widen(&w), *x = random_floats(s.n * s.ldx), *gate = random_floats(s.n);
	float *scratch = random_floats(KERNEL_SCRATCH_ROWS * s.cols);
	size_t acc_bytes = (size_t)(s.n * s.ldy) * sizeof(int64_t), bad_bytes = (size_t)s.n * sizeof(int64_t);
	int64_t *want = room(acc_bytes), *want_bad = room(bad_bytes), *acc = room(acc_bytes), *bad = room(bad_bytes);
	for (int spoil = 0; spoil < 3; spoil++)
		x[random_below(s.n * s.ldx)] = (float[]){ NAN, INFINITY, 3e20f }[spoil];
	for (int64_t i = 0; i < s.n * s.ldy; i++)
		want[i] = 1000 * i;
	for (int64_t b = 0; b < s.n; b++)
		for (int64_t r = s.begin; r < s.end; r++)
			for (int64_t at = 0; at < s.cols; at += run) {
				int64_t length = s.cols - at < run ? s.cols - at : run;
				float sum = lane_dot(wide + r * s.cols + at, x + b * s.ldx + at, length);
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
		CU_ASSERT(!memcmp(acc, want, acc_bytes));
		CU_ASSERT(!memcmp(bad, want_bad, bad_bytes));
	}
	free(w.data), free(wide), free(x), free(gate), free(scratch), free(want), free(want_bad), free(acc), free(bad);
}

TEST(fixed_point_sums_add_every_run_and_count_what_does_not_fit)
{
	static const int64_t runs[] = { 1, 7, 16, 32, 48, 96, 1000 };
	for (int type = 0; type < WTYPE_COUNT; type++)
		for (int round = 0; round < 28; round++)
			check_fixed((enum wtype)type, random_shape((enum wtype)type), runs[round % 7], round & 1);
}

/* A 1 x 1 weight of 1 makes matmul_fixed the conversion alone. */
static int64_t fixed_of(const struct kernels *k, float x, int64_t *bad)
{
	float one = 1.0f, scratch[KERNEL_SCRATCH_ROWS];
	struct weight w = { WTYPE_F32, 1, 1, 4, (unsigned char *)&one, PACK_ROWS };
	int64_t acc = 0;
	*bad = 0;
	k->matmul_fixed(&w, 0, 1, 1, NULL, &x, 1, 1, &acc, 1, bad, scratch);
	return acc;
}

TEST(conversion_rounds_to_nearest_even_at_every_magnitude)
{
	static const struct { float x; int64_t fixed, bad; } cases[] = {
		{ 0x0.8p-32f, 0, 0 }, { 0x1.8p-32f, 2, 0 }, { 0x2.8p-32f, 2, 0 }, { 0x3.8p-32f, 4, 0 },
		{ -0x0.8p-32f, 0, 0 }, { -0x1.8p-32f, -2, 0 }, { -0x2.8p-32f, -2, 0 }, { 0x0.800002p-32f, 1, 0 },
		{ 1.0f, 1ll << 32, 0 }, { -1.5f, -(3ll << 31), 0 }, { 0.5f, 1ll << 31, 0 }, { -0.5f, -(1ll << 31), 0 },
		{ 0x1.fffffep+23f, 0xffffffll << 32, 0 }, { -0x1.fffffep+23f, -(0xffffffll << 32), 0 },
		{ 0x1p24f, 0, 1 }, { -0x1p24f, 0, 1 }, { INFINITY, 0, 1 }, { -INFINITY, 0, 1 }, { NAN, 0, 1 },
		{ 1e-45f, 0, 0 }
	};
	int64_t bad;
	FOR_TABLES(k) {
		for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
			CU_ASSERT_EQUAL(fixed_of(k, cases[i].x, &bad), cases[i].fixed);
			CU_ASSERT_EQUAL(bad, cases[i].bad);
		}
		for (int i = 0; i < 20000; i++) {
			float x = ldexpf(random_float(), (int)random_below(64) - 40);
			CU_ASSERT_EQUAL(fixed_of(k, x, &bad), llrintl((long double)x * 4294967296.0L));
			CU_ASSERT_EQUAL(bad, 0);
		}
	}
}

TEST(adding_a_fixed_sum_rounds_once_and_spreads_nan)
{
	enum { N = 101 };
	float *start = random_floats(N), *bias = random_floats(N), x[N], y[N];
	int64_t acc[N];
	for (int i = 0; i < N; i++)
		acc[i] = (int64_t)((uint64_t)random_u32() << 32 | random_u32()) >> random_below(60);
	FOR_TABLES(k) {
		memcpy(x, start, sizeof x);
		memcpy(y, start, sizeof y);
		k->add_fixed(x, acc, 0, NULL, N);
		k->add_fixed(y, acc, 0, bias, N);
		for (int i = 0; i < N; i++) {
			float sum = (float)((long double)acc[i] / 4294967296.0L);
			CU_ASSERT_EQUAL(x[i], start[i] + sum);
			CU_ASSERT_EQUAL(y[i], start[i] + (sum + bias[i]));
		}
		k->add_fixed(x, acc, 1, bias, N);
		for (int i = 0; i < N; i++)
			CU_ASSERT(isnan(x[i]));
	}
	free(start), free(bias);
}

TEST(norm_and_silu_match_long_double)
{
	for (int round = 0; round < 60; round++) {
		int64_t n = 1 + random_below(200);
		float *x = random_floats(n), *w = random_floats(n), *y = random_floats(n), *first = random_floats(n);
		long double sum = 0;
		for (int64_t i = 0; i < n; i++)
			sum += (long double)x[i] * (long double)x[i];
		long double scale = 1 / sqrtl(sum / (long double)n + 1e-5L);
		FOR_TABLES(k) {
			k->rms_norm(x, w, 1e-5f, n, y);
			for (int64_t i = 0; i < n; i++) {
				long double want = (long double)x[i] * scale * (long double)w[i];
				CU_ASSERT(fabsl((long double)y[i] - want) <= 1e-6L * scale);
			}
			if (k == kernel_tables[0])
				memcpy(first, y, (size_t)n * sizeof *y);
			CU_ASSERT(same_bits(first, y, n));
		}
		FOR_TABLES(k) {
			for (int64_t i = 0; i < n; i++)
				y[i] = 30 * x[i];
			k->silu_mul(y, w, n);
			for (int64_t i = 0; i < n; i++) {
				long double g = (long double)(30 * x[i]), want = g / (1 + expl(-g)) * (long double)w[i];
				CU_ASSERT(fabsl((long double)y[i] - want) <= 5e-7L * fabsl(want));
			}
			if (k == kernel_tables[0])
				memcpy(first, y, (size_t)n * sizeof *y);
			CU_ASSERT(same_bits(first, y, n));
		}
		free(x), free(w), free(y), free(first);
	}
	FOR_TABLES(k) {
		float g[4] = { -200.0f, 200.0f, 0.0f, -1e30f }, u[4] = { 3, 3, 3, 3 };
		k->silu_mul(g, u, 4);
		CU_ASSERT_EQUAL(g[0], 0.0f);
		CU_ASSERT_EQUAL(g[1], 600.0f);
		CU_ASSERT_EQUAL(g[2], 0.0f);
		CU_ASSERT_EQUAL(g[3], 0.0f);
	}
}

TEST(rope_turns_pairs_of_either_layout)
{
	enum { HEADS = 3, D = 22, HALF = D / 2 };
	for (int interleaved = 0; interleaved < 2; interleaved++) {
		float cosine[HALF], sine[HALF], first[HEADS * D], *start = random_floats(HEADS * D), x[HEADS * D];
		for (int i = 0; i < HALF; i++) {
			cosine[i] = cosf((float)i);
			sine[i] = sinf((float)i);
		}
		FOR_TABLES(k) {
			memcpy(x, start, sizeof x);
			k->rope(x, HEADS, D, cosine, sine, interleaved);
			if (k == kernel_tables[0])
				memcpy(first, x, sizeof x);
			CU_ASSERT(same_bits(first, x, HEADS * D));
			for (int h = 0; h < HEADS; h++)
				for (int i = 0; i < HALF; i++) {
					int a = h * D + (interleaved ? 2 * i : i), b = interleaved ? a + 1 : a + HALF;
					double turned = (double)start[a] * cos(i) - (double)start[b] * sin(i);
					double other = (double)start[b] * cos(i) + (double)start[a] * sin(i);
					CU_ASSERT_DOUBLE_EQUAL(x[a], turned, 3e-7);
					CU_ASSERT_DOUBLE_EQUAL(x[b], other, 3e-7);
				}
		}
		free(start);
	}
}

TEST(the_router_takes_the_best_experts_lower_ids_first)
{
	for (int round = 0; round < 300; round++) {
		float logits[130], gates[64], p[130];
		int32_t experts[64];
		int64_t n = 1 + random_below(130), k_best = 1 + random_below(n < 64 ? n : 64);
		long double sum = 0;
		for (int64_t i = 0; i < n; i++) {
			logits[i] = (float)random_below(7) * 0.5f - (round % 3 ? 0.0f : random_float());   /* many ties */
			p[i] = logits[i];
		}
		FOR_TABLES(k) {
			k->route(logits, n, k_best, experts, gates);
			memcpy(p, logits, sizeof p);
			sum = 0;
			for (int64_t j = 0; j < k_best; j++)
				sum += expl((long double)logits[experts[j]]);
			for (int64_t j = 0; j < k_best; j++) {
				int64_t best = 0;
				for (int64_t i = 1; i < n; i++)
					best = p[i] > p[best] ? i : best;
				CU_ASSERT_EQUAL(experts[j], best);
				CU_ASSERT_DOUBLE_EQUAL(gates[j], (double)(expl((long double)logits[best]) / sum), 1e-6);
				p[best] = -INFINITY;
			}
		}
	}
	FOR_TABLES(k) {   /* nonsense in, but places that exist out */
		float logits[5] = { NAN, 1, NAN, INFINITY, 0 }, gates[5];
		int32_t experts[5], seen = 0;
		k->route(logits, 5, 5, experts, gates);
		for (int j = 0; j < 5; j++)
			seen |= experts[j] >= 0 && experts[j] < 5 ? 1 << experts[j] : 0;
		CU_ASSERT_EQUAL(seen, 31);
	}
}

TEST(the_digest_is_free_of_order_and_sees_every_bit)
{
	float logits[3] = { 1.0f, -2.5f, 0.0f };
	/* python3: M=2**64-1
	 * mix=lambda z:(lambda z:(lambda z:z^z>>31)((z^z>>27)*0x94d049bb133111eb&M))((z^z>>30)*0xbf58476d1ce4e5b9&M)
	 * sum(mix(mix(7+0x9e3779b97f4a7c15)+(i<<32|b)&M) for i,b in ((10,0x3f800000),(11,0xc0200000),(12,0))) & M */
	const uint64_t golden = 0x2d2e003142fce032u;
	FOR_TABLES(k) {
		CU_ASSERT_EQUAL(k->digest(logits, 3, 10, 7), golden);
		CU_ASSERT_EQUAL(k->digest(logits, 1, 10, 7) + k->digest(logits + 1, 2, 11, 7), golden);
		CU_ASSERT_NOT_EQUAL(k->digest(logits, 3, 11, 7), golden);
		CU_ASSERT_NOT_EQUAL(k->digest(logits, 3, 10, 8), golden);
		for (int bit = 0; bit < 31; bit++) {
			uint32_t u;
			float changed[3] = { 1.0f, -2.5f, 0.0f };
			memcpy(&u, &changed[1], 4);
			u ^= 1u << bit;
			memcpy(&changed[1], &u, 4);
			CU_ASSERT_NOT_EQUAL(k->digest(changed, 3, 10, 7), golden);
		}
		float nans[2] = { NAN, -NAN };
		CU_ASSERT_EQUAL(k->digest(nans, 1, 0, 0), k->digest(nans + 1, 1, 0, 0));
		float *many = random_floats(1003);
		CU_ASSERT_EQUAL(k->digest(many, 1003, 5, 9), kernel_tables[0]->digest(many, 1003, 5, 9));
		free(many);
	}
}

/* A key is the ordered bits of the logit above the complement of the id: 0.5 = 3f000000 -> bf000000, 0 -> 80000000,
 * -1 = bf800000 -> 407fffff. */
TEST(the_best_key_is_the_greatest_logit_with_the_lowest_id)
{
	enum { N = 1003 };   /* three groups and a rest */
	static const int64_t places[] = { 0, 255, 256, 700, N - 2 };
	FOR_TABLES(k) {
		float *logits = random_floats(N);
		CU_ASSERT_EQUAL(k->best_key(logits, 0, 7), 0);
		for (int64_t i = 0; i < N; i++)
			logits[i] = -1.0f - (float)(i % 7);
		CU_ASSERT_EQUAL(k->best_key(logits, N, 7), 0x407fffffull << 32 | (uint32_t)~7u);
		for (int i = 4; i >= 0; i--) {
			logits[places[i]] = 0.5f;
			CU_ASSERT_EQUAL(k->best_key(logits, N, 7), 0xbf000000ull << 32 | (uint32_t)~(uint32_t)(7 + places[i]));
		}
		float zeros[3] = { -1.0f, -0.0f, 0.0f };
		CU_ASSERT_EQUAL(k->best_key(zeros, 3, 0), 0x80000000ull << 32 | (uint32_t)~1u);
		logits[600] = INFINITY;
		CU_ASSERT_EQUAL(k->best_key(logits, N, 0), 0xff800000ull << 32 | (uint32_t)~600u);
		logits[900] = -NAN;
		CU_ASSERT_EQUAL(k->best_key(logits, N, 0), UINT64_MAX);
		free(logits);
	}
}

TEST(tables_are_found_by_name)
{
	CU_ASSERT_PTR_EQUAL(kernels_named("c"), kernel_tables[0]);
	CU_ASSERT_PTR_NULL(kernels_named("sse9"));
	CU_ASSERT(kernels_best()->usable());
	FOR_TABLES(k)
		CU_ASSERT_PTR_EQUAL(kernels_named(k->name), k);
}

TEST_MAIN("kernels", CASE(a_matrix_product_has_the_documented_bits_in_every_table_and_batch),
	  CASE(fixed_point_sums_add_every_run_and_count_what_does_not_fit),
	  CASE(conversion_rounds_to_nearest_even_at_every_magnitude), CASE(adding_a_fixed_sum_rounds_once_and_spreads_nan),
	  CASE(norm_and_silu_match_long_double), CASE(rope_turns_pairs_of_either_layout),
	  CASE(the_router_takes_the_best_experts_lower_ids_first), CASE(the_digest_is_free_of_order_and_sees_every_bit),
	  CASE(the_best_key_is_the_greatest_logit_with_the_lowest_id), CASE(tables_are_found_by_name))
