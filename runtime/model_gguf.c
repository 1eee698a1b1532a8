/* A model's numbers from GGUF metadata: keys "<architecture>.<name>", as llama.cpp writes them.
 *
 * llama.cpp's converter permutes the rows of q and k so that rope turns neighbours, which is why rope_interleaved is set for
 * every model that comes from here. Llama 3's frequency scaling arrives as the tensor rope_freqs.weight. */
#include "runtime/gguf.h"
#include "runtime/model_impl.h"
#include "runtime/printable.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 128 };

/* A reader of keys of one architecture. */
struct keys {
	const struct gguf *g;
	const char *arch;
	char key[KEY_BYTES];     /* the last one looked at */
};

static const char *key_of(struct keys *k, const char *name)
{
	snprintf(k->key, sizeof k->key, "%s.%s", k->arch, name);
	return k->key;
}

static enum err get_int(struct keys *k, const char *name, int64_t max, int64_t *out)
{
	return gguf_int(k->g, key_of(k, name), 1, max, out);
}

static enum err get_int_or(struct keys *k, const char *name, int64_t min, int64_t max, int64_t fallback, int64_t *out)
{
	return gguf_int_or(k->g, key_of(k, name), min, max, fallback, out);
}

static enum err get_real_or(struct keys *k, const char *name, double min, double max, double fallback, double *out)
{
	double x;
	TRY(gguf_real_or(k->g, key_of(k, name), fallback, &x));
	if (!(x >= min && x <= max))
		return ERR(MODEL, "%s: %s is %g, but must be %g to %g", gguf_path(k->g), k->key, x, min, max);
	*out = x;
	return ERR_OK;
}

static int string_is(struct gguf_string s, const char *text)
{
	return s.bytes == strlen(text) && memcmp(s.text, text, s.bytes) == 0;
}

/* A file names its architecture; several of ours may go by one name and differ in whether they have experts. */
static enum err find_arch(const struct gguf *g, const struct arch **out, const char **gguf_name)
{
	struct gguf_string found;
	char room[PRINTABLE_BYTES], key[KEY_BYTES];
	TRY(gguf_string(g, "general.architecture", &found));
	for (int a = 0; archs[a]; a++)
		for (int i = 0; archs[a]->gguf_names[i]; i++) {
			const char *name = archs[a]->gguf_names[i];
			int64_t n_expert;
			if (!string_is(found, name))
				continue;
			snprintf(key, sizeof key, "%s.expert_count", name);
			TRY(gguf_int_or(g, key, 0, MODEL_MAX_EXPERTS, 0, &n_expert));
			if ((n_expert > 0) != model_arch_has_experts(archs[a]))
				continue;
			*out = archs[a];
			*gguf_name = name;
			return ERR_OK;
		}
	return ERR(MODEL, "%s: general.architecture \"%s\" is not supported; supported is llama (also the name of "
		   "Mistral, SmolLM2 and Mixtral)", gguf_path(g), printable(room, found.text, found.bytes));
}

static enum err read_sizes(struct keys *k, struct model *m)
{
	int64_t value_length, rope_dims;
	TRY(get_int(k, "block_count", MODEL_MAX_LAYERS, &m->n_layers));
	TRY(get_int(k, "embedding_length", MODEL_MAX_EMBD, &m->n_embd));
	TRY(get_int(k, "attention.head_count", MODEL_MAX_HEADS, &m->n_head));
	TRY(get_int_or(k, "attention.head_count_kv", 1, MODEL_MAX_HEADS, m->n_head, &m->n_kv_head));
	TRY(get_int(k, "feed_forward_length", MODEL_MAX_FFN, &m->n_ffn));
	TRY(get_int(k, "context_length", MODEL_MAX_CONTEXT, &m->n_context));
	TRY(get_int_or(k, "attention.key_length", 1, MODEL_MAX_HEAD_DIM, 0, &m->n_head_dim));
	if (!m->n_head_dim) {
		if (m->n_embd % m->n_head || m->n_embd / m->n_head > MODEL_MAX_HEAD_DIM)
			return ERR(MODEL, "%s: %s.attention.key_length is missing, and embedding_length %" PRId64
				   " over head_count %" PRId64 " is no size of a head", gguf_path(k->g), k->arch,
				   m->n_embd, m->n_head);
		m->n_head_dim = m->n_embd / m->n_head;
	}
	TRY(get_int_or(k, "attention.value_length", 1, INT32_MAX, m->n_head_dim, &value_length));
	if (value_length != m->n_head_dim)
		return ERR(MODEL, "%s: %s is %" PRId64 ", but must be the key's length %" PRId64, gguf_path(k->g), k->key,
			   value_length, m->n_head_dim);
	TRY(get_int_or(k, "rope.dimension_count", 1, INT32_MAX, m->n_head_dim, &rope_dims));
	if (rope_dims != m->n_head_dim)
		return ERR(MODEL, "%s: %s is %" PRId64 ", but only whole heads (%" PRId64 ") can be rotated",
			   gguf_path(k->g), k->key, rope_dims, m->n_head_dim);
	return get_int_or(k, "attention.sliding_window", 0, MODEL_MAX_CONTEXT, 0, &m->window);
}

static enum err read_rope(struct keys *k, struct model *m)
{
	struct gguf_string type = { "", 0 };
	double attn_factor;
	char room[PRINTABLE_BYTES];
	m->rope_interleaved = 1;
	TRY(get_real_or(k, "rope.freq_base", 1, MODEL_MAX_THETA, 10000, &m->rope_theta));
	TRY(get_real_or(k, "rope.scale_linear", 0, 1e6, 0, &m->rope_factor));             /* of files before 2023-10 */
	TRY(get_real_or(k, "rope.scaling.factor", 0, 1e6, m->rope_factor, &m->rope_factor));
	TRY(get_real_or(k, "rope.scaling.attn_factor", 0, 1e6, 1, &attn_factor));
	if (attn_factor != 1)
		return ERR(MODEL, "%s: %s is %g, but scaled attention is not supported", gguf_path(k->g), k->key,
			   attn_factor);
	if (gguf_has(k->g, key_of(k, "rope.scaling.type")))
		TRY(gguf_string(k->g, k->key, &type));
	if (string_is(type, "none"))
		m->rope_factor = 0;
	else if (type.bytes > 0 && !string_is(type, "linear"))
		return ERR(MODEL, "%s: %s \"%s\" is not supported; supported are none and linear", gguf_path(k->g), k->key,
			   printable(room, type.text, type.bytes));
	/* A factor alone means linear, and 0 means that there is none. */
	if (m->rope_factor > 0 && m->rope_factor != 1)
		m->rope = ROPE_LINEAR;
	return ERR_OK;
}

static enum err read_vocabulary(struct keys *k, struct model *m)
{
	static const char list[] = "tokenizer.ggml.tokens";
	static const char *const ends[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
					    "tokenizer.ggml.eom_token_id" };
	const struct gguf_string *tokens;
	uint64_t n_tokens = 0;
	int64_t id;
	if (gguf_has(k->g, list)) {
		TRY(gguf_strings(k->g, list, &tokens, &n_tokens));
		if (n_tokens < 1 || n_tokens > (uint64_t)MODEL_MAX_VOCAB)
			return ERR(MODEL, "%s: %s holds %" PRIu64 " strings, but must hold 1 to %" PRId64, gguf_path(k->g),
				   list, n_tokens, MODEL_MAX_VOCAB);
		TRY(get_int_or(k, "vocab_size", 1, MODEL_MAX_VOCAB, (int64_t)n_tokens, &m->n_vocab));
		if (m->n_vocab != (int64_t)n_tokens)
			return ERR(MODEL, "%s: %s is %" PRId64 ", but %s holds %" PRIu64 " strings", gguf_path(k->g), k->key,
				   m->n_vocab, list, n_tokens);
	} else {
		TRY(get_int(k, "vocab_size", MODEL_MAX_VOCAB, &m->n_vocab));
	}
	TRY(gguf_int_or(k->g, "tokenizer.ggml.bos_token_id", 0, m->n_vocab - 1, -1, &id));
	m->bos = (int32_t)id;
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		TRY(gguf_int_or(k->g, ends[i], 0, m->n_vocab - 1, -1, &id));
		if (id >= 0)
			TRY(model_add_eos(gguf_path(k->g), ends[i], id, m));
	}
	return ERR_OK;
}

/* Real keys that change the result unless they are 0. */
static enum err refuse_features(struct keys *k)
{
	static const char *const names[] = { "attn_logit_softcapping", "final_logit_softcapping", "attention.scale",
					     "logit_scale", "residual_scale", "embedding_scale" };
	double x;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		TRY(gguf_real_or(k->g, key_of(k, names[i]), 0, &x));
		if (x != 0)
			return ERR(MODEL, "%s: %s is %g, but soft caps and scales of this kind are not supported",
				   gguf_path(k->g), k->key, x);
	}
	return ERR_OK;
}

enum err model_from_gguf(const struct gguf *g, struct model *m)
{
	struct keys k = { .g = g };
	struct gguf_string label;
	double eps;
	*m = (struct model){ .bos = -1 };
	TRY(find_arch(g, &m->arch, &k.arch));
	TRY(refuse_features(&k));
	TRY(read_sizes(&k, m));
	TRY(read_rope(&k, m));
	TRY(gguf_real(g, key_of(&k, "attention.layer_norm_rms_epsilon"), &eps));
	if (!(eps >= 0 && eps <= 1))
		return ERR(MODEL, "%s: %s is %g, but must be 0 to 1", gguf_path(g), k.key, eps);
	m->norm_eps = (float)eps;
	TRY(read_vocabulary(&k, m));
	if (gguf_has(g, "general.name")) {
		TRY(gguf_string(g, "general.name", &label));
		printable(m->name, label.text, label.bytes);
	}
	TRY(m->arch->from_gguf(g, m));
	return model_check_numbers(gguf_path(g), m);
}
