/* Choosing the next token from logits whose vocabulary is spread over the tp ranks, without gathering them.
 *
 * A token's key is its logit's bits, made so that unsigned order is the order of numbers (-0 counted as +0), above the
 * complement of its id: the greatest key is the best logit with the lowest id, and no two tokens share a key. A NaN has
 * the key of all ones, which no number has: one MAX reduction finds the best token and tells every rank of a NaN.
 *
 * Greedy is that reduction. Otherwise: scale by temperature, keep the top_k, then of their softmax the smallest set that
 * reaches top_p, then those with p >= min_p * p_max; draw by the Gumbel-max rule with noise keyed by (seed, choice,
 * position, token), so the draw does not depend on the layout. Candidates are ordered by logit, then lower id; masses are
 * summed in fixed point. */
#ifndef SHARDRUN_RUNTIME_SAMPLER_H
#define SHARDRUN_RUNTIME_SAMPLER_H

#include "parallel/comm.h"
#include "runtime/kernels.h"

struct sample_params {
	float temperature;         /* 0: greedy */
	int32_t top_k;             /* 0: off */
	float top_p, min_p;        /* 1 and 0: off */
	uint64_t seed;
	uint32_t choice;           /* which of n answers */
};

struct sampler;
/* Room for vocabularies of n_local on this rank; no allocation later. */
int64_t sampler_bytes(int64_t n_local);   /* of memory that it takes */
enum err sampler_create(int64_t n_local, int n_ranks, struct sampler **out);
void sampler_destroy(struct sampler *s);
/* COLLECTIVE over tp. logits (n_local) for ids first_id ..; best: the greatest key of all ranks' logits (kernels.h,
 * best_key; ranks take the maximum); position of the token that is being chosen. The same token on every rank. Any NaN
 * among the logits gives ERR_WORK on all ranks. logits are not changed. */
enum err sampler_choose(struct sampler *s, struct comm *tp, const struct kernels *k, const float *logits, int64_t n_local,
			int64_t first_id, uint64_t best, const struct sample_params *p, int64_t position, int32_t *token);
/* Uniform 64 bits from a counter (Philox4x32-10; Salmon et al., SC 2011). */
uint64_t sampler_random(uint64_t seed, uint32_t choice, uint64_t position, uint32_t token);

#endif
