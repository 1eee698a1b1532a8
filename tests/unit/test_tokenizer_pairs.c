/* labels: golden
 * timeout: 600
 * Real vocabularies, fetched by tests/download.sh (skipped, with the reason, when that is not possible): llama.cpp's own
 * pairs of text and ids, and the hard strings through the vocabularies of DeepSeek, SmolLM2 and Llama 2. */
#include "runtime/gguf.h"
#include "tests/tokenizer_golden.h"

#include <sys/wait.h>

/* Where tests/download.sh has `what`; exits with 77 when it cannot be had. */
static const char *fetched(const char *what, char room[1024])
{
	char command[2048];
	snprintf(command, sizeof command, "sh '%s/tests/download.sh' %s '%s/build/cache'", SOURCE_DIR, what, SOURCE_DIR);
	FILE *pipe = popen(command, "r");
	if (!pipe || !fgets(room, 1024, pipe))
		room[0] = '\0';
	int status = pipe ? pclose(pipe) : -1;
	room[strcspn(room, "\n")] = '\0';
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("skipped: %s is not to be had here\n", what);
		exit(77);
	}
	CU_ASSERT_EQUAL(status, 0);
	return room;
}

/* One line of a .out file: ids with blanks between. */
static int line_is(const char *line, const struct tokens *got)
{
	int64_t i = 0;
	for (;; i++) {
		char *end;
		long id = strtol(line, &end, 10);
		if (end == line)
			return i == got->n;
		if (i >= got->n || got->ids[i] != id)
			return 0;
		line = end;
	}
}

/* The texts of NAME.inp are parted by a line of their own, and line i of NAME.out has the ids of text i. */
static void check_pairs(const char *dir, const char *name)
{
	static const char parting[] = "\n__ggml_vocab_test__\n";
	char path[2048];
	struct bytes texts = { 0 }, lines = { 0 };
	struct gguf *g;
	struct tokenizer *t;
	int n = 0;
	snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf.inp", dir, name);
	CHECK_OK(file_read_all(path, 1 << 20, &texts));
	snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf.out", dir, name);
	CHECK_OK(file_read_all(path, 1 << 20, &lines));
	snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf", dir, name);
	CHECK_OK(gguf_open(path, &g));
	CHECK_OK(tokenizer_open_gguf(g, &t));
	const char *text = bytes_text(&texts);
	char *rest = (char *)lines.data;
	for (char *line; (line = strsep(&rest, "\n")) && rest; n++) {
		const char *end = strstr(text, parting);
		size_t bytes = end ? (size_t)(end - text) : strlen(text);
		struct tokens ids = { 0 };
		CHECK_OK(tokenizer_encode(t, text, bytes, 0, &ids));
		int same = line_is(line, &ids);
		if (!same)
			fprintf(stderr, "%s: \"%.*s\" should give %s\n", name, (int)bytes, text, line);
		CU_ASSERT_TRUE(same);
		tokens_free(&ids);
		text = end ? end + strlen(parting) : text + bytes;
	}
	CU_ASSERT_TRUE(n >= 40);
	tokenizer_close(t);
	gguf_close(g);
	bytes_free(&texts);
	bytes_free(&lines);
}

TEST(every_pair_of_llama_cpp_holds)
{
	static const char *const names[] = { "gpt-2", "llama-bpe", "llama-spm", "qwen2", "phi-3", "deepseek-llm", "falcon",
					     "command-r", "deepseek-coder", "mpt", "qwen35", "refact", "starcoder" };
	char dir[1024];
	fetched("llama-vocabs", dir);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		check_pairs(dir, names[i]);
}

TEST(deepseek_gives_the_ids_of_the_tokenizers_library)
{
	char path[1024];
	struct bytes text = { 0 };
	struct tokenizer *t, *plain = open_json_of(bundled());
	CHECK_OK(file_read_all(fetched("deepseek", path), 1 << 24, &text));
	CHECK_OK(tokenizer_open_json(path, bytes_text(&text), text.size, &t));
	check_golden(t, plain, "deepseek");
	bytes_free(&text);
	tokenizer_close(t);
	tokenizer_close(plain);
}

static void check_gguf(const char *path, const char *name)
{
	struct gguf *g;
	struct tokenizer *t, *plain = open_json_of(bundled());
	CHECK_OK(gguf_open(path, &g));
	CHECK_OK(tokenizer_open_gguf(g, &t));
	check_golden(t, plain, name);
	tokenizer_close(t);
	gguf_close(g);
	tokenizer_close(plain);
}

TEST(smollm2_gives_the_ids_of_the_tokenizers_library)
{
	char path[1024];
	check_gguf(fetched("smollm2", path), "smollm2");
}

TEST(llama2_gives_the_ids_of_the_tokenizers_library)
{
	char dir[1024], path[2048];
	snprintf(path, sizeof path, "%s/ggml-vocab-llama-spm.gguf", fetched("llama-vocabs", dir));
	check_gguf(path, "llama-spm");
}

TEST_MAIN("tokenizer pairs", CASE(every_pair_of_llama_cpp_holds), CASE(deepseek_gives_the_ids_of_the_tokenizers_library),
	  CASE(smollm2_gives_the_ids_of_the_tokenizers_library), CASE(llama2_gives_the_ids_of_the_tokenizers_library))
