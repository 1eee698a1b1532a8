/* The scheduler: which slices make the next step. Pure: no communicator, no clock.
 *
 * A request waits, then runs in one replica: its prompt in chunks, then one token a step. On admission it gets all pages
 * that it can ever need, so a running request never stops for lack of memory. A step holds every decode token first (one
 * per running sequence), then prefill chunks in order of arrival, up to step_tokens per replica. Requests go to the replica
 * with the fewest tokens still to compute; ties to the lower number. */
#ifndef SHARDRUN_RUNTIME_SCHEDULE_H
#define SHARDRUN_RUNTIME_SCHEDULE_H

#include "base/err.h"
#include "runtime/sampler.h"
#include "runtime/step.h"

#include <stdint.h>

struct schedule_limits {
	int n_replicas;
	int64_t n_pages;          /* of each replica */
	int64_t step_tokens;      /* per replica and step */
	int64_t sequences;        /* running at once, per replica */
	int64_t context;          /* most tokens of one sequence, prompt and answer */
};

struct request {
	const int32_t *prompt;    /* borrowed until the request is finished */
	int64_t n_prompt;
	int64_t max_tokens;       /* of the answer; cut to what the context leaves */
	struct sample_params sample;
	int all_logits;           /* logits of every prompt position are wanted */
};

struct schedule;
enum err schedule_create(const struct schedule_limits *limits, struct schedule **out);
void schedule_destroy(struct schedule *s);
/* Gives the request's number (0, 1, ...). ERR_FIT with the numbers when it can never run. */
enum err schedule_add(struct schedule *s, const struct request *r, int32_t *sequence);
/* Fills the step (cleared first); no slices: nothing is left to do, or nothing can run. */
void schedule_next(struct schedule *s, struct step *step);
/* The token that a step chose. `more`: the sequence goes on; else its pages are given back. */
void schedule_token(struct schedule *s, int32_t sequence, int32_t token, int more);
/* True when the sequence has as many tokens as it may. */
int schedule_is_full(const struct schedule *s, int32_t sequence);
/* How many tokens the sequence may still get. */
int64_t schedule_room(const struct schedule *s, int32_t sequence);
int64_t schedule_unfinished(const struct schedule *s);
/* ERR_BUG when a page is in two places or lost. For tests and debug builds. */
enum err schedule_check(const struct schedule *s);

#endif
