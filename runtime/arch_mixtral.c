/* Mixtral: Llama's attention, and per layer a router that sends each token to the best few of its experts.
 * Sources: transformers models/mixtral; llama.cpp keeps it under the name "llama" with llama.expert_count set. */
#include "base/json.h"
#include "runtime/arch_rows.h"
#include "runtime/gguf.h"
#include "runtime/model_impl.h"

static const char *const hf_types[] = { "mixtral", NULL };
static const char *const gguf_names[] = { "llama", NULL };

#define ROW_EXPERT(slot_, hf_, gguf_, rows_, cols_, cut_rows_, cut_cols_)                          \
	{ .slot = slot_, .hf = "model.layers.{l}.block_sparse_moe.experts.{e}." hf_ ".weight",     \
	  .gguf = "blk.{l}." gguf_ "_exps.weight", .gguf_split = "blk.{l}." gguf_ ".{e}.weight",   \
	  .rows = rows_, .cols = cols_, .cut_rows = cut_rows_, .cut_cols = cut_cols_, .per_layer = 1, .per_expert = 1 }

static const struct arch_tensor tensors[] = {
	ROWS_OF_THE_MODEL,
	ROWS_OF_ATTENTION,
	ROW_LAYER(SLOT_ROUTER, "block_sparse_moe.gate.weight", "ffn_gate_inp.weight", SIZE_EXPERTS, SIZE_EMBD, SHARD_ALL,
		  SHARD_ALL, NULL),
	ROW_EXPERT(SLOT_EXPERT_GATE, "w1", "ffn_gate", SIZE_FFN, SIZE_EMBD, SHARD_EXPERT_FFN, SHARD_ALL),
	ROW_EXPERT(SLOT_EXPERT_UP, "w3", "ffn_up", SIZE_FFN, SIZE_EMBD, SHARD_EXPERT_FFN, SHARD_ALL),
	ROW_EXPERT(SLOT_EXPERT_DOWN, "w2", "ffn_down", SIZE_EMBD, SIZE_FFN, SHARD_ALL, SHARD_EXPERT_FFN),
	{ .slot = SLOT_COUNT },
};

static enum err from_config(void *config, const char *name, struct model *m)
{
	TRY(json_get_int(config, name, "num_local_experts", 1, MODEL_MAX_EXPERTS, &m->n_expert));
	TRY(json_get_int(config, name, "num_experts_per_tok", 1, MODEL_MAX_EXPERTS_USED, &m->n_expert_used));
	if (m->rope_theta == 0)
		m->rope_theta = 1e6;   /* transformers' default for this type */
	return json_get_int_or(config, name, "sliding_window", 0, MODEL_MAX_CONTEXT, 0, &m->window);
}

static enum err from_gguf(const struct gguf *g, struct model *m)
{
	TRY(gguf_int(g, "llama.expert_count", 1, MODEL_MAX_EXPERTS, &m->n_expert));
	TRY(gguf_int(g, "llama.expert_used_count", 1, MODEL_MAX_EXPERTS_USED, &m->n_expert_used));
	int64_t gating, shared;
	int renormalised;
	TRY(gguf_int_or(g, "llama.expert_gating_func", 0, INT32_MAX, 1, &gating));
	if (gating > 1)
		return ERR(MODEL, "%s: llama.expert_gating_func is %lld, but only softmax (1) is supported", gguf_path(g),
			   (long long)gating);
	TRY(gguf_int_or(g, "llama.expert_shared_count", 0, INT32_MAX, 0, &shared));
	if (shared)
		return ERR(MODEL, "%s: llama.expert_shared_count is %lld, but shared experts are not supported",
			   gguf_path(g), (long long)shared);
	TRY(gguf_bool_or(g, "llama.expert_weights_norm", 1, &renormalised));
	if (!renormalised)
		return ERR(MODEL, "%s: llama.expert_weights_norm is false, but gates are always made to sum to 1",
			   gguf_path(g));
	return ERR_OK;
}

const struct arch arch_mixtral = {
	.name = "mixtral",
	.hf_types = hf_types,
	.gguf_names = gguf_names,
	.tensors = tensors,
	.from_config = from_config,
	.from_gguf = from_gguf,
};
