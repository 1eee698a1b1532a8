/* Who does what.
 *
 * In four passes, each over plain arrays:
 *   1. seats    each rank gets its cores (and a device); ranks are lined up by place: node by name, then cores
 *   2. groups   tp groups are packed, smallest domain first, each level taking what the one below left over
 *   3. axes     groups in order of place become (stage, replica); the position in the group is tp
 *   4. experts  the ranks of a stage in order are cut into expert groups
 *
 * Packing bottom-up wastes nothing: a domain of n ranks gets n/tp whole groups inside it, whatever its parts took, because
 * what the parts leave over is grouped again inside it. Rank numbers only order ranks that have the same cores, so a
 * shuffle of bound ranks changes who sits where, never what is done where. */
#include "parallel/member.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)MEMBER_MAX_CORES >= (int)MACHINE_MAX_CORES, "a machine's cores fit the set");
enum { WORDS = MEMBER_MAX_CORES / 64, LEVELS = 6 };

const char *const axis_names[AXIS_COUNT] = { "tp", "pp", "ep", "dp", "stage", "replica", "node" };

struct seat {
	struct member *m;
	int node_order;            /* of its node among all nodes by name */
	int domains[LEVELS];       /* number of its domain on each level of its node; -1: in none */
	int round;                 /* of ranks that take turns on too few cores; 0 else */
	int group;                 /* -1: not yet */
};

static int has(const uint64_t *set, int i) { return set[i / 64] >> (i % 64) & 1; }
static void put(uint64_t *set, int i) { set[i / 64] |= 1ull << (i % 64); }

static int count(const uint64_t *set)
{
	int n = 0;
	for (int i = 0; i < WORDS; i++)
		n += __builtin_popcountll(set[i]);
	return n;
}

/* Sets by their lowest core that differs: the one that has it comes first. */
static int compare_cores(const uint64_t *a, const uint64_t *b)
{
	for (int i = 0; i < WORDS; i++)
		if (a[i] != b[i]) {
			uint64_t lowest = (a[i] ^ b[i]) & -(a[i] ^ b[i]);
			return a[i] & lowest ? -1 : 1;
		}
	return 0;
}

/* --- 1. seats --- */

/* What a rank may run on: its own cores as far as the machine has them, else all allowed ones, else all. */
static void usable_cores(const struct machine *machine, const struct rank_facts *f, uint64_t *set)
{
	memset(set, 0, WORDS * sizeof *set);
	for (int i = 0; f->n_cores > 0 && i < machine->n_cores; i++)
		if (has(f->cores, i))
			put(set, i);
	for (int pass = 0; pass < 2 && !count(set); pass++)
		for (int i = 0; i < machine->n_cores; i++)
			if (pass || machine->cores[i].allowed)
				put(set, i);
}

/* Ranks that may use exactly the same cores share them: contiguous parts, as even as they go, in order of rank; one core
 * each in turn when there are more ranks than cores: then the seats go by rounds, so that neighbours, who will share a
 * layer, sit on different cores. seats: of one node, in order of rank. */
static enum err share_cores(struct seat *seats, int n)
{
	uint64_t (*whole)[WORDS];
	TRY(mem_alloc((size_t)n, sizeof *whole, "core sets", &whole));
	for (int i = 0; i < n; i++)
		memcpy(whole[i], seats[i].m->cores, sizeof whole[i]);
	for (int i = 0; i < n; i++) {
		int sharers = 0, mine = 0, n_cores = count(whole[i]), seen = 0;
		for (int k = 0; k < n; k++)
			if (!memcmp(whole[k], whole[i], sizeof whole[i])) {
				mine = k < i ? mine + 1 : mine;
				sharers++;
			}
		/* Part `mine` of n_cores in `sharers`: the first n_cores % sharers parts are longer by one. */
		int base = n_cores / sharers, longer = n_cores % sharers;
		int begin = base * mine + (mine < longer ? mine : longer), end = begin + base + (mine < longer);
		if (!base) {
			begin = mine % n_cores;
			end = begin + 1;
			seats[i].round = mine / n_cores;
		}
		memset(seats[i].m->cores, 0, sizeof seats[i].m->cores);
		for (int core = 0; core < MEMBER_MAX_CORES && seen < end; core++)
			if (has(whole[i], core) && seen++ >= begin)
				put(seats[i].m->cores, core);
	}
	mem_free(whole);
	return ERR_OK;
}

static void describe_cores(const struct machine *machine, struct member *m)
{
	m->first_core = -1;
	m->n_cores = count(m->cores);
	for (int i = 0; i < machine->n_cores; i++) {
		const struct machine_core *c = &machine->cores[i];
		if (!has(m->cores, i))
			continue;
		if (m->first_core < 0) {
			m->first_core = i;
			m->numa = c->numa;
			m->package = c->package;
		}
		if (c->numa != m->numa)
			m->numa = -1;
		if (c->package != m->package)
			m->package = -1;
	}
}

/* 0: same NUMA node, 1: same package, 2: elsewhere or unknown. */
static int device_distance(const struct machine *machine, const struct member *m, const struct machine_device *d)
{
	if (d->numa < 0)
		return 2;
	if (d->numa == m->numa)
		return 0;
	return machine->numa[d->numa].package == machine->cores[m->first_core].package ? 1 : 2;
}

/* The nearest device for each rank, one each as far as they go; nearer pairs first, then in order of seats and devices. */
static void share_devices(const struct machine *machine, const struct seat *seats, int n)
{
	int used[MACHINE_MAX_DEVICES] = { 0 };
	for (int distance = 0; distance <= 2; distance++)
		for (int i = 0; i < n; i++)
			for (int d = 0; d < machine->n_devices && seats[i].m->device < 0; d++)
				if (!used[d] && device_distance(machine, seats[i].m, &machine->devices[d]) <= distance) {
					seats[i].m->device = d;
					used[d] = 1;
				}
}

/* Smallest first. With devices an island is what keeps a group together, and inside it NUMA nodes and packages. */
static void find_domains(const struct machine *machine, struct seat *s)
{
	const struct member *m = s->m;
	const struct machine_device *d = m->device >= 0 ? &machine->devices[m->device] : NULL;
	int numa = d && d->numa >= 0 ? d->numa : m->numa;
	int package = d && d->numa >= 0 ? machine->numa[d->numa].package : m->package;
	int island = d ? d->island : -1;
	s->domains[0] = island >= 0 && numa >= 0 ? island * machine->n_numa + numa : -1;
	s->domains[1] = island >= 0 && package >= 0 ? island * machine->n_packages + package : -1;
	s->domains[2] = island;
	s->domains[3] = numa;
	s->domains[4] = package;
	s->domains[5] = 0;     /* the node */
}

static int by_place(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;
	if (x->node_order != y->node_order)
		return x->node_order < y->node_order ? -1 : 1;
	if (x->round != y->round)
		return x->round - y->round;
	int order = compare_cores(x->m->cores, y->m->cores);
	return order ? order : x->m->rank - y->m->rank;
}

struct named_node { const char *host; int node; };

static int by_name(const void *a, const void *b)
{
	const struct named_node *x = a, *y = b;
	int order = machine_name_compare(x->host, y->host);
	return order ? order : x->node - y->node;
}

/* order[node]: its place among all nodes by name. */
static enum err order_nodes(const struct cluster *c, int *order)
{
	struct named_node *named;
	TRY(MEM_NEW((size_t)c->n_nodes, struct named_node, &named));
	for (int i = 0; i < c->n_nodes; i++)
		named[i] = (struct named_node){ c->nodes[i].host, i };
	qsort(named, (size_t)c->n_nodes, sizeof *named, by_name);
	for (int i = 0; i < c->n_nodes; i++)
		order[named[i].node] = i;
	mem_free(named);
	return ERR_OK;
}

/* The end of the run of seats on the node of seats[begin]. */
static int node_end(const struct seat *seats, int n, int begin)
{
	int end = begin;
	while (end < n && seats[end].node_order == seats[begin].node_order)
		end++;
	return end;
}

/* Cores for everyone. seats are in order of node and rank. */
static enum err seat_cores(const struct cluster *c, struct seat *seats, int n)
{
	for (int begin = 0, end; begin < n; begin = end) {
		end = node_end(seats, n, begin);
		TRY(share_cores(seats + begin, end - begin));
		for (int i = begin; i < end; i++)
			describe_cores(&c->nodes[seats[i].m->node], seats[i].m);
	}
	return ERR_OK;
}

static int by_node_and_rank(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;
	return x->node_order != y->node_order ? x->node_order - y->node_order : x->m->rank - y->m->rank;
}

static enum err take_seats(const struct cluster *c, const struct rank_facts *facts, int use_devices, struct seat *seats,
			   int n)
{
	int *order;
	TRY(MEM_NEW((size_t)c->n_nodes, int, &order));
	enum err e = order_nodes(c, order);
	for (int i = 0; !e && i < n; i++) {
		struct member *m = seats[i].m;
		*m = (struct member){ .rank = i, .node = facts[i].node, .device = -1, .numa = -1, .package = -1 };
		seats[i].node_order = order[m->node];
		seats[i].group = -1;
		usable_cores(&c->nodes[m->node], &facts[i], m->cores);
	}
	mem_free(order);
	TRY(e);
	qsort(seats, (size_t)n, sizeof *seats, by_node_and_rank);
	TRY(seat_cores(c, seats, n));
	qsort(seats, (size_t)n, sizeof *seats, by_place);
	for (int begin = 0, end; begin < n; begin = end) {
		const struct machine *machine = &c->nodes[seats[begin].m->node];
		end = node_end(seats, n, begin);
		if (use_devices)
			share_devices(machine, seats + begin, end - begin);
		for (int i = begin; i < end; i++)
			find_domains(machine, &seats[i]);
	}
	return ERR_OK;
}

/* --- 2. groups --- */

/* Makes groups of tp of the seats that are free and in one domain of this level (NULL: any), numbering them from *next. */
static void pack_domain(struct seat *seats, int n, int level, int domain, int tp, int *next)
{
	int free_seats = 0, taken = 0;
	for (int i = 0; i < n; i++)
		free_seats += seats[i].group < 0 && (level < 0 || seats[i].domains[level] == domain);
	for (int i = 0; i < n && taken < free_seats / tp * tp; i++)
		if (seats[i].group < 0 && (level < 0 || seats[i].domains[level] == domain))
			seats[i].group = *next + taken++ / tp;
	*next += free_seats / tp;
}

static void pack_node(struct seat *seats, int n, int tp, int *next)
{
	for (int level = 0; level < LEVELS; level++)
		for (int i = 0; i < n; i++) {
			int domain = seats[i].domains[level], first = domain >= 0;
			for (int k = 0; k < i && first; k++)
				first = seats[k].domains[level] != domain;
			if (first)
				pack_domain(seats, n, level, domain, tp, next);
		}
}

static enum err pack(const struct cluster *c, const struct layout *l, struct seat *seats, int n)
{
	int next = 0;
	for (int begin = 0, end; begin < n; begin = end) {
		end = node_end(seats, n, begin);
		if ((end - begin) % l->tp && !l->tp_across_nodes)
			return ERR(FIT, "node %s has %d rank%s, so a tp group of %d would cross nodes; give every node a "
				   "multiple of %d ranks, choose a tp that divides %d, or set parallel.tp_across_nodes",
				   c->nodes[seats[begin].m->node].host, end - begin, end - begin == 1 ? "" : "s", l->tp, l->tp,
				   end - begin);
		pack_node(seats + begin, end - begin, l->tp, &next);
	}
	pack_domain(seats, n, -1, 0, l->tp, &next);   /* what the nodes left over */
	return ERR_OK;
}

/* --- 3. axes --- */

/* Groups are numbered anew by the place of their first seat; then stage s holds groups s*dp .. s*dp+dp-1. */
static enum err place_groups(const struct layout *l, struct seat *seats, int n)
{
	int *order, *filled, next = 0;
	size_t n_groups = (size_t)(n / l->tp);
	TRY(MEM_NEW(2 * n_groups, int, &order));
	filled = order + n_groups;
	for (int i = 0; i < n; i++) {
		int g = seats[i].group;
		if (!filled[g])
			order[g] = next++;
		seats[i].m->tp = filled[g]++;
		seats[i].m->pp = order[g] / l->dp;
		seats[i].m->dp = order[g] % l->dp;
	}
	mem_free(order);
	return ERR_OK;
}

/* --- 4. experts --- */

static int by_stage_replica(const void *a, const void *b)
{
	const struct member *x = ((const struct seat *)a)->m, *y = ((const struct seat *)b)->m;
	if (x->pp != y->pp)
		return x->pp - y->pp;
	return x->dp != y->dp ? x->dp - y->dp : x->tp - y->tp;
}

static int by_stage_node(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;
	if (x->m->pp != y->m->pp)
		return x->m->pp - y->m->pp;
	return x->node_order != y->node_order ? x->node_order - y->node_order : by_stage_replica(a, b);
}

/* The order within a stage is node, replica, tp. The two orders differ only when tp groups cross nodes; expert groups
 * that fit into tp groups then stay inside them, because no dispatch happens between those. */
static void place_experts(const struct layout *l, struct seat *seats, int n)
{
	int stage_ranks = l->dp * l->tp, group_ranks = l->ep * l->etp;
	qsort(seats, (size_t)n, sizeof *seats, layout_experts_inside_tp(l) ? by_stage_replica : by_stage_node);
	for (int i = 0; i < n; i++) {
		struct member *m = seats[i].m;
		int at = i % stage_ranks;
		m->expert_group = at / group_ranks;
		m->ep = at % group_ranks / l->etp;
		m->etp = at % group_ranks % l->etp;
	}
}

static enum err check_arguments(const struct cluster *c, const struct rank_facts *facts, int n, const struct layout *l)
{
	if (l->tp < 1 || l->pp < 1 || l->dp < 1 || l->ep < 1 || l->etp < 1 ||
	    (long long)l->tp * l->pp * l->dp != n || (long long)l->dp * l->tp % ((long long)l->ep * l->etp))
		return ERR(BUG, "a layout of tp %d, pp %d, dp %d, ep %d, etp %d was given to %d ranks", l->tp, l->pp, l->dp,
			   l->ep, l->etp, n);
	for (int i = 0; i < n; i++)
		if (facts[i].node < 0 || facts[i].node >= c->n_nodes)
			return ERR(BUG, "rank %d is on node %d of %d", i, facts[i].node, c->n_nodes);
	return ERR_OK;
}

enum err member_assign(const struct cluster *c, const struct rank_facts *facts, int n_ranks, const struct layout *l,
		       int use_devices, struct member *members)
{
	struct seat *seats;
	enum err e;
	TRY(check_arguments(c, facts, n_ranks, l));
	TRY(MEM_NEW((size_t)n_ranks, struct seat, &seats));
	for (int i = 0; i < n_ranks; i++)
		seats[i].m = &members[i];
	TRY_OR(free_seats, e, take_seats(c, facts, use_devices, seats, n_ranks));
	TRY_OR(free_seats, e, pack(c, l, seats, n_ranks));
	TRY_OR(free_seats, e, place_groups(l, seats, n_ranks));
	place_experts(l, seats, n_ranks);
free_seats:
	mem_free(seats);
	return e;
}

struct colour_key member_colour(const struct member *m, const struct layout *l, enum axis axis)
{
	int n_expert_groups = l->dp * l->tp / (l->ep * l->etp);
	switch (axis) {
	case AXIS_TP: return (struct colour_key){ m->pp * l->dp + m->dp, m->tp };
	case AXIS_PP: return (struct colour_key){ m->dp * l->tp + m->tp, m->pp };
	case AXIS_EP: return (struct colour_key){ m->pp * n_expert_groups + m->expert_group, m->ep * l->etp + m->etp };
	case AXIS_DP: return (struct colour_key){ m->pp * l->tp + m->tp, m->dp };
	case AXIS_STAGE: return (struct colour_key){ m->pp, m->dp * l->tp + m->tp };
	case AXIS_REPLICA: return (struct colour_key){ m->dp, m->pp * l->tp + m->tp };
	case AXIS_NODE: return (struct colour_key){ m->node, (m->pp * l->dp + m->dp) * l->tp + m->tp };
	case AXIS_COUNT: break;
	}
	return (struct colour_key){ -1, 0 };
}
