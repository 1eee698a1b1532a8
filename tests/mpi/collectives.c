/* Every case of tests/comm_cases.h over MPI, and what only MPI has: nodes that are found, a world that is this size. Run
 * under mpirun; the argument is the number of ranks that must be there. */
#include "tests/comm_cases.h"

#include <stdlib.h>

/* All ranks were started on one machine, so there is one node, whatever it is called. */
static enum err case_one_machine_is_one_node(struct comm *c)
{
	TRY(comm_mpi_find_nodes(c));
	WANT(comm_n_nodes(c) == 1);
	for (int r = 0; r < comm_size(c); r++)
		WANT(comm_node_of(c, r) == 0);
	WANT(!strcmp(comm_link(c), comm_size(c) == 1 ? "self" : "memory"));
	return ERR_OK;
}

static enum err case_bytes_are_counted(struct comm *c)
{
	int64_t x[3] = { 1, 2, 3 };
	comm_reset_stats(c);
	TRY(comm_allreduce(c, x, 3, COMM_I64, COMM_SUM));
	WANT(comm_stats(c)->calls == 1 && comm_stats(c)->bytes == (comm_size(c) == 1 ? 0 : 24));
	WANT(comm_stats(c)->bytes_between_nodes == 0);
	return ERR_OK;
}

/* A message of another size than the receiver names is an error, not a short read. */
static enum err case_a_short_message_is_noticed(struct comm *c)
{
	char data[8] = { 0 };
	if (comm_size(c) == 1)
		return ERR_OK;
	if (comm_rank(c) == 0) {
		TRY(comm_send(c, 1, 0, data, 4));
		TRY(comm_send(c, 1, 0, data, 8));
	} else if (comm_rank(c) == 1) {
		WANT(comm_recv(c, 0, 0, data, 8) == ERR_BUG && strstr(err_sentence(), "4 bytes, which expects 8"));
		WANT(comm_recv(c, 0, 0, data, 4) == ERR_WORK && strstr(err_sentence(), "recv"));
	}
	return ERR_OK;
}

static int run(struct comm *world, const struct comm_case *one)
{
	enum err e = comm_agree(world, one->run(world));
	if (comm_rank(world) == 0)
		printf("%s %s%s%s\n", e ? "FAILED" : "ok", one->name, e ? ": " : "", e ? err_sentence() : "");
	return e != ERR_OK;
}

int main(int argc, char **argv)
{
	static const struct comm_case mpi_cases[] = {
		COMM_CASE(one_machine_is_one_node), COMM_CASE(bytes_are_counted), COMM_CASE(a_short_message_is_noticed),
	};
	struct comm *world;
	int failed = 0, want = argc > 1 ? atoi(argv[1]) : 0;
	if (comm_mpi_start(&argc, &argv, &world)) {
		fprintf(stderr, "%s\n", err_sentence());
		return 1;
	}
	if (comm_size(world) != want || strncmp(comm_mpi_version(), "Open MPI ", 9)) {
		fprintf(stderr, "%d ranks under %s, want %d\n", comm_size(world), comm_mpi_version(), want);
		failed++;
	}
	for (int i = 0; i < N_COMM_CASES; i++)
		failed += run(world, &comm_cases[i]);
	for (size_t i = 0; i < sizeof mpi_cases / sizeof mpi_cases[0]; i++)
		failed += run(world, &mpi_cases[i]);
	comm_barrier(world);
	comm_mpi_finish(world);
	return failed != 0;
}
