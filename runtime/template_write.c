/* Values as text: Python's str and repr, JSON as json.dumps writes it, and the two kinds of format strings. */
#include "runtime/template_parts.h"
#include "runtime/characters.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* -- numbers -------------------------------------------------------------------------------------------------------- */

/* The shortest digits that give d again, as Python's repr writes them. */
static void write_real(double d, char room[40])
{
	char digits[40];
	int precision = 0;
	if (isnan(d) || isinf(d)) {
		snprintf(room, 40, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
		return;
	}
	do {
		snprintf(digits, sizeof digits, "%.*e", precision, d);
	} while (strtod(digits, NULL) != d && ++precision < 17);
	int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
	if (exponent >= -4 && exponent < 16) {
		snprintf(room, 40, "%.*f", precision > exponent ? precision - exponent : 1, d);
		return;
	}
	*strchr(digits, 'e') = 0;
	snprintf(room, 40, "%.25se%c%02d", digits, exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
}

enum err build_number(struct build *b, struct value v)
{
	char room[40];
	if (v.kind == V_REAL)
		write_real(v.d, room);
	else
		snprintf(room, sizeof room, "%" PRId64, v.i);
	return build_put(b, room, strlen(room), v.input);
}

/* -- str and repr --------------------------------------------------------------------------------------------------- */

static enum err repr_char(struct build *b, const struct text *t, size_t at, size_t n, char quote)
{
	static const char from[] = "\n\r\t\\", to[] = "nrt\\";
	char room[16] = "\\";
	uint32_t c = utf8_decode(t->data + at);
	const char *simple = c && c < 0x80 ? strchr(from, (int)c) : NULL;
	if (simple || c == (unsigned char)quote)
		room[1] = simple ? to[simple - from] : quote;
	else if (char_prints(c))
		return build_part(b, t, at, at + n);
	else
		snprintf(room, sizeof room, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
	return build_put(b, room, strlen(room), text_input_at(t, at));
}

static enum err repr_text(struct run *r, struct build *b, const struct text *t)
{
	char quote = memchr(t->data, '\'', t->bytes) && !memchr(t->data, '"', t->bytes) ? '"' : '\'';
	TRY(run_steps(r, t->bytes / 4));
	TRY(build_put(b, &quote, 1, t->input));
	for (size_t at = 0, n; at < t->bytes; at += n) {
		n = utf8_length((unsigned char)t->data[at]);
		TRY(repr_char(b, t, at, n, quote));
	}
	return build_put(b, &quote, 1, t->input);
}

static enum err repr_list(struct run *r, struct build *b, struct value v, int depth)
{
	const struct list *l = v.list;
	bool tuple = l->form == LIST_TUPLE;
	if (l->form == LIST_GENERATOR || l->form == LIST_RANGE)
		return run_fault(r, ERR_WORK, "%s is written out; |list makes a list of it", value_type(v));
	TRY(build_put(b, l->form == LIST_VIEW ? "dict_items([" : tuple ? "(" : "[", l->form == LIST_VIEW ? 12 : 1, v.input));
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			TRY(build_put(b, ", ", 2, v.input));
		TRY(build_repr(r, b, l->items[i], depth + 1));
	}
	if (tuple && l->n == 1)
		TRY(build_put(b, ",", 1, v.input));
	return build_put(b, l->form == LIST_VIEW ? "])" : tuple ? ")" : "]", l->form == LIST_VIEW ? 2 : 1, v.input);
}

static enum err repr_dict(struct run *r, struct build *b, struct value v, int depth)
{
	TRY(build_put(b, "{", 1, v.input));
	for (size_t i = 0; i < v.dict->n; i++) {
		if (i)
			TRY(build_put(b, ", ", 2, v.input));
		TRY(build_repr(r, b, v.dict->pairs[i].key, depth + 1));
		TRY(build_put(b, ": ", 2, v.input));
		TRY(build_repr(r, b, v.dict->pairs[i].value, depth + 1));
	}
	return build_put(b, "}", 1, v.input);
}

enum err build_repr(struct run *r, struct build *b, struct value v, int depth)
{
	TRY(run_steps(r, 1));
	if (depth > MAX_VALUE_DEPTH)
		return run_fault(r, ERR_WORK, "more than %d lists and dictionaries inside each other", MAX_VALUE_DEPTH);
	switch (v.kind) {
	case V_NONE: return build_put(b, "None", 4, v.input);
	case V_BOOL: return build_put(b, v.yes ? "True" : "False", v.yes ? 4 : 5, v.input);
	case V_INT:
	case V_REAL: return build_number(b, v);
	case V_TEXT: return repr_text(r, b, v.text);
	case V_LIST: return repr_list(r, b, v, depth);
	case V_DICT: return repr_dict(r, b, v, depth);
	case V_UNDEFINED: return build_words(b, "Undefined");
	default: return run_fault(r, ERR_WORK, "%s is written out", value_type(v));
	}
}

enum err build_value(struct run *r, struct build *b, struct value v)
{
	if (v.kind == V_TEXT)
		return build_text(b, v.text);
	return v.kind == V_UNDEFINED ? ERR_OK : build_repr(r, b, v, 0);
}

enum err value_to_text(struct run *r, struct value v, const struct text **out)
{
	struct build b = { .room = &r->room };
	struct value made;
	if (v.kind == V_TEXT) {
		*out = v.text;
		return ERR_OK;
	}
	TRY(build_value(r, &b, v));
	TRY(build_done(&b, &made));
	*out = made.text;
	return ERR_OK;
}

/* -- JSON ----------------------------------------------------------------------------------------------------------- */

static enum err json_text(struct run *r, struct build *b, const struct text *t, bool ascii)
{
	static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
	size_t done = 0;
	TRY(run_steps(r, t->bytes / 16));
	TRY(build_put(b, "\"", 1, t->input));
	for (size_t at = 0, n; at < t->bytes; at += n) {
		char room[16] = "\\";
		unsigned char c = (unsigned char)t->data[at];
		const char *simple = c && c < 0x80 ? strchr(from, c) : NULL;
		n = utf8_length(c);
		if (!simple && c >= 0x20 && (c < 0x7f || !ascii))
			continue;
		uint32_t code = utf8_decode(t->data + at);
		if (simple)
			room[1] = to[simple - from];
		else if (c == 0x7f)
			continue;
		else if (code < 0x10000)
			snprintf(room, sizeof room, "\\u%04x", (unsigned)code);
		else
			snprintf(room, sizeof room, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (code >> 10)), (unsigned)(0xdc00 | (code & 0x3ff)));
		TRY(build_part(b, t, done, at));
		TRY(build_put(b, room, strlen(room), text_input_at(t, at)));
		done = at + n;
	}
	TRY(build_part(b, t, done, t->bytes));
	return build_put(b, "\"", 1, t->input);
}

static enum err json_break(struct build *b, const struct json_style *s, int depth, bool input)
{
	if (!s->has_indent)
		return ERR_OK;
	TRY(build_put(b, "\n", 1, input));
	for (int64_t i = 0; i < s->indent * depth; i++)
		TRY(build_put(b, " ", 1, input));
	return ERR_OK;
}

/* A comma and a colon are the writer's; they count as foreign where what they stand in is. */
static enum err json_mark(struct build *b, const struct text *mark, bool input)
{
	return build_put(b, mark->data, mark->bytes, input || mark->input);
}

static enum err json_list(struct run *r, struct build *b, struct value v, const struct json_style *s, int depth)
{
	if (v.list->form != LIST_PLAIN && v.list->form != LIST_TUPLE)
		return run_fault(r, ERR_WORK, "%s cannot be written as JSON", value_type(v));
	TRY(build_put(b, "[", 1, v.input));
	for (size_t i = 0; i < v.list->n; i++) {
		if (i)
			TRY(json_mark(b, s->comma, v.input));
		TRY(json_break(b, s, depth + 1, v.input));
		TRY(build_json(r, b, v.list->items[i], s, depth + 1));
	}
	if (v.list->n)
		TRY(json_break(b, s, depth, v.input));
	return build_put(b, "]", 1, v.input);
}

static enum err json_key(struct run *r, struct build *b, struct value key, const struct json_style *s)
{
	if (key.kind == V_TEXT)
		return json_text(r, b, key.text, s->ascii);
	if (key.kind == V_LIST || key.kind == V_UNDEFINED)
		return run_fault(r, ERR_WORK, "%s cannot be a key in JSON", value_type(key));
	TRY(build_put(b, "\"", 1, key.input));
	TRY(build_json(r, b, key, s, 0));
	return build_put(b, "\"", 1, key.input);
}

static enum err sorted_pairs(struct run *r, const struct dict *d, const struct pair **out)
{
	struct pair *p;
	TRY(ROOM_NEW(&r->room, d->n ? d->n : 1, struct pair, &p));
	for (size_t i = 0; i < d->n; i++) {
		size_t at = i;
		for (; at; at--) {   /* by insertion: stable, and keys are few */
			bool less;
			TRY(run_steps(r, 1));
			TRY(value_less(r, d->pairs[i].key, p[at - 1].key, &less));
			if (!less)
				break;
			p[at] = p[at - 1];
		}
		p[at] = d->pairs[i];
	}
	*out = p;
	return ERR_OK;
}

static enum err json_dict(struct run *r, struct build *b, struct value v, const struct json_style *s, int depth)
{
	const struct pair *pairs = v.dict->pairs;
	if (s->sort)
		TRY(sorted_pairs(r, v.dict, &pairs));
	TRY(build_put(b, "{", 1, v.input));
	for (size_t i = 0; i < v.dict->n; i++) {
		if (i)
			TRY(json_mark(b, s->comma, v.input));
		TRY(json_break(b, s, depth + 1, v.input));
		TRY(json_key(r, b, pairs[i].key, s));
		TRY(json_mark(b, s->colon, v.input));
		TRY(build_json(r, b, pairs[i].value, s, depth + 1));
	}
	if (v.dict->n)
		TRY(json_break(b, s, depth, v.input));
	return build_put(b, "}", 1, v.input);
}

enum err build_json(struct run *r, struct build *b, struct value v, const struct json_style *s, int depth)
{
	TRY(run_steps(r, 1));
	if (depth > MAX_VALUE_DEPTH)
		return run_fault(r, ERR_WORK, "more than %d lists and dictionaries inside each other", MAX_VALUE_DEPTH);
	switch (v.kind) {
	case V_NONE: return build_put(b, "null", 4, v.input);
	case V_BOOL: return build_put(b, v.yes ? "true" : "false", v.yes ? 4 : 5, v.input);
	case V_INT: return build_number(b, v);
	case V_REAL:
		if (isnan(v.d) || isinf(v.d))
			return build_put(b, isnan(v.d) ? "NaN" : v.d < 0 ? "-Infinity" : "Infinity", isnan(v.d) ? 3 : v.d < 0 ? 9 : 8, v.input);
		return build_number(b, v);
	case V_TEXT: return json_text(r, b, v.text, s->ascii);
	case V_LIST: return json_list(r, b, v, s, depth);
	case V_DICT: return json_dict(r, b, v, s, depth);
	default: return run_fault(r, ERR_WORK, "%s cannot be written as JSON", value_type(v));
	}
}

/* -- format strings ------------------------------------------------------------------------------------------------- */

/* One field: flags, width, precision and kind as in printf. */
struct field { bool left, zero, plus, space; int64_t width, precision; char kind; };

enum { MAX_WIDTH = 200 };

static enum err put_padded(struct build *b, const struct text *t, const struct field *f)
{
	int64_t pad = f->width - text_chars(t);
	for (int64_t i = 0; i < pad && !f->left; i++)
		TRY(build_put(b, " ", 1, false));
	TRY(build_text(b, t));
	for (int64_t i = 0; i < pad && f->left; i++)
		TRY(build_put(b, " ", 1, false));
	return ERR_OK;
}

/* The formats are made here, of a few flags and one kind. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static enum err put_field_number(struct run *r, struct build *b, struct value v, const struct field *f)
{
	char format[40], room[MAX_WIDTH * 3 + 400];
	bool whole = strchr("dixXo", f->kind) != NULL;
	if (!is_number(v))
		return run_fault(r, ERR_WORK, "%%%c of a format wants a number, not %s", f->kind, value_type(v));
	if (whole && v.kind == V_REAL && !(fabs(v.d) < 9e18))
		return run_fault(r, ERR_WORK, "a number is too large for an integer");
	snprintf(format, sizeof format, "%%%s%s%s%s*", f->left ? "-" : "", f->zero ? "0" : "", f->plus ? "+" : "", f->space ? " " : "");
	size_t n = strlen(format);
	if (whole) {
		snprintf(format + n, sizeof format - n, "ll%c", f->kind == 'i' ? 'd' : f->kind);
		snprintf(room, sizeof room, format, (int)f->width, v.kind == V_REAL ? (long long)v.d : (long long)whole_of(v));
	} else {
		snprintf(format + n, sizeof format - n, ".*%c", f->kind);
		snprintf(room, sizeof room, format, (int)f->width, f->precision < 0 ? 6 : (int)f->precision, real_of(v));
	}
	return build_put(b, room, strlen(room), v.input);
}
#pragma GCC diagnostic pop

static enum err put_field(struct run *r, struct build *b, struct value v, const struct field *f)
{
	const struct text *t;
	struct value cut;
	if (f->kind != 's' && f->kind != 'r')
		return put_field_number(r, b, v, f);
	if (f->kind == 'r') {
		struct build repr = { .room = &r->room };
		TRY(build_repr(r, &repr, v, 0));
		TRY(build_done(&repr, &v));
	}
	TRY(value_to_text(r, v, &t));
	if (f->precision >= 0) {
		TRY(get_slice(r, value_text(t), value_none(), value_int(f->precision), value_none(), &cut));
		t = cut.text;
	}
	return put_padded(b, t, f);
}

static int64_t read_number(const struct text *t, size_t *at, int64_t fallback)
{
	int64_t n = 0;
	if (*at >= t->bytes || t->data[*at] < '0' || t->data[*at] > '9')
		return fallback;
	for (; *at < t->bytes && t->data[*at] >= '0' && t->data[*at] <= '9'; (*at)++)
		n = n > MAX_WIDTH ? n : n * 10 + (t->data[*at] - '0');
	return n;
}

/* At: behind the % or the colon. Leaves it behind the kind. */
static enum err read_field(struct run *r, const struct text *t, size_t *at, struct field *f)
{
	*f = (struct field){ .precision = -1 };
	for (bool more = true; more && *at < t->bytes; *at += more)
		switch (t->data[*at]) {
		case '-':
		case '<': f->left = true; break;
		case '>': break;
		case '0': f->zero = true; break;
		case '+': f->plus = true; break;
		case ' ': f->space = true; break;
		default: more = false;
		}
	f->width = read_number(t, at, 0);
	if (*at < t->bytes && t->data[*at] == '.') {
		(*at)++;
		f->precision = read_number(t, at, 0);
	}
	if (f->width > MAX_WIDTH || f->precision > MAX_WIDTH)
		return run_fault(r, ERR_WORK, "a format wider than %d", MAX_WIDTH);
	f->kind = *at < t->bytes ? t->data[(*at)++] : 0;
	if (!f->kind || !strchr("srdixXofFeEgG", f->kind))
		return run_fault(r, ERR_MODEL, "this kind of field in a format string is not supported");
	return ERR_OK;
}

enum err text_format(struct run *r, const struct text *format, struct value with, struct value *out)
{
	struct build b = { .room = &r->room };
	const struct list *l = with.kind == V_LIST && with.list->form == LIST_TUPLE ? with.list : NULL;
	size_t n = l ? l->n : 1, next = 0;
	for (size_t at = 0; at < format->bytes;) {
		const char *mark = memchr(format->data + at, '%', format->bytes - at);
		size_t end = mark ? (size_t)(mark - format->data) : format->bytes;
		struct field f;
		TRY(run_steps(r, 1));
		TRY(build_part(&b, format, at, end));
		at = end + 1;
		if (!mark)
			break;
		if (at < format->bytes && format->data[at] == '%') {
			TRY(build_part(&b, format, at, at + 1));
			at++;
			continue;
		}
		TRY(read_field(r, format, &at, &f));
		if (next == n)
			return run_fault(r, ERR_WORK, "a format string has more fields than values");
		TRY(put_field(r, &b, l ? l->items[next] : with, &f));
		next++;
	}
	if (next < n && (l || (with.kind != V_DICT && with.kind != V_LIST && with.kind != V_UNDEFINED)))   /* as Python counts */
		return run_fault(r, ERR_WORK, "a format string has fewer fields than values");
	return build_done(&b, out);
}

enum { NUMBERED = -1 };
/* "{}", "{0}" or "{name}", maybe with ":" and a field. at: behind the brace. next: how many fields without a number there were,
 * or NUMBERED. */
static enum err put_braces(struct run *r, struct build *b, const struct text *t, size_t *at, const struct arguments *a, int64_t *next)
{
	const struct value *v = NULL;
	struct field f = { .precision = -1, .kind = 's' };
	size_t begin = *at;
	while (*at < t->bytes && t->data[*at] != '}' && t->data[*at] != ':')
		(*at)++;
	size_t n = *at - begin, number_at = begin;
	int64_t number = read_number(t, &number_at, -1);
	if ((number >= 0 && *next > 0) || (!n && *next == NUMBERED))
		return run_fault(r, ERR_WORK, "a format string has fields with and without numbers");
	if (number >= 0)
		*next = NUMBERED;
	else if (!n)
		number = (*next)++;
	if (number >= 0 && (!n || number_at == *at))
		v = (size_t)number < a->n ? &a->items[number] : NULL;
	for (size_t i = 0; i < a->n_named && number < 0; i++)
		if (strlen(a->named[i].name) == n && !memcmp(a->named[i].name, t->data + begin, n))
			v = &a->named[i].value;
	if (!v)
		return run_fault(r, ERR_WORK, "a field of a format string names no value");
	if (*at < t->bytes && t->data[*at] == ':') {
		(*at)++;
		TRY(read_field(r, t, at, &f));
		f.left = f.left || f.kind == 's';
	}
	if (*at >= t->bytes || t->data[(*at)++] != '}')
		return run_fault(r, ERR_MODEL, "this field of a format string is not supported");
	return put_field(r, b, *v, &f);
}

enum err text_format_braces(struct run *r, const struct text *format, const struct arguments *a, struct value *out)
{
	struct build b = { .room = &r->room };
	int64_t next = 0;
	for (size_t at = 0, done = 0; at <= format->bytes; at++) {
		char c = at < format->bytes ? format->data[at] : 0;
		if (at == format->bytes || c == '{' || c == '}')
			TRY(build_part(&b, format, done, at));
		else
			continue;
		TRY(run_steps(r, 1));
		done = at + 1;
		if (at + 1 < format->bytes && format->data[at + 1] == c) {
			done = ++at;   /* "{{" is a brace */
		} else if (c == '{') {
			at++;
			TRY(put_braces(r, &b, format, &at, a, &next));
			done = at--;
		} else if (c == '}') {
			return run_fault(r, ERR_WORK, "a single \"}\" in a format string");
		}
	}
	return build_done(&b, out);
}
