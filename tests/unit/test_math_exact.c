/* labels: unit
 * exp in float, and exp, log, sin, cos in double, against the C library's long double. */
#include "tests/kernel_data.h"
#include "tests/test.h"

#include <float.h>
#include <math.h>

/* |got - want| in units of the last place of a double near want. */
static double ulps(double got, long double want)
{
	int exponent;
	frexpl(want, &exponent);
	if (exponent < DBL_MIN_EXP)
		exponent = DBL_MIN_EXP;
	return (double)fabsl(ldexpl((long double)got - want, DBL_MANT_DIG - exponent));
}

static double float_ulps(float got, long double want)
{
	int exponent;
	frexpl(want, &exponent);
	if (exponent < FLT_MIN_EXP)
		exponent = FLT_MIN_EXP;
	return (double)fabsl(ldexpl((long double)got - want, FLT_MANT_DIG - exponent));
}

static double random_double(void)   /* [-1, 1) */
{
	uint64_t bits = (uint64_t)random_u32() << 32 | random_u32();
	return (double)(bits >> 11) * 0x1p-52 - 1.0;
}

TEST(float_exp_is_within_two_ulp_and_the_same_in_every_table)
{
	enum { N = 100003 };
	float *x = room(N * sizeof *x), *y = room(N * sizeof *y), *first = room(N * sizeof *y);
	for (int i = 0; i < N; i++)
		x[i] = i % 4 ? -104.0f + 192.7f * (float)i / N : ldexpf(random_float(), (int)random_below(32) - 25);
	FOR_TABLES(k) {
		double worst = 0;
		k->exp(x, y, N);
		if (k == kernel_tables[0])
			memcpy(first, y, N * sizeof *y);
		CU_ASSERT(same_bits(first, y, N));
		for (int i = 0; i < N; i++)
			if (x[i] < 88.7f)
				worst = fmax(worst, float_ulps(y[i], expl((long double)x[i])));
		CU_ASSERT(worst < 2.0);
	}
	free(x), free(y), free(first);
}

TEST(float_exp_at_its_ends)
{
	static const float x[] = { 0.0f, -0.0f, -INFINITY, -1e30f, -104.0f, -FLT_MAX, 89.0f, INFINITY, NAN, 1e-40f };
	static const float want[] = { 1, 1, 0, 0, 0, 0, INFINITY, INFINITY, NAN, 1 };
	float y[10];
	FOR_TABLES(k)
		for (int repeat = 1; repeat <= 10; repeat++) {   /* in a vector's body and in its tail */
			k->exp(x, y, repeat);
			for (int i = 0; i < repeat; i++)
				CU_ASSERT(isnan(want[i]) ? isnan(y[i]) : y[i] == want[i]);
		}
}

TEST(double_exp_and_log_are_within_two_ulp)
{
	double worst_exp = 0, worst_log = 0;
	for (int i = 0; i < 200000; i++) {
		double x = random_double() * (i & 1 ? 745.0 : 2.0);
		if (x < 709.7)
			worst_exp = fmax(worst_exp, ulps(exact_exp(x), expl((long double)x)));
		double wide = ldexp(1.0 + 0.5 * random_double(), (int)random_below(2000) - 1000);
		double y = i & 1 ? wide : 1.0 + random_double() * 0.9;
		worst_log = fmax(worst_log, ulps(exact_log(y), logl((long double)y)));
	}
	for (int i = 1; i < 200; i++)
		worst_log = fmax(worst_log, ulps(exact_log(ldexp(i, -1074)), logl(ldexpl(i, -1074))));
	CU_ASSERT(worst_exp < 2.0);
	CU_ASSERT(worst_log < 2.0);
	CU_ASSERT_EQUAL(exact_exp(0), 1);
	CU_ASSERT_EQUAL(exact_exp(-INFINITY), 0);
	CU_ASSERT_EQUAL(exact_exp(INFINITY), INFINITY);
	CU_ASSERT(isnan(exact_exp(NAN)));
	CU_ASSERT_EQUAL(exact_log(1), 0);
	CU_ASSERT_EQUAL(exact_log(0), -INFINITY);
	CU_ASSERT_EQUAL(exact_log(INFINITY), INFINITY);
	CU_ASSERT(isnan(exact_log(-1)));
	CU_ASSERT(isnan(exact_log(NAN)));
}

TEST(sin_and_cos_are_within_two_ulp_up_to_2_to_30)
{
	double worst = 0, s, c;
	for (int i = 0; i < 300000; i++) {
		double x = ldexp(random_double(), (int)random_below(36) - 5);
		if (i % 3 == 0)   /* near a multiple of pi/2, where the reduction cancels most */
			x = nearbyint(x * 0.63661977236758134) * 1.5707963267948966;
		exact_sin_cos(x, &s, &c);
		worst = fmax(worst, fmax(ulps(s, sinl((long double)x)), ulps(c, cosl((long double)x))));
	}
	CU_ASSERT(worst < 2.0);
	exact_sin_cos(0, &s, &c);
	CU_ASSERT_EQUAL(s, 0);
	CU_ASSERT_EQUAL(c, 1);
	exact_sin_cos(0x1p30, &s, &c);
	CU_ASSERT(isnan(s) && isnan(c));
}

TEST_MAIN("math_exact", CASE(float_exp_is_within_two_ulp_and_the_same_in_every_table), CASE(float_exp_at_its_ends),
	  CASE(double_exp_and_log_are_within_two_ulp), CASE(sin_and_cos_are_within_two_ulp_up_to_2_to_30))
