/* Statements to trees. */
#include "runtime/template_parts.h"
#include "runtime/characters.h"

#include <stdarg.h>
#include <string.h>

static enum err parse_statements(struct parser *p, const char *const *ends, const char *opened, uint32_t at, struct node **out);

static bool at_word_of(const struct parser *p, const char *const *words)
{
	for (; words && *words; words++)
		if (parser_is_name(p, *words))
			return true;
	return false;
}

static enum err close_block(struct parser *p)
{
	if (p->token->kind != T_CLOSE_BLOCK)
		return parser_unexpected(p, "\"%}\"");
	p->token++;
	return ERR_OK;
}

/* The rest of the opening tag, a body, and its end word, which is taken; its tag is not closed yet. */
static enum err parse_block(struct parser *p, const char *opened, uint32_t at, const char *end, struct node **body)
{
	const char *const ends[] = { end, NULL };
	TRY(close_block(p));
	TRY(parse_statements(p, ends, opened, at, body));
	p->token++;
	return ERR_OK;
}

/* IF: a condition, list body, c: what follows else; flag: c is the IF of an elif */
static enum err parse_if(struct parser *p, struct node *n)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL };
	for (uint32_t at = n->at;;) {
		TRY(parse_tuple(p, false, NULL, &n->a));
		TRY(close_block(p));
		TRY(parse_statements(p, ends, "if", at, &n->list));
		if (!parser_is_name(p, "elif"))
			break;
		TRY(parser_node(p, N_IF, &n->c));
		n->flag = true;
		p->token++;
		n = n->c;
	}
	if (parser_take_name(p, "else"))
		return parse_block(p, "else", p->token->at, "endif", &n->c);
	p->token++;
	return ERR_OK;
}

static enum err parse_target(struct parser *p, const char *end_word, struct node **out);

/* NAME, ATTRIBUTE of a namespace where a set may have one, or a target in brackets */
static enum err parse_one_target(struct parser *p, const char *end_word, struct node **out)
{
	struct node *n;
	if (parser_take_op(p, '(')) {
		if (++p->nesting > MAX_NESTING)
			return template_fault(p->t, p->token->at, ERR_MODEL, "more than %d brackets inside each other", MAX_NESTING);
		TRY(parse_target(p, end_word, out));
		p->nesting--;
		return parser_expect_op(p, ')', "\")\"");
	}
	TRY(parser_node(p, N_NAME, &n));
	TRY(parser_name(p, &n->name));
	if (!end_word && parser_take_op(p, '.')) {
		n->kind = N_ATTRIBUTE;
		TRY(parser_node(p, N_NAME, &n->a));
		n->a->name = n->name;
		TRY(parser_name(p, &n->name));
	}
	*out = n;
	return ERR_OK;
}

/* What a loop or a set assigns to: one of the above, or a TUPLE of ITEMs of them. */
static enum err parse_target(struct parser *p, const char *end_word, struct node **out)
{
	struct node *n, **end, *tuple;
	TRY(parse_one_target(p, end_word, &n));
	*out = n;
	if (!parser_is_op(p, ','))
		return ERR_OK;
	TRY(parser_node(p, N_TUPLE, &tuple));
	*out = tuple;
	for (end = &tuple->list;; end = &(*end)->next) {
		TRY(parser_node(p, N_ITEM, end));
		(*end)->a = n;
		if (!parser_take_op(p, ',') || (end_word && parser_is_name(p, end_word)) || parser_is_op(p, '=') || parser_is_op(p, ')'))
			return ERR_OK;
		TRY(parse_one_target(p, end_word, &n));
	}
}

/* FOR: a target, b of what, c filter or NULL, flag: recursive, list: one ITEM, its a the body, its b that of else */
static enum err parse_for(struct parser *p, struct node *n)
{
	static const char *const ends[] = { "endfor", "else", NULL };
	struct node *bodies;
	TRY(parse_target(p, "in", &n->a));
	if (!parser_take_name(p, "in"))
		return parser_unexpected(p, "\"in\"");
	TRY(parse_tuple(p, false, "recursive", &n->b));
	if (parser_take_name(p, "if"))
		TRY(parse_expression(p, true, &n->c));
	n->flag = parser_take_name(p, "recursive");
	TRY(close_block(p));
	TRY(parser_node(p, N_ITEM, &bodies));   /* a: body, b: else */
	n->list = bodies;
	TRY(parse_statements(p, ends, "for", n->at, &bodies->a));
	if (parser_take_name(p, "else"))
		return parse_block(p, "else", n->at, "endfor", &bodies->b);
	p->token++;
	return ERR_OK;
}

/* SET: a target, b value. SET_BLOCK: a target, b filters of a CONST that stands for the body, or NULL; list body */
static enum err parse_set(struct parser *p, struct node *n)
{
	struct node *body;
	TRY(parse_target(p, NULL, &n->a));
	if (parser_take_op(p, '='))
		return parse_tuple(p, true, NULL, &n->b);
	n->kind = N_SET_BLOCK;
	if (parser_is_op(p, '|')) {
		TRY(parser_node(p, N_CONST, &body));
		body->flag = true;
		TRY(parse_filters(p, body, false, &n->b));
	}
	return parse_block(p, "set", n->at, "endset", &n->list);
}

/* "(a, b=1)" of a macro or call: KEYWORDs with a name, and a default in a or NULL */
static enum err parse_parameters(struct parser *p, struct node **list)
{
	struct node **end = list;
	TRY(parser_expect_op(p, '(', "\"(\""));
	while (!parser_take_op(p, ')')) {
		struct node *n;
		if (end != list) {
			TRY(parser_expect_op(p, ',', "\",\" or \")\""));
			if (parser_take_op(p, ')'))
				break;
		}
		TRY(parser_node(p, N_KEYWORD, &n));
		TRY(parser_name(p, &n->name));
		if (parser_take_op(p, '='))
			TRY(parse_expression(p, true, &n->a));
		*end = n;
		end = &n->next;
	}
	return ERR_OK;
}

/* MACRO: name, list parameters, a body, op what it uses */
static enum err parse_macro(struct parser *p, struct node *n)
{
	const struct lexeme *begin = p->token;
	TRY(parser_name(p, &n->name));
	TRY(parse_parameters(p, &n->list));
	TRY(parse_block(p, "macro", n->at, "endmacro", &n->a));
	for (const struct lexeme *k = begin; k < p->token; k++) {   /* who names them takes any arguments */
		if (k->kind != T_NAME)
			continue;
		n->op |= k->bytes == 7 && !memcmp(k->text, "varargs", 7) ? USES_VARARGS : 0;
		n->op |= k->bytes == 6 && !memcmp(k->text, "kwargs", 6) ? USES_KWARGS : 0;
	}
	return ERR_OK;
}

/* CALL_BLOCK: b the call, c a MACRO that is its caller */
static enum err parse_call(struct parser *p, struct node *n)
{
	TRY(parser_node(p, N_MACRO, &n->c));
	n->c->name = "caller";
	if (parser_is_op(p, '('))
		TRY(parse_parameters(p, &n->c->list));
	TRY(parse_unary(p, true, &n->b));
	if (n->b->kind != N_CALL)
		return template_fault(p->t, n->at, ERR_MODEL, "{%% call %%} wants a call of a macro");
	return parse_block(p, "call", n->at, "endcall", &n->c->a);
}

/* FILTER_BLOCK: b filters of a CONST that stands for the body, list body */
static enum err parse_filter_block(struct parser *p, struct node *n)
{
	struct node *body;
	TRY(parser_node(p, N_CONST, &body));
	body->flag = true;
	TRY(parse_filters(p, body, true, &n->b));
	return parse_block(p, "filter", n->at, "endfilter", &n->list);
}

/* WITH: a: list of ITEMs with target a and value b; list body */
static enum err parse_with(struct parser *p, struct node *n)
{
	struct node **end = &n->a;
	while (p->token->kind != T_CLOSE_BLOCK) {
		if (end != &n->a)
			TRY(parser_expect_op(p, ',', "\",\" or \"%}\""));
		TRY(parser_node(p, N_ITEM, end));
		TRY(parse_target(p, NULL, &(*end)->a));
		TRY(parser_expect_op(p, '=', "\"=\""));
		TRY(parse_expression(p, true, &(*end)->b));
		end = &(*end)->next;
	}
	return parse_block(p, "with", n->at, "endwith", &n->list);
}

static enum err parse_generation(struct parser *p, struct node *n)
{
	return parse_block(p, "generation", n->at, "endgeneration", &n->list);
}

static enum err parse_nothing(struct parser *p, struct node *n)
{
	(void)p, (void)n;
	return ERR_OK;
}

static const struct { const char *word; enum node_kind kind; enum err (*parse)(struct parser *p, struct node *n); } statements[] = {
	{ "if", N_IF, parse_if }, { "for", N_FOR, parse_for }, { "set", N_SET, parse_set }, { "macro", N_MACRO, parse_macro },
	{ "call", N_CALL_BLOCK, parse_call }, { "filter", N_FILTER_BLOCK, parse_filter_block }, { "with", N_WITH, parse_with },
	{ "generation", N_SCOPE, parse_generation }, { "break", N_BREAK, parse_nothing },
	{ "continue", N_CONTINUE, parse_nothing },
};

static enum err parse_statement(struct parser *p, struct node **out)
{
	uint32_t at = p->token->at;
	if (p->token->kind != T_NAME)
		return parser_unexpected(p, "a statement");
	for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
		if (!parser_take_name(p, statements[i].word))
			continue;
		TRY(parser_node(p, statements[i].kind, out));
		(*out)->at = at;
		TRY(statements[i].parse(p, *out));
		return close_block(p);
	}
	return template_fault(p->t, at, ERR_MODEL, "the statement \"%.*s\" is not known here (known: if, for, set, macro, call, "
			      "filter, with, generation, break, continue, raw)",
			      p->token->bytes > 40 ? 40 : (int)p->token->bytes, p->token->text);
}

/* Up to a block that begins with one of `ends`, which becomes the present token; NULL: to the end of the template. */
static enum err parse_statements(struct parser *p, const char *const *ends, const char *opened, uint32_t at, struct node **out)
{
	struct node **end = out;
	*out = NULL;
	if (++p->nesting > MAX_NESTING)
		return template_fault(p->t, p->token->at, ERR_MODEL, "more than %d statements and expressions inside each other", MAX_NESTING);
	while (p->token->kind != T_END) {
		struct node *n;
		const struct lexeme *k = p->token;
		if (k->kind == T_DATA) {
			TRY(parser_node(p, N_DATA, &n));
			TRY(text_new(&p->t->room, k->text, k->bytes, false, &n->value));
			p->token++;
		} else if (k->kind == T_OPEN_OUTPUT) {
			TRY(parser_node(p, N_OUTPUT, &n));
			p->token++;
			TRY(parse_tuple(p, true, NULL, &n->a));
			if (p->token->kind != T_CLOSE_OUTPUT)
				return parser_unexpected(p, "\"}}\"");
			p->token++;
		} else {
			p->token++;   /* {% */
			if (at_word_of(p, ends)) {
				p->nesting--;
				return ERR_OK;
			}
			TRY(parse_statement(p, &n));
		}
		*end = n;
		end = &n->next;
	}
	p->nesting--;
	return ends ? template_fault(p->t, at, ERR_MODEL, "{%% %s %%} has no end", opened) : ERR_OK;
}

enum err parse_body(struct parser *p) { return parse_statements(p, NULL, NULL, 0, &p->t->body); }

/* -- a template ----------------------------------------------------------------------------------------------------- */

enum err template_fault(const struct template *t, uint32_t at, enum err code, const char *format, ...)
{
	char sentence[ERR_SENTENCE_BYTES];
	va_list list;
	size_t line = 1, column = 1;
	for (size_t i = 0; i < at && i < t->bytes; i++) {
		if (t->source[i] == '\n') {
			line++;
			column = 1;
		} else if (((unsigned char)t->source[i] & 0xc0) != 0x80) {
			column++;
		}
	}
	va_start(list, format);
	vsnprintf(sentence, sizeof sentence, format, list);
	va_end(list);
	return err_raise(code, __FILE__, __LINE__, "%s: line %zu, column %zu: %s", t->name, line, column, sentence), code;
}

/* Line ends become \n, and one at the very end goes, as Jinja does it. */
static enum err take_source(struct template *t, const char *text, size_t bytes)
{
	char *copy;
	size_t n = 0;
	TRY(room_alloc(&t->room, bytes + 1, 1, &copy));
	for (size_t i = 0; i < bytes; i++) {
		copy[n++] = text[i] == '\r' ? '\n' : text[i];
		i += text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n';
	}
	if (n && copy[n - 1] == '\n')
		n--;
	t->source = copy;
	t->bytes = n;
	return ERR_OK;
}

static enum err parse(struct template *t, const char *text, size_t bytes)
{
	struct lexemes tokens = { 0 };
	if (bytes > MAX_TEMPLATE_BYTES)
		return ERR(MODEL, "%s: a template of %zu bytes, more than %d", t->name, bytes, MAX_TEMPLATE_BYTES);
	if (!utf8_valid(text, bytes))
		return ERR(MODEL, "%s: the template is not UTF-8", t->name);
	TRY(room_open(t->name, MAX_MEMORY_BYTES, &t->room));
	TRY(take_source(t, text, bytes));
	enum err e = template_lex(t, &tokens);
	struct parser p = { .t = t, .token = tokens.items };
	if (!e)
		e = parse_body(&p);
	mem_free(tokens.items);
	return e;
}

enum err template_parse(const char *name, const char *text, size_t bytes, struct template **out)
{
	struct template *t;
	TRY(MEM_NEW(1, struct template, &t));
	enum err e = mem_copy_string(name, &t->name);
	if (!e)
		e = parse(t, text, bytes);
	if (e) {
		template_free(t);
		return e;
	}
	*out = t;
	return ERR_OK;
}

void template_free(struct template *t)
{
	if (!t)
		return;
	room_close(&t->room);
	bytes_free(&t->literals);
	mem_free(t->name);
	mem_free(t);
}

const char *template_literals(const struct template *t, size_t *bytes)
{
	*bytes = t->literals.size;
	return bytes_text(&t->literals);
}
