/* Prints the time of an all-reduce of int64 sums by size, over MPI and through the window of comm_share_memory, in one run: the
 * two take turns, so that what else the machine does falls on both. Best and median of some trials, as seen by rank 0. For
 * mpirun -n 2 and more on one node. Argument: microseconds per trial (3000 otherwise). */
#include "base/clock.h"
#include "base/mem.h"
#include "parallel/comm.h"

#include <stdio.h>
#include <stdlib.h>

enum { LEAST_BYTES = 64, MOST_BYTES = 4 << 20, TRIALS = 41, WAYS = 2 };

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static enum err time_calls(struct comm *c, int64_t *data, size_t n, int calls, double *us)
{
	TRY(comm_barrier(c));
	TRY(comm_allreduce(c, data, 1, COMM_I64, COMM_SUM));
	long long start = clock_us();
	for (int i = 0; i < calls; i++)
		TRY(comm_allreduce(c, data, n, COMM_I64, COMM_SUM));
	*us = (double)(clock_us() - start) / calls;
	return ERR_OK;
}

/* As many calls as fill a trial, the same on all ranks. */
static enum err choose_calls(struct comm *c, int64_t *data, size_t n, int trial_us, int *calls)
{
	double us;
	TRY(time_calls(c, data, n, 10, &us));
	*calls = us > trial_us / 10.0 ? 10 : (int)(trial_us / us);
	return comm_bcast(c, calls, sizeof *calls, 0);
}

static enum err bench(struct comm *mpi, struct comm *window, int trial_us)
{
	static double us[WAYS][TRIALS];
	int64_t *data;
	TRY(MEM_NEW(MOST_BYTES / sizeof *data, int64_t, &data));
	if (comm_rank(mpi) == 0)
		printf("%d ranks, us\n%9s %22s %22s %7s %7s\n%9s %11s%11s %11s%11s %7s %7s\n", comm_size(mpi), "", "MPI", "window", "ratio",
		       "ratio", "bytes", "best", "median", "best", "median", "best", "median");
	for (size_t bytes = LEAST_BYTES; bytes <= MOST_BYTES; bytes *= 2) {
		struct comm *ways[WAYS] = { mpi, window };
		size_t n = bytes / sizeof *data;
		int calls[WAYS];
		for (int w = 0; w < WAYS; w++)
			TRY(choose_calls(ways[w], data, n, trial_us, &calls[w]));
		for (int t = 0; t < TRIALS; t++)
			for (int w = 0; w < WAYS; w++)
				TRY(time_calls(ways[w], data, n, calls[w], &us[w][t]));
		for (int w = 0; w < WAYS; w++)
			qsort(us[w], TRIALS, sizeof us[w][0], ascending);
		if (comm_rank(mpi) == 0)
			printf("%9zu %11.2f%11.2f %11.2f%11.2f %7.2f %7.2f\n", bytes, us[0][0], us[0][TRIALS / 2], us[1][0],
			       us[1][TRIALS / 2], us[1][0] / us[0][0], us[1][TRIALS / 2] / us[0][TRIALS / 2]);
	}
	mem_free(data);
	return ERR_OK;
}

static enum err run(struct comm *world, int trial_us)
{
	struct comm *window;
	TRY(comm_mpi_find_nodes(world));
	TRY(comm_split(world, 0, comm_rank(world), "window", &window));
	enum err e = comm_share_memory(window);
	if (!e)
		e = bench(world, window, trial_us);
	comm_destroy(window);
	return e;
}

int main(int argc, char **argv)
{
	struct comm *world;
	enum err e = comm_mpi_start(&argc, &argv, &world);
	if (!e)
		e = run(world, argc > 1 ? atoi(argv[1]) : 3000);
	if (e) {
		fprintf(stderr, "%s\n", err_sentence());
		comm_mpi_abort(err_exit_status(e));
	}
	comm_mpi_finish(world);
	return 0;
}
