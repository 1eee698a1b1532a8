/* Llama 2 and 3, Mistral, SmolLM2, TinyLlama: grouped-query attention with rope, and a gated FFN (silu). Mistral differs by
 * its sliding window alone.
 * Sources: transformers models/llama and models/mistral (numbers and names), llama.cpp's tensor names for "llama". */
#include "base/json.h"
#include "runtime/arch_rows.h"
#include "runtime/model_impl.h"

#include <string.h>

static const char *const hf_types[] = { "llama", "mistral", NULL };
static const char *const gguf_names[] = { "llama", NULL };

static const struct arch_tensor tensors[] = {
	ROWS_OF_THE_MODEL,
	ROWS_OF_ATTENTION,
	ROW_LAYER(SLOT_GATE, "mlp.gate_proj.weight", "ffn_gate.weight", SIZE_FFN, SIZE_EMBD, SHARD_FFN, SHARD_ALL, NULL),
	ROW_LAYER(SLOT_UP, "mlp.up_proj.weight", "ffn_up.weight", SIZE_FFN, SIZE_EMBD, SHARD_FFN, SHARD_ALL, NULL),
	ROW_LAYER(SLOT_DOWN, "mlp.down_proj.weight", "ffn_down.weight", SIZE_EMBD, SIZE_FFN, SHARD_ALL, SHARD_FFN, NULL),
	ROW_LAYER(SLOT_GATE_BIAS, "mlp.gate_proj.bias", "ffn_gate.bias", SIZE_1, SIZE_FFN, SHARD_ALL, SHARD_FFN,
		  arch_has_mlp_bias),
	ROW_LAYER(SLOT_UP_BIAS, "mlp.up_proj.bias", "ffn_up.bias", SIZE_1, SIZE_FFN, SHARD_ALL, SHARD_FFN,
		  arch_has_mlp_bias),
	ROW_LAYER(SLOT_DOWN_BIAS, "mlp.down_proj.bias", "ffn_down.bias", SIZE_1, SIZE_EMBD, SHARD_ALL, SHARD_ALL,
		  arch_has_mlp_bias),
	{ .slot = SLOT_COUNT },
};

static enum err from_config(void *config, const char *name, struct model *m)
{
	const char *type = json_string_value(json_object_get(config, "model_type"));
	if (type && strcmp(type, "mistral") == 0) {
		/* An absent window is 4096 here, as in transformers; models without one write null. */
		int64_t absent = json_object_get(config, "sliding_window") ? 0 : 4096;
		return json_get_int_or(config, name, "sliding_window", 0, MODEL_MAX_CONTEXT, absent, &m->window);
	}
	TRY(json_get_bool_or(config, name, "attention_bias", 0, &m->attention_bias));
	m->attention_out_bias = m->attention_bias;
	return json_get_bool_or(config, name, "mlp_bias", 0, &m->mlp_bias);
}

static enum err from_gguf(const struct gguf *g, struct model *m)
{
	(void)g;
	(void)m;
	return ERR_OK;   /* all its keys are common ones; model.c finds biases by their tensors */
}

const struct arch arch_llama = {
	.name = "llama",
	.hf_types = hf_types,
	.gguf_names = gguf_names,
	.tensors = tensors,
	.from_config = from_config,
	.from_gguf = from_gguf,
};
