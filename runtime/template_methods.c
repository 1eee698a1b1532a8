/* Methods of text, dictionaries, lists and loops. What would change a list or a dictionary is refused, as Jinja's immutable
 * sandbox refuses it. */
#include "runtime/template_parts.h"
#include "runtime/characters.h"

#include <string.h>

#define METHOD(name) static enum err name(struct run *r, struct value self, const struct arguments *a, struct value *out)

/* -- text ----------------------------------------------------------------------------------------------------------- */

static enum err strip_sides(struct run *r, struct value self, const struct arguments *a, bool left, bool right, struct value *out)
{
	const struct text *chars;
	TRY(argument_text(r, a, 0, NULL, &chars));
	return text_strip(r, self.text, chars, left, right, out);
}

METHOD(strip) { return strip_sides(r, self, a, true, true, out); }
METHOD(lstrip) { return strip_sides(r, self, a, true, false, out); }
METHOD(rstrip) { return strip_sides(r, self, a, false, true, out); }
METHOD(upper) { return (void)a, text_to_case(r, self.text, CASE_UPPER, out); }
METHOD(lower) { return (void)a, text_to_case(r, self.text, CASE_LOWER, out); }
METHOD(title) { return (void)a, text_to_case(r, self.text, CASE_TITLE, out); }
METHOD(capitalize) { return (void)a, text_to_case(r, self.text, CASE_CAPITALIZE, out); }
METHOD(format) { return text_format_braces(r, self.text, a, out); }

static enum err split_at(struct run *r, struct value self, const struct arguments *a, bool from_right, struct value *out)
{
	const struct text *by;
	int64_t n;
	TRY(argument_text(r, a, 0, "sep", &by));
	TRY(argument_int(r, a, 1, "maxsplit", -1, &n));
	return text_split(r, self.text, by, n, from_right, out);
}

METHOD(split) { return split_at(r, self, a, false, out); }
METHOD(rsplit) { return split_at(r, self, a, true, out); }

METHOD(splitlines)
{
	struct list *l;
	bool keep;
	const struct text *t = self.text;
	TRY(argument_bool(r, a, 0, "keepends", false, &keep));
	TRY(list_new(r, LIST_PLAIN, 0, &l));
	for (size_t at = 0, end, next; at < t->bytes; at = next) {
		struct value line;
		for (end = at; end < t->bytes && t->data[end] != '\n' && t->data[end] != '\r';)
			end++;
		next = end + (end < t->bytes) + (end + 1 < t->bytes && t->data[end] == '\r' && t->data[end + 1] == '\n');
		TRY(run_steps(r, 1 + (next - at) / 64));
		TRY(text_part(r, t, at, keep ? next : end, &line));
		TRY(list_put(r, l, line));
	}
	*out = value_list(l);
	return ERR_OK;
}

static bool has_affix(const struct text *t, const struct text *affix, bool at_end)
{
	return t->bytes >= affix->bytes && !memcmp(t->data + (at_end ? t->bytes - affix->bytes : 0), affix->data, affix->bytes);
}

/* One string, or a tuple of them. */
static enum err affix(struct run *r, struct value self, const struct arguments *a, bool at_end, struct value *out)
{
	bool yes = false;
	if (a->n != 1 || (a->items[0].kind != V_TEXT && (a->items[0].kind != V_LIST || a->items[0].list->form != LIST_TUPLE)))
		return run_fault(r, ERR_WORK, "startswith and endswith want a string or a tuple of strings");
	if (a->items[0].kind == V_TEXT)
		yes = has_affix(self.text, a->items[0].text, at_end);
	for (size_t i = 0; a->items[0].kind == V_LIST && i < a->items[0].list->n; i++) {
		struct value v = a->items[0].list->items[i];
		if (v.kind != V_TEXT)
			return run_fault(r, ERR_WORK, "startswith and endswith want strings");
		yes = yes || has_affix(self.text, v.text, at_end);
	}
	*out = value_bool(yes);
	return run_steps(r, self.text->bytes / 64);
}

METHOD(startswith) { return affix(r, self, a, false, out); }
METHOD(endswith) { return affix(r, self, a, true, out); }

static enum err remove_affix(struct run *r, struct value self, const struct arguments *a, bool at_end, struct value *out)
{
	const struct text *t = self.text, *cut;
	TRY(argument_text(r, a, 0, NULL, &cut));
	size_t n = cut && has_affix(t, cut, at_end) ? cut->bytes : 0;
	return text_part(r, t, at_end ? 0 : n, at_end ? t->bytes - n : t->bytes, out);
}

METHOD(removeprefix) { return remove_affix(r, self, a, false, out); }
METHOD(removesuffix) { return remove_affix(r, self, a, true, out); }

METHOD(replace)
{
	const struct text *from, *to;
	int64_t n;
	TRY(argument_text(r, a, 0, NULL, &from));
	TRY(argument_text(r, a, 1, NULL, &to));
	TRY(argument_int(r, a, 2, "count", -1, &n));
	if (!from || !to)
		return run_fault(r, ERR_WORK, "replace wants two strings");
	return text_replace(r, self.text, from, to, n, out);
}

METHOD(join)
{
	struct build b = { .room = &r->room };
	const struct list *l;
	if (a->n != 1)
		return run_fault(r, ERR_WORK, "join wants one list");
	TRY(value_items(r, a->items[0], &l));
	for (size_t i = 0; i < l->n; i++) {
		if (l->items[i].kind != V_TEXT)
			return run_fault(r, ERR_WORK, "join wants strings, not %s", value_type(l->items[i]));
		TRY(run_steps(r, 1 + (self.text->bytes + l->items[i].text->bytes) / 64));
		if (i)
			TRY(build_text(&b, self.text));
		TRY(build_text(&b, l->items[i].text));
	}
	return build_done(&b, out);
}

static int64_t chars_before(const struct text *t, size_t at)
{
	const struct text part = { .data = t->data, .bytes = at };
	return text_chars(&part);
}

/* The place of the first or last occurrence, -1 */
static enum err search(struct run *r, struct value self, const struct arguments *a, bool last, struct value *out)
{
	const struct text *what;
	size_t at, found = 0, from = 0;
	bool any = false;
	TRY(argument_text(r, a, 0, NULL, &what));
	if (!what || a->n != 1)
		return run_fault(r, ERR_MODEL, "find wants one string; places are not supported");
	TRY(run_steps(r, self.text->bytes / 8));
	while (text_find(self.text, what, from, &at)) {
		any = true;
		found = at;
		from = at + 1;
		if (!last)
			break;
		TRY(run_steps(r, 1));
	}
	*out = value_int(any ? chars_before(self.text, found) : -1);
	return ERR_OK;
}

METHOD(find) { return search(r, self, a, false, out); }
METHOD(rfind) { return search(r, self, a, true, out); }

METHOD(count)
{
	int64_t n = 0;
	if (a->n != 1)
		return run_fault(r, ERR_WORK, "count wants one value");
	if (self.kind == V_LIST) {
		for (size_t i = 0; i < self.list->n; i++) {
			bool same;
			TRY(value_equal(r, self.list->items[i], a->items[0], 0, &same));
			n += same;
		}
	} else {
		const struct text *what;
		size_t at = 0;
		TRY(argument_text(r, a, 0, NULL, &what));
		TRY(run_steps(r, self.text->bytes / 8));
		for (; what && what->bytes && text_find(self.text, what, at, &at); at += what->bytes)
			n++;
		n += what && !what->bytes ? text_chars(self.text) + 1 : 0;
	}
	*out = value_int(n);
	return ERR_OK;
}

METHOD(place)
{
	if (self.kind == V_TEXT) {
		TRY(search(r, self, a, false, out));
		return out->i < 0 ? run_fault(r, ERR_WORK, "the string is not there") : ERR_OK;
	}
	for (size_t i = 0; a->n && i < self.list->n; i++) {
		bool same;
		TRY(value_equal(r, self.list->items[i], a->items[0], 0, &same));
		if (same) {
			*out = value_int((int64_t)i);
			return ERR_OK;
		}
	}
	return run_fault(r, ERR_WORK, "the value is not in the list");
}

/* before, separator, after */
static enum err cut(struct run *r, struct value self, const struct arguments *a, bool last, struct value *out)
{
	const struct text *t = self.text, *by;
	struct list *l;
	size_t at = 0, found = 0;
	bool any = false;
	TRY(argument_text(r, a, 0, NULL, &by));
	if (!by || !by->bytes)
		return run_fault(r, ERR_WORK, "partition wants a string that is not empty");
	while (text_find(t, by, at, &at)) {
		any = true;
		found = at++;
		if (!last)
			break;
		TRY(run_steps(r, 1));
	}
	size_t begin = any ? found : last ? 0 : t->bytes, end = any ? found + by->bytes : begin;
	TRY(list_new(r, LIST_TUPLE, 3, &l));
	const size_t parts[3][2] = { { 0, begin }, { begin, end }, { end, t->bytes } };
	for (int i = 0; i < 3; i++) {
		struct value v;
		TRY(text_part(r, t, parts[i][0], parts[i][1], &v));
		TRY(list_put(r, l, v));
	}
	*out = value_list(l);
	return run_steps(r, t->bytes / 64);
}

METHOD(partition) { return cut(r, self, a, false, out); }
METHOD(rpartition) { return cut(r, self, a, true, out); }

static bool is_letter_or_number(uint32_t c) { return char_is_letter(c) || char_is_number(c); }
static bool is_space(uint32_t c) { return char_is_space(c) || (c >= 0x1c && c <= 0x1f); }

static enum err all_are(struct run *r, const struct text *t, bool (*is)(uint32_t c), struct value *out)
{
	bool yes = t->bytes > 0;
	for (size_t at = 0; at < t->bytes && yes; at += utf8_length((unsigned char)t->data[at]))
		yes = is(utf8_decode(t->data + at));
	*out = value_bool(yes);
	return run_steps(r, t->bytes / 8);
}

METHOD(text_isalpha) { return (void)a, all_are(r, self.text, char_is_letter, out); }
METHOD(text_isdigit) { return (void)a, all_are(r, self.text, char_is_decimal, out); }
METHOD(text_isalnum) { return (void)a, all_are(r, self.text, is_letter_or_number, out); }
METHOD(text_isspace) { return (void)a, all_are(r, self.text, is_space, out); }

static enum err has_case(struct run *r, struct value self, const char *test, struct value *out)
{
	const struct arguments none = { 0 };
	bool yes;
	TRY(test_apply(r, test, self, &none, &yes));
	*out = value_bool(yes);
	return ERR_OK;
}

METHOD(text_isupper) { return (void)a, has_case(r, self, "upper", out); }
METHOD(text_islower) { return (void)a, has_case(r, self, "lower", out); }

/* -- dictionaries and loops ----------------------------------------------------------------------------------------- */

METHOD(get)
{
	bool found;
	if (!a->n)
		return run_fault(r, ERR_WORK, "get wants a key");
	TRY(dict_find(r, self.dict, a->items[0], out, &found));
	if (!found)
		*out = a->n > 1 ? a->items[1] : value_none();
	return ERR_OK;
}

static enum err view(struct run *r, struct value self, const char *filter, struct value *out)
{
	const struct arguments none = { 0 };
	struct list *l;
	TRY(filter_apply(r, filter, self, &none, out));
	TRY(list_new(r, LIST_VIEW, out->list->n, &l));
	for (size_t i = 0; i < out->list->n; i++)
		TRY(list_put(r, l, out->list->items[i]));
	*out = value_list(l);
	out->input = self.input;
	return ERR_OK;
}

METHOD(items) { return (void)a, view(r, self, "items", out); }
METHOD(keys) { return (void)a, view(r, self, "list", out); }

METHOD(values)
{
	struct list *l;
	(void)a;
	TRY(list_new(r, LIST_VIEW, self.dict->n, &l));
	for (size_t i = 0; i < self.dict->n; i++)
		TRY(list_put(r, l, self.dict->pairs[i].value));
	*out = value_list(l);
	out->input = self.input;
	return ERR_OK;
}

/* Values are never changed, so a copy may be the same. */
METHOD(copy) { return (void)r, (void)a, *out = self, ERR_OK; }

METHOD(cycle)
{
	if (!a->n)
		return run_fault(r, ERR_WORK, "cycle wants values");
	*out = a->items[self.loop->i % a->n];
	return ERR_OK;
}

METHOD(changed)
{
	struct list *l;
	bool same = false;
	TRY(list_new(r, LIST_TUPLE, a->n, &l));
	for (size_t i = 0; i < a->n; i++)
		TRY(list_put(r, l, a->items[i]));
	if (self.loop->changed->kind == V_LIST)
		TRY(value_equal(r, *self.loop->changed, value_list(l), 0, &same));
	*self.loop->changed = value_list(l);
	*out = value_bool(!same);
	return ERR_OK;
}

METHOD(refuse)
{
	(void)a, (void)out;
	return run_fault(r, ERR_WORK, "%s must not be changed", value_type(self));
}

/* -- the table ------------------------------------------------------------------------------------------------------ */

static const struct {
	enum kind kind;
	const char *name;
	enum err (*call)(struct run *r, struct value self, const struct arguments *a, struct value *out);
} methods[] = {
	{ V_TEXT, "strip", strip }, { V_TEXT, "lstrip", lstrip }, { V_TEXT, "rstrip", rstrip }, { V_TEXT, "split", split },
	{ V_TEXT, "rsplit", rsplit }, { V_TEXT, "splitlines", splitlines }, { V_TEXT, "startswith", startswith },
	{ V_TEXT, "endswith", endswith }, { V_TEXT, "removeprefix", removeprefix }, { V_TEXT, "removesuffix", removesuffix },
	{ V_TEXT, "replace", replace }, { V_TEXT, "join", join }, { V_TEXT, "find", find }, { V_TEXT, "rfind", rfind },
	{ V_TEXT, "index", place }, { V_TEXT, "count", count }, { V_TEXT, "partition", partition },
	{ V_TEXT, "rpartition", rpartition }, { V_TEXT, "upper", upper }, { V_TEXT, "lower", lower }, { V_TEXT, "title", title },
	{ V_TEXT, "capitalize", capitalize }, { V_TEXT, "format", format }, { V_TEXT, "isalpha", text_isalpha },
	{ V_TEXT, "isdigit", text_isdigit }, { V_TEXT, "isalnum", text_isalnum }, { V_TEXT, "isspace", text_isspace },
	{ V_TEXT, "isupper", text_isupper }, { V_TEXT, "islower", text_islower },
	{ V_DICT, "get", get }, { V_DICT, "items", items }, { V_DICT, "keys", keys }, { V_DICT, "values", values },
	{ V_DICT, "copy", copy }, { V_DICT, "pop", refuse }, { V_DICT, "update", refuse }, { V_DICT, "setdefault", refuse },
	{ V_DICT, "clear", refuse }, { V_DICT, "popitem", refuse },
	{ V_LIST, "index", place }, { V_LIST, "count", count }, { V_LIST, "copy", copy }, { V_LIST, "append", refuse },
	{ V_LIST, "pop", refuse }, { V_LIST, "extend", refuse }, { V_LIST, "insert", refuse }, { V_LIST, "remove", refuse },
	{ V_LIST, "reverse", refuse }, { V_LIST, "sort", refuse }, { V_LIST, "clear", refuse },
	{ V_LOOP, "cycle", cycle }, { V_LOOP, "changed", changed },
};

bool has_method(struct value v, const char *name)
{
	bool plain = v.kind != V_LIST || v.list->form == LIST_PLAIN;
	if (!plain && (v.list->form == LIST_GENERATOR || v.list->form == LIST_VIEW || (strcmp(name, "index") && strcmp(name, "count"))))
		return false;
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
		if (methods[i].kind == v.kind && !strcmp(methods[i].name, name))
			return true;
	return false;
}

enum err method_call(struct run *r, const struct method *m, const struct arguments *a, struct value *out)
{
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
		if (methods[i].kind == m->self.kind && !strcmp(methods[i].name, m->name))
			return methods[i].call(r, m->self, a, out);
	return run_fault(r, ERR_BUG, "the method %s is gone", m->name);
}
