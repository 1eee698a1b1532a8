/* A model's numbers from a Hugging Face config.json, as transformers 4 and 5 write it.
 *
 * Rope lies in one of two places: `rope_parameters` {rope_theta, rope_type, ...} (5), or `rope_theta` at the top and
 * `rope_scaling` {rope_type or type, ...} or null (4). What would change the result and is not implemented is refused by
 * name; keys that do not change it (dropout, cache, initialisation) are ignored. */
#include "base/json.h"
#include "runtime/model_impl.h"
#include "runtime/printable.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "llama, mistral and mixtral" */
static void known_types(char *room, size_t capacity)
{
	size_t used = 0;
	room[0] = '\0';
	for (int a = 0; archs[a]; a++)
		for (int i = 0; archs[a]->hf_types[i]; i++) {
			int last = !archs[a + 1] && !archs[a]->hf_types[i + 1];
			int n = snprintf(room + used, capacity - used, "%s%s", used == 0 ? "" : last ? " and " : ", ",
					 archs[a]->hf_types[i]);
			if (n < 0 || (size_t)n >= capacity - used)
				return;
			used += (size_t)n;
		}
}

static enum err find_arch(json_t *config, const char *name, const struct arch **out)
{
	const char *type;
	char known[256], room[PRINTABLE_BYTES];
	TRY(json_get_string_or_null(config, name, "model_type", &type));
	known_types(known, sizeof known);
	if (!type)
		return ERR(MODEL, "%s: \"model_type\" is missing; supported are %s", name, known);
	for (int a = 0; archs[a]; a++)
		for (int i = 0; archs[a]->hf_types[i]; i++)
			if (strcmp(type, archs[a]->hf_types[i]) == 0) {
				*out = archs[a];
				return ERR_OK;
			}
	return ERR(MODEL, "%s: model_type \"%s\" is not supported; supported are %s", name,
		   printable(room, type, strlen(type)), known);
}

/* Keys that change the result when they are set (not null, false or 0). */
static const struct { const char *key, *why; } refused[] = {
	{ "quantization_config", "quantised safetensors are not supported; use the original weights or a GGUF file" },
	{ "attn_logit_softcapping", "soft caps on attention are not supported" },
	{ "final_logit_softcapping", "soft caps on logits are not supported" },
	{ "logit_softcapping", "soft caps on logits are not supported" },
	{ "attention_multiplier", "a scale of its own for attention is not supported" },
	{ "embedding_multiplier", "scaled embeddings are not supported" },
	{ "residual_multiplier", "scaled residuals are not supported" },
	{ "logits_scaling", "scaled logits are not supported" },
};

static int is_set(const json_t *v)
{
	return v && !json_is_null(v) && !json_is_false(v) && !(json_is_number(v) && json_number_value(v) == 0);
}

static enum err check_factor(json_t *object, const char *name)
{
	double factor;
	TRY(json_get_real_or(object, name, "partial_rotary_factor", 0, 1, 1, &factor));
	if (factor != 1)
		return ERR(MODEL, "%s: \"partial_rotary_factor\" is %g, but only whole heads (1) can be rotated", name,
			   factor);
	return ERR_OK;
}

static enum err refuse_features(json_t *config, const char *name)
{
	const char *act;
	char room[PRINTABLE_BYTES];
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
		if (is_set(json_object_get(config, refused[i].key)))
			return ERR(MODEL, "%s: \"%s\" is set: %s", name, refused[i].key, refused[i].why);
	TRY(json_get_string_or_null(config, name, "hidden_act", &act));
	if (act && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
		return ERR(MODEL, "%s: \"hidden_act\" is \"%s\", but only \"silu\" is supported", name,
			   printable(room, act, strlen(act)));
	return check_factor(config, name);
}

/* ---- rope ---- */

static enum err read_llama3(json_t *rope, json_t *config, const char *name, struct model *m)
{
	TRY(json_get_real(rope, name, "low_freq_factor", 1e-3, 1e6, &m->rope_low));
	TRY(json_get_real(rope, name, "high_freq_factor", 1e-3, 1e6, &m->rope_high));
	if (m->rope_low >= m->rope_high)
		return ERR(MODEL, "%s: rope's \"low_freq_factor\" %g must be below its \"high_freq_factor\" %g", name,
			   m->rope_low, m->rope_high);
	TRY(json_get_int_or(config, name, "original_max_position_embeddings", 1, MODEL_MAX_CONTEXT, m->n_context,
			    &m->rope_original_context));
	return json_get_int_or(rope, name, "original_max_position_embeddings", 1, MODEL_MAX_CONTEXT,
			       m->rope_original_context, &m->rope_original_context);
}

/* `rope` is the object with the type and its numbers. */
static enum err read_rope_object(json_t *rope, json_t *config, const char *name, struct model *m)
{
	const char *type, *old_type;
	char room[PRINTABLE_BYTES];
	TRY(json_get_real_or(rope, name, "rope_theta", 1, MODEL_MAX_THETA, m->rope_theta, &m->rope_theta));
	TRY(check_factor(rope, name));
	TRY(json_get_string_or_null(rope, name, "rope_type", &type));
	TRY(json_get_string_or_null(rope, name, "type", &old_type));
	type = type ? type : old_type;
	if (!type)
		return ERR(MODEL, "%s: the rope parameters have no \"rope_type\"", name);
	if (strcmp(type, "default") == 0)
		return ERR_OK;
	if (strcmp(type, "linear") == 0)
		m->rope = ROPE_LINEAR;
	else if (strcmp(type, "llama3") == 0)
		m->rope = ROPE_LLAMA3;
	else
		return ERR(MODEL, "%s: rope type \"%s\" is not supported; supported are default, linear and llama3", name,
			   printable(room, type, strlen(type)));
	TRY(json_get_real(rope, name, "factor", 1e-3, 1e6, &m->rope_factor));
	return m->rope == ROPE_LLAMA3 ? read_llama3(rope, config, name, m) : ERR_OK;
}

static enum err read_rope(json_t *config, const char *name, struct model *m)
{
	/* 0 when absent: the architecture may know a default. */
	TRY(json_get_real_or(config, name, "rope_theta", 1, MODEL_MAX_THETA, 0, &m->rope_theta));
	json_t *parameters = json_object_get(config, "rope_parameters");
	json_t *scaling = json_object_get(config, "rope_scaling");
	if (parameters && !json_is_null(parameters))
		return read_rope_object(parameters, config, name, m);
	if (scaling && !json_is_null(scaling))
		return read_rope_object(scaling, config, name, m);
	return ERR_OK;
}

/* ---- the numbers ---- */

static enum err read_sizes(json_t *config, const char *name, struct model *m)
{
	TRY(json_get_int(config, name, "num_hidden_layers", 1, MODEL_MAX_LAYERS, &m->n_layers));
	TRY(json_get_int(config, name, "hidden_size", 1, MODEL_MAX_EMBD, &m->n_embd));
	TRY(json_get_int(config, name, "num_attention_heads", 1, MODEL_MAX_HEADS, &m->n_head));
	TRY(json_get_int_or(config, name, "num_key_value_heads", 1, MODEL_MAX_HEADS, m->n_head, &m->n_kv_head));
	TRY(json_get_int(config, name, "intermediate_size", 1, MODEL_MAX_FFN, &m->n_ffn));
	TRY(json_get_int(config, name, "vocab_size", 1, MODEL_MAX_VOCAB, &m->n_vocab));
	TRY(json_get_int(config, name, "max_position_embeddings", 1, MODEL_MAX_CONTEXT, &m->n_context));
	TRY(json_get_int_or(config, name, "head_dim", 1, MODEL_MAX_HEAD_DIM, 0, &m->n_head_dim));
	if (m->n_head_dim)
		return ERR_OK;
	m->n_head_dim = m->n_embd / m->n_head;
	if (m->n_embd % m->n_head)
		return ERR(MODEL, "%s: \"head_dim\" is missing, and \"hidden_size\" %" PRId64 " is not a multiple of "
			   "\"num_attention_heads\" %" PRId64, name, m->n_embd, m->n_head);
	return ERR_OK;
}

/* Layers of one kind are supported: all with the window, or all without. */
static enum err check_layer_types(json_t *config, const char *name, struct model *m)
{
	json_t *types = json_object_get(config, "layer_types");
	size_t n_full = 0, n_sliding = 0, n = json_array_size(types);
	for (size_t i = 0; i < n; i++) {
		const char *type = json_string_value(json_array_get(types, i));
		n_full += type && strcmp(type, "full_attention") == 0;
		n_sliding += type && strcmp(type, "sliding_attention") == 0;
	}
	if (n == 0)
		return ERR_OK;
	if (n_full != n && n_sliding != n)
		return ERR(MODEL, "%s: \"layer_types\" must be all \"full_attention\" or all \"sliding_attention\"; "
			   "mixed or other kinds of layers are not supported", name);
	if (n_full == n)
		m->window = 0;
	return ERR_OK;
}

static enum err add_eos_of(json_t *config, const char *name, struct model *m)
{
	static const char key[] = "eos_token_id";
	json_t *v = json_object_get(config, key), *item;
	size_t i;
	if (!v || json_is_null(v))
		return ERR_OK;
	if (json_is_integer(v))
		return model_add_eos(name, key, json_integer_value(v), m);
	if (!json_is_array(v))
		return ERR(MODEL, "%s: \"%s\" must be an integer or a list of integers", name, key);
	json_array_foreach(v, i, item) {
		if (!json_is_integer(item))
			return ERR(MODEL, "%s: item %zu of \"%s\" must be an integer", name, i, key);
		TRY(model_add_eos(name, key, json_integer_value(item), m));
	}
	return ERR_OK;
}

static enum err read_config(json_t *config, const char *name, struct model *m)
{
	int64_t bos;
	const char *label;
	TRY(find_arch(config, name, &m->arch));
	TRY(refuse_features(config, name));
	TRY(read_sizes(config, name, m));
	TRY(read_rope(config, name, m));
	double eps;
	TRY(json_get_real(config, name, "rms_norm_eps", 0, 1, &eps));
	m->norm_eps = (float)eps;
	TRY(json_get_bool_or(config, name, "tie_word_embeddings", 0, &m->tied_embeddings));
	TRY(m->arch->from_config(config, name, m));
	if (m->rope_theta == 0)
		m->rope_theta = 10000;
	TRY(check_layer_types(config, name, m));
	TRY(json_get_int_or(config, name, "bos_token_id", 0, m->n_vocab - 1, -1, &bos));
	m->bos = (int32_t)bos;
	TRY(add_eos_of(config, name, m));
	TRY(json_get_string_or_null(config, name, "_name_or_path", &label));
	if (label)
		printable(m->name, label, strlen(label));
	return model_check_numbers(name, m);
}

enum err model_from_config(const char *name, const char *text, size_t bytes, struct model *m)
{
	_Static_assert(sizeof m->name >= PRINTABLE_BYTES, "a name takes what printable gives");
	json_t *config;
	TRY(json_parse(name, text, bytes, ERR_MODEL, &config));
	*m = (struct model){ .bos = -1 };
	enum err e = read_config(config, name, m);
	json_decref(config);
	return e;
}

enum err model_add_generation_config(const char *name, const char *text, size_t bytes, struct model *m)
{
	json_t *config;
	TRY(json_parse(name, text, bytes, ERR_MODEL, &config));
	enum err e;
	if (json_is_object(config))
		e = add_eos_of(config, name, m);
	else
		e = ERR(MODEL, "%s: expected an object", name);
	json_decref(config);
	return e;
}
