/* usage: collectives NODE,NODE,... [full]
 * Every case of tests/comm_cases.h over MPI, then through shared memory, and what only MPI has: which ranks share a node. The
 * first argument says for each rank that was started on which node it is, nodes numbered by their lowest rank; the second
 * that /dev/shm has no room. */
#include "tests/comm_cases.h"

#include <stdlib.h>

static int want_node[CASE_MOST_RANKS], n_ranks, n_nodes, is_full;

static enum err case_nodes_are_found(struct comm *c)
{
	struct comm *node;
	TRY(comm_mpi_find_nodes(c));
	WANT(comm_size(c) == n_ranks);
	int here = 0, me = want_node[comm_rank(c)];
	for (int r = 0; r < n_ranks; r++) {
		WANT(comm_node_of(c, r) == want_node[r]);
		here += want_node[r] == me;
	}
	WANT(comm_n_nodes(c) == n_nodes);
	WANT(!strcmp(comm_link(c), n_ranks == 1 ? "self" : n_nodes == 1 ? "memory" : "network"));
	TRY(comm_split(c, me, 0, "node", &node));
	WANT(comm_size(node) == here && comm_n_nodes(node) == 1 && comm_node_of(node, 0) == me);
	comm_destroy(node);
	return ERR_OK;
}

static enum err case_bytes_are_counted(struct comm *c)
{
	int64_t x[3] = { 1, 2, 3 };
	comm_reset_stats(c);
	TRY(comm_allreduce(c, x, 3, COMM_I64, COMM_SUM));
	WANT(comm_stats(c)->calls == 1 && comm_stats(c)->bytes == (comm_size(c) == 1 ? 0 : 24));
	WANT(comm_stats(c)->bytes_between_nodes == (n_nodes > 1 ? 24 : 0));
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

/* Where all ranks are on one node, and only there, the world does so; a split does not inherit it. */
static enum err case_memory_is_shared(struct comm *c)
{
	struct comm *half;
	struct comm_stats before = *comm_stats(c);
	WANT(!comm_shares_memory(c));
	TRY(comm_share_memory(c));
	TRY(comm_share_memory(c));   /* twice is once */
	WANT(comm_shares_memory(c) == (n_ranks > 1 && n_nodes == 1 && !is_full));
	WANT(comm_stats(c)->calls == before.calls && comm_stats(c)->bytes == before.bytes);
	TRY(comm_split(c, comm_rank(c) % 2, 0, "half", &half));
	WANT(!comm_shares_memory(half));
	TRY(comm_share_memory(half));   /* both halves at once */
	TRY(comm_agree(half, comm_cases[0].run(half)));
	comm_destroy(half);
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
		COMM_CASE(nodes_are_found), COMM_CASE(bytes_are_counted), COMM_CASE(a_short_message_is_noticed),
		COMM_CASE(memory_is_shared), COMM_CASE(bytes_are_counted),
	};
	struct comm *world;
	int failed = 0;
	for (char *text = argc > 1 ? argv[1] : ""; *text && n_ranks < CASE_MOST_RANKS; text += *text == ',') {
		int node = (int)strtol(text, &text, 10);
		want_node[n_ranks++] = node;
		n_nodes = node >= n_nodes ? node + 1 : n_nodes;
	}
	is_full = argc > 2 && !strcmp(argv[2], "full");
	if (comm_mpi_start(&argc, &argv, &world)) {
		fprintf(stderr, "%s\n", err_sentence());
		return 1;
	}
	if (strncmp(comm_mpi_version(), "Open MPI ", 9)) {
		printf("FAILED version is \"%s\"\n", comm_mpi_version());
		failed++;
	}
	for (int i = 0; i < N_COMM_CASES; i++)
		failed += run(world, &comm_cases[i]);
	for (size_t i = 0; i < sizeof mpi_cases / sizeof mpi_cases[0]; i++)
		failed += run(world, &mpi_cases[i]);
	for (int i = 0; i < N_COMM_CASES && comm_shares_memory(world); i++)
		failed += run(world, &comm_cases[i]);
	comm_barrier(world);
	comm_mpi_finish(world);
	return failed != 0;
}
