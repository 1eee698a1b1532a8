/* The engine: a session's loop of steps, into which requests come while it runs.
 *
 * The head asks a source for requests whenever the schedule has room, and reports tokens and finished answers by calls; `run` hands
 * over an array, `batch` reads a file as far as needed, `serve` has a queue. All calls are made on the head's thread, between steps.
 *
 *   next     "here is one", "none now" or "no more". While nothing runs and there is none now, the head asks again every half
 *            millisecond and sleeps in between; the other ranks wait in the step's broadcast, without holding a core.
 *   order    asked once a step and while waiting: go on; admit no more (what runs goes on to its end; what has not begun is dropped);
 *            or drop all. It may cancel requests.
 *   token    after each token that an answer got.
 *   done     once for each answer of a request that was handed over, whatever became of it: n times for one with n answers. What the
 *            request borrowed may go after the last of them.
 *
 * A request with n answers computes its prompt once: the others start when the first has a token, and share its pages.
 * Nothing is allocated in a step, but when a request comes: what is kept of one goes when it is done. */
#ifndef SHARDRUN_RUNTIME_ENGINE_H
#define SHARDRUN_RUNTIME_ENGINE_H

#include "runtime/session.h"

struct engine;

enum engine_next { ENGINE_REQUEST, ENGINE_NONE_NOW, ENGINE_NO_MORE };
enum engine_order { ENGINE_GO_ON, ENGINE_ADMIT_NO_MORE, ENGINE_DROP_ALL };   /* the latter two cannot be taken back */

struct engine_calls {
	enum engine_next (*next)(void *arg, struct request *r);    /* fills *r, which is zeroed */
	/* Returns 1 to end the answer, as its text is complete. a->finish says why when this is its last token anyway. May be NULL. */
	int (*token)(void *arg, const struct answer *a, int32_t token);
	/* The answer is freed afterwards: to keep what it owns, take the pointers and leave NULL. */
	void (*done)(void *arg, struct answer *a);
	enum engine_order (*order)(void *arg, struct engine *e);   /* may be NULL */
	void *arg;
	float *all_logits;       /* NULL, or room for (prompt tokens, V): of the one request that may have all_logits */
};

/* COLLECTIVE over the world; calls and counts on the head, NULL elsewhere. Ends when there are no more requests and all are done. What is
 * wrong with one request ends that request alone. An error before the first step is agreed; one inside a step is this rank's own
 * and sets s->broken. */
enum err engine_run(struct session *s, const struct engine_calls *calls, struct engine_counts *counts);
/* From within order or token: ends all answers of the request with this tag, and calls done for them; for one whose token is being told
 * after the call. */
void engine_cancel(struct engine *e, const void *tag);
/* ERR_WORK or ERR_FIT with a sentence when the request can never run. */
enum err engine_check(const struct session *s, const struct request *r);

#endif
