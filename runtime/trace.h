/* What a rank did when, for `--report` and `--trace`: spans in a ring of fixed size, which keeps the last ones, and sums over time.
 *
 * A stage has a pointer to its rank's trace, NULL when nobody asked: every place that records looks there first, and does nothing more.
 * All is allocated before the first step. Times are of this rank's monotonic clock; offset_us says how far it is ahead of the head's.
 * Spans of one rank lie inside each other or apart, as its one thread records them. */
#ifndef SHARDRUN_RUNTIME_TRACE_H
#define SHARDRUN_RUNTIME_TRACE_H

#include "base/clock.h"
#include "parallel/comm.h"
#include "runtime/step.h"
#include "runtime/timeline.h"

enum trace_what {
	TRACE_DECIDE,        /* the head: a step is made and sent */
	TRACE_RESULTS,       /* the head: results of a step become tokens and answers */
	TRACE_WAIT_STEP,     /* for the next step to come */
	TRACE_STEP,          /* a rank's part of a step, with what follows inside it */
	TRACE_EMBED,         /* first stage: pages copied, rows of the embedding */
	TRACE_WAIT_ROWS,     /* other stages: for the rows of the stage before */
	TRACE_LAYERS,
	TRACE_SEND,          /* all but the last stage: rows leave */
	TRACE_SAMPLE,        /* last stage: logits, and tokens chosen */
	TRACE_WHAT_COUNT
};
extern const char *const trace_names[TRACE_WHAT_COUNT];

struct trace_span {
	int64_t begin_us;
	int32_t us, step;            /* the step's number in its lane, from 0 */
	int32_t tokens, slices;      /* of this rank's replica; of the whole lane where the head decides */
	int32_t exchange_us;         /* of it, in exchanges with tp ranks */
	int16_t what, lane;          /* enum trace_what; lane: the first replica of the step's */
};

struct trace {
	struct timeline timeline;
	int64_t offset_us;
	struct trace_span now;       /* the step that is being worked on */
	struct trace_span *spans;    /* (capacity), a ring; owned */
	int64_t capacity, n_seen;    /* n_seen: spans since the beginning */
};

/* --- recording; t may be NULL --- */

static inline long long trace_now(const struct trace *t) { return t ? clock_us() : 0; }
/* A span that ends now and belongs to this step. */
void trace_put(struct trace *t, enum trace_what what, long long began_us, const struct trace_span *step);
static inline void trace_end(struct trace *t, enum trace_what what, long long began_us)
{
	if (t)
		trace_put(t, what, began_us, &t->now);
}
/* What spans say of a step; replica -1: of all. */
struct trace_span trace_step(const struct step *step, int64_t number, int lane, int replica);

/* --- before and after --- */

/* COLLECTIVE over the world. n_spans: room on each rank, 0: sums over time only. Finds how far clocks are apart; ranks of one node
 * have the same clock. All timelines begin at the same moment, now. */
enum err trace_create(struct comm *world, int64_t n_spans, struct trace **out);
void trace_destroy(struct trace *t);
/* Room for spans that one rank of so many has, so that all together stay within a file that viewers can open. */
int64_t trace_usual_spans(int n_ranks);

/* A rank's numbers as the head gets them. */
struct trace_rank {
	struct timeline timeline;    /* by the head's clock */
	int64_t offset_us, busy_us, waiting_us, exchange_us, steps;
	int64_t n_spans, n_dropped;
};
/* COLLECTIVE over the world. mine: all but timeline, offset_us and the numbers of spans is the caller's. On the head: ranks (size), and
 * take is called with the spans of rank after rank, some at a time, begin_us by the head's clock; its error is returned on the head,
 * after all have been received. Others pass NULL. Memory: 32 KiB beside the traces. */
struct trace_taker {
	enum err (*take)(void *arg, int rank, const struct trace_span *spans, int64_t n);   /* NULL: spans are left out */
	void *arg;
};
enum err trace_gather(const struct trace *t, struct comm *world, struct trace_rank *mine, struct trace_rank *ranks,
		      const struct trace_taker *taker);

/* One exchange with a clock elsewhere: when the question left, what it said, when the answer came. */
struct clock_ping { int64_t sent_us, theirs_us, received_us; };
/* How far that clock is ahead, by the quickest exchange; wrong by at most half of the time that it took. (D. L. Mills, RFC 5905, 8) */
int64_t trace_clock_offset(const struct clock_ping *pings, int n);

#endif
