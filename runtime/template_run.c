/* Statements, scopes, loops and macros; and a render from its input to its result.
 *
 * A scope is what a loop's iteration, a macro, or a block makes; {% if %} makes none. Setting a name sets it in the present
 * scope, reading looks outwards. A macro's scope lies in the one it was defined in. */
#include "runtime/template_parts.h"

#include <string.h>

enum err scope_push(struct run *r, struct scope *outer)
{
	struct scope *s;
	TRY(ROOM_NEW(&r->room, 1, struct scope, &s));
	s->outer = outer;
	r->scope = s;
	return ERR_OK;
}

static enum err not_set(struct run *r, const char *name, struct value *out)
{
	struct build b = { .room = &r->room };
	struct value sentence;
	TRY(build_words(&b, "'"));
	TRY(build_put(&b, name, strnlen(name, 60), false));
	TRY(build_put(&b, "' is undefined", 15, false));   /* and its 0 byte */
	TRY(build_done(&b, &sentence));
	*out = value_undefined(sentence.text->data);
	return ERR_OK;
}

enum err scope_get(struct run *r, const char *name, struct value *out)
{
	uint64_t n = 0;
	for (const struct scope *s = r->scope; s; s = s->outer)
		for (const struct binding *b = s->names; b; b = b->next, n++)
			if (!strcmp(b->name, name)) {
				*out = b->value;
				return run_steps(r, n / 16);
			}
	TRY(run_steps(r, n / 16));
	const struct function *f = function_find(name);
	*out = (struct value){ .kind = V_FUNCTION, .function = f };
	return f ? ERR_OK : not_set(r, name, out);
}

enum err scope_set(struct run *r, const char *name, struct value v)
{
	struct binding *b;
	uint64_t n = 0;
	for (b = r->scope->names; b; b = b->next, n++)
		if (!strcmp(b->name, name)) {
			b->value = v;
			return run_steps(r, n / 16);
		}
	TRY(run_steps(r, n / 16));
	TRY(ROOM_NEW(&r->room, 1, struct binding, &b));
	*b = (struct binding){ r->scope->names, name, v };
	r->scope->names = b;
	return ERR_OK;
}

/* A body in a scope of its own, its output as a value. */
static enum err capture(struct run *r, const struct node *body, struct scope *outer, struct value *out)
{
	struct build b = { .room = &r->room }, *before = r->out;
	struct scope *scope = r->scope;
	enum flow flow;
	TRY(scope_push(r, outer));
	r->out = &b;
	TRY(run_body(r, body, &flow));
	r->out = before;
	r->scope = scope;
	return build_done(&b, out);
}

/* -- assignment ----------------------------------------------------------------------------------------------------- */

static enum err assign(struct run *r, const struct node *target, struct value v)
{
	const struct list *items;
	struct value of;
	size_t i = 0;
	r->at = target->at;
	if (target->kind == N_NAME)
		return scope_set(r, target->name, v);
	if (target->kind == N_ATTRIBUTE) {
		struct value key;
		TRY(eval(r, target->a, &of));
		if (of.kind != V_NAMESPACE || *target->name == '_')
			return run_fault(r, ERR_WORK, "only names without a leading \"_\", of a namespace, can be set like this");
		TRY(text_new(&r->room, target->name, strlen(target->name), false, &key));
		return dict_set(r, of.dict, key, v);
	}
	TRY(value_items(r, v, &items));
	for (const struct node *k = target->list; k; k = k->next, i++)
		if (i < items->n)
			TRY(assign(r, k->a, items->items[i]));
	return i == items->n ? ERR_OK : run_fault(r, ERR_WORK, "%zu names for %zu values", i, items->n);
}

/* -- macros --------------------------------------------------------------------------------------------------------- */

static enum err bind_extra(struct run *r, const struct macro *m, const struct arguments *a, size_t n_parameters, uint64_t used)
{
	struct list *l;
	struct dict *d;
	if (a->n > n_parameters && !(m->node->op & USES_VARARGS))
		return run_fault(r, ERR_WORK, "macro %s takes %zu arguments, not %zu", m->name, n_parameters, a->n);
	TRY(list_new(r, LIST_TUPLE, 0, &l));
	for (size_t i = n_parameters; i < a->n; i++)
		TRY(list_put(r, l, a->items[i]));
	TRY(dict_new(r, &d));
	for (size_t i = 0; i < a->n_named; i++) {
		struct value key;
		if (used >> i & 1)
			continue;
		if (!(m->node->op & USES_KWARGS))
			return run_fault(r, ERR_WORK, "macro %s has no argument \"%s\"", m->name, a->named[i].name);
		TRY(text_new(&r->room, a->named[i].name, strlen(a->named[i].name), false, &key));
		TRY(dict_set(r, d, key, a->named[i].value));
	}
	if (m->node->op & USES_VARARGS)
		TRY(scope_set(r, "varargs", value_list(l)));
	return m->node->op & USES_KWARGS ? scope_set(r, "kwargs", value_dict(d)) : ERR_OK;
}

static enum err bind(struct run *r, const struct macro *m, const struct arguments *a)
{
	size_t n = 0;
	uint64_t used = 0;   /* named arguments, a bit each */
	if (a->n_named > 64)
		return run_fault(r, ERR_WORK, "more than 64 named arguments");
	for (const struct node *p = m->node->list; p; p = p->next, n++) {
		struct value v = value_undefined(NULL);
		bool given = n < a->n;
		if (given)
			v = a->items[n];
		for (size_t i = 0; i < a->n_named; i++)
			if (!strcmp(a->named[i].name, p->name)) {
				if (given)
					return run_fault(r, ERR_WORK, "macro %s gets \"%s\" twice", m->name, p->name);
				v = a->named[i].value;
				given = true;
				used |= (uint64_t)1 << i;
			}
		if (!given && p->a)
			TRY(eval(r, p->a, &v));
		TRY(scope_set(r, p->name, v));
	}
	TRY(bind_extra(r, m, a, n, used));
	return a->caller.kind == V_MACRO ? scope_set(r, "caller", a->caller) : ERR_OK;
}

enum err run_macro(struct run *r, const struct macro *m, const struct arguments *a, struct value *out)
{
	struct scope *scope = r->scope;
	uint32_t at = r->at;
	if (r->depth >= MAX_DEPTH)
		return run_fault(r, ERR_WORK, "more than %d calls and operators inside each other", MAX_DEPTH);
	TRY(scope_push(r, m->scope));
	TRY(bind(r, m, a));
	TRY(capture(r, m->node->a, r->scope, out));
	r->scope = scope;
	r->at = at;
	return ERR_OK;
}

static enum err make_macro(struct run *r, const struct node *n, struct value *out)
{
	struct macro *m;
	TRY(ROOM_NEW(&r->room, 1, struct macro, &m));
	*m = (struct macro){ .node = n, .scope = r->scope, .name = n->name };
	*out = (struct value){ .kind = V_MACRO, .macro = m };
	return ERR_OK;
}

/* -- loops ---------------------------------------------------------------------------------------------------------- */

/* The items that pass the loop's own "if". */
static enum err filter_items(struct run *r, const struct node *n, const struct list *items, const struct list **out)
{
	struct list *l;
	struct scope *scope = r->scope;
	*out = items;
	if (!n->c)
		return ERR_OK;
	TRY(list_new(r, LIST_PLAIN, 0, &l));
	for (size_t i = 0; i < items->n; i++) {
		struct value yes;
		TRY(scope_push(r, scope));
		TRY(assign(r, n->a, items->items[i]));
		TRY(eval(r, n->c, &yes));
		if (value_true(yes))
			TRY(list_put(r, l, items->items[i]));
	}
	r->scope = scope;
	*out = l;
	return ERR_OK;
}

static enum err run_loop(struct run *r, const struct node *n, struct value of, size_t depth)
{
	const struct list *items;
	struct scope *scope = r->scope;
	struct loop *loop;
	r->at = n->b->at;
	TRY(value_items(r, of, &items));
	TRY(filter_items(r, n, items, &items));
	TRY(ROOM_NEW(&r->room, 1, struct loop, &loop));
	*loop = (struct loop){ .items = items, .depth = depth, .recursive = n->flag ? n : NULL, .scope = scope };
	TRY(ROOM_NEW(&r->room, 1, struct value, &loop->changed));
	enum flow flow = FLOW_ON;
	for (; loop->i < items->n && flow != FLOW_BREAK; loop->i++) {
		TRY(scope_push(r, scope));
		TRY(scope_set(r, "loop", (struct value){ .kind = V_LOOP, .loop = loop }));
		TRY(assign(r, n->a, items->items[loop->i]));
		TRY(run_steps(r, 1));
		TRY(run_body(r, n->list->a, &flow));
	}
	if (!items->n) {
		TRY(scope_push(r, scope));
		TRY(run_body(r, n->list->b, &flow));
	}
	r->scope = scope;
	return ERR_OK;
}

enum err run_loop_again(struct run *r, const struct loop *l, const struct arguments *a, struct value *out)
{
	struct build b = { .room = &r->room }, *before = r->out;
	struct scope *scope = r->scope;
	if (!l->recursive || a->n != 1)
		return run_fault(r, ERR_WORK, "loop(...) is called, but its loop is not recursive");
	r->out = &b;
	r->scope = l->scope;
	TRY(run_loop(r, l->recursive, a->items[0], l->depth + 1));
	r->scope = scope;
	r->out = before;
	return build_done(&b, out);
}

/* -- statements ----------------------------------------------------------------------------------------------------- */

static enum err run_if(struct run *r, const struct node *n, enum flow *flow)
{
	for (;; n = n->c) {
		struct value condition;
		TRY(eval(r, n->a, &condition));
		if (value_true(condition))
			return run_body(r, n->list, flow);
		if (!n->flag)
			return run_body(r, n->c, flow);
	}
}

static enum err run_set_block(struct run *r, const struct node *n)
{
	struct value v;
	TRY(capture(r, n->list, r->scope, &v));
	if (n->b) {
		r->block = v;
		TRY(eval(r, n->b, &v));
	}
	return n->kind == N_SET_BLOCK ? assign(r, n->a, v) : build_value(r, r->out, v);
}

static enum err run_with(struct run *r, const struct node *n, enum flow *flow)
{
	struct scope *scope = r->scope, *inner;
	TRY(scope_push(r, scope));
	inner = r->scope;
	for (const struct node *k = n->a; k; k = k->next) {
		struct value v;
		r->scope = scope;   /* values see what stands around the block */
		TRY(eval(r, k->b, &v));
		r->scope = inner;
		TRY(assign(r, k->a, v));
	}
	r->scope = inner;
	TRY(run_body(r, n->list, flow));
	r->scope = scope;
	return ERR_OK;
}

static enum err run_call_block(struct run *r, const struct node *n)
{
	struct value caller, v;
	TRY(make_macro(r, n->c, &caller));
	TRY(eval_call(r, n->b, caller, &v));
	return build_value(r, r->out, v);
}

static enum err run_statement(struct run *r, const struct node *n, enum flow *flow)
{
	struct value v;
	struct scope *scope = r->scope;
	switch (n->kind) {
	case N_DATA: return build_text(r->out, n->value.text);
	case N_OUTPUT:
		TRY(eval(r, n->a, &v));
		r->at = n->a->at;
		return build_value(r, r->out, v);
	case N_IF: return run_if(r, n, flow);
	case N_FOR:
		TRY(eval(r, n->b, &v));
		return run_loop(r, n, v, 0);
	case N_SET:
		TRY(eval(r, n->b, &v));
		return assign(r, n->a, v);
	case N_SET_BLOCK:
	case N_FILTER_BLOCK: return run_set_block(r, n);
	case N_MACRO:
		TRY(make_macro(r, n, &v));
		return scope_set(r, n->name, v);
	case N_CALL_BLOCK: return run_call_block(r, n);
	case N_WITH: return run_with(r, n, flow);
	case N_SCOPE:
		TRY(scope_push(r, scope));
		TRY(run_body(r, n->list, flow));
		r->scope = scope;
		return ERR_OK;
	case N_BREAK: *flow = FLOW_BREAK; return ERR_OK;
	case N_CONTINUE: *flow = FLOW_CONTINUE; return ERR_OK;
	default: return run_fault(r, ERR_BUG, "node %d is no statement", n->kind);
	}
}

/* *flow: what a break or continue in the body wants of the loop around it. */
enum err run_body(struct run *r, const struct node *body, enum flow *flow)
{
	*flow = FLOW_ON;
	if (r->depth >= MAX_DEPTH)
		return run_fault(r, ERR_WORK, "more than %d calls and operators inside each other", MAX_DEPTH);
	r->depth++;
	for (const struct node *n = body; n && *flow == FLOW_ON; n = n->next) {
		r->at = n->at;
		TRY(run_steps(r, 1 + (n->kind == N_DATA ? n->value.text->bytes / 64 : 0)));
		TRY(run_statement(r, n, flow));
		if (r->out->n > MAX_OUTPUT_BYTES)
			return run_fault(r, ERR_WORK, "makes more than %d MiB of text", MAX_OUTPUT_BYTES >> 20);
	}
	r->depth--;
	return ERR_OK;
}

/* -- a render ------------------------------------------------------------------------------------------------------- */

static enum err put_variables(struct run *r, const json_t *object, bool input)
{
	if (object && !json_is_object(object))
		return ERR(BUG, "the variables of a chat template are no object");
	void *at = json_object_iter((json_t *)(uintptr_t)object);
	for (; at; at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
		struct value v;
		TRY(value_from_json(r, json_object_iter_value(at), input, 0, &v));
		TRY(scope_set(r, json_object_iter_key(at), v));
	}
	return ERR_OK;
}

static enum err put_json(struct run *r, const char *name, const json_t *j, struct value *v)
{
	TRY(value_from_json(r, j, true, 0, v));
	return scope_set(r, name, *v);
}

/* A role is a word of a fixed set, which templates build tokens of ('<|' + message.role + '|>'): those that are known count
 * as the template's. */
static void own_roles(struct value messages)
{
	static const char *const known[] = { "system", "user", "assistant", "tool", "developer", "function", "ipython", "observation" };
	for (size_t i = 0; messages.kind == V_LIST && i < messages.list->n; i++) {
		const struct value *m = &messages.list->items[i];
		for (size_t k = 0; m->kind == V_DICT && k < m->dict->n; k++) {
			struct pair *p = &m->dict->pairs[k];
			for (size_t w = 0; text_is(p->key, "role") && w < sizeof known / sizeof known[0]; w++)
				if (text_is(p->value, known[w]))
					((struct text *)(uintptr_t)p->value.text)->input = false;   /* made by value_from_json */
		}
	}
}

static enum err render(struct run *r, const struct template_input *in)
{
	enum flow flow;
	struct value v, messages;
	TRY(scope_push(r, NULL));
	TRY(put_variables(r, in->variables, true));
	TRY(put_variables(r, in->own, false));
	TRY(put_json(r, "messages", in->messages, &messages));
	TRY(put_json(r, "tools", in->tools, &v));
	TRY(put_json(r, "documents", in->documents, &v));
	TRY(scope_set(r, "add_generation_prompt", value_bool(in->add_generation_prompt)));
	own_roles(messages);
	TRY(scope_push(r, r->scope));
	return run_body(r, r->t->body, &flow);
}

static enum err put_run(struct template_result *out, size_t *capacity, size_t begin, size_t end)
{
	if ((size_t)out->n_input == *capacity) {
		size_t more = *capacity ? 2 * *capacity : 64;
		TRY(mem_grow(&out->input, more, sizeof *out->input, "runs of foreign text"));
		*capacity = more;
	}
	out->input[out->n_input++] = (struct text_run){ begin, end };
	return ERR_OK;
}

static enum err take_result(const struct build *b, struct template_result *out)
{
	size_t capacity = 0;
	bytes_put(&out->text, b->data, b->n);
	TRY(out->text.error);
	for (size_t at = 0, end; at < b->n; at = end) {
		for (end = at + 1; end < b->n && b->mask[end] == b->mask[at];)
			end++;
		if (b->mask[at])
			TRY(put_run(out, &capacity, at, end));
	}
	return ERR_OK;
}

enum err template_render(const struct template *t, const struct template_input *in, struct template_result *out)
{
	struct run r = { .t = t, .in = in, .max_steps = in->max_steps ? in->max_steps : MAX_STEPS };
	*out = (struct template_result){ 0 };
	TRY(room_open(t->name, in->max_memory_bytes ? in->max_memory_bytes : MAX_MEMORY_BYTES, &r.room));
	struct build b = { .room = &r.room };
	r.out = &b;
	enum err e = render(&r, in);
	if (!e)
		e = take_result(&b, out);
	room_close(&r.room);
	if (e)
		template_result_free(out);
	return e;
}

void template_result_free(struct template_result *r)
{
	bytes_free(&r->text);
	mem_free(r->input);
	*r = (struct template_result){ 0 };
}
