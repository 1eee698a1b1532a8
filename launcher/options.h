/* The command line: which command, on what, with which options. One table of rows makes the parsing, the sentences and
 * --help. Nothing here prints, exits or reads a file. */
#ifndef SHARDRUN_LAUNCHER_OPTIONS_H
#define SHARDRUN_LAUNCHER_OPTIONS_H

#include "base/bytes.h"
#include "base/err.h"
#include "launcher/recipe.h"

#include <stdint.h>

enum command {
	COMMAND_NONE,              /* only with help, version or reference */
	COMMAND_RUN, COMMAND_BATCH, COMMAND_SERVE, COMMAND_BENCH,
	COMMAND_PLAN, COMMAND_TOPO, COMMAND_SCRIPT, COMMAND_INSPECT,
	COMMAND_COUNT
};

/* A change to the recipe, in the order of the command line. */
struct options_set {
	const char *option;        /* "--set", "--tp": names it in sentences */
	const char *key;           /* "parallel.tp"; NULL for --set, whose value is "a.b=c" */
	const char *value;
};

/* Strings are borrowed from argv. */
struct options {
	enum command command;
	int help, version, reference;   /* --help stops the reading: nothing else is checked */
	const char *recipe;             /* NULL: none given, then `model` is there (not for topo) */
	const char *model;              /* --model, or inspect's MODEL; wins over the recipe's model.path. NULL: none */

	int n_prompts;                  /* run: --prompt, any number of times */
	const char **prompts;
	const char *prompt_file;        /* run: the whole file is one prompt */
	int n_prompt_ids;               /* run: --prompt-ids, one prompt */
	int32_t *prompt_ids;
	int prompt_stdin;               /* run: "-", or no prompt at all: one prompt per line of stdin */

	const char *logits;             /* run: .npy to write */
	const char *cluster;            /* plan, topo: cluster_read's SPEC; NULL: here */
	int tokenize;                   /* inspect */
	const char *input, *output;     /* batch, as the next five */
	const char *journal, *time_limit;    /* NULL: not given */
	int unordered, strict;
	int64_t grace_s;                     /* 0: not given */
	const char *report, *trace;          /* run, batch: files to write; NULL: none */
	int64_t prompt_tokens, new_tokens;   /* bench; 0: not given */
	struct recipe_list sequences;        /* bench; n 0: not given */
	int json, quiet, verbose;

	int n_sets;
	struct options_set *sets;
};

/* argv[0] is the program. *out is written on success only; options_free it. Errors: ERR_USAGE with one sentence. */
enum err options_parse(int argc, char *const *argv, struct options *out);
void options_free(struct options *o);
/* Puts --model, the short forms and the --sets on top of a recipe; runtime.log too for --quiet and --verbose. */
enum err options_apply(const struct options *o, struct recipe *r);
/* What --help prints for a command, COMMAND_NONE: for the program. At most 100 columns. */
void options_help(enum command command, struct bytes *to);
const char *command_name(enum command command);   /* "run"; "" for COMMAND_NONE */

#endif
