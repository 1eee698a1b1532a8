/* Loading: a rank's slices of the weights, read from the files into one block of memory.
 *
 * Each tensor's rows are copied to their place by the thread that will multiply with them, so that on a machine with
 * several memory controllers they lie near it. Only the bytes of the slices are read. */
#ifndef SHARDRUN_RUNTIME_LOAD_H
#define SHARDRUN_RUNTIME_LOAD_H

#include "base/pool.h"
#include "runtime/model.h"

/* F32: weights as in the file, widened to float in products: the oracle. DEFAULT: weights are packed; quantised ones multiply
 * with activations as int8, BF16 with activations as bf16 (pack.h, kernels.h); other types as in F32. INT8, BF16: DEFAULT
 * of a model that has such weights, by name; plan_make refuses another. */
enum arithmetic { ARITHMETIC_F32, ARITHMETIC_DEFAULT, ARITHMETIC_INT8, ARITHMETIC_BF16 };

struct layer_weights {
	struct weight w[SLOT_COUNT];      /* this rank's part; data NULL where the model has none. Experts are stacked:
					     rows = local experts * rows of one, each a matrix of its own */
	float *vector[SLOT_COUNT];        /* norms and biases, widened; NULL where there is none */
};

struct rank_weights {
	struct weight embed, head;        /* (V/tp, C); the same memory when tied and on one stage */
	float *final_norm;                /* (C) */
	struct layer_weights *layers;     /* of this stage: layers[i] is layer shard.layers.begin + i */
	float *rope_factors;              /* (D/2) or NULL */
	unsigned char *block;             /* owned: all matrices */
	uint64_t block_bytes, read_bytes;
	struct arena *arena;              /* owned: the vectors and tables */
};

/* Bytes of memory that rank_weights_load will take for its matrices (the vectors add little). */
uint64_t rank_weights_bytes(const struct model *m, const struct weights *w, const struct shard *s, enum arithmetic a);
/* Bytes of one of `parts` equal matrices stacked in w. */
int64_t rank_weights_part_bytes(const struct weight *w, int64_t parts);
/* Not collective. progress(arg, bytes done) is called now and then; may be NULL. */
enum err rank_weights_load(const struct model *m, struct weights *w, const struct shard *s, enum arithmetic a, struct pool *pool,
			   void (*progress)(void *arg, uint64_t done_bytes), void *arg, struct rank_weights **out);
void rank_weights_destroy(struct rank_weights *r);

#endif
