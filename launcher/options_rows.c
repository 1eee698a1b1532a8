#include "launcher/options_rows.h"

#include <string.h>

#define BIT(command) (1u << (command))
enum {
	ANY = ~0u >> 1,
	RUN = BIT(COMMAND_RUN), BATCH = BIT(COMMAND_BATCH), SERVE = BIT(COMMAND_SERVE), BENCH = BIT(COMMAND_BENCH),
	PLAN = BIT(COMMAND_PLAN), TOPO = BIT(COMMAND_TOPO), SCRIPT = BIT(COMMAND_SCRIPT), INSPECT = BIT(COMMAND_INSPECT),
	WITH_RECIPE = RUN | BATCH | SERVE | BENCH | PLAN | SCRIPT,
	GENERATES = RUN | BATCH | SERVE | SCRIPT,
};

#define AT(field) offsetof(struct options, field)
#define FLAG(name, letter, commands, field, help) { name, letter, OPTION_FLAG, commands, AT(field), NULL, NULL, 0, 0, help }
#define TEXT(name, commands, field, argument, help) \
	{ name, NULL, OPTION_TEXT, commands, AT(field), argument, NULL, 0, 0, help }
#define NUMBER(name, commands, field, max, help) { name, NULL, OPTION_NUMBER, commands, AT(field), "N", NULL, 1, max, help }
#define KEY(name, commands, argument, key) { name, NULL, OPTION_KEY, commands, 0, argument, key, 0, 0, NULL }

const struct option_row option_rows[] = {
	{ "--prompt", NULL, OPTION_PROMPT, RUN, 0, "TEXT", NULL, 0, 0,
	  "A prompt; may be given several times. Other users of the machine can see it in `ps`: --prompt-file or stdin "
	  "keep it private." },
	TEXT("--prompt-file", RUN, prompt_file, "FILE", "The whole file is one prompt."),
	{ "--prompt-ids", NULL, OPTION_IDS, RUN, 0, "N,N,...", NULL, 0, INT32_MAX, "One prompt as token ids." },
	TEXT("--logits", RUN, logits, "FILE.npy", "Writes the logits of every prompt position, in NumPy's format."),
	TEXT("--input", BATCH, input, "FILE.jsonl", "Requests, one JSON object per line; \"-\" is stdin."),
	TEXT("--output", BATCH, output, "FILE.jsonl", "Where the results go, one line each; \"-\" is stdout."),
	TEXT("--journal", BATCH, journal, "FOLDER", "Where results are kept until all are there. Usually OUTPUT.journal."),
	FLAG("--unordered", NULL, BATCH, unordered, "Results as they are finished, not in the order of the input."),
	FLAG("--strict", NULL, BATCH, strict, "Exits with 1 when a result is an error."),
	TEXT("--time-limit", BATCH, time_limit, "[D-]H:M:S",
	     "Ends with status 75 before so much time is over; the same command goes on. Slurm's own limit is known."),
	NUMBER("--grace", BATCH, grace_s, 86400, "Seconds that answers have to end when time is up or USR1 comes; else 60."),
	TEXT("--report", RUN | BATCH, report, "FILE.html",
	     "Writes a page about the run: throughput, latency, who was busy when, bytes, the plan."),
	TEXT("--trace", RUN | BATCH, trace, "FILE.json",
	     "Writes every rank's steps over time, for Perfetto (ui.perfetto.dev) or chrome://tracing."),
	NUMBER("--prompt-tokens", BENCH, prompt_tokens, 16777216, "Tokens of each prompt."),
	NUMBER("--new-tokens", BENCH, new_tokens, 16777216, "Tokens to generate for each prompt."),
	{ "--sequences", NULL, OPTION_NUMBERS, BENCH, AT(sequences), "N,N,...", NULL, 1, 1048576,
	  "Numbers of sequences to measure." },
	TEXT("--cluster", PLAN | TOPO, cluster, "SPEC",
	     "The machines: an hwloc XML file, a synthetic string as \"pack:2 numa:2 core:8 pu:1\", or \"N x\" one of them."),
	FLAG("--tokenize", NULL, INSPECT, tokenize,
	     "Each line of stdin is a JSON string, each line of stdout its token ids."),
	TEXT("--model", WITH_RECIPE | INSPECT, model, "PATH", "The model; replaces model.path, or the whole recipe."),
	{ "--set", NULL, OPTION_SET, WITH_RECIPE, 0, "KEY=VALUE", NULL, 0, 0,
	  "Changes one key of the recipe, as --set parallel.tp=2; shardrun --help lists all." },

	KEY("--max-tokens", GENERATES, "N", "generation.max_tokens"),
	KEY("--temperature", GENERATES, "X", "generation.temperature"),
	KEY("--top-k", GENERATES, "N", "generation.top_k"),
	KEY("--top-p", GENERATES, "X", "generation.top_p"),
	KEY("--min-p", GENERATES, "X", "generation.min_p"),
	KEY("--seed", GENERATES, "N", "generation.seed"),
	{ "--stop", NULL, OPTION_KEY, GENERATES, 0, "TEXT", "generation.stop", 0, 0,
	  "A text that ends an answer; may be given several times." },
	{ "--ignore-eos", NULL, OPTION_KEY_FLAG, GENERATES, 0, NULL, "generation.ignore_eos", 0, 0, NULL },
	KEY("--tp", WITH_RECIPE, "N", "parallel.tp"),
	KEY("--pp", WITH_RECIPE, "N", "parallel.pp"),
	KEY("--ep", WITH_RECIPE, "N", "parallel.ep"),
	KEY("--dp", WITH_RECIPE, "N", "parallel.dp"),
	KEY("--etp", WITH_RECIPE, "N", "parallel.etp"),
	KEY("--backend", WITH_RECIPE, "NAME", "runtime.backend"),
	KEY("--threads", WITH_RECIPE, "N", "runtime.threads"),
	KEY("--isa", WITH_RECIPE, "NAME", "runtime.isa"),
	KEY("--context", WITH_RECIPE, "N", "runtime.context"),
	KEY("--step-tokens", WITH_RECIPE, "N", "runtime.step_tokens"),
	KEY("--kv-type", WITH_RECIPE, "TYPE", "runtime.kv_type"),
	KEY("--nodes", WITH_RECIPE, "N", "launch.nodes"),
	KEY("--ranks-per-node", WITH_RECIPE, "N", "launch.ranks_per_node"),
	KEY("--host", SERVE | SCRIPT, "ADDRESS", "serve.host"),
	KEY("--port", SERVE | SCRIPT, "N", "serve.port"),

	FLAG("--json", NULL, RUN | BENCH | PLAN | TOPO | INSPECT, json, "Prints one JSON object on stdout instead of text."),
	FLAG("--quiet", "-q", ANY & ~BIT(COMMAND_NONE), quiet, "Says only what is wrong."),
	FLAG("--verbose", "-v", ANY & ~BIT(COMMAND_NONE), verbose, "Says more of what is done."),
	FLAG("--help", "-h", ANY, help, "Prints this."),
	FLAG("--version", "-V", ANY, version, "Prints the version."),
	FLAG("--reference", NULL, BIT(COMMAND_NONE), reference,
	     "Prints a recipe with every key, its default and its meaning."),
};
const int n_option_rows = (int)(sizeof option_rows / sizeof option_rows[0]);

const struct command_row command_rows[] = {
	{ COMMAND_RUN, "run", "RECIPE", "RECIPE [-] [options]", "Continues prompts and prints the text as it comes.",
	  "Without a prompt, or with \"-\", every line of stdin is one." },
	{ COMMAND_BATCH, "batch", "RECIPE", "RECIPE --input FILE.jsonl --output FILE.jsonl [options]",
	  "Answers a file of requests; goes on where it was when it is started again.",
	  "Status 75 says that time was up: start it again. docs/BATCH.md has the formats." },
	{ COMMAND_SERVE, "serve", "RECIPE", "RECIPE [options]",
	  "Not yet here: serves the model over HTTP as OpenAI's interface does.", "" },
	{ COMMAND_BENCH, "bench", "RECIPE", "RECIPE [options]", "Measures how fast the model runs.", "" },
	{ COMMAND_PLAN, "plan", "RECIPE", "RECIPE [--cluster SPEC] [options]",
	  "Shows what would run where; needs no cluster.", "" },
	{ COMMAND_TOPO, "topo", NULL, "[--cluster SPEC] [options]", "Shows what the machines look like.", "" },
	{ COMMAND_SCRIPT, "script", "RECIPE", "RECIPE [options]",
	  "Not yet here: prints the Slurm batch script that runs the recipe.", "" },
	{ COMMAND_INSPECT, "inspect", "MODEL", "MODEL [--tokenize] [options]", "Shows what is in a model.", "" },
	{ COMMAND_NONE, NULL, NULL, NULL, NULL, NULL },
};

const struct option_row *option_find(const char *name, size_t n)
{
	for (int i = 0; i < n_option_rows; i++) {
		const struct option_row *row = &option_rows[i];
		if ((strlen(row->name) == n && !memcmp(row->name, name, n)) ||
		    (row->letter && strlen(row->letter) == n && !memcmp(row->letter, name, n)))
			return row;
	}
	return NULL;
}

int option_fits(const struct option_row *row, const struct command_row *command)
{
	return (row->commands & BIT(command ? command->command : COMMAND_NONE)) != 0;
}

const char *command_name(enum command command)
{
	for (const struct command_row *c = command_rows; c->name; c++)
		if (c->command == command)
			return c->name;
	return "";
}
