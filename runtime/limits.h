/* What this machine can do at best, measured: the measure of every speed that `bench` reports. */
#ifndef SHARDRUN_RUNTIME_LIMITS_H
#define SHARDRUN_RUNTIME_LIMITS_H

#include "base/pool.h"
#include "runtime/kernels.h"
#include "runtime/plan.h"

/* In 1e9 operations a second, all threads of the pool together, each the best of several tries. */
struct limits {
	double f32_gops;               /* products and sums of the f32 kernels on data in the caches */
	double int8_gops, bf16_gops;   /* of the operations that products with int8 and with bf16 are made of, on registers */
};

/* Takes about a third of a second. Ranks that share a node call it at the same time and add their numbers. */
enum err limits_measure(struct pool *pool, const struct kernels *k, struct limits *out);

/* Second and last caches of the cores that a rank has (-1: that any rank has, each cache once). 0: not known. Pure. */
uint64_t limits_cache_bytes(const struct plan *p, const struct cluster *c, int rank);
/* Bytes that a rank may take for a while beside what is planned: half of its share of the node's memory that is left, now and by
 * its limit. */
uint64_t limits_spare_bytes(const struct plan *p, const struct cluster *c, int rank);

/* A block that the pool's threads read through again and again, each its own part, which it has touched first: with the kernels'
 * widest loads and several streams a thread. Its size is four times the caches, so that little of it can be in them when
 * its turn comes again; less when there is no room for it, and a gigabyte when no caches are known. */
struct read_probe;
enum err read_probe_create(struct pool *pool, const struct kernels *k, uint64_t cache_bytes, uint64_t spare_bytes,
			   struct read_probe **out);
uint64_t read_probe_bytes(const struct read_probe *r);
/* GB/s of all threads: the best of a few passes through the block, which take about a tenth of a second together. */
double read_probe_run(struct read_probe *r);
void read_probe_destroy(struct read_probe *r);   /* takes NULL */

#endif
