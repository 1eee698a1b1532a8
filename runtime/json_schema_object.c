/* Objects: the properties in the order of the schema, then those that only "required" names, then others where they are allowed.
 *
 *   first[i]   nothing is written yet, and property i or one after it may come
 *   next[i]    likewise, after a comma
 *
 * Where other properties are allowed beside some that have schemas, their names are written without escapes, and are none of those: so
 * that no name can hide what it is. The names that are taken are a tree of characters; where a name leaves it, it is free. */
#include "runtime/json_schema_parts.h"

#include "base/mem.h"

#include <string.h>

struct property { const char *name; uint32_t rule; int is_required; };

struct object {
	struct schema *c;
	struct property *of;         /* owned */
	size_t n;
	int has_others;
	uint32_t others;             /* their rule */
};

/* --- reading --- */

static int is_named(const json_t *list, const char *name)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(json_array_get(list, i)), name))
			return 1;
	return 0;
}

/* Without a word on it, others are allowed only where no property is named. */
static enum err read_others(struct object *o, json_t *s)
{
	json_t *others = json_object_get(s, "additionalProperties");
	o->has_others = others ? !json_is_false(others) : !json_object_size(json_object_get(s, "properties"));
	o->others = o->c->rules.value;
	return others && o->has_others ? schema_rule(o->c, others, "additionalProperties", NULL, -1, &o->others) : ERR_OK;
}

static enum err read_required(const struct object *o, const json_t *required)
{
	if (required && !json_is_array(required))
		return schema_refuse(o->c, "\"required\" must be a list of names");
	if (json_array_size(required) > SCHEMA_MOST_PROPERTIES)
		return schema_refuse(o->c, "\"required\" has more than %d names", SCHEMA_MOST_PROPERTIES);
	for (size_t i = 0; i < json_array_size(required); i++)
		if (!json_is_string(json_array_get(required, i)))
			return schema_refuse(o->c, "\"required\" must be a list of names");
	return ERR_OK;
}

static enum err read_properties(struct object *o, json_t *s)
{
	json_t *properties = json_object_get(s, "properties"), *required = json_object_get(s, "required"), *value;
	const char *name;
	if (properties && !json_is_object(properties))
		return schema_refuse(o->c, "\"properties\" must be an object, found %s", json_type_name(properties));
	if (json_object_size(properties) > SCHEMA_MOST_PROPERTIES)
		return schema_refuse(o->c, "it has more than %d properties", SCHEMA_MOST_PROPERTIES);
	TRY(read_required(o, required));
	TRY(read_others(o, s));
	TRY(MEM_NEW(json_object_size(properties) + json_array_size(required), struct property, &o->of));
	json_object_foreach(properties, name, value) {
		struct property *p = &o->of[o->n++];
		*p = (struct property){ .name = name, .is_required = is_named(required, name) };
		TRY(schema_rule(o->c, value, "properties", name, -1, &p->rule));
	}
	for (size_t i = 0; i < json_array_size(required); i++) {
		name = json_string_value(json_array_get(required, i));
		size_t known = 0;
		while (known < o->n && strcmp(o->of[known].name, name))
			known++;
		if (known < o->n)
			continue;
		if (!o->has_others && json_object_get(s, "additionalProperties"))
			return schema_refuse(o->c, "\"required\" names \"%.60s\", which is not allowed", name);
		o->of[o->n++] = (struct property){ name, o->others, 1 };
	}
	return ERR_OK;
}

/* --- names of others --- */

struct node { uint32_t state, child, sibling; int is_taken; const char *text; size_t bytes; };   /* text: of the character that leads here */

static size_t character_bytes(const char *text)
{
	unsigned char b = (unsigned char)*text;
	return b < 0xc0 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

static enum err find_child(struct draft *d, struct node **nodes, size_t *n, uint32_t at, const char *text, uint32_t *out)
{
	size_t bytes = character_bytes(text);
	for (uint32_t i = (*nodes)[at].child; i; i = (*nodes)[i].sibling)
		if ((*nodes)[i].bytes == bytes && !memcmp((*nodes)[i].text, text, bytes)) {
			*out = i;
			return ERR_OK;
		}
	if (*n % 256 == 0)
		TRY(mem_grow(nodes, *n + 256, sizeof **nodes, "names of properties"));
	*out = (uint32_t)(*n)++;
	(*nodes)[*out] = (struct node){ .state = draft_state(d), .sibling = (*nodes)[at].child, .text = text, .bytes = bytes };
	(*nodes)[at].child = *out;
	return d->error;
}

/* A name with such a character is only written with an escape, so no other can be the same. */
static int needs_escape(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < ' ' || *name == '"' || *name == '\\')
			return 1;
	return 0;
}

static enum err take_names(const struct object *o, struct node **nodes, size_t *n)
{
	struct draft *d = &o->c->draft;
	TRY(mem_grow(nodes, 256, sizeof **nodes, "names of properties"));
	(*nodes)[0] = (struct node){ .state = draft_state(d) };
	*n = 1;
	for (size_t i = 0; i < o->n; i++) {
		uint32_t at = 0;
		if (needs_escape(o->of[i].name))
			continue;
		for (const char *c = o->of[i].name; *c; c += character_bytes(c))
			TRY(find_child(d, nodes, n, at, c, &at));
		(*nodes)[at].is_taken = 1;
	}
	return d->error;
}

/* What leaves the tree at a node: characters that none of its children has. Beside a child of several bytes, none of several. */
static void leave(struct object *o, const struct node *nodes, const struct node *at, uint32_t away, uint32_t to)
{
	struct draft *d = &o->c->draft;
	unsigned char known[128] = { 0 };
	int has_long = 0;
	known['"'] = known['\\'] = 1;
	for (uint32_t i = at->child; i; i = nodes[i].sibling) {
		if (nodes[i].bytes == 1)
			known[(unsigned char)nodes[i].text[0] & 127] = 1;
		has_long |= nodes[i].bytes > 1;
		draft_empty(d, draft_text(d, at->state, nodes[i].text, nodes[i].bytes), nodes[i].state);
	}
	for (int c = ' ', end; c < 128; c = end + 1) {
		for (end = c; end < 127 && !known[c] && !known[end + 1];)
			end++;
		if (!known[c])
			draft_bytes(d, at->state, c, end, away);
	}
	if (!has_long)
		draft_call(d, at->state, o->c->rules.plain_character, away);
	if (!at->is_taken)
		draft_bytes(d, at->state, '"', '"', to);
}

/* The name of another property. */
static enum err other_name(struct object *o, uint32_t from, uint32_t to)
{
	struct draft *d = &o->c->draft;
	struct node *nodes = NULL;
	size_t n = 0;
	if (!o->n) {
		draft_call(d, from, o->c->rules.string, to);
		return d->error;
	}
	enum err e = take_names(o, &nodes, &n);
	if (!e) {
		uint32_t away = draft_state(d);
		draft_empty(d, draft_text(d, from, "\"", 1), nodes[0].state);
		for (size_t i = 0; i < n; i++)
			leave(o, nodes, &nodes[i], away, to);
		const struct node free_name = { .state = away };
		leave(o, nodes, &free_name, away, to);
	}
	mem_free(nodes);
	return e ? e : d->error;
}

/* --- writing --- */

static enum err add_name(struct object *o, uint32_t from, const char *name, uint32_t to)
{
	json_t *text = json_string(name);
	if (!text)
		return ERR(MEMORY, "the name of a property");
	enum err e = schema_literal(o->c, text, from, to);
	json_decref(text);
	return e;
}

/* After a value: the object ends, or a comma leads on. */
static void after_value(struct object *o, uint32_t value, int may_end, uint32_t next, uint32_t to)
{
	struct draft *d = &o->c->draft;
	if (may_end)
		draft_bytes(d, json_space(d, &o->c->rules, value), '}', '}', to);
	draft_empty(d, json_space(d, &o->c->rules, draft_text(d, value, ",", 1)), next);
}

static enum err write_others(struct object *o, uint32_t first, uint32_t next, uint32_t to)
{
	struct draft *d = &o->c->draft;
	uint32_t name = draft_state(d), named = draft_state(d), value = draft_state(d), again = draft_state(d);
	draft_empty(d, first, name);
	draft_empty(d, next, name);
	draft_empty(d, again, name);
	TRY(other_name(o, name, named));
	draft_call(d, json_colon(d, named), o->others, value);
	after_value(o, value, 1, again, to);
	return d->error;
}

static enum err write_object(struct object *o, uint32_t from, uint32_t to)
{
	struct draft *d = &o->c->draft;
	uint32_t first = json_space(d, &o->c->rules, draft_text(d, from, "{", 1)), next = draft_state(d);
	size_t last_required = 0;    /* how many come before it is sure that all that must be there are */
	for (size_t i = 0; i < o->n; i++)
		last_required = o->of[i].is_required ? i + 1 : last_required;
	for (size_t i = 0; i < o->n && !d->error; i++) {
		uint32_t name = draft_state(d), named = draft_state(d), value = draft_state(d);
		uint32_t first_after = draft_state(d), next_after = draft_state(d);
		draft_empty(d, first, name);
		draft_empty(d, next, name);
		if (!o->of[i].is_required) {
			draft_empty(d, first, first_after);
			draft_empty(d, next, next_after);
		}
		TRY(add_name(o, name, o->of[i].name, named));
		draft_call(d, json_colon(d, named), o->of[i].rule, value);
		after_value(o, value, i + 1 >= last_required, next_after, to);
		first = first_after;
		next = next_after;
	}
	draft_bytes(d, first, '}', '}', to);
	return o->has_others ? write_others(o, first, next, to) : d->error;
}

enum err schema_object(struct schema *c, json_t *s, uint32_t from, uint32_t to)
{
	struct object o = { .c = c };
	enum err e = read_properties(&o, s);
	if (!e)
		e = write_object(&o, from, to);
	mem_free(o.of);
	return e;
}
