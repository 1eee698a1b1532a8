/* The scheduler: which slices make the next step. Pure: no communicator, no clock, no allocation in a step.
 *
 * Requests join and leave at any step. One waits, then runs in a replica: what is known of it (the prompt, and after an
 * interruption what it has answered) in chunks, then one token a step. In order means: lower priority numbers first, then
 * by arrival.
 *
 *   a step     For each replica up to step_tokens: first one token of every sequence that answers, then chunks in order. Of what
 *              is left for them up to half is kept free for prompts that end in this step, the shortest first: so a short one does
 *              not wait for long ones, and a long one always gets on.
 *   in flight  Up to in_flight steps of a replica may be under way. A sequence that answers is in one of them at most, and each
 *              takes its share of those, so that steps stay even; chunks of one prompt may follow each other without waiting.
 *   letting in In order, nobody passes: when the replica has a free place, and pages for what is known and one more for each
 *              that runs. Of several replicas the one with the least to do, what it has of the request's beginning counted in.
 *   pages      Taken as they are needed. When there are none, the last in order that is not in flight is put back: it loses
 *              its pages and waits again. The first in order always gets on, so nothing stops.
 *   drafts     With draft_rows a sequence that answers may get guesses behind its token, from its own text (ngram.h), when the step has
 *              few tokens: together with them it has at most draft_rows, and none of the replica's prompts is to be read. They take
 *              no page that another might want. Requests whose logits depend on the tokens before (penalties, a mask) get none.
 *   extras     What changes a request's logits travels with the slices that sample; one that finds no room for it waits for the next step.
 *   beginnings Pages of equal beginnings are shared (pages.h). Where the last shared page is equal only in part, it is copied by
 *              the step (step.copies) and goes on from there. At least the last known token is computed. */
#ifndef SHARDRUN_RUNTIME_SCHEDULE_H
#define SHARDRUN_RUNTIME_SCHEDULE_H

#include "base/err.h"
#include "runtime/sampler.h"
#include "runtime/step.h"

#include <stdint.h>

struct schedule_limits {
	int n_replicas;
	int64_t n_pages;          /* of each replica */
	int64_t step_tokens;      /* per replica and step; at least `sequences` */
	int64_t sequences;        /* running at once, per replica */
	int64_t context;          /* most tokens of one sequence, prompt and answer */
	int in_flight;            /* steps of a replica, 2 for each stage; 0 counts as 1 */
	int64_t mask_words;       /* of a request's mask: one bit for each token of the vocabulary */
	int64_t draft_rows;       /* most tokens of a replica in a step with drafts; 0: no drafts */
};

struct request {
	const int32_t *prompt;    /* borrowed until the request is finished, as all below */
	int64_t n_prompt;
	int64_t max_tokens;       /* of the answer; cut to what the context leaves */
	int32_t *answer;          /* room for them, filled as they come (the engine's, for requests from a source) */
	int priority;             /* lower is served first */
	struct sample_params sample;
	float repetition_penalty; /* 0 and 1: off; see adjust.h, as for the two below */
	float frequency_penalty, presence_penalty;
	const struct token_bias *biases;
	int n_biases;             /* at most ADJUST_MAX_BIASES */
	const int32_t *stop_tokens;
	int n_stop_tokens;        /* at most ADJUST_MAX_BANNED, with the model's own end-of-text tokens */
	int64_t min_tokens;       /* stop tokens are not chosen before there are so many */
	const uint32_t *mask;     /* NULL, or mask_words words: bit t % 32 of word t / 32 says that token t may be chosen. Read whenever a step
				     is made that chooses; its owner may change it in between, as after each token. */
	int all_logits;           /* logits of every prompt position are wanted */
	int n;                    /* for the engine (engine.h): answers wanted, numbered from sample.choice; 0 counts as 1 */
	int ignore_eos;           /* likewise: the model's own end-of-text tokens are tokens like others */
	void *tag;                /* likewise: the caller's own, given back */
};

struct schedule_counts {
	int64_t shared_tokens;    /* known tokens that were found in pages instead of computed */
	int64_t put_back;         /* how often a sequence lost its pages */
	int64_t drafted, accepted; /* guessed tokens, and those that came true */
	int64_t draft_slices;     /* that had any */
	int64_t running, waiting;
	int64_t free_pages;       /* of all replicas: empty, or kept without a holder */
};

struct schedule;
/* Of the memory that a schedule takes, that for texts to guess from. */
uint64_t schedule_draft_bytes(const struct schedule_limits *limits);
enum err schedule_create(const struct schedule_limits *limits, struct schedule **out);
void schedule_destroy(struct schedule *s);
/* What schedule_add would say of a request; it must hold for limits alone. */
enum err schedule_check_request(const struct schedule_limits *limits, const struct request *r);
/* Gives the request a number that no unfinished one has: 0, 1, .. until one has finished. ERR_FIT with the numbers when it can never run. */
enum err schedule_add(struct schedule *s, const struct request *r, int32_t *sequence);
/* Fills a step of these replicas (cleared first); no slices: nothing is left to do, or all that could run is in flight. */
void schedule_next(struct schedule *s, int first_replica, int n_replicas, struct step *step);
/* That step's results are there: what it held may be scheduled again. Before its tokens are given to schedule_token. */
void schedule_landed(struct schedule *s, const struct step *step);
/* The token that a step chose, and after it one for each draft that came true. `more`: the sequence goes on; else, or when it is full, it
 * is finished and its number free. */
void schedule_token(struct schedule *s, int32_t sequence, int32_t token, int more);
/* Ends a request early. In flight: when its step has landed, and then a token that it chose counts for nothing. */
void schedule_cancel(struct schedule *s, int32_t sequence);
/* Nothing of it has been worked on, or nothing is left of that. */
int schedule_is_waiting(const struct schedule *s, int32_t sequence);
/* How many tokens the sequence may still get. */
int64_t schedule_room(const struct schedule *s, int32_t sequence);
int64_t schedule_unfinished(const struct schedule *s);
void schedule_count(const struct schedule *s, struct schedule_counts *out);
/* ERR_BUG when a page is lost, or held by other sequences than the books say. For tests and debug builds. */
enum err schedule_check(const struct schedule *s);

#endif
