#include "runtime/json_schema_parts.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- places --- */

static void write_place(const struct schema *c, struct bytes *to)
{
	uint32_t chain[12];
	int n = 0;
	for (uint32_t i = c->at; i && n < 12; i = c->parts[i].parent)
		chain[n++] = i;
	bytes_printf(to, "#%s", n && c->parts[chain[n - 1]].parent ? "/.." : "");
	while (n-- > 0) {
		const struct part *p = &c->parts[chain[n]];
		bytes_printf(to, "/%s", p->keyword);
		if (p->name)
			bytes_printf(to, "/%.60s", p->name);
		else if (p->index >= 0)
			bytes_printf(to, "/%" PRId64, p->index);
	}
}

enum err schema_refuse(const struct schema *c, const char *format, ...)
{
	struct bytes place = { 0 };
	char what[300];
	va_list list;
	va_start(list, format);
	vsnprintf(what, sizeof what, format, list);
	va_end(list);
	write_place(c, &place);
	enum err e = place.error;
	if (!e)
		e = ERR(WORK, "schema, at %.500s: %s", bytes_text(&place), what);
	bytes_free(&place);
	return e;
}

/* --- parts --- */

static enum err new_part(struct schema *c, struct part p, uint32_t *rule)
{
	if (c->n_parts >= SCHEMA_MOST_PARTS)
		return schema_refuse(c, "it has more than %d parts", SCHEMA_MOST_PARTS);
	if (c->n_parts == c->parts_room) {
		size_t room = c->parts_room ? 2 * c->parts_room : 32;
		TRY(mem_grow(&c->parts, room, sizeof *c->parts, "a schema"));
		c->parts_room = room;
	}
	p.start = draft_state(&c->draft);
	p.end = draft_state(&c->draft);
	draft_accept(&c->draft, p.end);
	*rule = p.start;
	c->parts[c->n_parts++] = p;
	return c->draft.error;
}

enum err schema_rule(struct schema *c, json_t *schema, const char *keyword, const char *name, int64_t index, uint32_t *rule)
{
	if (json_is_true(schema) || (json_is_object(schema) && !json_object_size(schema))) {
		*rule = c->rules.value;
		return ERR_OK;
	}
	for (uint32_t i = 0; i < c->n_parts; i++)
		if (c->parts[i].schema == schema && json_is_object(schema)) {   /* false is the same everywhere */
			*rule = c->parts[i].start;
			return ERR_OK;
		}
	return new_part(c, (struct part){ .schema = schema, .parent = c->at, .keyword = keyword, .name = name, .index = index }, rule);
}

/* --- what may stand in a schema --- */

enum use { FOR_ALL, SAYS_WHAT, OF_OBJECT = 4, OF_ARRAY = 8, OF_STRING = 16, OF_NUMBER = 32 };

/* FOR_ALL: says nothing of what is valid. SAYS_WHAT: one of these says it all, beside the former. */
static const struct { const char *name; enum use use; } keywords[] = {
	{ "$schema", FOR_ALL }, { "$id", FOR_ALL }, { "$comment", FOR_ALL }, { "$defs", FOR_ALL }, { "definitions", FOR_ALL },
	{ "title", FOR_ALL }, { "description", FOR_ALL }, { "default", FOR_ALL }, { "example", FOR_ALL }, { "examples", FOR_ALL },
	{ "deprecated", FOR_ALL }, { "readOnly", FOR_ALL }, { "writeOnly", FOR_ALL }, { "format", FOR_ALL },
	{ "contentEncoding", FOR_ALL }, { "contentMediaType", FOR_ALL }, { "discriminator", FOR_ALL },
	{ "$ref", SAYS_WHAT }, { "anyOf", SAYS_WHAT }, { "oneOf", SAYS_WHAT }, { "allOf", SAYS_WHAT }, { "enum", SAYS_WHAT },
	{ "const", SAYS_WHAT }, { "properties", OF_OBJECT }, { "required", OF_OBJECT }, { "additionalProperties", OF_OBJECT },
	{ "items", OF_ARRAY }, { "prefixItems", OF_ARRAY }, { "minItems", OF_ARRAY }, { "maxItems", OF_ARRAY },
	{ "uniqueItems", OF_ARRAY }, { "minLength", OF_STRING }, { "maxLength", OF_STRING },
	{ "minimum", OF_NUMBER }, { "maximum", OF_NUMBER }, { "exclusiveMinimum", OF_NUMBER }, { "exclusiveMaximum", OF_NUMBER } };

/* Which uses the schema's keywords have, and the one of them that says what it is (NULL: none). */
static enum err look(const struct schema *c, json_t *s, unsigned *uses, const char **what)
{
	const char *name;
	json_t *value;
	*uses = 0;
	*what = NULL;
	json_object_foreach(s, name, value) {
		size_t i = 0, n = sizeof keywords / sizeof *keywords;
		if (!strcmp(name, "type") || !strncmp(name, "x-", 2))
			continue;
		while (i < n && strcmp(keywords[i].name, name))
			i++;
		if (i == n)
			return schema_refuse(c, "\"%.60s\" is not supported", name);
		if (keywords[i].use == SAYS_WHAT && *what)
			return schema_refuse(c, "\"%s\" and \"%s\" beside each other are not supported", *what, name);
		if (keywords[i].use == SAYS_WHAT)
			*what = keywords[i].name;
		else
			*uses |= keywords[i].use;
	}
	return ERR_OK;
}

/* --- types --- */

static const struct { const char *name; unsigned bit; json_type of[2]; } types[] = {
	{ "object", 1, { JSON_OBJECT, JSON_OBJECT } }, { "array", 2, { JSON_ARRAY, JSON_ARRAY } },
	{ "string", 4, { JSON_STRING, JSON_STRING } }, { "integer", 8, { JSON_INTEGER, JSON_INTEGER } },
	{ "number", 16, { JSON_INTEGER, JSON_REAL } }, { "boolean", 32, { JSON_TRUE, JSON_FALSE } }, { "null", 64, { JSON_NULL, JSON_NULL } } };
enum { N_TYPES = 7, T_OBJECT = 1, T_ARRAY = 2, T_STRING = 4, T_INTEGER = 8, T_NUMBER = 16, T_BOOLEAN = 32, T_NULL = 64, T_ALL = 119 };

static enum err add_type(const struct schema *c, const json_t *name, unsigned *bits)
{
	for (int i = 0; i < N_TYPES; i++)
		if (json_is_string(name) && !strcmp(json_string_value(name), types[i].name)) {
			*bits |= types[i].bit;
			return ERR_OK;
		}
	return schema_refuse(c, "\"type\" must be object, array, string, integer, number, boolean or null, or a list of them");
}

/* Without a type, keywords of one type say it. */
static enum err read_types(const struct schema *c, json_t *s, unsigned uses, unsigned *bits)
{
	json_t *type = json_object_get(s, "type");
	*bits = 0;
	if (json_is_array(type) && json_array_size(type)) {
		for (size_t i = 0; i < json_array_size(type); i++)
			TRY(add_type(c, json_array_get(type, i), bits));
		return ERR_OK;
	}
	if (type)
		return add_type(c, type, bits);
	switch (uses) {
	case 0: *bits = T_ALL; return ERR_OK;
	case OF_OBJECT: *bits = T_OBJECT; return ERR_OK;
	case OF_ARRAY: *bits = T_ARRAY; return ERR_OK;
	case OF_STRING: *bits = T_STRING; return ERR_OK;
	case OF_NUMBER: *bits = T_NUMBER; return ERR_OK;
	default: return schema_refuse(c, "it has keywords of several types, but no \"type\"");
	}
}

static int is_of(const json_t *value, unsigned bits)
{
	for (int i = 0; i < N_TYPES; i++)
		if (bits & types[i].bit && (json_typeof(value) == types[i].of[0] || json_typeof(value) == types[i].of[1]))
			return 1;
	return 0;
}

static void add_word(struct schema *c, uint32_t from, const char *word, uint32_t to)
{
	draft_empty(&c->draft, draft_text(&c->draft, from, word, strlen(word)), to);
}

static enum err make_types(struct schema *c, json_t *s, unsigned bits, uint32_t from, uint32_t to)
{
	if (bits & T_OBJECT)
		TRY(schema_object(c, s, from, to));
	if (bits & T_ARRAY)
		TRY(schema_array(c, s, from, to));
	if (bits & T_STRING)
		TRY(schema_string(c, s, from, to));
	if (bits & (T_INTEGER | T_NUMBER))
		TRY(schema_number(c, s, !(bits & T_NUMBER), from, to));
	if (bits & T_BOOLEAN) {
		add_word(c, from, "true", to);
		add_word(c, from, "false", to);
	}
	if (bits & T_NULL)
		add_word(c, from, "null", to);
	return c->draft.error;
}

/* --- values, alternatives, references --- */

/* Real numbers with the fewest digits that give them back. */
static char *text_of(const json_t *value)
{
	for (size_t digits = 15; digits <= 17; digits++) {
		char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(digits));
		json_t *again = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
		int same = again && json_equal(value, again);
		json_decref(again);
		if (same || digits == 17)
			return text;
		free(text);
	}
	return NULL;
}

enum err schema_literal(struct schema *c, const json_t *value, uint32_t from, uint32_t to)
{
	char *text = text_of(value);
	if (!text)
		return schema_refuse(c, "a value cannot be written");
	draft_empty(&c->draft, draft_text(&c->draft, from, text, strlen(text)), to);
	free(text);
	return c->draft.error;
}

static enum err make_enum(struct schema *c, json_t *s, unsigned bits, const struct part *p)
{
	json_t *all = json_object_get(s, "enum"), *one = json_object_get(s, "const");
	size_t n = all ? json_array_size(all) : 1, used = 0;
	if (all && (!json_is_array(all) || !n))
		return schema_refuse(c, "\"enum\" must be a list of values");
	for (size_t i = 0; i < n; i++) {
		json_t *value = all ? json_array_get(all, i) : one;
		if (!is_of(value, bits))
			continue;
		used++;
		TRY(schema_literal(c, value, p->start, p->end));
	}
	return used ? ERR_OK : schema_refuse(c, "no value of \"%s\" has the type", all ? "enum" : "const");
}

static enum err make_alternatives(struct schema *c, json_t *s, const char *keyword, const struct part *p)
{
	json_t *list = json_object_get(s, keyword);
	if (!json_is_array(list) || !json_array_size(list))
		return schema_refuse(c, "\"%s\" must be a list of schemas", keyword);
	if (!strcmp(keyword, "allOf") && json_array_size(list) > 1)
		return schema_refuse(c, "\"allOf\" of more than one schema is not supported");
	for (size_t i = 0; i < json_array_size(list); i++) {
		uint32_t rule;
		TRY(schema_rule(c, json_array_get(list, i), keyword, NULL, (int64_t)i, &rule));
		draft_call(&c->draft, p->start, rule, p->end);
	}
	return c->draft.error;
}

/* A step of a JSON pointer (RFC 6901) in `name`: up to the next '/', with ~1 and ~0 as they are meant. */
static const char *pointer_step(const char *at, struct bytes *name)
{
	bytes_clear(name);
	bytes_put(name, "", 0);
	for (; *at && *at != '/'; at++) {
		char c = *at;
		if (c == '~' && (at[1] == '0' || at[1] == '1'))
			c = *++at == '0' ? '~' : '/';
		bytes_put(name, &c, 1);
	}
	return at;
}

static enum err resolve(struct schema *c, const json_t *ref, json_t **out)
{
	const char *at = json_string_value(ref);
	struct bytes name = { 0 };
	json_t *to = c->root;
	if (!at || at[0] != '#' || (at[1] && at[1] != '/'))
		return schema_refuse(c, "\"$ref\" must be \"#\" or begin with \"#/\", as \"#/$defs/x\"");
	for (at++; *at == '/' && to;) {
		at = pointer_step(at + 1, &name);
		const char *text = bytes_text(&name);
		if (json_is_array(to))
			to = name.size && name.size < 6 && strspn(text, "0123456789") == name.size ? json_array_get(to, (size_t)atol(text)) : NULL;
		else
			to = json_object_get(to, text);
	}
	enum err e = name.error;
	bytes_free(&name);
	TRY(e);
	if (!to)
		return schema_refuse(c, "\"$ref\" to \"%.100s\", which is not there", json_string_value(ref));
	*out = to;
	return ERR_OK;
}

static enum err make_reference(struct schema *c, json_t *s, const struct part *p)
{
	json_t *to = NULL;
	uint32_t rule;
	TRY(resolve(c, json_object_get(s, "$ref"), &to));
	TRY(schema_rule(c, to, "$ref", NULL, -1, &rule));
	draft_call(&c->draft, p->start, rule, p->end);
	return c->draft.error;
}

static enum err make_part(struct schema *c)
{
	const struct part p = c->parts[c->at];   /* the list may move */
	json_t *s = p.schema;
	unsigned uses, bits;
	const char *what;
	if (json_is_false(s))
		return schema_refuse(c, "false allows nothing");
	if (!json_is_object(s))
		return schema_refuse(c, "a schema must be an object, found %s", json_type_name(s));
	TRY(look(c, s, &uses, &what));
	if (what && uses)
		return schema_refuse(c, "\"%s\" beside other keywords that restrict is not supported", what);
	int is_values = what && (!strcmp(what, "enum") || !strcmp(what, "const"));
	if (what && !is_values && json_object_get(s, "type"))
		return schema_refuse(c, "\"type\" beside \"%s\" is not supported", what);
	TRY(read_types(c, s, uses, &bits));
	if (is_values)
		return make_enum(c, s, bits, &p);
	if (what && !strcmp(what, "$ref"))
		return make_reference(c, s, &p);
	return what ? make_alternatives(c, s, what, &p) : make_types(c, s, bits, p.start, p.end);
}

static enum err compile(struct schema *c, struct grammar **out)
{
	uint32_t start;
	json_rules_draft(&c->draft, &c->rules);
	if (!c->root)
		return grammar_compile(&c->draft, c->rules.object, out);
	TRY(new_part(c, (struct part){ .schema = c->root, .keyword = "", .index = -1 }, &start));
	for (; c->at < c->n_parts; c->at++)
		TRY(make_part(c));
	c->at = 0;
	enum err e = grammar_compile(&c->draft, start, out);
	return e == ERR_WORK ? err_context(e, "schema") : e;
}

enum err json_schema_compile(json_t *schema, struct grammar **out)
{
	struct schema c = { .root = schema };
	enum err e = compile(&c, out);
	draft_free(&c.draft);
	mem_free(c.parts);
	return e;
}
