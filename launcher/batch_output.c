#include "launcher/batch_output.h"

#include "launcher/words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* Keys of an object are put in order with add, which takes the value's reference; the first failure is kept. */
struct builder { int failed; };

static void add(struct builder *b, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value))
		b->failed = 1;
}

static void append(struct builder *b, json_t *list, json_t *value)
{
	if (json_array_append_new(list, value))
		b->failed = 1;
}

static json_t *text_value(const struct batch_text *t)
{
	struct bytes clean = { 0 };
	for (size_t i = 0, n; i < t->bytes; i += n ? n : 1) {
		n = text_character(t->data + i, t->bytes - i);
		bytes_put(&clean, n ? t->data + i : "\xef\xbf\xbd", n ? n : 3);
	}
	json_t *value = clean.error ? NULL : json_stringn_nocheck(bytes_text(&clean), clean.size);
	bytes_free(&clean);
	return value;
}

static size_t count_characters(const struct batch_text *t)
{
	size_t count = 0;
	for (size_t i = 0, n; i < t->bytes; i += n ? n : 1, count++)
		n = text_character(t->data + i, t->bytes - i);
	return count;
}

/* JSON has no infinity: as OpenAI does, a token that cannot be has -9999. */
static json_t *logprob_value(double x) { return json_real(isfinite(x) ? x : -9999.0); }

static json_t *id_value(const struct batch_output *o, const char *prefix, uint64_t line, const char *custom_id)
{
	char text[64], seed[64];
	struct bytes key = { 0 };
	snprintf(seed, sizeof seed, "%" PRIu64 " ", line);
	bytes_put(&key, seed, strlen(seed));
	if (custom_id)
		bytes_put(&key, custom_id, strlen(custom_id));
	XXH128_hash_t h = XXH3_128bits_withSeed(bytes_text(&key), key.size, o->fingerprint);
	enum err e = key.error;
	bytes_free(&key);
	snprintf(text, sizeof text, "%s%016" PRIx64 "%016" PRIx64, prefix, (uint64_t)h.high64, (uint64_t)h.low64);
	return e ? NULL : json_string(text);
}

/* Chat: {"content": [{"token", "logprob", "bytes", "top_logprobs": [..]}]} */
static json_t *token_value(struct builder *b, const struct batch_text *text, double logprob)
{
	json_t *token = json_object(), *bytes = json_array();
	for (size_t i = 0; i < text->bytes; i++)
		append(b, bytes, json_integer((unsigned char)text->data[i]));
	add(b, token, "token", text_value(text));
	add(b, token, "logprob", logprob_value(logprob));
	add(b, token, "bytes", bytes);
	return token;
}

static json_t *chat_logprobs(struct builder *b, const struct batch_choice *c)
{
	json_t *content = json_array(), *all = json_object();
	for (int64_t i = 0; i < c->n_logprobs; i++) {
		const struct batch_logprob *l = &c->logprobs[i];
		json_t *token = token_value(b, &l->text, l->logprob), *best = json_array();
		for (int64_t k = 0; k < l->n_best; k++)
			append(b, best, token_value(b, &l->best[k].text, l->best[k].logprob));
		add(b, token, "top_logprobs", best);
		append(b, content, token);
	}
	add(b, all, "content", content);
	add(b, all, "refusal", json_null());
	return all;
}

/* Completions: {"tokens", "token_logprobs", "top_logprobs": [{text: logprob}], "text_offset"} */
static json_t *text_logprobs(struct builder *b, const struct batch_choice *c)
{
	json_t *all = json_object(), *tokens = json_array(), *logprobs = json_array(), *best = json_array();
	json_t *offsets = json_array();
	size_t offset = 0;
	for (int64_t i = 0; i < c->n_logprobs; i++) {
		const struct batch_logprob *l = &c->logprobs[i];
		json_t *here = json_object();
		for (int64_t k = 0; k < l->n_best; k++) {
			json_t *name = text_value(&l->best[k].text);
			/* two parts of characters look alike: the best stays */
			if (name && !json_object_get(here, json_string_value(name)))
				add(b, here, json_string_value(name), logprob_value(l->best[k].logprob));
			b->failed |= !name;
			json_decref(name);
		}
		append(b, tokens, text_value(&l->text));
		append(b, logprobs, logprob_value(l->logprob));
		append(b, best, here);
		append(b, offsets, json_integer((json_int_t)offset));
		offset += count_characters(&l->text);
	}
	add(b, all, "tokens", tokens);
	add(b, all, "token_logprobs", logprobs);
	add(b, all, "top_logprobs", best);
	add(b, all, "text_offset", offsets);
	return all;
}

static json_t *choice_value(struct builder *b, const struct batch_choice *c, int64_t index, int is_chat)
{
	json_t *choice = json_object();
	add(b, choice, "index", json_integer(index));
	if (is_chat) {
		json_t *message = json_object();
		add(b, message, "role", json_string("assistant"));
		add(b, message, "content", c->tool_calls && !c->text.bytes ? json_null() : text_value(&c->text));
		if (c->tool_calls)
			add(b, message, "tool_calls", json_incref(c->tool_calls));
		add(b, choice, "message", message);
	} else {
		add(b, choice, "text", text_value(&c->text));
	}
	add(b, choice, "logprobs", !c->logprobs ? json_null() : is_chat ? chat_logprobs(b, c) : text_logprobs(b, c));
	add(b, choice, "finish_reason", json_string(c->finish_reason));
	return choice;
}

static json_t *body_value(struct builder *b, const struct batch_output *o, const struct batch_request *r,
			  const struct batch_choice *choices, int64_t n, const struct batch_usage *usage)
{
	json_t *body = json_object(), *list = json_array(), *tokens = json_object();
	int is_chat = r->kind == BATCH_CHAT;
	struct batch_text model = { o->model, strlen(o->model) };
	for (int64_t i = 0; i < n; i++)
		append(b, list, choice_value(b, &choices[i], i, is_chat));
	add(b, tokens, "prompt_tokens", json_integer(usage->prompt_tokens));
	add(b, tokens, "completion_tokens", json_integer(usage->completion_tokens));
	add(b, tokens, "total_tokens", json_integer(usage->prompt_tokens + usage->completion_tokens));
	add(b, body, "id", id_value(o, is_chat ? "chatcmpl-" : "cmpl-", r->line, r->custom_id));
	add(b, body, "object", json_string(is_chat ? "chat.completion" : "text_completion"));
	add(b, body, "created", json_integer(o->created));
	add(b, body, "model", text_value(&model));
	add(b, body, "choices", list);
	add(b, body, "usage", tokens);
	return body;
}

static int take_text(const char *text, size_t bytes, void *out)
{
	bytes_put(out, text, bytes);
	return ((struct bytes *)out)->error ? -1 : 0;
}

/* Takes the line's reference. */
static enum err write_line(struct builder *b, json_t *line, struct bytes *out)
{
	enum err e = out->error;
	size_t before = out->size;
	if (!e && (b->failed || json_dump_callback(line, take_text, out, JSON_COMPACT | JSON_REAL_PRECISION(9)))) {
		out->size = before;
		e = out->error;
		if (!e)
			e = ERR(MEMORY, "no memory for a result line");
	}
	json_decref(line);
	return e;
}

enum err batch_output_answer(const struct batch_output *o, const struct batch_request *r, const struct batch_choice *choices,
			     int64_t n, const struct batch_usage *usage, struct bytes *out)
{
	struct builder b = { 0 };
	json_t *line = json_object(), *response = json_object();
	add(&b, response, "status_code", json_integer(200));
	add(&b, response, "request_id", id_value(o, "req_", r->line, r->custom_id));
	add(&b, response, "body", body_value(&b, o, r, choices, n, usage));
	add(&b, line, "id", id_value(o, "batch_req_", r->line, r->custom_id));
	add(&b, line, "custom_id", r->custom_id ? json_string(r->custom_id) : json_null());
	add(&b, line, "response", response);
	add(&b, line, "error", json_null());
	return write_line(&b, line, out);
}

enum err batch_output_fault(const struct batch_output *o, uint64_t line, const char *custom_id, const char *code,
			    const char *message, struct bytes *out)
{
	struct builder b = { 0 };
	json_t *result = json_object(), *error = json_object();
	struct batch_text text = { message, strlen(message) };
	add(&b, error, "code", json_string(code));
	add(&b, error, "message", text_value(&text));
	add(&b, error, "line", json_integer((json_int_t)line + 1));
	add(&b, result, "id", id_value(o, "batch_req_", line, custom_id));
	add(&b, result, "custom_id", custom_id ? json_string(custom_id) : json_null());
	add(&b, result, "response", json_null());
	add(&b, result, "error", error);
	return write_line(&b, result, out);
}
