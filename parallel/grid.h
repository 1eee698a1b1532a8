/* The grid: this rank's place on the axes and one communicator per axis, made from the members. */
#ifndef SHARDRUN_PARALLEL_GRID_H
#define SHARDRUN_PARALLEL_GRID_H

#include "parallel/comm.h"
#include "parallel/layout.h"
#include "parallel/member.h"

struct grid {
	struct layout layout;
	struct member me;
	struct comm *world;               /* borrowed */
	struct comm *axis[AXIS_COUNT];    /* owned; see member_colour for what each groups */
	int n_ranks;
	struct member *members;           /* of all ranks, by world rank; owned */
};

/* COLLECTIVE over world. members[n] is copied. */
enum err grid_create(struct comm *world, const struct layout *l, const struct member *members, struct grid **out);
void grid_destroy(struct grid *g);
/* World rank at these coordinates. */
int grid_rank_at(const struct grid *g, int dp, int pp, int tp);

/* Sums of one axis over all ranks of the world. */
struct grid_traffic {
	const char *axis, *link;          /* link: the slowest that any group of this axis uses */
	int ranks, nodes;                 /* of the largest group */
	struct comm_stats stats;
};
enum { GRID_TRAFFIC_ROWS = AXIS_COUNT + 1 };
/* COLLECTIVE over world; row 0 is the world itself, counted before this call's own messages. */
enum err grid_traffic(struct grid *g, struct grid_traffic rows[GRID_TRAFFIC_ROWS]);
void grid_reset_traffic(struct grid *g);

#endif
