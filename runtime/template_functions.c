/* Global functions, and access to arguments. */
#include "runtime/template_parts.h"

#include <string.h>
#include <time.h>

const struct value *argument(const struct arguments *a, size_t i, const char *name)
{
	if (i < a->n)
		return &a->items[i];
	for (size_t k = 0; name && k < a->n_named; k++)
		if (!strcmp(a->named[k].name, name))
			return &a->named[k].value;
	return NULL;
}

enum err argument_bool(struct run *r, const struct arguments *a, size_t i, const char *name, bool fallback, bool *out)
{
	const struct value *v = argument(a, i, name);
	(void)r;
	*out = v ? value_true(*v) : fallback;
	return ERR_OK;
}

enum err argument_int(struct run *r, const struct arguments *a, size_t i, const char *name, int64_t fallback, int64_t *out)
{
	const struct value *v = argument(a, i, name);
	if (v && !is_whole(*v))
		return run_fault(r, ERR_WORK, "argument \"%s\" is %s instead of an integer", name ? name : "", value_type(*v));
	*out = v ? whole_of(*v) : fallback;
	return ERR_OK;
}

enum err argument_text(struct run *r, const struct arguments *a, size_t i, const char *name, const struct text **out)
{
	const struct value *v = argument(a, i, name);
	*out = NULL;
	if (!v || v->kind == V_NONE)
		return ERR_OK;
	if (v->kind != V_TEXT)
		return run_fault(r, ERR_WORK, "an argument is %s instead of a string", value_type(*v));
	*out = v->text;
	return ERR_OK;
}

/* -- functions ------------------------------------------------------------------------------------------------------ */

static enum err raise_exception(struct run *r, const struct arguments *a, struct value *out)
{
	const struct value *v = argument(a, 0, "message");
	const struct text *t;
	(void)out;
	TRY(value_to_text(r, v ? *v : value_none(), &t));
	return run_fault(r, ERR_WORK, "the chat template refuses: %.*s", t->bytes > 400 ? 400 : (int)t->bytes, t->data);
}

static enum err strftime_now(struct run *r, const struct arguments *a, struct value *out)
{
	const struct text *format;
	struct build b = { .room = &r->room };
	char room[1000], copy[200];
	struct tm parts;
	time_t now = (time_t)r->in->now_s;
	TRY(argument_text(r, a, 0, "format", &format));
	if (!format || format->bytes >= sizeof copy || memchr(format->data, 0, format->bytes))
		return run_fault(r, ERR_WORK, "strftime_now wants a format of at most %zu bytes", sizeof copy - 1);
	memcpy(copy, format->data, format->bytes);
	copy[format->bytes] = 0;
	if (!localtime_r(&now, &parts))
		return run_fault(r, ERR_WORK, "the time is out of range");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	size_t n = strftime(room, sizeof room, copy, &parts);
#pragma GCC diagnostic pop
	TRY(build_put(&b, room, n, format->input));
	return build_done(&b, out);
}

static enum err range(struct run *r, const struct arguments *a, struct value *out)
{
	int64_t from, to, by;
	struct list *l;
	TRY(argument_int(r, a, 0, NULL, 0, &from));
	TRY(argument_int(r, a, 1, NULL, 0, &to));
	TRY(argument_int(r, a, 2, NULL, 1, &by));
	if (a->n == 1) {
		to = from;
		from = 0;
	}
	if (!a->n || a->n > 3 || a->n_named || !by)
		return run_fault(r, ERR_WORK, "range wants one to three integers, the last not 0");
	__int128 span = by > 0 ? (__int128)to - from : (__int128)from - to, step = by > 0 ? by : -(__int128)by;
	__int128 n = span > 0 ? (span + step - 1) / step : 0;
	if (n > MAX_RANGE)
		return run_fault(r, ERR_WORK, "a range of more than %d numbers", MAX_RANGE);
	TRY(run_steps(r, (uint64_t)n));
	TRY(list_new(r, LIST_RANGE, (size_t)n, &l));
	for (int64_t i = 0; i < (int64_t)n; i++)
		TRY(list_put(r, l, value_int(from + i * by)));
	*out = value_list(l);
	return ERR_OK;
}

/* dict(a=1), dict(other), dict([(key, value), ...]) */
static enum err make_dict(struct run *r, const struct arguments *a, struct value *out)
{
	struct dict *d;
	TRY(dict_new(r, &d));
	if (a->n > 1)
		return run_fault(r, ERR_WORK, "dict wants one value, and names");
	if (a->n && a->items[0].kind == V_DICT) {
		for (size_t i = 0; i < a->items[0].dict->n; i++)
			TRY(dict_set(r, d, a->items[0].dict->pairs[i].key, a->items[0].dict->pairs[i].value));
	} else if (a->n) {
		const struct list *l, *pair;
		TRY(value_items(r, a->items[0], &l));
		for (size_t i = 0; i < l->n; i++) {
			TRY(value_items(r, l->items[i], &pair));
			if (pair->n != 2)
				return run_fault(r, ERR_WORK, "dict wants pairs of a key and a value");
			TRY(dict_set(r, d, pair->items[0], pair->items[1]));
		}
	}
	for (size_t i = 0; i < a->n_named; i++) {
		struct value key;
		TRY(text_new(&r->room, a->named[i].name, strlen(a->named[i].name), false, &key));
		TRY(dict_set(r, d, key, a->named[i].value));
	}
	*out = value_dict(d);
	return ERR_OK;
}

static enum err make_namespace(struct run *r, const struct arguments *a, struct value *out)
{
	TRY(make_dict(r, a, out));
	out->kind = V_NAMESPACE;
	for (size_t i = 0; i < out->dict->n; i++) {
		struct value key = out->dict->pairs[i].key;
		if (key.kind != V_TEXT || !key.text->bytes || key.text->data[0] == '_')
			return run_fault(r, ERR_WORK, "a namespace takes names without a leading \"_\"");
	}
	return ERR_OK;
}

static const struct function functions[] = {
	{ "raise_exception", raise_exception }, { "strftime_now", strftime_now }, { "range", range }, { "dict", make_dict },
	{ "namespace", make_namespace },
};

const struct function *function_find(const char *name)
{
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
		if (!strcmp(functions[i].name, name))
			return &functions[i];
	return NULL;
}
