/* What the files of the template interpreter share; no one else includes this.
 *
 *   lex      text -> tokens, with Jinja's control of white space                      template_lex.c
 *   parse    tokens -> tree of nodes                     template_parse.c (statements), template_expr.c (expressions)
 *   run      statements, scopes, loops, macros                                        template_run.c
 *   eval     expressions                                       template_eval.c, template_ops.c (operators and indices)
 *   call     filters, tests, functions, methods     template_filters.c, template_lists.c, template_tests.c, template_methods.c
 *   value    values, text with its origin, writing them           template_value.c, template_text.c, template_json.c
 *   chat     finding a model's template, ids of the result                            template_chat.c
 *
 * Memory: a parsed template owns a room, and so does each render; nothing in a room is freed before the room. Values are
 * never changed once made, but for namespaces; so lists and text may share memory freely. */
#ifndef SHARDRUN_RUNTIME_TEMPLATE_PARTS_H
#define SHARDRUN_RUNTIME_TEMPLATE_PARTS_H

#include "base/err.h"
#include "base/mem.h"
#include "runtime/template.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	MAX_TEMPLATE_BYTES = 4 << 20,
	MAX_NESTING = 150,             /* of brackets and statements in a template */
	MAX_DEPTH = 1000,              /* of evaluation: nodes inside each other, macros included */
	MAX_VALUE_DEPTH = 200,         /* of lists and dictionaries */
	MAX_OUTPUT_BYTES = 64 << 20,
	MAX_NAME_BYTES = 200,
	MAX_RANGE = 100000,            /* as Jinja's sandbox has it */
};
#define MAX_MEMORY_BYTES ((uint64_t)512 << 20)
#define MAX_STEPS ((uint64_t)20000000)

/* -- room: memory of one lifetime, in small pieces ---------------------------------------------------------------- */

struct room { const char *name; struct arena *arena; char *at; size_t left; uint64_t used, limit; };
enum err room_open(const char *name, uint64_t limit, struct room *r);
void room_close(struct room *r);
enum err room_alloc(struct room *r, size_t n, size_t size, void *out);              /* zeroed; out: address of a pointer */
/* A longer copy of a block. */
enum err room_grow(struct room *r, void *block, size_t old_bytes, size_t new_bytes);
#define ROOM_NEW(r, n, type, out) room_alloc((r), (n), sizeof(type), (out))

/* -- values --------------------------------------------------------------------------------------------------------- */

/* mask: one byte for each of data, 1 = came from outside; NULL: all of it is as `input` says. markup: Markup of
 * Python's markupsafe, made by |safe, whose + escapes the other side. */
struct text { const char *data; const unsigned char *mask; size_t bytes; bool input, markup; };

enum kind { V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_REAL, V_TEXT, V_LIST, V_DICT, V_NAMESPACE, V_MACRO, V_LOOP, V_FUNCTION,
	    V_METHOD };

struct value {
	uint8_t kind;
	bool input;                    /* came from outside; text says so itself */
	union {
		bool yes;
		int64_t i;
		double d;
		const struct text *text;
		const struct list *list;
		struct dict *dict;             /* DICT, NAMESPACE */
		const struct macro *macro;
		const struct loop *loop;
		const struct function *function;
		const struct method *method;
		const char *what;              /* UNDEFINED: "'x' is undefined", or NULL */
	};
};

/* GENERATOR: what map and select give, without a length; VIEW: keys(), values() and items(), without an index. */
enum list_form { LIST_PLAIN, LIST_TUPLE, LIST_GENERATOR, LIST_VIEW, LIST_RANGE };
struct list { enum list_form form; size_t n, capacity; struct value *items; };
struct pair { struct value key, value; };
struct dict { size_t n, capacity; struct pair *pairs; };
struct method { struct value self; const char *name; };

static inline struct value value_undefined(const char *what) { return (struct value){ .kind = V_UNDEFINED, .what = what }; }
static inline struct value value_none(void) { return (struct value){ .kind = V_NONE }; }
static inline struct value value_bool(bool yes) { return (struct value){ .kind = V_BOOL, .yes = yes }; }
static inline struct value value_int(int64_t i) { return (struct value){ .kind = V_INT, .i = i }; }
static inline struct value value_real(double d) { return (struct value){ .kind = V_REAL, .d = d }; }
static inline struct value value_text(const struct text *t) { return (struct value){ .kind = V_TEXT, .text = t }; }
static inline struct value value_list(const struct list *l) { return (struct value){ .kind = V_LIST, .list = l }; }
static inline struct value value_dict(struct dict *d) { return (struct value){ .kind = V_DICT, .dict = d }; }
static inline bool is_number(struct value v) { return v.kind == V_INT || v.kind == V_REAL || v.kind == V_BOOL; }
static inline bool is_whole(struct value v) { return v.kind == V_INT || v.kind == V_BOOL; }
static inline int64_t whole_of(struct value v) { return v.kind == V_BOOL ? v.yes : v.i; }
static inline double real_of(struct value v) { return v.kind == V_REAL ? v.d : (double)whole_of(v); }
static inline bool text_is(struct value v, const char *word)
{
	return v.kind == V_TEXT && v.text->bytes == __builtin_strlen(word) && !__builtin_memcmp(v.text->data, word, v.text->bytes);
}

bool value_true(struct value v);
const char *value_type(struct value v);                                  /* Python's name, for sentences */

/* -- the tree ------------------------------------------------------------------------------------------------------- */

enum node_kind {
	/* expressions */
	N_CONST, N_NAME, N_LIST, N_TUPLE, N_DICT, N_ATTRIBUTE, N_INDEX, N_SLICE, N_CALL, N_FILTER, N_TEST, N_IF_ELSE, N_NOT, N_AND,
	N_OR, N_NEGATE, N_PLUS, N_BINARY, N_COMPARE, N_CONCAT, N_KEYWORD, N_ITEM,
	/* statements */
	N_DATA, N_OUTPUT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_CALL_BLOCK, N_FILTER_BLOCK, N_WITH, N_SCOPE, N_BREAK,
	N_CONTINUE,
};

/* Operators are named by their first character; the others by these. */
enum { OP_EQ = 128, OP_NE, OP_GE, OP_LE, OP_FLOOR, OP_POWER, OP_IN, OP_NOT_IN };

/* What a, b, c and list are is said where a node is made. `next` chains siblings. */
struct node {
	enum node_kind kind;
	int op;
	uint32_t at;                   /* byte in the source */
	bool flag;
	struct node *next, *a, *b, *c, *list;
	const char *name;              /* terminated */
	struct value value;
};

struct template {
	char *name;
	struct room room;
	const char *source;            /* with \n line ends */
	size_t bytes;
	struct node *body;
	struct bytes literals;         /* all text the template writes by itself, parted by 0 bytes */
};

/* "NAME: line L, column C: ..."; gives code. */
enum err template_fault(const struct template *t, uint32_t at, enum err code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* -- lexing and parsing --------------------------------------------------------------------------------------------- */

enum lexeme_kind { T_DATA, T_OPEN_BLOCK, T_CLOSE_BLOCK, T_OPEN_OUTPUT, T_CLOSE_OUTPUT, T_NAME, T_TEXT, T_INT, T_REAL, T_OP, T_END };
/* text: NAME in the source, TEXT and DATA as they are meant; op: as in node */
struct lexeme { enum lexeme_kind kind; int op; uint32_t at; const char *text; size_t bytes; int64_t i; double d; };
struct lexemes { struct lexeme *items; size_t n, capacity; };
enum err template_lex(struct template *t, struct lexemes *out);

struct parser { struct template *t; const struct lexeme *token; int nesting; };
enum err parse_body(struct parser *p);                                            /* all of a template */
enum err parse_expression(struct parser *p, bool with_if, struct node **out);
enum err parse_tuple(struct parser *p, bool with_if, const char *end_word, struct node **out);
enum err parse_primary(struct parser *p, struct node **out);
enum err parse_unary(struct parser *p, bool with_filter, struct node **out);
enum err parse_filters(struct parser *p, struct node *of, bool first, struct node **out);   /* first: the | is behind us */
/* "(a, b, c=d)" into a list of nodes, KEYWORD ones with a name and a value in a. */
enum err parse_arguments(struct parser *p, struct node **list);
enum err parser_node(struct parser *p, enum node_kind kind, struct node **out);    /* at the present token */
enum err parser_name(struct parser *p, const char **out);                          /* takes a name */
enum err parser_word(struct parser *p, const char *text, size_t bytes, const char **out);
bool parser_is_op(const struct parser *p, int op);
bool parser_is_name(const struct parser *p, const char *word);
bool parser_take_op(struct parser *p, int op);
bool parser_take_name(struct parser *p, const char *word);
enum err parser_expect_op(struct parser *p, int op, const char *shown);
enum err parser_unexpected(struct parser *p, const char *wanted);

/* -- running -------------------------------------------------------------------------------------------------------- */

struct binding { struct binding *next; const char *name; struct value value; };
struct scope { struct scope *outer; struct binding *names; };

/* Growing text with its origin, in a room. */
struct build { struct room *room; char *data; unsigned char *mask; size_t n, capacity, n_input; };

struct macro { const struct node *node; struct scope *scope; struct value caller; const char *name; };
struct loop {
	const struct list *items;
	size_t i, depth;
	const struct node *recursive;  /* the statement, when it is one */
	struct scope *scope;           /* around the loop */
	struct value *changed;         /* what changed() saw last */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
struct run {
	const struct template *t;
	const struct template_input *in;
	struct room room;
	struct scope *scope;
	struct build *out;
	struct value block;            /* what the filters of a block apply to */
	uint64_t steps, max_steps;
	int depth;
	uint32_t at;                   /* the node being worked on, for sentences */
};

/* Arguments of a call, evaluated. */
struct named { const char *name; struct value value; };
struct arguments { struct value *items; size_t n; struct named *named; size_t n_named; struct value caller; };

enum err run_fault(struct run *r, enum err code, const char *format, ...) __attribute__((format(printf, 3, 4)));
enum err run_steps(struct run *r, uint64_t n);                           /* counts work (8 bytes looked at, or 64 copied), fails at the limit */
enum err run_body(struct run *r, const struct node *body, enum flow *flow);
enum err run_macro(struct run *r, const struct macro *m, const struct arguments *a, struct value *out);
enum err run_loop_again(struct run *r, const struct loop *l, const struct arguments *a, struct value *out);   /* loop(items) */
enum { USES_VARARGS = 1, USES_KWARGS = 2 };       /* op of a MACRO */
enum err scope_push(struct run *r, struct scope *outer);                 /* makes a new scope the present one */
enum err scope_get(struct run *r, const char *name, struct value *out);
enum err scope_set(struct run *r, const char *name, struct value v);
enum err eval(struct run *r, const struct node *n, struct value *out);
enum err eval_arguments(struct run *r, const struct node *list, struct arguments *out);
enum err eval_call(struct run *r, const struct node *n, struct value caller, struct value *out);
enum err call_value(struct run *r, struct value f, const struct arguments *a, struct value *out);

/* operators */
enum err op_binary(struct run *r, int op, struct value a, struct value b, struct value *out);
enum err op_compare(struct run *r, int op, struct value a, struct value b, bool *out);
enum err op_negate(struct run *r, struct value a, struct value *out);
enum err value_equal(struct run *r, struct value a, struct value b, int depth, bool *out);
enum err value_less(struct run *r, struct value a, struct value b, bool *out);
enum err value_contains(struct run *r, struct value in, struct value what, bool *out);
/* x.name and x[key]; what is not there is undefined */
enum err get_attribute(struct run *r, struct value of, const char *name, struct value *out);
enum err get_item(struct run *r, struct value of, struct value key, struct value *out);
/* "a.b.0" as filters' attribute= takes it; or a number. fallback: NULL, or instead of what is undefined on the way */
enum err get_path(struct run *r, struct value of, struct value path, const struct value *fallback, struct value *out);
enum err get_slice(struct run *r, struct value of, struct value from, struct value to, struct value step, struct value *out);

/* lists and dictionaries */
enum err list_new(struct run *r, enum list_form form, size_t capacity, struct list **out);
enum err list_put(struct run *r, struct list *l, struct value v);
enum err dict_new(struct run *r, struct dict **out);
enum err dict_set(struct run *r, struct dict *d, struct value key, struct value v);
enum err dict_find(struct run *r, const struct dict *d, struct value key, struct value *out, bool *found);
/* What iterating gives: items, keys, characters. An undefined one gives none; what cannot be iterated is a fault. */
enum err value_items(struct run *r, struct value v, const struct list **out);
enum err value_length(struct run *r, struct value v, int64_t *out);
enum err value_from_json(struct run *r, const json_t *j, bool input, int depth, struct value *out);

/* text */
enum err text_new(struct room *room, const char *data, size_t bytes, bool input, struct value *out);
enum err text_part(struct run *r, const struct text *t, size_t begin, size_t end, struct value *out);
static inline bool text_input_at(const struct text *t, size_t i) { return t->mask ? t->mask[i] : t->input; }
int64_t text_chars(const struct text *t);
enum err build_put(struct build *b, const char *data, size_t bytes, bool input);
enum err build_words(struct build *b, const char *text);                 /* the template's */
enum err build_text(struct build *b, const struct text *t);
enum err build_part(struct build *b, const struct text *t, size_t begin, size_t end);
enum err build_done(struct build *b, struct value *out);
enum err build_value(struct run *r, struct build *b, struct value v);    /* Python's str() */
enum err build_repr(struct run *r, struct build *b, struct value v, int depth);
enum err build_number(struct build *b, struct value v);
struct json_style { int64_t indent; bool has_indent, ascii, sort; const struct text *comma, *colon; };
enum err build_json(struct run *r, struct build *b, struct value v, const struct json_style *s, int depth);
enum err value_to_text(struct run *r, struct value v, const struct text **out);
enum err text_escape(struct run *r, const struct text *t, struct value *out);      /* HTML, as markup */
enum err text_format(struct run *r, const struct text *format, struct value with, struct value *out);   /* % */
enum err text_format_braces(struct run *r, const struct text *format, const struct arguments *a, struct value *out);
enum err text_indent(struct run *r, const struct text *t, const struct text *by, bool first, bool blank, struct value *out);

enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_TITLE_FILTER };
enum err text_to_case(struct run *r, const struct text *t, enum text_case to, struct value *out);
/* chars NULL: white space */
enum err text_strip(struct run *r, const struct text *t, const struct text *chars, bool left, bool right, struct value *out);
enum err text_replace(struct run *r, const struct text *t, const struct text *from, const struct text *to, int64_t n,
		      struct value *out);
enum err text_split(struct run *r, const struct text *t, const struct text *by, int64_t n, bool from_right, struct value *out);
bool text_find(const struct text *t, const struct text *what, size_t from, size_t *at);

/* tables */
struct function { const char *name; enum err (*call)(struct run *r, const struct arguments *a, struct value *out); };
const struct function *function_find(const char *name);
struct filter {
	const char *name;
	enum err (*apply)(struct run *r, struct value v, const struct arguments *a, struct value *out);
};
extern const struct filter text_filters[], list_filters[];               /* each ends with a NULL name */
enum err filter_apply(struct run *r, const char *name, struct value v, const struct arguments *a, struct value *out);
enum err test_apply(struct run *r, const char *name, struct value v, const struct arguments *a, bool *out);
bool has_method(struct value v, const char *name);
enum err method_call(struct run *r, const struct method *m, const struct arguments *a, struct value *out);

/* The argument at place i, or named; NULL when absent. name NULL: by place only. */
const struct value *argument(const struct arguments *a, size_t i, const char *name);
enum err argument_bool(struct run *r, const struct arguments *a, size_t i, const char *name, bool fallback, bool *out);
enum err argument_int(struct run *r, const struct arguments *a, size_t i, const char *name, int64_t fallback, int64_t *out);
/* NULL when absent or none */
enum err argument_text(struct run *r, const struct arguments *a, size_t i, const char *name, const struct text **out);

#endif
