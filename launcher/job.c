#include "launcher/commands.h"

#include "base/log.h"
#include "base/mem.h"
#include "parallel/watch.h"
#include "runtime/tokenizer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int job_env_rank(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *value = getenv(names[i]);
		if (value && *value)
			return atoi(value);
	}
	return 0;
}

enum err job_recipe_here(const struct options *o, struct recipe **out)
{
	struct recipe *r;
	enum err e;
	TRY(recipe_create(&r));
	if (o->recipe)
		TRY_OR(destroy, e, recipe_load(r, o->recipe));
	TRY_OR(destroy, e, options_apply(o, r));
	if (!r->model.path || !*r->model.path) {
		e = ERR(RECIPE, "%s: model.path is missing; it names a model directory or file", o->recipe ? o->recipe : "recipe");
		goto destroy;
	}
	*out = r;
	return ERR_OK;
destroy:
	recipe_destroy(r);
	return e;
}

enum err job_recipe(struct comm *world, const struct options *o, struct recipe **out)
{
	struct recipe *r = NULL;
	struct bytes text = { 0 };
	enum err e = ERR_OK;
	int root = comm_rank(world) == 0;
	if (root)
		e = job_recipe_here(o, &r);
	if (root && !e) {
		recipe_write(r, &text);
		e = text.error;
	}
	TRY_OR(free_text, e, comm_agree(world, e));
	void *data = text.data;
	size_t bytes = text.size;
	TRY_OR(free_text, e, comm_bcast_bytes(world, &data, &bytes, 0));
	if (!root) {
		e = recipe_create(&r);
		if (!e)
			e = recipe_parse(r, "the recipe of rank 0", data, bytes);
		mem_free(data);
	}
	e = comm_agree(world, e);
free_text:
	bytes_free(&text);
	if (e) {
		recipe_destroy(r);
		return e;
	}
	log_set_level((enum log_level)r->runtime.log);
	*out = r;
	return ERR_OK;
}

enum err job_can_run(const struct recipe *r)
{
	static const struct { const char *key, *words[2]; } can[] = {
		{ "model.dtype", { "auto" } }, { "runtime.backend", { "auto", "cpu" } }, { "runtime.speculate", { "off", "ngram" } },
	};
	for (size_t i = 0; i < sizeof can / sizeof *can; i++) {
		const char *word = recipe_word(r, can[i].key);
		int good = 0;
		for (int w = 0; w < 2 && can[i].words[w]; w++)
			good |= !strcmp(word, can[i].words[w]);
		if (!good)
			return ERR(RECIPE, "%s: this version cannot do \"%s\" yet; it can do \"%s\"", can[i].key, word,
				   can[i].words[1] ? can[i].words[1] : can[i].words[0]);
	}
	if (*r->runtime.draft)
		return ERR(RECIPE, "runtime.draft: this version cannot guess with a draft model yet; leave it empty");
	return ERR_OK;
}

enum err job_fits_alone(const struct recipe *r, const struct options *o)
{
	int64_t wide = 1;
	const int64_t axes[] = { r->parallel.tp, r->parallel.pp, r->parallel.dp };
	for (int i = 0; i < 3; i++)
		wide *= axes[i] > 0 ? axes[i] : 1;
	if (wide == 1 || comm_mpi_is_started_by_launcher())
		return ERR_OK;
	return ERR(FIT, "tp %lld x pp %lld x dp %lld needs %lld ranks, but this is one process: start it as mpirun -n %lld shardrun %s ...",
		   (long long)(axes[0] ? axes[0] : 1), (long long)(axes[1] ? axes[1] : 1), (long long)(axes[2] ? axes[2] : 1),
		   (long long)wide, (long long)wide, command_name(o->command));
}

enum err job_tokenizer(struct weights *files, struct tokenizer **out)
{
	struct gguf *g = weights_gguf(files);
	return g ? tokenizer_open_gguf(g, out) : tokenizer_open_directory(weights_directory(files), out);
}

void job_wish(const struct recipe *r, struct session_wish *w)
{
	struct layout *l = &w->plan.layout;
	memset(w, 0, sizeof *w);
	*l = (struct layout){ .tp = (int)r->parallel.tp, .pp = (int)r->parallel.pp, .ep = (int)r->parallel.ep,
			      .dp = (int)r->parallel.dp, .etp = (int)r->parallel.etp, .n_stage_layers = r->parallel.pp_layers.n,
			      .tp_across_nodes = r->parallel.tp_across_nodes };
	for (int i = 0; i < l->n_stage_layers && i < LAYOUT_MAX_STAGES; i++)
		l->stage_layers[i] = (int)r->parallel.pp_layers.items[i];
	w->model_path = r->model.path;
	w->isa = recipe_word(r, "runtime.isa");
	w->pin = 1;
	w->check_memory = 1;
	w->plan.threads = (int)r->runtime.threads;
	w->plan.step_tokens = r->runtime.step_tokens;
	w->plan.sequences = r->runtime.sequences;
	w->plan.context = r->runtime.context;
	w->plan.kv_bytes = r->runtime.kv_bytes;
	w->plan.speculates = !strcmp(recipe_word(r, "runtime.speculate"), "ngram");
	static const char *const arithmetics[] = {
		[ARITHMETIC_F32] = "f32", [ARITHMETIC_DEFAULT] = "auto", [ARITHMETIC_INT8] = "int8", [ARITHMETIC_BF16] = "bf16"
	};
	for (int i = 0; i < (int)(sizeof arithmetics / sizeof *arithmetics); i++)
		if (!strcmp(arithmetics[i], recipe_word(r, "runtime.activations")))
			w->plan.arithmetic = (enum arithmetic)i;
	w->plan.kv_type = KV_F32;
	for (int i = 0; i < KV_TYPE_COUNT; i++)
		if (!strcmp(kv_type_names[i], recipe_word(r, "runtime.kv_type")))
			w->plan.kv_type = (enum kv_type)i;
}

enum err job_session_open(struct comm *world, const struct options *o, struct job_session *j)
{
	j->place = (struct place){ 0 };
	j->session = NULL;
	TRY(job_can_run(j->recipe));
	TRY(job_fits_alone(j->recipe, o));
	TRY(place_gather(world, &j->place));
	return session_create(world, &j->wish, &j->place, &j->session);
}

enum err job_session_close(struct job_session *j, enum err e)
{
	if (e && j->session && j->session->broken) {
		LOG_RANK(ERROR, "%s", err_sentence());
		comm_mpi_abort(err_exit_status(e));
	}
	session_destroy(j->session);
	place_free(&j->place);
	recipe_destroy(j->recipe);
	return e;
}

struct job {
	enum err (*body)(struct comm *world, void *arg);
	void *arg;
};

static enum err watched(struct comm *world, const struct job *j)
{
	struct comm *node = NULL;
	char host[64] = "", prefix[96];
	gethostname(host, sizeof host - 1);
	snprintf(prefix, sizeof prefix, "rank %d %s", comm_rank(world), host);
	log_set_identity(comm_rank(world), prefix);
	TRY(comm_mpi_find_nodes(world));
	TRY(comm_split(world, comm_node_of(world, comm_rank(world)), comm_rank(world), "node", &node));
	enum err e = watch_start(node, comm_rank(world), host);
	if (!e)
		e = watch_nodes(world, host);
	if (!e)
		e = j->body(world, j->arg);
	comm_destroy(node);
	return e;
}

enum err job_run(enum err (*body)(struct comm *world, void *arg), void *arg)
{
	struct job j = { body, arg };
	struct comm *world;
	signal(SIGPIPE, SIG_IGN);   /* a reader that is gone is an error of a write, which all ranks agree on */
	if (!comm_mpi_is_started_by_launcher())
		return comm_inproc_run(1, NULL, body, arg);
	watch_block_signals();
	TRY(comm_mpi_start(NULL, NULL, &world));
	enum err e = watched(world, &j);
	watch_finish();
	comm_mpi_finish(world);
	watch_stop();
	return e;
}
