#include "launcher/histogram.h"

#include <math.h>

#define FIRST_US 10.0
#define STEP 1.02

static double middle(int bucket) { return FIRST_US * pow(STEP, bucket + 0.5); }

void histogram_add(struct histogram *h, double us)
{
	int bucket = us > FIRST_US ? (int)(log(us / FIRST_US) / log(STEP)) : 0;
	h->counts[bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1]++;
	h->least_us = h->n && h->least_us < us ? h->least_us : us;
	h->most_us = h->n && h->most_us > us ? h->most_us : us;
	h->sum_us += us;
	h->n++;
}

/* Never outside of what there was. */
static double within(const struct histogram *h, double us)
{
	return us < h->least_us ? h->least_us : us > h->most_us ? h->most_us : us;
}

double histogram_percentile(const struct histogram *h, double share)
{
	int64_t wanted = (int64_t)ceil(share * (double)h->n), seen = 0;
	if (wanted >= h->n)
		return h->most_us;
	for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->counts[i];
		if (seen && seen >= wanted)
			return within(h, middle(i));
	}
	return h->most_us;
}

double histogram_mean(const struct histogram *h) { return h->n ? h->sum_us / (double)h->n : 0; }

int64_t histogram_between(const struct histogram *h, double from_us, double to_us)
{
	int64_t n = 0;
	for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (h->counts[i] && within(h, middle(i)) >= from_us && within(h, middle(i)) < to_us)
			n += h->counts[i];
	return n;
}
