#include "runtime/rope.h"

#include "runtime/kernels.h"

static const double TWO_PI = 6.283185307179586476925286766559;

static double scale_llama3(const struct model *m, double f)
{
	double wavelength = TWO_PI / f, original = (double)m->rope_original_context;
	if (wavelength < original / m->rope_high)
		return f;
	if (wavelength > original / m->rope_low)
		return f / m->rope_factor;
	double smooth = (original / wavelength - m->rope_low) / (m->rope_high - m->rope_low);
	return (1 - smooth) * f / m->rope_factor + smooth * f;
}

void rope_frequencies(const struct model *m, const float *factors, float *freq)
{
	int64_t half = m->n_head_dim / 2;
	double log_theta = exact_log(m->rope_theta);
	for (int64_t i = 0; i < half; i++) {
		double f = exact_exp(-(double)(2 * i) / (double)m->n_head_dim * log_theta);
		if (m->rope == ROPE_LINEAR)
			f /= m->rope_factor;
		else if (m->rope == ROPE_LLAMA3)
			f = scale_llama3(m, f);
		if (factors)
			f /= (double)factors[i];
		freq[i] = (float)f;
	}
}

void rope_angles(const float *freq, int64_t n_half, int64_t pos, float *cos, float *sin)
{
	for (int64_t i = 0; i < n_half; i++) {
		double s, c;
		float angle = (float)pos * freq[i];   /* rounded to float, as the reference implementations do */
		exact_sin_cos((double)angle, &s, &c);
		cos[i] = (float)c;
		sin[i] = (float)s;
	}
}
