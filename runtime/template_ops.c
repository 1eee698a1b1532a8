/* Operators, comparisons, attributes and indices, as Python has them. */
#include "runtime/template_parts.h"
#include "runtime/characters.h"

#include <math.h>
#include <string.h>

/* -- arithmetic ----------------------------------------------------------------------------------------------------- */

static enum err overflow(struct run *r) { return run_fault(r, ERR_WORK, "an integer is larger than 64 bits"); }

static enum err mismatch(struct run *r, int op, struct value a, struct value b)
{
	static const char *const names[] = { [OP_FLOOR - 128] = "//", [OP_POWER - 128] = "**", [OP_GE - 128] = ">=",
					     [OP_LE - 128] = "<=" };
	char one[2] = { (char)op, 0 };
	struct value u = a.kind == V_UNDEFINED ? a : b;
	if (u.kind == V_UNDEFINED && u.what)
		return run_fault(r, ERR_WORK, "%s", u.what);
	return run_fault(r, ERR_WORK, "%s does not work on %s and %s", op < 128 ? one : names[op - 128], value_type(a), value_type(b));
}

static enum err power(struct run *r, int64_t base, int64_t exponent, int64_t *out)
{
	int64_t product = 1;
	for (int64_t i = 0; i < exponent; i++) {
		TRY(run_steps(r, 1));
		if (__builtin_mul_overflow(product, base, &product))
			return overflow(r);
		if (base == 1 || base == 0)
			break;
	}
	*out = exponent ? product : 1;
	return ERR_OK;
}

static enum err op_whole(struct run *r, int op, int64_t a, int64_t b, struct value *out)
{
	int64_t v = 0;
	if (op == '/' || (op == OP_POWER && b < 0)) {
		if (!b || (op == OP_POWER && !a))
			return run_fault(r, ERR_WORK, "division by zero");
		*out = value_real(op == '/' ? (double)a / (double)b : pow((double)a, (double)b));
		return ERR_OK;
	}
	if (op == OP_FLOOR || op == '%') {
		if (!b)
			return run_fault(r, ERR_WORK, "division by zero");
		if (b == -1)   /* INT64_MIN / -1 */
			return op_whole(r, op == '%' ? '*' : '-', 0, a, out);
		v = op == '%' ? a % b : a / b;
		if (a % b && (a < 0) != (b < 0))   /* Python rounds down */
			v += op == '%' ? b : -1;
	} else if (op == OP_POWER) {
		TRY(power(r, a, b, &v));
	} else if (op == '+' ? __builtin_add_overflow(a, b, &v) : op == '-' ? __builtin_sub_overflow(a, b, &v)
									   : __builtin_mul_overflow(a, b, &v)) {
		return overflow(r);
	}
	*out = value_int(v);
	return ERR_OK;
}

static enum err op_real(struct run *r, int op, double a, double b, struct value *out)
{
	double v;
	if ((op == '/' || op == OP_FLOOR || op == '%') && b == 0)
		return run_fault(r, ERR_WORK, "division by zero");
	switch (op) {
	case '+': v = a + b; break;
	case '-': v = a - b; break;
	case '*': v = a * b; break;
	case '/': v = a / b; break;
	case OP_FLOOR: v = floor(a / b); break;
	case OP_POWER: v = pow(a, b); break;
	default:
		v = fmod(a, b);
		if (v != 0 && (v < 0) != (b < 0))
			v += b;
	}
	*out = value_real(v);
	return ERR_OK;
}

static enum err join_texts(struct run *r, const struct text *a, const struct text *b, struct value *out)
{
	struct build sum = { .room = &r->room };
	bool markup = a->markup || b->markup;
	if (markup) {
		struct value v;
		TRY(text_escape(r, a->markup ? b : a, &v));
		if (a->markup != b->markup)
			*(a->markup ? &b : &a) = v.text;
	}
	TRY(run_steps(r, (a->bytes + b->bytes) / 64));
	TRY(build_text(&sum, a));
	TRY(build_text(&sum, b));
	TRY(build_done(&sum, out));
	if (markup) {
		struct text *t;
		TRY(ROOM_NEW(&r->room, 1, struct text, &t));
		*t = *out->text;
		t->markup = true;
		*out = value_text(t);
	}
	return ERR_OK;
}

static enum err join_lists(struct run *r, struct value a, struct value b, struct value *out)
{
	struct list *l;
	TRY(run_steps(r, (a.list->n + b.list->n) / 8));
	TRY(list_new(r, a.list->form, a.list->n + b.list->n, &l));
	for (size_t i = 0; i < a.list->n; i++)
		TRY(list_put(r, l, a.list->items[i]));
	for (size_t i = 0; i < b.list->n; i++)
		TRY(list_put(r, l, b.list->items[i]));
	*out = value_list(l);
	out->input = a.input && b.input;
	return ERR_OK;
}

static enum err repeat(struct run *r, struct value what, int64_t n, struct value *out)
{
	struct build b = { .room = &r->room };
	struct list *l;
	if (what.kind == V_TEXT) {
		for (int64_t i = 0; i < n && what.text->bytes; i++) {
			TRY(run_steps(r, 1 + what.text->bytes / 64));
			TRY(build_text(&b, what.text));
		}
		return build_done(&b, out);
	}
	TRY(list_new(r, what.list->form, 0, &l));
	for (int64_t i = 0; i < n && what.list->n; i++)
		for (size_t k = 0; k < what.list->n; k++) {
			TRY(run_steps(r, 1));
			TRY(list_put(r, l, what.list->items[k]));
		}
	*out = value_list(l);
	out->input = what.input;
	return ERR_OK;
}

static bool is_sequence(struct value v)
{
	return v.kind == V_TEXT || (v.kind == V_LIST && v.list->form <= LIST_TUPLE);
}

enum err op_binary(struct run *r, int op, struct value a, struct value b, struct value *out)
{
	if (is_number(a) && is_number(b)) {
		TRY(is_whole(a) && is_whole(b) ? op_whole(r, op, whole_of(a), whole_of(b), out)
					       : op_real(r, op, real_of(a), real_of(b), out));
		out->input = a.input || b.input;
		return ERR_OK;
	}
	if (op == '+' && a.kind == V_TEXT && b.kind == V_TEXT)
		return join_texts(r, a.text, b.text, out);
	if (op == '+' && is_sequence(a) && is_sequence(b) && a.kind == b.kind && a.list->form == b.list->form)
		return join_lists(r, a, b, out);
	if (op == '*' && is_sequence(a) && is_whole(b))
		return repeat(r, a, whole_of(b), out);
	if (op == '*' && is_whole(a) && is_sequence(b))
		return repeat(r, b, whole_of(a), out);
	if (op == '%' && a.kind == V_TEXT)
		return text_format(r, a.text, b, out);
	return mismatch(r, op, a, b);
}

enum err op_negate(struct run *r, struct value a, struct value *out)
{
	if (a.kind == V_REAL)
		*out = value_real(-a.d);
	else if (is_whole(a))
		TRY(op_whole(r, '-', 0, whole_of(a), out));
	else
		return run_fault(r, ERR_WORK, "- does not work on %s", value_type(a));
	out->input = a.input;
	return ERR_OK;
}

/* -- comparisons ---------------------------------------------------------------------------------------------------- */

static enum err equal_lists(struct run *r, const struct list *a, const struct list *b, int depth, bool *out)
{
	*out = a->n == b->n && (a->form == b->form || a->form > LIST_TUPLE || b->form > LIST_TUPLE);
	for (size_t i = 0; i < a->n && *out; i++)
		TRY(value_equal(r, a->items[i], b->items[i], depth + 1, out));
	return ERR_OK;
}

static enum err equal_dicts(struct run *r, const struct dict *a, const struct dict *b, int depth, bool *out)
{
	*out = a->n == b->n;
	for (size_t i = 0; i < a->n && *out; i++) {
		struct value other;
		TRY(dict_find(r, b, a->pairs[i].key, &other, out));
		if (*out)
			TRY(value_equal(r, a->pairs[i].value, other, depth + 1, out));
	}
	return ERR_OK;
}

enum err value_equal(struct run *r, struct value a, struct value b, int depth, bool *out)
{
	TRY(run_steps(r, 1));
	if (depth > MAX_VALUE_DEPTH)
		return run_fault(r, ERR_WORK, "more than %d lists and dictionaries inside each other", MAX_VALUE_DEPTH);
	if (is_number(a) && is_number(b)) {
		*out = is_whole(a) && is_whole(b) ? whole_of(a) == whole_of(b) : real_of(a) == real_of(b);
		return ERR_OK;
	}
	*out = false;
	if (a.kind != b.kind)
		return ERR_OK;
	switch (a.kind) {
	case V_UNDEFINED:
	case V_NONE: *out = true; return ERR_OK;
	case V_TEXT:
		*out = a.text->bytes == b.text->bytes && !memcmp(a.text->data, b.text->data, a.text->bytes);
		return run_steps(r, a.text->bytes == b.text->bytes ? a.text->bytes / 64 : 0);
	case V_LIST: return equal_lists(r, a.list, b.list, depth, out);
	case V_DICT: return equal_dicts(r, a.dict, b.dict, depth, out);
	default: *out = a.dict == b.dict; return ERR_OK;
	}
}

/* UTF-8 sorts as code points do. */
enum err value_less(struct run *r, struct value a, struct value b, bool *out)
{
	TRY(run_steps(r, 1));
	if (is_number(a) && is_number(b)) {
		*out = is_whole(a) && is_whole(b) ? whole_of(a) < whole_of(b) : real_of(a) < real_of(b);
		return ERR_OK;
	}
	if (a.kind == V_TEXT && b.kind == V_TEXT) {
		int c = memcmp(a.text->data, b.text->data, a.text->bytes < b.text->bytes ? a.text->bytes : b.text->bytes);
		*out = c < 0 || (!c && a.text->bytes < b.text->bytes);
		return run_steps(r, a.text->bytes / 64);
	}
	if (a.kind != V_LIST || b.kind != V_LIST || a.list->form != b.list->form || a.list->form > LIST_TUPLE)
		return mismatch(r, '<', a, b);
	if (++r->depth > MAX_DEPTH)
		return run_fault(r, ERR_WORK, "lists too deep inside each other");
	for (size_t i = 0; i < a.list->n && i < b.list->n; i++) {
		bool same;
		TRY(value_equal(r, a.list->items[i], b.list->items[i], 0, &same));
		if (same)
			continue;
		TRY(value_less(r, a.list->items[i], b.list->items[i], out));
		r->depth--;
		return ERR_OK;
	}
	r->depth--;
	*out = a.list->n < b.list->n;
	return ERR_OK;
}

enum err value_contains(struct run *r, struct value in, struct value what, bool *out)
{
	size_t at;
	*out = false;
	if (in.kind == V_TEXT) {
		TRY(run_steps(r, in.text->bytes / 64));
		if (what.kind != V_TEXT)
			return run_fault(r, ERR_WORK, "\"in\" a string wants a string, not %s", value_type(what));
		*out = text_find(in.text, what.text, 0, &at);
		return ERR_OK;
	}
	if (in.kind == V_DICT) {
		struct value v;
		return dict_find(r, in.dict, what, &v, out);
	}
	if (in.kind != V_LIST && in.kind != V_UNDEFINED)
		return run_fault(r, ERR_WORK, "\"in\" does not work on %s", value_type(in));
	for (size_t i = 0; in.kind == V_LIST && i < in.list->n && !*out; i++)
		TRY(value_equal(r, in.list->items[i], what, 0, out));
	return ERR_OK;
}

enum err op_compare(struct run *r, int op, struct value a, struct value b, bool *out)
{
	bool swap = op == '>' || op == OP_LE, negate = op == OP_NE || op == OP_NOT_IN || op == OP_LE || op == OP_GE;
	if (op == OP_EQ || op == OP_NE)
		TRY(value_equal(r, a, b, 0, out));
	else if (op == OP_IN || op == OP_NOT_IN)
		TRY(value_contains(r, b, a, out));
	else
		TRY(value_less(r, swap ? b : a, swap ? a : b, out));
	bool unordered = (a.kind == V_REAL && isnan(a.d)) || (b.kind == V_REAL && isnan(b.d));
	*out = negate && op != OP_NE && op != OP_NOT_IN && unordered ? false : *out != negate;
	return ERR_OK;
}

/* -- attributes and indices ----------------------------------------------------------------------------------------- */

static enum err not_there(struct run *r, struct value of, const char *name, size_t bytes, struct value *out)
{
	struct build b = { .room = &r->room };
	struct value sentence;
	if (bytes > 60)
		bytes = 60;
	TRY(build_words(&b, value_type(of)));
	TRY(build_words(&b, " has no \""));
	TRY(build_put(&b, name, bytes, false));
	TRY(build_put(&b, "\"", 2, false));   /* and its 0 byte */
	TRY(build_done(&b, &sentence));
	*out = value_undefined(sentence.text->data);
	return ERR_OK;
}

static enum err of_undefined(struct run *r, struct value of)
{
	return run_fault(r, ERR_WORK, "%s", of.what ? of.what : "an undefined value has no attributes");
}

static enum err get_method(struct run *r, struct value of, const char *name, struct value *out)
{
	struct method *m;
	TRY(ROOM_NEW(&r->room, 1, struct method, &m));
	m->self = of;
	m->name = name;
	*out = (struct value){ .kind = V_METHOD, .method = m };
	return ERR_OK;
}

static enum err get_loop(struct run *r, const struct loop *l, const char *name, struct value of, struct value *out)
{
	const struct { const char *name; int64_t i; } numbers[] = {
		{ "index0", (int64_t)l->i }, { "index", (int64_t)l->i + 1 }, { "length", (int64_t)l->items->n },
		{ "revindex", (int64_t)(l->items->n - l->i) }, { "revindex0", (int64_t)(l->items->n - l->i) - 1 },
		{ "depth", (int64_t)l->depth + 1 }, { "depth0", (int64_t)l->depth },
	};
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		if (!strcmp(name, numbers[i].name)) {
			*out = value_int(numbers[i].i);
			return ERR_OK;
		}
	if (!strcmp(name, "first") || !strcmp(name, "last"))
		*out = value_bool(*name == 'f' ? !l->i : l->i + 1 == l->items->n);
	else if (!strcmp(name, "previtem"))
		*out = l->i ? l->items->items[l->i - 1] : value_undefined("there is no previous item");
	else if (!strcmp(name, "nextitem"))
		*out = l->i + 1 < l->items->n ? l->items->items[l->i + 1] : value_undefined("there is no next item");
	else if (!strcmp(name, "cycle") || !strcmp(name, "changed"))
		return get_method(r, of, name, out);
	else
		return not_there(r, of, name, strlen(name), out);
	return ERR_OK;
}

static enum err find_name(struct run *r, const struct dict *d, const char *name, size_t bytes, struct value *out, bool *found)
{
	const struct text t = { .data = name, .bytes = bytes };
	return dict_find(r, d, value_text(&t), out, found);
}

enum err get_attribute(struct run *r, struct value of, const char *name, struct value *out)
{
	bool found = false;
	if (of.kind == V_UNDEFINED)
		return of_undefined(r, of);
	if (of.kind == V_LOOP)
		return get_loop(r, of.loop, name, of, out);
	if (of.kind == V_MACRO && !strcmp(name, "name"))
		return text_new(&r->room, of.macro->name, strlen(of.macro->name), false, out);
	if (has_method(of, name))
		return get_method(r, of, name, out);
	if (of.kind == V_DICT || of.kind == V_NAMESPACE)
		TRY(find_name(r, of.dict, name, strlen(name), out, &found));
	return found ? ERR_OK : not_there(r, of, name, strlen(name), out);
}

/* The byte where character i begins. */
static size_t place_of(const struct text *t, int64_t i)
{
	size_t at = 0;
	for (; i && at < t->bytes; i--)
		at += utf8_length((unsigned char)t->data[at]);
	return at;
}

static enum err get_number(struct run *r, struct value of, int64_t i, bool *found, struct value *out)
{
	int64_t n;
	TRY(value_length(r, of, &n));
	i += i < 0 ? n : 0;
	*found = i >= 0 && i < n;
	if (!*found)
		return ERR_OK;
	if (of.kind == V_LIST) {
		*out = of.list->items[i];
		return ERR_OK;
	}
	size_t at = place_of(of.text, i);
	TRY(run_steps(r, at / 8));
	return text_part(r, of.text, at, at + utf8_length((unsigned char)of.text->data[at]), out);
}

enum err get_item(struct run *r, struct value of, struct value key, struct value *out)
{
	bool found = false;
	const struct text *name;
	if (of.kind == V_UNDEFINED)
		return of_undefined(r, of);
	bool indexed = of.kind == V_TEXT || (of.kind == V_LIST && of.list->form != LIST_GENERATOR && of.list->form != LIST_VIEW);
	if (of.kind == V_DICT && key.kind != V_LIST && key.kind != V_DICT)
		TRY(dict_find(r, of.dict, key, out, &found));
	else if (indexed && is_whole(key))
		TRY(get_number(r, of, whole_of(key), &found, out));
	if (found)
		return ERR_OK;
	if (key.kind == V_TEXT && key.text->bytes < 64 && !memchr(key.text->data, 0, key.text->bytes)) {
		char *copy;   /* x["split"] is x.split where x has no such item */
		TRY(room_alloc(&r->room, key.text->bytes + 1, 1, &copy));
		memcpy(copy, key.text->data, key.text->bytes);
		if (of.kind != V_DICT || has_method(of, copy))
			return get_attribute(r, of, copy, out);
	}
	TRY(value_to_text(r, key.kind == V_TEXT || is_number(key) ? key : value_none(), &name));
	return not_there(r, of, name->data, name->bytes, out);
}

enum err get_path(struct run *r, struct value of, struct value path, const struct value *fallback, struct value *out)
{
	*out = of;
	if (path.kind != V_TEXT) {
		TRY(get_item(r, of, path, out));
		*out = out->kind == V_UNDEFINED && fallback ? *fallback : *out;
		return ERR_OK;
	}
	for (size_t at = 0, end; at <= path.text->bytes; at = end + 1) {
		struct value key;
		int64_t number = 0;
		const char *dot = memchr(path.text->data + at, '.', path.text->bytes - at);
		end = dot ? (size_t)(dot - path.text->data) : path.text->bytes;
		bool digits = end > at && end - at < 10;
		for (size_t i = at; i < end && digits; i++) {
			digits = path.text->data[i] >= '0' && path.text->data[i] <= '9';
			number = number * 10 + (path.text->data[i] - '0');
		}
		TRY(text_part(r, path.text, at, end, &key));
		TRY(get_item(r, *out, digits ? value_int(number) : key, out));
		if (out->kind == V_UNDEFINED && fallback)
			*out = *fallback;
	}
	return ERR_OK;
}

/* Python's slice.indices. */
static enum err slice_bounds(struct run *r, int64_t n, struct value from, struct value to, struct value step, int64_t bounds[3])
{
	const struct value parts[] = { from, to, step };
	for (int i = 0; i < 3; i++)
		if (parts[i].kind != V_NONE && !is_whole(parts[i]))
			return run_fault(r, ERR_WORK, "a slice wants integers, not %s", value_type(parts[i]));
	int64_t by = step.kind == V_NONE ? 1 : whole_of(step), low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;
	if (!by)
		return run_fault(r, ERR_WORK, "a slice with step 0");
	for (int i = 0; i < 2; i++) {
		int64_t v = parts[i].kind == V_NONE ? 0 : whole_of(parts[i]);
		v = v < 0 ? (v < -n ? low : v + n) : v;
		v = v < low ? low : v > high ? high : v;
		bounds[i] = parts[i].kind != V_NONE ? v : (i == 0) == (by > 0) ? low : high;
	}
	bounds[2] = by > n ? n + 1 : by < -n ? -n - 1 : by;
	return ERR_OK;
}

enum err get_slice(struct run *r, struct value of, struct value from, struct value to, struct value step, struct value *out)
{
	int64_t n, b[3];
	struct list *l;
	struct build text = { .room = &r->room };
	if (of.kind == V_UNDEFINED)
		return of_undefined(r, of);
	if (of.kind != V_TEXT && (of.kind != V_LIST || of.list->form == LIST_GENERATOR || of.list->form == LIST_VIEW))
		return run_fault(r, ERR_WORK, "%s has no slices", value_type(of));
	TRY(value_length(r, of, &n));
	TRY(slice_bounds(r, n, from, to, step, b));
	if (of.kind == V_TEXT && b[2] == 1) {
		size_t begin = place_of(of.text, b[0]), end = b[1] > b[0] ? place_of(of.text, b[1]) : begin;
		TRY(run_steps(r, end / 8));
		return text_part(r, of.text, begin, end, out);
	}
	TRY(list_new(r, of.kind == V_LIST ? of.list->form : LIST_PLAIN, 0, &l));
	for (int64_t i = b[0]; b[2] > 0 ? i < b[1] : i > b[1]; i += b[2]) {
		TRY(run_steps(r, 1));
		if (of.kind == V_LIST) {
			TRY(list_put(r, l, of.list->items[i]));
		} else {
			size_t at = place_of(of.text, i);
			TRY(run_steps(r, at / 8));
			TRY(build_part(&text, of.text, at, at + utf8_length((unsigned char)of.text->data[at])));
		}
	}
	*out = value_list(l);
	out->input = of.input;
	return of.kind == V_TEXT ? build_done(&text, out) : ERR_OK;
}
