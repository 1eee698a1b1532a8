/* Work on text; each keeps for every byte where it came from. Positions count characters, as in Python. */
#include "runtime/template_parts.h"
#include "runtime/characters.h"

#include <string.h>

int64_t text_chars(const struct text *t)
{
	int64_t n = 0;
	for (size_t i = 0; i < t->bytes; i++)
		n += ((unsigned char)t->data[i] & 0xc0) != 0x80;
	return n;
}

/* -- case ----------------------------------------------------------------------------------------------------------- */

static bool is_cased(uint32_t c) { return char_to_lower(c) != c || char_to_upper(c) != c; }

/* Where jinja2's title filter begins a word anew: behind - white space ( { [ < */
static bool begins_word(uint32_t c) { return char_is_space(c) || (c && c < 0x80 && strchr("-({[<", (int)c)); }

static enum err put_char(struct build *b, uint32_t c, bool upper, bool title, bool input)
{
	char room[4];
	if (c == 0xdf && upper)   /* the one common letter whose upper case is two */
		return build_put(b, title ? "Ss" : "SS", 2, input);
	c = title ? char_to_title(c) : upper ? char_to_upper(c) : char_to_lower(c);
	return build_put(b, room, utf8_encode(c, room), input);
}

enum err text_to_case(struct run *r, const struct text *t, enum text_case to, struct value *out)
{
	struct build b = { .room = &r->room };
	bool first = true;   /* the next character begins a word */
	TRY(run_steps(r, t->bytes / 4));
	for (size_t at = 0, n; at < t->bytes; at += n) {
		uint32_t c = utf8_decode(t->data + at);
		n = utf8_length((unsigned char)t->data[at]);
		bool title = first && (to == CASE_TITLE || to == CASE_CAPITALIZE || to == CASE_TITLE_FILTER);
		TRY(put_char(&b, c, to == CASE_UPPER || title, title, text_input_at(t, at)));
		first = to == CASE_TITLE ? !is_cased(c) : to == CASE_TITLE_FILTER && begins_word(c);
	}
	TRY(build_done(&b, out));
	return ERR_OK;
}

/* -- searching ------------------------------------------------------------------------------------------------------ */

bool text_find(const struct text *t, const struct text *what, size_t from, size_t *at)
{
	if (from > t->bytes)
		return false;
	const char *found = what->bytes ? memmem(t->data + from, t->bytes - from, what->data, what->bytes) : t->data + from;
	if (found)
		*at = (size_t)(found - t->data);
	return found != NULL;
}

static bool is_stripped(const struct text *chars, const char *c)
{
	if (!chars)
		return char_is_space(utf8_decode(c)) || (*c >= 0x1c && *c <= 0x1f);
	size_t n = utf8_length((unsigned char)*c);
	for (size_t at = 0; at < chars->bytes; at += utf8_length((unsigned char)chars->data[at]))
		if (chars->bytes - at >= n && !memcmp(chars->data + at, c, n))
			return true;
	return false;
}

enum err text_strip(struct run *r, const struct text *t, const struct text *chars, bool left, bool right, struct value *out)
{
	size_t begin = 0, end = t->bytes;
	const uint64_t price = 1 + (chars ? chars->bytes / 8 : 0);   /* of a look at one character */
	while (left && begin < end && is_stripped(chars, t->data + begin)) {
		begin += utf8_length((unsigned char)t->data[begin]);
		TRY(run_steps(r, price));
	}
	while (right && end > begin) {
		const char *c = utf8_before(t->data + begin, t->data + end);
		if (!is_stripped(chars, c))
			break;
		end = (size_t)(c - t->data);
		TRY(run_steps(r, price));
	}
	return text_part(r, t, begin, end, out);
}

/* n < 0: all. An empty `from` stands between all characters. */
enum err text_replace(struct run *r, const struct text *t, const struct text *from, const struct text *to, int64_t n,
		      struct value *out)
{
	struct build b = { .room = &r->room };
	size_t done = 0, at = 0, from_at = 0;
	for (; n && text_find(t, from, from_at, &at); n -= n > 0) {
		TRY(build_part(&b, t, done, at));
		TRY(build_text(&b, to));
		TRY(run_steps(r, 1 + to->bytes / 64));
		done = at + from->bytes;
		from_at = done;
		if (!from->bytes) {
			if (at == t->bytes)
				break;
			from_at = at + utf8_length((unsigned char)t->data[at]);
		}
	}
	TRY(build_part(&b, t, done, t->bytes));
	TRY(run_steps(r, t->bytes / 64));
	return build_done(&b, out);
}

/* -- splitting ------------------------------------------------------------------------------------------------------ */

static enum err put_part(struct run *r, struct list *l, const struct text *t, size_t begin, size_t end)
{
	struct value v;
	TRY(run_steps(r, 1));
	TRY(text_part(r, t, begin, end, &v));
	return list_put(r, l, v);
}

/* At runs of white space; none at the ends. */
static enum err split_at_space(struct run *r, const struct text *t, int64_t n, struct list *l)
{
	for (size_t at = 0; at < t->bytes;) {
		size_t begin, end;
		while (at < t->bytes && is_stripped(NULL, t->data + at))
			at += utf8_length((unsigned char)t->data[at]);
		begin = end = at;
		if (begin == t->bytes)
			break;
		if (n == 0)
			return put_part(r, l, t, begin, t->bytes);
		while (end < t->bytes && !is_stripped(NULL, t->data + end))
			end += utf8_length((unsigned char)t->data[end]);
		TRY(put_part(r, l, t, begin, end));
		at = end;
		n -= n > 0;
	}
	return ERR_OK;
}

static void reverse(struct list *l)
{
	for (size_t i = 0, j = l->n; i + 1 < j; i++) {
		struct value v = l->items[i];
		l->items[i] = l->items[--j];
		l->items[j] = v;
	}
}

static enum err split_from_right(struct run *r, const struct text *t, const struct text *by, int64_t n, struct list *l)
{
	size_t end = t->bytes;
	for (size_t at = t->bytes; n && at-- > 0;) {
		if (end - at < by->bytes || t->data[at] != by->data[0])
			continue;
		TRY(run_steps(r, 1 + by->bytes / 64));
		if (memcmp(t->data + at, by->data, by->bytes))
			continue;
		TRY(put_part(r, l, t, at + by->bytes, end));
		end = at;
		n -= n > 0;
	}
	TRY(put_part(r, l, t, 0, end));
	reverse(l);
	return ERR_OK;
}

/* by NULL: white space; n < 0: no limit */
enum err text_split(struct run *r, const struct text *t, const struct text *by, int64_t n, bool from_right, struct value *out)
{
	struct list *l;
	size_t done = 0, at;
	TRY(list_new(r, LIST_PLAIN, 0, &l));
	*out = value_list(l);
	TRY(run_steps(r, t->bytes / 8));
	if (by && !by->bytes)
		return run_fault(r, ERR_WORK, "a string cannot be split at an empty string");
	if (!by && from_right && n >= 0)
		return run_fault(r, ERR_MODEL, "rsplit at white space with a limit is not supported");
	if (!by)
		return split_at_space(r, t, n, l);
	if (from_right)
		return split_from_right(r, t, by, n, l);
	for (; n && text_find(t, by, done, &at); n -= n > 0) {
		TRY(put_part(r, l, t, done, at));
		done = at + by->bytes;
	}
	return put_part(r, l, t, done, t->bytes);
}

/* -- lines, and HTML ------------------------------------------------------------------------------------------------ */

/* Jinja's indent: lines end at \n (and what else Python takes for one) and come back joined by \n. */
enum err text_indent(struct run *r, const struct text *t, const struct text *by, bool first, bool blank, struct value *out)
{
	struct build b = { .room = &r->room };
	if (first)
		TRY(build_text(&b, by));
	for (size_t at = 0; at <= t->bytes;) {
		const char *newline = at < t->bytes ? memchr(t->data + at, '\n', t->bytes - at) : NULL;
		size_t end = newline ? (size_t)(newline - t->data) : t->bytes;
		if (at && (blank || end > at))
			TRY(build_text(&b, by));
		TRY(run_steps(r, 1 + by->bytes / 64));
		TRY(build_part(&b, t, at, newline ? end + 1 : end));
		if (!newline)
			break;
		at = end + 1;
	}
	return build_done(&b, out);
}

enum err text_escape(struct run *r, const struct text *t, struct value *out)
{
	static const char from[] = "&<>\"'";
	static const char *const to[] = { "&amp;", "&lt;", "&gt;", "&#34;", "&#39;" };
	struct build b = { .room = &r->room };
	struct text *markup;
	TRY(run_steps(r, t->bytes / 8));
	for (size_t i = 0; i < t->bytes; i++) {
		const char *special = t->data[i] ? strchr(from, t->data[i]) : NULL;
		if (special)
			TRY(build_put(&b, to[special - from], strlen(to[special - from]), text_input_at(t, i)));
		else
			TRY(build_part(&b, t, i, i + 1));
	}
	TRY(build_done(&b, out));
	TRY(ROOM_NEW(&r->room, 1, struct text, &markup));
	*markup = *out->text;
	markup->markup = true;
	*out = value_text(markup);
	return ERR_OK;
}
