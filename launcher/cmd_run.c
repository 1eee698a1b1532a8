/* run: prompts in, text out. */
#include "launcher/commands.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "launcher/npy.h"
#include "launcher/observe.h"
#include "launcher/prompts.h"
#include "parallel/watch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct run {
	const struct options *o;
	struct comm *world;
	const struct recipe *recipe;
	struct progress progress;
	int loading;
	struct tokenizer *tokenizer;      /* on rank 0, as the prompts */
	struct prompts *prompts;
	struct observe observe;
	struct timed_answer *answers;     /* on rank 0, one for each, when a report is wanted */
	long long began_us;
};

static void phase(void *arg, const char *name)
{
	(void)arg;
	watch_phase("%s", name);
}

static int is_quiet(const struct run *run) { return run->recipe->runtime.log < LOG_INFO; }

/* The machines and the plan. */
static void planned(void *arg, const struct plan *p, const struct model *m, const struct place *place)
{
	struct run *run = arg;
	struct bytes text = { 0 };
	if (p->context > m->n_context)
		LOG_ROOT(WARN, "runtime.context is %lld, but the model was made for %lld: what it writes beyond may make no sense",
			 (long long)p->context, (long long)m->n_context);
	if (is_quiet(run))
		return;
	report_machines(&place->cluster, &text);
	plan_print(p, m, &place->cluster, &text);
	fputs(bytes_text(&text), stderr);
	bytes_free(&text);
}

static void loading(void *arg, uint64_t done, uint64_t total)
{
	struct run *run = arg;
	if (!run->loading) {
		progress_start(&run->progress, "loading", (double)total, comm_rank(run->world) == 0 && !is_quiet(run));
		run->loading = 1;
	}
	progress_update(&run->progress, (double)done);
}

static enum err open_tokenizer(struct run *run, struct weights *files, const struct model *m)
{
	TRY(job_tokenizer(files, &run->tokenizer));
	int64_t n_tokens = tokenizer_n_tokens(run->tokenizer);
	if (n_tokens > m->n_vocab)
		return ERR(MODEL, "%s: the tokenizer has %lld tokens, the model's vocabulary only %lld", weights_directory(files),
			   (long long)n_tokens, (long long)m->n_vocab);
	return ERR_OK;
}

static enum err read_prompts(struct run *run, const struct model *m)
{
	TRY(prompts_read(run->o, run->recipe, run->tokenizer, &run->prompts));
	TRY(observe_check(run->o));
	if (run->o->logits)   /* an empty file: what cannot be written is better known before the work than after it */
		TRY(npy_write(run->o->logits, NULL, 0, m->n_vocab));
	return ERR_OK;
}

/* srun hands everyone a copy of stdin, and ends the job when some tasks leave theirs in the pipe; mpirun gives the others
 * nothing to read. */
static void drop_prompts(const struct run *run)
{
	char room[65536];
	while (run->o->prompt_stdin && read(STDIN_FILENO, room, sizeof room) > 0)
		;
}

/* Prompts are read before anything is planned: they show how many sequences and pages are of use. */
static enum err prepare(void *arg, struct weights *files, const struct model *m, struct plan_wish *plan)
{
	struct run *run = arg;
	int64_t need[3] = { 0 };   /* sequences, pages, tokens whose logits are written */
	int root = comm_rank(run->world) == 0;
	TRY(comm_agree(run->world, root ? open_tokenizer(run, files, m) : ERR_OK));
	if (!root)
		drop_prompts(run);
	TRY(comm_agree(run->world, root ? read_prompts(run, m) : ERR_OK));
	for (int64_t i = 0; root && i < run->prompts->n; i++) {
		const struct request *r = &run->prompts->requests[i];
		need[0] += run->prompts->n_each;
		need[1] += (r->n_prompt + r->max_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS * run->prompts->n_each;
		need[2] += r->all_logits ? r->n_prompt : 0;
	}
	TRY(comm_bcast(run->world, need, sizeof need, 0));
	if (plan->sequences > need[0])
		plan->sequences = need[0];
	plan->useful_pages = need[1];
	plan->logits_tokens = need[2];
	return ERR_OK;
}

/* --- the report --- */

/* Notes when tokens come; then they are shown. */
static int timed_token(void *arg, int64_t index, const struct answer *a, int32_t token)
{
	struct run *run = arg;
	struct timed_answer *t = &run->answers[index];
	t->ended_us = clock_us();
	if (!t->first_us)
		t->first_us = t->ended_us;
	return prompts_token(run->prompts, index, a, token);
}

static enum err begin_report(struct run *run, struct session *s, struct generation *g)
{
	enum err e = ERR_OK;
	TRY(observe_begin(&run->observe, run->o, s));
	if (run->observe.trace && run->prompts)
		e = MEM_NEW((size_t)run->prompts->n_answers, struct timed_answer, &run->answers);
	TRY(comm_agree(run->world, e));
	if (run->answers) {
		g->token = timed_token;
		g->arg = run;
	}
	run->began_us = clock_us();
	return ERR_OK;
}

static void add_timings(const struct run *run, const struct generation *g, struct timings *t)
{
	for (int64_t i = 0; i < g->n_answers; i++) {
		struct timed_answer *a = &run->answers[i];
		a->came_us = run->began_us;
		a->n_prompt = g->answers[i].n_prompt;
		a->n_tokens = g->answers[i].n_tokens;
		snprintf(a->name, sizeof a->name, "prompt %lld", (long long)(i / run->prompts->n_each) + 1);
		timings_add(t, a);
	}
}

static enum err end_report(struct run *run, struct session *s, const struct generation *g)
{
	struct timings *t = NULL;
	struct outcome how = { .state = "All prompts have their answers.", .requests = g->n_requests, .resumed = -1,
			       .prompt_tokens = g->prefill_tokens, .shared_tokens = g->counts.shared_tokens, .put_back = g->counts.put_back,
			       .steps = g->steps, .seconds = (double)(clock_us() - run->began_us) * 1e-6 };
	if (!run->observe.trace)
		return ERR_OK;
	enum err e = comm_agree(run->world, MEM_NEW(1, struct timings, &t));
	if (e) {
		mem_free(t);
		return e;
	}
	if (run->answers)
		add_timings(run, g, t);
	for (int64_t i = 0; i < g->n_answers; i++)
		how.errors += g->answers[i].finish == FINISH_ERROR;
	how.answer_tokens = t->answer_tokens;
	how.timings = t;
	e = observe_end(&run->observe, s, run->prompts ? &how : NULL);
	mem_free(t);
	return e;
}

static enum err make_generation(const struct run *run, const struct session *s, struct generation *g)
{
	struct prompts *p = run->prompts;
	if (!p)
		return ERR_OK;
	*g = (struct generation){ .requests = p->requests, .n_requests = p->n, .token = prompts_token, .arg = p };
	if (!run->o->logits)
		return ERR_OK;
	return MEM_NEW((size_t)(p->requests[0].n_prompt * s->model.n_vocab), float, &g->all_logits);
}

static enum err report(const struct run *run, struct session *s, const struct generation *g, struct prompts *p,
		       const struct grid_traffic *rows)
{
	if (run->o->json) {
		json_t *object;
		TRY(report_run_json(s, g, rows, (const char *const *)p->texts, p->answers, &object));
		TRY(report_print_json(object));
	} else {
		TRY(prompts_end(p));
	}
	if (run->o->logits)
		TRY(npy_write(run->o->logits, g->all_logits, p->requests[0].n_prompt, s->model.n_vocab));
	if (!is_quiet(run)) {
		if (comm_mpi_is_started_by_launcher())
			clock_sleep_us(50000);   /* mpirun carries stdout and stderr apart: let the text arrive first */
		report_rates(s, g);
		report_traffic(rows);
	}
	for (int64_t i = 0; i < g->n_answers; i++)
		if (g->answers[i].finish == FINISH_ERROR)
			return ERR(WORK, "prompt %lld: %s", (long long)(i / p->n_each) + 1,
				   g->answers[i].error ? g->answers[i].error : "no token could be chosen");
	return ERR_OK;
}

static enum err run_prompts(struct run *run, struct session *s)
{
	struct generation g = { 0 };
	struct grid_traffic rows[GRID_TRAFFIC_ROWS];
	enum err e = make_generation(run, s, &g);
	TRY_OR(free_all, e, comm_agree(run->world, e));
	TRY_OR(free_all, e, begin_report(run, s, &g));
	watch_phase("run");
	TRY_OR(free_all, e, session_generate(s, &g));
	TRY_OR(free_all, e, grid_traffic(s->grid, rows));
	enum err written = end_report(run, s, &g);
	e = comm_agree(run->world, run->prompts ? report(run, s, &g, run->prompts, rows) : ERR_OK);
	e = e ? e : written;
free_all:
	observe_close(&run->observe);
	mem_free(run->answers);
	answers_free(g.answers, g.n_answers);
	mem_free(g.all_logits);
	return e;
}

static enum err body(struct comm *world, void *arg)
{
	struct run run = { .o = arg, .world = world };
	struct job_session js;
	watch_phase("start");
	TRY(job_recipe(world, run.o, &js.recipe));
	run.recipe = js.recipe;
	job_wish(js.recipe, &js.wish);
	js.wish.phase = phase;
	js.wish.prepare = prepare;
	js.wish.planned = planned;
	js.wish.loading = loading;
	js.wish.arg = &run;
	enum err e = job_session_open(world, run.o, &js);
	progress_end(&run.progress);
	if (!e)
		e = run_prompts(&run, js.session);
	e = job_session_close(&js, e);
	prompts_destroy(run.prompts);
	tokenizer_close(run.tokenizer);
	return e;
}

enum err command_run(const struct options *o) { return job_run(body, (void *)(uintptr_t)o); }
