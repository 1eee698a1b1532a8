/* What engine.c (the loop), engine_steps.c (steps as they travel) and engine_requests.c (requests and answers on the head) share;
 * nobody else includes this. */
#ifndef SHARDRUN_RUNTIME_ENGINE_IMPL_H
#define SHARDRUN_RUNTIME_ENGINE_IMPL_H

#include "runtime/engine.h"

/* An answer that waits or runs. */
struct active {
	struct request r;             /* with the lists below in place of the request's */
	int32_t *stop_tokens;         /* owned: the model's end-of-text tokens, then the request's */
	struct answer a;
	int32_t number;               /* the schedule's */
	int flying;                   /* steps under way that it is in */
	int gone;                     /* cancelled while flying or being told: a.finish says why it will end */
	int is_sibling;               /* of an answer that has begun */
	int siblings;                 /* answers of the request that start when this one has its first token */
	struct active *next;          /* among those that are due */
};

/* A transfer that is made for one step after another. */
struct once_more {
	struct comm_transfer transfer;
	int is_open;
};

/* A step on a rank that works on it. */
struct flight {
	struct step *step;
	size_t bytes;                 /* of its packed form */
	struct step_results results;  /* of this rank's replica */
	struct once_more passed_on, returned[2];
};

enum { AWAITED = 3 };

/* Of one replica, on the head. */
struct awaited {
	struct once_more sent;        /* the step */
	struct once_more coming[AWAITED];   /* results, log-probabilities, logits */
	struct step_results results;
	int is_own;                   /* its results come from the head's own part */
};

/* A step that the head has decided. */
struct decided {
	struct step *step;
	struct awaited *of;           /* (replicas of the lane) */
	long long began_us;
};

/* Replicas that step together, on the head. */
struct lane {
	int first_replica, n_replicas;
	struct decided *ring;         /* (in_flight) */
	int64_t n_decided, n_landed;
};

struct engine {
	struct session *s;
	struct flight *flights;       /* (in_flight) */
	int64_t n_received, n_worked; /* steps that came to this rank, and those whose part it has done */
	struct once_more coming, logits_returned;
	float *stage_logits;          /* last stage, tp rank 0: (step_tokens, V), only while all_logits is asked for */
	int n_lanes;
	struct lane *lanes, *own;     /* NULL but on the head */
	long long asked_us, landed_us;
	int is_over;                  /* nothing is under way, and nothing can be */
	/* on the head */
	const struct engine_calls *calls;
	struct engine_counts counts;
	struct schedule *schedule;
	struct active **of_number;    /* (n_numbers), by the schedule's number; NULL: none */
	int64_t n_numbers;
	struct active *due;           /* siblings that are to start, as one template per request, oldest first */
	const struct active *telling; /* whose token is being told */
	int no_more;                  /* no request is to come */
};

/* --- engine.c --- */
/* On the head: takes the results that have come, and decides the steps that there is room for. Does not wait. */
enum err engine_attend(struct engine *e);

/* --- engine_steps.c: each begins or ends what travels; none waits for what is not under way --- */
enum err engine_create_steps(struct engine *e);
void engine_destroy_steps(struct engine *e);
enum err engine_open_steps(struct engine *e);
enum err engine_close_steps(struct engine *e);
struct decided *lane_at(const struct engine *e, const struct lane *l, int64_t n);
/* Sends the step that stands in the lane's next slot. */
enum err engine_launch(struct engine *e, struct lane *l);
/* Has the lane's oldest step under way landed? */
enum err engine_test_oldest(struct engine *e, struct lane *l, int *has_landed);
/* The next step for this rank. */
enum err engine_receive(struct engine *e, struct flight **out);
enum err engine_free_results(struct flight *f);
/* To the head what this rank has to give of a step. */
enum err engine_return(struct engine *e, struct flight *f);

/* --- engine_requests.c --- */
/* What the schedule is made for. */
struct schedule_limits engine_limits(const struct session *s);
/* Takes requests from the source as long as there is room. */
void engine_pull(struct engine *e);
/* Does what the order says. */
void engine_obey(struct engine *e);
/* The results of a landed slice that samples, and their log-probabilities when it asks for them. Gives how many of its drafts came true. */
int64_t engine_take(struct engine *e, const struct slice *sl, const int32_t *drafts, const struct step_result *r,
		    const struct sample_logprobs *logprobs);
/* The step has landed, but its results are not taken yet. */
void engine_landed(struct engine *e, const struct step *step);
/* Ends all that is left. */
void engine_drop_all(struct engine *e, enum finish why);

#endif
