#include "parallel/place.h"

#include "base/mem.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static int is_lowest_of_node(struct comm *world)
{
	int me = comm_rank(world);
	for (int r = 0; r < me; r++)
		if (comm_node_of(world, r) == comm_node_of(world, me))
			return 0;
	return 1;
}

/* What Slurm gave the job on each node, in MiB. The cgroup may know nothing of it: not every site lets Slurm enforce it
 * that way, but all may end a job that takes more. */
static void limit_by_slurm(struct machine *m)
{
	const char *text = getenv("SLURM_MEM_PER_NODE");
	size_t digits = text ? strspn(text, "0123456789") : 0;
	uint64_t bytes = digits && digits <= 12 && !text[digits] ? strtoull(text, NULL, 10) << 20 : 0;
	if (bytes && (!m->memory_limit_bytes || bytes < m->memory_limit_bytes))
		m->memory_limit_bytes = bytes;   /* 0 stands for all of the node */
}

/* What a rank sends: its affinity as a bit set of OS cpus, then its machine when it speaks for the node. */
static enum err describe_self(struct comm *world, struct bytes *out)
{
	struct machine m = { 0 };
	cpu_set_t set;
	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof set, &set))
		CPU_ZERO(&set);
	bytes_put(out, &set, sizeof set);
	if (!is_lowest_of_node(world))
		return out->error;
	TRY(machine_read("live", &m));
	limit_by_slurm(&m);
	machine_encode(&m, out);
	machine_free(&m);
	return out->error;
}

/* The cores of which any hardware thread is in the set. The machine was read by one rank of the node under that rank's
 * binding: what another rank may use is allowed as well. */
static void affinity_to_cores(const cpu_set_t *set, struct machine *m, struct rank_facts *f)
{
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		int i = CPU_ISSET(cpu, set) ? machine_core_of_cpu(m, cpu) : -1;
		if (i < 0 || i >= MEMBER_MAX_CORES || f->cores[i / 64] >> (i % 64) & 1)
			continue;
		f->cores[i / 64] |= 1ull << (i % 64);
		f->n_cores++;
		if (!m->cores[i].allowed)
			m->cores[i].os_cpu = cpu;
		m->cores[i].allowed = 1;
	}
}

static void find_bound(struct place *p)
{
	for (int r = 0; r < p->n_ranks; r++) {
		const struct machine *m = &p->cluster.nodes[p->facts[r].node];
		int n_allowed = 0;
		for (int i = 0; i < m->n_cores; i++)
			n_allowed += m->cores[i].allowed;
		p->facts[r].bound = p->facts[r].n_cores > 0 && p->facts[r].n_cores < n_allowed;
	}
}

static enum err decode_all(struct comm *world, const unsigned char *all, const size_t *offsets, struct place *p)
{
	int n = p->n_ranks;
	for (int r = 0; r < n; r++) {
		struct reader in;
		reader_init(&in, "the description of a rank", all + offsets[r], offsets[r + 1] - offsets[r]);
		cpu_set_t set;
		const void *bits = reader_get(&in, sizeof set);
		if (!bits)
			return in.error;
		memcpy(&set, bits, sizeof set);
		struct machine *m = &p->cluster.nodes[comm_node_of(world, r)];
		if (in.at < in.size && m->n_cores == 0)
			TRY(machine_decode(&in, m));
		p->facts[r].node = comm_node_of(world, r);
		affinity_to_cores(&set, m, &p->facts[r]);
	}
	find_bound(p);
	return ERR_OK;
}

enum err place_gather(struct comm *world, struct place *out)
{
	struct place p = { .n_ranks = comm_size(world) };
	struct bytes mine = { 0 };
	unsigned char *all = NULL;
	size_t *offsets = NULL;
	enum err e = describe_self(world, &mine);
	TRY_OR(free_mine, e, comm_agree(world, e));
	TRY_OR(free_mine, e, comm_gather_bytes(world, mine.data, mine.size, &all, &offsets));
	p.cluster.n_nodes = comm_n_nodes(world);
	e = MEM_NEW((size_t)p.cluster.n_nodes, struct machine, &p.cluster.nodes);
	if (!e)
		e = MEM_NEW((size_t)p.n_ranks, struct rank_facts, &p.facts);
	if (!e)
		e = decode_all(world, all, offsets, &p);
	e = comm_agree(world, e);
	mem_free(all);
	mem_free(offsets);
free_mine:
	bytes_free(&mine);
	if (e)
		place_free(&p);
	else
		*out = p;
	return e;
}

enum err place_invent(const struct cluster *c, int n_ranks, int ranks_per_node, struct place *out)
{
	struct place p = { .n_ranks = n_ranks };
	enum err e;
	int nodes = c->n_nodes;
	if (ranks_per_node > 0 && (long)ranks_per_node * nodes < n_ranks)
		return ERR(FIT, "%d ranks do not fit on %d nodes of %d ranks", n_ranks, nodes, ranks_per_node);
	TRY_OR(free_place, e, MEM_NEW((size_t)nodes, struct machine, &p.cluster.nodes));
	for (int i = 0; i < nodes; i++) {
		TRY_OR(free_place, e, machine_copy(&c->nodes[i], &p.cluster.nodes[i]));
		p.cluster.n_nodes = i + 1;
	}
	TRY_OR(free_place, e, MEM_NEW((size_t)n_ranks, struct rank_facts, &p.facts));
	for (int i = 0, r = 0; i < nodes; i++) {
		int here = ranks_per_node > 0 ? ranks_per_node : n_ranks / nodes + (i < n_ranks % nodes);
		for (int k = 0; k < here && r < n_ranks; k++, r++)
			p.facts[r].node = i;
	}
	*out = p;
	return ERR_OK;
free_place:
	place_free(&p);
	return e;
}

void place_free(struct place *p)
{
	cluster_free(&p->cluster);
	mem_free(p->facts);
	*p = (struct place){ 0 };
}

int place_ranks_per_node(const struct place *p)
{
	int least = 0;
	for (int i = 0; i < p->cluster.n_nodes; i++) {
		int here = 0;
		for (int r = 0; r < p->n_ranks; r++)
			here += p->facts[r].node == i;
		if (here && (!least || here < least))
			least = here;
	}
	return least;
}
