/* labels: unit
 * Commands as functions: what is refused before any work, and what is said of it. */
#include "launcher/commands.h"
#include "tests/files.h"
#include "tests/test.h"

#define MODEL "--model=" SOURCE_DIR "/configs/models/jargon-moe"

/* stdout goes to a file of the directory; gives its size. */
static enum err run_command(const struct test_dir *d, enum err (*command)(const struct options *), const char *const *words,
			    long *printed)
{
	char *argv[16];
	int argc = 0;
	struct options o;
	struct stat st;
	for (; words[argc]; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc];
	TRY(options_parse(argc, argv, &o));
	fflush(stdout);
	int saved = dup(STDOUT_FILENO), file = open(test_path(d, "out"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
	CU_ASSERT_FATAL(saved >= 0 && file >= 0 && dup2(file, STDOUT_FILENO) >= 0);
	enum err e = command(&o);
	dup2(saved, STDOUT_FILENO);
	*printed = fstat(file, &st) ? -1 : (long)st.st_size;
	close(saved);
	close(file);
	options_free(&o);
	return e;
}

/* Ids of one line of stdin. */
static enum err tokenize(const struct test_dir *d, const char *model, char *ids, size_t room)
{
	static const char line[] = "\"hello, world\"\n";
	long printed = 0;
	int saved = dup(STDIN_FILENO), file = open(test_write(d, "in", line, strlen(line)), O_RDONLY);
	CU_ASSERT_FATAL(saved >= 0 && file >= 0 && dup2(file, STDIN_FILENO) >= 0);
	clearerr(stdin);
	enum err e = run_command(d, command_inspect, (const char *const[]){ "shardrun", "inspect", model, "--tokenize", NULL },
				 &printed);
	dup2(saved, STDIN_FILENO);
	close(saved);
	close(file);
	int out = open(test_path(d, "out"), O_RDONLY);
	ssize_t n = read(out, ids, room - 1);
	ids[n > 0 ? n : 0] = '\0';
	close(out);
	return e;
}

#define WORDS(...) ((const char *const[]){ "shardrun", __VA_ARGS__, NULL })

/* 4096 x 512 x 4096 = 2^33 ranks. */
TEST(a_plan_of_too_many_ranks_is_refused)
{
	struct test_dir d;
	long printed = 0;
	test_dir_make(&d);
	CHECK_ERR(run_command(&d, command_plan, WORDS("plan", MODEL, "--tp=4096", "--pp=512", "--dp=4096"), &printed), FIT,
		  "8589934592 ranks are more than 1024 on each of 1 node");
	CHECK_ERR(run_command(&d, command_plan, WORDS("plan", MODEL, "--nodes=65536", "--ranks-per-node=4096",
						      "--cluster=2 x pack:1 core:4 pu:1"), &printed), FIT,
		  "268435456 ranks are more than 1024 on each of 2 nodes");
	CU_ASSERT_EQUAL(printed, 0);
	CHECK_OK(run_command(&d, command_plan, WORDS("plan", MODEL, "--tp=2", "--pp=2"), &printed));
	CU_ASSERT(printed > 100);
	test_dir_remove(&d);
}

TEST(a_file_for_logits_that_cannot_be_written_is_refused_before_the_work)
{
	struct test_dir d;
	char logits[200];
	long printed = -1;
	test_dir_make(&d);
	snprintf(logits, sizeof logits, "--logits=%s/absent/x.npy", d.path);
	CHECK_ERR(run_command(&d, command_run, WORDS("run", MODEL, "-q", "--max-tokens=1", "--prompt-ids=5", logits), &printed), IO,
		  "absent/x.npy: cannot be written");
	CU_ASSERT_EQUAL(printed, 0);
	test_dir_remove(&d);
}

/* 3 positions of 2048 logits after a header of 128 bytes. */
TEST(logits_are_written_for_every_position)
{
	struct test_dir d;
	struct stat st;
	char logits[300], path[200];
	long printed = 0;
	test_dir_make(&d);
	snprintf(path, sizeof path, "%s/x.npy", d.path);
	snprintf(logits, sizeof logits, "--logits=%s", path);
	CHECK_OK(run_command(&d, command_run, WORDS("run", MODEL, "-q", "--max-tokens=1", "--prompt-ids=5,6,7", logits), &printed));
	CU_ASSERT_FATAL(stat(path, &st) == 0);
	CU_ASSERT_EQUAL(st.st_size, 128 + 3 * 2048 * 4);
	CU_ASSERT(printed > 0);
	test_dir_remove(&d);
}

TEST(equal_machines_are_described_once)
{
	struct cluster c;
	struct bytes text = { 0 };
	CHECK_OK(cluster_read("3 x pack:1 core:2 pu:1 + pack:2 core:4 pu:1 + 2 x pack:1 core:2 pu:1", &c));
	report_machines(&c, &text);
	int n = 0;
	for (const char *at = bytes_text(&text); (at = strstr(at, "cores, ")); at++)
		n++;
	CU_ASSERT_EQUAL(n, 3);
	CU_ASSERT_PTR_NOT_NULL(strstr(bytes_text(&text), "and 2 more like it, up to "));
	CU_ASSERT_PTR_NOT_NULL(strstr(bytes_text(&text), "and 1 more like it, up to "));
	CU_ASSERT_PTR_NOT_NULL(strstr(bytes_text(&text), "8 cores"));
	bytes_free(&text);
	cluster_free(&c);
}

/* inspect --tokenize and run take the same words for a model. */
TEST(a_model_is_named_in_every_way_for_its_tokenizer)
{
	struct test_dir d;
	char a[200], b[200];
	test_dir_make(&d);
	CHECK_OK(tokenize(&d, SOURCE_DIR "/configs/models/jargon-moe", a, sizeof a));
	CHECK_OK(tokenize(&d, SOURCE_DIR "/configs/models/jargon-moe/model.safetensors", b, sizeof b));
	CU_ASSERT(strlen(a) > 8 && a[0] == '[');
	CU_ASSERT_STRING_EQUAL(a, b);
	/* a directory that holds a .gguf file: what is wrong with that file is said, not that another kind is missing */
	enum err file = tokenize(&d, SOURCE_DIR "/tests/golden/models/gguf-llama-f32/model.gguf", a, sizeof a);
	char sentence[ERR_SENTENCE_BYTES] = "";
	if (file)
		snprintf(sentence, sizeof sentence, "%s", err_sentence());
	CU_ASSERT_EQUAL(tokenize(&d, SOURCE_DIR "/tests/golden/models/gguf-llama-f32", b, sizeof b), file);
	CU_ASSERT_STRING_EQUAL(a, b);
	CU_ASSERT(!file || !strcmp(sentence, err_sentence()));
	test_dir_remove(&d);
}

TEST(the_recipe_says_how_much_is_said)
{
	struct test_dir d;
	struct stat st;
	long printed = 0;
	test_dir_make(&d);
	for (int loud = 0; loud < 2; loud++) {
		int saved = dup(STDERR_FILENO), file = open(test_path(&d, "err"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
		CU_ASSERT_FATAL(saved >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
		enum err e = run_command(&d, command_run, WORDS("run", MODEL, "--max-tokens=1", "--prompt-ids=5", "--set",
								loud ? "runtime.log=info" : "runtime.log=warn"), &printed);
		dup2(saved, STDERR_FILENO);
		CU_ASSERT_FATAL(fstat(file, &st) == 0);
		close(saved);
		close(file);
		CHECK_OK(e);
		CU_ASSERT(loud ? st.st_size > 100 : st.st_size == 0);
	}
	test_dir_remove(&d);
}

TEST_MAIN("commands", CASE(a_plan_of_too_many_ranks_is_refused),
	  CASE(a_file_for_logits_that_cannot_be_written_is_refused_before_the_work), CASE(logits_are_written_for_every_position),
	  CASE(equal_machines_are_described_once), CASE(a_model_is_named_in_every_way_for_its_tokenizer), CASE(the_recipe_says_how_much_is_said))
