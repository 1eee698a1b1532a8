#include "parallel/grid.h"

#include "base/mem.h"

#include <string.h>

enum err grid_create(struct comm *world, const struct layout *l, const struct member *members, struct grid **out)
{
	struct grid *g = NULL;
	int n = comm_size(world);
	enum err e = MEM_NEW(1, struct grid, &g);
	if (!e)
		e = MEM_NEW((size_t)n, struct member, &g->members);
	e = comm_agree(world, e);
	if (e)
		goto destroy;
	memcpy(g->members, members, (size_t)n * sizeof *members);
	g->n_ranks = n;
	g->layout = *l;
	g->world = world;
	g->me = members[comm_rank(world)];
	for (int a = 0; a < AXIS_COUNT; a++) {
		struct colour_key c = member_colour(&g->me, l, (enum axis)a);
		TRY_OR(destroy, e, comm_split(world, c.colour, c.key, axis_names[a], &g->axis[a]));
	}
	TRY_OR(destroy, e, comm_share_memory(g->axis[AXIS_TP]));   /* the sums of every layer */
	*out = g;
	return ERR_OK;
destroy:
	grid_destroy(g);
	return e;
}

void grid_destroy(struct grid *g)
{
	if (!g)
		return;
	for (int a = 0; a < AXIS_COUNT; a++)
		comm_destroy(g->axis[a]);
	mem_free(g->members);
	mem_free(g);
}

int grid_rank_at(const struct grid *g, int dp, int pp, int tp)
{
	for (int r = 0; r < g->n_ranks; r++) {
		const struct member *m = &g->members[r];
		if (m->dp == dp && m->pp == pp && m->tp == tp)
			return r;
	}
	return -1;
}

static struct comm *traffic_comm(struct grid *g, int row) { return row == 0 ? g->world : g->axis[row - 1]; }

enum err grid_traffic(struct grid *g, struct grid_traffic rows[GRID_TRAFFIC_ROWS])
{
	uint64_t sums[GRID_TRAFFIC_ROWS][3];
	uint32_t sizes[GRID_TRAFFIC_ROWS][2];
	for (int i = 0; i < GRID_TRAFFIC_ROWS; i++) {
		struct comm *c = traffic_comm(g, i);
		const struct comm_stats *s = comm_stats(c);
		sums[i][0] = s->calls, sums[i][1] = s->bytes, sums[i][2] = s->bytes_between_nodes;
		sizes[i][0] = (uint32_t)comm_size(c), sizes[i][1] = (uint32_t)comm_n_nodes(c);
	}
	TRY(comm_allreduce(g->world, sums, 3 * GRID_TRAFFIC_ROWS, COMM_U64, COMM_SUM));
	TRY(comm_allreduce(g->world, sizes, 2 * GRID_TRAFFIC_ROWS, COMM_U32, COMM_MAX));
	for (int i = 0; i < GRID_TRAFFIC_ROWS; i++) {
		rows[i].axis = i == 0 ? "world" : axis_names[i - 1];
		rows[i].ranks = (int)sizes[i][0];
		rows[i].nodes = (int)sizes[i][1];
		rows[i].link = rows[i].ranks == 1 ? "self" : rows[i].nodes == 1 ? "memory" : "network";
		rows[i].stats = (struct comm_stats){ sums[i][0], sums[i][1], sums[i][2] };
	}
	return ERR_OK;
}

void grid_reset_traffic(struct grid *g)
{
	for (int i = 0; i < GRID_TRAFFIC_ROWS; i++)
		comm_reset_stats(traffic_comm(g, i));
}
