/* The commands: one function each, listed in main.c's table. */
#ifndef SHARDRUN_LAUNCHER_COMMANDS_H
#define SHARDRUN_LAUNCHER_COMMANDS_H

#include "base/json.h"
#include "launcher/options.h"
#include "launcher/recipe.h"
#include "parallel/comm.h"
#include "runtime/plan.h"
#include "runtime/session.h"

enum err command_batch(const struct options *o);
enum err command_bench(const struct options *o);
enum err command_run(const struct options *o);
enum err command_plan(const struct options *o);
enum err command_topo(const struct options *o);
enum err command_inspect(const struct options *o);

/* --- what commands share (job.c) --- */

/* Runs body(world, arg) on every rank: over MPI when mpirun or srun started this process, else on a world of one. Watches
 * over the ranks of a job while it runs. Gives the error that all ranks agree on. */
enum err job_run(enum err (*body)(struct comm *world, void *arg), void *arg);
/* This process's rank as its launcher set it, 0 outside: for messages before MPI starts. */
int job_env_rank(void);
/* COLLECTIVE. Rank 0 makes the recipe from file, --model and --set; all get the same. *out is the caller's. */
enum err job_recipe(struct comm *world, const struct options *o, struct recipe **out);
/* Not collective: as rank 0 makes it. */
enum err job_recipe_here(const struct options *o, struct recipe **out);
/* ERR_RECIPE for keys whose value this version cannot run. Not for plan: a plan may be made for other versions. */
enum err job_can_run(const struct recipe *r);
/* ERR_FIT when this is one process without mpirun or srun, but the layout wants more ranks; says what to type. */
enum err job_fits_alone(const struct recipe *r, const struct options *o);
/* The tokenizer of a model: of its GGUF file, or beside its weights. */
struct tokenizer;
enum err job_tokenizer(struct weights *files, struct tokenizer **out);
/* What the recipe wishes of a session. model_path is borrowed from the recipe. */
void job_wish(const struct recipe *r, struct session_wish *out);

/* A session as commands use it: recipe and wish are filled, then open (COLLECTIVE), then close on every rank with the error
 * that stands, which it gives back; an error inside a step ends the job there, as others may wait. */
struct job_session {
	struct recipe *recipe;
	struct session_wish wish;
	struct place place;
	struct session *session;
};
enum err job_session_open(struct comm *world, const struct options *o, struct job_session *j);
enum err job_session_close(struct job_session *j, enum err e);

/* --- reports (report.c) --- */
void report_rates(const struct session *s, const struct generation *g);                /* to stderr, on the head */
/* What came of drafts, when there were any. */
void report_drafts(const struct schedule_counts *c);
void report_traffic(const struct grid_traffic rows[GRID_TRAFFIC_ROWS]);
/* The JSON object of `run`; *out is the caller's. texts[i] belongs to answer i; prompts may hold NULL; each has the same
 * number of answers. */
enum err report_run_json(const struct session *s, const struct generation *g, const struct grid_traffic rows[GRID_TRAFFIC_ROWS],
			 const char *const *prompts, const struct bytes *texts, json_t **out);
enum err report_plan_json(const struct plan *p, const struct model *m, const struct cluster *c, json_t **out);
enum err report_topo_json(const struct cluster *c, json_t **out);
enum err report_inspect_json(const struct model *m, const struct weights *w, json_t **out);
/* The machines of a cluster; a run of equal ones once, with how many more there are. */
void report_machines(const struct cluster *c, struct bytes *to);
/* One JSON object and a newline on stdout. Takes the object over. */
enum err report_print_json(json_t *object);

/* Command output. ERR_IO when stdout cannot be written (a closed pipe). */
enum err print_out(const void *text, size_t bytes);

#endif
