/* labels: golden
 * timeout: 300
 * The batch command with a real model (SmolLM2, as for test_smollm2): answers that are asked for as JSON parse, those with a schema are of
 * it, also several to a line and drawn; each says what it gets alone; a schema that is not supported is that line's error. */
#include "base/file.h"
#include "tests/files.h"
#include "tests/smollm2.h"

enum { LINES = 6 };

#define LINE(content, more, format) \
	"{\"custom_id\":\"" content "\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"" content \
	"\"}],\"max_tokens\":120" more ",\"response_format\":" format "}}\n"
#define SCHEMA(schema) "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,\"schema\":" schema "}}"
#define PERSON SCHEMA("{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":20},\"age\":{\"type\":\"integer\",\"minimum\":1," \
		      "\"maximum\":120},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"tall\",\"small\",\"kind\"]},\"minItems\":1,\"maxItems\":3}}," \
		      "\"required\":[\"name\",\"age\",\"tags\"],\"additionalProperties\":false}")

static const char *const lines[LINES] = {
	LINE("A person, please.", "", PERSON),
	LINE("Three persons.", ",\"n\":3,\"temperature\":1,\"seed\":5", PERSON),
	LINE("Any object.", ",\"temperature\":0.8", "{\"type\":\"json_object\"}"),
	LINE("How many legs has a dog?", "", SCHEMA("{\"type\":\"integer\",\"minimum\":0,\"maximum\":99}")),
	LINE("Yes or no?", ",\"ignore_eos\":true,\"min_tokens\":50,\"logprobs\":true", SCHEMA("{\"enum\":[\"yes\",\"no\"]}")),
	LINE("Refused.", "", SCHEMA("{\"properties\":{\"a\":{\"pattern\":\"x\"}}}")) };

/* Runs these lines (a bit each); the results, by line. */
static void run(unsigned which, json_t **results)
{
	struct test_dir d;
	struct bytes in = { 0 }, out = { 0 };
	char command[3000], path[300];
	test_dir_make(&d);
	for (int i = 0; i < LINES; i++)
		if (which >> i & 1)
			bytes_put(&in, lines[i], strlen(lines[i]));
	test_write(&d, "in.jsonl", in.data, in.size);
	snprintf(path, sizeof path, "%s/out.jsonl", d.path);
	snprintf(command, sizeof command, "'%s/shardrun' batch --model '%s' --quiet --input '%s/in.jsonl' --output '%s'", BUILD_DIR, smollm2_path, d.path,
		 path);
	CU_ASSERT_EQUAL_FATAL(system(command), 0);
	CHECK_OK(file_read_all(path, 1 << 22, &out));
	const char *at = bytes_text(&out);
	for (int i = 0; i < LINES; i++) {
		size_t n = strcspn(at, "\n");
		results[i] = which >> i & 1 ? json_loadb(at, n, 0, NULL) : NULL;
		at += which >> i & 1 ? n + 1 : 0;
		CU_ASSERT_TRUE_FATAL(!(which >> i & 1) || json_is_object(results[i]));
	}
	snprintf(command, sizeof command, "rm -rf '%s'", d.path);
	CU_ASSERT_EQUAL(system(command), 0);
	bytes_free(&in);
	bytes_free(&out);
}

static json_t *choice(const json_t *result, size_t i)
{
	return json_array_get(json_object_get(json_object_get(json_object_get(result, "response"), "body"), "choices"), i);
}

static const char *text(const json_t *result, size_t i)
{
	const char *t = json_string_value(json_object_get(json_object_get(choice(result, i), "message"), "content"));
	return t ? t : "(nothing)";
}

/* It ends by itself, and parses. */
static json_t *document(const json_t *result, size_t i)
{
	const char *why = json_string_value(json_object_get(choice(result, i), "finish_reason"));
	json_t *v = json_loads(text(result, i), JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
	if (!v || !why || strcmp(why, "stop"))
		fprintf(stderr, "\"%s\", %s\n", text(result, i), why ? why : "?");
	CU_ASSERT_TRUE(v && why && !strcmp(why, "stop"));
	return v;
}

static void check_person(const json_t *result, size_t i)
{
	json_t *v = document(result, i), *tags = json_object_get(v, "tags");
	json_int_t age = json_integer_value(json_object_get(v, "age"));
	CU_ASSERT_TRUE(json_object_size(v) == 3 && json_is_string(json_object_get(v, "name")) && age >= 1 && age <= 120);
	CU_ASSERT_TRUE(json_array_size(tags) >= 1 && json_array_size(tags) <= 3);
	for (size_t k = 0; k < json_array_size(tags); k++)
		CU_ASSERT_PTR_NOT_NULL(strstr("tall small kind", json_string_value(json_array_get(tags, k))));
	json_decref(v);
}

TEST(answers_are_of_their_format)
{
	json_t *all[LINES], *alone[LINES], *v;
	run((1 << LINES) - 1, all);
	check_person(all[0], 0);
	for (size_t i = 0; i < 3; i++)
		check_person(all[1], i);
	CU_ASSERT_STRING_NOT_EQUAL(text(all[1], 0), text(all[1], 1));
	CU_ASSERT_STRING_NOT_EQUAL(text(all[1], 0), text(all[1], 2));
	CU_ASSERT_EQUAL(text(all[2], 0)[0], '{');
	v = document(all[3], 0);
	CU_ASSERT_TRUE(json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= 99);
	json_decref(v);
	v = document(all[4], 0);      /* the end is the document's; all its tokens are text, with log-probabilities */
	CU_ASSERT_TRUE(json_is_string(v) && strstr("yes no", json_string_value(v)));
	CU_ASSERT_TRUE(json_array_size(json_object_get(json_object_get(choice(all[4], 0), "logprobs"), "content")) >= 2);
	json_decref(v);
	const char *why = json_string_value(json_object_get(json_object_get(all[5], "error"), "message"));
	CU_ASSERT_STRING_EQUAL(why ? why : "", "line 6: response_format: schema, at #/properties/a: \"pattern\" is not supported");
	for (int i = 0; i < 2; i++) {
		run(1u << (i + 1), alone);
		for (size_t k = 0; k < (i ? 1 : 3); k++)
			CU_ASSERT_STRING_EQUAL(text(alone[i + 1], k), text(all[i + 1], k));
		json_decref(alone[i + 1]);
	}
	for (int i = 0; i < LINES; i++)
		json_decref(all[i]);
}

SMOLLM2_MAIN("held_answers", CASE(answers_are_of_their_format))
