/* What this machine can do at best, measured: the measure of every speed that `bench` reports. */
#ifndef SHARDRUN_RUNTIME_LIMITS_H
#define SHARDRUN_RUNTIME_LIMITS_H

#include "base/pool.h"
#include "runtime/kernels.h"

/* All threads of the pool together, each the best of several tries. */
struct limits {
	double read_gbps;       /* reading 256 MB, with the kernels' widest loads and several streams a thread */
	double f32_gops;        /* products and sums of the f32 kernels on data in the caches */
	double int8_gops, bf16_gops;   /* of the operations that products with int8 and with bf16 are made of, on registers */
};

/* Takes about half a second and 256 MB. Ranks that share a node call it at the same time and add their numbers. */
enum err limits_measure(struct pool *pool, const struct kernels *k, struct limits *out);

#endif
