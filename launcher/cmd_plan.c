/* plan: what would run where, without running it. Needs the model's headers, not its weights, and no cluster. */
#include "launcher/commands.h"

#include "base/mem.h"

/* How many ranks: what the layout says, else what launch says, else one for each accelerator or NUMA node, in whole
 * multiples of the axes that are given. */
static enum err count_ranks(const struct recipe *r, const struct layout *l, const struct cluster *c, int *out)
{
	int64_t given = (int64_t)(l->tp ? l->tp : 1) * (l->pp ? l->pp : 1) * (l->dp ? l->dp : 1), n = 0;
	if (l->tp && l->pp && l->dp) {
		n = given;
	} else if (r->launch.ranks_per_node) {
		n = r->launch.ranks_per_node * (r->launch.nodes ? r->launch.nodes : c->n_nodes);
	} else {
		for (int i = 0; i < c->n_nodes; i++)
			n += c->nodes[i].n_devices ? c->nodes[i].n_devices : c->nodes[i].n_numa;
		n = n < given ? given : n / given * given;
	}
	if (n > (int64_t)c->n_nodes * MEMBER_MAX_CORES)
		return ERR(FIT, "%lld ranks are more than %d on each of %d node%s", (long long)n, MEMBER_MAX_CORES, c->n_nodes,
			   c->n_nodes == 1 ? "" : "s");
	*out = (int)n;
	return ERR_OK;
}

static enum err print_plan(const struct options *o, const struct plan *p, const struct model *m, const struct cluster *c)
{
	struct bytes text = { 0 };
	if (o->json) {
		json_t *object;
		TRY(report_plan_json(p, m, c, &object));
		return report_print_json(object);
	}
	plan_print(p, m, c, &text);
	enum err e = text.error ? text.error : print_out(bytes_text(&text), text.size);
	bytes_free(&text);
	return e;
}

static enum err plan_on(const struct options *o, const struct recipe *r, const struct cluster *c)
{
	struct session_wish wish;
	struct weights *w = NULL;
	struct model m;
	struct place place = { 0 };
	struct plan p = { 0 };
	int n_ranks = 0;
	enum err e;
	job_wish(r, &wish);
	for (int i = 0; i < c->n_nodes; i++)
		wish.plan.use_devices |= c->nodes[i].n_devices > 0;
	TRY_OR(close_files, e, weights_open(r->model.path, &w));
	TRY_OR(close_files, e, model_describe(w, &m));
	TRY_OR(close_files, e, count_ranks(r, &wish.plan.layout, c, &n_ranks));
	TRY_OR(close_files, e, place_invent(c, n_ranks, (int)r->launch.ranks_per_node, &place));
	TRY_OR(close_files, e, plan_make(&m, w, &place, &wish.plan, 1, &p));
	e = print_plan(o, &p, &m, c);
	plan_free(&p);
close_files:
	place_free(&place);
	weights_close(w);
	return e;
}

enum err command_plan(const struct options *o)
{
	struct recipe *r;
	struct cluster c;
	if (job_env_rank() != 0)
		return ERR_OK;
	TRY(job_recipe_here(o, &r));
	enum err e = cluster_read(o->cluster ? o->cluster : "live", &c);
	if (!e) {
		e = plan_on(o, r, &c);
		cluster_free(&c);
	}
	recipe_destroy(r);
	return e;
}
