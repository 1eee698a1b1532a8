#include "runtime/timeline.h"

void timeline_begin(struct timeline *t, long long now_us)
{
	*t = (struct timeline){ .began_us = now_us, .width_us = TIMELINE_FIRST_US };
}

static void fold(struct timeline *t)
{
	for (int row = 0; row < TIMELINE_ROWS; row++)
		for (int i = 0; i < TIMELINE_BUCKETS; i++) {
			int64_t *sums = t->sums[row];
			sums[i] = i < TIMELINE_BUCKETS / 2 ? sums[2 * i] + sums[2 * i + 1] : 0;
		}
	t->width_us *= 2;
}

void timeline_widen(struct timeline *t, long long width_us)
{
	while (t->width_us < width_us)
		fold(t);
}

/* Where this moment belongs. */
static int bucket_of(struct timeline *t, long long at_us)
{
	long long since = at_us - t->began_us;
	if (since < 0)
		return 0;
	while (since / t->width_us >= TIMELINE_BUCKETS)
		fold(t);
	return (int)(since / t->width_us);
}

void timeline_add(struct timeline *t, enum timeline_row row, long long at_us, int64_t amount)
{
	t->sums[row][bucket_of(t, at_us)] += amount;
}

void timeline_add_span(struct timeline *t, enum timeline_row row, long long from_us, long long to_us)
{
	bucket_of(t, to_us);   /* there is room up to here, and no more folding */
	for (long long end; from_us < to_us; from_us = end) {
		int i = bucket_of(t, from_us);
		end = t->began_us + (i + 1) * t->width_us;
		end = end < to_us ? end : to_us;
		t->sums[row][i] += end - from_us;
	}
}
