/* Tests: what follows "is". */
#include "runtime/template_parts.h"

#include <math.h>
#include <string.h>

enum { IS_DEFINED, IS_UNDEFINED, IS_NONE, IS_STRING, IS_MAPPING, IS_ITERABLE, IS_SEQUENCE, IS_NUMBER, IS_INTEGER, IS_FLOAT, IS_BOOLEAN,
       IS_TRUE, IS_FALSE, IS_CALLABLE, IS_LOWER, IS_UPPER, IS_ODD, IS_EVEN, IS_DIVISIBLE, IS_SAME, IS_IN, IS_EQ, IS_NE, IS_LT, IS_LE,
       IS_GT, IS_GE, IS_FILTER, IS_TEST, IS_ESCAPED };

static const struct { const char *name; int test; } tests[] = {
	{ "defined", IS_DEFINED }, { "undefined", IS_UNDEFINED }, { "none", IS_NONE }, { "string", IS_STRING },
	{ "mapping", IS_MAPPING }, { "iterable", IS_ITERABLE }, { "sequence", IS_SEQUENCE }, { "number", IS_NUMBER },
	{ "integer", IS_INTEGER }, { "float", IS_FLOAT }, { "boolean", IS_BOOLEAN }, { "true", IS_TRUE }, { "false", IS_FALSE },
	{ "callable", IS_CALLABLE }, { "lower", IS_LOWER }, { "upper", IS_UPPER }, { "odd", IS_ODD }, { "even", IS_EVEN },
	{ "divisibleby", IS_DIVISIBLE }, { "sameas", IS_SAME }, { "in", IS_IN }, { "eq", IS_EQ }, { "equalto", IS_EQ },
	{ "==", IS_EQ }, { "ne", IS_NE }, { "!=", IS_NE }, { "lt", IS_LT }, { "lessthan", IS_LT }, { "<", IS_LT }, { "le", IS_LE },
	{ "<=", IS_LE }, { "gt", IS_GT }, { "greaterthan", IS_GT }, { ">", IS_GT }, { "ge", IS_GE }, { ">=", IS_GE },
	{ "filter", IS_FILTER }, { "test", IS_TEST }, { "escaped", IS_ESCAPED },
};

static int find_test(const char *name, size_t bytes)
{
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
		if (strlen(tests[i].name) == bytes && !memcmp(tests[i].name, name, bytes))
			return tests[i].test;
	return -1;
}

static bool is_filter(struct value v)
{
	const struct filter *const tables[] = { text_filters, list_filters };
	for (size_t i = 0; i < 2; i++)
		for (const struct filter *f = tables[i]; f->name; f++)
			if (text_is(v, f->name))
				return true;
	return false;
}

static enum err is_cased(struct run *r, struct value v, bool upper, bool *out)
{
	struct value same, other;
	const struct text *t;
	TRY(value_to_text(r, v, &t));
	TRY(text_to_case(r, t, upper ? CASE_UPPER : CASE_LOWER, &same));
	TRY(text_to_case(r, t, upper ? CASE_LOWER : CASE_UPPER, &other));
	TRY(value_equal(r, value_text(t), same, 0, out));
	if (*out) {   /* and there is a letter */
		TRY(value_equal(r, value_text(t), other, 0, out));
		*out = !*out;
	}
	return ERR_OK;
}

static enum err is_multiple(struct run *r, struct value v, int64_t of, int64_t rest, bool *out)
{
	struct value left;
	if (!is_number(v))
		return run_fault(r, ERR_WORK, "the test wants a number, not %s", value_type(v));
	TRY(op_binary(r, '%', v, value_int(of), &left));
	*out = real_of(left) == (double)rest;
	return ERR_OK;
}

static bool is_same(struct value a, struct value b)
{
	if (a.kind != b.kind)
		return false;
	switch (a.kind) {
	case V_NONE:
	case V_UNDEFINED: return true;
	case V_BOOL: return a.yes == b.yes;
	case V_INT: return a.i == b.i;
	case V_REAL: return memcmp(&a.d, &b.d, sizeof a.d) == 0;
	default: return a.dict == b.dict;
	}
}

static enum err compare_test(struct run *r, int test, struct value v, const struct arguments *a, bool *out)
{
	static const int ops[] = { OP_EQ, OP_NE, '<', OP_LE, '>', OP_GE };
	if (!a->n)
		return run_fault(r, ERR_WORK, "the test wants an argument");
	if (test == IS_SAME) {
		*out = is_same(v, a->items[0]);
		return ERR_OK;
	}
	if (test == IS_IN)
		return value_contains(r, a->items[0], v, out);
	if (test == IS_DIVISIBLE)
		return is_whole(a->items[0]) ? is_multiple(r, v, whole_of(a->items[0]), 0, out)
					     : run_fault(r, ERR_WORK, "divisibleby wants an integer");
	return op_compare(r, ops[test - IS_EQ], v, a->items[0], out);
}

static bool kind_test(int test, struct value v)
{
	bool plain_list = v.kind == V_LIST && v.list->form != LIST_GENERATOR && v.list->form != LIST_VIEW;
	switch (test) {
	case IS_DEFINED: return v.kind != V_UNDEFINED;
	case IS_UNDEFINED: return v.kind == V_UNDEFINED;
	case IS_NONE: return v.kind == V_NONE;
	case IS_STRING: return v.kind == V_TEXT;
	case IS_MAPPING: return v.kind == V_DICT;
	case IS_ITERABLE: return v.kind == V_TEXT || v.kind == V_LIST || v.kind == V_DICT || v.kind == V_UNDEFINED;
	case IS_SEQUENCE: return v.kind == V_TEXT || plain_list || v.kind == V_DICT || v.kind == V_UNDEFINED;
	case IS_NUMBER: return is_number(v);
	case IS_INTEGER: return v.kind == V_INT;
	case IS_FLOAT: return v.kind == V_REAL;
	case IS_BOOLEAN: return v.kind == V_BOOL;
	case IS_TRUE: return v.kind == V_BOOL && v.yes;
	case IS_FALSE: return v.kind == V_BOOL && !v.yes;
	case IS_FILTER: return is_filter(v);
	case IS_TEST: return v.kind == V_TEXT && find_test(v.text->data, v.text->bytes) >= 0;
	case IS_ESCAPED: return v.kind == V_TEXT && v.text->markup;
	default: return v.kind >= V_MACRO || v.kind == V_UNDEFINED;   /* callable */
	}
}

enum err test_apply(struct run *r, const char *name, struct value v, const struct arguments *a, bool *out)
{
	int test = find_test(name, strlen(name));
	switch (test) {
	case -1: return run_fault(r, ERR_MODEL, "the test \"%s\" is not supported", name);
	case IS_LOWER:
	case IS_UPPER: return is_cased(r, v, test == IS_UPPER, out);
	case IS_ODD: return is_multiple(r, v, 2, 1, out);
	case IS_EVEN: return is_multiple(r, v, 2, 0, out);
	case IS_DIVISIBLE:
	case IS_SAME:
	case IS_IN:
	case IS_EQ:
	case IS_NE:
	case IS_LT:
	case IS_LE:
	case IS_GT:
	case IS_GE: return compare_test(r, test, v, a, out);
	default: *out = kind_test(test, v); return ERR_OK;
	}
}
