/* exp, log, sin and cos in double precision, made of +, *, / and fma only: IEEE 754 defines each of these to the last bit,
 * so every machine gets the same tables. Errors below 2 ulp. fma is the C library's and exact. */
#include "runtime/kernels.h"

#include <math.h>

union bits { double d; uint64_t u; };

static double power_of_two(int64_t n)   /* -1022 <= n <= 1023 */
{
	union bits b = { .u = (uint64_t)(n + 1023) << 52 };
	return b.d;
}

/* Nearest integer for |x| < 2^51. */
static double nearest(double x)
{
	const double magic = 0x1.8p52;
	return (x + magic) - magic;
}

static double horner(double x, const double *c, int n)
{
	double y = c[0];
	for (int i = 1; i < n; i++)
		y = fma(y, x, c[i]);
	return y;
}

/* ln 2 in two pieces; the first has 42 bits, so that n * LN2_HIGH is exact for |n| < 2^11. */
static const double LN2_HIGH = 0x1.62e42fefa38p-1, LN2_LOW = 0x1.ef35793c7673p-45;

double exact_exp(double x)
{
	static const double taylor[] = {   /* 1/13! .. 1/2! */
		1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
		1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2
	};
	if (x != x)
		return x;
	if (x > 710)
		return INFINITY;
	if (x < -746)
		return 0;
	double n = nearest(x * 0x1.71547652b82fep+0);
	double high = fma(n, -LN2_HIGH, x), low = n * LN2_LOW, r = high - low;
	double rest = (high - r) - low;   /* what the rounding of r lost */
	double y = 1.0 + (r + fma(r * r, horner(r, taylor, 12), rest));
	int64_t half = (int64_t)n / 2;
	return y * power_of_two(half) * power_of_two((int64_t)n - half);
}

/* x = 2^e m, m in [sqrt(1/2), sqrt 2), f = m - 1, s = f / (2 + f): log m = 2 atanh(s) = f - (f^2/2 - s (f^2/2 + R)) with
 * R = 2 (s^2/3 + s^4/5 + ..), the arrangement of FreeBSD's msun e_log.c, here with the series itself. */
double exact_log(double x)
{
	static const double series[] = {
		2.0 / 25, 2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5,
		2.0 / 3
	};
	int64_t e = 0;
	if (x != x || x < 0)
		return NAN;
	if (x == 0)
		return -INFINITY;
	if (x > 0x1.fffffffffffffp1023)
		return x;
	if (x < 0x1p-1022) {
		x *= 0x1p54;
		e = -54;
	}
	union bits b = { .d = x };
	e += (int64_t)(b.u >> 52) - 1023;
	b.u = (b.u & 0xfffffffffffffu) | (uint64_t)1023 << 52;
	if (b.d > 0x1.6a09e667f3bcdp+0) {
		b.d *= 0.5;
		e++;
	}
	double f = b.d - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f, k = (double)e;
	double r = z * horner(z, series, 12);
	return k * LN2_HIGH - ((half - (s * (half + r) + k * LN2_LOW)) - f);
}

/* x - n pi/2 as high + low (Cody and Waite, Software Manual for the Elementary Functions, 1980): pi/2 in three doubles; the
 * first product cancels exactly, the second is kept in two pieces. */
static void reduce(double x, double n, double *high, double *low)
{
	const double p1 = 0x1.921fb54442d18p+0, p2 = 0x1.1a62633145c07p-54, p3 = -0x1.f1976b7ed8fbcp-110;
	double a = fma(-n, p1, x);
	double b = n * p2, b_rest = fma(n, p2, -b);
	double r = a - b, taken = a - r;
	double rest = ((a - (r + taken)) + (taken - b)) - fma(n, p3, b_rest);
	*high = r + rest;
	*low = (r - *high) + rest;
}

void exact_sin_cos(double x, double *s, double *c)
{
	static const double sin_series[] = {   /* -1/3!, 1/5! .. from the end */
		1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
		1.0 / 120, -1.0 / 6
	};
	static const double cos_series[] = {   /* 1/4!, -1/6! .. from the end */
		-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
		1.0 / 40320, -1.0 / 720, 1.0 / 24
	};
	if (!(x > -0x1p30 && x < 0x1p30)) {
		*s = *c = NAN;
		return;
	}
	double n = nearest(x * 0x1.45f306dc9c883p-1), r, low;
	reduce(x, n, &r, &low);
	double z = r * r, half = 0.5 * z, w = 1.0 - half;
	double sine = r + fma(z * r, horner(z, sin_series, 8), low * w);
	double cosine = w + (((1.0 - w) - half) + fma(z * z, horner(z, cos_series, 8), -r * low));
	switch ((int64_t)n & 3) {
	case 0: *s = sine, *c = cosine; break;
	case 1: *s = cosine, *c = -sine; break;
	case 2: *s = -sine, *c = -cosine; break;
	default: *s = -cosine, *c = sine; break;
	}
}
