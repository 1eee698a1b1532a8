/* The axes: tp splits every layer, pp splits the layers, dp copies the model, ep x etp split the experts of a stage.
 * ranks = tp * pp * dp; ep * etp * copies = dp * tp within a stage. */
#ifndef SHARDRUN_PARALLEL_LAYOUT_H
#define SHARDRUN_PARALLEL_LAYOUT_H

#include "base/err.h"

enum { LAYOUT_AUTO = 0, LAYOUT_MAX_STAGES = 512, LAYOUT_MAX_TP = 1024 };

struct layout {
	int tp, pp, ep, dp, etp;                 /* LAYOUT_AUTO: to be chosen by layout_complete */
	int n_stage_layers;                      /* 0, or pp: explicit layers per stage */
	int stage_layers[LAYOUT_MAX_STAGES];
	int tp_across_nodes;                     /* a tp group may cross nodes */
};

/* What a model allows. */
struct layout_limits {
	int n_layers;
	int n_experts;        /* 0: dense */
	int heads;            /* tp cannot exceed it */
	int ffn_blocks;       /* blocks of FFN columns: tp of a dense model cannot exceed it, nor etp of experts */
};

/* Ranks of one expert group = ep * etp. */
static inline int layout_ranks(const struct layout *l) { return l->tp * l->pp * l->dp; }

/* Fills every LAYOUT_AUTO so that the product is n_ranks, and checks all against the limits. ranks_per_node is the
 * smallest number of ranks on a node, or what divides the ranks of every node: tp is chosen to divide it, so that no tp
 * group crosses nodes. ERR_FIT names what is impossible and the nearest layouts that work. Pure. */
enum err layout_complete(struct layout *l, const struct layout_limits *limits, int n_ranks, int ranks_per_node);

/* True when an expert layer works without dispatch: every expert group lies inside a tp group. */
static inline int layout_experts_inside_tp(const struct layout *l) { return l->tp % (l->ep * l->etp) == 0; }

#endif
