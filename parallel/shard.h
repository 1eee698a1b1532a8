/* Which part of a model a rank holds. Ranges are as even as their blocks allow; nothing needs to divide evenly. */
#ifndef SHARDRUN_PARALLEL_SHARD_H
#define SHARDRUN_PARALLEL_SHARD_H

#include "parallel/layout.h"
#include "parallel/member.h"

#include <stdint.h>

struct range { int64_t begin, end; };
static inline int64_t range_size(struct range r) { return r.end - r.begin; }

/* Part i of 0..n cut into `parts` runs of whole `unit`s (the last unit may be short), the first ones longer by one. */
struct range range_part(int64_t n, int64_t unit, int parts, int i);

/* The numbers of a model that sharding needs. */
struct shard_model {
	int64_t n_layers, n_embd, n_head, n_kv_head, n_ffn, n_expert, n_vocab;   /* n_ffn: columns of the dense FFN or of one expert */
	int64_t head_run;      /* heads in one run of the attention output's fixed-point sum: K is cut between runs */
	int64_t ffn_run;       /* FFN columns in one run */
};

/* A rank's part.
 *
 * The two matrices that sum over what tp splits (attention output, FFN down) are cut along K, between runs. When there are
 * fewer runs than tp ranks they cannot be: then each rank holds some of their output rows instead (gather_attn, gather_ffn)
 * and their input is gathered over tp. Both ways add the same runs, so the bits are the same. */
struct shard {
	struct range layers;
	struct range heads, kv_heads;    /* kv_heads: every one that its heads use */
	struct range ffn;                /* columns of a dense FFN (by tp) */
	struct range experts;            /* by ep */
	struct range expert_ffn;         /* columns of each of its experts (by etp) */
	struct range vocab;              /* rows of embedding and head (by tp) */
	int gather_attn, gather_ffn;     /* see above; gather_ffn only in dense models */
	struct range attn_out, ffn_out;  /* output rows (C) that it holds of the two matrices: all, or a part when gathered */
	int first_stage, last_stage;
};
void shard_of(const struct shard_model *s, const struct layout *l, const struct member *m, struct shard *out);
struct range shard_layers(int64_t n_layers, const struct layout *l, int stage);
/* Every tp rank's columns of the gathered input, in items: heads (times the head size) or FFN columns. */
struct range shard_gathered_heads(const struct shard_model *s, int tp, int i);
struct range shard_gathered_ffn(const struct shard_model *s, int tp, int i);
int shard_expert_owner(const struct shard_model *s, const struct layout *l, int64_t expert);   /* its ep coordinate */
void shard_limits(const struct shard_model *s, struct layout_limits *out);

/* How a dimension of a weight is cut. */
enum shard_dim { SHARD_ALL, SHARD_HEADS, SHARD_KV_HEADS, SHARD_FFN, SHARD_EXPERT_FFN, SHARD_EXPERTS, SHARD_VOCAB };
/* The range of a dimension of this kind, in items of `scale` (head size for heads, 1 else); size is the whole. */
struct range shard_dim_range(const struct shard *s, enum shard_dim dim, int64_t size, int64_t scale);

#endif
