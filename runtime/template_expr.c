/* Expressions to trees, with the precedence of jinja2/parser.py: x if y, or, and, not, comparisons, + -, ~, * / // %, **,
 * unary, then what follows an operand. */
#include "runtime/template_parts.h"

#include <string.h>

enum err parser_node(struct parser *p, enum node_kind kind, struct node **out)
{
	struct node *n;
	TRY(ROOM_NEW(&p->t->room, 1, struct node, &n));
	n->kind = kind;
	n->at = p->token->at;
	*out = n;
	return ERR_OK;
}

enum err parser_unexpected(struct parser *p, const char *wanted)
{
	static const char *const names[] = { [T_DATA] = "text", [T_OPEN_BLOCK] = "\"{%\"", [T_CLOSE_BLOCK] = "\"%}\"",
		[T_OPEN_OUTPUT] = "\"{{\"", [T_CLOSE_OUTPUT] = "\"}}\"", [T_TEXT] = "a string", [T_INT] = "a number",
		[T_REAL] = "a number", [T_END] = "the end of the template" };
	const struct lexeme *k = p->token;
	char room[48];
	const char *found = names[k->kind];
	if (k->kind == T_NAME)
		snprintf(room, sizeof room, "\"%.*s\"", k->bytes > 40 ? 40 : (int)k->bytes, k->text);
	else if (k->kind == T_OP)
		snprintf(room, sizeof room, "\"%.*s\"", k->op < 128 ? 1 : 2, p->t->source + k->at);
	return template_fault(p->t, k->at, ERR_MODEL, "%s instead of %s", found ? found : room, wanted);
}

bool parser_is_op(const struct parser *p, int op) { return p->token->kind == T_OP && p->token->op == op; }

bool parser_is_name(const struct parser *p, const char *word)
{
	return p->token->kind == T_NAME && p->token->bytes == strlen(word) && !memcmp(p->token->text, word, p->token->bytes);
}

bool parser_take_op(struct parser *p, int op)
{
	bool yes = parser_is_op(p, op);
	p->token += yes;
	return yes;
}

bool parser_take_name(struct parser *p, const char *word)
{
	bool yes = parser_is_name(p, word);
	p->token += yes;
	return yes;
}

enum err parser_expect_op(struct parser *p, int op, const char *shown)
{
	return parser_take_op(p, op) ? ERR_OK : parser_unexpected(p, shown);
}

enum err parser_word(struct parser *p, const char *text, size_t bytes, const char **out)
{
	char *copy;
	TRY(room_alloc(&p->t->room, bytes + 1, 1, &copy));
	memcpy(copy, text, bytes);
	*out = copy;
	return ERR_OK;
}

enum err parser_name(struct parser *p, const char **out)
{
	if (p->token->kind != T_NAME)
		return parser_unexpected(p, "a name");
	if (p->token->bytes > MAX_NAME_BYTES)
		return template_fault(p->t, p->token->at, ERR_MODEL, "a name of more than %d bytes", MAX_NAME_BYTES);
	TRY(parser_word(p, p->token->text, p->token->bytes, out));
	p->token++;
	return ERR_OK;
}

/* -- operands ------------------------------------------------------------------------------------------------------- */

/* Items up to the closing bracket; in a dictionary a is the key and b the value. */
static enum err parse_items(struct parser *p, int close, const char *shown, bool pairs, struct node **list)
{
	for (struct node **end = list; !parser_take_op(p, close);) {
		struct node *item, *key;
		if (end != list) {
			TRY(parser_expect_op(p, ',', shown));
			if (parser_take_op(p, close))
				break;
		}
		if (pairs) {
			TRY(parser_node(p, N_ITEM, &item));
			TRY(parse_expression(p, true, &key));
			item->a = key;
			TRY(parser_expect_op(p, ':', "\":\""));
			TRY(parse_expression(p, true, &item->b));
		} else {
			TRY(parse_expression(p, true, &key));
			TRY(parser_node(p, N_ITEM, &item));   /* expressions may be shared by two lists; items are not */
			item->a = key;
		}
		*end = item;
		end = &item->next;
	}
	return ERR_OK;
}

static enum err parse_string(struct parser *p, struct node *n)
{
	struct build b = { .room = &p->t->room };
	n->kind = N_CONST;
	for (; p->token->kind == T_TEXT; p->token++)
		TRY(build_put(&b, p->token->text, p->token->bytes, false));
	return build_done(&b, &n->value);
}

static enum err parse_word(struct parser *p, struct node *n)
{
	static const struct { const char *word; struct value value; } words[] = {
		{ "true", { .kind = V_BOOL, .yes = true } }, { "True", { .kind = V_BOOL, .yes = true } },
		{ "false", { .kind = V_BOOL } }, { "False", { .kind = V_BOOL } },
		{ "none", { .kind = V_NONE } }, { "None", { .kind = V_NONE } },
	};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (parser_take_name(p, words[i].word)) {
			n->kind = N_CONST;
			n->value = words[i].value;
			return ERR_OK;
		}
	n->kind = N_NAME;
	return parser_name(p, &n->name);
}

enum err parse_primary(struct parser *p, struct node **out)
{
	const struct lexeme *k = p->token;
	struct node *n;
	TRY(parser_node(p, N_CONST, &n));
	*out = n;
	if (k->kind == T_NAME)
		return parse_word(p, n);
	if (k->kind == T_TEXT)
		return parse_string(p, n);
	if (k->kind == T_INT || k->kind == T_REAL) {
		n->value = k->kind == T_INT ? value_int(k->i) : value_real(k->d);
		p->token++;
		return ERR_OK;
	}
	if (parser_take_op(p, '[')) {
		n->kind = N_LIST;
		return parse_items(p, ']', "\",\" or \"]\"", false, &n->list);
	}
	if (parser_take_op(p, '{')) {
		n->kind = N_DICT;
		return parse_items(p, '}', "\",\" or \"}\"", true, &n->list);
	}
	if (!parser_take_op(p, '('))
		return parser_unexpected(p, "an expression");
	if (parser_take_op(p, ')')) {
		n->kind = N_TUPLE;
		return ERR_OK;
	}
	TRY(parse_tuple(p, true, NULL, out));
	return parser_expect_op(p, ')', "\")\"");
}

enum err parse_arguments(struct parser *p, struct node **list)
{
	struct node **end = list;
	bool named = false;
	TRY(parser_expect_op(p, '(', "\"(\""));
	while (!parser_take_op(p, ')')) {
		struct node *n;
		if (end != list) {
			TRY(parser_expect_op(p, ',', "\",\" or \")\""));
			if (parser_take_op(p, ')'))
				break;
		}
		if (parser_is_op(p, '*') || parser_is_op(p, OP_POWER))
			return template_fault(p->t, p->token->at, ERR_MODEL, "* and ** in arguments are not supported");
		TRY(parser_node(p, N_KEYWORD, &n));
		if (p->token->kind == T_NAME && p->token[1].kind == T_OP && p->token[1].op == '=') {
			TRY(parser_name(p, &n->name));
			p->token++;
			named = true;
		} else if (named) {
			return template_fault(p->t, p->token->at, ERR_MODEL, "an argument without a name follows one with a name");
		}
		TRY(parse_expression(p, true, &n->a));
		*end = n;
		end = &n->next;
	}
	return ERR_OK;
}

/* [key] or [from:to:step], behind the bracket. SLICE: a of, list: three ITEMs whose a may be NULL. */
static enum err parse_index(struct parser *p, struct node *of, struct node *n)
{
	n->a = of;
	n->kind = N_INDEX;
	struct node *parts[3] = { NULL }, **end = &n->list;
	int n_parts = 0;
	if (!parser_is_op(p, ':'))
		TRY(parse_expression(p, true, &parts[0]));
	if (parser_take_op(p, ']')) {
		n->b = parts[0];
		return ERR_OK;
	}
	while (n_parts < 2 && parser_take_op(p, ':')) {
		n_parts++;
		if (!parser_is_op(p, ':') && !parser_is_op(p, ']'))
			TRY(parse_expression(p, true, &parts[n_parts]));
	}
	if (!n_parts)
		return parser_unexpected(p, "\"]\" or \":\"");
	n->kind = N_SLICE;
	for (int i = 0; i < 3; i++) {
		TRY(parser_node(p, N_ITEM, end));
		(*end)->a = parts[i];
		end = &(*end)->next;
	}
	return parser_expect_op(p, ']', "\"]\"");
}

/* What follows an operand: .name [key] (arguments) */
static enum err parse_postfix(struct parser *p, struct node **of)
{
	for (;;) {
		struct node *n;
		TRY(parser_node(p, N_CALL, &n));
		n->a = *of;
		if (parser_is_op(p, '(')) {
			TRY(parse_arguments(p, &n->list));
		} else if (parser_take_op(p, '[')) {
			TRY(parse_index(p, *of, n));
		} else if (parser_take_op(p, '.')) {
			n->kind = N_ATTRIBUTE;
			if (p->token->kind == T_INT) {   /* x.0 is x[0] */
				n->kind = N_INDEX;
				TRY(parse_primary(p, &n->b));
			} else {
				TRY(parser_name(p, &n->name));
			}
		} else {
			return ERR_OK;
		}
		*of = n;
	}
}

/* Dotted names of filters and tests. */
static enum err parse_long_name(struct parser *p, const char **out)
{
	TRY(parser_name(p, out));
	if (parser_is_op(p, '.'))
		return parser_unexpected(p, "a known name without a \".\"");
	return ERR_OK;
}

/* TEST: a of, name, list of arguments; flag: negated */
static enum err parse_test(struct parser *p, struct node **of)
{
	struct node *n, *argument;
	TRY(parser_node(p, N_TEST, &n));
	n->a = *of;
	n->flag = parser_take_name(p, "not");
	TRY(parse_long_name(p, &n->name));
	*of = n;
	enum lexeme_kind k = p->token->kind;
	if (parser_is_op(p, '('))
		return parse_arguments(p, &n->list);
	bool operand = k == T_TEXT || k == T_INT || k == T_REAL || parser_is_op(p, '[') || parser_is_op(p, '{') ||
		       (k == T_NAME && !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and"));
	if (!operand)
		return ERR_OK;
	if (parser_is_name(p, "is"))
		return template_fault(p->t, p->token->at, ERR_MODEL, "tests cannot be chained with \"is\"");
	TRY(parser_node(p, N_KEYWORD, &n->list));
	TRY(parse_primary(p, &argument));
	TRY(parse_postfix(p, &argument));
	n->list->a = argument;
	return ERR_OK;
}

/* FILTER: a of, name, list of arguments */
enum err parse_filters(struct parser *p, struct node *of, bool first, struct node **out)
{
	for (;;) {
		struct node *n;
		if (first || parser_take_op(p, '|')) {
			first = false;
			TRY(parser_node(p, N_FILTER, &n));
			n->a = of;
			TRY(parse_long_name(p, &n->name));
			if (parser_is_op(p, '('))
				TRY(parse_arguments(p, &n->list));
			of = n;
		} else if (parser_take_name(p, "is")) {
			TRY(parse_test(p, &of));
		} else if (parser_is_op(p, '(')) {
			TRY(parser_node(p, N_CALL, &n));
			n->a = of;
			TRY(parse_arguments(p, &n->list));
			of = n;
		} else {
			*out = of;
			return ERR_OK;
		}
	}
}

/* -- operators ------------------------------------------------------------------------------------------------------ */

enum err parse_unary(struct parser *p, bool with_filter, struct node **out)
{
	struct node *n;
	if (parser_is_op(p, '-') || parser_is_op(p, '+')) {
		if (++p->nesting > MAX_NESTING)
			return template_fault(p->t, p->token->at, ERR_MODEL, "more than %d signs and brackets inside each other",
					      MAX_NESTING);
		TRY(parser_node(p, parser_is_op(p, '-') ? N_NEGATE : N_PLUS, &n));
		p->token++;
		TRY(parse_unary(p, false, &n->a));
		p->nesting--;
	} else {
		TRY(parse_primary(p, &n));
	}
	TRY(parse_postfix(p, &n));
	if (with_filter)
		return parse_filters(p, n, false, out);
	*out = n;
	return ERR_OK;
}

/* Left-associative levels, tightest last. */
static const char *const levels[] = { "+-", "~", "*/%" };

static int level_op(const struct parser *p, int level)
{
	int op = p->token->kind == T_OP ? p->token->op : 0;
	if (level == 3)
		return op == OP_POWER ? op : 0;
	if (level == 2 && op == OP_FLOOR)
		return op;
	return op && op < 128 && strchr(levels[level], op) ? op : 0;
}

static enum err parse_level(struct parser *p, int level, struct node **out)
{
	struct node *left, *n;
	int op;
	TRY(level == 3 ? parse_unary(p, true, &left) : parse_level(p, level + 1, &left));
	while ((op = level_op(p, level))) {
		TRY(parser_node(p, op == '~' ? N_CONCAT : N_BINARY, &n));
		p->token++;
		n->op = op;
		n->a = left;
		TRY(level == 3 ? parse_unary(p, true, &n->b) : parse_level(p, level + 1, &n->b));
		left = n;
	}
	*out = left;
	return ERR_OK;
}

static int comparison(struct parser *p)
{
	const struct lexeme *k = p->token;
	if (k->kind == T_OP && (k->op == OP_EQ || k->op == OP_NE || k->op == OP_GE || k->op == OP_LE || k->op == '<' || k->op == '>')) {
		p->token++;
		return k->op;
	}
	if (parser_take_name(p, "in"))
		return OP_IN;
	if (parser_is_name(p, "not") && k[1].kind == T_NAME && k[1].bytes == 2 && !memcmp(k[1].text, "in", 2)) {
		p->token += 2;
		return OP_NOT_IN;
	}
	return 0;
}

/* COMPARE: a first, list of ITEMs with op and a */
static enum err parse_compare(struct parser *p, struct node **out)
{
	struct node *first, *n = NULL, **end = NULL;
	int op;
	TRY(parse_level(p, 0, &first));
	*out = first;
	for (uint32_t at = p->token->at; (op = comparison(p)); at = p->token->at) {
		struct node *item;
		if (!n) {
			TRY(parser_node(p, N_COMPARE, &n));
			n->at = at;
			n->a = first;
			end = &n->list;
		}
		TRY(parser_node(p, N_ITEM, &item));
		item->op = op;
		TRY(parse_level(p, 0, &item->a));
		*end = item;
		end = &item->next;
		*out = n;
	}
	return ERR_OK;
}

static enum err parse_not(struct parser *p, struct node **out)
{
	struct node *n;
	if (!parser_is_name(p, "not"))
		return parse_compare(p, out);
	if (++p->nesting > MAX_NESTING)
		return template_fault(p->t, p->token->at, ERR_MODEL, "more than %d \"not\" inside each other", MAX_NESTING);
	TRY(parser_node(p, N_NOT, &n));
	p->token++;
	TRY(parse_not(p, &n->a));
	p->nesting--;
	*out = n;
	return ERR_OK;
}

static enum err parse_logic(struct parser *p, bool is_or, struct node **out)
{
	struct node *left, *n;
	TRY(is_or ? parse_logic(p, false, &left) : parse_not(p, &left));
	while (parser_is_name(p, is_or ? "or" : "and")) {
		TRY(parser_node(p, is_or ? N_OR : N_AND, &n));
		p->token++;
		n->a = left;
		TRY(is_or ? parse_logic(p, false, &n->b) : parse_not(p, &n->b));
		left = n;
	}
	*out = left;
	return ERR_OK;
}

/* IF_ELSE: a value, b condition, c otherwise or NULL */
static enum err parse_if_else(struct parser *p, bool with_if, struct node **out)
{
	struct node *value, *n;
	TRY(parse_logic(p, true, &value));
	while (with_if && parser_is_name(p, "if")) {
		TRY(parser_node(p, N_IF_ELSE, &n));
		p->token++;
		n->a = value;
		TRY(parse_logic(p, true, &n->b));
		if (parser_take_name(p, "else"))
			TRY(parse_expression(p, true, &n->c));
		value = n;
	}
	*out = value;
	return ERR_OK;
}

enum err parse_expression(struct parser *p, bool with_if, struct node **out)
{
	if (++p->nesting > MAX_NESTING)
		return template_fault(p->t, p->token->at, ERR_MODEL, "more than %d statements and expressions inside each other", MAX_NESTING);
	TRY(parse_if_else(p, with_if, out));
	p->nesting--;
	return ERR_OK;
}

/* One expression, or several with commas between: TUPLE, list of ITEMs. */
enum err parse_tuple(struct parser *p, bool with_if, const char *end_word, struct node **out)
{
	struct node *first, *tuple, **end;
	TRY(parse_expression(p, with_if, &first));
	*out = first;
	if (!parser_is_op(p, ','))
		return ERR_OK;
	TRY(parser_node(p, N_TUPLE, &tuple));
	TRY(parser_node(p, N_ITEM, &tuple->list));
	tuple->list->a = first;
	end = &tuple->list->next;
	while (parser_take_op(p, ',')) {
		enum lexeme_kind k = p->token->kind;
		if (k == T_CLOSE_BLOCK || k == T_CLOSE_OUTPUT || parser_is_op(p, ')') || parser_is_op(p, '=') ||
		    (end_word && parser_is_name(p, end_word)))
			break;
		TRY(parser_node(p, N_ITEM, end));
		TRY(parse_expression(p, with_if, &(*end)->a));
		end = &(*end)->next;
	}
	*out = tuple;
	return ERR_OK;
}
