/* A schema's grammar reads valid documents and no others: those whose validity the jsonschema package told (golden/schemas), byte by byte;
 * texts that are cut or broken; and whatever a walk at random over the masks of a vocabulary writes is valid by a small validator here.
 * A mask has exactly the tokens whose bytes can be read. Schemas that are not supported are refused by their place.
 * timeout: 120 */
#include "runtime/json_schema.h"
#include "runtime/token_mask.h"
#include "base/bytes.h"
#include "tests/kernel_data.h"
#include "tests/test.h"

static int reads(const struct grammar *g, const char *text, size_t n)
{
	struct matcher m;
	int good = 1;
	CHECK_OK(matcher_begin(&m, g));
	for (size_t i = 0; i < n && good; i++)
		CHECK_OK(matcher_read(&m, text + i, 1, &good));
	good = good && matcher_may_end(&m);
	matcher_free(&m);
	return good;
}

static int reads_text(const struct grammar *g, const char *text) { return reads(g, text, strlen(text)); }

static struct grammar *compiled(const char *schema)
{
	struct grammar *g = NULL;
	json_t *s = schema ? json_loads(schema, JSON_DECODE_ANY, NULL) : NULL;
	CU_ASSERT_TRUE_FATAL(!schema || s);
	CHECK_OK(json_schema_compile(s, &g));
	json_decref(s);
	CU_ASSERT_PTR_NOT_NULL_FATAL(g);
	return g;
}

static json_t *golden(void)
{
	json_t *cases = NULL;
	CHECK_OK(json_parse_file(SOURCE_DIR "/tests/golden/schemas/golden.json", 1 << 22, ERR_IO, &cases));
	CU_ASSERT_TRUE_FATAL(json_array_size(cases) > 20);
	return cases;
}

TEST(documents_are_read_when_they_are_valid)
{
	json_t *cases = golden(), *c, *d;
	size_t i, k, n = 0, n_valid = 0;
	json_array_foreach(cases, i, c) {
		struct grammar *g = NULL;
		CHECK_OK(json_schema_compile(json_object_get(c, "schema"), &g));
		if (!g)
			continue;
		json_array_foreach(json_object_get(c, "documents"), k, d) {
			const char *text = json_string_value(json_array_get(d, 0));
			int is_valid = json_is_true(json_array_get(d, 1)), is_read = reads_text(g, text);
			if (is_valid != is_read)
				fprintf(stderr, "case %zu: %s, valid %d, read %d\n", i, text, is_valid, is_read);
			CU_ASSERT_EQUAL(is_valid, is_read);
			n++;
			n_valid += (size_t)is_valid;
		}
		json_array_foreach(json_object_get(c, "other"), k, d) {
			if (reads_text(g, json_string_value(d)))
				fprintf(stderr, "case %zu: %s is read\n", i, json_string_value(d));
			CU_ASSERT_FALSE(reads_text(g, json_string_value(d)));
		}
		grammar_free(g);
	}
	CU_ASSERT_TRUE(n > 1000 && n_valid > 200);
	json_decref(cases);
}

/* What jansson parses and what any object's grammar reads: of broken texts the grammar reads none that jansson does not parse. */
TEST(what_is_read_parses)
{
	static const char start[] = "{\"a\": [1, -2.5e3, true, null, \"x\\u00e9\\ud83d\\ude00\\n\"],\n  \"\xc3\xa9\xf0\x9f\x98\x80\": {\"b\": {}, \"c\": []}}";
	static const char alphabet[] = "{}[]\",:\\u0d8eE+-.1tfn \n\t\xc3\xa9\xf0\x9f\x98\x80\xed\xa0\xff\x1f";
	struct grammar *g = compiled(NULL);
	int n_read = 0;
	CU_ASSERT_TRUE(reads_text(g, start));
	for (size_t n = 0; n < sizeof start - 1; n++)
		CU_ASSERT_FALSE(reads(g, start, n));
	for (int round = 0; round < 30000; round++) {
		char text[sizeof start + 4];
		size_t size = sizeof start - 1;
		memcpy(text, start, size);
		for (int64_t changes = 1 + random_below(3); changes; changes--) {
			size_t at = (size_t)random_below((int64_t)size);
			if (random_below(2))
				text[at] = alphabet[random_below(sizeof alphabet - 1)];
			else if (random_below(2) && size < sizeof start + 3)
				memmove(text + at + 1, text + at, size++ - at);
			else
				memmove(text + at, text + at + 1, --size - at);
		}
		if (!reads(g, text, size))
			continue;
		json_t *v = json_loadb(text, size, 0, NULL);
		if (!json_is_object(v))
			fprintf(stderr, "read, but does not parse: %.*s\n", (int)size, text);
		CU_ASSERT_TRUE(json_is_object(v));
		json_decref(v);
		n_read++;
	}
	CU_ASSERT_TRUE(n_read > 300);
	grammar_free(g);
}

TEST(strings_and_space)
{
	struct grammar *g = compiled("{\"type\":\"string\"}"), *o = compiled(NULL), *two = compiled("{\"type\":\"string\",\"minLength\":2,\"maxLength\":2}");
	static const char *const good[] = { "\"\"", "\"\\ud83d\\ude00\"", "\"\\u0001\\uFFFF\\ue000\\ud7ff\"", "\"\x7f\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf\"" };
	static const char *const bad[] = { "\"\\ud83d\"", "\"\\ude00\\ud83d\"", "\"\\ud83d\\u0041\"", "\"\\u0000\"", "\"\n\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
					   "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\"", "\"\\x\"", "\"\\u12g4\"", " \"\"", "\"\" ", "''" };
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		CU_ASSERT_TRUE(reads_text(g, good[i]));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		CU_ASSERT_FALSE(reads_text(g, bad[i]));
	CU_ASSERT_TRUE(reads_text(two, "\"a\xf0\x9f\x98\x80\"") && reads_text(two, "\"\\n\\ud83d\\ude00\""));
	CU_ASSERT_FALSE(reads_text(two, "\"a\"") || reads_text(two, "\"abc\"") || reads_text(two, "\"a\\u0041b\""));
	CU_ASSERT_TRUE(reads_text(o, "{ \"a\": 1,\n\t\t\"b\":2\n}") && reads_text(o, "{\n}"));
	CU_ASSERT_FALSE(reads_text(o, "{  }") || reads_text(o, "{\"a\":  1}") || reads_text(o, "{\"a\" :1}") || reads_text(o, "{\n\n}"));
	CU_ASSERT_FALSE(reads_text(o, "{\"a\":1,}") || reads_text(o, "{\"a\":1 ,\"b\":2}") || reads_text(o, "{}{}"));
	grammar_free(g);
	grammar_free(o);
	grammar_free(two);
}

/* --- numbers, against arithmetic --- */

static int in_bounds(double x, int64_t min, int64_t max, int min_out, int max_out)
{
	return (min_out ? x > (double)min : x >= (double)min) && (max_out ? x < (double)max : x <= (double)max);
}

TEST(numbers_keep_to_bounds)
{
	for (int round = 0; round < 150; round++) {
		int64_t a = random_below(2400) - 1200, b = a + random_below(round % 3 ? 1300 : 30) + 2;
		int a_out = (int)random_below(2), b_out = (int)random_below(2), is_integer = round % 2;
		char schema[200], text[40];
		snprintf(schema, sizeof schema, "{\"type\":\"%s\",\"%s\":%d,\"%s\":%d}", is_integer ? "integer" : "number",
			 a_out ? "exclusiveMinimum" : "minimum", (int)a, b_out ? "exclusiveMaximum" : "maximum", (int)b);
		struct grammar *g = compiled(schema);
		for (int64_t n = -1300; n <= 2600; n += is_integer ? 1 : 3) {
			snprintf(text, sizeof text, "%d", (int)n);
			CU_ASSERT_EQUAL(reads_text(g, text), in_bounds((double)n, a, b, a_out, b_out));
		}
		for (int i = 0; i < 400 && !is_integer; i++) {
			int64_t n = i % 4 ? a + random_below(b - a + 3) - 1 : i % 8 ? a : b;
			snprintf(text, sizeof text, "%.*f", 1 + (int)random_below(6), (double)n + (i % 3 ? (double)random_below(1000000) * 1e-6 : 0));
			int want = in_bounds(atof(text), a, b, a_out, b_out);
			if (text[0] == '-' && a >= 0)
				want = 0;                /* -0 is not written */
			if (reads_text(g, text) != want)
				fprintf(stderr, "%s: %s, want %d\n", schema, text, want);
			CU_ASSERT_EQUAL(reads_text(g, text), want);
		}
		grammar_free(g);
	}
}

/* --- what is refused --- */

TEST(refusals_name_the_keyword_and_its_place)
{
	static const struct { const char *schema, *words; } cases[] = {
		{ "{\"type\":\"integer\",\"multipleOf\":2}", "schema, at #: \"multipleOf\" is not supported" },
		{ "{\"properties\":{\"a\":{\"items\":{\"anyOf\":[{\"type\":\"null\"},{\"not\":{}}]}}}}", "at #/properties/a/items/anyOf/1: \"not\"" },
		{ "{\"type\":\"string\",\"pattern\":\"^a\"}", "\"pattern\" is not supported" },
		{ "{\"type\":\"strin\"}", "\"type\" must be object, array" },
		{ "{\"type\":[]}", "\"type\" must be object, array" },
		{ "{\"type\":\"string\",\"minLength\":-1}", "\"minLength\" must be a whole number" },
		{ "{\"type\":\"string\",\"maxLength\":100000}", "\"maxLength\" is 100000, at most 16384 is supported" },
		{ "{\"type\":\"string\",\"minLength\":4,\"maxLength\":3}", "\"minLength\" is above" },
		{ "{\"type\":\"number\",\"minimum\":0.5}", "\"minimum\" of a number must be whole; 0.5" },
		{ "{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no text that ends" },
		{ "{\"type\":\"number\",\"exclusiveMinimum\":true}", "\"exclusiveMinimum\" must be a number, found a boolean" },
		{ "{\"$ref\":\"http://x/y\"}", "\"$ref\" must be \"#\" or begin with" },
		{ "{\"$ref\":\"#/$defs/none\"}", "\"$ref\" to \"#/$defs/none\", which is not there" },
		{ "{\"$ref\":\"#\"}", "no text that ends" },
		{ "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "leads to itself" },
		{ "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no text that ends" },
		{ "{\"anyOf\":[{\"type\":\"null\"}],\"type\":\"null\"}", "\"type\" beside \"anyOf\"" },
		{ "{\"anyOf\":[{\"type\":\"null\"}],\"enum\":[1]}", "beside each other are not supported" },
		{ "{\"enum\":[1],\"minimum\":0}", "\"enum\" beside other keywords" },
		{ "{\"enum\":[1,2],\"type\":\"string\"}", "no value of \"enum\" has the type" },
		{ "{\"allOf\":[{},{}]}", "\"allOf\" of more than one" },
		{ "{\"minLength\":1,\"minItems\":1}", "keywords of several types" },
		{ "{\"type\":\"array\",\"uniqueItems\":true}", "\"uniqueItems\" is not supported" },
		{ "{\"type\":\"array\",\"items\":[{}]}", "\"items\" as a list" },
		{ "{\"type\":\"array\",\"items\":false,\"minItems\":1}", "no list is long enough" },
		{ "{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}", "\"required\" names \"a\", which is not allowed" },
		{ "{\"type\":\"object\",\"required\":\"a\"}", "\"required\" must be a list of names" },
		{ "{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", "at #/properties/a: false allows nothing" },
		{ "{\"type\":\"object\",\"properties\":[1]}", "\"properties\" must be an object, found a list" },
		{ "[]", "a schema must be an object, found a list" } };
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct grammar *g = NULL;
		json_t *s = json_loads(cases[i].schema, JSON_DECODE_ANY, NULL);
		CHECK_ERR(json_schema_compile(s, &g), WORK, cases[i].words);
		grammar_free(g);
		json_decref(s);
	}
}

/* --- walks at random --- */

struct words { struct bytes text; uint32_t at[1200]; int64_t n; };

static void add(struct words *w, const char *text, size_t n)
{
	bytes_put(&w->text, text, n);
	w->at[++w->n] = (uint32_t)w->text.size;
}

/* Every byte, pieces of JSON, and characters in parts. The last token, without bytes, ends an answer. */
static void make_words(struct words *w)
{
	static const char *const pieces[] = { "{\"", "\":", "\": ", "\",", "\", \"", "\"}", "},", "},{", "]}", "}}", "[[", "[1", ", ", "true", "null", "\n  ",
		"\n\t", "12", "0.", "00", "name", "\"name", "\"a\":", "age\":", "red\"", "\"re", "ab", "abc\"", "\xe6\x97", "\xa5\xe6", "\x9c\xac", "\xf0\x9f",
		"\x98\x80\"", "\xc3\xa9", "\xa9x", "\\u00", "\\ud8", "3d\\u", "de00", "e9\"", "\\n\\", "\"\\", "]]]]", "]]", "}]}", "-1", "e5", "kids", "tail\":{\"",
		"          ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\"k\":", "\"z\":[", " ", " {\"" };
	char byte;
	for (int b = 0; b < 256; b++)
		byte = (char)b, add(w, &byte, 1);
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
		add(w, pieces[i], strlen(pieces[i]));
	for (int i = 0; i < 600; i++) {
		char text[12];
		size_t n = 2 + (size_t)random_below(4);
		for (size_t k = 0; k < n; k++)
			text[k] = "{}[]\",:0123456789.-abcdetrufalsn \n\\\xc3\xa9\xe6\x97\xa5"[random_below(42)];
		add(w, text, n);
	}
	add(w, "", 0);
}

static int is_allowed(const struct held *h, int64_t t) { return (int)(h->allowed[t / 32] >> (t % 32) & 1); }

/* The mask, from the definition: a token at a time. */
static void check_mask(const struct words *w, const struct held *h, const struct grammar *g, const struct bytes *written)
{
	for (int64_t t = 0; t < w->n; t++) {
		struct matcher m;
		int good = 1, is_stop = t == w->n - 1;
		CHECK_OK(matcher_begin(&m, g));
		CHECK_OK(matcher_read(&m, bytes_text(written), written->size, &good));
		CU_ASSERT_TRUE(good);
		if (is_stop)
			good = matcher_may_end(&m);
		else
			CHECK_OK(matcher_read(&m, w->text.data + w->at[t], w->at[t + 1] - w->at[t], &good));
		if (good != is_allowed(h, t))
			fprintf(stderr, "after %s: token %d \"%.*s\", mask %d\n", bytes_text(written), (int)t, (int)(w->at[t + 1] - w->at[t]),
				(const char *)w->text.data + w->at[t], is_allowed(h, t));
		CU_ASSERT_EQUAL(good, is_allowed(h, t));
		matcher_free(&m);
	}
}

static int is_valid(const json_t *root, const json_t *s, const json_t *v);

static int has_type(const json_t *v, const char *type)
{
	double x = json_number_value(v);
	return !strcmp(type, "object") ? json_is_object(v) : !strcmp(type, "array") ? json_is_array(v) :
	       !strcmp(type, "string") ? json_is_string(v) : !strcmp(type, "boolean") ? json_is_boolean(v) :
	       !strcmp(type, "null") ? json_is_null(v) : !strcmp(type, "number") ? json_is_number(v) :
	       json_is_number(v) && x == (double)(long long)x;
}

static int type_is_valid(const json_t *s, const json_t *v)
{
	json_t *type = json_object_get(s, "type");
	int found = !type;
	for (size_t i = 0; i < json_array_size(type); i++)
		found |= has_type(v, json_string_value(json_array_get(type, i)));
	return found || (json_is_string(type) && has_type(v, json_string_value(type)));
}

static size_t characters(const json_t *v)
{
	size_t n = 0;
	for (size_t i = 0; i < json_string_length(v); i++)
		n += (json_string_value(v)[i] & 0xc0) != 0x80;
	return n;
}

static double limit(const json_t *s, const char *key, double otherwise)
{
	json_t *l = json_object_get(s, key);
	return l ? json_number_value(l) : otherwise;
}

static int object_is_valid(const json_t *root, const json_t *s, const json_t *v)
{
	json_t *properties = json_object_get(s, "properties"), *required = json_object_get(s, "required"), *value;
	json_t *others = json_object_get(s, "additionalProperties");
	const char *name;
	for (size_t i = 0; i < json_array_size(required); i++)
		if (!json_object_get(v, json_string_value(json_array_get(required, i))))
			return 0;
	json_object_foreach((json_t *)(uintptr_t)v, name, value) {
		json_t *of = json_object_get(properties, name);
		if (!of && others && !is_valid(root, others, value))
			return 0;
		if (of && !is_valid(root, of, value))
			return 0;
	}
	return 1;
}

static int array_is_valid(const json_t *root, const json_t *s, const json_t *v)
{
	json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
	double n = (double)json_array_size(v);
	for (size_t i = 0; i < json_array_size(v); i++) {
		json_t *of = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
		if (of && !is_valid(root, of, json_array_get(v, i)))
			return 0;
	}
	return n >= limit(s, "minItems", 0) && n <= limit(s, "maxItems", 1e9);
}

static int some_are_valid(const json_t *root, const json_t *list, const json_t *v)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (is_valid(root, json_array_get(list, i), v))
			return 1;
	return 0;
}

static int is_equal(const json_t *a, const json_t *b)
{
	return json_equal(a, b) || (json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b));
}

static int is_valid(const json_t *root, const json_t *s, const json_t *v)
{
	json_t *ref = json_object_get(s, "$ref"), *list = json_object_get(s, "enum"), *one = json_object_get(s, "const");
	int found = !list;
	if (json_is_boolean(s))
		return json_is_true(s);
	if (ref) {
		const char *slash = strrchr(json_string_value(ref), '/');
		return is_valid(root, slash ? json_object_get(json_object_get(root, "$defs"), slash + 1) : root, v);
	}
	for (size_t i = 0; i < json_array_size(list); i++)
		found |= is_equal(json_array_get(list, i), v);
	if (!found || (one && !is_equal(one, v)) || !type_is_valid(s, v))
		return 0;
	static const char *const some[] = { "anyOf", "oneOf", "allOf" };
	for (int i = 0; i < 3; i++)
		if (json_object_get(s, some[i]) && !some_are_valid(root, json_object_get(s, some[i]), v))
			return 0;
	double x = json_number_value(v), n = (double)characters(v);
	if (json_is_number(v))
		return x >= limit(s, "minimum", -1e300) && x <= limit(s, "maximum", 1e300) && x > limit(s, "exclusiveMinimum", -1e300) &&
		       x < limit(s, "exclusiveMaximum", 1e300);
	if (json_is_string(v))
		return n >= limit(s, "minLength", 0) && n <= limit(s, "maxLength", 1e9);
	return json_is_object(v) ? object_is_valid(root, s, v) : json_is_array(v) ? array_is_valid(root, s, v) : 1;
}

/* One of the tokens that are allowed; the longer the text is, the more often one that ends something. */
static int64_t pick(const struct words *w, const struct held *h, int64_t written)
{
	int64_t n = 0, end = -1, found = -1;
	if (random_below(80) < written - 30) {
		for (const char *c = "}]\""; *c; c++)
			if (is_allowed(h, (unsigned char)*c) && (end < 0 || random_below(2)))
				end = (unsigned char)*c;
		if (is_allowed(h, w->n - 1))
			return w->n - 1;
		if (end >= 0)
			return end;
	}
	for (int64_t t = 0; t < w->n; t++)
		if (is_allowed(h, t) && random_below(++n) == 0)
			found = t;
	return found;
}

/* Writes a document; gives its tokens. */
static int64_t write_one(const struct words *w, struct token_masks *k, const struct grammar *g, int wants_masks, struct bytes *text)
{
	const int32_t stop = (int32_t)w->n - 1;
	struct held h;
	int is_over = 0;
	int64_t n = 0;
	bytes_clear(text);
	CHECK_OK(held_begin(&h, k, w->n, &stop, 1));
	for (; !is_over && n < 3000; n++) {
		if (wants_masks)
			check_mask(w, &h, g, text);
		int64_t t = pick(w, &h, n);
		CU_ASSERT_TRUE_FATAL(t >= 0);
		if (t == stop)
			break;
		bytes_put(text, w->text.data + w->at[t], w->at[t + 1] - w->at[t]);
		CHECK_OK(held_token(&h, (int32_t)t, &is_over));
	}
	CU_ASSERT_TRUE(held_is_whole(&h));
	held_free(&h);
	return n;
}

TEST(walks_write_valid_documents)
{
	struct words *w = room(sizeof *w);
	struct token_trie *trie = NULL;
	struct bytes text = { 0 };
	json_t *cases = golden(), *c;
	size_t i;
	int64_t longest = 0;
	make_words(w);
	CHECK_OK(token_trie_create(w->text.data, w->at, w->n, &trie));
	json_array_foreach(cases, i, c) {
		json_t *schema = json_object_get(c, "schema");
		struct grammar *g, *same;
		struct token_masks *k;
		CHECK_OK(json_schema_compile(schema, &g));
		CHECK_OK(json_schema_compile(schema, &same));
		CHECK_OK(token_masks_create(trie, g, &k));
		for (int round = 0; round < 60; round++) {
			int64_t n = write_one(w, k, same, round < 2, &text);
			json_t *v = json_loadb(bytes_text(&text), text.size, JSON_DECODE_ANY, NULL);
			if (!v || !is_valid(schema, schema, v))
				fprintf(stderr, "case %zu: not valid: %s\n", i, bytes_text(&text));
			CU_ASSERT_TRUE(v && is_valid(schema, schema, v));
			json_decref(v);
			longest = n > longest ? n : longest;
		}
		token_masks_free(k);
		grammar_free(same);
	}
	CU_ASSERT_TRUE(longest > 100 && longest < 3000);
	json_decref(cases);
	token_trie_free(trie);
	bytes_free(&w->text);
	free(w);
	bytes_free(&text);
}

/* However deep a document is, it can be ended: brackets are not opened beyond what the stack holds. */
TEST(nesting_ends_in_time)
{
	static const char *const schemas[] = { NULL, "{\"type\":\"array\"}", "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}",
		"{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}},\"required\":[\"a\"]}" };
	for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
		struct grammar *g = compiled(schemas[i]);
		struct matcher m;
		int good = 1, depth = 0;
		const char *open = i == 1 || i == 2 ? "[" : "{\"a\":", *end = i == 1 || i == 2 ? "]" : i == 0 ? "1}" : "null}";
		CHECK_OK(matcher_begin(&m, g));
		for (; good && depth < 300; depth++)
			CHECK_OK(matcher_read(&m, open, strlen(open), &good));
		CU_ASSERT_TRUE(!good && depth > 40 && depth <= 130);
		for (int d = 0; d < depth - 1; d++) {
			CU_ASSERT_FALSE(matcher_may_end(&m));
			CHECK_OK(matcher_read(&m, d ? end + strlen(end) - 1 : end, d ? 1 : strlen(end), &good));
			CU_ASSERT_TRUE(good);
		}
		CU_ASSERT_TRUE(matcher_may_end(&m) && !matcher_may_go_on(&m));
		matcher_free(&m);
		grammar_free(g);
	}
}

/* A text whose first blank the tokenizer takes off may begin with a token that has one. */
TEST(a_first_blank_that_is_taken_off)
{
	static const char text[] = " {{ }\"}";
	static const uint32_t at[] = { 0, 2, 3, 4, 5, 6, 7 };   /* " {" "{" " " "}" "\"" "}" */
	struct token_trie *trie = NULL;
	struct token_masks *k = NULL;
	struct held h;
	int is_over;
	CHECK_OK(token_trie_create(text, at, 6, &trie));
	for (int is_taken = 0; is_taken < 2; is_taken++) {
		trie->blank = is_taken ? 1 : 0;
		CHECK_OK(token_masks_create(trie, compiled(NULL), &k));
		CHECK_OK(held_begin(&h, k, 6, NULL, 0));
		CU_ASSERT_EQUAL(h.allowed[0], is_taken ? 3 : 2);
		CHECK_OK(held_token(&h, is_taken ? 0 : 1, &is_over));
		CU_ASSERT_EQUAL(is_over, 0);
		CU_ASSERT_EQUAL(h.allowed[0], 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5);
		CHECK_OK(held_token(&h, 3, &is_over));
		CU_ASSERT_EQUAL(is_over, 1);
		held_free(&h);
		token_masks_free(k);
	}
	token_trie_free(trie);
}

TEST_MAIN("json_schema", CASE(documents_are_read_when_they_are_valid), CASE(what_is_read_parses), CASE(strings_and_space),
	  CASE(numbers_keep_to_bounds), CASE(refusals_name_the_keyword_and_its_place), CASE(walks_write_valid_documents),
	  CASE(nesting_ends_in_time), CASE(a_first_blank_that_is_taken_off))
