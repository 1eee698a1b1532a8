/* The plan: who holds what and how many bytes it takes, made before anything is loaded. The same for a live job and for
 * `shardrun plan` on machines that are not there. */
#ifndef SHARDRUN_RUNTIME_PLAN_H
#define SHARDRUN_RUNTIME_PLAN_H

#include "base/bytes.h"
#include "parallel/place.h"
#include "runtime/model.h"
#include "runtime/stage.h"

struct plan_wish {
	struct layout layout;         /* LAYOUT_AUTO where the plan shall choose */
	int use_devices;
	int threads;                  /* per rank; 0: as many as its cores, at least 1 */
	int64_t step_tokens, sequences;
	int64_t context;              /* tokens per sequence, 0: the model's, at most 4096 */
	enum kv_type kv_type;
	enum arithmetic arithmetic;
	int64_t kv_bytes;             /* most KV bytes per rank; 0: room for `sequences` of `context` */
	int64_t useful_pages;         /* more KV pages than this are of no use; 0: not known */
	int64_t logits_tokens;        /* prompt tokens whose logits the head shall hold; 0: none */
	int speculates;               /* drafts are made (schedule.h) */
};

struct plan_rank {
	struct member member;
	struct shard shard;
	int threads;
	uint64_t weights_bytes, kv_bytes, buffer_bytes;
	uint64_t loop_bytes;          /* of the buffers: those of the loop of steps */
};

struct plan {
	struct layout layout;
	int n_ranks;
	struct plan_rank *ranks;      /* by world rank; owned */
	struct stage_limits limits;
	int64_t context;
	int64_t draft_rows;           /* most tokens of one replica in a step with drafts; 0: no drafts */
	int lane_replicas;            /* that step together: all when experts are spread over them, else each on its own */
	struct step_room step;        /* most in one step, of these replicas */
};

/* Pure. ERR_FIT when layout, memory or cores do not work out, with the numbers; ERR_RECIPE when no weights have the
 * arithmetic that is asked for by name. check_memory: the ranks of a node must fit in
 * its memory_limit_bytes (0: not known, not checked). */
enum err plan_make(const struct model *m, const struct weights *w, const struct place *p, const struct plan_wish *wish,
		   int check_memory, struct plan *out);
void plan_free(struct plan *p);
/* 32-bit words of a mask with a bit for each token. */
int64_t plan_mask_words(const struct model *m);
/* The table: rank, host, cores, coordinates, layers, heads, experts, bytes. */
void plan_print(const struct plan *p, const struct model *m, const struct cluster *c, struct bytes *to);

#endif
