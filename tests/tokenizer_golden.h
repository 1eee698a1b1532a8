/* Comparing a tokenizer with golden data: tests/golden/tokenizers, made by tests/golden/make_tokenizers.py. */
#ifndef SHARDRUN_TESTS_TOKENIZER_GOLDEN_H
#define SHARDRUN_TESTS_TOKENIZER_GOLDEN_H

#include "base/file.h"
#include "base/json.h"
#include "runtime/tokenizer.h"
#include "tests/test.h"

static inline int same_ids(const struct tokens *got, json_t *want)
{
	if ((size_t)got->n != json_array_size(want))
		return 0;
	for (int64_t i = 0; i < got->n; i++)
		if (json_integer_value(json_array_get(want, (size_t)i)) != got->ids[i])
			return 0;
	return 1;
}

#define GOLDEN SOURCE_DIR "/tests/golden/tokenizers"

static inline size_t unhex(const char *hex, char *room)
{
	size_t n = 0;
	for (; hex[0] && hex[1]; hex += 2, n++) {
		char pair[3] = { hex[0], hex[1], 0 };
		room[n] = (char)strtol(pair, NULL, 16);
	}
	return n;
}

static inline void show(const char *name, const char *what, const char *hex, const struct tokens *got, json_t *want)
{
	char *text = want ? json_dumps(want, 0) : NULL;
	fprintf(stderr, "%s, %s: string %s\n  want %s\n  got ", name, what, hex, text);
	for (int64_t i = 0; i < got->n; i++)
		fprintf(stderr, " %d", got->ids[i]);
	fprintf(stderr, "\n");
	free(text);
}

/* Encodes one string and compares with `want`; 0 when it differs. */
static inline int check_ids(const struct tokenizer *t, const char *name, const char *what, const char *hex, int flags,
			    json_t *want)
{
	char room[4096];
	struct tokens ids = { 0 };
	enum err e = tokenizer_encode(t, room, unhex(hex, room), flags, &ids);
	int same = !e && same_ids(&ids, want);
	if (e)
		fprintf(stderr, "%s: %s\n", name, err_sentence());
	if (!same)
		show(name, what, hex, &ids, want);
	tokens_free(&ids);
	return same;
}

/* Decodes ids, and compares with `want`. */
static inline int check_text(const struct tokenizer *t, const char *name, json_t *ids, const char *want, size_t bytes)
{
	struct detokenizer d = { 0 };
	struct bytes text = { 0 };
	json_t *id;
	size_t k;
	json_array_foreach(ids, k, id) {
		CHECK_OK(detokenizer_put(&d, t, (int32_t)json_integer_value(id), &text));
	}
	detokenizer_end(&d, &text);
	int same = text.size == bytes && !memcmp(bytes_text(&text), want, bytes);
	if (!same)
		fprintf(stderr, "%s: text \"%s\", want \"%s\"\n", name, bytes_text(&text), want);
	bytes_free(&text);
	return same;
}

/* The string with its broken parts replaced, by way of a byte-level tokenizer, which loses nothing. */
static inline const char *repaired(const struct tokenizer *plain, const char *hex, struct bytes *out)
{
	char room[4096];
	struct tokens ids = { 0 };
	struct detokenizer d = { 0 };
	CHECK_OK(tokenizer_encode(plain, room, unhex(hex, room), 0, &ids));
	for (int64_t i = 0; i < ids.n; i++)
		CHECK_OK(detokenizer_put(&d, plain, ids.ids[i], out));
	detokenizer_end(&d, out);
	tokens_free(&ids);
	return bytes_text(out);
}

static inline void check_golden(const struct tokenizer *t, const struct tokenizer *plain, const char *name)
{
	char path[1024];
	json_t *strings, *golden, *hex, *pair;
	size_t i;
	int bad = 0;
	snprintf(path, sizeof path, GOLDEN "/%s.json", name);
	CHECK_OK(json_parse_file(GOLDEN "/strings.json", 1 << 20, ERR_MODEL, &strings));
	CHECK_OK(json_parse_file(path, 1 << 20, ERR_MODEL, &golden));
	json_t *ids = json_object_get(golden, "ids"), *special = json_object_get(golden, "special");
	json_t *text = json_object_get(golden, "text"), *as_plain = json_object_get(golden, "plain");
	CU_ASSERT_TRUE(json_array_size(strings) >= 300);
	CU_ASSERT_EQUAL(json_array_size(strings), json_array_size(ids));
	json_array_foreach(strings, i, hex) {
		const char *h = json_string_value(hex);
		json_t *want = json_array_get(ids, i), *p = json_array_get(as_plain, i), *shown = json_array_get(text, i);
		struct bytes same = { 0 };
		bad += !check_ids(t, name, "ids", h, TOKENIZE_PARSE_SPECIAL, want);
		bad += !check_ids(t, name, "special", h, TOKENIZE_PARSE_SPECIAL | TOKENIZE_ADD_SPECIAL,
				  json_is_null(special) ? want : json_array_get(special, i));
		bad += !check_ids(t, name, "plain", h, 0, json_is_null(p) ? want : p);
		if (json_is_null(shown)) {
			repaired(plain, h, &same);
			bad += !check_text(t, name, want, bytes_text(&same), same.size);
		} else {
			bad += !check_text(t, name, want, json_string_value(shown), json_string_length(shown));
		}
		bytes_free(&same);
	}
	json_array_foreach(json_object_get(golden, "random"), i, pair) {
		json_t *shown = json_array_get(pair, 1);
		bad += !check_text(t, name, json_array_get(pair, 0), json_string_value(shown), json_string_length(shown));
	}
	CU_ASSERT_EQUAL(bad, 0);
	json_decref(strings);
	json_decref(golden);
}

static inline struct tokenizer *open_json_of(const char *dir)
{
	char path[1024];
	struct bytes text = { 0 };
	struct tokenizer *t = NULL;
	CHECK_OK(file_join(dir, "tokenizer.json", path, sizeof path));
	CHECK_OK(file_read_all(path, 1 << 24, &text));
	CHECK_OK(tokenizer_open_json(path, bytes_text(&text), text.size, &t));
	bytes_free(&text);
	return t;
}

/* The bundled model, in the tree or where it comes from. */
static inline const char *bundled(void)
{
	static const char *const places[] = { SOURCE_DIR "/configs/models/jargon-moe",
					      SOURCE_DIR "/../shared/models/jargon-moe" };
	return file_is_directory(places[0]) ? places[0] : places[1];
}

#endif
