#include "runtime/grammar_json.h"

static uint32_t one(struct draft *d, uint32_t from, char c) { return draft_text(d, from, &c, 1); }

static void draft_space(struct draft *d, struct json_rules *r)
{
	uint32_t end = draft_state(d);
	r->space = draft_state(d);
	draft_accept(d, end);
	draft_bytes(d, r->space, ' ', ' ', end);
	for (int kind = 0; kind < 2; kind++) {
		int c = kind ? '\t' : ' ';
		uint32_t at = one(d, r->space, '\n');
		draft_accept(d, at);
		for (int i = 0; i < GRAMMAR_INDENT; i++) {
			uint32_t to = draft_state(d);
			draft_bytes(d, at, c, c, to);
			draft_accept(d, to);
			at = to;
		}
	}
}

uint32_t json_space(struct draft *d, const struct json_rules *r, uint32_t from)
{
	uint32_t to = draft_state(d);
	draft_empty(d, from, to);
	draft_call(d, from, r->space, to);
	return to;
}

uint32_t json_colon(struct draft *d, uint32_t from)
{
	uint32_t colon = one(d, from, ':'), to = one(d, colon, ' ');
	draft_empty(d, colon, to);
	return to;
}

static void hex(struct draft *d, uint32_t from, const char *digits, uint32_t to)
{
	for (; *digits; digits++) {
		draft_bytes(d, from, *digits, *digits, to);
		if (*digits >= 'a')
			draft_bytes(d, from, *digits - 32, *digits - 32, to);
	}
}

#define ANY_HEX "0123456789abcdef"

static uint32_t after_hex(struct draft *d, uint32_t from, const char *digits)
{
	uint32_t to = draft_state(d);
	hex(d, from, digits, to);
	return to;
}

/* \uXXXX from the u on: all characters but 0, and surrogates as pairs. */
static void draft_escape(struct draft *d, uint32_t from, uint32_t end)
{
	uint32_t two = draft_state(d), last = draft_state(d);
	hex(d, after_hex(d, from, "123456789abcef"), ANY_HEX, two);
	uint32_t zero = one(d, from, '0');
	hex(d, zero, "123456789abcdef", two);
	uint32_t zeros = one(d, zero, '0');
	hex(d, zeros, "123456789abcdef", last);
	hex(d, one(d, zeros, '0'), "123456789abcdef", end);
	uint32_t surrogate = after_hex(d, from, "d");
	hex(d, surrogate, "01234567", two);
	hex(d, two, ANY_HEX, last);
	hex(d, last, ANY_HEX, end);
	uint32_t high = after_hex(d, after_hex(d, after_hex(d, surrogate, "89ab"), ANY_HEX), ANY_HEX);
	uint32_t low = after_hex(d, after_hex(d, draft_text(d, high, "\\u", 2), "d"), "cdef");
	hex(d, after_hex(d, low, ANY_HEX), ANY_HEX, end);
}

/* Characters of two to four bytes (RFC 3629, section 4). */
static void draft_utf8(struct draft *d, uint32_t from, uint32_t end)
{
	static const struct { int lo, hi, lo2, hi2, tail; } forms[] = {
		{ 0xc2, 0xdf, 0x80, 0xbf, 0 }, { 0xe0, 0xe0, 0xa0, 0xbf, 1 }, { 0xe1, 0xec, 0x80, 0xbf, 1 }, { 0xed, 0xed, 0x80, 0x9f, 1 },
		{ 0xee, 0xef, 0x80, 0xbf, 1 }, { 0xf0, 0xf0, 0x90, 0xbf, 2 }, { 0xf1, 0xf3, 0x80, 0xbf, 2 }, { 0xf4, 0xf4, 0x80, 0x8f, 2 } };
	uint32_t tail[3] = { end, draft_state(d), draft_state(d) };
	draft_bytes(d, tail[1], 0x80, 0xbf, tail[0]);
	draft_bytes(d, tail[2], 0x80, 0xbf, tail[1]);
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		uint32_t second = draft_state(d);
		draft_bytes(d, from, forms[i].lo, forms[i].hi, second);
		draft_bytes(d, second, forms[i].lo2, forms[i].hi2, tail[forms[i].tail]);
	}
}

static void draft_characters(struct draft *d, struct json_rules *r)
{
	uint32_t end = draft_state(d);
	draft_accept(d, end);
	r->plain_character = draft_state(d);
	draft_utf8(d, r->plain_character, end);
	r->character = draft_state(d);
	draft_empty(d, r->character, r->plain_character);
	uint32_t escape = one(d, r->character, '\\');
	for (const char *c = "\"\\/bfnrt"; *c; c++)
		draft_bytes(d, escape, *c, *c, end);
	draft_escape(d, one(d, escape, 'u'), end);
}

void json_character(struct draft *d, const struct json_rules *r, uint32_t from, uint32_t to)
{
	draft_bytes(d, from, ' ', '!', to);
	draft_bytes(d, from, '#', '[', to);
	draft_bytes(d, from, ']', 0x7f, to);
	draft_call(d, from, r->character, to);
}

static uint32_t new_rule(struct draft *d, uint32_t *end)
{
	*end = draft_state(d);
	draft_accept(d, *end);
	return draft_state(d);
}

/* Characters of any length stay in one state each, instead of being calls: most text of most answers is read here. */
static void draft_string(struct draft *d, struct json_rules *r)
{
	uint32_t end, body;
	r->string = new_rule(d, &end);
	body = one(d, r->string, '"');
	draft_bytes(d, body, ' ', '!', body);
	draft_bytes(d, body, '#', '[', body);
	draft_bytes(d, body, ']', 0x7f, body);
	draft_utf8(d, body, body);
	uint32_t escape = one(d, body, '\\');
	for (const char *c = "\"\\/bfnrt"; *c; c++)
		draft_bytes(d, escape, *c, *c, body);
	draft_escape(d, one(d, escape, 'u'), body);
	draft_bytes(d, body, '"', '"', end);
}

static void draft_object(struct draft *d, const struct json_rules *r, uint32_t end)
{
	uint32_t open = json_space(d, r, one(d, r->object, '{')), key = draft_state(d), value = draft_state(d);
	draft_bytes(d, open, '}', '}', end);
	draft_call(d, open, r->string, key);
	draft_call(d, json_colon(d, key), r->value, value);
	draft_bytes(d, json_space(d, r, value), '}', '}', end);
	draft_call(d, json_space(d, r, one(d, value, ',')), r->string, key);
}

static void draft_array(struct draft *d, const struct json_rules *r, uint32_t end)
{
	uint32_t open = json_space(d, r, one(d, r->array, '[')), value = draft_state(d);
	draft_bytes(d, open, ']', ']', end);
	draft_call(d, open, r->value, value);
	draft_bytes(d, json_space(d, r, value), ']', ']', end);
	draft_call(d, json_space(d, r, one(d, value, ',')), r->value, value);
}

void json_rules_draft(struct draft *d, struct json_rules *r)
{
	uint32_t end, object_end, array_end;
	const struct json_bounds none = { JSON_NO_BOUND, JSON_NO_BOUND, 0, 0 };
	draft_space(d, r);
	draft_characters(d, r);
	draft_string(d, r);
	r->integer = new_rule(d, &end);
	json_integers(d, none, r->integer, end);
	r->number = new_rule(d, &end);
	json_reals(d, none, r->number, end);
	r->object = new_rule(d, &object_end);
	r->array = new_rule(d, &array_end);
	r->value = new_rule(d, &end);
	draft_object(d, r, object_end);
	draft_array(d, r, array_end);
	draft_call(d, r->value, r->object, end);
	draft_call(d, r->value, r->array, end);
	draft_call(d, r->value, r->string, end);
	draft_call(d, r->value, r->number, end);
	static const char *const words[] = { "true", "false", "null" };
	for (int i = 0; i < 3; i++) {
		uint32_t at = r->value;
		for (const char *c = words[i]; *c; c++)
			at = one(d, at, *c);
		draft_empty(d, at, end);
	}
}
