/* labels: unit
 * Gathering a place: every rank learns the same machines and what each may use of them, cores and memory. */
#include "parallel/place.h"
#include "tests/test.h"

#include <stdlib.h>

struct seen { uint64_t limit[3]; int n_nodes, cores[3]; };

static enum err body(struct comm *world, void *arg)
{
	struct seen *seen = arg;
	struct place p;
	TRY(place_gather(world, &p));
	if (comm_rank(world) == 1) {
		seen->n_nodes = p.cluster.n_nodes;
		for (int i = 0; i < p.cluster.n_nodes && i < 3; i++)
			seen->limit[i] = p.cluster.nodes[i].memory_limit_bytes;
		for (int r = 0; r < 3; r++)
			seen->cores[r] = p.facts[r].n_cores;
	}
	place_free(&p);
	return comm_barrier(world);
}

static struct seen gather(const char *mem_per_node)
{
	struct seen seen = { 0 };
	if (mem_per_node)
		setenv("SLURM_MEM_PER_NODE", mem_per_node, 1);
	else
		unsetenv("SLURM_MEM_PER_NODE");
	CHECK_OK(comm_inproc_run(3, (const int[]){ 0, 0, 1 }, body, &seen));
	unsetenv("SLURM_MEM_PER_NODE");
	CU_ASSERT_EQUAL(seen.n_nodes, 2);
	return seen;
}

TEST(every_rank_has_cores)
{
	struct seen seen = gather(NULL);
	for (int r = 0; r < 3; r++)
		CU_ASSERT(seen.cores[r] > 0);
}

/* Slurm counts in MiB: 100 are 104857600 bytes. */
TEST(slurms_memory_limit_counts_on_every_node)
{
	struct seen seen = gather("100");
	CU_ASSERT_EQUAL(seen.limit[0], 104857600);
	CU_ASSERT_EQUAL(seen.limit[1], 104857600);
}

TEST(only_a_lower_limit_counts)
{
	static const char *const texts[] = { "0", "999999999999", "99999999999999999999", "", "10G", "-5", "all" };
	uint64_t plain = gather(NULL).limit[0];
	CU_ASSERT(plain > 104857600);
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		CU_ASSERT_EQUAL(gather(texts[i]).limit[0], plain);
}

TEST_MAIN("place", CASE(every_rank_has_cores), CASE(slurms_memory_limit_counts_on_every_node), CASE(only_a_lower_limit_counts))
