/* What sampler.c and logprobs.c share; nobody else includes this. */
#ifndef SHARDRUN_RUNTIME_SAMPLER_IMPL_H
#define SHARDRUN_RUNTIME_SAMPLER_IMPL_H

#include "runtime/sampler.h"

/* What a rank knows of a row's log-probabilities, as it travels. */
struct best_part {
	uint64_t mass;                       /* of all its tokens */
	uint64_t chosen;                     /* the chosen token's key; 0: another rank has it */
	uint64_t best[SAMPLE_MAX_BEST];      /* its greatest keys, greatest first; 0: no more */
};

enum { SAMPLER_DIGIT_BITS = 8, SAMPLER_DIGITS = 1 << SAMPLER_DIGIT_BITS };

/* What a thread finds in its part of the tokens. */
struct sampler_found {
	uint64_t histogram[2 * SAMPLER_DIGITS];      /* counts, then masses */
	double score;
	int64_t id;
};

struct sampler {
	int64_t n_local, first_id;
	int n_ranks;
	struct pool *pool;        /* borrowed; NULL: none */
	int n_threads;            /* that share one row */
	struct sampler_found *found;   /* (n_threads) */
	float *scaled, *share;    /* (n_local): (logit - best) / temperature, and its exp */
	float *adjusted;          /* (n_local) */
	uint64_t *histogram;      /* (2 * SAMPLER_DIGITS): the sum of the threads', then of all ranks' */
	struct best_part *parts;  /* (n_ranks) */
	size_t *part_bytes, *part_offsets;
	struct token_counts *counts;
};

static inline uint64_t sampler_key(float logit, int64_t id)
{
	union { float f; uint32_t u; } v = { logit + 0.0f };   /* -0 becomes +0 */
	if (logit != logit)
		return UINT64_MAX;
	uint32_t ordered = v.u & 0x80000000u ? ~v.u : v.u | 0x80000000u;
	return (uint64_t)ordered << 32 | (uint32_t)~(uint32_t)id;
}

static inline float sampler_key_logit(uint64_t key)
{
	uint32_t ordered = (uint32_t)(key >> 32);
	union { uint32_t u; float f; } v = { ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered };
	return v.f;
}

static inline int32_t sampler_key_token(uint64_t key) { return (int32_t)~(uint32_t)key; }

/* Masses are whole numbers, so sums over ranks are exact in any order. */
#define SAMPLER_ONE_MASS 0x1p40
static inline uint64_t sampler_mass(float share) { return share > 0 ? (uint64_t)((double)share * SAMPLER_ONE_MASS + 0.5) : 0; }

#endif
