/* A session: a model laid over the ranks of a world, ready for prompts. What `run` and the tests drive.
 *
 * Rank 0 of the world is the head: it schedules, the others follow its steps. All functions are COLLECTIVE over the world and
 * return the same error everywhere (comm_agree), unless they say otherwise. */
#ifndef SHARDRUN_RUNTIME_SESSION_H
#define SHARDRUN_RUNTIME_SESSION_H

#include "parallel/comm.h"
#include "parallel/grid.h"
#include "parallel/place.h"
#include "runtime/plan.h"
#include "runtime/schedule.h"
#include "runtime/stage.h"

struct session_wish {
	const char *model_path;
	struct plan_wish plan;
	const char *isa;              /* "auto" or a kernel table's name; all ranks agree on the lowest common one */
	int pin;                      /* bind the pool's threads to the rank's cores */
	int check_memory;
	/* Called on each rank between the steps of session_create; may be NULL. phase: "model", "plan", "load", "ready". */
	void (*phase)(void *arg, const char *phase);
	/* COLLECTIVE, when the model is known and nothing is planned: may change the plan's wish (the same on all ranks), as when
	 * the prompts show how much KV cache is of use. Errors are agreed after it. */
	enum err (*prepare)(void *arg, struct weights *files, const struct model *m, struct plan_wish *plan);
	/* On the head, once the plan stands and before anything is loaded. */
	void (*planned)(void *arg, const struct plan *p, const struct model *m, const struct place *place);
	/* While loading, on each rank: its own bytes. */
	void (*loading)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

struct session {
	struct comm *world;           /* borrowed */
	struct weights *files;        /* owned, as all below */
	struct model model;
	struct place place;
	struct plan plan;
	struct grid *grid;
	struct pool *pool;
	struct stage *stage;
	const struct kernels *kernels;
	int broken;                   /* a step failed on this rank: the others may wait for it, so the job must end */
	double load_s;
	uint64_t read_bytes, expected_read_bytes;    /* of this rank: weights read, and what the plan says */
};

/* place is taken over on success (and left alone on failure). */
enum err session_create(struct comm *world, const struct session_wish *wish, struct place *place, struct session **out);
void session_destroy(struct session *s);

enum finish {
	FINISH_NOT_YET,
	FINISH_STOP,                  /* an end-of-text or stop token, or the caller said so */
	FINISH_LENGTH,                /* as many tokens as were asked for, or as the context holds */
	FINISH_ERROR,                 /* no token could be chosen; error says why */
	FINISH_REFUSED,               /* it can never run; error says why */
	FINISH_CANCELLED,             /* engine_cancel */
	FINISH_DROPPED                /* the engine was told to end before it */
};

struct answer {
	void *tag;                    /* the request's */
	uint32_t choice;              /* which of its n answers, from sample.choice on */
	int64_t n_prompt;
	int32_t *tokens;              /* owned by who has the answer: answer_free */
	int64_t n_tokens;
	enum finish finish;
	uint64_t digest;              /* of all logits used */
	struct sample_logprobs *logprobs;   /* NULL, or (n_tokens) when asked for; owned likewise */
	char *error;                  /* a sentence, or NULL; owned likewise */
	enum err code;                /* why it was refused */
};
void answer_free(struct answer *a);   /* what it owns */

/* Work done, on the head. */
struct engine_counts {
	double prefill_s, decode_s;   /* a step with any prefill is prefill */
	int64_t prefill_tokens, decode_tokens, steps;
	struct schedule_counts schedule;
};

/* An array of requests run to their ends; see engine.h for requests that come meanwhile. */
struct generation {
	/* On the head: */
	const struct request *requests;
	int64_t n_requests;
	int ignore_eos;               /* of all */
	/* After each token on the head; the answer so far, and why it ends when this is its last token. Returns 1 to end this
	 * answer (its text is complete). May be NULL. `index`: in answers. */
	int (*token)(void *arg, int64_t index, const struct answer *a, int32_t token);
	void *arg;
	float *all_logits;            /* room for (prompt tokens, V) of the one request that has all_logits; head only */
	/* Results, on the head: */
	struct answer *answers;       /* request 0's n, then request 1's ..; owned by the caller: answers_free */
	int64_t n_answers;
	double prefill_s, decode_s;
	int64_t prefill_tokens, decode_tokens, steps;
	struct schedule_counts counts;
};
/* The others pass a zeroed generation. A request that can never run is an error before the first step. An error inside
 * a step is this rank's own and sets s->broken; others are agreed. */
enum err session_generate(struct session *s, struct generation *g);
void answers_free(struct answer *a, int64_t n);

#endif
