/* Choosing the next token from logits whose vocabulary is spread over the tp ranks, without gathering them.
 *
 * A token's key is its logit's bits, made so that unsigned order is the order of numbers (-0 counted as +0), above the
 * complement of its id: the greatest key is the best logit with the lowest id, and no two tokens share a key. A NaN has
 * the key of all ones, which no number has: one MAX reduction finds the best token and tells every rank of a NaN.
 *
 * Logits are first adjusted when the request asks for it (adjust.h). Greedy is then that reduction. Otherwise: scale by
 * temperature, keep the top_k, then of their softmax the smallest set that reaches top_p, then those with p >= min_p * p_max; draw by
 * the Gumbel-max rule with noise keyed by (seed, choice, position, token), so the draw does not depend on the layout. Candidates are
 * ordered by logit, then lower id; masses are summed in fixed point.
 *
 * Log-probabilities are of the model's own logits, before all of this. */
#ifndef SHARDRUN_RUNTIME_SAMPLER_H
#define SHARDRUN_RUNTIME_SAMPLER_H

#include "base/pool.h"
#include "parallel/comm.h"
#include "runtime/adjust.h"
#include "runtime/kernels.h"

enum { SAMPLE_MAX_BEST = 20 };     /* most likely tokens that may be asked for beside the chosen one */

struct sample_params {
	float temperature;         /* 0: greedy */
	int32_t top_k;             /* 0: off */
	float top_p, min_p;        /* 1 and 0: off */
	uint64_t seed;
	uint32_t choice;           /* which of n answers */
	int32_t logprobs;          /* 0: none; else 1 + how many of the most likely tokens, for log-probabilities */
};

/* Why no token could be chosen. It ends that request alone, and is the same on all ranks. A logit of -infinity among others is a
 * token that is never chosen. */
enum sample_fault { SAMPLE_GOOD, SAMPLE_NAN, SAMPLE_INFINITE, SAMPLE_NONE_ALLOWED };
const char *sample_fault_text(int32_t fault);    /* "the model's logits hold a NaN" */

struct token_logprob { int32_t token; float logprob; };
struct sample_logprobs {
	float chosen;              /* natural logarithm of the chosen token's probability */
	int32_t n;                 /* the most likely tokens, best first; equal ones by id */
	struct token_logprob best[SAMPLE_MAX_BEST];
};

/* One row of logits (n_local), what is known of it, and what is asked. */
struct sample_row {
	const float *logits;                 /* not changed */
	uint64_t best;                       /* the greatest key of all ranks' logits (kernels.h, best_key; ranks take the maximum) */
	int64_t position;                    /* of the token that is being chosen */
	const struct sample_params *p;
	const struct adjustments *adjust;    /* NULL: none */
};

struct sampler;
struct sampler_size {
	int64_t n_local, first_id; /* this rank's tokens of the vocabulary: ids first_id .. first_id + n_local - 1 */
	int64_t n_slots, n_tokens; /* sequences, and the most tokens of one: for penalties */
	int n_ranks, n_threads;
};
int64_t sampler_bytes(const struct sampler_size *size);    /* of memory that it takes */
/* No allocation later. pool: of size->n_threads, borrowed; NULL: the caller's thread does all. It never changes a result. */
enum err sampler_create(const struct sampler_size *size, struct pool *pool, struct sampler **out);
void sampler_destroy(struct sampler *s);
/* Counts a slice's n tokens for penalties, as token_counts_note; before its row is chosen from. */
void sampler_note(struct sampler *s, const struct adjustments *a, const int32_t *tokens, int64_t n);
/* COLLECTIVE over tp. The same token and fault on every rank; *token is written when there is no fault. */
enum err sampler_choose(struct sampler *s, struct comm *tp, const struct kernels *k, const struct sample_row *row, int32_t *token,
			enum sample_fault *fault);
/* COLLECTIVE over tp. Of the token that was chosen, and row->p->logprobs - 1 of the most likely ones: the same bits on any layout. */
enum err sampler_logprobs(struct sampler *s, struct comm *tp, const struct kernels *k, const struct sample_row *row, int32_t token,
			  struct sample_logprobs *out);
/* Uniform 64 bits from a counter (Philox4x32-10; Salmon et al., SC 2011). */
uint64_t sampler_random(uint64_t seed, uint32_t choice, uint64_t position, uint32_t token);

#endif
