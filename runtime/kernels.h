/* The arithmetic of a step. One table of functions; kernels_c.c is the plain reference, the other fillings are the same
 * source compiled for an instruction set, and all give the same bits.
 *
 * What holds in every kernel ("same bits", docs/ARCHITECTURE.md): a row's result depends on that row alone; a sum over K
 * runs in 16 virtual lanes (item k goes to lane k % 16, by fmaf in order of k), then one fixed tree (lane i += lane i+8,
 * +4, +2, +1). A fixed-point sum adds round-to-nearest-even(x * 2^32) of each run as int64, so it is free of order. Nothing
 * calls libm. Nothing allocates. Kernels work on a range of rows, heads or items; threads are the caller's business. */
#ifndef SHARDRUN_RUNTIME_KERNELS_H
#define SHARDRUN_RUNTIME_KERNELS_H

#include "runtime/wtype.h"

#include <stddef.h>
#include <stdint.h>

enum { KV_PAGE_TOKENS = 32,              /* positions in a page, and in a block of attention */
       KERNEL_SCRATCH_ROWS = 48,         /* floats per column: activations of 48 tokens rounded (bf16_impl.h); 8 weight
					    rows widened and two panels spread (packed_impl.h) take less */
       KERNEL_READ_UNIT = 4096,          /* see read_all */
       KERNEL_MAX_HEAD_DIM = 512, KERNEL_MAX_EXPERTS = 1024 };   /* limits of attention and route */
enum kv_type { KV_F32, KV_F16, KV_BF16, KV_INT8, KV_TYPE_COUNT };
extern const char *const kv_type_names[KV_TYPE_COUNT];
/* Numbers of a head that are stored together: in int8 they share a scale, 32 or, when those do not divide a head, all of it. */
int64_t kv_group(enum kv_type type, int64_t n_head_dim);
/* Bytes of K (or V) of one position and kv head, its scales included. */
int64_t kv_bytes(enum kv_type type, int64_t n_head_dim);

/* K and V of one layer on one rank. K of (page p, kv head h, place i, d): k[((p * n_kv + h) * 32 + i) * D + d]; V alike.
 * Of int8 a block of (page, head) is 32 * D integers, place i's D at i * D, and then the scales as f32, place i's D / group
 * at i * (D / group). x = q * scale, |q| <= 127, rounded to nearest even. A group with something that is not finite has a
 * scale of NaN. */
struct kv_layer {
	enum kv_type type;
	int64_t n_kv, n_head_dim;
	unsigned char *k, *v;
};

/* 32 activations as int8: x = q * d, rounded to nearest even, |q| <= 127. Beside them what products need: sums of q times
 * the offsets of weights' codes, with which the integer sums start. A line of the cache. */
struct act_block {
	int8_t q[32];
	float d, ds;                     /* ds = d * (float)sum of q; both NaN when one of the 32 is not finite */
	int32_t start8, start16, start128, start32[2];   /* -8 * sum ..; the last two: of 16 columns each */
	int32_t unused;
};

/* Blocks of one row of activations, the last filled up with zeros. */
static inline int64_t act_blocks(int64_t cols) { return (cols + 31) / 32; }

struct kernels {
	const char *name;                /* "c", "avx2", "neon" .. */
	int (*usable)(void);             /* does this processor have it? */

	/* y(b, r) = sum_k w(r, k) x(b, k) (+ bias[r] when not NULL) for rows r in [begin, end) and all b < n. x (n, ldx),
	 * y (n, ldy) indexed by r as is. w: rows as in the file, or PACK_BF16, which is the default arithmetic of BF16
	 * (bf16_impl.h: x is rounded to bf16); then begin is a multiple of 16, and below a run that is not all of K is even.
	 * scratch: KERNEL_SCRATCH_ROWS * cols floats, the thread's own. */
	void (*matmul)(const struct weight *w, int64_t begin, int64_t end, const float *bias, const float *x, int64_t ldx,
		       int64_t n, float *y, int64_t ldy, float *scratch);
	/* acc(b, r) += sum over runs of fixed(gate[b] * (sum over the run's k of w(r, k) x(b, k))); gate NULL: no factor. A
	 * run is `run` columns (the last may be short). A non-finite product or one of magnitude >= 2^24 adds 0 and counts
	 * one in bad[b] (the thread's own, n entries). */
	void (*matmul_fixed)(const struct weight *w, int64_t begin, int64_t end, int64_t run, const float *gate,
			     const float *x, int64_t ldx, int64_t n, int64_t *acc, int64_t lda, int64_t *bad,
			     float *scratch);
	/* The default arithmetic of quantised weights (packed_impl.h). One row of n activations to act_blocks(n) blocks. */
	void (*quantize)(const float *x, int64_t n, struct act_block *to);
	/* The same with less error, for what the vocabulary's head multiplies: of several ways to round, the closest. */
	void (*quantize_finely)(const float *x, int64_t n, struct act_block *to);
	/* matmul and matmul_fixed for packed weights (pack.h) and rows of blocks, ldx blocks from row to row. begin is a
	 * multiple of 16 and run one of 32; acc is indexed by r as is. scratch as for matmul. */
	void (*packed_matmul)(const struct weight *w, int64_t begin, int64_t end, const float *bias,
			      const struct act_block *x, int64_t ldx, int64_t n, float *y, int64_t ldy, float *scratch);
	void (*packed_fixed)(const struct weight *w, int64_t begin, int64_t end, int64_t run, const float *gate,
			     const struct act_block *x, int64_t ldx, int64_t n, int64_t *acc, int64_t lda, int64_t *bad,
			     float *scratch);
	/* x[i] += (acc[i] * 2^-32 + bias[i]) for i < n, bias may be NULL; all become NaN when bad is not 0. */
	void (*add_fixed)(float *x, const int64_t *acc, int64_t bad, const float *bias, int64_t n);
	/* y[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * w[i] */
	void (*rms_norm)(const float *x, const float *w, float eps, int64_t n, float *y);
	/* g[i] = silu(g[i]) * u[i] */
	void (*silu_mul)(float *g, const float *u, int64_t n);
	/* Rotates n_head heads of D at x in place by cos/sin (D/2 each, of this position). interleaved: pairs (2i, 2i+1). */
	void (*rope)(float *x, int64_t n_head, int64_t n_head_dim, const float *cos, const float *sin, int interleaved);
	/* Stores columns [begin, end) of one token's K or V, x (n_kv * D), at position pos of a sequence with that page
	 * table. pool: kv->k or kv->v. begin and end are multiples of kv_group. */
	void (*kv_store)(const struct kv_layer *kv, unsigned char *pool, const int32_t *pages, int64_t pos, int64_t begin,
			 int64_t end, const float *x);
	/* One query head of one token: q (D), kv head h, positions max(0, pos-window+1)..pos (window 0: all). out (D).
	 * Blocks of 32 positions from position 0; running maximum; see attention_impl.h. D <= KERNEL_MAX_HEAD_DIM. */
	void (*attention)(const struct kv_layer *kv, const int32_t *pages, int64_t h, int64_t pos, int64_t window,
			  float scale, const float *q, float *out);
	/* The n_heads query heads of kv head h, of n_rows tokens of one sequence at positions pos, pos + 1 ..: the bits of
	 * attention for each, but K and V are read once for up to 64 queries. Row b's heads: q + b * ldq + g * D, out alike. */
	void (*attention_rows)(const struct kv_layer *kv, const int32_t *pages, int64_t h, int64_t pos, int64_t n_rows,
			       int64_t n_heads, int64_t window, float scale, const float *q, int64_t ldq, float *out, int64_t ldo);
	/* Softmax over n expert logits, the k best (ties to the lower id) with weights renormalised to sum 1:
	 * experts[i], gates[i], best first. n <= KERNEL_MAX_EXPERTS, k <= n. */
	void (*route)(const float *logits, int64_t n, int64_t k, int32_t *experts, float *gates);
	/* Row r of w widened to float. */
	void (*widen_row)(const struct weight *w, int64_t r, float *out);
	/* sum over v of a 64-bit hash of (position, first_id + v, bits of logits[v]); wraps. */
	uint64_t (*digest)(const float *logits, int64_t n, int64_t first_id, int64_t position);
	/* The greatest key (sampler.h) of n logits, whose ids are first_id ..; 0 when there are none. */
	uint64_t (*best_key)(const float *logits, int64_t n, int64_t first_id);
	/* exp, for sampling: y[i] = exp(x[i]) with x <= 0 in use. */
	void (*exp)(const float *x, float *y, int64_t n);
	/* For measuring (limits.h): the inner operation of products with int8, and with bf16, on data in registers; they give the
	 * number of products and sums done. And reading memory as fast as it goes: the OR of all 64-bit words; bytes is a
	 * multiple of KERNEL_READ_UNIT. */
	int64_t (*peak_int8)(int64_t rounds);
	int64_t (*peak_bf16)(int64_t rounds);
	uint64_t (*read_all)(const unsigned char *from, int64_t bytes);
};
extern const struct kernels *const kernel_tables[];      /* reference first, most able last; NULL-terminated */
const struct kernels *kernels_best(void);                /* the fastest here */
const struct kernels *kernels_named(const char *name);   /* NULL: unknown or unusable here */

/* The double-precision functions of start-up tables (math_exact.c), ours so that every machine gives the same bits.
 * Errors below 2 ulp on the ranges in use. */
double exact_exp(double x);
double exact_log(double x);
void exact_sin_cos(double x, double *s, double *c);      /* |x| < 2^30 */

#endif
