/* When requests came, answered and ended, as the head sees it: what a summary and a report say of them. No clock of its own; memory
 * does not grow with requests. */
#ifndef SHARDRUN_LAUNCHER_TIMINGS_H
#define SHARDRUN_LAUNCHER_TIMINGS_H

#include "launcher/histogram.h"

#include <stddef.h>

enum timing { TIMING_FIRST, TIMING_EACH, TIMING_WHOLE, TIMING_COUNT };   /* time to the first token, per token after it, of all */
enum { TIMINGS_SLOWEST = 5 };

/* An answer, from when its request was handed to the engine. */
struct timed_answer {
	long long came_us, first_us, ended_us;    /* first_us 0: it got no token */
	int64_t n_prompt, n_tokens;
	char name[81];                            /* of its request, cut */
};

struct timings {
	struct histogram of[TIMING_COUNT];
	struct timed_answer slowest[TIMINGS_SLOWEST];   /* the slowest first */
	int n_slowest;
	int64_t answers, answer_tokens;           /* those that ended, and theirs */
	int64_t requests, errors, prompt_tokens;  /* the caller counts these */
};

void timings_add(struct timings *t, const struct timed_answer *a);
/* Into a timed_answer's name; a character that does not fit is left out whole. */
void timed_answer_name(struct timed_answer *a, const char *name);

#endif
