/* Expressions. */
#include "runtime/template_parts.h"

#include <stdarg.h>
#include <string.h>

enum err run_fault(struct run *r, enum err code, const char *format, ...)
{
	char sentence[ERR_SENTENCE_BYTES];
	va_list list;
	va_start(list, format);
	vsnprintf(sentence, sizeof sentence, format, list);
	va_end(list);
	return template_fault(r->t, r->at, code, "%s", sentence);
}

enum err run_steps(struct run *r, uint64_t n)
{
	r->steps += n;
	return r->steps > r->max_steps ? run_fault(r, ERR_WORK, "stopped after %llu steps", (unsigned long long)r->max_steps) : ERR_OK;
}

static enum err eval_items(struct run *r, const struct node *n, struct value *out)
{
	struct list *l;
	TRY(list_new(r, n->kind == N_TUPLE ? LIST_TUPLE : LIST_PLAIN, 0, &l));
	for (const struct node *item = n->list; item; item = item->next) {
		struct value v;
		TRY(eval(r, item->a, &v));
		TRY(list_put(r, l, v));
	}
	*out = value_list(l);
	return ERR_OK;
}

static enum err eval_dict(struct run *r, const struct node *n, struct value *out)
{
	struct dict *d;
	TRY(dict_new(r, &d));
	for (const struct node *item = n->list; item; item = item->next) {
		struct value key, v;
		TRY(eval(r, item->a, &key));
		TRY(eval(r, item->b, &v));
		TRY(dict_set(r, d, key, v));
	}
	*out = value_dict(d);
	return ERR_OK;
}

enum err eval_arguments(struct run *r, const struct node *list, struct arguments *out)
{
	size_t n = 0, n_named = 0;
	*out = (struct arguments){ .caller = value_undefined(NULL) };
	for (const struct node *k = list; k; k = k->next)
		(*(k->name ? &n_named : &n))++;
	if (n)
		TRY(ROOM_NEW(&r->room, n, struct value, &out->items));
	if (n_named)
		TRY(ROOM_NEW(&r->room, n_named, struct named, &out->named));
	for (const struct node *k = list; k; k = k->next) {
		struct value v;
		TRY(eval(r, k->a, &v));
		if (k->name)
			out->named[out->n_named++] = (struct named){ k->name, v };
		else
			out->items[out->n++] = v;
	}
	return ERR_OK;
}

enum err call_value(struct run *r, struct value f, const struct arguments *a, struct value *out)
{
	switch (f.kind) {
	case V_FUNCTION: return f.function->call(r, a, out);
	case V_METHOD: return method_call(r, f.method, a, out);
	case V_MACRO: return run_macro(r, f.macro, a, out);
	case V_LOOP: return run_loop_again(r, f.loop, a, out);
	case V_UNDEFINED:
		if (f.what)
			return run_fault(r, ERR_WORK, "%s", f.what);
		/* fallthrough */
	default: return run_fault(r, ERR_WORK, "%s cannot be called", value_type(f));
	}
}

enum err eval_call(struct run *r, const struct node *n, struct value caller, struct value *out)
{
	struct value f;
	struct arguments a;
	TRY(eval(r, n->a, &f));
	TRY(eval_arguments(r, n->list, &a));
	a.caller = caller;
	r->at = n->a->at;
	return call_value(r, f, &a, out);
}

static enum err eval_slice(struct run *r, const struct node *n, struct value *out)
{
	struct value of, parts[3];
	int i = 0;
	TRY(eval(r, n->a, &of));
	for (const struct node *k = n->list; k; k = k->next, i++) {
		parts[i] = value_none();
		if (k->a)
			TRY(eval(r, k->a, &parts[i]));
	}
	r->at = n->at;
	return get_slice(r, of, parts[0], parts[1], parts[2], out);
}

static enum err eval_compare(struct run *r, const struct node *n, struct value *out)
{
	struct value left, right;
	bool yes = true;
	TRY(eval(r, n->a, &left));
	for (const struct node *k = n->list; k && yes; k = k->next) {
		TRY(eval(r, k->a, &right));
		r->at = n->at;
		TRY(op_compare(r, k->op, left, right, &yes));
		left = right;
	}
	*out = value_bool(yes);
	return ERR_OK;
}

static enum err eval_filter(struct run *r, const struct node *n, struct value *out)
{
	struct value of;
	struct arguments a;
	TRY(eval(r, n->a, &of));
	TRY(eval_arguments(r, n->list, &a));
	r->at = n->at;
	return filter_apply(r, n->name, of, &a, out);
}

static enum err eval_test(struct run *r, const struct node *n, struct value *out)
{
	struct value of;
	struct arguments a;
	bool yes;
	TRY(eval(r, n->a, &of));
	TRY(eval_arguments(r, n->list, &a));
	r->at = n->at;
	TRY(test_apply(r, n->name, of, &a, &yes));
	*out = value_bool(yes != n->flag);
	return ERR_OK;
}

static enum err eval_logic(struct run *r, const struct node *n, struct value *out)
{
	TRY(eval(r, n->a, out));
	if (n->kind == N_NOT)
		*out = value_bool(!value_true(*out));
	else if (value_true(*out) == (n->kind == N_AND))
		return eval(r, n->b, out);
	return ERR_OK;
}

static enum err eval_if_else(struct run *r, const struct node *n, struct value *out)
{
	struct value condition;
	TRY(eval(r, n->b, &condition));
	if (value_true(condition))
		return eval(r, n->a, out);
	if (n->c)
		return eval(r, n->c, out);
	*out = value_undefined("the value of an \"if\" without an \"else\" is undefined");
	return ERR_OK;
}

static enum err eval_concat(struct run *r, const struct node *n, struct value *out)
{
	struct build b = { .room = &r->room };
	struct value left, right;
	TRY(eval(r, n->a, &left));
	TRY(eval(r, n->b, &right));
	r->at = n->at;
	TRY(build_value(r, &b, left));
	TRY(build_value(r, &b, right));
	TRY(run_steps(r, b.n / 64));
	return build_done(&b, out);
}

static enum err eval_pair(struct run *r, const struct node *n, struct value *out)
{
	struct value a, b;
	TRY(eval(r, n->a, &a));
	TRY(eval(r, n->b, &b));
	r->at = n->at;
	return n->kind == N_INDEX ? get_item(r, a, b, out) : op_binary(r, n->op, a, b, out);
}

static enum err eval_one(struct run *r, const struct node *n, struct value *out)
{
	struct value v;
	TRY(eval(r, n->a, &v));
	r->at = n->at;
	if (n->kind == N_ATTRIBUTE)
		return get_attribute(r, v, n->name, out);
	if (n->kind == N_NEGATE)
		return op_negate(r, v, out);
	*out = v;
	if (v.kind == V_BOOL)
		*out = (struct value){ .kind = V_INT, .input = v.input, .i = v.yes };
	return is_number(v) ? ERR_OK : run_fault(r, ERR_WORK, "+ does not work on %s", value_type(v));
}

static enum err eval_kind(struct run *r, const struct node *n, struct value *out)
{
	switch (n->kind) {
	case N_CONST: *out = n->flag ? r->block : n->value; return ERR_OK;
	case N_NAME: return scope_get(r, n->name, out);
	case N_LIST:
	case N_TUPLE: return eval_items(r, n, out);
	case N_DICT: return eval_dict(r, n, out);
	case N_ATTRIBUTE:
	case N_NEGATE:
	case N_PLUS: return eval_one(r, n, out);
	case N_INDEX:
	case N_BINARY: return eval_pair(r, n, out);
	case N_SLICE: return eval_slice(r, n, out);
	case N_CALL: return eval_call(r, n, value_undefined(NULL), out);
	case N_FILTER: return eval_filter(r, n, out);
	case N_TEST: return eval_test(r, n, out);
	case N_IF_ELSE: return eval_if_else(r, n, out);
	case N_NOT:
	case N_AND:
	case N_OR: return eval_logic(r, n, out);
	case N_COMPARE: return eval_compare(r, n, out);
	case N_CONCAT: return eval_concat(r, n, out);
	default: return run_fault(r, ERR_BUG, "node %d is no expression", n->kind);
	}
}

enum err eval(struct run *r, const struct node *n, struct value *out)
{
	r->at = n->at;
	TRY(run_steps(r, 1));
	if (r->depth >= MAX_DEPTH)
		return run_fault(r, ERR_WORK, "more than %d calls and operators inside each other", MAX_DEPTH);
	r->depth++;
	enum err e = eval_kind(r, n, out);
	r->depth--;
	return e;
}
