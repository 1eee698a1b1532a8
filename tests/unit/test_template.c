/* labels: unit
 * timeout: 120
 * The interpreter of chat templates: small templates against Python's jinja2 (tests/golden/templates/snippets.json), where each
 * byte of a result came from, what hostile templates may not do, and what the sentences say. Ids are in
 * test_template_tokens.c, real models' templates in test_chat_templates.c. */
#include "runtime/template.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/gguf.h"
#include "tests/files.h"
#include "tests/test.h"

#include <time.h>

#define GOLDEN SOURCE_DIR "/tests/golden/templates/snippets.json"

enum { NOW = 1773500966 };         /* 2026-03-14 15:09:26 UTC, as in make_templates.py */

static json_t *parse_json(const char *text)
{
	json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
	if (!j)
		abort();
	return j;
}

static enum err render(const char *text, size_t bytes, const struct template_input *in, struct template_result *out)
{
	struct template *t;
	*out = (struct template_result){ 0 };
	TRY(template_parse("t", text, bytes, &t));
	enum err e = template_render(t, in, out);
	template_free(t);
	return e;
}

/* -- jinja2 --------------------------------------------------------------------------------------------------------- */

TEST(small_templates_give_what_jinja2_gives)
{
	json_t *golden, *own, *item;
	size_t i;
	setenv("TZ", "UTC0", 1);
	tzset();
	CHECK_OK(json_parse_file(GOLDEN, 1 << 20, ERR_IO, &golden));
	own = json_pack("{s:s, s:s}", "bos_token", "<BOS>", "eos_token", "<EOS>");
	struct template_input in = { .messages = json_array(), .variables = json_object_get(golden, "variables"), .own = own, .now_s = NOW };
	CU_ASSERT_TRUE(json_array_size(json_object_get(golden, "snippets")) > 90);
	json_array_foreach(json_object_get(golden, "snippets"), i, item) {
		json_t *text = json_object_get(item, "template"), *want = json_object_get(item, "result");
		struct template_result r;
		enum err e = render(json_string_value(text), json_string_length(text), &in, &r);
		int same = json_is_null(want) ? e == ERR_WORK || e == ERR_MODEL
					      : !e && r.text.size == json_string_length(want) &&
							!memcmp(bytes_text(&r.text), json_string_value(want), r.text.size);
		if (!same)
			printf("\n%s\n  want %s\n  got  %s\n", json_string_value(text), want ? json_string_value(want) : "", e ? err_sentence() : bytes_text(&r.text));
		CU_ASSERT_TRUE(same);
		template_result_free(&r);
	}
	json_decref((json_t *)(uintptr_t)in.messages);
	json_decref(own);
	json_decref(golden);
}

/* -- origin --------------------------------------------------------------------------------------------------------- */

static const char messages[] = "[{\"role\": \"user\", \"content\": \"hello\", \"name\": \"Bob\", \"n\": 42, \"yes\": true, \"x\": 1.5, "
			       "\"list\": [\"a\", 1], \"d\": {\"k\": \"v\"}}, {\"role\": \"villain\", \"content\": \"<&> y\"}]";

/* The result with ^ $ around what came from outside. */
static void mark(const struct template_result *r, char *room, size_t size)
{
	size_t n = 0;
	int64_t run = 0;
	for (size_t i = 0; i <= r->text.size && n + 4 < size; i++) {
		if (run < r->n_input && i == r->input[run].end) {
			room[n++] = '$';
			run++;
		}
		if (run < r->n_input && i == r->input[run].begin)
			room[n++] = '^';
		if (i < r->text.size)
			room[n++] = bytes_text(&r->text)[i];
	}
	room[n] = 0;
}

/* m is the first message, w the second; o is "own", a text of the template's side. */
static const struct { const char *text, *want; } origins[] = {
	{ "a{{ m.content }}b", "a^hello$b" },
	{ "{{ 'x' + m.content + 'y' }}", "x^hello$y" },
	{ "{{ 'x' ~ m.n ~ m.yes ~ m.x ~ 5 }}", "x^42True1.5$5" },
	{ "{{ o }}{{ o ~ m.name }}", "ownown^Bob$" },
	{ "{{ ('<' + m.content + '>')[0:3] }}", "<^he$" },
	{ "{{ ('<' + m.content + '>')[::-1] }}", ">^olleh$<" },
	{ "{{ (' ' + m.content + ' x ') | trim }}", "^hello$ x" },
	{ "{{ ('<' + m.content).strip('<h') }}", "^ello$" },
	{ "{{ m.content | replace('l', 'L') }}", "^he$LL^o$" },
	{ "{{ 'a-b' | replace('-', m.name) }}", "a^Bob$b" },
	{ "{{ m.content.replace('ll', m.name) }}", "^heBobo$" },
	{ "{{ 'a-b'.split('-') | join(m.name) }}", "a^Bob$b" },
	{ "{{ m.content.split('l') | join('-') }}", "^he$--^o$" },
	{ "{{ m.content | upper }}{{ 'q' | upper }}{{ m.content.title() }}", "^HELLO$Q^Hello$" },
	{ "{{ m.d | tojson }}", "^{\"k\": \"v\"}$" },
	{ "{{ {'a': m.content} | tojson }}", "{\"a\": ^\"hello\"$}" },
	{ "{{ {'a': m.n, 'b': 1} | tojson }}", "{\"a\": ^42$, \"b\": 1}" },
	{ "{{ [m.content, 'x'] | tojson(indent=1) }}", "[\n ^\"hello\"$,\n \"x\"\n]" },
	{ "{{ m.d | string }}{{ m.list }}", "^{'k': 'v'}['a', 1]$" },
	{ "{{ [m.name, 'y'] }}", "[^'Bob'$, 'y']" },
	{ "{{ '%s and %d' % (m.name, m.n) }}", "^Bob$ and ^42$" },
	{ "{{ '{} or {}'.format(m.name, 'me') }}", "^Bob$ or me" },
	{ "{% for k, v in m.d.items() %}{{ k }}={{ v }}{% endfor %}", "^k$=^v$" },
	{ "{% for c in m.name %}<{{ c }}>{% endfor %}", "<^B$><^o$><^b$>" },
	{ "{% set x %}a{{ m.name }}{% endset %}{{ x | length }}{{ x }}", "4a^Bob$" },
	{ "{% macro f(t) %}[{{ t }}]{% endmacro %}{{ f(m.name) }}{{ f('n') }}", "[^Bob$][n]" },
	{ "{% filter upper %}a{{ m.name }}{% endfilter %}", "A^BOB$" },
	{ "{{ m.n + 1 }}{{ -m.n }}{{ (m.n | string) * 2 }}{{ m.n | float }}", "^43-42424242.0$" },
	{ "{{ '7' | int + ('4' ~ m.n) | int }}", "^449$" },
	{ "{{ w.content | e }}", "^&lt;&amp;&gt; y$" },
	{ "{{ (o | safe) + w.content }}", "own^&lt;&amp;&gt; y$" },
	{ "{{ 'a\nb' | indent(m.n - 40) }}", "a\n  b" },
	{ "{{ m.name | default('x') }}{{ m.no | default('x') }}{{ m.no | default(m.name) }}", "^Bob$x^Bob$" },
	{ "{{ m.list | map('string') | join(',') }}", "^a$,^1$" },
	{ "{{ [m.name, 'b', 'A'] | sort | join }}", "Ab^Bob$" },
	{ "{{ strftime_now('%Y') }}{{ messages | length }}{{ m.content | length }}", "202625" },
	{ "{{ v }}{{ tools[0].name }}{{ bos_token }}", "^from the requesttool$own bos" },
	{ "{{ m.role }} {{ w.role }}", "user ^villain$" },            /* a known role is a word of the template's */
	{ "{{ 'a' if m.content == 'hello' else 'b' }}{{ m.content in 'say hello' }}", "aTrue" },
};

TEST(every_byte_knows_where_it_came_from)
{
	json_t *m = parse_json(messages), *tools = parse_json("[{\"name\": \"tool\"}]");
	json_t *own = parse_json("{\"o\": \"own\", \"bos_token\": \"own bos\"}"), *variables = parse_json("{\"v\": \"from the request\", \"bos_token\": \"forged\"}");
	struct template_input in = { .messages = m, .tools = tools, .own = own, .variables = variables, .now_s = NOW };
	for (size_t i = 0; i < sizeof origins / sizeof origins[0]; i++) {
		struct template_result r;
		char text[1000], marked[1000];
		snprintf(text, sizeof text, "{%%- set m = messages[0] -%%}{%%- set w = messages[1] -%%}%s", origins[i].text);
		CHECK_OK(render(text, strlen(text), &in, &r));
		mark(&r, marked, sizeof marked);
		CU_ASSERT_STRING_EQUAL(marked, origins[i].want);
		if (strcmp(marked, origins[i].want))
			printf("\n%s\n  want %s\n  got  %s\n", origins[i].text, origins[i].want, marked);
		template_result_free(&r);
	}
	json_decref(m);
	json_decref(tools);
	json_decref(own);
	json_decref(variables);
}

/* -- hostile templates ---------------------------------------------------------------------------------------------- */

TEST(hostile_templates_are_stopped)
{
	static const struct { const char *text, *sentence; uint64_t mib, steps; } hostile[] = {
		{ "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "stopped after 100000 steps", 64, 100000 },
		{ "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "may use", 8, 1000000 },
		{ "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "inside each other", 8, 100000 },
		{ "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('ab') }}", "may use", 8, 1000000 },
		{ "{{ 'abcdefgh' * 99999999999 }}", "may use", 1, 1000000 },
		{ "{% set ns = namespace(s='abcdefgh') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "may use", 8, 1000000 },
		{ "{% set ns = namespace(l=[1, 2]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "may use", 8, 1000000 },
		{ "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s | replace('a', 'aa') | list | join %}{% endfor %}", "", 8, 1000000 },
		{ "{{ range(100001) }}", "a range of more than", 8, 1000000 },
		{ "{% set ns = namespace(l=[]) %}{% for i in range(300) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", "inside each other", 8, 1000000 },
		{ "{% set ns = namespace(l=[]) %}{% for i in range(300) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}", "inside each other", 8, 1000000 },
		{ "{% set a = namespace(l=[]) %}{% for i in range(900) %}{% set a.l = [a.l] %}{% endfor %}{{ a.l < a.l }}", "inside each other", 8, 1000000 },
		{ "{% set a = namespace(l=1) %}{% for i in range(1500) %}{% set a.l = [a.l, 2] %}{% endfor %}{{ a.l == a.l }}", "inside each other", 8, 1000000 },
		{ "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "written out", 8, 1000 },
		{ "{% set ns = namespace(d={}) %}{% set ns.d = {'x': ns} %}{{ ns.d | tojson }}", "cannot be written", 8, 1000 },
		{ "{{ '%999999999d' % 1 }}", "wider than", 8, 1000 },
		{ "{{ 9223372036854775807 + 1 }}", "64 bits", 8, 1000 },
		{ "{{ 2 ** 9999999999 }}", "64 bits", 8, 1000 },
		{ "{{ (-9223372036854775807 - 1) // -1 }}", "64 bits", 8, 1000 },
		{ "{{ (-9223372036854775807 - 1) % -1 }}{{ - (-9223372036854775807 - 1) }}", "64 bits", 8, 1000 },
		{ "{{ 'x'.__class__.__mro__ }}", "has no \"__class__\"", 8, 1000 },
		{ "{% for i in range(90000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 99 }}{% endfor %}", "64 MiB of text", 2000, 99000000 },
	};
	json_t *m = json_array();
	for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
		struct template_input in = { .messages = m, .max_memory_bytes = hostile[i].mib << 20, .max_steps = hostile[i].steps };
		struct template_result r;
		CHECK_ERR(render(hostile[i].text, strlen(hostile[i].text), &in, &r), WORK, hostile[i].sentence);
	}
	json_decref(m);
}

static void repeat(char *room, const char *text, int n)
{
	for (; n > 0; n--, room += strlen(text))
		strcpy(room, text);
}

TEST(deep_templates_are_refused)
{
	static const char *const deep[] = { "(", "[", "{1:", "not ", "-", "x if ", "1 + (", "x(", "x[" };
	char *room = malloc(2000000);
	struct template *t;
	for (size_t i = 0; i < sizeof deep / sizeof deep[0]; i++) {
		strcpy(room, "{{ ");
		repeat(room + 3, deep[i], 100000);
		CHECK_ERR(template_parse("t", room, strlen(room), &t), MODEL, "");
	}
	repeat(room, "{% if 1 %}", 100000);
	CHECK_ERR(template_parse("t", room, strlen(room), &t), MODEL, "more than 150 statements and expressions inside each other");
	/* long is not deep, but what is nested to the left is when it runs */
	struct template_result r;
	struct template_input in = { 0 };
	strcpy(room, "{{ 1");
	repeat(room + 4, " + 1", 100000);
	strcat(room, " }}");
	CHECK_ERR(render(room, strlen(room), &in, &r), WORK, "inside each other");
	repeat(room, "{{ 1 }}", 100000);
	CHECK_OK(render(room, strlen(room), &in, &r));
	CU_ASSERT_EQUAL(r.text.size, 100000);
	template_result_free(&r);
	free(room);
}

TEST(sentences_name_line_and_column)
{
	static const struct { const char *text, *sentence; enum err code; } faults[] = {
		{ "a\nb {{ x", "t: line 2, column 3: a tag has no \"}}\"", ERR_MODEL },
		{ "{% if x %}", "t: line 1, column 4: {% if %} has no end", ERR_MODEL },
		{ "\n\n  {% include 'x' %}", "t: line 3, column 6: the statement \"include\" is not known here", ERR_MODEL },
		{ "{{ 1 + }}", "t: line 1, column 8: \"}}\" instead of an expression", ERR_MODEL },
		{ "{{ a b }}", "t: line 1, column 6: \"b\" instead of \"}}\"", ERR_MODEL },
		{ "{{ 'abc }}", "t: line 1, column 4: a string has no end", ERR_MODEL },
		{ "\xc3\xa9{{ x ? y }}", "t: line 1, column 7: unexpected character \"?\"", ERR_MODEL },
		{ "{{ f(*a) }}", "t: line 1, column 6: * and ** in arguments are not supported", ERR_MODEL },
		{ "{# x", "t: line 1, column 1: a comment has no \"#}\"", ERR_MODEL },
		{ "{{ 1 | nothing }}", "t: line 1, column 8: the filter \"nothing\" is not supported", ERR_MODEL },
		{ "x\n{{ missing.a }}", "t: line 2, column 11: 'missing' is undefined", ERR_WORK },
		{ "{{ messages.a.b }}", "t: line 1, column 14: a list has no \"a\"", ERR_WORK },
		{ "{{ raise_exception('roles must alternate') }}", "t: line 1, column 4: the chat template refuses: roles must alternate", ERR_WORK },
		{ "{{ 1 + 'a' }}", "t: line 1, column 6: + does not work on an integer and a string", ERR_WORK },
		{ "\xff", "t: the template is not UTF-8", ERR_MODEL },
	};
	json_t *m = json_array();
	struct template_input in = { .messages = m };
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		struct template_result r;
		CU_ASSERT_EQUAL(render(faults[i].text, strlen(faults[i].text), &in, &r), faults[i].code);
		CU_ASSERT_NSTRING_EQUAL(err_sentence(), faults[i].sentence, strlen(faults[i].sentence));
		if (strncmp(err_sentence(), faults[i].sentence, strlen(faults[i].sentence)))
			printf("\n  want %s\n  got  %s\n", faults[i].sentence, err_sentence());
	}
	json_decref(m);
}

/* -- damage --------------------------------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void try_template(const char *text, size_t bytes, const struct template_input *in)
{
	struct template_result r;
	enum err e = render(text, bytes, in, &r);
	CU_ASSERT_TRUE_FATAL(e == ERR_OK || e == ERR_WORK || e == ERR_MODEL);
	for (int64_t i = 0; i < r.n_input; i++)
		CU_ASSERT_TRUE_FATAL(r.input[i].begin < r.input[i].end && r.input[i].end <= r.text.size);
	template_result_free(&r);
}

/* Every beginning of every small template, and small changes of them: no crash, and no fault of the program's own. */
TEST(damaged_templates_do_no_harm)
{
	json_t *golden, *item, *m = parse_json(messages);
	size_t i;
	uint32_t state = 1;
	CHECK_OK(json_parse_file(GOLDEN, 1 << 20, ERR_IO, &golden));
	struct template_input in = { .messages = m, .variables = json_object_get(golden, "variables"), .max_memory_bytes = 4 << 20, .max_steps = 100000 };
	json_array_foreach(json_object_get(golden, "snippets"), i, item) {
		const char *text = json_string_value(json_object_get(item, "template"));
		size_t n = strlen(text);
		char *copy = malloc(n + 1);
		for (size_t end = 0; end < n; end++)
			try_template(memcpy(copy, text, end), end, &in);
		for (int k = 0; k < 100; k++) {
			static const char marks[] = "{}%#-+|()[],.:'\"\\ \n0a=~*/<>_\xc3";
			memcpy(copy, text, n + 1);
			for (uint32_t changes = 1 + next_random(&state) % 3; changes; changes--)
				copy[next_random(&state) % n] = marks[next_random(&state) % (sizeof marks - 1)];
			try_template(copy, n, &in);
		}
		free(copy);
	}
	json_decref(golden);
	json_decref(m);
}

TEST(without_memory_a_render_fails_cleanly)
{
	static const char text[] = "{% set x %}{{ messages | tojson(indent=2) }}{% endset %}{% for m in messages %}{{ m.content | upper }}{% endfor %}{{ x }}";
	json_t *m = parse_json(messages);
	struct template_input in = { .messages = m };
	struct template_result r;
	enum err e = ERR_MEMORY;
	int n_failed = 0;
	for (int64_t nth = 1; e && nth < 200; nth++) {
		mem_fail_at(nth);
		e = render(text, sizeof text - 1, &in, &r);
		mem_fail_at(0);
		CU_ASSERT_TRUE(e == ERR_OK || e == ERR_MEMORY);
		n_failed += e == ERR_MEMORY;
	}
	CHECK_OK(e);
	CU_ASSERT_TRUE(n_failed >= 5);
	template_result_free(&r);
	json_decref(m);
}

/* -- finding -------------------------------------------------------------------------------------------------------- */

static struct test_dir dir;

static void check_render(const struct template *t, const struct chat_templates *c, const char *want)
{
	struct template_result r;
	struct template_input in = { .own = c->own };
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CHECK_OK(template_render(t, &in, &r));
	CU_ASSERT_STRING_EQUAL(bytes_text(&r.text), want);
	CU_ASSERT_EQUAL(r.n_input, 0);
	template_result_free(&r);
}

static void write_text(const char *name, const char *text) { test_write(&dir, name, text, strlen(text)); }

TEST(a_directory_s_templates_are_found)
{
	struct chat_templates c;
	test_dir_make(&dir);
	CHECK_OK(chat_templates_open_directory(dir.path, &c));
	CU_ASSERT_PTR_NULL(chat_templates_pick(&c, 0));
	CU_ASSERT_PTR_NULL(chat_templates_pick(&c, 1));
	chat_templates_close(&c);

	write_text("tokenizer_config.json", "{\"bos_token\": {\"content\": \"<b>\"}, \"eos_token\": \"<e>\", \"chat_template\": \"{{ bos_token }}config{{ eos_token }}\"}");
	CHECK_OK(chat_templates_open_directory(dir.path, &c));
	check_render(chat_templates_pick(&c, 0), &c, "<b>config<e>");
	CU_ASSERT_PTR_EQUAL(chat_templates_pick(&c, 1), chat_templates_pick(&c, 0));
	chat_templates_close(&c);

	write_text("chat_template.jinja", "file{{ eos_token }}\n");   /* wins */
	CHECK_OK(chat_templates_open_directory(dir.path, &c));
	check_render(chat_templates_pick(&c, 0), &c, "file<e>");
	chat_templates_close(&c);
	test_dir_empty(&dir);

	write_text("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"one\"}, {\"name\": \"tool_use\", \"template\": \"two\"}, {\"name\": \"rag\", \"template\": \"{% broken\"}]}");
	CHECK_OK(chat_templates_open_directory(dir.path, &c));
	check_render(chat_templates_pick(&c, 0), &c, "one");
	check_render(chat_templates_pick(&c, 1), &c, "two");
	chat_templates_close(&c);

	write_text("tokenizer_config.json", "{\"chat_template\": [\"one\"]}");
	CHECK_ERR(chat_templates_open_directory(dir.path, &c), MODEL, "entry 0 of \"chat_template\"");
	write_text("tokenizer_config.json", "{\"chat_template\": 5}");
	CHECK_ERR(chat_templates_open_directory(dir.path, &c), MODEL, "must be a string or a list");
	write_text("tokenizer_config.json", "{\"chat_template\": \"{% if %}\"}");
	CHECK_ERR(chat_templates_open_directory(dir.path, &c), MODEL, "tokenizer_config.json, chat template \"default\": line 1, column 7");
	test_dir_remove(&dir);
}

TEST(a_gguf_file_s_template_is_found)
{
	struct chat_templates c;
	struct bytes b = { 0 };
	struct gguf *g;
	test_dir_make(&dir);
	put_gguf(&b, 3, 0, 4);
	put_array(&b, "tokenizer.ggml.tokens", T_STRING, 2);
	put_text(&b, "<first>");
	put_text(&b, "<second>");
	put_key(&b, "tokenizer.ggml.bos_token_id", T_U32, 1, 4);
	put_key(&b, "tokenizer.chat_template", T_STRING, 0, 0);
	put_text(&b, "{{ bos_token }} plain");
	put_key(&b, "tokenizer.chat_template.tool_use", T_STRING, 0, 0);
	put_text(&b, "{{ bos_token }} tools");
	CHECK_OK(gguf_open(test_write(&dir, "x.gguf", b.data, b.size), &g));
	CHECK_OK(chat_templates_open_gguf(g, &c));
	check_render(chat_templates_pick(&c, 0), &c, "<second> plain");
	check_render(chat_templates_pick(&c, 1), &c, "<second> tools");
	chat_templates_close(&c);
	gguf_close(g);
	bytes_free(&b);
	test_dir_remove(&dir);
}

TEST(arguments_of_tool_calls_become_objects)
{
	json_t *m = parse_json("[{\"role\": \"user\"}, {\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [1]}\"}},"
			       "{\"function\": {\"arguments\": \"[1]\"}}, {\"function\": {\"arguments\": {\"b\": 2}}}, {\"function\": {\"arguments\": \"{\"}}, 5]}]");
	json_t *want = parse_json("[{\"role\": \"user\"}, {\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1]}}},"
				  "{\"function\": {\"arguments\": \"[1]\"}}, {\"function\": {\"arguments\": {\"b\": 2}}}, {\"function\": {\"arguments\": \"{\"}}, 5]}]");
	CHECK_OK(chat_parse_arguments(m));
	CU_ASSERT_TRUE(json_equal(m, want));
	json_decref(m);
	json_decref(want);
}

TEST_MAIN("template", CASE(small_templates_give_what_jinja2_gives), CASE(every_byte_knows_where_it_came_from), CASE(hostile_templates_are_stopped),
	  CASE(deep_templates_are_refused), CASE(sentences_name_line_and_column), CASE(damaged_templates_do_no_harm),
	  CASE(without_memory_a_render_fails_cleanly), CASE(a_directory_s_templates_are_found), CASE(a_gguf_file_s_template_is_found), CASE(arguments_of_tool_calls_become_objects))
