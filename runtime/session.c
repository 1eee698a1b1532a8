#include "runtime/session.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

static void enter(const struct session_wish *wish, const char *phase)
{
	if (wish->phase)
		wish->phase(wish->arg, phase);
}

/* The best table that every rank can run, or the named one. */
static enum err agree_on_kernels(struct comm *world, const char *isa, const struct kernels **out)
{
	uint32_t mine = 0;
	if (!strcmp(isa, "auto")) {
		while (kernel_tables[mine] != kernels_best())
			mine++;
		TRY(comm_allreduce(world, &mine, 1, COMM_U32, COMM_MIN));
		*out = kernel_tables[mine];
		return ERR_OK;
	}
	*out = kernels_named(isa);
	return comm_agree(world, *out ? ERR_OK : ERR(FIT, "runtime.isa: this processor has no \"%s\"", isa));
}

static uint64_t add_to_hash(uint64_t h, const void *data, size_t bytes)
{
	const unsigned char *at = data;
	for (size_t i = 0; i < bytes; i++)
		h = (h ^ at[i]) * 1099511628211u;
	return h;
}

/* A token chosen by another process is only right if all see the same model: its numbers, and the tensors' names and places
 * must agree. */
static uint64_t fingerprint(const struct weights *w, const struct model *m)
{
	const int64_t numbers[] = { m->n_layers, m->n_embd, m->n_head, m->n_kv_head, m->n_head_dim, m->n_ffn, m->n_vocab,
				    m->n_context, m->n_expert, m->n_expert_used, m->window, m->rope, m->rope_original_context };
	const double reals[] = { (double)m->norm_eps, m->rope_theta, m->rope_factor, m->rope_low, m->rope_high };
	uint64_t h = add_to_hash(14695981039346656037u, numbers, sizeof numbers);   /* FNV-1a */
	h = add_to_hash(h, reals, sizeof reals);
	for (int64_t i = 0; i < weights_count(w); i++) {
		const struct tensor_info *t = weights_at(w, i);
		h = add_to_hash(h, t->name, strlen(t->name));
		h = add_to_hash(h, &t->bytes, sizeof t->bytes);
		h = add_to_hash(h, &t->offset, sizeof t->offset);
	}
	return h;
}

static enum err open_model(struct session *s, const struct session_wish *wish)
{
	enum err e = weights_open(wish->model_path, &s->files);
	if (!e)
		e = model_describe(s->files, &s->model);
	TRY(comm_agree(s->world, e));
	uint64_t low = fingerprint(s->files, &s->model), high = low;
	TRY(comm_allreduce(s->world, &low, 1, COMM_U64, COMM_MIN));
	TRY(comm_allreduce(s->world, &high, 1, COMM_U64, COMM_MAX));
	if (low != high)
		return ERR(MODEL, "%s: the ranks see different files under this path; it must be on a shared file system or equal on "
				  "all nodes", wish->model_path);
	return ERR_OK;
}

static enum err make_pool(struct session *s, const struct session_wish *wish)
{
	const struct plan_rank *me = &s->plan.ranks[comm_rank(s->world)];
	const struct machine *m = &s->place.cluster.nodes[me->member.node];
	int cpus[MEMBER_MAX_CORES], n = 0;
	for (int i = 0; wish->pin && i < m->n_cores && i < MEMBER_MAX_CORES; i++)
		if (me->member.cores[i / 64] >> (i % 64) & 1 && m->cores[i].allowed)
			cpus[n++] = m->cores[i].os_cpu;
	return pool_create(me->threads, cpus, n, &s->pool);
}

struct loading { const struct session_wish *wish; uint64_t total; };

static void loading(void *arg, uint64_t done)
{
	struct loading *l = arg;
	if (l->wish->loading)
		l->wish->loading(l->wish->arg, done, l->total);
}

static enum err load(struct session *s, const struct session_wish *wish)
{
	const struct plan_rank *me = &s->plan.ranks[comm_rank(s->world)];
	struct rank_weights *weights = NULL;
	struct loading l = { wish, model_shard_bytes(&s->model, s->files, &me->shard) };
	s->expected_read_bytes = l.total;
	TRY(make_pool(s, wish));
	TRY(rank_weights_load(&s->model, s->files, &me->shard, wish->plan.arithmetic, s->pool, loading, &l, &weights));
	s->read_bytes = weights->read_bytes;
	enum err e = stage_create(&s->model, s->grid, s->kernels, s->pool, weights, &s->plan.limits, &s->stage);
	if (e)
		rank_weights_destroy(weights);
	return e;
}

enum err session_create(struct comm *world, const struct session_wish *wish, struct place *place, struct session **out)
{
	struct session *s = NULL;
	struct member *members = NULL;
	enum err e = MEM_NEW(1, struct session, &s);
	TRY_OR(destroy, e, comm_agree(world, e));
	s->world = world;
	enter(wish, "model");
	TRY_OR(destroy, e, open_model(s, wish));
	TRY_OR(destroy, e, agree_on_kernels(world, wish->isa, &s->kernels));
	enter(wish, "plan");
	struct plan_wish plan_wish = wish->plan;
	if (wish->prepare)
		TRY_OR(destroy, e, comm_agree(world, wish->prepare(wish->arg, s->files, &s->model, &plan_wish)));
	e = plan_make(&s->model, s->files, place, &plan_wish, wish->check_memory, &s->plan);
	if (!e)
		e = MEM_NEW((size_t)s->plan.n_ranks, struct member, &members);
	TRY_OR(destroy, e, comm_agree(world, e));
	for (int r = 0; r < s->plan.n_ranks; r++)
		members[r] = s->plan.ranks[r].member;
	s->place = *place;
	if (wish->planned && comm_rank(world) == 0)
		wish->planned(wish->arg, &s->plan, &s->model, &s->place);
	TRY_OR(give_place_back, e, grid_create(world, &s->plan.layout, members, &s->grid));
	enter(wish, "load");
	long long began = clock_us();
	e = load(s, wish);
	TRY_OR(give_place_back, e, comm_agree(world, e));
	TRY_OR(give_place_back, e, comm_agree(world, stage_join(s->stage)));
	s->load_s = (double)(clock_us() - began) * 1e-6;
	enter(wish, "ready");
	mem_free(members);
	grid_reset_traffic(s->grid);
	*place = (struct place){ 0 };
	*out = s;
	return ERR_OK;
give_place_back:
	s->place = (struct place){ 0 };
destroy:
	mem_free(members);
	session_destroy(s);
	return e;
}

void session_destroy(struct session *s)
{
	if (!s)
		return;
	stage_destroy(s->stage);
	pool_destroy(s->pool);
	grid_destroy(s->grid);
	plan_free(&s->plan);
	place_free(&s->place);
	weights_close(s->files);
	mem_free(s);
}
