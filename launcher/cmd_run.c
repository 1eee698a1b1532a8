/* run: prompts in, text out. */
#include "launcher/commands.h"

#include "base/log.h"
#include "base/mem.h"
#include "launcher/npy.h"
#include "launcher/prompts.h"
#include "parallel/watch.h"

#include <stdio.h>
#include <string.h>

struct run {
	const struct options *o;
	struct comm *world;
	struct progress progress;
	int loading;
};

static void phase(void *arg, const char *name)
{
	(void)arg;
	watch_phase("%s", name);
}

/* The machines, each kind once, and the plan. */
static void planned(void *arg, const struct plan *p, const struct model *m, const struct place *place)
{
	struct run *run = arg;
	struct bytes text = { 0 };
	if (run->o->quiet)
		return;
	for (int i = 0; i < place->cluster.n_nodes; i++)
		machine_print(&place->cluster.nodes[i], &text);
	plan_print(p, m, &place->cluster, &text);
	fputs(bytes_text(&text), stderr);
	bytes_free(&text);
}

static void loading(void *arg, uint64_t done, uint64_t total)
{
	struct run *run = arg;
	if (!run->loading) {
		progress_start(&run->progress, "loading", (double)total, comm_rank(run->world) == 0 && !run->o->quiet);
		run->loading = 1;
	}
	progress_update(&run->progress, (double)done);
}

static enum err open_tokenizer(const struct session *s, struct tokenizer **out)
{
	struct gguf *g = weights_gguf(s->files);
	return g ? tokenizer_open_gguf(g, out) : tokenizer_open_directory(weights_directory(s->files), out);
}

static enum err read_prompts(const struct run *run, const struct session *s, const struct recipe *r, struct tokenizer **t,
			     struct prompts **p, struct generation *g)
{
	if (comm_rank(run->world) != 0)
		return ERR_OK;
	TRY(open_tokenizer(s, t));
	if (tokenizer_n_tokens(*t) > s->model.n_vocab)
		return ERR(MODEL, "the tokenizer has %lld tokens, the model's vocabulary only %lld", (long long)tokenizer_n_tokens(*t),
			   (long long)s->model.n_vocab);
	TRY(prompts_read(run->o, r, *t, p));
	g->requests = (*p)->requests;
	g->n_requests = (*p)->n;
	g->ignore_eos = r->generation.ignore_eos;
	g->token = prompts_token;
	g->arg = *p;
	if (run->o->logits)
		TRY(MEM_NEW((size_t)((*p)->requests[0].n_prompt * s->model.n_vocab), float, &g->all_logits));
	return ERR_OK;
}

static enum err report(const struct run *run, struct session *s, const struct generation *g, struct prompts *p,
		       const struct grid_traffic *rows)
{
	if (run->o->logits)
		TRY(npy_write(run->o->logits, g->all_logits, p->requests[0].n_prompt, s->model.n_vocab));
	if (run->o->json) {
		json_t *object;
		TRY(report_run_json(s, g, rows, (const char *const *)p->texts, p->answers, &object));
		enum err e = report_print_json(object);
		json_decref(object);
		TRY(e);
	} else {
		TRY(prompts_end(p));
	}
	if (!run->o->quiet) {
		report_rates(s, g);
		report_traffic(rows);
	}
	for (int64_t i = 0; i < g->n_requests; i++)
		if (g->answers[i].finish == FINISH_ERROR)
			return ERR(WORK, "prompt %lld: the model gave logits that are not numbers", (long long)i);
	return ERR_OK;
}

static enum err run_prompts(struct run *run, struct session *s, const struct recipe *r)
{
	struct tokenizer *t = NULL;
	struct prompts *p = NULL;
	struct generation g = { 0 };
	struct grid_traffic rows[GRID_TRAFFIC_ROWS];
	enum err e = read_prompts(run, s, r, &t, &p, &g);
	TRY_OR(free_all, e, comm_agree(run->world, e));
	watch_phase("run");
	TRY_OR(free_all, e, session_generate(s, &g));
	TRY_OR(free_all, e, grid_traffic(s->grid, rows));
	e = comm_agree(run->world, comm_rank(run->world) == 0 ? report(run, s, &g, p, rows) : ERR_OK);
free_all:
	answers_free(g.answers, g.n_requests);
	mem_free(g.all_logits);
	prompts_destroy(p);
	tokenizer_close(t);
	return e;
}

static enum err body(struct comm *world, void *arg)
{
	struct run run = { .o = arg, .world = world };
	struct recipe *r;
	struct place place = { 0 };
	struct session *s = NULL;
	struct session_wish wish;
	watch_phase("start");
	TRY(job_recipe(world, run.o, &r));
	job_wish(r, &wish);
	wish.phase = phase;
	wish.planned = planned;
	wish.loading = loading;
	wish.arg = &run;
	enum err e = place_gather(world, &place);
	if (!e)
		e = session_create(world, &wish, &place, &s);
	progress_end(&run.progress);
	if (!e)
		e = run_prompts(&run, s, r);
	if (e && s && s->broken) {   /* others may still wait inside a step */
		LOG_RANK(ERROR, "%s", err_sentence());
		comm_mpi_abort(err_exit_status(e));
	}
	session_destroy(s);
	place_free(&place);
	recipe_destroy(r);
	return e;
}

enum err command_run(const struct options *o) { return job_run(body, (void *)(uintptr_t)o); }
