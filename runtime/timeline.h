/* Amounts over time in a fixed number of buckets: when time runs past the last one, each takes the place of two. So a second and a
 * week take the same memory, and nothing is allocated while it runs. */
#ifndef SHARDRUN_RUNTIME_TIMELINE_H
#define SHARDRUN_RUNTIME_TIMELINE_H

#include <stdint.h>

enum { TIMELINE_BUCKETS = 240, TIMELINE_FIRST_US = 20000 };
enum timeline_row {
	TIMELINE_BUSY,       /* us that this rank worked on steps */
	TIMELINE_WAITING,    /* us that it waited for rows of the stage before, in a step */
	TIMELINE_STEPS,      /* that it worked on */
	TIMELINE_PROMPT,     /* on the head: prompt tokens that were computed */
	TIMELINE_ANSWER,     /* on the head: tokens that were chosen */
	TIMELINE_ROWS
};

struct timeline {
	long long began_us, width_us;    /* bucket i: from began_us + i * width_us on */
	int64_t sums[TIMELINE_ROWS][TIMELINE_BUCKETS];
};

void timeline_begin(struct timeline *t, long long now_us);
/* Time before began_us counts as the first bucket's. */
void timeline_add(struct timeline *t, enum timeline_row row, long long at_us, int64_t amount);
/* The microseconds from..to, each where it belongs. */
void timeline_add_span(struct timeline *t, enum timeline_row row, long long from_us, long long to_us);
/* Makes buckets at least so wide: timelines of the same width can be laid over each other. width_us is another timeline's. */
void timeline_widen(struct timeline *t, long long width_us);

#endif
