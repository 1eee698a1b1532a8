/* The tokens of a vocabulary by their bytes: a tree whose nodes lie in the order of a walk, each followed by what is below it, so that a
 * walk is a loop over arrays that skips what a grammar refuses. Tokens without bytes (control tokens, padding) and those longer than
 * TRIE_MOST_BYTES are not in it. */
#ifndef SHARDRUN_RUNTIME_TOKEN_TRIE_H
#define SHARDRUN_RUNTIME_TOKEN_TRIE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { TRIE_MOST_BYTES = 256 };

struct tokenizer;

struct token_trie {
	int64_t n_tokens;
	unsigned char *text;         /* owned, as all below: bytes of all tokens */
	uint32_t *text_at;           /* (n_tokens + 1) where a token's begin */
	uint32_t n_nodes;            /* node 0: the root */
	unsigned char *byte;         /* (n_nodes) */
	uint16_t *level;             /* bytes from the root */
	uint32_t *skip;              /* the first node that is not below this one */
	uint32_t *first_token;       /* (n_nodes + 1) in ids */
	int32_t *ids;
	uint32_t blank;              /* the node of " "; 0: none, or a text's first blank is kept */
};

/* text_at (n_tokens + 1): where the tokens' bytes begin in `text`; both are copied. */
enum err token_trie_create(const void *text, const uint32_t *text_at, int64_t n_tokens, struct token_trie **out);
/* Tokens of the tokenizer whose ids are below n_vocab. */
enum err token_trie_of(const struct tokenizer *t, int64_t n_vocab, struct token_trie **out);
void token_trie_free(struct token_trie *t);

#endif
