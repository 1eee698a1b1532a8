/* Filters on single values: text, numbers, JSON. Those on lists are in template_lists.c. */
#include "runtime/template_parts.h"
#include "runtime/characters.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define FILTER(name) static enum err name(struct run *r, struct value v, const struct arguments *a, struct value *out)

/* -- text ----------------------------------------------------------------------------------------------------------- */

static enum err to_case(struct run *r, struct value v, enum text_case to, struct value *out)
{
	const struct text *t;
	TRY(value_to_text(r, v, &t));
	return text_to_case(r, t, to, out);
}

FILTER(upper) { return (void)a, to_case(r, v, CASE_UPPER, out); }
FILTER(lower) { return (void)a, to_case(r, v, CASE_LOWER, out); }
FILTER(title) { return (void)a, to_case(r, v, CASE_TITLE_FILTER, out); }
FILTER(capitalize) { return (void)a, to_case(r, v, CASE_CAPITALIZE, out); }

FILTER(trim)
{
	const struct text *t, *chars;
	TRY(value_to_text(r, v, &t));
	TRY(argument_text(r, a, 0, "chars", &chars));
	return text_strip(r, t, chars, true, true, out);
}

FILTER(replace)
{
	const struct text *t, *from, *to;
	const struct value *f = argument(a, 0, "old"), *n = argument(a, 1, "new");
	int64_t count;
	const struct value *c = argument(a, 2, "count");
	TRY(value_to_text(r, v, &t));
	if (!f || !n)
		return run_fault(r, ERR_WORK, "replace wants what to replace, and with what");
	TRY(value_to_text(r, *f, &from));
	TRY(value_to_text(r, *n, &to));
	count = c && is_whole(*c) ? whole_of(*c) : -1;
	return text_replace(r, t, from, to, count, out);
}

FILTER(string)
{
	const struct text *t;
	(void)a;
	TRY(value_to_text(r, v, &t));
	*out = value_text(t);
	return ERR_OK;
}

FILTER(safe)
{
	const struct text *t;
	struct text *markup;
	(void)a;
	TRY(value_to_text(r, v, &t));
	TRY(ROOM_NEW(&r->room, 1, struct text, &markup));
	*markup = *t;
	markup->markup = true;
	*out = value_text(markup);
	return ERR_OK;
}

FILTER(escape)
{
	const struct text *t;
	(void)a;
	TRY(value_to_text(r, v, &t));
	if (!t->markup)
		return text_escape(r, t, out);
	*out = value_text(t);
	return ERR_OK;
}

FILTER(indent)
{
	const struct text *t, *by;
	struct value spaces;
	const struct value *width = argument(a, 0, "width");
	bool first, blank;
	if (v.kind != V_TEXT)
		return run_fault(r, ERR_WORK, "indent works on strings, not on %s", value_type(v));
	t = v.text;
	TRY(argument_bool(r, a, 1, "first", false, &first));
	TRY(argument_bool(r, a, 2, "blank", false, &blank));
	if (width && width->kind == V_TEXT) {
		by = width->text;
	} else {
		int64_t n;
		struct value one;
		TRY(argument_int(r, a, 0, "width", 4, &n));
		TRY(text_new(&r->room, " ", 1, false, &one));
		TRY(op_binary(r, '*', one, value_int(n), &spaces));
		by = spaces.text;
	}
	return text_indent(r, t, by, first, blank, out);
}

FILTER(format)
{
	struct list *l;
	const struct text *t;
	TRY(value_to_text(r, v, &t));
	TRY(list_new(r, LIST_TUPLE, 0, &l));
	for (size_t i = 0; i < a->n; i++)
		TRY(list_put(r, l, a->items[i]));
	if (a->n_named)
		return run_fault(r, ERR_MODEL, "format with named values is not supported");
	return text_format(r, t, value_list(l), out);
}

FILTER(wordcount)
{
	const struct text *t;
	int64_t n = 0;
	bool inside = false;
	(void)a;
	TRY(value_to_text(r, v, &t));
	TRY(run_steps(r, t->bytes / 8));
	for (size_t at = 0; at < t->bytes; at += utf8_length((unsigned char)t->data[at])) {
		bool word = char_is_word(utf8_decode(t->data + at));
		n += word && !inside;
		inside = word;
	}
	*out = value_int(n);
	return ERR_OK;
}

/* -- numbers -------------------------------------------------------------------------------------------------------- */

/* A number written in text, with white space around it. */
static bool read_number(const struct text *t, int base, bool real, int64_t *i, double *d)
{
	char room[64], *end;
	size_t begin = 0, n = t->bytes;
	while (n && strchr(" \t\n\r\f\v", t->data[n - 1]) && t->data[n - 1])
		n--;
	while (begin < n && strchr(" \t\n\r\f\v", t->data[begin]) && t->data[begin])
		begin++;
	if (begin == n || n - begin >= sizeof room || memchr(t->data + begin, 0, n - begin))
		return false;
	memcpy(room, t->data + begin, n - begin);
	room[n - begin] = 0;
	errno = 0;
	if (real)
		*d = strpbrk(room, "xXpP") ? (end = room, 0) : strtod(room, &end);
	else
		*i = strtoll(room, &end, base);
	return *end == 0 && (real || !errno);
}

FILTER(to_int)
{
	const struct value *fallback = argument(a, 0, "default");
	int64_t base, i = 0;
	double d = 0;
	TRY(argument_int(r, a, 1, "base", 10, &base));
	*out = fallback ? *fallback : value_int(0);
	if (v.kind == V_UNDEFINED)
		return run_fault(r, ERR_WORK, "%s", v.what ? v.what : "int of an undefined value");
	if (base < 2 || base > 36)
		return run_fault(r, ERR_MODEL, "int with base %lld is not supported", (long long)base);
	bool whole = is_whole(v), real = v.kind == V_REAL;
	if (whole)
		i = whole_of(v);
	else if (real)
		d = v.d;
	else if (v.kind == V_TEXT && !(whole = read_number(v.text, (int)base, false, &i, &d)))
		real = read_number(v.text, 10, true, &i, &d);
	if (real && fabs(d) < 9e18) {
		i = (int64_t)d;
		whole = true;
	}
	if (whole)
		*out = value_int(i);
	out->input = whole && (v.kind == V_TEXT ? v.text->input : v.input);
	return ERR_OK;
}

FILTER(to_float)
{
	const struct value *fallback = argument(a, 0, "default");
	int64_t i;
	double d = 0;
	*out = fallback ? *fallback : value_real(0);
	if (v.kind == V_UNDEFINED)
		return run_fault(r, ERR_WORK, "%s", v.what ? v.what : "float of an undefined value");
	if (is_number(v))
		*out = value_real(real_of(v));
	else if (v.kind == V_TEXT && read_number(v.text, 10, true, &i, &d))
		*out = value_real(d);
	else
		return ERR_OK;
	out->input = v.kind == V_TEXT ? v.text->input : v.input;
	return ERR_OK;
}

FILTER(absolute)
{
	(void)a;
	*out = v;
	if (v.kind == V_BOOL)
		*out = (struct value){ .kind = V_INT, .input = v.input, .i = v.yes };
	if (!is_number(v))
		return run_fault(r, ERR_WORK, "abs does not work on %s", value_type(v));
	return real_of(v) < 0 ? op_negate(r, v, out) : ERR_OK;
}

FILTER(rounded)
{
	const struct text *method;
	int64_t digits;
	TRY(argument_int(r, a, 0, "precision", 0, &digits));
	TRY(argument_text(r, a, 1, "method", &method));
	if (!is_number(v) || digits < 0 || digits > 15)
		return run_fault(r, ERR_WORK, "round wants a number and 0 to 15 digits");
	double scale = pow(10, (double)digits), d = real_of(v);
	if (method && text_is(value_text(method), "ceil")) {
		d = ceil(d * scale) / scale;
	} else if (method && text_is(value_text(method), "floor")) {
		d = floor(d * scale) / scale;
	} else {
		char room[400];
		snprintf(room, sizeof room, "%.*f", (int)digits, d);   /* exact, half to even, as Python's round */
		d = strtod(room, NULL);
	}
	*out = is_whole(v) && !method ? value_int(whole_of(v)) : value_real(d);
	out->input = v.input;
	return ERR_OK;
}

/* -- the rest ------------------------------------------------------------------------------------------------------- */

FILTER(or_default)
{
	const struct value *fallback = argument(a, 0, "default_value");
	bool boolean;
	TRY(argument_bool(r, a, 1, "boolean", false, &boolean));
	*out = v;
	if (v.kind != V_UNDEFINED && !(boolean && !value_true(v)))
		return ERR_OK;
	if (!fallback)
		return text_new(&r->room, "", 0, false, out);
	*out = *fallback;
	return ERR_OK;
}

static enum err json_separators(struct run *r, const struct value *v, struct json_style *s)
{
	const struct list *l;
	if (!v || v->kind == V_NONE)
		return ERR_OK;
	TRY(value_items(r, *v, &l));
	if (l->n != 2 || l->items[0].kind != V_TEXT || l->items[1].kind != V_TEXT)
		return run_fault(r, ERR_WORK, "separators of tojson are two strings");
	s->comma = l->items[0].text;
	s->colon = l->items[1].text;
	return ERR_OK;
}

/* As transformers defines it: json.dumps, and no escaping of HTML. */
FILTER(tojson)
{
	static const struct text comma_space = { .data = ", ", .bytes = 2 }, comma = { .data = ",", .bytes = 1 },
				 colon = { .data = ": ", .bytes = 2 };
	struct build b = { .room = &r->room };
	struct json_style s = { .colon = &colon };
	const struct value *indent = argument(a, 1, "indent");
	TRY(argument_bool(r, a, 0, "ensure_ascii", false, &s.ascii));
	TRY(argument_bool(r, a, 3, "sort_keys", false, &s.sort));
	s.has_indent = indent && indent->kind != V_NONE;
	if (s.has_indent && (!is_whole(*indent) || whole_of(*indent) > 64))
		return run_fault(r, ERR_MODEL, "tojson with this indent is not supported, only with a number up to 64");
	s.indent = s.has_indent && whole_of(*indent) > 0 ? whole_of(*indent) : 0;
	s.comma = s.has_indent ? &comma : &comma_space;
	TRY(json_separators(r, argument(a, 2, "separators"), &s));
	TRY(build_json(r, &b, v, &s, 0));
	return build_done(&b, out);
}

FILTER(attribute)
{
	const struct value *name = argument(a, 0, "name");
	if (!name || name->kind != V_TEXT)
		return run_fault(r, ERR_WORK, "attr wants a name");
	if (v.kind == V_DICT) {   /* attributes only, no items */
		*out = value_undefined("a dictionary has no such attribute");
		return ERR_OK;
	}
	return get_item(r, v, *name, out);
}

const struct filter text_filters[] = {
	{ "tojson", tojson }, { "trim", trim }, { "string", string }, { "default", or_default }, { "d", or_default },
	{ "upper", upper }, { "lower", lower }, { "safe", safe }, { "replace", replace }, { "indent", indent }, { "int", to_int },
	{ "float", to_float }, { "title", title }, { "capitalize", capitalize }, { "abs", absolute }, { "round", rounded },
	{ "escape", escape }, { "e", escape }, { "format", format }, { "wordcount", wordcount }, { "attr", attribute }, { NULL, NULL },
};

enum err filter_apply(struct run *r, const char *name, struct value v, const struct arguments *a, struct value *out)
{
	const struct filter *const tables[] = { text_filters, list_filters };
	for (size_t i = 0; i < 2; i++)
		for (const struct filter *f = tables[i]; f->name; f++)
			if (!strcmp(f->name, name))
				return f->apply(r, v, a, out);
	return run_fault(r, ERR_MODEL, "the filter \"%s\" is not supported", name);
}
