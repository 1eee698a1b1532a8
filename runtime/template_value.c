/* Rooms, growing text, lists and dictionaries, and values from JSON. */
#include "runtime/template_parts.h"

#include <math.h>
#include <string.h>

/* -- room ----------------------------------------------------------------------------------------------------------- */

enum { CHUNK = 64 << 10 };

enum err room_open(const char *name, uint64_t limit, struct room *r)
{
	*r = (struct room){ .name = name, .limit = limit };
	return arena_create("chat template", CHUNK, &r->arena);
}

void room_close(struct room *r)
{
	arena_destroy(r->arena);
	*r = (struct room){ 0 };
}

static enum err too_large(const struct room *r)
{
	return ERR(WORK, "%s: wants more than the %llu MiB that a chat template may use", r->name, (unsigned long long)r->limit >> 20);
}

enum err room_alloc(struct room *r, size_t n, size_t size, void *out)
{
	size_t bytes;
	if (__builtin_mul_overflow(n, size, &bytes) || bytes > r->limit)
		return too_large(r);
	bytes = (bytes + 7) & ~(size_t)7;
	bool own_block = bytes > CHUNK / 4;
	if (own_block || bytes > r->left) {
		size_t take = own_block ? bytes : CHUNK;
		r->used += take;
		if (r->used > r->limit)
			return too_large(r);
		char *block;
		TRY(arena_alloc(r->arena, take, 1, &block));
		if (own_block) {
			memcpy(out, &block, sizeof block);
			return ERR_OK;
		}
		r->at = block;
		r->left = take;
	}
	memcpy(out, &r->at, sizeof r->at);
	r->at += bytes;
	r->left -= bytes;
	return ERR_OK;
}

enum err room_grow(struct room *r, void *block, size_t old_bytes, size_t new_bytes)
{
	char *old, *larger;
	memcpy(&old, block, sizeof old);
	TRY(room_alloc(r, new_bytes, 1, &larger));
	if (old_bytes)
		memcpy(larger, old, old_bytes);
	memcpy(block, &larger, sizeof larger);
	return ERR_OK;
}

/* -- growing text --------------------------------------------------------------------------------------------------- */

static enum err make_room(struct build *b, size_t bytes)
{
	size_t need;
	if (__builtin_add_overflow(b->n, bytes, &need))
		return too_large(b->room);
	if (need <= b->capacity)
		return ERR_OK;
	size_t capacity = b->capacity ? 2 * b->capacity : 64;
	if (capacity < need)
		capacity = need;
	TRY(room_grow(b->room, &b->data, b->n, capacity));
	TRY(room_grow(b->room, &b->mask, b->n, capacity));
	b->capacity = capacity;
	return ERR_OK;
}

enum err build_put(struct build *b, const char *data, size_t bytes, bool input)
{
	if (!bytes)
		return ERR_OK;
	TRY(make_room(b, bytes));
	memcpy(b->data + b->n, data, bytes);
	memset(b->mask + b->n, input, bytes);
	b->n += bytes;
	b->n_input += input ? bytes : 0;
	return ERR_OK;
}

enum err build_words(struct build *b, const char *text) { return build_put(b, text, strlen(text), false); }

enum err build_part(struct build *b, const struct text *t, size_t begin, size_t end)
{
	if (!t->mask || begin == end)
		return build_put(b, t->data + begin, end - begin, t->input);
	TRY(make_room(b, end - begin));
	memcpy(b->data + b->n, t->data + begin, end - begin);
	memcpy(b->mask + b->n, t->mask + begin, end - begin);
	for (size_t i = begin; i < end; i++)
		b->n_input += t->mask[i];
	b->n += end - begin;
	return ERR_OK;
}

enum err build_text(struct build *b, const struct text *t) { return build_part(b, t, 0, t->bytes); }

/* What was built becomes a text; the build must not be used again. */
enum err build_done(struct build *b, struct value *out)
{
	struct text *t;
	TRY(ROOM_NEW(b->room, 1, struct text, &t));
	t->data = b->n ? b->data : "";
	t->bytes = b->n;
	t->input = b->n_input > 0;
	t->mask = b->n_input && b->n_input < b->n ? b->mask : NULL;
	*out = value_text(t);
	return ERR_OK;
}

enum err text_new(struct room *room, const char *data, size_t bytes, bool input, struct value *out)
{
	struct text *t;
	TRY(ROOM_NEW(room, 1, struct text, &t));
	*t = (struct text){ .data = data, .bytes = bytes, .input = input };
	*out = value_text(t);
	return ERR_OK;
}

enum err text_part(struct run *r, const struct text *t, size_t begin, size_t end, struct value *out)
{
	struct text *part;
	TRY(ROOM_NEW(&r->room, 1, struct text, &part));
	*part = *t;
	part->data += begin;
	part->mask = t->mask ? t->mask + begin : NULL;
	part->bytes = end - begin;
	*out = value_text(part);
	return ERR_OK;
}

/* -- lists and dictionaries ----------------------------------------------------------------------------------------- */

enum err list_new(struct run *r, enum list_form form, size_t capacity, struct list **out)
{
	struct list *l;
	TRY(ROOM_NEW(&r->room, 1, struct list, &l));
	l->form = form;
	if (capacity)
		TRY(ROOM_NEW(&r->room, capacity, struct value, &l->items));
	l->capacity = capacity;
	*out = l;
	return ERR_OK;
}

enum err list_put(struct run *r, struct list *l, struct value v)
{
	if (l->n == l->capacity) {
		size_t more = l->capacity ? 2 * l->capacity : 8;
		TRY(room_grow(&r->room, &l->items, l->n * sizeof v, more * sizeof v));
		l->capacity = more;
	}
	l->items[l->n++] = v;
	return ERR_OK;
}

enum err dict_new(struct run *r, struct dict **out) { return ROOM_NEW(&r->room, 1, struct dict, out); }

static enum err find_pair(struct run *r, const struct dict *d, struct value key, struct pair **out)
{
	*out = NULL;
	if (key.kind == V_LIST ? key.list->form != LIST_TUPLE : key.kind == V_DICT)
		return run_fault(r, ERR_WORK, "%s cannot be a key of a dictionary", value_type(key));
	TRY(run_steps(r, d->n / 4));
	for (size_t i = 0; i < d->n; i++) {
		bool same;
		const struct value *k = &d->pairs[i].key;
		same = false;
		if (k->kind != V_TEXT || key.kind != V_TEXT || k->text->bytes == key.text->bytes)
			TRY(value_equal(r, *k, key, 0, &same));
		if (same) {
			*out = &d->pairs[i];
			break;
		}
	}
	return ERR_OK;
}

enum err dict_find(struct run *r, const struct dict *d, struct value key, struct value *out, bool *found)
{
	struct pair *p;
	TRY(find_pair(r, d, key, &p));
	*found = p != NULL;
	if (p)
		*out = p->value;
	return ERR_OK;
}

static enum err dict_append(struct run *r, struct dict *d, struct value key, struct value v)
{
	if (d->n == d->capacity) {
		size_t more = d->capacity ? 2 * d->capacity : 4;
		TRY(room_grow(&r->room, &d->pairs, d->n * sizeof(struct pair), more * sizeof(struct pair)));
		d->capacity = more;
	}
	d->pairs[d->n++] = (struct pair){ key, v };
	return ERR_OK;
}

enum err dict_set(struct run *r, struct dict *d, struct value key, struct value v)
{
	struct pair *p;
	TRY(find_pair(r, d, key, &p));
	if (!p)
		return dict_append(r, d, key, v);
	p->value = v;
	return ERR_OK;
}

static enum err list_of_text(struct run *r, const struct text *t, struct list **out)
{
	TRY(list_new(r, LIST_PLAIN, 0, out));
	for (size_t at = 0, n; at < t->bytes; at += n) {
		struct value c;
		n = 1;
		while (at + n < t->bytes && ((unsigned char)t->data[at + n] & 0xc0) == 0x80)
			n++;
		TRY(text_part(r, t, at, at + n, &c));
		TRY(list_put(r, *out, c));
	}
	return run_steps(r, t->bytes);
}

enum err value_items(struct run *r, struct value v, const struct list **out)
{
	struct list *l;
	switch (v.kind) {
	case V_LIST:
		*out = v.list;
		return ERR_OK;
	case V_UNDEFINED: TRY(list_new(r, LIST_PLAIN, 0, &l)); break;
	case V_TEXT: TRY(list_of_text(r, v.text, &l)); break;
	case V_DICT:
		TRY(list_new(r, LIST_PLAIN, v.dict->n, &l));
		for (size_t i = 0; i < v.dict->n; i++)
			TRY(list_put(r, l, v.dict->pairs[i].key));
		break;
	default: return run_fault(r, ERR_WORK, "%s cannot be iterated", value_type(v));
	}
	*out = l;
	return ERR_OK;
}

enum err value_length(struct run *r, struct value v, int64_t *out)
{
	switch (v.kind) {
	case V_TEXT: *out = text_chars(v.text); return run_steps(r, v.text->bytes / 8);
	case V_DICT: *out = (int64_t)v.dict->n; return ERR_OK;
	case V_UNDEFINED: *out = 0; return ERR_OK;
	case V_LIST:
		if (v.list->form != LIST_GENERATOR) {
			*out = (int64_t)v.list->n;
			return ERR_OK;
		}
		break;
	default: break;
	}
	return run_fault(r, ERR_WORK, "%s has no length", value_type(v));
}

/* -- kinds ---------------------------------------------------------------------------------------------------------- */

bool value_true(struct value v)
{
	switch (v.kind) {
	case V_UNDEFINED:
	case V_NONE: return false;
	case V_BOOL: return v.yes;
	case V_INT: return v.i != 0;
	case V_REAL: return v.d < 0 || v.d > 0 || isnan(v.d);
	case V_TEXT: return v.text->bytes > 0;
	case V_LIST: return v.list->n > 0 || v.list->form == LIST_GENERATOR;
	case V_DICT: return v.dict->n > 0;
	default: return true;
	}
}

const char *value_type(struct value v)
{
	static const char *const names[] = { [V_UNDEFINED] = "an undefined value", [V_NONE] = "None", [V_BOOL] = "a boolean",
		[V_INT] = "an integer", [V_REAL] = "a float", [V_TEXT] = "a string", [V_LIST] = "a list", [V_DICT] = "a dictionary",
		[V_NAMESPACE] = "a namespace", [V_MACRO] = "a macro", [V_LOOP] = "a loop", [V_FUNCTION] = "a function",
		[V_METHOD] = "a method" };
	static const char *const lists[] = { "a list", "a tuple", "a generator", "a view", "a range" };
	return v.kind == V_LIST ? lists[v.list->form] : names[v.kind];
}

/* -- from JSON ------------------------------------------------------------------------------------------------------ */

static enum err from_array(struct run *r, const json_t *j, bool input, int depth, struct value *out)
{
	struct list *l;
	size_t n = json_array_size(j);
	TRY(list_new(r, LIST_PLAIN, n, &l));
	for (size_t i = 0; i < n; i++) {
		struct value v;
		TRY(value_from_json(r, json_array_get(j, i), input, depth + 1, &v));
		TRY(list_put(r, l, v));
	}
	*out = value_list(l);
	return ERR_OK;
}

/* jansson keeps the order in which keys came. */
static enum err from_object(struct run *r, const json_t *j, bool input, int depth, struct value *out)
{
	struct dict *d;
	TRY(dict_new(r, &d));
	void *at = json_object_iter((json_t *)(uintptr_t)j);
	for (; at; at = json_object_iter_next((json_t *)(uintptr_t)j, at)) {
		const char *key = json_object_iter_key(at);
		struct value k, v;
		TRY(text_new(&r->room, key, strlen(key), input, &k));
		TRY(value_from_json(r, json_object_iter_value(at), input, depth + 1, &v));
		TRY(dict_append(r, d, k, v));
	}
	*out = value_dict(d);
	return ERR_OK;
}

/* Text is borrowed from j. */
enum err value_from_json(struct run *r, const json_t *j, bool input, int depth, struct value *out)
{
	if (depth > MAX_VALUE_DEPTH)
		return ERR(WORK, "messages with more than %d lists and objects inside each other", MAX_VALUE_DEPTH);
	switch (j ? json_typeof(j) : JSON_NULL) {
	case JSON_OBJECT: TRY(from_object(r, j, input, depth, out)); break;
	case JSON_ARRAY: TRY(from_array(r, j, input, depth, out)); break;
	case JSON_STRING: return text_new(&r->room, json_string_value(j), json_string_length(j), input, out);
	case JSON_INTEGER: *out = value_int(json_integer_value(j)); break;
	case JSON_REAL: *out = value_real(json_real_value(j)); break;
	case JSON_TRUE: *out = value_bool(true); break;
	case JSON_FALSE: *out = value_bool(false); break;
	default: *out = value_none(); return ERR_OK;
	}
	out->input = input;
	return ERR_OK;
}
