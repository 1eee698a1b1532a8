/* Rows that the tables of Llama's relatives share: embedding, head, norms and attention. An architecture with another
 * attention writes its own rows. */
#ifndef SHARDRUN_RUNTIME_ARCH_ROWS_H
#define SHARDRUN_RUNTIME_ARCH_ROWS_H

#include "runtime/model.h"

/* Conditions of rows; defined in archs.c. */
int arch_has_own_head(const struct model *m);
int arch_has_attention_bias(const struct model *m);
int arch_has_attention_out_bias(const struct model *m);
int arch_has_mlp_bias(const struct model *m);

/* A matrix or (rows SIZE_1) vector of a layer with the same kind of name in both formats. */
#define ROW_LAYER(slot_, hf_, gguf_, rows_, cols_, cut_rows_, cut_cols_, present_)                                   \
	{ .slot = slot_, .hf = "model.layers.{l}." hf_, .gguf = "blk.{l}." gguf_, .rows = rows_, .cols = cols_,      \
	  .cut_rows = cut_rows_, .cut_cols = cut_cols_, .per_layer = 1, .present = present_ }

#define ROWS_OF_THE_MODEL                                                                                            \
	{ .slot = SLOT_EMBED, .hf = "model.embed_tokens.weight", .gguf = "token_embd.weight", .rows = SIZE_VOCAB,    \
	  .cols = SIZE_EMBD, .cut_rows = SHARD_VOCAB },                                                              \
	{ .slot = SLOT_FINAL_NORM, .hf = "model.norm.weight", .gguf = "output_norm.weight", .rows = SIZE_1,          \
	  .cols = SIZE_EMBD },                                                                                       \
	{ .slot = SLOT_HEAD, .hf = "lm_head.weight", .gguf = "output.weight", .rows = SIZE_VOCAB, .cols = SIZE_EMBD, \
	  .cut_rows = SHARD_VOCAB, .present = arch_has_own_head }

#define ROWS_OF_ATTENTION                                                                                            \
	ROW_LAYER(SLOT_ATTN_NORM, "input_layernorm.weight", "attn_norm.weight", SIZE_1, SIZE_EMBD, SHARD_ALL,        \
		  SHARD_ALL, NULL),                                                                                  \
	ROW_LAYER(SLOT_Q, "self_attn.q_proj.weight", "attn_q.weight", SIZE_HEADS, SIZE_EMBD, SHARD_HEADS, SHARD_ALL, \
		  NULL),                                                                                             \
	ROW_LAYER(SLOT_K, "self_attn.k_proj.weight", "attn_k.weight", SIZE_KV_HEADS, SIZE_EMBD, SHARD_KV_HEADS,      \
		  SHARD_ALL, NULL),                                                                                  \
	ROW_LAYER(SLOT_V, "self_attn.v_proj.weight", "attn_v.weight", SIZE_KV_HEADS, SIZE_EMBD, SHARD_KV_HEADS,      \
		  SHARD_ALL, NULL),                                                                                  \
	ROW_LAYER(SLOT_O, "self_attn.o_proj.weight", "attn_output.weight", SIZE_EMBD, SIZE_HEADS, SHARD_ALL,         \
		  SHARD_HEADS, NULL),                                                                                \
	ROW_LAYER(SLOT_Q_BIAS, "self_attn.q_proj.bias", "attn_q.bias", SIZE_1, SIZE_HEADS, SHARD_ALL, SHARD_HEADS,   \
		  arch_has_attention_bias),                                                                          \
	ROW_LAYER(SLOT_K_BIAS, "self_attn.k_proj.bias", "attn_k.bias", SIZE_1, SIZE_KV_HEADS, SHARD_ALL,             \
		  SHARD_KV_HEADS, arch_has_attention_bias),                                                          \
	ROW_LAYER(SLOT_V_BIAS, "self_attn.v_proj.bias", "attn_v.bias", SIZE_1, SIZE_KV_HEADS, SHARD_ALL,             \
		  SHARD_KV_HEADS, arch_has_attention_bias),                                                          \
	ROW_LAYER(SLOT_O_BIAS, "self_attn.o_proj.bias", "attn_output.bias", SIZE_1, SIZE_EMBD, SHARD_ALL, SHARD_ALL, \
		  arch_has_attention_out_bias),                                                                      \
	ROW_LAYER(SLOT_FFN_NORM, "post_attention_layernorm.weight", "ffn_norm.weight", SIZE_1, SIZE_EMBD, SHARD_ALL, \
		  SHARD_ALL, NULL)

#endif
