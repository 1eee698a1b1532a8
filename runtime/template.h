/* Chat templates: the Jinja2 subset in which models say how messages become a prompt, run by an interpreter that takes
 * the template for hostile and the messages for foreign. docs/CHAT-TEMPLATES.md lists what is supported.
 *
 * Every byte of the result is known to be the template's own or to have come from outside (messages, tools, documents,
 * variables of the request). When the result becomes token ids, control tokens are recognised only where no byte of
 * them came from outside, so nothing that a user writes can become one. */
#ifndef SHARDRUN_RUNTIME_TEMPLATE_H
#define SHARDRUN_RUNTIME_TEMPLATE_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/json.h"
#include "runtime/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

struct template;
struct gguf;

/* name appears in sentences. ERR_MODEL with line and column when the text is not a template of the subset. A template
 * never changes once it is parsed, so many threads may render with it. */
enum err template_parse(const char *name, const char *text, size_t bytes, struct template **out);
void template_free(struct template *t);    /* takes NULL */
/* All text that the template can write by itself, parted by 0 bytes. */
const char *template_literals(const struct template *t, size_t *bytes);

/* What a prompt is made of. All borrowed; NULL is none, as None in Python. */
struct template_input {
	const json_t *messages;            /* array of objects */
	const json_t *tools, *documents;   /* arrays */
	const json_t *variables;           /* object: more variables of the request; they replace no name given here */
	const json_t *own;                 /* object: variables that count as the template's own text, such as bos_token */
	int add_generation_prompt;
	int64_t now_s;                     /* what strftime_now shows, in local time */
	uint64_t max_memory_bytes, max_steps;   /* 0: the usual limits */
};

struct template_result {
	struct bytes text;                 /* valid UTF-8 */
	struct text_run *input;            /* runs of text from outside, in order, apart from each other */
	int64_t n_input;
};

/* *out is the caller's: template_result_free, also after an error. ERR_WORK: the template refuses these messages
 * (raise_exception), or it fails on them; the sentence names line and column. ERR_MODEL: it uses what is not supported.
 * It is stopped at limits of steps, memory, depth and size of the result. */
enum err template_render(const struct template *t, const struct template_input *in, struct template_result *out);
void template_result_free(struct template_result *r);

/* Appends the ids of a result; nothing is added around it, a template writes its own bos_token. Control tokens are
 * recognised in the template's text only. Added tokens that are no control tokens are recognised in foreign text too,
 * unless the template writes them itself, as it does <tool_call>. */
enum err template_tokenize(const struct template *t, const struct template_result *r, const struct tokenizer *tokenizer,
			   struct tokens *out);

/* Requests in OpenAI's format have the arguments of a tool call as JSON in a string; templates want the object. Replaces each such
 * string in an array of messages by what it holds, and leaves what is no JSON object as it is. */
enum err chat_parse_arguments(json_t *messages);

/* A model's templates: the default one, and maybe one for requests with tools. */
struct chat_templates {
	struct template *plain, *tool_use;   /* plain NULL: the model has none; tool_use NULL: plain serves both */
	json_t *own;                         /* bos_token, eos_token, ... */
};
/* From a directory (chat_template.jinja, additional_chat_templates/tool_use.jinja, chat_template.json, tokenizer_config.json)
 * or a GGUF file's metadata. A model without a template is no error. */
enum err chat_templates_open_directory(const char *model_dir, struct chat_templates *out);
enum err chat_templates_open_gguf(const struct gguf *g, struct chat_templates *out);   /* g is not needed afterwards */
void chat_templates_close(struct chat_templates *c);
/* The one for a request; NULL when the model has none. */
const struct template *chat_templates_pick(const struct chat_templates *c, int has_tools);

#endif
