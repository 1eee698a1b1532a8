/* How often what length of time: in buckets that are each 2 % longer than the one before, from 10 us to 11 days. What it says of them is
 * right to 1 %, whatever their number, in the same memory. */
#ifndef SHARDRUN_LAUNCHER_HISTOGRAM_H
#define SHARDRUN_LAUNCHER_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_BUCKETS = 1280 };

struct histogram {
	int64_t n, counts[HISTOGRAM_BUCKETS];
	double sum_us, least_us, most_us;
};

void histogram_add(struct histogram *h, double us);
/* The time that a share (0 .. 1) of them does not pass; 0 when there are none. */
double histogram_percentile(const struct histogram *h, double share);
double histogram_mean(const struct histogram *h);
/* How many lie in from_us .. to_us, judged by the middles of buckets. */
int64_t histogram_between(const struct histogram *h, double from_us, double to_us);

#endif
