/* What the keywords of each type say. */
#include "runtime/json_schema_parts.h"

#include <inttypes.h>
#include <math.h>

static enum err read_count(const struct schema *c, json_t *s, const char *keyword, int64_t most, int64_t otherwise, int64_t *out)
{
	json_t *value = json_object_get(s, keyword);
	*out = otherwise;
	if (!value)
		return ERR_OK;
	double n = json_number_value(value);
	if (!json_is_number(value) || !(n >= 0) || n != floor(n))
		return schema_refuse(c, "\"%s\" must be a whole number, 0 or more", keyword);
	if (n > (double)most)
		return schema_refuse(c, "\"%s\" is %.0f, at most %" PRId64 " is supported", keyword, n, most);
	*out = (int64_t)n;
	return ERR_OK;
}

/* --- numbers --- */

/* The tighter one of two bounds below; `sign` -1: above, both turned round. */
static enum err read_bound(const struct schema *c, json_t *s, const char *keyword, int is_out, int is_integer, int sign, int64_t *at,
			   int *at_is_out)
{
	const double most = 4e18;
	json_t *value = json_object_get(s, keyword);
	if (!value)
		return ERR_OK;
	if (!json_is_number(value))
		return schema_refuse(c, "\"%s\" must be a number, found %s", keyword, json_type_name(value));
	double real = json_number_value(value) * sign;
	int64_t whole;
	if (json_is_integer(value) && fabs(real) < most) {
		whole = (int64_t)json_integer_value(value) * sign;
	} else {
		if (real != ceil(real) && !is_integer)
			return schema_refuse(c, "\"%s\" of a number must be whole; %g is not supported", keyword, json_number_value(value));
		is_out &= real == ceil(real);
		real = ceil(real);
		whole = (int64_t)(real > most ? most : real < -most ? -most : real);
	}
	if (*at == JSON_NO_BOUND || whole > *at || (whole == *at && is_out)) {
		*at = whole;
		*at_is_out = is_out;
	}
	return ERR_OK;
}

enum err schema_number(struct schema *c, json_t *s, int is_integer, uint32_t from, uint32_t to)
{
	struct json_bounds b = { JSON_NO_BOUND, JSON_NO_BOUND, 0, 0 };
	TRY(read_bound(c, s, "minimum", 0, is_integer, 1, &b.min, &b.min_is_out));
	TRY(read_bound(c, s, "exclusiveMinimum", 1, is_integer, 1, &b.min, &b.min_is_out));
	TRY(read_bound(c, s, "maximum", 0, is_integer, -1, &b.max, &b.max_is_out));
	TRY(read_bound(c, s, "exclusiveMaximum", 1, is_integer, -1, &b.max, &b.max_is_out));
	if (b.max != JSON_NO_BOUND)
		b.max = -b.max;
	if (b.min == JSON_NO_BOUND && b.max == JSON_NO_BOUND)
		draft_call(&c->draft, from, is_integer ? c->rules.integer : c->rules.number, to);
	else if (is_integer)
		json_integers(&c->draft, b, from, to);
	else
		json_reals(&c->draft, b, from, to);
	return c->draft.error;
}

/* --- strings --- */

enum err schema_string(struct schema *c, json_t *s, uint32_t from, uint32_t to)
{
	struct draft *d = &c->draft;
	int64_t min, max;
	TRY(read_count(c, s, "minLength", SCHEMA_MOST_LENGTH, 0, &min));
	TRY(read_count(c, s, "maxLength", SCHEMA_MOST_LENGTH, -1, &max));
	if (max >= 0 && min > max)
		return schema_refuse(c, "\"minLength\" is above \"maxLength\"");
	if (min == 0 && max < 0) {
		draft_call(d, from, c->rules.string, to);
		return d->error;
	}
	uint32_t at = draft_text(d, from, "\"", 1);
	for (int64_t i = 0; !d->error; i++) {
		if (i >= min)
			draft_bytes(d, at, '"', '"', to);
		if (i == max)
			break;
		if (max < 0 && i == min) {
			json_character(d, &c->rules, at, at);
			break;
		}
		uint32_t next = draft_state(d);
		json_character(d, &c->rules, at, next);
		at = next;
	}
	return d->error;
}

/* --- lists --- */

enum err schema_array(struct schema *c, json_t *s, uint32_t from, uint32_t to)
{
	struct draft *d = &c->draft;
	json_t *items = json_object_get(s, "items"), *prefix = json_object_get(s, "prefixItems");
	int64_t min, max, n_prefix = (int64_t)json_array_size(prefix);
	uint32_t rule = c->rules.value, at_rule;
	TRY(read_count(c, s, "minItems", SCHEMA_MOST_ITEMS, 0, &min));
	TRY(read_count(c, s, "maxItems", SCHEMA_MOST_ITEMS, -1, &max));
	if (json_object_get(s, "uniqueItems") && !json_is_false(json_object_get(s, "uniqueItems")))
		return schema_refuse(c, "\"uniqueItems\" is not supported");
	if (prefix && !json_is_array(prefix))
		return schema_refuse(c, "\"prefixItems\" must be a list of schemas, found %s", json_type_name(prefix));
	if (json_is_array(items))
		return schema_refuse(c, "\"items\" as a list is not supported; \"prefixItems\" is");
	if (n_prefix > SCHEMA_MOST_ITEMS)
		return schema_refuse(c, "\"prefixItems\" has more than %d schemas", SCHEMA_MOST_ITEMS);
	if (json_is_false(items))
		max = max < 0 || max > n_prefix ? n_prefix : max;
	else if (items)
		TRY(schema_rule(c, items, "items", NULL, -1, &rule));
	if (max >= 0 && min > max)
		return schema_refuse(c, "no list is long enough for \"minItems\"");
	/* The item that may come again and again is never the first, before which the list may end. */
	int64_t last = max >= 0 ? max - 1 : min > n_prefix ? min : n_prefix > 0 ? n_prefix : 1;
	uint32_t at = json_space(d, &c->rules, draft_text(d, from, "[", 1));
	if (min == 0)
		draft_bytes(d, at, ']', ']', to);
	for (int64_t i = 0; i <= last && !d->error; i++) {
		uint32_t value = draft_state(d), comma;
		at_rule = rule;
		if (i < n_prefix)
			TRY(schema_rule(c, json_array_get(prefix, (size_t)i), "prefixItems", NULL, i, &at_rule));
		draft_call(d, at, at_rule, value);
		if (i + 1 >= min)
			draft_bytes(d, json_space(d, &c->rules, value), ']', ']', to);
		if (i == last && max >= 0)
			break;
		comma = json_space(d, &c->rules, draft_text(d, value, ",", 1));
		if (i == last)
			draft_empty(d, comma, at);
		at = comma;
	}
	return d->error;
}
