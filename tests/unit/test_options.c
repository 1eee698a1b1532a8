/* labels: unit
 * The command line: what each command takes, and one sentence for everything else. */
#include "base/mem.h"
#include "launcher/options.h"
#include "tests/test.h"

enum { MAX_WORDS = 64 };

/* Splits at blanks; ' stands for a blank inside a word. */
static enum err parse(const char *line, struct options *o)
{
	static char room[1024];
	char *argv[MAX_WORDS] = { "shardrun" };
	int argc = 1;
	snprintf(room, sizeof room, "%s", line);
	for (char *word = strtok(room, " "); word && argc < MAX_WORDS; word = strtok(NULL, " ")) {
		for (char *c = word; *c; c++)
			*c = *c == '\'' ? ' ' : *c;
		argv[argc++] = word;
	}
	return options_parse(argc, argv, o);
}

static void refused(const char *line, const char *sentence)
{
	struct options o = { 0 };
	enum err e = parse(line, &o);
	if (e != ERR_USAGE || strcmp(err_sentence(), sentence))
		fprintf(stderr, "for: %s\n got %s: %s\nwant USAGE: %s\n", line, err_name(e), e ? err_sentence() : "",
			sentence);
	CU_ASSERT_EQUAL(e, ERR_USAGE);
	CU_ASSERT_STRING_EQUAL(e ? err_sentence() : "", sentence);
	if (!e)
		options_free(&o);
}

TEST(run_takes_prompts_from_one_place)
{
	struct options o;
	CHECK_OK(parse("run r.yaml --prompt one --prompt=--two --json --logits l.npy", &o));
	CU_ASSERT_EQUAL(o.command, COMMAND_RUN);
	CU_ASSERT_STRING_EQUAL(o.recipe, "r.yaml");
	CU_ASSERT_EQUAL(o.n_prompts, 2);
	CU_ASSERT_STRING_EQUAL(o.prompts[0], "one");
	CU_ASSERT_STRING_EQUAL(o.prompts[1], "--two");
	CU_ASSERT_EQUAL(o.json, 1);
	CU_ASSERT_EQUAL(o.prompt_stdin, 0);
	CU_ASSERT_STRING_EQUAL(o.logits, "l.npy");
	options_free(&o);
	CHECK_OK(parse("run --prompt-file=p.txt r.yaml", &o));
	CU_ASSERT_STRING_EQUAL(o.prompt_file, "p.txt");
	CU_ASSERT_EQUAL(o.prompt_stdin, 0);
	options_free(&o);
	CHECK_OK(parse("run r.yaml --prompt-ids 0,17,2147483647", &o));
	CU_ASSERT_EQUAL(o.n_prompt_ids, 3);
	CU_ASSERT_EQUAL(o.prompt_ids[1], 17);
	CU_ASSERT_EQUAL(o.prompt_ids[2], INT32_MAX);
	options_free(&o);
	static const char *const from_stdin[] = { "run r.yaml", "run r.yaml -", "run - r.yaml", "run --model m",
		"run r.yaml --prompt -", NULL };
	for (int i = 0; from_stdin[i]; i++) {
		CHECK_OK(parse(from_stdin[i], &o));
		CU_ASSERT_EQUAL(o.prompt_stdin, 1);
		CU_ASSERT_EQUAL(o.n_prompts, 0);
		options_free(&o);
	}
	refused("run r.yaml --prompt a --prompt-file b",
		"run takes its prompts from one place, found --prompt and --prompt-file");
	refused("run r.yaml - --prompt-ids 1", "run takes its prompts from one place, found --prompt-ids and - (stdin)");
	refused("run r.yaml --prompt-file -",
		"--prompt-file needs a file; \"-\" alone reads one prompt per line from stdin");
	refused("run r.yaml --prompt-file a --prompt-file b", "--prompt-file is there twice: \"a\" and \"b\"");
	refused("run r.yaml --prompt-ids 1 --prompt-ids 2", "--prompt-ids is there twice; it gives one prompt");
	static const char *const bad_ids[] = { "", "1,", ",1", "1,,2", "x", "-1", "2147483648", "1.5", "01",
		"99999999999999999999", NULL };
	for (int i = 0; bad_ids[i]; i++) {
		char line[100];
		snprintf(line, sizeof line, "run r.yaml --prompt-ids=%s", bad_ids[i]);
		CHECK_ERR(parse(line, &o), USAGE, "allowed: a whole number from 0 to 2147483647");
	}
}

TEST(each_command_reads_its_own_options)
{
	struct options o;
	CHECK_OK(parse("batch r.yaml --input a.jsonl --output b.jsonl", &o));
	CU_ASSERT_EQUAL(o.command, COMMAND_BATCH);
	CU_ASSERT_STRING_EQUAL(o.input, "a.jsonl");
	CU_ASSERT_STRING_EQUAL(o.output, "b.jsonl");
	options_free(&o);
	CHECK_OK(parse("bench r.yaml --prompt-tokens 512 --new-tokens=64 --sequences 1,8,64", &o));
	CU_ASSERT_EQUAL(o.prompt_tokens, 512);
	CU_ASSERT_EQUAL(o.new_tokens, 64);
	CU_ASSERT_EQUAL(o.sequences.n, 3);
	CU_ASSERT_EQUAL(o.sequences.items[2], 64);
	options_free(&o);
	CHECK_OK(parse("plan r.yaml --cluster 2'x'pack:2'core:4 -q", &o));
	CU_ASSERT_STRING_EQUAL(o.cluster, "2 x pack:2 core:4");
	CU_ASSERT_EQUAL(o.quiet, 1);
	options_free(&o);
	CHECK_OK(parse("topo", &o));
	CU_ASSERT_EQUAL(o.command, COMMAND_TOPO);
	CU_ASSERT_PTR_NULL(o.cluster);
	options_free(&o);
	CHECK_OK(parse("inspect m.gguf --tokenize", &o));
	CU_ASSERT_STRING_EQUAL(o.model, "m.gguf");
	CU_ASSERT_PTR_NULL(o.recipe);
	CU_ASSERT_EQUAL(o.tokenize, 1);
	options_free(&o);
	CHECK_OK(parse("serve -- --odd.yaml", &o));
	CU_ASSERT_STRING_EQUAL(o.recipe, "--odd.yaml");
	options_free(&o);
	CHECK_OK(parse("script r.yaml --port 80 --tp 2", &o));
	CU_ASSERT_EQUAL(o.n_sets, 2);
	options_free(&o);
}

TEST(help_stops_the_reading)
{
	struct options o;
	static const char *const lines[] = { "--help", "-h", "help", "help run", "--help run", "run --help",
		"run --help --no-such", NULL };
	for (int i = 0; lines[i]; i++) {
		CHECK_OK(parse(lines[i], &o));
		CU_ASSERT_EQUAL(o.help, 1);
		CU_ASSERT_EQUAL(o.command, strstr(lines[i], "run") ? COMMAND_RUN : COMMAND_NONE);
		options_free(&o);
	}
	CHECK_OK(parse("--version", &o));
	CU_ASSERT_EQUAL(o.version, 1);
	options_free(&o);
	CHECK_OK(parse("--reference", &o));
	CU_ASSERT_EQUAL(o.reference, 1);
	options_free(&o);
}

TEST(wrong_lines_get_one_sentence)
{
	refused("",
		"a command is needed: run, batch, serve, bench, plan, topo, script or inspect; shardrun --help explains them");
	refused("rum r.yaml", "unknown command \"rum\", the nearest known is run; shardrun --help lists all");
	refused("frobnicate", "unknown command \"frobnicate\"; shardrun --help lists all");
	refused("run", "run needs a RECIPE, or --model PATH");
	refused("inspect", "inspect needs a MODEL");
	refused("run a.yaml b.yaml",
		"run takes one RECIPE, found \"a.yaml\" and \"b.yaml\"; a prompt is given with --prompt");
	refused("plan a.yaml b.yaml", "plan takes one RECIPE, found \"a.yaml\" and \"b.yaml\"");
	refused("inspect a --model b", "--model is there twice: \"a\" and \"b\"");
	refused("topo r.yaml", "topo takes no \"r.yaml\"; shardrun topo --help shows what it takes");
	refused("batch r.yaml --input a", "batch needs --output FILE");
	refused("batch r.yaml --output a", "batch needs --input FILE");
	refused("run r.yaml --promt a",
		"unknown option --promt, the nearest known is --prompt; shardrun run --help lists all");
	refused("run r.yaml --xyzzyx=a", "unknown option --xyzzyx; shardrun run --help lists all");
	refused("run r.yaml -x", "unknown option -x; shardrun run --help lists all");
	refused("plan r.yaml --logits a", "plan has no option --logits; shardrun plan --help lists what it has");
	refused("run r.yaml --cluster a", "run has no option --cluster; shardrun run --help lists what it has");
	refused("--tp 2 run r.yaml", "the option --tp stands after the command, as shardrun run RECIPE --tp");
	refused("run r.yaml --tp", "--tp needs a value, as --tp N");
	refused("run r.yaml --tp --pp 2", "--tp needs a value, as --tp N; one that begins with -- is written with =");
	refused("run r.yaml --json=1", "--json takes no value, found \"1\"");
	refused("run r.yaml --model=", "--model: found nothing, needs PATH");
	refused("run r.yaml -q -v", "--quiet and --verbose exclude each other");
	refused("bench r.yaml --prompt-tokens 0",
		"--prompt-tokens: found \"0\", allowed: a whole number from 1 to 16777216");
	refused("bench r.yaml --sequences 1,two", "--sequences: found \"two\", allowed: a whole number from 1 to 1048576");
}

TEST(short_forms_and_sets_reach_the_recipe_in_order)
{
	struct options o;
	struct recipe *r;
	CHECK_OK(parse("run r.yaml --tp 2 --set parallel.tp=3 --set parallel.pp=4 --pp=5 --ep 6 --dp 7 --etp 8 --max-tokens 9 --temperature 0.5 "
		       "--top-k 10 --top-p 0.25 --min-p 0.125 --seed 11 --stop a,b --stop \"' --ignore-eos --threads 12",
		       	&o));
	CHECK_OK(recipe_create(&r));
	CHECK_OK(options_apply(&o, r));
	CU_ASSERT_EQUAL(r->parallel.tp, 3);
	CU_ASSERT_EQUAL(r->parallel.pp, 5);
	CU_ASSERT_EQUAL(r->parallel.ep, 6);
	CU_ASSERT_EQUAL(r->parallel.dp, 7);
	CU_ASSERT_EQUAL(r->parallel.etp, 8);
	CU_ASSERT_EQUAL(r->generation.max_tokens, 9);
	CU_ASSERT_EQUAL(r->generation.temperature, 0.5);
	CU_ASSERT_EQUAL(r->generation.top_k, 10);
	CU_ASSERT_EQUAL(r->generation.top_p, 0.25);
	CU_ASSERT_EQUAL(r->generation.min_p, 0.125);
	CU_ASSERT_EQUAL(r->generation.seed, 11);
	CU_ASSERT_EQUAL(r->generation.ignore_eos, 1);
	CU_ASSERT_EQUAL(r->runtime.threads, 12);
	CU_ASSERT_EQUAL(r->generation.stop.n, 2);
	CU_ASSERT_STRING_EQUAL(r->generation.stop.items[0], "a,b");
	CU_ASSERT_STRING_EQUAL(r->generation.stop.items[1], "\" ");
	options_free(&o);
	CHECK_OK(parse("serve --model m.gguf --isa c --kv-type f16 --backend cpu --context 100 --step-tokens 32 --port 1 --host 0.0.0.0 -v", &o));
	CHECK_OK(options_apply(&o, r));
	CU_ASSERT_STRING_EQUAL(r->model.path, "m.gguf");
	CU_ASSERT_STRING_EQUAL(recipe_word(r, "runtime.isa"), "c");
	CU_ASSERT_STRING_EQUAL(recipe_word(r, "runtime.kv_type"), "f16");
	CU_ASSERT_STRING_EQUAL(recipe_word(r, "runtime.backend"), "cpu");
	CU_ASSERT_STRING_EQUAL(recipe_word(r, "runtime.log"), "debug");
	CU_ASSERT_EQUAL(r->runtime.context, 100);
	CU_ASSERT_EQUAL(r->runtime.step_tokens, 32);
	CU_ASSERT_EQUAL(r->serve.port, 1);
	CU_ASSERT_STRING_EQUAL(r->serve.host, "0.0.0.0");
	options_free(&o);
	static const struct { const char *line, *sentence; } wrong[] = {
		{ "run r --tp two", "--tp: found \"two\", allowed: auto or 1 to 4096 ranks" },
		{ "run r --set tp=2", "--set: unknown key \"tp\", the nearest known is parallel.tp" },
		{ "run r --set parallel.tp=-2", "--set parallel.tp: found \"-2\"" },
		{ "run r --stop=", "--stop" },
		{ "run r --ignore-eos=maybe", "--ignore-eos: found \"maybe\", allowed: true or false" },
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		CHECK_OK(parse(wrong[i].line, &o));
		CHECK_ERR(options_apply(&o, r), RECIPE, wrong[i].sentence);
		options_free(&o);
	}
	recipe_destroy(r);
}

static void has(const struct bytes *help, const char *text)
{
	if (!strstr(bytes_text(help), text))
		fprintf(stderr, "help lacks \"%s\"\n", text);
	CU_ASSERT_PTR_NOT_NULL(strstr(bytes_text(help), text));
}

TEST(help_fits_and_names_what_there_is)
{
	for (int c = COMMAND_NONE; c < COMMAND_COUNT; c++) {
		struct bytes help = { 0 };
		options_help((enum command)c, &help);
		CHECK_OK(help.error);
		for (const char *line = bytes_text(&help); *line; line += strcspn(line, "\n") + (strchr(line,
		     '\n') != NULL)) {
			size_t n = strcspn(line, "\n");
			if (n > 100 || (n && line[n - 1] == ' '))
				fprintf(stderr, "%.*s|\n", (int)n, line);
			CU_ASSERT(n <= 100);
			CU_ASSERT(!n || line[n - 1] != ' ');
		}
		has(&help, "--help, -h");
		if (c == COMMAND_RUN) {
			has(&help, "usage: shardrun run RECIPE");
			has(&help, "`ps`");
			has(&help, "--max-tokens N");
			CU_ASSERT_PTR_NULL(strstr(bytes_text(&help), "--cluster"));
		}
		if (c == COMMAND_NONE) {
			for (int other = COMMAND_RUN; other < COMMAND_COUNT; other++)
				has(&help, command_name((enum command)other));
			has(&help, "parallel.tp_across_nodes");
		}
		bytes_free(&help);
	}
	struct options o;
	for (int c = COMMAND_RUN; c < COMMAND_COUNT; c++) {   /* names and numbers belong together */
		char line[40];
		snprintf(line, sizeof line, "%s --help", command_name((enum command)c));
		CHECK_OK(parse(line, &o));
		CU_ASSERT_EQUAL(o.command, (enum command)c);
		options_free(&o);
	}
}

TEST(memory_may_run_out_at_any_point)
{
	int failures = 0;
	for (int64_t nth = 1; nth < 1000; nth++) {
		struct options o;
		struct recipe *r = NULL;
		mem_fail_at(nth);
		enum err e = parse("run r.yaml --prompt-ids 1,2 --tp 2 --stop a", &o);
		if (!e) {
			e = recipe_create(&r);
			if (!e)
				e = options_apply(&o, r);
			options_free(&o);
		}
		mem_fail_at(0);
		recipe_destroy(r);
		CU_ASSERT(e == ERR_OK || e == ERR_MEMORY);
		failures += e == ERR_MEMORY;
		if (!e)
			break;
	}
	CU_ASSERT(failures >= 3 + 14);   /* three arrays, a recipe and its 13 texts */
}

TEST_MAIN("options", CASE(run_takes_prompts_from_one_place), CASE(each_command_reads_its_own_options),
	  CASE(help_stops_the_reading),
	  CASE(wrong_lines_get_one_sentence), CASE(short_forms_and_sets_reach_the_recipe_in_order),
	  CASE(help_fits_and_names_what_there_is), CASE(memory_may_run_out_at_any_point))
