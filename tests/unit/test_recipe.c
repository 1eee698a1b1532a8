/* labels: unit
 * Recipes: what is accepted and with which meaning, and the one answer to everything else. */
#include "base/file.h"
#include "base/mem.h"
#include "launcher/recipe.h"
#include "launcher/words.h"
#include "tests/test.h"

#include <dirent.h>
#include <unistd.h>

static enum err parse_bytes(struct recipe **out, const char *text, size_t bytes)
{
	TRY(recipe_create(out));
	enum err e = recipe_parse(*out, "r.yaml", text, bytes);
	if (e) {
		recipe_destroy(*out);
		*out = NULL;
	}
	return e;
}

static enum err parse(struct recipe **out, const char *text) { return parse_bytes(out, text, strlen(text)); }

/* What a text is answered with: the whole sentence. */
static void refused(const char *text, const char *sentence)
{
	struct recipe *r = NULL;
	enum err e = parse(&r, text);
	if (e != ERR_RECIPE || strcmp(err_sentence(), sentence))
		fprintf(stderr, "for:\n%s\n got %s: %s\nwant RECIPE: %s\n", text, err_name(e), e ? err_sentence() : "",
			sentence);
	CU_ASSERT_EQUAL(e, ERR_RECIPE);
	CU_ASSERT_STRING_EQUAL(e ? err_sentence() : "", sentence);
	recipe_destroy(r);
}

static void accepted(const char *text)
{
	struct recipe *r = NULL;
	enum err e = parse(&r, text);
	if (e)
		fprintf(stderr, "for:\n%s\n got %s: %s\n", text, err_name(e), err_sentence());
	CU_ASSERT_EQUAL(e, ERR_OK);
	recipe_destroy(r);
}

TEST(defaults_are_those_of_the_reference)
{
	struct recipe *r;
	CHECK_OK(recipe_create(&r));
	CU_ASSERT_STRING_EQUAL(r->model.path, "");
	CU_ASSERT_EQUAL(r->parallel.tp, RECIPE_AUTO);
	CU_ASSERT_EQUAL(r->runtime.step_tokens, 512);
	CU_ASSERT_EQUAL(r->runtime.log, 2);   /* LOG_INFO */
	CU_ASSERT_EQUAL(r->generation.temperature, 0);
	CU_ASSERT_EQUAL(r->generation.top_p, 1);
	CU_ASSERT_EQUAL(r->generation.stop.n, 0);
	CU_ASSERT_STRING_EQUAL(r->serve.host, "127.0.0.1");
	CU_ASSERT_STRING_EQUAL(recipe_word(r, "runtime.backend"), "auto");
	CU_ASSERT_STRING_EQUAL(recipe_word(r, "runtime.speculate"), "off");
	recipe_destroy(r);
}

TEST(every_kind_of_value_is_read)
{
	struct recipe *r;
	CHECK_OK(parse(&r, "# comment\nmodel:\n  path: /m/x y.gguf  # trailing\n  dtype: bf16\n"
			   "parallel: {tp: 2, pp: auto, pp_layers: [4, 2], tp_across_nodes: true}\n"
			   "runtime:\n  kv_bytes: 4GiB\n  isa: \"avx2\"\n  speculate: off\n  log: debug\n"
			   "generation:\n  temperature: 0.7\n  top_p: 1\n  seed: 9007199254740992\n  stop:\n    - \"\\n\\n\"\n    - 'it''s'\n    - \"no\"\n"
			   "launch:\n  hosts: [n1, 'n[2-3]']\n  slurm:\n    time: 01:30:00\n    account: 0123\n    mem_bytes: 64 GB\n"));
	CU_ASSERT_STRING_EQUAL(r->model.path, "/m/x y.gguf");
	CU_ASSERT_STRING_EQUAL(recipe_word(r, "model.dtype"), "bf16");
	CU_ASSERT_EQUAL(r->parallel.tp, 2);
	CU_ASSERT_EQUAL(r->parallel.pp, RECIPE_AUTO);
	CU_ASSERT_EQUAL(r->parallel.pp_layers.n, 2);
	CU_ASSERT_EQUAL(r->parallel.pp_layers.items[0], 4);
	CU_ASSERT_EQUAL(r->parallel.tp_across_nodes, 1);
	CU_ASSERT_EQUAL(r->runtime.kv_bytes, INT64_C(4294967296));
	CU_ASSERT_STRING_EQUAL(recipe_word(r, "runtime.isa"), "avx2");
	CU_ASSERT_EQUAL(r->generation.temperature, 0.7);
	CU_ASSERT_EQUAL(r->generation.seed, INT64_C(9007199254740992));
	CU_ASSERT_EQUAL(r->generation.stop.n, 3);
	CU_ASSERT_STRING_EQUAL(r->generation.stop.items[0], "\n\n");
	CU_ASSERT_STRING_EQUAL(r->generation.stop.items[1], "it's");
	CU_ASSERT_STRING_EQUAL(r->generation.stop.items[2], "no");
	CU_ASSERT_STRING_EQUAL(r->launch.hosts.items[1], "n[2-3]");
	CU_ASSERT_STRING_EQUAL(r->launch.slurm.time, "01:30:00");
	CU_ASSERT_STRING_EQUAL(r->launch.slurm.account, "0123");
	CU_ASSERT_EQUAL(r->launch.slurm.mem_bytes, INT64_C(64000000000));
	recipe_destroy(r);
}

static int64_t size_of(const char *value)
{
	struct recipe *r;
	char text[100];
	snprintf(text, sizeof text, "runtime:\n  kv_bytes: %s\n", value);
	if (parse(&r, text))
		return -1;
	int64_t bytes = r->runtime.kv_bytes;
	recipe_destroy(r);
	return bytes;
}

TEST(sizes_mean_what_their_units_say)
{
	CU_ASSERT_EQUAL(size_of("4GB"), INT64_C(4000000000));
	CU_ASSERT_EQUAL(size_of("4GiB"), INT64_C(4294967296));
	CU_ASSERT_EQUAL(size_of("4 GiB"), INT64_C(4294967296));
	CU_ASSERT_EQUAL(size_of("\"4GiB\""), INT64_C(4294967296));
	CU_ASSERT_EQUAL(size_of("7B"), 7);
	CU_ASSERT_EQUAL(size_of("7kB"), 7000);
	CU_ASSERT_EQUAL(size_of("7KiB"), 7168);
	CU_ASSERT_EQUAL(size_of("7MB"), 7000000);
	CU_ASSERT_EQUAL(size_of("7MiB"), 7340032);
	CU_ASSERT_EQUAL(size_of("7TB"), INT64_C(7000000000000));
	CU_ASSERT_EQUAL(size_of("7TiB"), INT64_C(7696581394432));
	CU_ASSERT_EQUAL(size_of("auto"), RECIPE_AUTO);
	static const char *const bad[] = { "4", "4G", "4gb", "4KB", "4 kb", "1.5GiB", "-1GB", "0GB", "0", "08GB", "1_0GB",
		"GB", "4  GB",
					   "4GBs", "99999999TiB", "9999999999999999999GB", "1e3MB", "0x4GB", "[4GB]",
					   	"Auto", NULL };
	for (int i = 0; bad[i]; i++) {
		CU_ASSERT_EQUAL(size_of(bad[i]), -1);
		CU_ASSERT_PTR_NOT_NULL(strstr(err_sentence(), "r.yaml:2:13: runtime.kv_bytes: found "));
	}
}

#define SIZES "allowed: auto or a whole number with a unit: B kB MB GB TB KiB MiB GiB TiB"
#define TP "allowed: auto or 1 to 4096 ranks"

TEST(wrong_values_are_named_with_what_is_allowed)
{
	refused("runtime:\n  kv_type: int4\n", "r.yaml:2:12: runtime.kv_type: found \"int4\", allowed: auto, f32, f16, bf16 or int8");
	refused("parallel:\n  tp: two\n", "r.yaml:2:7: parallel.tp: found \"two\", " TP);
	refused("parallel:\n  tp: 0\n", "r.yaml:2:7: parallel.tp: found \"0\", " TP);
	refused("parallel:\n  tp: 4097\n", "r.yaml:2:7: parallel.tp: found \"4097\", " TP);
	refused("parallel:\n  tp: -1\n", "r.yaml:2:7: parallel.tp: found \"-1\", " TP);
	refused("parallel:\n  tp: 99999999999999999999999\n",
		"r.yaml:2:7: parallel.tp: found \"99999999999999999999999\", " TP);
	refused("parallel:\n  tp: 010\n",
		"r.yaml:2:7: parallel.tp: found \"010\", " TP " (a leading 0 looks octal; write it without)");
	refused("parallel:\n  tp: 0o10\n", "r.yaml:2:7: parallel.tp: found \"0o10\", " TP " (write it as a decimal number)");
	refused("parallel:\n  tp: 0x10\n", "r.yaml:2:7: parallel.tp: found \"0x10\", " TP " (write it as a decimal number)");
	refused("parallel:\n  tp: 1_000\n", "r.yaml:2:7: parallel.tp: found \"1_000\", " TP " (write digits only)");
	refused("parallel:\n  tp: 2.5\n",
		"r.yaml:2:7: parallel.tp: found \"2.5\", " TP " (write a whole number, digits only)");
	refused("parallel:\n  tp: 2.0\n",
		"r.yaml:2:7: parallel.tp: found \"2.0\", " TP " (write a whole number, digits only)");
	refused("parallel:\n  tp: 1e3\n",
		"r.yaml:2:7: parallel.tp: found \"1e3\", " TP " (write a whole number, digits only)");
	refused("parallel:\n  tp: \"2\"\n", "r.yaml:2:7: parallel.tp: found \"2\", " TP " (write it without quotes)");
	refused("parallel:\n  tp: +2\n", "r.yaml:2:7: parallel.tp: found \"+2\", " TP);
	refused("generation:\n  temperature: .nan\n",
		"r.yaml:2:16: generation.temperature: found \".nan\", allowed: 0 to 100");
	refused("generation:\n  temperature: nan\n",
		"r.yaml:2:16: generation.temperature: found \"nan\", allowed: 0 to 100");
	refused("generation:\n  temperature: .inf\n",
		"r.yaml:2:16: generation.temperature: found \".inf\", allowed: 0 to 100");
	refused("generation:\n  temperature: inf\n",
		"r.yaml:2:16: generation.temperature: found \"inf\", allowed: 0 to 100");
	refused("generation:\n  temperature: 1e999\n",
		"r.yaml:2:16: generation.temperature: found \"1e999\", allowed: 0 to 100");
	refused("generation:\n  temperature: -0.1\n",
		"r.yaml:2:16: generation.temperature: found \"-0.1\", allowed: 0 to 100");
	refused("generation:\n  temperature: 0,5\n",
		"r.yaml:2:16: generation.temperature: found \"0,5\", allowed: 0 to 100 (write digits only)");
	refused("generation:\n  top_p: 1.01\n", "r.yaml:2:10: generation.top_p: found \"1.01\", allowed: 0 to 1");
	refused("runtime:\n  isa: sse\n", "r.yaml:2:8: runtime.isa: found \"sse\", allowed: auto, c, avx2, avx512, avx512vnni, "
		"avx512bf16, neon or neondot");
	refused("runtime:\n  kv_bytes: 4096\n", "r.yaml:2:13: runtime.kv_bytes: found \"4096\", " SIZES " (add a unit)");
	refused("runtime:\n  kv_bytes: 4gb\n",
		"r.yaml:2:13: runtime.kv_bytes: found \"4gb\", " SIZES " (GB is 10^9 bytes, GiB is 2^30)");
	refused("generation:\n  ignore_eos: yes\n",
		"r.yaml:2:15: generation.ignore_eos: found \"yes\", allowed: true or false (write true)");
	refused("generation:\n  ignore_eos: Off\n",
		"r.yaml:2:15: generation.ignore_eos: found \"Off\", allowed: true or false (write false)");
	refused("generation:\n  ignore_eos: TRUE\n",
		"r.yaml:2:15: generation.ignore_eos: found \"TRUE\", allowed: true or false (write true)");
	refused("generation:\n  ignore_eos: \"true\"\n",
		"r.yaml:2:15: generation.ignore_eos: found \"true\", allowed: true or false (write it without quotes)");
}

TEST(words_that_yaml_reads_as_booleans_need_quotes)
{
	static const char *const words[] = { "no", "off", "yes", "on", "true", "false", "No", "OFF", "y", "N", NULL };
	for (int i = 0; words[i]; i++) {
		char text[100], sentence[200];
		snprintf(text, sizeof text, "launch:\n  slurm:\n    partition: %s\n", words[i]);
		snprintf(sentence, sizeof sentence,
			 "r.yaml:3:16: launch.slurm.partition: found \"%s\", allowed: a text of at most 1000 bytes "
			 "(YAML reads this word as true or false; put it in quotes)", words[i]);
		refused(text, sentence);
		snprintf(text, sizeof text, "launch:\n  slurm:\n    partition: '%s'\n", words[i]);
		accepted(text);
		snprintf(text, sizeof text, "generation:\n  stop: [a, %s]\n", words[i]);
		snprintf(sentence, sizeof sentence,
			 "r.yaml:2:13: generation.stop: found \"%s\", allowed: a list of at most 16 texts, each 1 to "
			 "1000 bytes (YAML reads this word as true or false; put it in quotes)", words[i]);
		refused(text, sentence);
	}
	accepted("runtime:\n  speculate: off\n");   /* a choice: its own word */
	accepted("launch:\n  slurm:\n    partition: none\n");
}

TEST(unknown_and_repeated_keys_are_named)
{
	refused("parallel:\n  tpp: 2\n", "r.yaml:2:3: unknown key \"parallel.tpp\", the nearest known is parallel.tp");
	refused("runtime:\n  thread: 2\n",
		"r.yaml:2:3: unknown key \"runtime.thread\", the nearest known is runtime.threads");
	refused("generation:\n  tp: 2\n", "r.yaml:2:3: unknown key \"generation.tp\", the nearest known is parallel.tp");
	refused("launch:\n  partition: a\n",
		"r.yaml:2:3: unknown key \"launch.partition\", the nearest known is launch.slurm.partition");
	refused("serve:\n  zzzzz: 2\n",
		"r.yaml:2:3: unknown key \"serve.zzzzz\", known here: host, port, api_key_file, endpoint_file");
	refused("paralell:\n  tp: 2\n", "r.yaml:1:1: unknown section \"paralell\", the nearest known is parallel");
	refused("tp: 2\n", "r.yaml:1:1: unknown key \"tp\", the nearest known is parallel.tp");
	refused("quantum: 2\n",
		"r.yaml:1:1: unknown section \"quantum\", known here: model, parallel, runtime, generation, launch, serve");
	refused("parallel.tp: 2\n", "r.yaml:1:1: unknown key \"parallel.tp\", write \"tp:\" indented below \"parallel:\"");
	refused("launch.slurm:\n  time: a\n",
		"r.yaml:1:1: unknown key \"launch.slurm\", write \"slurm:\" indented below \"launch:\"");
	refused("\"a\\nb\": 2\n",
		"r.yaml:1:1: unknown section \"a?b\", known here: model, parallel, runtime, generation, launch, serve");
	refused("parallel:\n  \"tp\\0\": 2\n", "r.yaml:2:3: parallel: found a zero byte in the name of a key");
	refused("parallel:\n  tp: 2\n  pp: 1\n  tp: 2\n",
		"r.yaml:4:3: parallel.tp: the key is there a second time, leave one");
	refused("parallel:\n  tp: 2\nmodel:\n  path: a\nparallel:\n  pp: 2\n",
		"r.yaml:5:1: parallel: the section is there a second time, put its keys together");
}

TEST(what_yaml_has_beyond_the_subset_is_refused)
{
	refused("model: &m\n  path: a\n",
		"r.yaml:1:8: model: found the anchor &m, anchors are not allowed; write each value where it is used");
	refused("model:\n  path: &p a\n",
		"r.yaml:2:9: model.path: found the anchor &p, anchors are not allowed; write each value where it is used");
	refused("model:\n  path: *p\n",
		"r.yaml:2:9: model.path: found the alias *p, aliases are not allowed; write the value again");
	refused("model:\n  <<: {path: a}\n",
		"r.yaml:2:3: model: found the merge key <<, merging is not allowed; write each value where it is used");
	refused("model:\n  path: !!str a\n",
		"r.yaml:2:9: model.path: found the tag \"tag:yaml.org,2002:str\", tags are not allowed; "
		"quotes make a text of a value");
	refused("parallel:\n  pp_layers: !!seq [1]\n",
		"r.yaml:2:14: parallel.pp_layers: found the tag \"tag:yaml.org,2002:seq\", tags are "
		"not allowed; quotes make a text of a value");
	refused("model:\n  path: |\n    a\n",
		"r.yaml:2:9: model.path: found a block text (| or >), write the text on one line in quotes");
	refused("model:\n  path: a\n    b\n",
		"r.yaml:2:9: model.path: found a value that goes on on the next line, write it on one line "
		"(is the next line indented too far?)");
	refused("%YAML 1.1\n---\nmodel:\n  path: a\n", "r.yaml:1:1: found a % directive, a recipe has none");
	refused("model:\n  path: a\n---\nmodel:\n  path: b\n",
		"r.yaml:3:1: a second document starts here (---), a recipe is one document");
	refused("model:\n  path: a\n...\nmodel:\n  path: b\n",
		"r.yaml:4:1: is not YAML: did not find expected <document start>");
	refused("model:\n  ? {a: b}\n  : c\n", "r.yaml:2:5: model: found a mapping, allowed: the name of a key");
	accepted("---\nmodel:\n  path: a\n...\n");
}

TEST(values_of_the_wrong_shape_are_refused)
{
	refused("parallel:\n  tp:\n", "r.yaml:2:6: parallel.tp: found nothing, " TP);
	refused("parallel:\n  tp: ~\n", "r.yaml:2:7: parallel.tp: found nothing, " TP);
	refused("model:\n  path: null\n", "r.yaml:2:9: model.path: found nothing, allowed: a path of at most 1000 bytes");
	refused("parallel:\n", "r.yaml:1:10: parallel: found nothing, allowed: keys of this section, indented below it");
	refused("parallel: 2\n",
		"r.yaml:1:11: parallel: found a single value, allowed: keys of this section, indented below it");
	refused("parallel: [1]\n", "r.yaml:1:11: parallel: found a list, allowed: keys of this section, indented below it");
	refused("parallel:\n  tp: [2]\n", "r.yaml:2:7: parallel.tp: found a list, " TP);
	refused("parallel:\n  tp:\n    a: 2\n", "r.yaml:3:5: parallel.tp: found a mapping, " TP);
	refused("parallel:\n  pp_layers: 3\n",
		"r.yaml:2:14: parallel.pp_layers: found a single value, allowed: a list of at most 512 numbers, each 1 to 4096 layers, as [one, two]");
	refused("parallel:\n  pp_layers: [[3]]\n",
		"r.yaml:2:15: parallel.pp_layers: found a list in the list, allowed: single values");
	refused("generation:\n  stop: [a: b]\n",
		"r.yaml:2:10: generation.stop: found a mapping in the list, allowed: single values");
	refused("- model\n", "r.yaml:1:1: found a list, a recipe is made of sections: model:, parallel:, ...");
	refused("model\n", "r.yaml:1:1: found a single value, a recipe is made of sections: model:, parallel:, ...");
	refused("launch:\n  slurm:\n    time: {a: {b: {c: d}}}\n",
		"r.yaml:3:11: launch.slurm.time: found a mapping, allowed: a text of at most 1000 bytes");
	accepted("parallel:\n  pp_layers: []\n");
}

TEST(an_empty_file_is_refused)
{
	const char *sentence = "r.yaml:1:1: the recipe is empty, it needs at least \"model:\" and below it \"path:\"";
	static const char *const empty[] = { "", "\n\n", "# only a comment\n", "---\n", "{}\n", "model: {}\n",
		"\xef\xbb\xbf", NULL };
	for (int i = 0; empty[i]; i++)
		refused(empty[i], sentence);
}

TEST(bytes_that_are_no_text_are_refused)
{
	struct recipe *r;
	refused("parallel:\n\ttp: 2\n", "r.yaml:2:1: found a tab in front of the line, indent with blanks");
	refused("parallel:\n  \ttp: 2\n", "r.yaml:2:3: found a tab in front of the line, indent with blanks");
	refused("model:\n  path: \xff\n", "r.yaml:2:9: found the byte 0xff, which is not UTF-8, allowed: text in UTF-8");
	refused("model:\n  path: \xc3\xa4\xc0\xaf\n",
		"r.yaml:2:10: found the byte 0xc0, which is not UTF-8, allowed: text in UTF-8");
	refused("model:\n  path: \xed\xa0\x80\n",
		"r.yaml:2:9: found the byte 0xed, which is not UTF-8, allowed: text in UTF-8");
	refused("model:\n  path: a\x01\n", "r.yaml:2:10: found the control character U+0001, allowed: printable characters");
	refused("model:\n  path: a\xc2\x85" "b\n",
		"r.yaml:2:10: found the control character U+0085, allowed: printable characters");
	refused("model:\n  path: a\xef\xbf\xbe\n",
		"r.yaml:2:10: found the control character U+FFFE, allowed: printable characters");
	refused("model:\n  path: a\xef\xbb\xbf\n",
		"r.yaml:2:10: found the control character U+FEFF, allowed: printable characters");
	refused("model:\n  path: \"a\\u0007\"\n",
		"r.yaml:2:9: model.path: found the control character U+0007 in the text, allowed: printable characters");
	refused("model:\n  path: \"a\\x85\"\n",
		"r.yaml:2:9: model.path: found the control character U+0085 in the text, allowed: printable characters");
	refused("model:\n  path: \"a\\nb\"\n",
		"r.yaml:2:9: model.path: found the control character U+000A in the text, allowed: printable characters");
	refused("model:\n  path: \"a\\0b\"\n",
		"r.yaml:2:9: model.path: found a zero byte in the value, allowed: printable characters");
	refused("model:\n  path: ~/m\n",
		"r.yaml:2:9: model.path: found \"~/m\", allowed: a path of at most 1000 bytes (~ is not replaced here; write the directory in full)");
	CHECK_ERR(parse_bytes(&r, "model:\n  path: a\0b\n", 18), RECIPE, "r.yaml:2:10: found the control character U+0000");
	CHECK_ERR(parse_bytes(&r, "\xff\xfem\0o\0", 6), RECIPE, "r.yaml:1:1: found the byte 0xff");   /* UTF-16 */
	accepted("\xef\xbb\xbfmodel:\n  path: a\n");
	CHECK_OK(parse(&r, "model:\r\n  path: a\r\nparallel:\r\n  tp: 2\r\n"));
	CU_ASSERT_STRING_EQUAL(r->model.path, "a");
	CU_ASSERT_EQUAL(r->parallel.tp, 2);
	recipe_destroy(r);
	refused("\xef\xbb\xbfmodel:\r\n  path: a\r\nparallel:\r\n  tp: x\r\n", "r.yaml:4:7: parallel.tp: found \"x\", " TP);
	CHECK_OK(parse(&r, "model:\n  path: \xe2\x82\xac/\xf0\x9f\x98\x80\n"));
	CU_ASSERT_STRING_EQUAL(r->model.path, "\xe2\x82\xac/\xf0\x9f\x98\x80");
	recipe_destroy(r);
}

TEST(broken_yaml_is_named_with_its_place)
{
	struct recipe *r;
	CHECK_ERR(parse(&r, "model: {path: a\n"), RECIPE, "r.yaml:2:1: is not YAML: ");
	CHECK_ERR(parse(&r, "model:\n  path: \"a\n"), RECIPE, "r.yaml:3:1: is not YAML: ");
	CHECK_ERR(parse(&r, "model:\n  path: @a\n"), RECIPE, "r.yaml:2:9: is not YAML: ");
	CHECK_ERR(parse(&r, "model:\n   path: a\n  dtype: f32\n"), RECIPE, "r.yaml:3:3: is not YAML: ");
	CHECK_ERR(parse(&r, "model:\n  path: a: b\n"), RECIPE, "r.yaml:2:10: is not YAML: ");
}

/* `n` times `unit` between head and tail. */
static char *repeated(const char *head, const char *unit, int n, const char *tail)
{
	struct bytes b = { 0 };
	bytes_printf(&b, "%s", head);
	for (int i = 0; i < n; i++)
		bytes_printf(&b, "%s", unit);
	bytes_printf(&b, "%s", tail);
	return (char *)b.data;
}

TEST(large_input_is_refused)
{
	struct recipe *r = NULL;
	char *text = repeated("model:\n  path: ", "a", 1001, "\n");
	CHECK_ERR(parse(&r, text), RECIPE, "r.yaml:2:9: model.path: found \"aaaaaaaa");
	CU_ASSERT(strlen(err_sentence()) < 200);
	mem_free(text);
	text = repeated("model:\n  path: ", "\xe2\x82\xac", 400, "\n");   /* cut between characters */
	CHECK_ERR(parse(&r, text), RECIPE, "\xe2\x82\xac...\", allowed: a path of at most 1000 bytes");
	mem_free(text);
	text = repeated("", "{model: ", 30000, "");
	CHECK_ERR(parse(&r, text), RECIPE, "r.yaml:1:10: unknown key \"model.model\"");
	mem_free(text);
	text = repeated("", "[", 100000, "");
	CHECK_ERR(parse(&r, text), RECIPE, "r.yaml:1:1: found a list");
	mem_free(text);
	text = repeated("model:\n  path: a\n#", "a", 1 << 20, "\n");
	CHECK_ERR(parse(&r, text), RECIPE, "r.yaml: found 1048595 bytes, a recipe has at most 1048576");
	mem_free(text);
	text = repeated("generation:\n  stop: [", "a, ", 16, "]\n");
	accepted(text);
	mem_free(text);
	text = repeated("generation:\n  stop: [", "a, ", 17, "]\n");
	CHECK_ERR(parse(&r, text), RECIPE, "(this list is longer)");
	mem_free(text);
	text = repeated("parallel:\n  pp_layers: [", "1, ", 512, "]\n");
	accepted(text);
	mem_free(text);
	text = repeated("parallel:\n  pp_layers: [", "1, ", 513, "]\n");
	CHECK_ERR(parse(&r, text), RECIPE, "r.yaml:2:1551: parallel.pp_layers: found \"1\"");
	mem_free(text);
}

TEST(set_changes_one_key)
{
	struct recipe *r;
	CHECK_OK(recipe_create(&r));
	CHECK_OK(recipe_set(r, "parallel.tp=2"));
	CHECK_OK(recipe_set(r, "model.path=../a=b"));
	CHECK_OK(recipe_set(r, "parallel.pp_layers=1,2,3"));
	CU_ASSERT_EQUAL(r->parallel.tp, 2);
	CU_ASSERT_STRING_EQUAL(r->model.path, "../a=b");
	CU_ASSERT_EQUAL(r->parallel.pp_layers.n, 3);
	CHECK_OK(recipe_set(r, "parallel.pp_layers=[4, 5]"));
	CU_ASSERT_EQUAL(r->parallel.pp_layers.n, 2);
	CU_ASSERT_EQUAL(r->parallel.pp_layers.items[1], 5);
	CHECK_OK(recipe_set(r, "parallel.pp_layers="));
	CU_ASSERT_EQUAL(r->parallel.pp_layers.n, 0);
	CHECK_OK(recipe_set(r, "generation.stop=[\"a,b\", \"\\n\"]"));
	CU_ASSERT_STRING_EQUAL(r->generation.stop.items[0], "a,b");
	CU_ASSERT_STRING_EQUAL(r->generation.stop.items[1], "\n");
	CHECK_OK(recipe_set(r, "launch.slurm.partition=no"));   /* no YAML here: text is text */
	CU_ASSERT_STRING_EQUAL(r->launch.slurm.partition, "no");
	CHECK_OK(recipe_set_value(r, "--isa", "runtime.isa", "c"));
	CU_ASSERT_STRING_EQUAL(recipe_word(r, "runtime.isa"), "c");
	CHECK_ERR(recipe_set(r, "parallel.tp=x"), RECIPE, "--set parallel.tp: found \"x\", " TP);
	CHECK_ERR(recipe_set(r, "parallel.tp="), RECIPE, "--set parallel.tp: found \"\", " TP);
	CHECK_ERR(recipe_set(r, "parallel.tpp=2"), RECIPE,
		  "--set: unknown key \"parallel.tpp\", the nearest known is parallel.tp");
	CHECK_ERR(recipe_set(r, "tp=2"), RECIPE, "the nearest known is parallel.tp");
	CHECK_ERR(recipe_set(r,
		  "parallel.tp.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx=2"), RECIPE,
		  	"--set: unknown key \"parallel.tp.xxx");
	CHECK_ERR(recipe_set(r, "no.such.section.in.any.recipe=2"), RECIPE, "known here: see shardrun --help");
	CHECK_ERR(recipe_set(r, "launch.slurm.xxxxxxxxxxxx=2"), RECIPE,
		  "known here: partition, account, time, qos, constraint, modules");
	CHECK_ERR(recipe_set(r, "parallel.tp"), RECIPE, "write it as --set parallel.tp=2");
	CHECK_ERR(recipe_set(r, "=2"), RECIPE, "write it as --set parallel.tp=2");
	CHECK_ERR(recipe_set(r, "parallel.pp_layers=[1, x]"), RECIPE,
		  "--set parallel.pp_layers:1:5: parallel.pp_layers: found \"x\"");
	CHECK_ERR(recipe_set(r, "parallel.pp_layers=[1"), RECIPE, "--set parallel.pp_layers");
	CHECK_ERR(recipe_set(r, "parallel.pp_layers=[1] x"), RECIPE, "--set parallel.pp_layers");
	CHECK_ERR(recipe_set(r, "parallel.pp_layers=1,,2"), RECIPE, "--set parallel.pp_layers: found \"\"");
	CHECK_ERR(recipe_set(r, "parallel.pp_layers=1,"), RECIPE, "--set parallel.pp_layers: found a comma at the end");
	CHECK_ERR(recipe_set(r, "model.path=\xff"), RECIPE, "--set model.path: found bytes that are not UTF-8");
	CHECK_ERR(recipe_set(r, "model.path=a\nb"), RECIPE, "--set model.path: found the control character U+000A");
	CHECK_ERR(recipe_set_value(r, "--tp", "parallel.tp", "x"), RECIPE, "--tp: found \"x\", " TP);
	CU_ASSERT_EQUAL(r->parallel.tp, 2);
	CU_ASSERT_STRING_EQUAL(r->model.path, "../a=b");
	recipe_destroy(r);
}

TEST(an_error_leaves_the_recipe_as_it_was)
{
	struct recipe *r;
	struct bytes before = { 0 }, after = { 0 };
	const char *text = "model:\n  path: other\ngeneration:\n  stop: [c]\nparallel:\n  tp: 3\n  pp: x\n";
	CHECK_OK(parse(&r, "model:\n  path: first\ngeneration:\n  stop: [a, b]\nparallel:\n  pp_layers: [1, 2]\n"));
	recipe_write(r, &before);
	CHECK_ERR(recipe_parse(r, "r.yaml", text, strlen(text)), RECIPE, "parallel.pp");
	recipe_write(r, &after);
	CU_ASSERT_STRING_EQUAL(bytes_text(&before), bytes_text(&after));
	bytes_free(&before);
	bytes_free(&after);
	recipe_destroy(r);
}

TEST(a_written_recipe_reads_back_the_same)
{
	struct recipe *r, *back;
	struct bytes first = { 0 }, second = { 0 };
	CHECK_OK(parse(&r,
		 "model:\n  path: \"a \\\"b\\\" \\\\ # \xe2\x82\xac: c\"\n  dtype: f32\nparallel:\n  tp: 7\n  pp_layers: [3, 1]\n"
			   "runtime:\n  kv_bytes: 3000001kB\ngeneration:\n  temperature: 0.1\n  top_p: 0.30000000000000004\n  min_p: 1e-7\n"
			   "  stop: [\"\\n\\t\\\"\", 'no', \"a\\L\\P\\uFEFF\\uFFFE\"]\n  ignore_eos: true\nlaunch:\n  slurm:\n    partition: 'on'\n"));
	recipe_write(r, &first);
	CHECK_OK(first.error);
	CHECK_OK(parse_bytes(&back, bytes_text(&first), first.size));
	CU_ASSERT_STRING_EQUAL(back->model.path, "a \"b\" \\ # \xe2\x82\xac: c");
	CU_ASSERT_EQUAL(back->model.dtype, r->model.dtype);
	CU_ASSERT_EQUAL(back->parallel.tp, 7);
	CU_ASSERT_EQUAL(back->parallel.pp_layers.items[0], 3);
	CU_ASSERT_EQUAL(back->runtime.kv_bytes, INT64_C(3000001000));
	CU_ASSERT_EQUAL(back->generation.temperature, 0.1);
	CU_ASSERT_EQUAL(back->generation.top_p, 0.30000000000000004);
	CU_ASSERT_EQUAL(back->generation.min_p, 1e-7);
	CU_ASSERT_STRING_EQUAL(back->generation.stop.items[0], "\n\t\"");
	CU_ASSERT_STRING_EQUAL(back->generation.stop.items[1], "no");
	CU_ASSERT_STRING_EQUAL(back->generation.stop.items[2], "a\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf\xef\xbf\xbe");
	CU_ASSERT_EQUAL(back->generation.ignore_eos, 1);
	CU_ASSERT_STRING_EQUAL(back->launch.slurm.partition, "on");
	recipe_write(back, &second);
	CU_ASSERT_STRING_EQUAL(bytes_text(&first), bytes_text(&second));
	bytes_free(&first);
	bytes_free(&second);
	recipe_destroy(r);
	recipe_destroy(back);
}

TEST(the_reference_documents_every_key_and_is_a_recipe)
{
	struct recipe *r, *fresh;
	struct bytes file = { 0 }, made = { 0 }, defaults = { 0 }, parsed = { 0 };
	recipe_reference(&made);
	CHECK_OK(made.error);
	CHECK_OK(file_read_all(SOURCE_DIR "/configs/reference.yaml", 1 << 20, &file));
	CU_ASSERT_STRING_EQUAL(bytes_text(&file), bytes_text(&made));   /* made by: shardrun --reference > configs/reference.yaml */
	CHECK_OK(parse_bytes(&r, bytes_text(&file), file.size));
	CHECK_OK(recipe_create(&fresh));
	recipe_write(fresh, &defaults);
	recipe_write(r, &parsed);
	CU_ASSERT_STRING_EQUAL(bytes_text(&defaults), bytes_text(&parsed));
	for (int i = 0; i < recipe_n_keys(); i++) {
		char line[100];
		snprintf(line, sizeof line, "\n%*s%s: ", strstr(recipe_key(i), "slurm.") ? 4 : 2, "", strrchr(recipe_key(i),
			 '.') + 1);
		CU_ASSERT_PTR_NOT_NULL(strstr(bytes_text(&file), line));
	}
	recipe_destroy(r);
	recipe_destroy(fresh);
	bytes_free(&file);
	bytes_free(&made);
	bytes_free(&defaults);
	bytes_free(&parsed);
}

TEST(help_names_every_key_within_its_width)
{
	struct bytes help = { 0 };
	recipe_help(&help);
	CHECK_OK(help.error);
	for (int i = 0; i < recipe_n_keys(); i++) {
		char line[100];
		snprintf(line, sizeof line, "\n  %s\n", recipe_key(i));
		CU_ASSERT_PTR_NOT_NULL(strstr(bytes_text(&help), line));
	}
	for (const char *line = bytes_text(&help); *line; line += strcspn(line, "\n") + 1)
		CU_ASSERT(strcspn(line, "\n") <= 100);
	bytes_free(&help);
}

TEST(a_path_is_relative_to_the_recipe_that_holds_it)
{
	struct recipe *r;
	char dir[] = "/tmp/shardrun-recipe-XXXXXX", path[100], want[100];
	CU_ASSERT_PTR_NOT_NULL(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/r.yaml", dir);
	FILE *f = fopen(path, "w");
	fputs("model:\n  path: ../models/m\nruntime:\n  draft: /abs/m\nserve:\n  api_key_file: ''\n", f);
	fclose(f);
	CHECK_OK(recipe_create(&r));
	CHECK_OK(recipe_load(r, path));
	snprintf(want, sizeof want, "%s/../models/m", dir);
	CU_ASSERT_STRING_EQUAL(r->model.path, want);
	CU_ASSERT_STRING_EQUAL(r->runtime.draft, "/abs/m");
	CU_ASSERT_STRING_EQUAL(r->serve.api_key_file, "");
	CHECK_OK(recipe_set(r, "model.path=b"));
	CU_ASSERT_STRING_EQUAL(r->model.path, "b");
	unlink(path);
	CHECK_ERR(recipe_load(r, path), RECIPE, "r.yaml: cannot be opened: No such file");
	CHECK_ERR(recipe_load(r, dir), RECIPE, "is not a regular file");
	rmdir(dir);
	recipe_destroy(r);
}

/* The text behind a comment's word, up to the end of the line, into room. */
static const char *comment(const char *text, const char *word, char room[200])
{
	const char *at = strstr(text, word);
	snprintf(room, 200, "%.*s", at ? (int)strcspn(at + strlen(word), "\n") : 0, at ? at + strlen(word) : "");
	return room;
}

/* Every recipe that people can start from says what it is for and fits the model it names (6 layers, 6 heads, 8 experts
 * with 8 runs of columns); that it fits its cluster too is shown by planning it. */
static void check_recipe(const char *path)
{
	struct recipe *r;
	struct bytes text = { 0 };
	char room[200];
	CHECK_OK(file_read_all(path, 1 << 20, &text));
	CHECK_OK(recipe_create(&r));
	CHECK_OK(recipe_load(r, path));
	CU_ASSERT(bytes_text(&text)[0] == '#');
	CU_ASSERT(strlen(comment(bytes_text(&text), "\n# Run: ", room)) > 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(comment(bytes_text(&text), "shardrun ", room), strrchr(path, '/') + 1));
	CU_ASSERT_PTR_NOT_NULL(strstr(comment(bytes_text(&text), "\n# Change: ", room), "model.path"));
	CU_ASSERT(strlen(comment(bytes_text(&text), "\n# cluster: ", room)) > 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(r->model.path, "/recipes/../models/jargon-moe"));
	int64_t tp = r->parallel.tp, pp = r->parallel.pp, dp = r->parallel.dp;
	int64_t ep = r->parallel.ep ? r->parallel.ep : 1, etp = r->parallel.etp ? r->parallel.etp : 1;
	CU_ASSERT_EQUAL(tp * pp * dp, r->launch.nodes * r->launch.ranks_per_node);
	CU_ASSERT(tp >= 1 && tp <= 6 && r->launch.ranks_per_node % tp == 0);
	CU_ASSERT(pp >= 1 && pp <= 6 && ep <= 8 && etp <= 8);
	CU_ASSERT_EQUAL(dp * tp % (ep * etp), 0);
	bytes_free(&text);
	recipe_destroy(r);
}

TEST(the_recipes_in_the_tree_fit_the_model_they_name)
{
	int n = 0;
	DIR *dir = opendir(SOURCE_DIR "/configs/recipes");
	CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		char path[512];
		if (!strstr(entry->d_name, ".yaml"))
			continue;
		snprintf(path, sizeof path, SOURCE_DIR "/configs/recipes/%.200s", entry->d_name);
		check_recipe(path);
		n++;
	}
	closedir(dir);
	CU_ASSERT(n >= 10);
}

/* Each allocation of a load fails once: an error or (libyaml has its own memory) success, never a crash or a leak. */
TEST(memory_may_run_out_at_any_point)
{
	const char *text = "model:\n  path: a\ngeneration:\n  stop: [a, b]\nlaunch:\n  hosts: [n1]\n  slurm: {time: '1'}\n";
	int failures = 0;
	for (int64_t nth = 1; nth < 1000; nth++) {
		struct recipe *r = NULL;
		mem_fail_at(nth);
		enum err e = parse(&r, text);
		mem_fail_at(0);
		CU_ASSERT(e == ERR_OK || e == ERR_MEMORY);
		failures += e == ERR_MEMORY;
		recipe_destroy(r);
		if (!e)
			break;
	}
	CU_ASSERT(failures >= 2 * 14 + 5);   /* a recipe and its 13 texts, the same of the copy, and the 5 texts here */
	for (int64_t nth = 1; nth < 100; nth++) {   /* also while a sentence or a set is made */
		struct recipe *r;
		CHECK_OK(recipe_create(&r));
		mem_fail_at(nth);
		enum err e = recipe_set(r, "generation.stop=[\"a\", \"b\"]");
		enum err e2 = recipe_set(r, "parallel.tp=x");
		mem_fail_at(0);
		CU_ASSERT(e == ERR_OK || e == ERR_MEMORY);
		CU_ASSERT(e2 == ERR_RECIPE || e2 == ERR_MEMORY);
		recipe_destroy(r);
	}
}

TEST(what_cannot_be_printed_is_shown_as_a_question_mark)
{
	CU_ASSERT_STRING_EQUAL(text_shown("a\nb\xc2\x85\xff\xe2\x82\xac\xe2\x82", 11).text, "a?b??\xe2\x82\xac??");
	const char *sixty = "123456789012345678901234567890123456789012345678901234567890";
	CU_ASSERT_STRING_EQUAL(text_shown(sixty, 60).text, sixty);
	CU_ASSERT_STRING_EQUAL(text_shown("123456789012345678901234567890123456789012345678901234567890x", 61).text + 60,
			       "...");
}

/* Distances worked out by hand; optimal string alignment. */
TEST(nearness_counts_slips_of_the_hand)
{
	CU_ASSERT_EQUAL(nearest_distance("", "abc"), 3);
	CU_ASSERT_EQUAL(nearest_distance("kitten", "sitting"), 3);
	CU_ASSERT_EQUAL(nearest_distance("tp", "pt"), 1);
	CU_ASSERT_EQUAL(nearest_distance("same", "same"), 0);
	struct nearest n = { 0 };
	CU_ASSERT_PTR_NULL(nearest_word(&n, "x"));
	nearest_offer(&n, "thread", "threads");
	nearest_offer(&n, "thread", "thready");   /* as near, but later */
	CU_ASSERT_STRING_EQUAL(nearest_word(&n, "thread"), "threads");
}

TEST_MAIN("recipe", CASE(defaults_are_those_of_the_reference), CASE(every_kind_of_value_is_read),
	  CASE(sizes_mean_what_their_units_say), CASE(wrong_values_are_named_with_what_is_allowed),
	  CASE(words_that_yaml_reads_as_booleans_need_quotes), CASE(unknown_and_repeated_keys_are_named),
	  CASE(what_yaml_has_beyond_the_subset_is_refused), CASE(values_of_the_wrong_shape_are_refused),
	  CASE(an_empty_file_is_refused), CASE(bytes_that_are_no_text_are_refused),
	       CASE(broken_yaml_is_named_with_its_place),
	  CASE(large_input_is_refused), CASE(set_changes_one_key), CASE(an_error_leaves_the_recipe_as_it_was),
	  CASE(a_written_recipe_reads_back_the_same), CASE(the_reference_documents_every_key_and_is_a_recipe),
	  CASE(help_names_every_key_within_its_width), CASE(a_path_is_relative_to_the_recipe_that_holds_it),
	  CASE(the_recipes_in_the_tree_fit_the_model_they_name), CASE(memory_may_run_out_at_any_point),
	       CASE(what_cannot_be_printed_is_shown_as_a_question_mark),
	  CASE(nearness_counts_slips_of_the_hand))
