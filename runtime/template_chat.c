/* A model's chat templates, and the ids of what they make. */
#include "runtime/template.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/gguf.h"

#include <stdio.h>
#include <string.h>

enum { MAX_FILE_BYTES = 64 << 20 };
#define GGUF_TEMPLATE "tokenizer.chat_template"

/* -- ids ------------------------------------------------------------------------------------------------------------ */

/* What the template wrote itself: its literals, and its own part of the result, in which it may have put tokens together. */
static void own_text(const struct template *t, const struct template_result *r, struct bytes *out)
{
	size_t n, done = 0;
	const char *literals = template_literals(t, &n);
	bytes_put(out, literals, n);
	for (int64_t i = 0; i <= r->n_input; i++) {
		size_t end = i < r->n_input ? r->input[i].begin : r->text.size;
		bytes_put(out, bytes_text(&r->text) + done, end - done);
		bytes_put(out, "", 1);
		done = i < r->n_input ? r->input[i].end : end;
	}
}

enum err template_tokenize(const struct template *t, const struct template_result *r, const struct tokenizer *tokenizer,
			   struct tokens *out)
{
	struct bytes own = { 0 };
	own_text(t, r, &own);
	const struct foreign foreign = { r->input, r->n_input, bytes_text(&own), own.size };
	enum err e = own.error;
	if (!e)
		e = tokenizer_encode_foreign(tokenizer, bytes_text(&r->text), r->text.size, TOKENIZE_PARSE_SPECIAL, &foreign, out);
	bytes_free(&own);
	return e;
}

enum err chat_parse_arguments(json_t *messages)
{
	json_t *message, *call;
	size_t i, k;
	json_array_foreach(messages, i, message) {
		json_array_foreach(json_object_get(message, "tool_calls"), k, call) {
			json_t *function = json_object_get(call, "function");
			json_t *arguments = json_object_get(function, "arguments");
			if (!json_is_string(arguments))
				continue;
			json_t *object = json_loadb(json_string_value(arguments), json_string_length(arguments), 0, NULL);
			if (!json_is_object(object)) {
				json_decref(object);
				continue;
			}
			if (json_object_set_new(function, "arguments", object))
				return ERR(MEMORY, "no memory for the arguments of a tool call");
		}
	}
	return ERR_OK;
}

/* -- finding -------------------------------------------------------------------------------------------------------- */

/* One template of those found; names: "default" and "tool_use", others are for uses that nothing here has. The first source
 * wins. */
static enum err take(struct chat_templates *c, const char *source, const char *name, const char *text, size_t bytes)
{
	char title[1200];
	struct template **slot = !strcmp(name, "default") ? &c->plain : !strcmp(name, "tool_use") ? &c->tool_use : NULL;
	if (!slot || *slot)
		return ERR_OK;
	snprintf(title, sizeof title, "%s, chat template \"%s\"", source, name);
	return template_parse(title, text, bytes, slot);
}

static enum err take_file(struct chat_templates *c, const char *dir, const char *file, const char *name)
{
	char path[1024];
	struct bytes text = { 0 };
	TRY(file_join(dir, file, path, sizeof path));
	if (!file_exists(path))
		return ERR_OK;
	enum err e = file_read_all(path, MAX_FILE_BYTES, &text);
	if (!e)
		e = take(c, path, name, bytes_text(&text), text.size);
	bytes_free(&text);
	return e;
}

/* "chat_template": a string, or a list of {"name", "template"} */
static enum err take_config(struct chat_templates *c, const char *path, json_t *config)
{
	json_t *t = json_object_get(config, "chat_template"), *item;
	size_t i;
	if (json_is_string(t))
		return take(c, path, "default", json_string_value(t), json_string_length(t));
	if (t && !json_is_null(t) && !json_is_array(t))
		return ERR(MODEL, "%s: \"chat_template\" must be a string or a list of named templates", path);
	json_array_foreach(t, i, item) {
		json_t *name = json_object_get(item, "name"), *text = json_object_get(item, "template");
		if (!json_is_string(name) || !json_is_string(text))
			return ERR(MODEL, "%s: entry %zu of \"chat_template\" has no \"name\" and \"template\"", path, i);
		TRY(take(c, path, json_string_value(name), json_string_value(text), json_string_length(text)));
	}
	return ERR_OK;
}

/* bos_token and its like: "text" or {"content": "text"} */
static enum err take_tokens(struct chat_templates *c, json_t *config)
{
	static const char *const names[] = { "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		json_t *v = json_object_get(config, names[i]);
		v = json_is_object(v) ? json_object_get(v, "content") : v;
		if (json_is_string(v) && !json_object_get(c->own, names[i]) && json_object_set(c->own, names[i], v))
			return ERR(MEMORY, "no memory for %s", names[i]);
	}
	return ERR_OK;
}

static enum err take_json(struct chat_templates *c, const char *dir, const char *file)
{
	char path[1024];
	json_t *config;
	TRY(file_join(dir, file, path, sizeof path));
	if (!file_exists(path))
		return ERR_OK;
	TRY(json_parse_file(path, MAX_FILE_BYTES, ERR_MODEL, &config));
	enum err e = take_config(c, path, config);
	if (!e)
		e = take_tokens(c, config);
	json_decref(config);
	return e;
}

/* In the order in which transformers prefers them. */
static enum err open_directory(struct chat_templates *c, const char *dir)
{
	TRY(take_file(c, dir, "chat_template.jinja", "default"));
	TRY(take_file(c, dir, "additional_chat_templates/tool_use.jinja", "tool_use"));
	TRY(take_json(c, dir, "chat_template.json"));
	TRY(take_json(c, dir, "tokenizer_config.json"));
	return take_json(c, dir, "special_tokens_map.json");
}

static enum err take_gguf_token(struct chat_templates *c, const struct gguf *g, const char *key, const char *name)
{
	const struct gguf_string *texts;
	uint64_t n;
	int64_t id;
	if (!gguf_has(g, key) || !gguf_has(g, "tokenizer.ggml.tokens"))
		return ERR_OK;
	TRY(gguf_strings(g, "tokenizer.ggml.tokens", &texts, &n));
	TRY(gguf_int(g, key, 0, INT32_MAX, &id));
	if ((uint64_t)id >= n)
		return ERR(MODEL, "%s: %s is %lld, but there are %llu tokens", gguf_path(g), key, (long long)id, (unsigned long long)n);
	json_t *text = json_stringn(texts[id].text, texts[id].bytes);
	if (text && json_object_set_new(c->own, name, text))
		return ERR(MEMORY, "no memory for %s", name);
	return ERR_OK;   /* one that is not UTF-8 cannot be written in a template */
}

static enum err take_gguf_templates(struct chat_templates *c, const struct gguf *g)
{
	struct gguf_string text;
	if (gguf_has(g, GGUF_TEMPLATE ".tool_use")) {
		TRY(gguf_string(g, GGUF_TEMPLATE ".tool_use", &text));
		TRY(take(c, gguf_path(g), "tool_use", text.text, text.bytes));
	}
	if (!gguf_has(g, GGUF_TEMPLATE))
		return ERR_OK;
	TRY(gguf_string(g, GGUF_TEMPLATE, &text));
	return take(c, gguf_path(g), "default", text.text, text.bytes);
}

static enum err open_gguf(struct chat_templates *c, const struct gguf *g)
{
	static const char *const tokens[][2] = { { "tokenizer.ggml.bos_token_id", "bos_token" },
		{ "tokenizer.ggml.eos_token_id", "eos_token" }, { "tokenizer.ggml.unknown_token_id", "unk_token" },
		{ "tokenizer.ggml.padding_token_id", "pad_token" } };
	TRY(take_gguf_templates(c, g));
	for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
		TRY(take_gguf_token(c, g, tokens[i][0], tokens[i][1]));
	return ERR_OK;
}

static enum err open_templates(const char *dir, const struct gguf *g, struct chat_templates *out)
{
	struct chat_templates c = { .own = json_object() };
	enum err e = c.own ? ERR_OK : ERR(MEMORY, "no memory for a chat template");
	if (!e)
		e = g ? open_gguf(&c, g) : open_directory(&c, dir);
	if (e) {
		chat_templates_close(&c);
		return e;
	}
	*out = c;
	return ERR_OK;
}

enum err chat_templates_open_directory(const char *model_dir, struct chat_templates *out)
{
	return open_templates(model_dir, NULL, out);
}

enum err chat_templates_open_gguf(const struct gguf *g, struct chat_templates *out) { return open_templates(NULL, g, out); }

void chat_templates_close(struct chat_templates *c)
{
	template_free(c->plain);
	template_free(c->tool_use);
	json_decref(c->own);
	*c = (struct chat_templates){ 0 };
}

const struct template *chat_templates_pick(const struct chat_templates *c, int has_tools)
{
	return (has_tools && c->tool_use) || !c->plain ? c->tool_use : c->plain;
}
