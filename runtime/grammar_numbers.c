/* Numbers within bounds. Of each length in digits, a number is at the low end as long as its digits are the low end's, at the high end
 * likewise, or inside. */
#include "runtime/grammar_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { INSIDE, AT_LOW, AT_HIGH, AT_BOTH };

static const int64_t most_integer = 999999999999999999, most_real = 999999999999999;

/* One digit of a number of a known length: from[f] and to[f] are states for where it stands against low and high; GRAMMAR_NONE: none. */
static void one_digit(struct draft *d, int low, int high, const uint32_t *from, uint32_t *to)
{
	for (int f = INSIDE; f <= AT_BOTH; f++) {
		int lo = f & AT_LOW ? low : '0', hi = f & AT_HIGH ? high : '9', at_low = f & AT_LOW, at_high = f & AT_HIGH;
		if (from[f] == GRAMMAR_NONE)
			continue;
		if (at_low && at_high && lo == hi) {
			draft_bytes(d, from[f], lo, lo, to[AT_BOTH]);
			continue;
		}
		if (at_low)
			draft_bytes(d, from[f], lo, lo, to[AT_LOW]);
		if (at_high)
			draft_bytes(d, from[f], hi, hi, to[AT_HIGH]);
		draft_bytes(d, from[f], lo + !!at_low, hi - !!at_high, to[INSIDE]);
	}
}

/* Numbers low to high, both of n digits; ends[f]: where they lead, by what they are at. */
static void of_one_length(struct draft *d, const char *low, const char *high, int n, uint32_t start, const uint32_t *ends)
{
	uint32_t from[4] = { GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE, start };
	for (int i = 0; i < n; i++) {
		uint32_t to[4];
		for (int f = INSIDE; f <= AT_BOTH; f++)
			to[f] = i == n - 1 ? ends[f] : draft_state(d);
		one_digit(d, low[i], high[i], from, to);
		memcpy(from, to, sizeof from);
	}
}

/* Numbers without a sign, 0 <= low <= high. */
static void digits(struct draft *d, int64_t low, int64_t high, uint32_t from, const uint32_t *ends)
{
	char lo[24], hi[24];
	int n_lo = snprintf(lo, sizeof lo, "%" PRId64, low), n_hi = snprintf(hi, sizeof hi, "%" PRId64, high);
	for (int n = n_lo; n <= n_hi; n++) {
		char first[24], last[24];
		memset(first, '0', sizeof first);
		memset(last, '9', sizeof last);
		first[0] = '1';
		const uint32_t here[4] = { ends[INSIDE], ends[n == n_lo ? AT_LOW : INSIDE], ends[n == n_hi ? AT_HIGH : INSIDE],
					   ends[(n == n_lo ? AT_LOW : 0) | (n == n_hi ? AT_HIGH : 0)] };
		of_one_length(d, n == n_lo ? lo : first, n == n_hi ? hi : last, n, from, here);
	}
}

void json_integers(struct draft *d, struct json_bounds b, uint32_t from, uint32_t to)
{
	const uint32_t ends[4] = { to, to, to, to };
	int64_t min = b.min == JSON_NO_BOUND || b.min < -most_integer ? -most_integer : b.min + b.min_is_out;
	int64_t max = b.max == JSON_NO_BOUND || b.max > most_integer ? most_integer : b.max - b.max_is_out;
	if (min > max || min > most_integer || max < -most_integer)
		return;
	if (max >= 0)
		digits(d, min > 0 ? min : 0, max, from, ends);
	if (min < 0)
		digits(d, max < 0 ? -max : 1, -min, draft_text(d, from, "-", 1), ends);
}

/* --- numbers with a point --- */

static void exponent(struct draft *d, uint32_t from, uint32_t to)
{
	uint32_t e = draft_state(d), sign = draft_state(d), second = draft_state(d);
	draft_empty(d, from, to);
	draft_bytes(d, from, 'e', 'e', e);
	draft_bytes(d, from, 'E', 'E', e);
	draft_empty(d, e, sign);
	draft_bytes(d, e, '+', '+', sign);
	draft_bytes(d, e, '-', '-', sign);
	draft_bytes(d, sign, '0', '9', second);
	draft_bytes(d, second, '0', '9', to);
	draft_empty(d, second, to);
}

enum fraction { ANY, ZERO, NOT_ZERO };

/* A fraction: any or none, or only zeros or none, or one that is not 0. Gives the state before it. */
static uint32_t fraction(struct draft *d, enum fraction kind, uint32_t to)
{
	uint32_t from = draft_state(d), at = draft_text(d, from, ".", 1), any = GRAMMAR_NONE;
	if (kind != NOT_ZERO)
		draft_empty(d, from, to);
	for (int i = 0; i < GRAMMAR_FRACTION; i++) {
		uint32_t next = draft_state(d), next_any = draft_state(d);
		if (kind == ANY)
			draft_bytes(d, at, '0', '9', next);
		else
			draft_bytes(d, at, '0', '0', next);
		if (kind == NOT_ZERO)
			draft_bytes(d, at, '1', '9', next_any);
		if (kind == NOT_ZERO && i > 0)
			draft_bytes(d, any, '0', '9', next_any);
		draft_empty(d, kind == NOT_ZERO ? next_any : next, to);
		at = next;
		any = next_any;
	}
	return from;
}

/* Numbers without a sign from low to high, either end in or out, or (is_free) no end at all but what is written. */
struct end { int64_t at; int is_out, is_free; };

static void magnitudes(struct draft *d, struct end low, struct end high, uint32_t from, uint32_t to)
{
	if (!high.is_free && high.is_out) {    /* below a whole number: all that begin with the one before it */
		high.at--;
		high.is_free = 1;
	}
	if (low.at > high.at || low.at > most_real)
		return;
	int low_is_out = !low.is_free && low.is_out, high_is_in = !high.is_free;
	uint32_t any = fraction(d, ANY, to), zero = high_is_in ? fraction(d, ZERO, to) : any;
	uint32_t not_zero = low_is_out ? fraction(d, NOT_ZERO, to) : any;
	const uint32_t ends[4] = { any, not_zero, zero, low_is_out && high_is_in ? draft_state(d) : low_is_out ? not_zero : zero };
	digits(d, low.at, high.at, from, ends);
}

void json_reals(struct draft *d, struct json_bounds b, uint32_t from, uint32_t to)
{
	int has_min = b.min != JSON_NO_BOUND && b.min >= -most_real, has_max = b.max != JSON_NO_BOUND && b.max <= most_real;
	const struct end none_low = { 0, 0, 1 }, none_high = { most_real, 0, 1 };
	uint32_t end = to;
	if (b.min == JSON_NO_BOUND && b.max == JSON_NO_BOUND) {
		end = draft_state(d);
		exponent(d, end, to);
	}
	if (!has_max || b.max > 0 || (b.max == 0 && !b.max_is_out))
		magnitudes(d, has_min && b.min >= 0 ? (struct end){ b.min, b.min_is_out, 0 } : none_low,
			   has_max ? (struct end){ b.max, b.max_is_out, 0 } : none_high, from, end);
	if (!has_min || b.min < 0)
		magnitudes(d, has_max && b.max <= 0 ? (struct end){ -b.max, b.max_is_out, 0 } : none_low,
			   has_min ? (struct end){ -b.min, b.min_is_out, 0 } : none_high, draft_text(d, from, "-", 1), end);
}
