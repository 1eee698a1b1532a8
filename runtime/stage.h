/* A stage: the layers that one rank holds (its part of each), the KV pools beside them, and the forward pass over them.
 *
 * stage.c makes it, forward.c walks the layers, experts.c is the mixture-of-experts part, choose.c chooses tokens, stage_step.c
 * looks at the clock, stage_border.c sends rows from stage to stage. Nothing is allocated in a step. */
#ifndef SHARDRUN_RUNTIME_STAGE_H
#define SHARDRUN_RUNTIME_STAGE_H

#include "base/mem.h"
#include "base/pool.h"
#include "parallel/dealt_rows.h"
#include "parallel/grid.h"
#include "runtime/kernels.h"
#include "runtime/load.h"
#include "runtime/model.h"
#include "runtime/step.h"
#include "runtime/trace.h"

/* What a rank is asked to make room for. */
struct stage_limits {
	int64_t step_tokens;      /* most tokens of one replica in one step */
	int64_t sequences;        /* most slices of one replica in one step */
	int64_t choices;          /* most tokens chosen in one replica's step; the same, unless drafts make it more */
	int64_t context;          /* most tokens of one sequence */
	int in_flight;            /* most steps of a replica under way */
	int64_t n_pages;          /* KV pages, the same number on every rank of a replica */
	enum kv_type kv_type;
	int int8_rows;            /* room for activations as int8, for packed weights */
};

/* One row of the batch: a token of this replica. */
struct batch_row {
	int32_t token, pos;
	const int32_t *pages;
};

/* What a thread finds in its logits of one row: its part of the digest, and the best key (sampler.h). */
struct choosing { uint64_t digest, key; };

enum { DEALT_ROWS = 4 };   /* from so many rows in a step on they are dealt to the tp ranks, see forward.c */
enum { SHOWN_H, SHOWN_H8, SHOWN_CHOSEN, SHOWN_GATES };   /* what is shown of them: dealt_shown */

struct stage {
	const struct model *m;
	struct grid *grid;
	const struct kernels *k;
	struct pool *pool;                 /* borrowed, as the four above */
	struct shard shard;
	struct rank_weights *weights;      /* owned */
	struct stage_limits limits;
	struct kv_layer *kv;               /* of this stage's layers */
	unsigned char *kv_block;           /* owned, all pools */
	uint64_t kv_bytes, buffer_bytes;
	struct arena *arena;               /* owned: everything below */
	struct sampler *sampler;           /* owned; last stage */
	struct dealt_rows *dealt;          /* owned; see stage_join */
	unsigned shows;                    /* which of SHOWN_H and SHOWN_H8 products read: 1 << .. */
	float *rope_freq;                  /* (D/2) */

	/* Called between layers, when not NULL: for a rank that has more to do than this step. Its error is the step's. */
	enum err (*between)(void *arg);
	void *between_arg;
	struct comm_transfer *sent;        /* (in_flight): what left for the next stage */
	struct comm_transfer coming;       /* from the one before, for the next step */
	int64_t n_sent, n_received;        /* steps since stage_open */
	char **out, *in[2];                /* (in_flight) and 2 rooms of border_bytes */
	size_t border_bytes;               /* most that crosses a border, of this rank */

	/* Since stage_open: steps, time in them without what was waited for, time that rows of the stage before were waited for; and
	 * with a trace also the time in exchanges with tp ranks, which is part of busy_us. */
	int64_t n_steps, busy_us, waiting_us, exchange_us;
	struct trace *trace;               /* borrowed; NULL: nobody wants to know */

	/* the batch of this step */
	int64_t n_rows;
	int is_dealt;                      /* the rows are */
	struct batch_row *rows;            /* (B) */
	float *rope_cos, *rope_sin;        /* (B, D/2) */

	/* work buffers, B = limits.step_tokens */
	float *x;                          /* (B, C) residual stream; when dealt, own rows only */
	float *h;                          /* (B, C) normed: dealt, or few_h */
	float *few_h;                      /* (DEALT_ROWS, C) */
	float *q, *key, *value, *attn;     /* (B, H/tp * D), (B, K/tp * D) twice, (B, H/tp * D) */
	float *gate, *up;                  /* (B, F/tp) of a dense FFN */
	struct act_block *h8, *attn8, *gate8;   /* h, attn (or what was gathered), gate as int8; (B, blocks of the row) */
	struct act_block *few_h8;          /* (DEALT_ROWS, blocks of C) */
	float *gathered, *unsorted;        /* (B, H * D or F): the input of a matrix that is not cut along K, see shard.h */
	int64_t *acc;                      /* (B, C + 1): fixed-point sums, then the count of bad blocks: dealt_sums */
	int64_t *bad;                      /* (threads, B): bad blocks of a product */
	float **scratch;                   /* per thread: KERNEL_SCRATCH_ROWS rows */
	float *logits;                     /* (rows wanted, V/tp) */
	int64_t logits_rows;               /* room, in rows */
	int64_t *picked;                   /* (logits_rows): the rows of x that logits are wanted of */
	struct choosing *choosing;         /* (threads, logits_rows) */
	uint64_t *digests, *best_keys;     /* (logits_rows): of the logits of each row that samples */
	struct experts_room *experts;      /* see experts.c; NULL when dense */
};

/* Bytes of KV that one page takes on a rank with this shard. */
int64_t stage_page_bytes(const struct model *m, const struct shard *s, enum kv_type type);
/* Bytes of all work buffers. */
uint64_t stage_buffer_bytes(const struct model *m, const struct layout *l, const struct shard *s, const struct stage_limits *limits,
			    int n_threads);
/* Makes room for the step buffers and the KV pools. Takes over the weights on success. Not collective. */
enum err stage_create(const struct model *m, struct grid *g, const struct kernels *k, struct pool *pool,
		      struct rank_weights *weights, const struct stage_limits *limits, struct stage **out);
/* COLLECTIVE over tp, once, before the first step: makes the memory through which rows are dealt. */
enum err stage_join(struct stage *s);
void stage_destroy(struct stage *s);

/* Before the first step of a loop and after its last one, on every rank. */
enum err stage_open(struct stage *s);
enum err stage_close(struct stage *s);
/* COLLECTIVE over the replica's stage, and over all replicas when experts are spread over them. Other stages work on other steps
 * meanwhile, all in the same order. Works on this replica's slices of the step. On the last stage *out gets
 * a result per choice, in order, the same on all tp ranks; else none. all_logits: NULL, or room for
 * the logits (n_tokens of the step, V) of a step whose single slice has SLICE_ALL_LOGITS: filled on the last stage's tp rank 0. */
enum err stage_step(struct stage *s, const struct step *step, struct step_results *out, float *all_logits);

/* --- between stage.c, forward.c, choose.c, stage_step.c, stage_border.c and experts.c --- */
/* Rows to the next stage, and from the one before; the first and the last stage have no such neighbour. */
enum err stage_send_on(struct stage *s);
enum err stage_receive(struct stage *s);
/* What stage_step does, whose time it takes. */
enum err stage_forward(struct stage *s, const struct step *step, struct step_results *out, float *all_logits);
/* Rows of the stage before were waited for since then. */
void stage_waited(struct stage *s, long long began_us);
/* An exchange with tp ranks has ended that began then, by trace_now. */
static inline void stage_exchanged(struct stage *s, long long began_us)
{
	if (s->trace)
		s->exchange_us += clock_us() - began_us;
}
/* Makes the step's copies of pages of this replica, in their order within every layer. */
void stage_copy_pages(struct stage *s, const struct step *step);
enum err experts_create(struct stage *s);
uint64_t experts_room_bytes(const struct model *m, const struct layout *l, const struct shard *s, const struct stage_limits *limits,
			    int n_threads);
/* On entry s->acc holds this rank's part of the attention output's sums. Adds them and then the mixture's output to x; then, when
 * next_norm (C) is not NULL, s->h is the norm of x. */
enum err experts_forward(struct stage *s, const struct layer_weights *w, const float *next_norm);
/* s->logits (n, V/tp) of n rows of x, s->picked, in their order; chooses: with what threads find for choosing tokens, s->choosing. */
enum err stage_head(struct stage *s, int64_t n, int chooses);
/* Chooses the step's tokens (choose.c). COLLECTIVE over tp. */
enum err stage_sample(struct stage *s, const struct step *step, struct step_results *out);
/* The rows that this rank brings to an end: its own when they are dealt, else all. */
struct range stage_own_rows(const struct stage *s);
/* Column C of acc = the rows' counts in s->bad. */
void stage_count_bad(struct stage *s);
/* acc is filled: now its sums over tp may be asked for. */
enum err stage_bring_sums(struct stage *s);
/* After that, for an own row: x += its sum (+ bias (C) when not NULL). By any thread of the pool. */
void stage_settle_row(struct stage *s, int thread, int64_t b, const float *bias);
/* All of this for own rows, and when next_norm (C) is not NULL then all rows of s->h are the norms of x. */
enum err stage_settle(struct stage *s, const float *bias, const float *next_norm);
/* s->h (and s->h8) = the norms of x. */
enum err stage_norm(struct stage *s, const float *weights);
/* Own rows of these arrays (1 << SHOWN_..) are filled: now all of them are there. */
enum err stage_show(struct stage *s, unsigned arrays);
/* work for n rows that cost as much as norming row_values numbers each: by all threads, or by the caller when that is quicker. */
void stage_run_rows(struct stage *s, int64_t n, int64_t row_values, pool_work *work, void *arg);
/* Gathers x over tp, unless rows are dealt: rank t brings part t of its n_rows * C items cut into multiples of `unit`. */
enum err stage_gather_x(struct stage *s, int64_t unit);
/* --- products of rows with a matrix, in the arithmetic that the matrix is in --- */

/* Rows of activations (., ld) in float and, for packed matrices, as int8 (., ld8 blocks). */
struct act_rows {
	const float *f;
	int64_t ld;
	const struct act_block *q;
	int64_t ld8;
};
/* Row b of s->h (and s->h8) = the norm of x (C). */
void stage_norm_row(struct stage *s, const float *x, const float *weights, int64_t b);
struct act_rows stage_normed(const struct stage *s);     /* s->h */
/* A product with this matrix reads its rows' int8, not their floats. */
int stage_reads_int8(const struct weight *w);
/* What threads cut the rows of a matrix into. */
int64_t stage_unit(const struct weight *w);
void stage_product(const struct stage *s, int thread, const struct weight *w, int64_t begin, int64_t end, const float *bias,
		   const struct act_rows *x, int64_t n, float *y, int64_t ldy);
void stage_product_fixed(const struct stage *s, int thread, const struct weight *w, int64_t begin, int64_t end, int64_t run,
			 const float *gate, const struct act_rows *x, int64_t n, int64_t *acc, int64_t *bad);
/* Rows [0, n) of x (., ld) of `width` columns to int8, by all threads; nothing when no weights are packed. */
void stage_quantize(struct stage *s, const float *x, int64_t ld, int64_t width, int64_t n, struct act_block *to);

#endif
