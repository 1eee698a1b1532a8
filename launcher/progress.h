/* How far a batch is: a line at the foot of a terminal, or a line in the log every half minute. Numbers in, text out; the caller has the
 * clock. */
#ifndef SHARDRUN_LAUNCHER_PROGRESS_H
#define SHARDRUN_LAUNCHER_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

struct progress_count {
	int64_t done, total;          /* requests, with those of earlier runs; total -1: not known */
	int64_t done_here;            /* of them, in this run */
	int64_t running, tokens;      /* tokens: of answers, in this run */
	double seconds;               /* of this run */
	double recent_tokens_per_s;   /* of the last few seconds */
};

/* For a terminal of `columns`: never longer than that. A bar where the total is known. */
void progress_bar(const struct progress_count *c, int columns, char *room, size_t bytes);
/* For a log. */
void progress_line(const struct progress_count *c, char *room, size_t bytes);
/* Seconds until all is done, from what was done here; -1: nobody can say yet. */
double progress_left_s(const struct progress_count *c);

/* Lines of a regular file; -1 when it is none, cannot be read, or is so large that counting would take long. */
int64_t progress_count_lines(const char *path);

/* When to say what; in the clock's microseconds. */
struct progress_state {
	long long began_us, said_us, drawn_us;
	long long window_us;          /* since when window_tokens count */
	int64_t window_tokens;
	double recent;
};
/* Draws or says it when it is time. */
void progress_show(struct progress_state *s, struct progress_count *c, long long now_us);
void progress_hide(void);

#endif
