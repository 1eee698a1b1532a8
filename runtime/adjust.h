/* What a request asks to be done to its logits before a token is chosen. In this order, in float:
 *
 *   repetition  of tokens of the prompt or the answer: l < 0 ? l * r : l / r (Keskar et al., CTRL, 2019; so does HF transformers)
 *   frequency   of tokens that the answer has `count` times: l - frequency * count (as OpenAI defines it; so the next)
 *   presence    of tokens that the answer has: l - presence
 *   bias        l + bias, of the tokens that are named
 *   mask        tokens that are banned, or whose bit in the mask is 0, get -infinity
 *
 * A request without any of these has no adjustments at all and costs nothing. The others' travel in step.extra, of slices
 * that sample only. Biases, bans and masks travel whenever they hold. Of the text only what is new does: a table per running sequence
 * (its slot), on the ranks that choose, holds each token's count; a sequence that starts, or starts again, brings all of its
 * tokens (n_prompt > 0), and from then on the slice's own tokens are what the answer has got. */
#ifndef SHARDRUN_RUNTIME_ADJUST_H
#define SHARDRUN_RUNTIME_ADJUST_H

#include "base/err.h"

#include <stdint.h>

enum { ADJUST_MAX_BIASES = 1024, ADJUST_MAX_BANNED = 128 };   /* of one request */

struct token_bias { int32_t token; float bias; };

struct adjustments {
	float repetition, frequency, presence;   /* 1, 0, 0: off */
	int32_t slot;                            /* below the number of sequences of a replica */
	int32_t n_prompt, n_answer;              /* all tokens, when the slot starts; else 0 */
	int32_t n_banned, n_biases, n_mask;      /* n_mask: words, bit t % 32 of word t / 32; 0: all tokens may be chosen */
	const int32_t *prompt, *answer, *banned; /* borrowed, as the rest */
	const struct token_bias *biases;
	const uint32_t *mask;
};

static inline int adjust_counts(const struct adjustments *a) { return a->repetition != 1 || a->frequency != 0 || a->presence != 0; }

/* Int32s that they take in a step. */
int64_t adjust_ints(const struct adjustments *a);
/* The most that one request takes, but for its tokens and mask. */
int64_t adjust_most_ints(void);
void adjust_pack(const struct adjustments *a, int32_t *to);
/* Borrows from n ints at `from`. ERR_BUG when they do not add up. */
enum err adjust_unpack(const int32_t *from, int64_t n, struct adjustments *out);

/* How often each sequence, of up to n_tokens, has each token of this rank's part of the vocabulary. */
struct token_counts;
uint64_t token_counts_bytes(int64_t n_slots, int64_t n_tokens, int64_t n_local);
enum err token_counts_create(int64_t n_slots, int64_t n_tokens, int64_t n_local, int64_t first_id, struct token_counts **out);
void token_counts_destroy(struct token_counts *c);       /* takes NULL */
/* Starts the slot when the adjustments bring its tokens, else adds the n `tokens` to its answer. Nothing unless they count. */
void token_counts_note(struct token_counts *c, const struct adjustments *a, const int32_t *tokens, int64_t n);
/* to = logits, adjusted; both of this rank's part of the vocabulary. */
void adjust_logits(const struct adjustments *a, const struct token_counts *c, const float *logits, float *to);

#endif
