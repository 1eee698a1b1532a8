/* labels: unit
 * Who started this process is judged by the environment alone; a start that MPI would answer with an abort, or with as
 * many worlds as there are tasks, is refused before MPI is asked. The environments are those of Open MPI 4.1.4 and
 * Slurm 22.05, cut down to the variables that matter. */
#include "parallel/comm.h"
#include "tests/test.h"

static const char *const names[] = {
	"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD", "SLURM_PROCID", "SLURM_STEP_ID",
	"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
};

/* "A=1 B=2": just these of the names above. */
static int started_with(const char *settings)
{
	char copy[256];
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		unsetenv(names[i]);
	snprintf(copy, sizeof copy, "%s", settings);
	for (char *one = strtok(copy, " "); one; one = strtok(NULL, " ")) {
		char *equals = strchr(one, '=');
		*equals = '\0';
		setenv(one, equals + 1, 1);
	}
	return comm_mpi_is_started_by_launcher();
}

TEST(the_environment_says_who_started_this_process)
{
	CU_ASSERT_FALSE(started_with(""));
	CU_ASSERT_TRUE(started_with("OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=0"));                       /* mpirun */
	CU_ASSERT_TRUE(started_with("PMIX_RANK=0 SLURM_PROCID=0 SLURM_STEP_ID=0"));               /* srun --mpi=pmix */
	CU_ASSERT_TRUE(started_with("PMI_RANK=0 PMI_FD=9 SLURM_PROCID=0 SLURM_STEP_ID=0"));       /* srun --mpi=pmi2 */
	CU_ASSERT_TRUE(started_with("SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4"));    /* srun -n4, no MPI */
	CU_ASSERT_TRUE(started_with("SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_NTASKS=4"));            /* the same, if all it says */
	CU_ASSERT_FALSE(started_with("SLURM_NTASKS=4"));                                          /* shell of salloc */
	CU_ASSERT_FALSE(started_with("SLURM_PROCID=0 SLURM_NTASKS=4"));                           /* batch script */
	CU_ASSERT_FALSE(started_with("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1"));   /* srun --pty bash */
	CU_ASSERT_FALSE(started_with("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=4"));   /* of salloc */
}

TEST(srun_without_pmix_is_refused)
{
	int argc = 0;
	char **argv = NULL;
	struct comm *world = NULL;
	CU_ASSERT_TRUE(started_with("SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4"));
	CHECK_ERR(comm_mpi_start(&argc, &argv, &world), FIT, "srun started 4 tasks");
	CHECK_ERR(comm_mpi_start(&argc, &argv, &world), FIT, "srun --mpi=pmix");
	CU_ASSERT_TRUE(started_with("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=2"));
	CHECK_ERR(comm_mpi_start(&argc, &argv, &world), FIT, "srun started 2 tasks");
	CU_ASSERT_PTR_NULL(world);
}

TEST(the_transport_has_a_name)
{
	CU_ASSERT_EQUAL(strncmp(comm_mpi_version(), "Open MPI ", 9), 0);
	CU_ASSERT_PTR_NULL(strchr(comm_mpi_version(), ','));
}

TEST_MAIN("comm_start", CASE(the_environment_says_who_started_this_process), CASE(srun_without_pmix_is_refused),
	  CASE(the_transport_has_a_name))
