/* Which tokens may come next in an answer that is held to a format: those whose bytes the grammar reads from where the answer is.
 *
 * What a state allows by itself, whatever it stands on, is found once by a walk over the vocabulary and kept: the tokens that are read
 * within its rule, and the tree's nodes at which the rule's text may end. Only what is below those nodes depends on the stack, and
 * is walked each time. So a mask costs a copy and a short walk; inside a string, where nearly all tokens fit, it is a copy.
 *
 * The document may end when it is whole: then stop tokens may be chosen too. When nothing can follow, the answer is over. */
#ifndef SHARDRUN_RUNTIME_TOKEN_MASK_H
#define SHARDRUN_RUNTIME_TOKEN_MASK_H

#include "runtime/grammar.h"
#include "runtime/token_trie.h"

#include <stddef.h>

/* A grammar's masks over a vocabulary. Not for use by two threads at once. */
struct token_masks;
/* Owns the grammar, also when it fails; the trie is borrowed. */
enum err token_masks_create(const struct token_trie *trie, struct grammar *g, struct token_masks **out);
void token_masks_free(struct token_masks *k);

/* An answer. */
struct held {
	struct token_masks *masks;   /* borrowed */
	struct matcher matcher;      /* owned, as `allowed` */
	uint32_t *allowed;           /* bit t % 32 of word t / 32, for struct request: what may come next */
	int64_t n_words;
	const int32_t *stops;        /* borrowed: tokens that end an answer */
	int n_stops;
	int has_begun;
};

/* n_vocab: of the mask. For the first token of the answer. */
enum err held_begin(struct held *h, struct token_masks *masks, int64_t n_vocab, const int32_t *stops, int n_stops);
/* The answer has got a token: `allowed` is for the one after it. *is_over: the document is whole and cannot go on. */
enum err held_token(struct held *h, int32_t token, int *is_over);
int held_is_whole(const struct held *h);
void held_free(struct held *h);

#endif
