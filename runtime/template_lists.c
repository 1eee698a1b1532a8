/* Filters on lists and dictionaries. */
#include "runtime/template_parts.h"

#include <string.h>

#define FILTER(name) static enum err name(struct run *r, struct value v, const struct arguments *a, struct value *out)

static enum err lower_case(struct run *r, struct value *v)
{
	return v->kind == V_TEXT ? text_to_case(r, v->text, CASE_LOWER, v) : ERR_OK;
}

/* What an item is sorted or compared by. */
static enum err key_of(struct run *r, struct value item, const struct value *path, bool cased, struct value *out)
{
	*out = item;
	if (path)
		TRY(get_path(r, item, *path, NULL, out));
	return cased ? ERR_OK : lower_case(r, out);
}

/* A generator in Jinja, whose items are made when they are asked for; here they are there at once. */
static enum err give_list(struct list *l, enum list_form form, bool input, struct value *out)
{
	l->form = form;
	*out = value_list(l);
	out->input = input;
	return ERR_OK;
}

FILTER(length)
{
	int64_t n;
	(void)a;
	TRY(value_length(r, v, &n));
	*out = value_int(n);
	return ERR_OK;
}

FILTER(first)
{
	const struct list *l;
	(void)a;
	TRY(value_items(r, v, &l));
	*out = l->n ? l->items[0] : value_undefined("there is no first item");
	return ERR_OK;
}

FILTER(last)
{
	const struct list *l;
	(void)a;
	TRY(value_items(r, v, &l));
	*out = l->n ? l->items[l->n - 1] : value_undefined("there is no last item");
	return ERR_OK;
}

static enum err copy_list(struct run *r, struct value v, struct list **out)
{
	const struct list *l;
	TRY(value_items(r, v, &l));
	TRY(run_steps(r, l->n / 8));
	TRY(list_new(r, LIST_PLAIN, l->n, out));
	for (size_t i = 0; i < l->n; i++)
		TRY(list_put(r, *out, l->items[i]));
	return ERR_OK;
}

FILTER(to_list)
{
	struct list *l;
	(void)a;
	TRY(copy_list(r, v, &l));
	return give_list(l, LIST_PLAIN, v.input, out);
}

FILTER(reverse)
{
	struct list *l;
	struct build b = { .room = &r->room };
	(void)a;
	TRY(copy_list(r, v, &l));
	for (size_t i = 0, k = l->n; i + 1 < k; i++) {
		struct value swap = l->items[i];
		l->items[i] = l->items[--k];
		l->items[k] = swap;
	}
	if (v.kind != V_TEXT)
		return give_list(l, LIST_GENERATOR, v.input, out);
	for (size_t i = 0; i < l->n; i++)
		TRY(build_text(&b, l->items[i].text));
	return build_done(&b, out);
}

FILTER(join)
{
	struct build b = { .room = &r->room };
	const struct list *l;
	const struct value *path = argument(a, 1, "attribute"), *by = argument(a, 0, "d");
	const struct text *between = NULL;
	if (by)
		TRY(value_to_text(r, *by, &between));
	TRY(value_items(r, v, &l));
	for (size_t i = 0; i < l->n; i++) {
		struct value item = l->items[i];
		if (path)
			TRY(get_path(r, item, *path, NULL, &item));
		if (i && between)
			TRY(build_text(&b, between));
		TRY(build_value(r, &b, item));
		TRY(run_steps(r, 1 + (item.kind == V_TEXT ? item.text->bytes / 64 : 0)));
	}
	return build_done(&b, out);
}

static enum err pair_of(struct run *r, const struct pair *p, struct value *out)
{
	struct list *l;
	TRY(list_new(r, LIST_TUPLE, 2, &l));
	TRY(list_put(r, l, p->key));
	TRY(list_put(r, l, p->value));
	*out = value_list(l);
	return ERR_OK;
}

static enum err pairs_of(struct run *r, const struct dict *d, struct list **out)
{
	TRY(list_new(r, LIST_PLAIN, d->n, out));
	for (size_t i = 0; i < d->n; i++) {
		struct value pair;
		TRY(pair_of(r, &d->pairs[i], &pair));
		TRY(list_put(r, *out, pair));
	}
	return run_steps(r, d->n);
}

FILTER(items)
{
	struct list *l;
	(void)a;
	if (v.kind == V_UNDEFINED)
		TRY(list_new(r, LIST_PLAIN, 0, &l));
	else if (v.kind == V_DICT)
		TRY(pairs_of(r, v.dict, &l));
	else
		return run_fault(r, ERR_WORK, "items works on dictionaries, not on %s", value_type(v));
	return give_list(l, LIST_GENERATOR, v.input, out);
}

/* -- order ---------------------------------------------------------------------------------------------------------- */

/* Merges the sorted halves begin..middle and middle..end of (key, item) pairs. */
static enum err merge(struct run *r, struct pair *p, struct pair *room, size_t begin, size_t middle, size_t end, bool falling)
{
	size_t a = begin, b = middle;
	for (size_t i = begin; i < end; i++) {
		bool take_b = a == middle, same = false;
		if (a < middle && b < end)   /* equal ones may have no order, as None has none */
			TRY(value_equal(r, p[a].key, p[b].key, 0, &same));
		if (a < middle && b < end && !same)
			TRY(value_less(r, falling ? p[a].key : p[b].key, falling ? p[b].key : p[a].key, &take_b));
		room[i] = take_b ? p[b++] : p[a++];
	}
	memcpy(p + begin, room + begin, (end - begin) * sizeof *p);
	return ERR_OK;
}

static enum err sort_pairs(struct run *r, struct pair *p, size_t n, bool falling)
{
	struct pair *room;
	TRY(ROOM_NEW(&r->room, n ? n : 1, struct pair, &room));
	for (size_t width = 1; width < n; width *= 2)
		for (size_t begin = 0; begin + width < n; begin += 2 * width)
			TRY(merge(r, p, room, begin, begin + width, begin + 2 * width < n ? begin + 2 * width : n, falling));
	return ERR_OK;
}

static enum err sort_list(struct run *r, const struct list *l, const struct value *path, bool cased, bool falling,
			  struct value *out)
{
	struct pair *p;
	struct list *sorted;
	TRY(ROOM_NEW(&r->room, l->n ? l->n : 1, struct pair, &p));
	for (size_t i = 0; i < l->n; i++) {
		p[i].value = l->items[i];
		TRY(key_of(r, l->items[i], path, cased, &p[i].key));
	}
	TRY(sort_pairs(r, p, l->n, falling));
	TRY(list_new(r, LIST_PLAIN, l->n, &sorted));
	for (size_t i = 0; i < l->n; i++)
		TRY(list_put(r, sorted, p[i].value));
	*out = value_list(sorted);
	return ERR_OK;
}

FILTER(sort)
{
	const struct list *l;
	bool falling, cased;
	TRY(value_items(r, v, &l));
	TRY(argument_bool(r, a, 0, "reverse", false, &falling));
	TRY(argument_bool(r, a, 1, "case_sensitive", false, &cased));
	TRY(sort_list(r, l, argument(a, 2, "attribute"), cased, falling, out));
	out->input = v.input;
	return ERR_OK;
}

FILTER(dictsort)
{
	struct list *pairs;
	const struct text *by;
	bool cased, falling;
	TRY(argument_bool(r, a, 0, "case_sensitive", false, &cased));
	TRY(argument_text(r, a, 1, "by", &by));
	TRY(argument_bool(r, a, 2, "reverse", false, &falling));
	if (v.kind != V_DICT)
		return run_fault(r, ERR_WORK, "dictsort works on dictionaries, not on %s", value_type(v));
	TRY(pairs_of(r, v.dict, &pairs));
	const struct value place = value_int(by && text_is(value_text(by), "value"));
	TRY(sort_list(r, pairs, &place, cased, falling, out));
	out->input = v.input;
	return ERR_OK;
}

FILTER(unique)
{
	struct list *seen, *kept;
	const struct list *l;
	bool cased;
	TRY(argument_bool(r, a, 0, "case_sensitive", false, &cased));
	TRY(value_items(r, v, &l));
	TRY(list_new(r, LIST_PLAIN, 0, &seen));
	TRY(list_new(r, LIST_PLAIN, 0, &kept));
	for (size_t i = 0; i < l->n; i++) {
		struct value key;
		bool known;
		TRY(key_of(r, l->items[i], argument(a, 1, "attribute"), cased, &key));
		TRY(value_contains(r, value_list(seen), key, &known));
		if (known)
			continue;
		TRY(list_put(r, seen, key));
		TRY(list_put(r, kept, l->items[i]));
	}
	return give_list(kept, LIST_GENERATOR, v.input, out);
}

static enum err extreme(struct run *r, struct value v, const struct arguments *a, bool largest, struct value *out)
{
	const struct list *l;
	const struct value *path = argument(a, 1, "attribute");
	struct value best;
	bool cased;
	TRY(argument_bool(r, a, 0, "case_sensitive", false, &cased));
	TRY(value_items(r, v, &l));
	*out = value_undefined("an empty list has no extreme");
	for (size_t i = 0; i < l->n; i++) {
		struct value key;
		bool better = true;
		TRY(key_of(r, l->items[i], path, cased, &key));
		if (i)
			TRY(value_less(r, largest ? best : key, largest ? key : best, &better));
		if (better) {
			best = key;
			*out = l->items[i];
		}
	}
	return ERR_OK;
}

FILTER(smallest) { return extreme(r, v, a, false, out); }
FILTER(largest) { return extreme(r, v, a, true, out); }

FILTER(sum)
{
	const struct list *l;
	const struct value *path = argument(a, 0, "attribute"), *start = argument(a, 1, "start");
	TRY(value_items(r, v, &l));
	*out = start ? *start : value_int(0);
	for (size_t i = 0; i < l->n; i++) {
		struct value item = l->items[i];
		if (path && path->kind != V_NONE)
			TRY(get_path(r, item, *path, NULL, &item));
		TRY(op_binary(r, '+', *out, item, out));
	}
	return ERR_OK;
}

FILTER(batch)
{
	const struct list *l;
	struct list *rows, *row = NULL;
	int64_t n;
	const struct value *fill = argument(a, 1, "fill_with");
	TRY(argument_int(r, a, 0, "linecount", 0, &n));
	TRY(value_items(r, v, &l));
	if (n < 1)
		return run_fault(r, ERR_WORK, "batch wants a number above 0");
	TRY(list_new(r, LIST_PLAIN, 0, &rows));
	for (size_t i = 0; i < l->n; i++) {
		if (i % (uint64_t)n == 0) {
			TRY(list_new(r, LIST_PLAIN, 0, &row));
			TRY(list_put(r, rows, value_list(row)));
		}
		TRY(list_put(r, row, l->items[i]));
	}
	while (row && fill && fill->kind != V_NONE && row->n < (uint64_t)n) {
		TRY(run_steps(r, 1));
		TRY(list_put(r, row, *fill));
	}
	return give_list(rows, LIST_GENERATOR, v.input, out);
}

/* Tuples of what they are grouped by, and the group, in sorted order. */
FILTER(groupby)
{
	const struct value *path = argument(a, 0, "attribute");
	struct list *groups, *group = NULL;
	struct value sorted, last = value_none();
	const struct list *l;
	if (!path)
		return run_fault(r, ERR_WORK, "groupby wants an attribute");
	TRY(value_items(r, v, &l));
	TRY(sort_list(r, l, path, false, false, &sorted));
	TRY(list_new(r, LIST_PLAIN, 0, &groups));
	for (size_t i = 0; i < sorted.list->n; i++) {
		struct value key, by, both;
		bool same = false;
		TRY(get_path(r, sorted.list->items[i], *path, NULL, &by));
		TRY(key_of(r, by, NULL, false, &key));
		if (group)
			TRY(value_equal(r, key, last, 0, &same));
		if (!same) {
			TRY(list_new(r, LIST_PLAIN, 0, &group));
			TRY(pair_of(r, &(struct pair){ by, value_list(group) }, &both));
			TRY(list_put(r, groups, both));
			last = key;
		}
		TRY(list_put(r, group, sorted.list->items[i]));
	}
	return give_list(groups, LIST_PLAIN, v.input, out);
}

/* -- map, select and reject ----------------------------------------------------------------------------------------- */

/* The arguments behind the first n. */
static struct arguments rest_of(const struct arguments *a, size_t n)
{
	struct arguments rest = *a;
	rest.items += n < a->n ? n : a->n;
	rest.n -= n < a->n ? n : a->n;
	return rest;
}

FILTER(map)
{
	const struct list *l;
	struct list *mapped;
	const struct value *path = argument(a, SIZE_MAX, "attribute"), *fallback = argument(a, SIZE_MAX, "default");
	struct arguments rest = rest_of(a, 1);
	TRY(value_items(r, value_true(v) ? v : value_undefined(NULL), &l));   /* None is as good as empty */
	TRY(list_new(r, LIST_PLAIN, l->n, &mapped));
	if (!path && (!a->n || a->items[0].kind != V_TEXT))
		return run_fault(r, ERR_WORK, "map wants the name of a filter, or attribute=");
	for (size_t i = 0; i < l->n; i++) {
		struct value item;
		if (path) {
			TRY(get_path(r, l->items[i], *path, fallback, &item));
		} else {
			char name[64];
			snprintf(name, sizeof name, "%.*s", a->items[0].text->bytes > 60 ? 60 : (int)a->items[0].text->bytes,
				 a->items[0].text->data);
			TRY(filter_apply(r, name, l->items[i], &rest, &item));
		}
		TRY(list_put(r, mapped, item));
	}
	return give_list(mapped, LIST_GENERATOR, v.input, out);
}

static enum err choose(struct run *r, struct value v, const struct arguments *a, bool by_attribute, bool keep, struct value *out)
{
	const struct list *l;
	struct list *kept;
	struct arguments rest = rest_of(a, by_attribute + 1u);
	const struct value *test = argument(a, by_attribute, NULL);
	char name[64] = "";
	if ((by_attribute && !a->n) || (test && test->kind != V_TEXT))
		return run_fault(r, ERR_WORK, "the filter wants names as its arguments");
	if (test)
		snprintf(name, sizeof name, "%.*s", test->text->bytes > 60 ? 60 : (int)test->text->bytes, test->text->data);
	TRY(value_items(r, value_true(v) ? v : value_undefined(NULL), &l));
	TRY(list_new(r, LIST_PLAIN, 0, &kept));
	for (size_t i = 0; i < l->n; i++) {
		struct value item = l->items[i];
		bool yes;
		TRY(run_steps(r, 1));
		if (by_attribute)
			TRY(get_path(r, item, a->items[0], NULL, &item));
		yes = value_true(item);
		if (test)
			TRY(test_apply(r, name, item, &rest, &yes));
		if (yes == keep)
			TRY(list_put(r, kept, l->items[i]));
	}
	return give_list(kept, LIST_GENERATOR, v.input, out);
}

FILTER(select_items) { return choose(r, v, a, false, true, out); }
FILTER(reject) { return choose(r, v, a, false, false, out); }
FILTER(selectattr) { return choose(r, v, a, true, true, out); }
FILTER(rejectattr) { return choose(r, v, a, true, false, out); }

const struct filter list_filters[] = {
	{ "length", length }, { "count", length }, { "join", join }, { "items", items }, { "list", to_list }, { "first", first },
	{ "last", last }, { "map", map }, { "select", select_items }, { "reject", reject }, { "selectattr", selectattr },
	{ "rejectattr", rejectattr }, { "dictsort", dictsort }, { "sort", sort }, { "unique", unique }, { "reverse", reverse },
	{ "min", smallest }, { "max", largest }, { "sum", sum }, { "batch", batch }, { "groupby", groupby }, { NULL, NULL },
};
