/* The fields of a request that are more than a number: messages, prompts, stops, tools, formats. */
#include "base/bytes.h"
#include "base/mem.h"
#include "launcher/batch_fields.h"
#include "launcher/words.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STOPS = 16, MAX_STOP_IDS = 64, MAX_BIASES = 1024, MAX_TOOLS = 1024 };

static enum err wrong_type(const char *where, const char *name, const char *right, const json_t *value)
{
	return ERR(WORK, "%s: \"%s\" must be %s, found %s", where, name, right, json_type_name(value));
}

static enum err token_id(const struct batch_request *r, const char *where, const char *name, const json_t *value, int32_t *out)
{
	if (!json_is_integer(value))
		return ERR(WORK, "%s: \"%s\" holds %s where a token id must be", where, name, json_type_name(value));
	int64_t id = json_integer_value(value), end = r->n_vocab ? r->n_vocab : INT32_MAX;
	if (id < 0 || id >= end)
		return ERR(WORK, "%s: \"%s\" holds the token id %" PRId64 ", but ids are 0 to %" PRId64, where, name, id, end - 1);
	*out = (int32_t)id;
	return ERR_OK;
}

static enum err token_ids(const struct batch_request *r, const char *where, const char *name, const json_t *list, int32_t **out,
			  int64_t *n)
{
	if (*out)
		return ERR_OK;
	TRY(MEM_NEW(json_array_size(list), int32_t, out));
	for (size_t i = 0; i < json_array_size(list); i++)
		TRY(token_id(r, where, name, json_array_get(list, i), &(*out)[i]));
	*n = (int64_t)json_array_size(list);
	return ERR_OK;
}

enum err batch_read_model(struct batch_request *r, const char *where, json_t *value)
{
	r->model = json_string_value(value);
	return r->model ? ERR_OK : wrong_type(where, "model", "a string", value);
}

enum err batch_read_prompt(struct batch_request *r, const char *where, json_t *value)
{
	if (json_is_array(value) && json_array_size(value) && !json_is_integer(json_array_get(value, 0))) {
		if (json_array_size(value) > 1)
			return ERR(WORK, "%s: \"prompt\" holds %zu prompts; give each a line of its own", where,
				   json_array_size(value));
		value = json_array_get(value, 0);
	}
	if (json_is_string(value)) {
		r->prompt = json_string_value(value);
		r->prompt_bytes = json_string_length(value);
		return r->prompt_bytes ? ERR_OK : ERR(WORK, "%s: \"prompt\" is empty", where);
	}
	if (!json_is_array(value))
		return wrong_type(where, "prompt", "a string or a list of token ids", value);
	if (!json_array_size(value))
		return ERR(WORK, "%s: \"prompt\" is empty", where);
	return token_ids(r, where, "prompt", value, &r->prompt_ids, &r->n_prompt_ids);
}

/* A list of texts becomes one text, its parts on lines of their own; templates see strings only. */
static enum err join_parts(const char *where, size_t i, json_t *message, const json_t *parts)
{
	struct bytes text = { 0 };
	enum err e = ERR_OK;
	for (size_t k = 0; !e && k < json_array_size(parts); k++) {
		json_t *part = json_array_get(parts, k), *inner = json_object_get(part, "text");
		const char *type = json_string_value(json_object_get(part, "type"));
		if (!type || strcmp(type, "text") || !json_is_string(inner))
			e = ERR(WORK, "%s: part %zu of message %zu is %.40s, but only {\"type\": \"text\", \"text\": ...} is supported",
				where, k + 1, i + 1, type && strcmp(type, "text") ? SHOWN(type) : "not a text");
		if (!e && k)
			bytes_put(&text, "\n", 1);
		if (!e)
			bytes_put(&text, json_string_value(inner), json_string_length(inner));
	}
	if (!e)
		e = text.error;
	if (!e && json_object_set_new(message, "content", json_stringn(bytes_text(&text), text.size)))
		e = ERR(MEMORY, "%s: a message's text", where);
	bytes_free(&text);
	return e;
}

static enum err check_message(const char *where, size_t i, json_t *message)
{
	static const char *const roles[] = { "system", "developer", "user", "assistant", "tool", "function" };
	if (!json_is_object(message))
		return ERR(WORK, "%s: message %zu must be an object, found %s", where, i + 1, json_type_name(message));
	const char *role = json_string_value(json_object_get(message, "role"));
	size_t known = 0;
	while (role && known < sizeof roles / sizeof roles[0] && strcmp(role, roles[known]))
		known++;
	if (!role)
		return ERR(WORK, "%s: message %zu has no role", where, i + 1);
	if (known == sizeof roles / sizeof roles[0])
		return ERR(WORK, "%s: message %zu has the role \"%s\"; known are system, developer, user, assistant, tool", where, i + 1,
			   SHOWN(role));
	json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls");
	if (calls && !json_is_null(calls) && !json_is_array(calls))
		return ERR(WORK, "%s: \"tool_calls\" of message %zu must be a list, found %s", where, i + 1, json_type_name(calls));
	if (json_is_array(content))
		return join_parts(where, i, message, content);
	if (json_is_string(content) || (json_array_size(calls) && (!content || json_is_null(content))))
		return ERR_OK;
	return ERR(WORK, "%s: \"content\" of message %zu must be a string, found %s", where, i + 1, json_type_name(content));
}

enum err batch_read_messages(struct batch_request *r, const char *where, json_t *value)
{
	if (!json_is_array(value))
		return wrong_type(where, "messages", "a list", value);
	if (!json_array_size(value))
		return ERR(WORK, "%s: \"messages\" is empty", where);
	for (size_t i = 0; i < json_array_size(value); i++)
		TRY(check_message(where, i, json_array_get(value, i)));
	r->messages = value;
	return ERR_OK;
}

enum err batch_read_tools(struct batch_request *r, const char *where, json_t *value)
{
	if (!json_is_array(value))
		return wrong_type(where, "tools", "a list", value);
	if (json_array_size(value) > MAX_TOOLS)
		return ERR(WORK, "%s: \"tools\" has %zu, at most %d are allowed", where, json_array_size(value), MAX_TOOLS);
	for (size_t i = 0; i < json_array_size(value); i++) {
		json_t *tool = json_array_get(value, i), *function = json_object_get(tool, "function");
		const char *type = json_string_value(json_object_get(tool, "type"));
		if (!type || strcmp(type, "function") || !json_string_length(json_object_get(function, "name")))
			return ERR(WORK, "%s: tool %zu must be {\"type\": \"function\", \"function\": {\"name\": ...}}", where, i + 1);
	}
	r->tools = json_array_size(value) ? value : NULL;
	return ERR_OK;
}

enum err batch_read_tool_choice(struct batch_request *r, const char *where, json_t *value)
{
	const char *word = json_string_value(value);
	(void)r;
	if (!word || (strcmp(word, "auto") && strcmp(word, "none")))
		return ERR(WORK, "%s: \"tool_choice\" must be \"auto\" or \"none\"; a tool cannot be forced", where);
	return ERR_OK;
}

enum err batch_read_template_arguments(struct batch_request *r, const char *where, json_t *value)
{
	r->template_arguments = value;
	return json_is_object(value) ? ERR_OK : wrong_type(where, "chat_template_kwargs", "an object", value);
}

enum err batch_read_response_format(struct batch_request *r, const char *where, json_t *value)
{
	if (!json_is_object(value))
		return wrong_type(where, "response_format", "an object", value);
	const char *type = json_string_value(json_object_get(value, "type"));
	if (type && !strcmp(type, "text"))
		return ERR_OK;
	if (!type || (strcmp(type, "json_object") && strcmp(type, "json_schema")))
		return ERR(WORK, "%s: \"type\" of \"response_format\" must be \"text\", \"json_object\" or \"json_schema\"", where);
	if (!strcmp(type, "json_schema") && !json_is_object(json_object_get(json_object_get(value, "json_schema"), "schema")))
		return ERR(WORK, "%s: \"response_format\" must hold {\"json_schema\": {\"schema\": {...}}}", where);
	r->response_format = value;
	return ERR_OK;
}

enum err batch_read_stop(struct batch_request *r, const char *where, json_t *value)
{
	size_t n = json_is_array(value) ? json_array_size(value) : 1;
	if (!json_is_array(value) && !json_is_string(value))
		return wrong_type(where, "stop", "a string or a list of strings", value);
	if (n > MAX_STOPS)
		return ERR(WORK, "%s: \"stop\" has %zu texts, at most %d are allowed", where, n, MAX_STOPS);
	TRY(MEM_NEW(n, const char *, &r->stops));
	for (size_t i = 0; i < n; i++) {
		json_t *text = json_is_array(value) ? json_array_get(value, i) : value;
		if (!json_is_string(text))
			return wrong_type(where, "stop", "a string or a list of strings", text);
		if (!json_string_length(text) || strlen(json_string_value(text)) != json_string_length(text))
			return ERR(WORK, "%s: a text of \"stop\" is empty or holds a 0 byte", where);
		r->stops[i] = json_string_value(text);
	}
	r->n_stops = (int64_t)n;
	return ERR_OK;
}

enum err batch_read_stop_ids(struct batch_request *r, const char *where, json_t *value)
{
	if (!json_is_array(value))
		return wrong_type(where, "stop_token_ids", "a list of token ids", value);
	if (json_array_size(value) > MAX_STOP_IDS)
		return ERR(WORK, "%s: \"stop_token_ids\" has %zu ids, at most %d are allowed", where, json_array_size(value), MAX_STOP_IDS);
	return token_ids(r, where, "stop_token_ids", value, &r->stop_ids, &r->n_stop_ids);
}

enum err batch_read_logit_bias(struct batch_request *r, const char *where, json_t *value)
{
	const char *key;
	json_t *bias;
	if (!json_is_object(value))
		return wrong_type(where, "logit_bias", "an object of token ids and numbers", value);
	if (json_object_size(value) > MAX_BIASES)
		return ERR(WORK, "%s: \"logit_bias\" has %zu tokens, at most %d are allowed", where, json_object_size(value), MAX_BIASES);
	TRY(MEM_NEW(json_object_size(value), struct batch_bias, &r->biases));
	json_object_foreach(value, key, bias) {
		char *end = NULL;
		struct batch_bias *b = &r->biases[r->n_biases];
		int is_id = *key && strlen(key) < 11 && strspn(key, "0123456789") == strlen(key);
		if (!is_id)
			return ERR(WORK, "%s: \"logit_bias\" holds \"%s\" where a token id must be", where, SHOWN(key));
		json_t *id = json_integer(strtoll(key, &end, 10));
		enum err e = token_id(r, where, "logit_bias", id, &b->token);
		json_decref(id);
		TRY(e);
		if (!json_is_number(bias) || !(json_number_value(bias) >= -100 && json_number_value(bias) <= 100))
			return ERR(WORK, "%s: \"logit_bias\" of token %s must be a number from -100 to 100", where, key);
		b->bias = (float)json_number_value(bias);
		r->n_biases++;
	}
	return ERR_OK;
}

/* A completion's "logprobs" is a number: of the best tokens at each place, beside the chosen one. */
enum err batch_read_logprobs_number(struct batch_request *r, const char *where, json_t *value)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > 20)
		return ERR(WORK, "%s: \"logprobs\" must be an integer from 0 to 20 here", where);
	r->sampling.logprobs = 1;
	r->sampling.top_logprobs = json_integer_value(value);
	return ERR_OK;
}
