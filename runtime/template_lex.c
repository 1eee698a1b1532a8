/* Text to tokens. White space is handled as in jinja2/lexer.py with trim_blocks and lstrip_blocks, which is what chat
 * templates are written for: a newline behind a block goes, and so does white space before a block that begins its line;
 * "-" takes all white space on its side, "+" keeps it. */
#include "runtime/template_parts.h"
#include "runtime/characters.h"

#include <errno.h>
#include <string.h>

struct lexer {
	struct template *t;
	const char *s;
	size_t n, at;
	bool line_starting;            /* what was lexed last ended with a newline */
	struct lexemes *out;
	char brackets[MAX_NESTING];
	int n_brackets;
};

static enum err put(struct lexer *l, struct lexeme token)
{
	struct lexemes *o = l->out;
	if (o->n == o->capacity) {
		size_t more = o->capacity ? 2 * o->capacity : 256;
		TRY(mem_grow(&o->items, more, sizeof *o->items, "tokens of a template"));
		o->capacity = more;
	}
	o->items[o->n++] = token;
	return ERR_OK;
}

static bool is_at(const struct lexer *l, const char *word)
{
	size_t n = strlen(word);
	return l->n - l->at >= n && !memcmp(l->s + l->at, word, n);
}

/* Python's str.isspace: Unicode's white space and the four separators of ASCII. */
static bool is_space_at(const char *s) { return char_is_space(utf8_decode(s)) || (*s >= 0x1c && *s <= 0x1f); }

static size_t skip_space(const struct lexer *l, size_t at)
{
	while (at < l->n && is_space_at(l->s + at))
		at += utf8_length((unsigned char)l->s[at]);
	return at;
}

static size_t strip_right(const char *s, size_t begin, size_t end)
{
	while (end > begin) {
		const char *c = utf8_before(s + begin, s + end);
		if (!is_space_at(c))
			break;
		end = (size_t)(c - s);
	}
	return end;
}

/* The end of text begin..end before a tag with this sign. */
static size_t strip_before(const struct lexer *l, size_t begin, size_t end, char sign, bool is_output)
{
	if (sign == '-')
		return strip_right(l->s, begin, end);
	if (sign == '+' || is_output)
		return end;
	size_t line = end;
	while (line > begin && l->s[line - 1] != '\n')
		line--;
	if ((line == begin && !l->line_starting) || line == end)
		return end;
	for (size_t at = line; at < end; at += utf8_length((unsigned char)l->s[at]))
		if (!is_space_at(l->s + at))
			return end;
	return line;
}

/* Goes behind a closing tag, "%}" or the like; sign: what stands before it. */
static void after_tag(struct lexer *l, char sign, bool trims)
{
	l->at += 2;
	if (sign == '-')
		l->at = skip_space(l, l->at);
	else if (trims && sign != '+' && l->at < l->n && l->s[l->at] == '\n')
		l->at++;
	l->line_starting = l->s[l->at - 1] == '\n';
}

static enum err put_data(struct lexer *l, size_t begin, size_t end)
{
	if (begin == end)
		return ERR_OK;
	bytes_put(&l->t->literals, l->s + begin, end - begin);
	bytes_put(&l->t->literals, "", 1);
	TRY(l->t->literals.error);
	return put(l, (struct lexeme){ .kind = T_DATA, .at = (uint32_t)begin, .text = l->s + begin, .bytes = end - begin });
}

/* -- inside a tag --------------------------------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static int digit_of(char c)
{
	return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

static enum err lex_escape(struct lexer *l, size_t *at, size_t end, struct build *b)
{
	static const char from[] = "\n\\'\"abfnrtv", to[] = "\0\\'\"\a\b\f\n\r\t\v";
	char c = l->s[*at], room[4];
	const char *simple = c ? strchr(from, c) : NULL;
	if (simple) {
		(*at)++;
		return build_put(b, to + (simple - from), c != '\n', false);
	}
	int n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
	uint32_t code = 0;
	if (!n && digit_of(c) > 7)   /* no escape: the backslash stays */
		return c == 'N' ? template_fault(l->t, (uint32_t)*at, ERR_MODEL, "\\N{...} in a string is not supported")
				: build_put(b, "\\", 1, false);
	if (n) {
		(*at)++;
		for (int i = 0; i < n; i++, (*at)++) {
			if (*at >= end || digit_of(l->s[*at]) > 15)
				return template_fault(l->t, (uint32_t)*at, ERR_MODEL, "\\%c in a string wants %d hexadecimal digits",
						      c, n);
			code = code << 4 | (uint32_t)digit_of(l->s[*at]);
		}
	} else {
		for (int i = 0; i < 3 && *at < end && digit_of(l->s[*at]) < 8; i++)
			code = code << 3 | (uint32_t)digit_of(l->s[(*at)++]);
	}
	if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return template_fault(l->t, (uint32_t)*at, ERR_MODEL, "U+%X in a string is no character", (unsigned)code);
	return build_put(b, room, utf8_encode(code, room), false);
}

static enum err lex_string(struct lexer *l)
{
	size_t begin = l->at++, end = l->at;
	char quote = l->s[begin];
	struct build b = { .room = &l->t->room };
	struct value v;
	while (end < l->n && l->s[end] != quote)
		end += l->s[end] == '\\' && end + 1 < l->n ? 2 : 1;
	if (end >= l->n)
		return template_fault(l->t, (uint32_t)begin, ERR_MODEL, "a string has no end");
	while (l->at < end) {
		const char *slash = memchr(l->s + l->at, '\\', end - l->at);
		size_t n = slash ? (size_t)(slash - l->s) - l->at : end - l->at;
		TRY(build_put(&b, l->s + l->at, n, false));
		l->at += n + (slash != NULL);
		if (slash)
			TRY(lex_escape(l, &l->at, end, &b));
	}
	l->at = end + 1;
	TRY(build_done(&b, &v));
	bytes_put(&l->t->literals, v.text->data, v.text->bytes);
	bytes_put(&l->t->literals, "", 1);
	TRY(l->t->literals.error);
	return put(l, (struct lexeme){ .kind = T_TEXT, .at = (uint32_t)begin, .text = v.text->data, .bytes = v.text->bytes });
}

/* Digits with single underscores between them, copied without. */
static size_t copy_digits(const struct lexer *l, size_t at, int base, char *room, size_t *n)
{
	while (at < l->n) {
		bool under = l->s[at] == '_' && at + 1 < l->n && digit_of(l->s[at + 1]) < base;
		if (!under && digit_of(l->s[at]) >= base)
			break;
		if (!under && *n < 60)
			room[(*n)++] = l->s[at];
		at++;
	}
	return at;
}

static enum err lex_number(struct lexer *l)
{
	char room[64] = "", mark = l->n - l->at > 1 && l->s[l->at] == '0' ? (char)(l->s[l->at + 1] | 0x20) : 0;
	int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
	size_t begin = l->at, n = 0, at = copy_digits(l, l->at + (base == 10 ? 0 : 2), base, room, &n);
	struct lexeme token = { .kind = T_INT, .at = (uint32_t)begin };
	bool is_index = begin && l->s[begin - 1] == '.';   /* x.0.1 */
	if (base == 10 && !is_index && at + 1 < l->n && l->s[at] == '.' && is_digit(l->s[at + 1])) {
		token.kind = T_REAL;
		room[n++] = '.';
		at = copy_digits(l, at + 1, 10, room, &n);
	}
	if (base == 10 && !is_index && at < l->n && (l->s[at] | 0x20) == 'e') {
		size_t digits = at + 1 + (at + 1 < l->n && (l->s[at + 1] == '-' || l->s[at + 1] == '+'));
		if (digits < l->n && is_digit(l->s[digits])) {
			token.kind = T_REAL;
			room[n++] = 'e';
			room[n++] = l->s[at + 1] == '-' ? '-' : '+';
			at = copy_digits(l, digits, 10, room, &n);
		}
	}
	l->at = at;
	errno = 0;
	if (token.kind == T_REAL)
		token.d = strtod(room, NULL);
	else
		token.i = strtoll(room, NULL, base);
	if (n >= 60 || (token.kind == T_INT && errno))
		return template_fault(l->t, (uint32_t)begin, ERR_MODEL, "a number is too large");
	return put(l, token);
}

static enum err lex_operator(struct lexer *l)
{
	static const struct { char text[3]; int op; } two[] = { { "==", OP_EQ }, { "!=", OP_NE }, { ">=", OP_GE },
		{ "<=", OP_LE }, { "//", OP_FLOOR }, { "**", OP_POWER } };
	static const char one[] = "+-/*%~[](){}<>=.:|,;", open[] = "([{", close[] = ")]}";
	struct lexeme token = { .kind = T_OP, .at = (uint32_t)l->at };
	for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
		if (is_at(l, two[i].text))
			token.op = two[i].op;
	char c = l->s[l->at];
	if (!token.op && (!c || !strchr(one, c)))
		return template_fault(l->t, token.at, ERR_MODEL, (unsigned char)c < 0x80 && c > ' ' ?
				      "unexpected character \"%c\"" : "unexpected character of byte 0x%02x", (unsigned char)c);
	l->at += token.op ? 2 : 1;
	token.op = token.op ? token.op : c;
	const char *o = strchr(open, token.op), *e = strchr(close, token.op);
	if (o && token.op < 128) {
		if (l->n_brackets == MAX_NESTING)
			return template_fault(l->t, token.at, ERR_MODEL, "more than %d brackets inside each other", MAX_NESTING);
		l->brackets[l->n_brackets++] = close[o - open];
	} else if (e && token.op < 128) {
		if (!l->n_brackets || l->brackets[--l->n_brackets] != c)
			return template_fault(l->t, token.at, ERR_MODEL, "\"%c\" closes nothing", c);
	}
	return put(l, token);
}

/* A tag's inside up to and with its end, "%}" or "}}". */
static enum err lex_tag(struct lexer *l, bool is_output, uint32_t begin)
{
	const char *end = is_output ? "}}" : "%}";
	for (;;) {
		l->at = skip_space(l, l->at);
		if (l->at >= l->n)
			return template_fault(l->t, begin, ERR_MODEL, "a tag has no \"%s\"", end);
		char sign = l->s[l->at];
		bool signed_end = (sign == '-' || (sign == '+' && !is_output)) && l->n - l->at > 2 && l->s[l->at + 1] == end[0] &&
				  l->s[l->at + 2] == end[1];
		if (!l->n_brackets && (signed_end || is_at(l, end))) {
			TRY(put(l, (struct lexeme){ .kind = is_output ? T_CLOSE_OUTPUT : T_CLOSE_BLOCK, .at = (uint32_t)l->at }));
			l->at += signed_end;
			after_tag(l, signed_end ? sign : 0, !is_output);
			return ERR_OK;
		}
		if (is_digit(sign)) {
			TRY(lex_number(l));
		} else if (sign == '"' || sign == '\'') {
			TRY(lex_string(l));
		} else if (is_letter(sign) || (unsigned char)sign >= 0x80) {
			size_t name = l->at;
			while (l->at < l->n && (is_letter(l->s[l->at]) || is_digit(l->s[l->at]) || (unsigned char)l->s[l->at] >= 0x80))
				l->at++;
			TRY(put(l, (struct lexeme){ .kind = T_NAME, .at = (uint32_t)name, .text = l->s + name, .bytes = l->at - name }));
		} else {
			TRY(lex_operator(l));
		}
	}
}

/* -- between tags --------------------------------------------------------------------------------------------------- */

static enum err lex_comment(struct lexer *l, uint32_t begin)
{
	const char *end = memmem(l->s + l->at, l->n - l->at, "#}", 2);
	if (!end)
		return template_fault(l->t, begin, ERR_MODEL, "a comment has no \"#}\"");
	char sign = end > l->s + l->at ? end[-1] : 0;
	l->at = (size_t)(end - l->s);
	after_tag(l, sign, true);
	return ERR_OK;
}

/* The place behind "{%", a sign, `word` and the end of the tag, or 0. */
static size_t word_tag(const struct lexer *l, size_t at, const char *word, char *end_sign)
{
	at += 2;
	at += at < l->n && (l->s[at] == '-' || l->s[at] == '+');
	at = skip_space(l, at);
	size_t n = strlen(word);
	if (l->n - at < n || memcmp(l->s + at, word, n))
		return 0;
	at = skip_space(l, at + n);
	*end_sign = at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : 0;
	at += *end_sign != 0;
	return l->n - at >= 2 && l->s[at] == '%' && l->s[at + 1] == '}' ? at : 0;
}

static enum err lex_raw(struct lexer *l, size_t close, char sign, uint32_t at)
{
	l->at = close;
	after_tag(l, sign, false);
	size_t begin = l->at;
	for (size_t tag = begin; tag + 1 < l->n; tag++) {
		if (l->s[tag] != '{' || l->s[tag + 1] != '%')
			continue;
		size_t end = word_tag(l, tag, "endraw", &sign);
		if (!end)
			continue;
		TRY(put_data(l, begin, strip_before(l, begin, tag, l->s[tag + 2], false)));
		l->at = end;
		after_tag(l, sign, true);
		return ERR_OK;
	}
	return template_fault(l->t, at, ERR_MODEL, "{%% raw %%} has no {%% endraw %%}");
}

static enum err lex_next(struct lexer *l)
{
	size_t begin = l->at, tag = begin;
	while (tag + 1 < l->n && !(l->s[tag] == '{' && (l->s[tag + 1] == '%' || l->s[tag + 1] == '{' || l->s[tag + 1] == '#')))
		tag++;
	if (tag + 1 >= l->n) {
		l->at = l->n;
		return put_data(l, begin, l->n);
	}
	char kind = l->s[tag + 1], sign = tag + 2 < l->n ? l->s[tag + 2] : 0, end_sign;
	bool has_sign = sign == '-' || sign == '+';
	uint32_t at = (uint32_t)tag;
	TRY(put_data(l, begin, strip_before(l, begin, tag, sign, kind == '{')));
	l->at = tag + 2 + has_sign;
	l->line_starting = false;
	if (kind == '#')
		return lex_comment(l, at);
	size_t raw = kind == '%' ? word_tag(l, tag, "raw", &end_sign) : 0;
	if (raw && end_sign != '+')
		return lex_raw(l, raw, end_sign, at);
	TRY(put(l, (struct lexeme){ .kind = kind == '{' ? T_OPEN_OUTPUT : T_OPEN_BLOCK, .at = at }));
	return lex_tag(l, kind == '{', at);
}

enum err template_lex(struct template *t, struct lexemes *out)
{
	struct lexer l = { .t = t, .s = t->source, .n = t->bytes, .line_starting = true, .out = out };
	while (l.at < l.n)
		TRY(lex_next(&l));
	return put(&l, (struct lexeme){ .kind = T_END, .at = (uint32_t)l.n });
}
