/* The program: reads the command line, runs one command, says what went wrong, gives the exit status. */
#include "launcher/commands.h"

#include "base/log.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

static enum err not_here(const struct options *o)
{
	return ERR(USAGE, "%s: this version cannot do that yet; it can run, batch, bench, plan, topo and inspect", command_name(o->command));
}

static enum err (*const commands[COMMAND_COUNT])(const struct options *) = {
	[COMMAND_RUN] = command_run,     [COMMAND_PLAN] = command_plan, [COMMAND_TOPO] = command_topo,
	[COMMAND_INSPECT] = command_inspect,
	[COMMAND_BATCH] = command_batch, [COMMAND_SERVE] = not_here,    [COMMAND_BENCH] = command_bench,[COMMAND_SCRIPT] = not_here,
};

static enum err say(const struct options *o)
{
	struct bytes text = { 0 };
	if (o->version)
		bytes_printf(&text, "shardrun %s\n", SHARDRUN_VERSION);
	else if (o->reference)
		recipe_reference(&text);
	else
		options_help(o->command, &text);
	enum err e = text.error ? text.error : print_out(bytes_text(&text), text.size);
	bytes_free(&text);
	return e;
}

static enum err run(int argc, char **argv)
{
	struct options o;
	TRY(options_parse(argc, argv, &o));
	enum err e = ERR_OK;
	if (o.quiet)
		log_set_level(LOG_WARN);
	if (o.verbose)
		log_set_level(LOG_DEBUG);
	if (o.help || o.version || o.reference)
		e = job_env_rank() == 0 ? say(&o) : ERR_OK;
	else
		e = commands[o.command](&o);
	options_free(&o);
	return e;
}

int main(int argc, char **argv)
{
	enum err e = run(argc, argv);
	int rank = job_env_rank();
	if (e && rank == 0)
		fprintf(stderr, "shardrun: %s\n", err_sentence());
	/* One rank tells the launcher what went wrong; srun reports the highest status of all, mpirun the first. */
	return rank == 0 ? err_exit_status(e) : 0;
}
