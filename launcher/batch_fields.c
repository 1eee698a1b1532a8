#include "launcher/batch_fields.h"

#include "launcher/words.h"

#include <inttypes.h>
#include <string.h>

enum { CHAT = BATCH_CHAT, TEXT = BATCH_COMPLETION | BATCH_PLAIN, ALL = CHAT | TEXT };

#define AT(field) offsetof(struct batch_request, sampling.field)
#define REAL(name, min, max) { #name, ALL, FIELD_REAL, AT(name), min, max, NULL }
#define INTEGER(name, min, max) { #name, ALL, FIELD_INTEGER, AT(name), min, max, NULL }
#define OWN(name, kinds, read) { name, kinds, FIELD_OWN, 0, 0, 0, read }
#define OFF(name, kinds) { name, kinds, FIELD_OFF, 0, 0, 0, NULL }
#define IGNORED(name) { name, ALL, FIELD_IGNORED, 0, 0, 0, NULL }

const struct batch_field batch_fields[] = {
	OWN("model", ALL, batch_read_model),
	OWN("messages", CHAT, batch_read_messages),
	OWN("prompt", TEXT, batch_read_prompt),
	REAL(temperature, 0, 2),
	REAL(top_p, 0, 1),
	INTEGER(top_k, -1, 1048576),
	REAL(min_p, 0, 1),
	REAL(repetition_penalty, 0.01, 100),
	REAL(presence_penalty, -2, 2),
	REAL(frequency_penalty, -2, 2),
	OWN("logit_bias", ALL, batch_read_logit_bias),
	INTEGER(seed, -0x1p53, 0x1p53),
	INTEGER(n, 1, 128),
	{ "logprobs", CHAT, FIELD_FLAG, AT(logprobs), 0, 0, NULL },
	OWN("logprobs", TEXT, batch_read_logprobs_number),
	{ "top_logprobs", CHAT, FIELD_INTEGER, AT(top_logprobs), 0, 20, NULL },
	OWN("stop", ALL, batch_read_stop),
	OWN("stop_token_ids", ALL, batch_read_stop_ids),
	{ "ignore_eos", ALL, FIELD_FLAG, AT(ignore_eos), 0, 0, NULL },
	INTEGER(min_tokens, 0, 16777216),
	INTEGER(max_tokens, 1, 16777216),
	{ "max_completion_tokens", CHAT, FIELD_INTEGER, AT(max_tokens), 1, 16777216, NULL },
	OWN("tools", CHAT, batch_read_tools),
	OWN("tool_choice", CHAT, batch_read_tool_choice),
	OWN("response_format", ALL, batch_read_response_format),
	OWN("chat_template_kwargs", CHAT, batch_read_template_arguments),
	OFF("stream", ALL), OFF("stream_options", ALL), OFF("echo", TEXT), OFF("suffix", TEXT), OFF("functions", CHAT),
	OFF("function_call", CHAT), OFF("audio", CHAT), OFF("prediction", CHAT), OFF("web_search_options", CHAT),
	OFF("use_beam_search", ALL),
	{ "best_of", TEXT, FIELD_INTEGER, SIZE_MAX, 1, 1, NULL },
	IGNORED("user"), IGNORED("metadata"), IGNORED("store"), IGNORED("service_tier"), IGNORED("safety_identifier"),
	IGNORED("prompt_cache_key"), IGNORED("parallel_tool_calls"),
};
const int n_batch_fields = (int)(sizeof batch_fields / sizeof batch_fields[0]);

static const char *endpoint(enum batch_kind kind)
{
	return kind == BATCH_CHAT ? "/v1/chat/completions" : kind == BATCH_COMPLETION ? "/v1/completions" : "a line with a prompt";
}

static const struct batch_field *find(const char *name, unsigned kinds)
{
	for (int i = 0; i < n_batch_fields; i++)
		if (batch_fields[i].kinds & kinds && !strcmp(batch_fields[i].name, name))
			return &batch_fields[i];
	return NULL;
}

static enum err unknown(const struct batch_request *r, const char *where, const char *name)
{
	struct nearest near = { 0 };
	struct shown shown = text_shown(name, strlen(name));
	if (find(name, ALL))
		return ERR(WORK, "%s: \"%s\" is no field of %s", where, shown.text, endpoint(r->kind));
	for (int i = 0; i < n_batch_fields; i++)
		if (batch_fields[i].kinds & r->kind)
			nearest_offer(&near, name, batch_fields[i].name);
	const char *word = nearest_word(&near, name);
	return word ? ERR(WORK, "%s: \"%s\" is not known; did you mean \"%s\"?", where, shown.text, word)
		    : ERR(WORK, "%s: \"%s\" is not known", where, shown.text);
}

static int is_off(const json_t *value)
{
	return json_is_false(value) || (json_is_integer(value) && !json_integer_value(value));
}

static enum err read_field(struct batch_request *r, const struct batch_field *f, const char *where, json_t *body, json_t *value)
{
	unsigned char *at = (unsigned char *)r + (f->at == SIZE_MAX ? 0 : f->at);
	double real;
	int64_t whole;
	switch (f->type) {
	case FIELD_REAL:
		TRY(json_get_real(body, where, f->name, f->min, f->max, &real));
		memcpy(at, &real, sizeof real);
		return ERR_OK;
	case FIELD_INTEGER:
		TRY(json_get_int(body, where, f->name, (int64_t)f->min, (int64_t)f->max, &whole));
		if (f->at != SIZE_MAX)
			memcpy(at, &whole, sizeof whole);
		return ERR_OK;
	case FIELD_FLAG:
		return json_get_bool_or(body, where, f->name, 0, (int *)(void *)at);
	case FIELD_OFF:
		return is_off(value) ? ERR_OK : ERR(WORK, "%s: \"%s\" is not supported here; leave it out", where, f->name);
	case FIELD_IGNORED:
		return ERR_OK;
	default:
		return f->read(r, where, value);
	}
}

/* What no row can see by itself. */
static enum err check_together(struct batch_request *r, const char *where, json_t *body)
{
	struct batch_sampling *s = &r->sampling;
	json_t *old = json_object_get(body, "max_tokens"), *new = json_object_get(body, "max_completion_tokens");
	if (r->kind == BATCH_CHAT && !r->messages)
		return ERR(WORK, "%s: \"messages\" is missing", where);
	if (r->kind != BATCH_CHAT && !r->prompt && !r->prompt_ids)
		return ERR(WORK, "%s: \"prompt\" is missing", where);
	if (json_is_integer(old) && json_is_integer(new) && json_integer_value(old) != json_integer_value(new))
		return ERR(WORK, "%s: \"max_tokens\" is %" PRId64 ", but \"max_completion_tokens\" is %" PRId64 "; give one of them", where,
			   (int64_t)json_integer_value(old), (int64_t)json_integer_value(new));
	if (s->min_tokens > s->max_tokens)
		return ERR(WORK, "%s: \"min_tokens\" is %" PRId64 ", more than the %" PRId64 " tokens that \"max_tokens\" allows", where,
			   s->min_tokens, s->max_tokens);
	if (r->kind == BATCH_CHAT && s->top_logprobs && !s->logprobs)
		return ERR(WORK, "%s: \"top_logprobs\" needs \"logprobs\": true", where);
	if (s->top_k < 0)
		s->top_k = 0;
	return ERR_OK;
}

enum err batch_fields_read(struct batch_request *r, const char *where, json_t *body)
{
	const char *name;
	json_t *value;
	json_object_foreach(body, name, value) {
		const struct batch_field *f = find(name, r->kind);
		if (!f && r->kind == BATCH_PLAIN && !strcmp(name, "custom_id"))
			continue;
		if (!f)
			return unknown(r, where, name);
		if (!json_is_null(value))
			TRY(read_field(r, f, where, body, value));
	}
	return check_together(r, where, body);
}
