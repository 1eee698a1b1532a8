/* labels: unit
 * Membership on every machine there is: under any shuffle of the ranks the same cores do the same work, and no tp group
 * leaves a NUMA node, an island, a package or a node while one more would fit. How many fit is counted here on its own:
 * a domain that holds n ranks has room for n / tp groups. */
#include "base/mem.h"
#include "parallel/member.h"
#include "tests/test.h"

#include <dirent.h>

enum { SHUFFLES = 50, MAX_RANKS = 1024 };
#define MACHINES SOURCE_DIR "/../shared/topologies/hwloc"

static struct rank_facts facts[MAX_RANKS], shuffled[MAX_RANKS];
static struct member members[MAX_RANKS];
static uint64_t first_cores[MAX_RANKS][MEMBER_MAX_CORES / 64];
static int first_nodes[MAX_RANKS], first_devices[MAX_RANKS], first_experts[MAX_RANKS];

static uint32_t random_state = 1;
static int random_below(int n)
{
	random_state = random_state * 1664525u + 1013904223u;   /* Numerical Recipes, section 7.1 */
	return (int)((random_state >> 8) % (uint32_t)n);
}

static int coordinate(const struct layout *l, const struct member *m) { return (m->pp * l->dp + m->dp) * l->tp + m->tp; }

/* per_node ranks on each node, each bound to an even share of its cores. */
static int bind_ranks(const struct cluster *c, int per_node)
{
	int n = 0;
	memset(facts, 0, sizeof facts);
	for (int node = 0; node < c->n_nodes; node++)
		for (int i = 0; i < per_node; i++, n++) {
			int cores = c->nodes[node].n_cores;
			int begin = cores * i / per_node, end = cores * (i + 1) / per_node;
			facts[n].node = node;
			facts[n].bound = 1;
			if (end == begin)
				end++;
			for (int k = begin; k < end; k++, facts[n].n_cores++)
				facts[n].cores[k / 64] |= 1ull << (k % 64);
		}
	return n;
}

enum domain { DOMAIN_NUMA, DOMAIN_PACKAGE, DOMAIN_ISLAND_PART, DOMAIN_ISLAND, DOMAIN_NODE, DOMAINS };

/* The domain of a member as a number of its own in the cluster, -1: none. */
static int domain_of(const struct cluster *c, const struct member *m, enum domain d)
{
	const struct machine *machine = &c->nodes[m->node];
	int at = d == DOMAIN_NUMA ? m->numa : d == DOMAIN_PACKAGE ? m->package : 0;
	if (d == DOMAIN_ISLAND || d == DOMAIN_ISLAND_PART)
		at = m->device < 0 ? -1 : machine->devices[m->device].island;
	if (d == DOMAIN_ISLAND_PART && at >= 0)   /* of one NUMA node */
		at = machine->devices[m->device].numa < 0 ? -1 : at * 16 + machine->devices[m->device].numa;
	return at < 0 ? -1 : m->node * 1024 + at;
}

/* Groups inside one domain, and how many could be. */
static void count_groups(const struct cluster *c, const struct layout *l, int n, enum domain d, int *inside, int *possible)
{
	static int domains[MAX_RANKS], domain_ranks[16 * 1024];
	*inside = *possible = 0;
	memset(domain_ranks, 0, sizeof domain_ranks);
	for (int i = 0; i < n; i++) {
		int domain = domain_of(c, &members[i], d);
		domains[coordinate(l, &members[i])] = domain;
		if (domain >= 0 && ++domain_ranks[domain] % l->tp == 0)
			++*possible;
	}
	for (int g = 0; g < n; g += l->tp) {
		int one = domains[g] >= 0;
		for (int i = 1; i < l->tp; i++)
			one &= domains[g + i] == domains[g];
		*inside += one;
	}
}

static void check_axes(const struct layout *l, int n)
{
	static int seen[MAX_RANKS], group_size[AXIS_COUNT][MAX_RANKS];
	static char keys[AXIS_COUNT][MAX_RANKS][MAX_RANKS / 8];
	const int sizes[] = { [AXIS_TP] = l->tp, [AXIS_PP] = l->pp, [AXIS_EP] = l->ep * l->etp, [AXIS_DP] = l->dp,
			      [AXIS_STAGE] = l->dp * l->tp, [AXIS_REPLICA] = l->tp * l->pp };
	memset(seen, 0, sizeof seen);
	memset(group_size, 0, sizeof group_size);
	memset(keys, 0, sizeof keys);
	for (int i = 0; i < n; i++) {
		const struct member *m = &members[i];
		CU_ASSERT_EQUAL_FATAL(m->rank, i);
		CU_ASSERT_FATAL(m->tp >= 0 && m->tp < l->tp && m->pp >= 0 && m->pp < l->pp && m->dp >= 0 && m->dp < l->dp);
		CU_ASSERT_EQUAL_FATAL(seen[coordinate(l, m)]++, 0);
		for (int axis = 0; axis < AXIS_NODE; axis++) {
			struct colour_key ck = member_colour(m, l, (enum axis)axis);
			CU_ASSERT_FATAL(ck.colour >= 0 && ck.colour < n && ck.key >= 0 && ck.key < sizes[axis]);
			group_size[axis][ck.colour]++;
			CU_ASSERT_FATAL(!(keys[axis][ck.colour][ck.key / 8] >> (ck.key % 8) & 1));
			keys[axis][ck.colour][ck.key / 8] = (char)(keys[axis][ck.colour][ck.key / 8] | 1 << (ck.key % 8));
		}
		CU_ASSERT_EQUAL_FATAL(member_colour(m, l, AXIS_NODE).colour, m->node);
	}
	for (int axis = 0; axis < AXIS_NODE; axis++)
		for (int i = 0; i < n; i++)
			CU_ASSERT_FATAL(group_size[axis][i] == 0 || group_size[axis][i] == sizes[axis]);
}

static void check_same_as_first(const struct layout *l, int n, int shuffle)
{
	for (int i = 0; i < n; i++) {
		const struct member *m = &members[i];
		int at = coordinate(l, m), expert = (m->expert_group * l->ep + m->ep) * l->etp + m->etp;
		if (!shuffle) {
			memcpy(first_cores[at], m->cores, sizeof m->cores);
			first_nodes[at] = m->node;
			first_devices[at] = m->device;
			first_experts[at] = expert;
		}
		CU_ASSERT_EQUAL_FATAL(memcmp(first_cores[at], m->cores, sizeof m->cores), 0);
		CU_ASSERT_EQUAL_FATAL(first_nodes[at], m->node);
		CU_ASSERT_EQUAL_FATAL(first_devices[at], m->device);
		CU_ASSERT_EQUAL_FATAL(first_experts[at], expert);
	}
}

static int every_island_is_one_device(const struct machine *m)
{
	for (int i = 0; i < m->n_devices; i++)
		if (m->devices[i].island != i)
			return 0;
	return 1;
}

static int checked;

static void check_layout(const struct cluster *c, int n, const struct layout *l, int use_devices)
{
	int order[MAX_RANKS];
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int s = 0; s < SHUFFLES; s++) {
		for (int i = n - 1; s && i > 0; i--) {   /* Fisher and Yates */
			int k = random_below(i + 1), t = order[i];
			order[i] = order[k];
			order[k] = t;
		}
		for (int i = 0; i < n; i++)
			shuffled[i] = facts[order[i]];
		enum err e = member_assign(c, shuffled, n, l, use_devices, members);
		CU_ASSERT_EQUAL_FATAL(e, ERR_OK);
		check_same_as_first(l, n, s);
		if (s)
			continue;   /* the rest follows from being the same */
		check_axes(l, n);
		for (int d = 0; d < DOMAINS; d++) {
			int inside, possible;
			if (use_devices && !every_island_is_one_device(&c->nodes[0]) && (d == DOMAIN_NUMA || d == DOMAIN_PACKAGE))
				continue;   /* islands go first there */
			count_groups(c, l, n, (enum domain)d, &inside, &possible);
			CU_ASSERT_EQUAL(inside, possible);
			if (inside != possible)
				fprintf(stderr, "%s, %d ranks, tp %d, domain %d: %d groups inside, %d possible\n", c->nodes[0].source, n,
					l->tp, d, inside, possible);
		}
		checked++;
	}
}

/* Every tp that divides the ranks of a node, with stages and replicas and experts in some of the ways there are. */
static void check_layouts(const struct cluster *c, int n, int per_node, int use_devices)
{
	for (int tp = 1; tp <= per_node; tp++) {
		if (per_node % tp)
			continue;
		int groups = n / tp;
		struct layout l = { .tp = tp, .pp = groups, .dp = 1, .ep = tp, .etp = 1 };
		check_layout(c, n, &l, use_devices);
		l = (struct layout){ .tp = tp, .pp = 1, .dp = groups, .ep = n % 2 ? n : n / 2, .etp = n % 2 ? 1 : 2 };
		check_layout(c, n, &l, use_devices);
		if (groups % 3 == 0) {
			l = (struct layout){ .tp = tp, .pp = 3, .dp = groups / 3, .ep = 1, .etp = 1 };
			check_layout(c, n, &l, use_devices);
		}
	}
}

static void check_machine(const char *spec)
{
	static const int per_node[] = { 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 40, 64 };
	char three[1200];
	struct cluster c;
	snprintf(three, sizeof three, "3 x %s", spec);
	enum err e = cluster_read(three, &c);
	if (e)
		fprintf(stderr, "%s: %s\n", spec, err_sentence());
	CU_ASSERT_EQUAL_FATAL(e, ERR_OK);
	for (size_t i = 0; i < sizeof per_node / sizeof per_node[0]; i++)
		if (per_node[i] <= c.nodes[0].n_cores)
			check_layouts(&c, bind_ranks(&c, per_node[i]), per_node[i], 0);
	int devices = c.nodes[0].n_devices;
	if (devices)
		check_layouts(&c, bind_ranks(&c, devices), devices, 1);
	cluster_free(&c);
}

TEST(described_machines_keep_groups_together_under_50_shuffles)
{
	static const char *const specs[] = {
		"pack:1 core:2", "pack:2 numa:4 core:8", "pack:2 numa:1 core:7", "pack:1 numa:3 core:5", "pack:2 l3:2 core:4",
		"pack:2 core:28 gpu:8x80GiB link:450", "pack:2 numa:2 core:8 gpu:4x96GiB", "pack:4 numa:1 core:6 gpu:4x128GiB link:100",
		"pack:4 numa:2 core:10",   /* 20 ranks: 5 a package, so groups of 4 fit four times, in order they would twice */
		"numa:3 core:16 gpu:16x80GiB link:450",   /* 6 5 5 devices: groups of 4 fit thrice, in order they would twice */
	};
	checked = 0;
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
		check_machine(specs[i]);
	CU_ASSERT(checked > 200);
}

TEST(real_machines_keep_groups_together_under_50_shuffles)
{
	DIR *dir = opendir(MACHINES);
	if (!dir) {
		printf("skipped: %s is not there ... ", MACHINES);
		return;
	}
	checked = 0;
	for (struct dirent *entry; (entry = readdir(dir));) {
		char path[1100];
		snprintf(path, sizeof path, "%s/%s", MACHINES, entry->d_name);
		if (strstr(entry->d_name, ".xml"))
			check_machine(path);
	}
	closedir(dir);
	CU_ASSERT(checked > 200);
}

TEST(stages_span_nodes_and_replicas_are_neighbours)
{
	struct cluster c;
	struct layout l = { .tp = 2, .pp = 2, .dp = 2, .ep = 2, .etp = 2 };
	CHECK_OK(cluster_read("2 x pack:1 core:4", &c));
	int n = bind_ranks(&c, 4);
	CHECK_OK(member_assign(&c, facts, n, &l, 0, members));
	for (int i = 0; i < n; i++) {
		CU_ASSERT_EQUAL(members[i].pp, i / 4);
		CU_ASSERT_EQUAL(members[i].dp, i / 2 % 2);
		CU_ASSERT_EQUAL(members[i].tp, i % 2);
		CU_ASSERT_EQUAL(members[i].ep, i / 2 % 2);      /* groups of ep * etp = 4: position p is ep p / 2, etp p % 2 */
		CU_ASSERT_EQUAL(members[i].etp, i % 2);
		CU_ASSERT_EQUAL(members[i].expert_group, 0);
		CU_ASSERT_EQUAL(members[i].first_core, i % 4);
		CU_ASSERT_EQUAL(members[i].n_cores, 1);
	}
	cluster_free(&c);
}

TEST(nodes_are_ordered_by_name_with_numbers_as_numbers)
{
	struct cluster c;
	struct layout l = { .tp = 1, .pp = 3, .dp = 1, .ep = 1, .etp = 1 };
	static const char *const hosts[] = { "n10", "n9", "n2" };
	CHECK_OK(cluster_read("3 x core:1", &c));
	for (int i = 0; i < 3; i++)
		strcpy(c.nodes[i].host, hosts[i]);
	CHECK_OK(member_assign(&c, facts, bind_ranks(&c, 1), &l, 0, members));
	CU_ASSERT_EQUAL(members[0].pp, 2);
	CU_ASSERT_EQUAL(members[1].pp, 1);
	CU_ASSERT_EQUAL(members[2].pp, 0);
	cluster_free(&c);
}

/* Three ranks on one node, one on the other. */
TEST(unequal_nodes_are_refused_or_crossed_as_the_layout_says)
{
	struct cluster c;
	struct layout l = { .tp = 2, .pp = 2, .dp = 1, .ep = 1, .etp = 1 };
	CHECK_OK(cluster_read("2 x pack:1 core:4", &c));
	memset(facts, 0, sizeof facts);
	facts[3].node = 1;
	CHECK_ERR(member_assign(&c, facts, 4, &l, 0, members), FIT, "node node-0 has 3 ranks, so a tp group of 2 would cross nodes");
	l.tp_across_nodes = 1;
	CHECK_OK(member_assign(&c, facts, 4, &l, 0, members));
	int inside, possible;
	count_groups(&c, &l, 4, DOMAIN_NODE, &inside, &possible);
	CU_ASSERT_EQUAL(inside, 1);
	CU_ASSERT_EQUAL(possible, 1);
	check_axes(&l, 4);
	l = (struct layout){ .tp = 1, .pp = 4, .dp = 1, .ep = 1, .etp = 1 };
	CHECK_OK(member_assign(&c, facts, 4, &l, 0, members));
	CU_ASSERT_EQUAL(members[3].pp, 3);
	cluster_free(&c);
}

TEST(unbound_ranks_share_the_allowed_cores)
{
	/* Cores 1-7 of 8 are allowed; three ranks: 3 2 2. */
	static const int first[] = { 1, 4, 6 }, n_cores[] = { 3, 2, 2 };
	struct cluster c;
	struct layout l = { .tp = 1, .pp = 3, .dp = 1, .ep = 1, .etp = 1 };
	CHECK_OK(cluster_read("pack:1 core:8", &c));
	c.nodes[0].cores[0].allowed = 0;
	memset(facts, 0, sizeof facts);
	CHECK_OK(member_assign(&c, facts, 3, &l, 0, members));
	for (int i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(members[i].first_core, first[i]);
		CU_ASSERT_EQUAL(members[i].n_cores, n_cores[i]);
	}
	l.pp = 16;   /* more ranks than cores: rank i on allowed core i % 7 */
	CHECK_OK(member_assign(&c, facts, 16, &l, 0, members));
	for (int i = 0; i < 16; i++) {
		CU_ASSERT_EQUAL(members[i].first_core, 1 + i % 7);
		CU_ASSERT_EQUAL(members[i].n_cores, 1);
	}
	cluster_free(&c);
}

TEST(ranks_that_outnumber_cores_share_a_layer_from_different_cores)
{
	struct cluster c;
	struct layout l = { .tp = 2, .pp = 3, .dp = 1, .ep = 1, .etp = 1 };
	CHECK_OK(cluster_read("pack:1 core:2", &c));
	memset(facts, 0, sizeof facts);
	CHECK_OK(member_assign(&c, facts, 6, &l, 0, members));
	for (int i = 0; i < 6; i++)
		for (int k = 0; k < i; k++)
			if (members[i].pp == members[k].pp)
				CU_ASSERT_NOT_EQUAL(members[i].first_core, members[k].first_core);
	cluster_free(&c);
}

TEST(ranks_bound_to_the_same_package_share_it)
{
	struct cluster c;
	struct layout l = { .tp = 2, .pp = 2, .dp = 1, .ep = 1, .etp = 1 };
	CHECK_OK(cluster_read("pack:2 core:4", &c));
	memset(facts, 0, sizeof facts);
	for (int i = 0; i < 4; i++)   /* ranks 0 and 2 on the first package, 1 and 3 on the second, as --map-by socket does */
		facts[i] = (struct rank_facts){ .n_cores = 4, .bound = 1, .cores = { i % 2 ? 0xf0 : 0x0f } };
	CHECK_OK(member_assign(&c, facts, 4, &l, 0, members));
	static const int first[] = { 0, 4, 2, 6 }, pp[] = { 0, 1, 0, 1 };
	for (int i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(members[i].first_core, first[i]);
		CU_ASSERT_EQUAL(members[i].n_cores, 2);
		CU_ASSERT_EQUAL(members[i].pp, pp[i]);
		CU_ASSERT_EQUAL(members[i].tp, i / 2);
	}
	cluster_free(&c);
}

TEST(devices_go_to_the_nearest_ranks_one_each)
{
	struct cluster c;
	struct layout l = { .tp = 2, .pp = 3, .dp = 1, .ep = 1, .etp = 1 };
	CHECK_OK(cluster_read("pack:2 core:3 gpu:4x80GiB", &c));   /* devices 0 1 near cores 0-2, 2 3 near cores 3-5 */
	CHECK_OK(member_assign(&c, facts, bind_ranks(&c, 6), &l, 1, members));
	static const int device[] = { 0, 1, -1, 2, 3, -1 };
	for (int i = 0; i < 6; i++)
		CU_ASSERT_EQUAL(members[i].device, device[i]);
	CU_ASSERT_EQUAL(members[0].pp, members[1].pp);
	CU_ASSERT_EQUAL(members[3].pp, members[4].pp);
	cluster_free(&c);
}

/* IBM S822LC: GPUs 0 1 and 2 3 are islands, one on each processor. Four ranks, tp 2, listed crosswise. */
TEST(tp_pairs_are_the_islands)
{
	struct cluster c;
	struct layout l = { .tp = 2, .pp = 1, .dp = 2, .ep = 1, .etp = 1 };
	if (cluster_read(MACHINES "/ibm-power8-4xP100.xml", &c)) {
		printf("skipped: %s ... ", err_sentence());
		return;
	}
	int n = bind_ranks(&c, 4);
	struct rank_facts t = facts[1];
	facts[1] = facts[2];
	facts[2] = t;
	CHECK_OK(member_assign(&c, facts, n, &l, 1, members));
	CU_ASSERT(members[0].dp == 0 && members[2].dp == 0 && members[1].dp == 1 && members[3].dp == 1);
	CU_ASSERT(members[0].device == 0 && members[2].device == 1 && members[1].device == 2 && members[3].device == 3);
	cluster_free(&c);
}

/* Islands that do not follow the order of the cores: the links decide, not the place. */
TEST(tp_follows_links_across_the_order_of_cores)
{
	struct cluster c;
	struct layout l = { .tp = 2, .pp = 1, .dp = 2, .ep = 1, .etp = 1 };
	CHECK_OK(cluster_read("pack:1 core:4 gpu:4x80GiB", &c));
	for (int i = 0; i < 4; i++)
		c.nodes[0].devices[i].island = i % 2;
	CHECK_OK(member_assign(&c, facts, bind_ranks(&c, 4), &l, 1, members));
	for (int i = 0; i < 4; i++)
		CU_ASSERT(members[i].device == i && members[i].dp == i % 2 && members[i].tp == i / 2);
	CHECK_OK(member_assign(&c, facts, 4, &l, 0, members));   /* without devices: neighbours */
	for (int i = 0; i < 4; i++)
		CU_ASSERT(members[i].device == -1 && members[i].dp == i / 2 && members[i].tp == i % 2);
	cluster_free(&c);
}

/* Nodes of 3, 2 and 1 ranks, tp 2: ranks 0 1, 3 4 and, across nodes, 2 5. By place they are replicas 0, 2 and 1. Experts
 * that fit into a tp group stay in it; larger expert groups go by node. */
TEST(experts_inside_tp_stay_there_when_tp_crosses_nodes)
{
	struct cluster c;
	struct layout l = { .tp = 2, .pp = 1, .dp = 3, .ep = 2, .etp = 1, .tp_across_nodes = 1 };
	static const int nodes[] = { 0, 0, 0, 1, 1, 2 }, replicas[] = { 0, 0, 1, 2, 2, 1 };
	CHECK_OK(cluster_read("core:3 + core:2 + core:1", &c));
	memset(facts, 0, sizeof facts);
	for (int i = 0; i < 6; i++)
		facts[i].node = nodes[i];
	CHECK_OK(member_assign(&c, facts, 6, &l, 0, members));
	for (int i = 0; i < 6; i++)
		CU_ASSERT(members[i].dp == replicas[i] && members[i].expert_group == members[i].dp && members[i].ep == members[i].tp);
	l.ep = 6;
	CHECK_OK(member_assign(&c, facts, 6, &l, 0, members));
	for (int i = 0; i < 6; i++)
		CU_ASSERT_EQUAL(members[i].ep, i);
	cluster_free(&c);
}

TEST(wrong_arguments_and_lost_memory_are_errors)
{
	struct cluster c;
	struct layout l = { .tp = 2, .pp = 2, .dp = 1, .ep = 1, .etp = 1 };
	CHECK_OK(cluster_read("pack:1 core:4", &c));
	int n = bind_ranks(&c, 4);
	CHECK_ERR(member_assign(&c, facts, 3, &l, 0, members), BUG, "was given to 3 ranks");
	facts[2].node = 1;
	CHECK_ERR(member_assign(&c, facts, n, &l, 0, members), BUG, "rank 2 is on node 1 of 1");
	facts[2].node = 0;
	int failures = 0;
	for (int at = 1; at < 20; at++) {
		mem_fail_at(at);
		enum err e = member_assign(&c, facts, n, &l, 0, members);
		CU_ASSERT(e == ERR_OK || e == ERR_MEMORY);
		failures += e == ERR_MEMORY;
	}
	mem_fail_at(0);
	CU_ASSERT(failures >= 5 && failures < 19);
	cluster_free(&c);
}

TEST_MAIN("member", CASE(described_machines_keep_groups_together_under_50_shuffles),
	  CASE(real_machines_keep_groups_together_under_50_shuffles), CASE(stages_span_nodes_and_replicas_are_neighbours),
	  CASE(nodes_are_ordered_by_name_with_numbers_as_numbers), CASE(unequal_nodes_are_refused_or_crossed_as_the_layout_says),
	  CASE(unbound_ranks_share_the_allowed_cores), CASE(ranks_that_outnumber_cores_share_a_layer_from_different_cores),
	  CASE(ranks_bound_to_the_same_package_share_it),
	  CASE(devices_go_to_the_nearest_ranks_one_each), CASE(tp_pairs_are_the_islands),
	  CASE(tp_follows_links_across_the_order_of_cores),
	  CASE(experts_inside_tp_stay_there_when_tp_crosses_nodes), CASE(wrong_arguments_and_lost_memory_are_errors))
