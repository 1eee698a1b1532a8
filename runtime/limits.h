/* What this machine can do at best, measured: the measure of every speed that `bench` reports. */
#ifndef SHARDRUN_RUNTIME_LIMITS_H
#define SHARDRUN_RUNTIME_LIMITS_H

#include "base/pool.h"
#include "runtime/kernels.h"

struct limits {
	double read_gbps;       /* reading memory that no cache holds, all threads of the pool together */
	double f32_gops;        /* products and sums of the f32 kernels on data in the caches, all threads together */
};

/* Takes about half a second and 256 MB. Ranks that share a node call it at the same time and add their numbers. */
enum err limits_measure(struct pool *pool, const struct kernels *k, struct limits *out);

#endif
