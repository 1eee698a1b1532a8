/* topo: what the machines look like, of a file or words, of this machine, or of all nodes of a job. */
#include "launcher/commands.h"

#include "parallel/place.h"

static enum err print_cluster(const struct options *o, const struct cluster *c)
{
	struct bytes text = { 0 };
	if (o->json) {
		json_t *object;
		TRY(report_topo_json(c, &object));
		return report_print_json(object);
	}
	for (int i = 0; i < c->n_nodes; i++)
		machine_print(&c->nodes[i], &text);
	enum err e = text.error ? text.error : print_out(bytes_text(&text), text.size);
	bytes_free(&text);
	return e;
}

static enum err body(struct comm *world, void *arg)
{
	struct place place = { 0 };
	enum err e = ERR_OK;
	TRY(place_gather(world, &place));
	if (comm_rank(world) == 0)
		e = print_cluster(arg, &place.cluster);
	place_free(&place);
	return comm_agree(world, e);
}

enum err command_topo(const struct options *o)
{
	struct cluster c;
	if (!o->cluster)
		return job_run(body, (void *)(uintptr_t)o);
	if (job_env_rank() != 0)
		return ERR_OK;
	TRY(cluster_read(o->cluster, &c));
	enum err e = print_cluster(o, &c);
	cluster_free(&c);
	return e;
}
