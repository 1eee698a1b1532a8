/* What a model is: its numbers, from HF config.json or from GGUF metadata, and its architecture's table of tensors. */
#ifndef SHARDRUN_RUNTIME_MODEL_H
#define SHARDRUN_RUNTIME_MODEL_H

#include "parallel/shard.h"
#include "runtime/weights.h"

#include <stdint.h>

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN_REFUSED };

struct model {
	const struct arch *arch;
	int64_t n_layers, n_embd, n_head, n_kv_head, n_head_dim, n_ffn, n_vocab, n_context;   /* L C H K D F V; n_context: trained */
	int64_t n_expert, n_expert_used;      /* 0: dense */
	int64_t window;                       /* sliding attention window in tokens, 0: none */
	float norm_eps;
	int tied_embeddings;
	int attention_bias, attention_out_bias, mlp_bias;
	int rope_interleaved;                 /* pairs (2i, 2i+1) as in GGUF's llama; else (i, i + D/2) */
	enum rope_type rope;
	double rope_theta, rope_factor, rope_low, rope_high;   /* low, high: llama3's frequency factors */
	int64_t rope_original_context;
	int64_t head_run, ffn_run;            /* runs of the fixed-point sums, from the tensors' formats; see DESIGN "same bits" */
	int32_t eos[8]; int n_eos;            /* tokens that end a text */
	int32_t bos;                          /* -1: none */
	char name[128];
	const struct tensor_info *rope_factors;   /* GGUF rope_freqs.weight: divides the frequencies; NULL */
};

/* The parts of a layer and of the model that have weights. */
enum slot {
	SLOT_EMBED, SLOT_FINAL_NORM, SLOT_HEAD,                     /* of the model */
	SLOT_ATTN_NORM, SLOT_Q, SLOT_K, SLOT_V, SLOT_O,             /* of a layer */
	SLOT_Q_BIAS, SLOT_K_BIAS, SLOT_V_BIAS, SLOT_O_BIAS,
	SLOT_FFN_NORM, SLOT_GATE, SLOT_UP, SLOT_DOWN,
	SLOT_GATE_BIAS, SLOT_UP_BIAS, SLOT_DOWN_BIAS,
	SLOT_ROUTER, SLOT_EXPERT_GATE, SLOT_EXPERT_UP, SLOT_EXPERT_DOWN,   /* experts: stacked (E, rows, cols) */
	SLOT_COUNT
};

/* Sizes that a table row can name. */
enum size_name { SIZE_1, SIZE_EMBD, SIZE_HEADS, SIZE_KV_HEADS, SIZE_FFN, SIZE_EXPERTS, SIZE_VOCAB };   /* HEADS: H*D, KV_HEADS: K*D */

/* One kind of tensor of an architecture. */
struct arch_tensor {
	enum slot slot;
	const char *hf, *gguf;        /* names; {l}: layer, {e}: expert. gguf without {e}: all experts in one 3-D tensor */
	const char *gguf_split;       /* older files: one tensor per expert ({e}), or NULL */
	enum size_name rows, cols;    /* rows SIZE_1: a vector of cols */
	enum shard_dim cut_rows, cut_cols;
	int per_layer, per_expert;
	int (*present)(const struct model *m);   /* NULL: always */
};

struct arch {
	const char *name;             /* "llama" */
	const char *const *hf_types;  /* config.json model_type values, NULL-terminated */
	const char *const *gguf_names;
	const struct arch_tensor *tensors;   /* ends with slot SLOT_COUNT */
	/* Reads what only this architecture has; common keys are read before. */
	enum err (*from_config)(void *config /* json_t */, const char *name, struct model *m);
	enum err (*from_gguf)(const struct gguf *g, struct model *m);
};
extern const struct arch *const archs[];      /* NULL-terminated */

/* Describes and checks: every tensor of the architecture's table is there with the right shape, else ERR_MODEL. */
enum err model_describe(struct weights *w, struct model *out);
int64_t model_size(const struct model *m, enum size_name s);
void model_shard_model(const struct model *m, struct shard_model *out);
/* The tensor of a row for layer and expert. expert -1: the stacked one or expert 0. NULL if absent; *stacked: it holds
 * all experts. */
const struct tensor_info *model_tensor(const struct model *m, const struct weights *w, const struct arch_tensor *row,
				       int64_t layer, int64_t expert, int *stacked);
/* What of a row's tensors a shard holds. model_row_wanted: any of it, by stage (the embedding: on the first stage, and on
 * the last too when the head is tied to it) and by what the model has. model_slice: which rows and columns of one layer's
 * matrix (of each expert's, for experts; which experts: shard->experts); columns end on quantisation blocks, else
 * ERR_BUG. */
int model_row_wanted(const struct model *m, const struct arch_tensor *row, const struct shard *s);
enum err model_slice(const struct model *m, const struct weights *w, const struct arch_tensor *row, const struct shard *s,
		     int64_t layer, struct range *rows, struct range *cols);
/* Bytes of weights that a shard holds (what the loader will read); pure in model, weights index and shard. */
uint64_t model_shard_bytes(const struct model *m, const struct weights *w, const struct shard *s);

#endif
