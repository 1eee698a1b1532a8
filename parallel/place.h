/* The place: which machines there are and what each rank may use of them; gathered from a live job, or invented. */
#ifndef SHARDRUN_PARALLEL_PLACE_H
#define SHARDRUN_PARALLEL_PLACE_H

#include "parallel/comm.h"
#include "parallel/member.h"

struct place {
	struct cluster cluster;
	int n_ranks;
	struct rank_facts *facts;     /* by world rank; owned */
};

/* COLLECTIVE. The lowest rank of each node reads its machine; every rank adds the cores it may run on. The nodes are those
 * of comm_set_nodes. */
enum err place_gather(struct comm *world, struct place *out);
/* n_ranks spread over the cluster's nodes, ranks_per_node on each (0: as even as possible), node after node, none bound. The
 * cluster is copied. ERR_FIT when they do not fit. */
enum err place_invent(const struct cluster *c, int n_ranks, int ranks_per_node, struct place *out);
void place_free(struct place *p);
/* Smallest number of ranks on a node that has any. */
int place_ranks_per_node(const struct place *p);

#endif
