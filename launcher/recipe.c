/* The recipe as a whole: made from the rows' defaults, copied, changed and looked at. Every change is made on a copy that
 * takes the old one's place when all went well, so an error leaves the recipe as it was. */
#include "launcher/recipe_rows.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 20 };

static void release(struct recipe *r)
{
	for (int i = 0; i < n_rows; i++)
		value_clear(r, &rows[i]);
}

static enum err store_initial(struct recipe *r, const struct row *row)
{
	struct place place;
	snprintf(place.text, sizeof place.text, "default of %s", row->key);
	if (row_is_list(row))
		return ERR_OK;   /* every list starts empty */
	return value_store(r, row, -1, row->initial, strlen(row->initial), STYLE_TEXT, &place);
}

enum err recipe_create(struct recipe **out)
{
	struct recipe *r;
	TRY(MEM_NEW(1, struct recipe, &r));
	for (int i = 0; i < n_rows; i++) {
		enum err e = store_initial(r, &rows[i]);
		if (e) {
			recipe_destroy(r);
			return e;
		}
	}
	*out = r;
	return ERR_OK;
}

void recipe_destroy(struct recipe *r)
{
	if (!r)
		return;
	release(r);
	mem_free(r);
}

static enum err copy_strings(struct recipe *to, const struct recipe *from, const struct row *row)
{
	if (row->type == ROW_STRINGS) {
		const struct recipe_strings *old = row_value(from, row);
		struct recipe_strings *list = row_field(to, row);
		for (; list->n < old->n; list->n++)
			TRY(mem_copy_string(old->items[list->n], &list->items[list->n]));
	} else if (row->type == ROW_STRING || row->type == ROW_PATH) {
		return mem_copy_string(*(char *const *)row_value(from, row), row_field(to, row));
	}
	return ERR_OK;
}

/* Owned pointers of a bitwise copy belong to the original: forget them before copying each. */
static enum err copy(const struct recipe *from, struct recipe **out)
{
	struct recipe *r;
	TRY(MEM_NEW(1, struct recipe, &r));
	*r = *from;
	for (int i = 0; i < n_rows; i++) {
		if (rows[i].type == ROW_STRINGS)
			memset(row_field(r, &rows[i]), 0, sizeof(struct recipe_strings));
		else if (rows[i].type == ROW_STRING || rows[i].type == ROW_PATH)
			memset(row_field(r, &rows[i]), 0, sizeof(char *));
	}
	for (int i = 0; i < n_rows; i++) {
		enum err e = copy_strings(r, from, &rows[i]);
		if (e) {
			recipe_destroy(r);
			return e;
		}
	}
	*out = r;
	return ERR_OK;
}

/* The changed copy takes the place of r, or goes away. */
static enum err settle(struct recipe *r, struct recipe *changed, enum err e)
{
	if (!e) {
		struct recipe old = *r;
		*r = *changed;
		*changed = old;
	}
	recipe_destroy(changed);
	return e;
}

static enum err apply(struct recipe *r, const char *name, const char *dir, const char *text, size_t bytes)
{
	struct recipe *changed;
	if (bytes > MAX_FILE_BYTES)
		return ERR(RECIPE, "%s: found %zu bytes, a recipe has at most %d", name, bytes, MAX_FILE_BYTES);
	TRY(copy(r, &changed));
	return settle(r, changed, yaml_apply(changed, name, dir, text, bytes));
}

enum err recipe_parse(struct recipe *r, const char *name, const char *text, size_t bytes)
{
	return apply(r, name, NULL, text, bytes);
}

enum err recipe_load(struct recipe *r, const char *path)
{
	struct bytes text = { 0 };
	char dir[1024];
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	enum err e = file_read_all(path, MAX_FILE_BYTES, &text);
	if (!e && n >= sizeof dir)
		e = ERR(IO, "%.60s...: the path is too long", path);
	if (e) {
		bytes_free(&text);
		if (e == ERR_IO)
			e = ERR(RECIPE, "recipe %s", err_sentence());
		return e;
	}
	memcpy(dir, path, n);
	dir[n] = '\0';
	if (slash == path)
		memcpy(dir, "/", 2);
	e = apply(r, path, slash ? dir : NULL, bytes_text(&text), text.size);
	bytes_free(&text);
	return e;
}

/* A list on the command line: [1, 2] as in YAML, or 1,2. */
static enum err set_list(struct recipe *r, const struct row *row, const char *value, const struct place *place)
{
	value_clear(r, row);
	if (value[0] == '[')
		return yaml_apply_list(r, row, value, strlen(value), place);
	for (int item = 0; *value; item++) {
		char text[1024];
		size_t n = strcspn(value, ",");
		if (n >= sizeof text)
			return ERR(RECIPE, "%s: found an item of %zu bytes, which is too long", place->text, n);
		memcpy(text, value, n);
		text[n] = '\0';
		TRY(value_store(r, row, item, text, n, STYLE_TEXT, place));
		value += n;
		if (*value == ',' && !*++value)
			return ERR(RECIPE, "%s: found a comma at the end of the list", place->text);
	}
	return ERR_OK;
}

static enum err set(struct recipe *r, const char *source, const char *key, const char *value)
{
	struct place place;
	struct recipe *changed;
	const struct row *row = row_find(key);
	if (!row)
		return unknown_key(source, key);
	snprintf(place.text, sizeof place.text, "%s", source);
	if (!text_is_utf8(value, strlen(value)))
		return ERR(RECIPE, "%s: found bytes that are not UTF-8, allowed: text in UTF-8", source);
	TRY(copy(r, &changed));
	enum err e = row_is_list(row) ? set_list(changed, row, value, &place)
				      : value_store(changed, row, -1, value, strlen(value), STYLE_TEXT, &place);
	return settle(r, changed, e);
}

enum err recipe_set(struct recipe *r, const char *assignment)
{
	char key[64], source[80];
	const char *equals = strchr(assignment, '=');
	if (!equals || equals == assignment)
		return ERR(RECIPE, "--set %s: found no key and \"=\", write it as --set parallel.tp=2",
			   SHOWN(assignment));
	snprintf(key, sizeof key, "%.*s", (int)(equals - assignment), assignment);
	snprintf(source, sizeof source, "--set %s", key);
	return set(r, row_find(key) ? source : "--set", key, equals + 1);
}

enum err recipe_set_value(struct recipe *r, const char *source, const char *key, const char *value)
{
	return set(r, source, key, value);
}
