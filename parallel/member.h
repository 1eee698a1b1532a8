/* Who does what: one pure function from facts and layout to the membership of every rank.
 *
 * MPI_Comm_split, the plan's table, `shardrun plan` without a cluster and the rankfile all read this. It never looks at
 * rank numbers except to break ties between ranks that have the same cores: the same cores get the same work under any
 * mpirun mapping.
 *
 * How: nodes are ordered by host name (numbers in it count as numbers); within a node ranks are ordered by their first
 * core. A rank's domain is what it is bound to (its NUMA node, or its device's island when the node has accelerators and
 * the backend uses them). Groups of tp are packed into the smallest domain first (island or NUMA, package, node); only
 * what is left over goes one level up. Groups, ordered by node and place, become stage-major: stage s holds groups
 * s*dp .. s*dp+dp-1, so that the replicas of a stage, which exchange experts, are neighbours, and stages span nodes. */
#ifndef SHARDRUN_PARALLEL_MEMBER_H
#define SHARDRUN_PARALLEL_MEMBER_H

#include "parallel/layout.h"
#include "topology/machine.h"

#include <stdint.h>

enum { MEMBER_MAX_CORES = 1024 };

/* What is known of one rank. Gathered from all ranks, or made up by `shardrun plan`. */
struct rank_facts {
	int node;                                   /* index into the cluster's nodes */
	int n_cores;                                /* cores it may run on, 0: all allowed ones */
	int bound;                                  /* 0: not bound, shares its node's cores with the node's other ranks */
	uint64_t cores[MEMBER_MAX_CORES / 64];      /* bit i: machine.cores[i] */
};

struct member {
	int rank;                  /* in the world */
	int dp, pp, tp;            /* coordinates */
	int ep, etp;               /* within its expert group */
	int expert_group;          /* which of the stage's expert groups; its ranks are ordered (ep, etp) */
	int node;                  /* index into the cluster */
	int numa, package;         /* where most of its cores are; -1 when it spans several */
	int device;                /* accelerator of its node, -1: none */
	int first_core, n_cores;   /* its cores as indexes into the machine's cores when contiguous; see cores for all */
	uint64_t cores[MEMBER_MAX_CORES / 64];
};

/* colour and key for splitting the world along an axis; ranks with equal colour form a group ordered by key. */
enum axis { AXIS_TP, AXIS_PP, AXIS_EP, AXIS_DP, AXIS_STAGE, AXIS_REPLICA, AXIS_NODE, AXIS_COUNT };
extern const char *const axis_names[AXIS_COUNT];   /* "tp", "pp", "ep", "dp", "stage", "replica", "node" */
struct colour_key { int colour, key; };
/* tp: same (dp, pp). pp: same (dp, tp), ordered by stage. dp: same (pp, tp). ep: the expert group of the stage, ordered
 * by (ep, etp). stage: same pp. replica: same dp. node: same node. */
struct colour_key member_colour(const struct member *m, const struct layout *l, enum axis axis);

/* facts[n_ranks] and cluster -> members[n_ranks] (caller's room, index = rank). use_devices: ranks get accelerators.
 * ERR_FIT when tp would cross a node although the layout does not allow it, naming node and counts. Pure. */
enum err member_assign(const struct cluster *c, const struct rank_facts *facts, int n_ranks, const struct layout *l,
		       int use_devices, struct member *members);

#endif
