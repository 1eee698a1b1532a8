/* usage: lost load|reduce|window|compute|none|wait [VICTIM]
 * A job in which one rank kills itself where the first word says, for lost.sh. "none" ends well, with the ranks ending at
 * different times; "wait" waits to be ended from outside. Says "ready" once all ranks are watched. */
#include "base/clock.h"
#include "parallel/comm.h"
#include "parallel/watch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KILLED_AT_STEP = 17, STEPS = 2000 };

static enum err load(struct comm *world, int dies)
{
	watch_phase("load");
	TRY(comm_barrier(world));
	if (dies)
		raise(SIGKILL);
	return comm_barrier(world);   /* the others wait for the one that never comes */
}

static enum err reduce(struct comm *world, int dies)
{
	int64_t sums[300] = { 0 };
	for (int step = 0; step < STEPS; step++) {
		watch_phase("step %d", step);
		if (dies && step == KILLED_AT_STEP)
			raise(SIGKILL);
		TRY(comm_allreduce(world, sums, 300, COMM_I64, COMM_SUM));
	}
	return ERR_OK;
}

/* Nobody is inside MPI: only the watchdogs can notice. */
static enum err compute(struct comm *world, int dies)
{
	watch_phase("a long step");
	TRY(comm_barrier(world));
	if (dies)
		raise(SIGKILL);
	for (volatile unsigned long i = 0;; i = i + 1)
		;
}

static enum err wait_for_the_end(struct comm *world)
{
	watch_phase("a long wait");
	TRY(comm_barrier(world));
	for (;;)
		pause();
}

static enum err run(struct comm *world, const char *what, int victim)
{
	struct comm *node;
	char host[64] = "";
	int rank = comm_rank(world);
	gethostname(host, sizeof host - 1);
	TRY(comm_mpi_find_nodes(world));
	TRY(comm_split(world, comm_node_of(world, rank), rank, "node", &node));
	TRY(watch_start(node, rank, host));
	comm_destroy(node);
	TRY(comm_barrier(world));
	if (rank == 0) {
		printf("ready\n");
		fflush(stdout);
	}
	if (!strcmp(what, "load"))
		return load(world, rank == victim);
	if (!strcmp(what, "compute"))
		return compute(world, rank == victim);
	if (!strcmp(what, "wait"))
		return wait_for_the_end(world);
	if (!strcmp(what, "window")) {   /* nobody is inside MPI */
		TRY(comm_share_memory(world));
		if (!comm_shares_memory(world))
			return ERR(FIT, "the ranks share no memory");
	}
	return reduce(world, strcmp(what, "none") && rank == victim);
}

int main(int argc, char **argv)
{
	struct comm *world;
	watch_block_signals();
	if (comm_mpi_start(&argc, &argv, &world)) {
		fprintf(stderr, "%s\n", err_sentence());
		return 1;
	}
	int rank = comm_rank(world);
	enum err e = run(world, argc > 1 ? argv[1] : "none", argc > 2 ? atoi(argv[2]) : 2);
	if (e)
		fprintf(stderr, "rank %d: %s\n", rank, err_sentence());
	watch_finish();
	comm_barrier(world);
	comm_mpi_finish(world);
	if (rank != 0)
		clock_sleep_us(300000LL * (rank % 2));   /* others are gone before the watchdogs stop */
	watch_stop();
	return e ? 1 : 0;
}
