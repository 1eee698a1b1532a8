/* What engine.c (the loop) and engine_requests.c (requests and answers on the head) share; nobody else includes this. */
#ifndef SHARDRUN_RUNTIME_ENGINE_IMPL_H
#define SHARDRUN_RUNTIME_ENGINE_IMPL_H

#include "runtime/engine.h"

/* An answer that waits or runs. */
struct active {
	struct request r;             /* with the lists below in place of the request's */
	int32_t *stop_tokens;         /* owned: the model's end-of-text tokens, then the request's */
	struct answer a;
	int32_t number;               /* the schedule's */
	int flying;                   /* in a step that is under way */
	int gone;                     /* cancelled while flying or being told: a.finish says why it will end */
	int is_sibling;               /* of an answer that has begun */
	int siblings;                 /* answers of the request that start when this one has its first token */
	struct active *next;          /* among those that are due */
};

/* A step under way. */
struct flight {
	struct step *step;
	struct step_results results;  /* of this rank's replica */
	long long began_us;
};

struct engine {
	struct session *s;
	struct flight flight;
	float *stage_logits;          /* last stage, tp rank 0: (step_tokens, V), only while all_logits is asked for */
	/* on the head */
	const struct engine_calls *calls;
	struct engine_counts counts;
	struct schedule *schedule;
	struct step_results incoming; /* of another replica */
	struct active **of_number;    /* (n_numbers), by the schedule's number; NULL: none */
	int64_t n_numbers;
	struct active *due;           /* siblings that are to start, as one template per request, oldest first */
	const struct active *telling; /* whose token is being told */
	int no_more;                  /* no request is to come */
};

/* What the schedule is made for. */
struct schedule_limits engine_limits(const struct session *s);
/* Takes requests from the source as long as there is room. */
void engine_pull(struct engine *e);
/* Does what the order says. */
void engine_obey(struct engine *e);
/* A result of a landed step. */
void engine_take(struct engine *e, const struct step_result *r, const struct sample_logprobs *logprobs);
/* The step has landed, but its results are not taken yet. */
void engine_landed(struct engine *e, const struct step *step);
/* Ends all that is left. */
void engine_drop_all(struct engine *e, enum finish why);

#endif
