/* A step: the ragged batch that the head has decided and every rank works on.
 *
 * A slice is a run of consecutive tokens of one sequence: a prefill chunk, or one decode token and drafts behind it: guesses at the
 * tokens that follow. A token is chosen after each of these; the first is right, and each further one while all before it are what
 * was guessed. Rows do not depend on one another's presence, so what is right has the bits that it has without drafts; what stands
 * in the cache for wrong ones is written over before it is read. Slices name their replica;
 * a rank works on those of its own. Page numbers are global within a replica, so the tables are made once by the head and
 * travel with the step. Ranks work on steps in the order in which the head has decided them. A step without slices that has
 * `last` set ends the loop of the other ranks.
 *
 * A copy is of a whole page, all layers; copies are made in their order, before anything else of the step. */
#ifndef SHARDRUN_RUNTIME_STEP_H
#define SHARDRUN_RUNTIME_STEP_H

#include "parallel/comm.h"
#include "runtime/adjust.h"
#include "runtime/sampler.h"

#include <stdint.h>

enum { SLICE_SAMPLE = 1,         /* choose the token after the last one, and after each one before it that drafts follow */
       SLICE_ALL_LOGITS = 2,     /* give the logits of every position (for --logits) */
       SLICE_ANSWERS = 4 };      /* its first token was chosen by the step before it */

struct slice {
	int32_t sequence;            /* the head's number for it */
	int32_t replica;
	int32_t pos, n_tokens;       /* positions pos .. pos + n_tokens - 1 */
	int32_t n_drafts;            /* the last ones of these; only with SLICE_SAMPLE */
	int32_t first_token;         /* in step.tokens */
	int32_t first_page, n_pages; /* in step.pages */
	int32_t flags;
	int32_t first_extra, n_extra;/* in step.extra; n_extra 0: its logits are taken as they are */
	struct sample_params sample;
};

/* How many tokens are chosen. */
static inline int32_t slice_choices(const struct slice *sl) { return sl->flags & SLICE_SAMPLE ? 1 + sl->n_drafts : 0; }
/* The first draft's place in step.tokens. */
static inline int32_t slice_first_draft(const struct slice *sl) { return sl->first_token + sl->n_tokens - sl->n_drafts; }

struct page_copy { int32_t replica, from, to; };

/* The most that a step holds; of copies as many as slices. */
struct step_room { int64_t slices, tokens, pages, extra; };

struct step {
	int32_t n_slices, n_tokens, n_pages, n_copies, n_extra, last;
	int32_t max_slices, max_tokens, max_pages, max_extra;
	struct slice *slices;        /* owned, as all below */
	struct page_copy *copies;
	int32_t *tokens, *pages;
	int32_t *extra;              /* packed adjustments (adjust.h) of the slices that have some */
	unsigned char *wire;         /* the packed form */
	size_t wire_bytes;
};

/* Bytes of memory that a step with this room takes. */
uint64_t step_room_bytes(const struct step_room *room);
enum err step_create(const struct step_room *room, struct step **out);
void step_destroy(struct step *s);
void step_clear(struct step *s);
/* Fills s->wire; gives its bytes. */
size_t step_pack(struct step *s);
/* The step becomes what stands in s->wire. */
enum err step_unpack(struct step *s, size_t bytes);
/* COLLECTIVE over c: rank root's step, which is packed, becomes everyone's. */
enum err step_bcast(struct step *s, struct comm *c, int root);

/* What the last stage reports of each choice. */
struct step_result {
	int32_t sequence, token;     /* token -1: none was chosen, as one before it is not what was guessed */
	int32_t fault;               /* enum sample_fault; token is then meaningless */
	int32_t pad;
	uint64_t digest;             /* of the logits used */
};

/* Of all choices of one replica's slices, in order, and the log-probabilities of those that ask for them. */
struct step_results {
	int32_t n, n_logprobs;
	struct step_result *of;              /* owned; (choices) */
	struct sample_logprobs *logprobs;    /* owned; (choices) */
};
uint64_t step_results_bytes(int64_t choices);
enum err step_results_create(int64_t choices, struct step_results *out);
void step_results_free(struct step_results *r);
/* How many results, and how many of them with log-probabilities, the step has for a replica. */
void step_results_expect(const struct step *s, int replica, int32_t *n, int32_t *n_logprobs);

#endif
