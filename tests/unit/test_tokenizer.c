/* labels: unit
 * Text to ids and back. The bundled model's prompts and texts are those of its expected.json (by transformers). */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "runtime/gguf.h"
#include "runtime/tokenizer.h"
#include "tests/test.h"
#include "tests/tokenizer_golden.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

TEST(the_bundled_model_reads_and_writes_as_transformers_does)
{
	char path[1024];
	struct tokenizer *t;
	json_t *list, *item;
	size_t i, k;
	CHECK_OK(file_join(bundled(), "expected.json", path, sizeof path));
	CHECK_OK(json_parse_file(path, 1 << 20, ERR_MODEL, &list));
	CHECK_OK(tokenizer_open_directory(bundled(), &t));
	CU_ASSERT_EQUAL(tokenizer_n_tokens(t), 2048);
	CU_ASSERT_TRUE(json_array_size(list) >= 10);
	json_array_foreach(list, i, item) {
		const char *prompt = json_string_value(json_object_get(item, "prompt"));
		struct tokens ids = { 0 };
		struct bytes text = { 0 };
		struct detokenizer d = { 0 };
		CHECK_OK(tokenizer_encode(t, prompt, strlen(prompt), TOKENIZE_ADD_SPECIAL, &ids));
		CU_ASSERT_TRUE(same_ids(&ids, json_object_get(item, "ids")));
		json_t *greedy = json_object_get(item, "greedy"), *id;
		json_array_foreach(greedy, k, id) {
			if (tokenizer_is_control(t, (int32_t)json_integer_value(id)))   /* the text ends there */
				break;
			CHECK_OK(detokenizer_put(&d, t, (int32_t)json_integer_value(id), &text));
		}
		detokenizer_end(&d, &text);
		CU_ASSERT_STRING_EQUAL(bytes_text(&text), json_string_value(json_object_get(item, "text")));
		bytes_free(&text);
		tokens_free(&ids);
	}
	tokenizer_close(t);
	json_decref(list);
}

TEST(hard_strings_give_the_ids_and_texts_of_the_tokenizers_library)
{
	static const char *const names[] = { "llama3", "qwen2", "smollm", "cased", "falcon", "behaviors", "llama2",
					     "metaspace", "unknown", "fused" };
	struct tokenizer *plain = open_json_of(bundled());
	check_golden(plain, plain, "jargon-moe");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char dir[1024];
		snprintf(dir, sizeof dir, GOLDEN "/%s", names[i]);
		struct tokenizer *t = open_json_of(dir);
		check_golden(t, plain, names[i]);
		tokenizer_close(t);
	}
	tokenizer_close(plain);
}

TEST(gguf_vocabularies_give_what_their_json_gives)
{
	static const char *const names[] = { "llama3", "smollm" };
	struct tokenizer *plain = open_json_of(bundled());
	for (size_t i = 0; i < 2; i++) {
		char path[1024];
		struct gguf *g;
		struct tokenizer *t;
		snprintf(path, sizeof path, GOLDEN "/%s/tokenizer.gguf", names[i]);
		CHECK_OK(gguf_open(path, &g));
		CHECK_OK(tokenizer_open_gguf(g, &t));
		check_golden(t, plain, names[i]);
		tokenizer_close(t);
		gguf_close(g);
	}
	tokenizer_close(plain);
}

/* -- small files written here --------------------------------------------------------------------------------------- */

/* GGUF value types, of the specification. */
enum { GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };

static void put_text(struct bytes *b, const char *text)
{
	bytes_put_u64(b, strlen(text));
	bytes_put(b, text, strlen(text));
}

static void put_string_key(struct bytes *b, const char *key, const char *value)
{
	put_text(b, key);
	bytes_put_u32(b, GGUF_STRING);
	put_text(b, value);
}

static void put_array_key(struct bytes *b, const char *key, uint32_t type, uint64_t n)
{
	put_text(b, key);
	bytes_put_u32(b, GGUF_ARRAY);
	bytes_put_u32(b, type);
	bytes_put_u64(b, n);
}

struct tiny_token { const char *text; float score; int32_t type; };

/* A GGUF file that holds only a tokenizer; opened, and the file removed again. `pre` NULL: left out. */
static enum err open_tiny(const char *model, const char *pre, const struct tiny_token *tokens, uint64_t n, uint64_t n_scores,
			  struct gguf **g, struct tokenizer **t)
{
	char path[] = "/tmp/shardrun-test-XXXXXX";
	struct bytes b = { 0 };
	bytes_put(&b, "GGUF", 4);
	bytes_put_u32(&b, 3);
	bytes_put_u64(&b, 0);
	bytes_put_u64(&b, pre ? 6 : 5);
	put_string_key(&b, "tokenizer.ggml.model", model);
	if (pre)
		put_string_key(&b, "tokenizer.ggml.pre", pre);
	put_array_key(&b, "tokenizer.ggml.tokens", GGUF_STRING, n);
	for (uint64_t i = 0; i < n; i++)
		put_text(&b, tokens[i].text);
	put_array_key(&b, "tokenizer.ggml.scores", GGUF_F32, n_scores);
	for (uint64_t i = 0; i < n_scores; i++) {
		uint32_t bits;
		memcpy(&bits, &tokens[i].score, sizeof bits);
		bytes_put_u32(&b, bits);
	}
	put_array_key(&b, "tokenizer.ggml.token_type", GGUF_I32, n);
	for (uint64_t i = 0; i < n; i++)
		bytes_put_u32(&b, (uint32_t)tokens[i].type);
	put_array_key(&b, "tokenizer.ggml.merges", GGUF_STRING, 1);
	put_text(&b, "a b");
	int fd = mkstemp(path);
	CU_ASSERT_EQUAL(write(fd, b.data, b.size), (ssize_t)b.size);
	close(fd);
	bytes_free(&b);
	*g = NULL;
	enum err e = gguf_open(path, g);
	unlink(path);
	return e ? e : tokenizer_open_gguf(*g, t);
}

/* Encodes, and compares with a list of ids that ends in -1. */
static void check_encode(const struct tokenizer *t, const char *text, int flags, const int32_t *want)
{
	struct tokens ids = { 0 };
	int64_t n = 0;
	CHECK_OK(tokenizer_encode(t, text, strlen(text), flags, &ids));
	while (want[n] >= 0)
		n++;
	CU_ASSERT_EQUAL(ids.n, n);
	CU_ASSERT_TRUE(ids.n == n && (!n || !memcmp(ids.ids, want, (size_t)n * sizeof *want)));
	tokens_free(&ids);
}

#define IDS(...) (const int32_t[]){ __VA_ARGS__, -1 }
#define BAR "\xe2\x96\x81"

static const struct tiny_token tiny[] = {
	{ "<unk>", 0, 2 }, { "<s>", 0, 3 }, { "</s>", 0, 3 }, { BAR, -9, 1 }, { "a", -9, 1 }, { "b", -9, 1 },
	{ "ab", -1, 1 }, { BAR "a", -2, 1 }, { BAR "ab", -3, 1 }, { "aa", -1, 1 }, { "<0xC3>", 0, 6 }, { "<0xA9>", 0, 6 },
	{ "[K]", 0, 4 },
};
enum { N_TINY = sizeof tiny / sizeof tiny[0] };

/* By hand: the best score merges first, of two alike the left one; a space goes in front of the text and after each whole
 * token; what is no token becomes bytes, or <unk>. */
TEST(sentencepiece_merges_the_best_score_first)
{
	struct gguf *g;
	struct tokenizer *t;
	CHECK_OK(open_tiny("llama", NULL, tiny, N_TINY, N_TINY, &g, &t));
	check_encode(t, "ab", TOKENIZE_ADD_SPECIAL, IDS(1, 8));    /* a+b -1, then _+ab -3 */
	check_encode(t, "bab", 0, IDS(3, 5, 6));
	check_encode(t, "aaa", 0, IDS(3, 9, 4));                   /* the left aa, though _a is a token too */
	check_encode(t, "a b", 0, IDS(7, 3, 5));
	check_encode(t, "\xc3\xa9", 0, IDS(3, 10, 11));
	check_encode(t, "x", 0, IDS(3, 0));
	check_encode(t, "[K]a", 0, IDS(12, 7));
	check_encode(t, "a</s>a", TOKENIZE_PARSE_SPECIAL, IDS(7, 2, 7));
	check_encode(t, "", TOKENIZE_ADD_SPECIAL, IDS(1));
	struct detokenizer d = { 0 };
	struct bytes text = { 0 };
	for (const int32_t *id = IDS(1, 7, 3, 5, 10, 11, 12, 10, 2); *id >= 0; id++)
		CHECK_OK(detokenizer_put(&d, t, *id, &text));
	detokenizer_end(&d, &text);
	CU_ASSERT_STRING_EQUAL(bytes_text(&text), "a b\xc3\xa9[K]\xef\xbf\xbd");
	CU_ASSERT_EQUAL(tokenizer_find(t, "ab"), 6);
	CU_ASSERT_EQUAL(tokenizer_find(t, "abc"), -1);
	bytes_free(&text);
	tokenizer_close(t);
	gguf_close(g);
}

/* GGUF strings may hold any bytes. */
TEST(a_token_that_is_part_of_a_character_is_never_found_in_a_text)
{
	struct gguf *g;
	struct tokenizer *t;
	struct tiny_token odd[N_TINY];
	struct bytes text = { 0 };
	memcpy(odd, tiny, sizeof odd);
	odd[12].text = "\xf0\x9f";
	odd[9].text = "\x98\x80";
	CHECK_OK(open_tiny("llama", NULL, odd, N_TINY, N_TINY, &g, &t));
	check_encode(t, "\xf0\x9f\x98\x80", 0, IDS(3, 0));
	CHECK_OK(tokenizer_piece(t, 12, &text));
	CHECK_OK(tokenizer_piece(t, 9, &text));
	CU_ASSERT_STRING_EQUAL(bytes_text(&text), "\xf0\x9f\x98\x80");
	CHECK_ERR(tokenizer_piece(t, N_TINY, &text), WORK, "token id 13 is outside of the vocabulary (0 to 12)");
	bytes_free(&text);
	tokenizer_close(t);
	gguf_close(g);
}

TEST(bad_gguf_vocabularies_are_refused_with_a_sentence)
{
	struct gguf *g;
	struct tokenizer *t;
	struct tiny_token odd[N_TINY];
	CHECK_ERR(open_tiny("bert", NULL, tiny, N_TINY, N_TINY, &g, &t), MODEL,
		  "\"bert\" is not supported (known: gpt2, llama)");
	gguf_close(g);
	CHECK_ERR(open_tiny("gpt2", "nonesuch", tiny, N_TINY, N_TINY, &g, &t), MODEL,
		  "\"nonesuch\" is not known (known: default, gpt-2");
	gguf_close(g);
	CHECK_ERR(open_tiny("llama", NULL, tiny, N_TINY, N_TINY - 1, &g, &t), MODEL,
		  "has 12 entries, but there are 13 tokens");
	gguf_close(g);
	memcpy(odd, tiny, sizeof odd);
	odd[4].score = NAN;
	CHECK_ERR(open_tiny("llama", NULL, odd, N_TINY, N_TINY, &g, &t), MODEL, "score of token 4 is not a number");
	gguf_close(g);
	CHECK_ERR(open_tiny("llama", NULL, tiny, 0, 0, &g, &t), MODEL, "is empty");
	gguf_close(g);
}

/* JSON is written here with ' for ". The caller frees. */
static char *quoted(const char *json)
{
	char *copy = strdup(json);
	for (char *c = copy; *c; c++)
		if (*c == '\'')
			*c = '"';
	return copy;
}

static enum err open_quoted(const char *json, struct tokenizer **out)
{
	char *copy = quoted(json);
	enum err e = tokenizer_open_json("t.json", copy, strlen(copy), out);
	free(copy);
	return e;
}

#define BPE(vocab, merges) "{'model': {'type': 'BPE', 'vocab': " vocab ", 'merges': " merges "}}"
#define MODEL_OF(rest) "'model': {'type': 'BPE', 'vocab': {'a': 0, 'b': 1, 'ab': 2}, 'merges': ['a b']" rest "}"

#define SPLIT_OF(regex) "{" MODEL_OF("") ", 'pre_tokenizer': {'type': 'Split', 'pattern': {'Regex': '" regex "'}}}"

TEST(bad_tokenizer_json_is_refused_with_a_sentence)
{
	static const struct { const char *json, *sentence; } cases[] = {
		{ "{}", "has no \"model\"" },
		{ "[1]", "has no \"model\"" },
		{ "{'model': {'type': 'Unigram', 'vocab': []}}", "model is Unigram, but only BPE" },
		{ "{'model': {'type': 'WordPiece'}}", "model is WordPiece" },
		{ BPE("{}", "[]"), "vocabulary is empty" },
		{ BPE("{'a': 0, 'b': 0}", "[]"), "token id 0 is given twice" },
		{ BPE("{'a': -1}", "[]"), "token id -1 is out of range" },
		{ BPE("{'a': 99999999999}", "[]"), "is out of range" },
		{ BPE("{'a': '0'}", "[]"), "id of token \"a\" is not an integer" },
		{ BPE("{'a': 0}", "['a']"), "merge 0 must be" },
		{ BPE("{'a': 0}", "[['a', 'c']]"), "right part that is not in the" },
		{ BPE("{'a': 0}", "['a a']"), "makes a token that is not in the" },
		{ "{" MODEL_OF(", 'end_of_word_suffix': '</w>'") "}", "end_of_word_suffix" },
		{ "{" MODEL_OF(", 'dropout': 0.1") "}", "must not be random" },
		{ "{" MODEL_OF(", 'unk_token': '?'") "}", "unk_token \"?\" is not in the vocabulary" },
		{ "{" MODEL_OF("") ", 'normalizer': {'type': 'Precompiled'}}", "\"Precompiled\" is not supported" },
		{ "{" MODEL_OF("") ", 'pre_tokenizer': {'type': 'Magic'}}", "pre_tokenizer \"Magic\" is not supported" },
		{ "{" MODEL_OF("") ", 'pre_tokenizer': {}}", "pre_tokenizer has no \"type\"" },
		{ "{" MODEL_OF("") ", 'post_processor': {'type': 'BertProcessing'}}",
		  "\"BertProcessing\" is not supported" },
		{ "{" MODEL_OF("") ", 'decoder': {'type': 'CTC'}}", "decoder \"CTC\" is not supported" },
		{ SPLIT_OF("("), "is wrong at byte 1" },
		{ SPLIT_OF("\\\\h"), "uses \\h" },
		{ SPLIT_OF("[a&&b]"), "intersects sets" },
		{ SPLIT_OF("\\\\C"), "is wrong at byte" },
		{ "{" MODEL_OF("") ", 'added_tokens': [{'content': 'x'}]}", "\"id\" is missing" },
		{ "{" MODEL_OF("") ", 'added_tokens': [{'content': 'x', 'id': 1}]}", "token id 1 is given twice" },
		{ "{" MODEL_OF("") ", 'post_processor': {'type': 'TemplateProcessing', 'single': []}}",
		  "has the text 0 times" },
		{ "{" MODEL_OF("") ", 'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': "
		  "{'id': 'z'}}, {'Sequence': {}}], 'special_tokens': {'z': {'ids': [3]}}}}", "is not in the vocabulary" },
		{ "{", "t.json:1:1: not valid JSON" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct tokenizer *t;
		CHECK_ERR(open_quoted(cases[i].json, &t), MODEL, cases[i].sentence);
	}
	CHECK_ERR(tokenizer_open_directory("/dev", &(struct tokenizer *){ NULL }), MODEL, "/dev: has no tokenizer.json");
}

TEST(a_hostile_file_cannot_make_a_text_grow_or_a_match_run_without_end)
{
	static const char grow[] = "{" MODEL_OF("") ", 'normalizer': {'type': 'Sequence', 'normalizers': [";
	static const char doubled[] = "{'type': 'Replace', 'pattern': {'String': 'a'}, 'content': 'aa'}";
	static const char slow[] = "{" MODEL_OF("") ", 'pre_tokenizer': {'type': 'Split', 'pattern': "
				   "{'Regex': '(a*)*(a|aa)+[bc]'}}}";
	struct bytes json = { 0 }, text = { 0 };
	struct tokenizer *t;
	struct tokens ids = { 0 };
	bytes_printf(&json, "%s", grow);
	for (int i = 0; i < 60; i++)
		bytes_printf(&json, "%s%s", i ? "," : "", doubled);
	bytes_printf(&json, "]}}");
	CHECK_OK(open_quoted(bytes_text(&json), &t));
	CHECK_ERR(tokenizer_encode(t, "aaaa", 4, 0, &ids), MODEL, "a normaliser makes more than");
	tokenizer_close(t);
	for (int i = 0; i < 4000; i++)
		bytes_put(&text, "a", 1);
	CHECK_OK(open_quoted(slow, &t));
	CHECK_ERR(tokenizer_encode(t, bytes_text(&text), text.size, 0, &ids), MODEL, "gave up at byte 0");
	CU_ASSERT_EQUAL(ids.n, 0);
	tokenizer_close(t);
	tokens_free(&ids);
	bytes_free(&text);
	bytes_free(&json);
}

/* -- properties ----------------------------------------------------------------------------------------------------- */

static double seconds_to_encode(const struct tokenizer *t, const char *unit, size_t bytes)
{
	struct bytes text = { 0 };
	struct tokens ids = { 0 };
	while (text.size < bytes)
		bytes_put(&text, unit, strlen(unit));
	clock_t begin = clock();
	CHECK_OK(tokenizer_encode(t, bytes_text(&text), text.size, TOKENIZE_PARSE_SPECIAL, &ids));
	double s = (double)(clock() - begin) / CLOCKS_PER_SEC;
	CU_ASSERT_TRUE(ids.n > 0);
	tokens_free(&ids);
	bytes_free(&text);
	return s;
}

/* What is quadratic takes many seconds here, what is not some hundredths (a few tenths with sanitizers). */
TEST(long_runs_take_no_longer_than_other_text)
{
	static const char *const units[] = { "a", "ab", " ", "\n", " \n", "1", ".", "\xe2\x82\xac", "word ",
					     "<|begin", "\t x" };
	static const char *const names[] = { "llama3", "qwen2", "falcon", "llama2", "metaspace" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char dir[1024];
		snprintf(dir, sizeof dir, GOLDEN "/%s", names[i]);
		struct tokenizer *t = open_json_of(dir);
		for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
			double s = seconds_to_encode(t, units[u], 100000);
			if (s > 0.9)
				fprintf(stderr, "%s: 100 KB of \"%s\" take %.2f s\n", names[i], units[u], s);
			CU_ASSERT_TRUE(s <= 0.9);
		}
		tokenizer_close(t);
	}
}

/* Every token of a text that falls into bytes: each part given out is whole characters (jansson refuses others). */
TEST(incremental_text_never_splits_a_character)
{
	static const char text[] = "na\xc3\xafve \xf0\x9f\x98\xb6\xe2\x80\x8d\xf0\x9f\x8c\xab\xef\xb8\x8f"
				   " \xe6\x88\x91 \xe2\x82";
	struct tokenizer *t = open_json_of(bundled());
	struct bytes all = { 0 };
	struct detokenizer d = { 0 };
	int n_held = 0;
	for (size_t i = 0; i + 1 < sizeof text; i++) {
		struct bytes part = { 0 };
		struct tokens id = { 0 };
		char one[2] = { text[i], 0 };
		if ((unsigned char)text[i] < 0x80) {
			CHECK_OK(tokenizer_encode(t, one, 1, 0, &id));
		} else {   /* a byte's own token, by its stand-in: 0xa1 to 0xac and 0xae to 0xff are themselves */
			unsigned char b = (unsigned char)text[i];
			unsigned c = b <= 0xa0 ? 0x121u + b - 0x7fu : b;   /* 0x7f to 0xa0 are U+0121 to U+0142 */
			char stand_in[3] = { (char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)), 0 };
			CHECK_OK(tokens_push(&id, tokenizer_find(t, stand_in)));
		}
		CHECK_OK(detokenizer_put(&d, t, id.ids[0], &part));
		json_t *whole = json_stringn(bytes_text(&part), part.size);
		CU_ASSERT_PTR_NOT_NULL(whole);
		json_decref(whole);
		n_held += !part.size;
		bytes_put(&all, part.data, part.size);
		bytes_free(&part);
		tokens_free(&id);
	}
	CU_ASSERT_TRUE(n_held > 10);
	detokenizer_end(&d, &all);
	CU_ASSERT_EQUAL(all.size, sizeof text - 1 - 2 + 3);   /* the broken end has become U+FFFD */
	CU_ASSERT_EQUAL(memcmp(bytes_text(&all), text, sizeof text - 3), 0);
	bytes_free(&all);
	tokenizer_close(t);
}

static enum err open_and_use(const struct bytes *json)
{
	struct tokenizer *t;
	struct tokens ids = { 0 };
	struct bytes text = { 0 };
	struct detokenizer d = { 0 };
	static const char sample[] = "x  <left>  y 12 \xff e\xcc\x81 <s> [KEEP]";
	TRY(tokenizer_open_json("t.json", bytes_text(json), json->size, &t));
	enum err e = tokenizer_encode(t, sample, strlen(sample), TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, &ids);
	for (int64_t i = 0; i < ids.n && !e; i++)
		e = detokenizer_put(&d, t, ids.ids[i], &text);
	tokenizer_close(t);
	tokens_free(&ids);
	bytes_free(&text);
	return e;
}

TEST(every_allocation_may_fail)
{
	static const char *const names[] = { "qwen2", "metaspace" };
	for (size_t i = 0; i < 2; i++) {
		char path[1024];
		struct bytes json = { 0 };
		snprintf(path, sizeof path, GOLDEN "/%s/tokenizer.json", names[i]);
		CHECK_OK(file_read_all(path, 1 << 20, &json));
		int64_t n = 0;
		enum err e;
		do {   /* a failure is recorded even where it is borne (PCRE2's compiler): none recorded means none left */
			err_clear();
			mem_fail_at(++n);
			e = open_and_use(&json);
			CU_ASSERT_TRUE(e == ERR_OK || e == ERR_MEMORY);
		} while (err_last()->code && n < 10000);
		mem_fail_at(0);
		CU_ASSERT_EQUAL(e, ERR_OK);
		CU_ASSERT_TRUE(n > 50);
		bytes_free(&json);
	}
}

static void write_quoted(const char *dir, const char *name, const char *json)
{
	char path[1024];
	char *copy = quoted(json);
	CHECK_OK(file_join(dir, name, path, sizeof path));
	FILE *f = fopen(path, "w");
	fputs(copy, f);
	fclose(f);
	free(copy);
}

/* Without a template, add_bos_token of tokenizer_config.json counts; with one it does not (transformers 5 drops the key when
 * there is a tokenizer.json). */
TEST(a_template_wins_over_add_bos_token)
{
	static const char config[] = "{'add_bos_token': true, 'bos_token': {'content': 'b'}, 'eos_token': 'a', "
				     "'add_eos_token': true}";
	static const char bare[] = "{" MODEL_OF("") "}";
	static const char with_template[] = "{" MODEL_OF("") ", 'post_processor': {'type': 'TemplateProcessing', 'single': "
		"[{'SpecialToken': {'id': 'z'}}, {'Sequence': {'id': 'A'}}], 'special_tokens': {'z': {'ids': [2]}}}}";
	const char *const files[] = { bare, with_template };
	for (int i = 0; i < 2; i++) {
		char dir[] = "/tmp/shardrun-test-XXXXXX", path[1024];
		struct tokenizer *t;
		CU_ASSERT_PTR_NOT_NULL(mkdtemp(dir));
		write_quoted(dir, "tokenizer.json", files[i]);
		write_quoted(dir, "tokenizer_config.json", config);
		CHECK_OK(tokenizer_open_directory(dir, &t));
		check_encode(t, "ab", TOKENIZE_ADD_SPECIAL, i ? IDS(2, 2) : IDS(1, 2, 0));
		check_encode(t, "ab", 0, IDS(2));
		tokenizer_close(t);
		for (int k = 0; k < 2; k++) {
			CHECK_OK(file_join(dir, k ? "tokenizer.json" : "tokenizer_config.json", path, sizeof path));
			unlink(path);
		}
		rmdir(dir);
	}
}

TEST_MAIN("tokenizer", CASE(the_bundled_model_reads_and_writes_as_transformers_does),
	  CASE(hard_strings_give_the_ids_and_texts_of_the_tokenizers_library),
	  CASE(gguf_vocabularies_give_what_their_json_gives), CASE(sentencepiece_merges_the_best_score_first),
	  CASE(a_token_that_is_part_of_a_character_is_never_found_in_a_text),
	  CASE(bad_gguf_vocabularies_are_refused_with_a_sentence), CASE(bad_tokenizer_json_is_refused_with_a_sentence),
	  CASE(a_hostile_file_cannot_make_a_text_grow_or_a_match_run_without_end),
	  CASE(long_runs_take_no_longer_than_other_text), CASE(incremental_text_never_splits_a_character),
	  CASE(every_allocation_may_fail), CASE(a_template_wins_over_add_bos_token))
