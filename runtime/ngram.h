/* Guesses how a text goes on from what it says already: where its last few tokens stood before, the same may follow again.
 *
 * A text's index holds, for every run of 4, 3 and 2 tokens, where it stood last; it is kept as tokens come, so that a guess costs the
 * same whatever the text's length. What it finds is compared with the text itself, so a collision of hashes gives no
 * wrong answer but hides a place. A guess that reaches the text's end goes on with itself, as in "ab ab ab".
 *
 * How much is guessed follows from how it went: twice as much when all came true, one more than came true else. After a guess of which
 * nothing came true there is a pause, of 1 step, then of 2, 4 .. 64; each guess that came true in part makes the next pause a quarter, so
 * that guesses become rare where fewer than a third are of use. Pure; nothing is allocated but by ngram_create. */
#ifndef SHARDRUN_RUNTIME_NGRAM_H
#define SHARDRUN_RUNTIME_NGRAM_H

#include "base/err.h"

#include <stdint.h>

enum { NGRAM_MOST_DRAFTS = 15, NGRAM_FIRST_DRAFTS = 4, NGRAM_LONGEST_PAUSE = 64 };

struct ngram;
/* For texts of up to n_tokens. */
enum err ngram_create(int64_t n_tokens, struct ngram **out);
void ngram_destroy(struct ngram *g);          /* takes NULL */
uint64_t ngram_bytes(int64_t n_tokens);
/* Another text, of no tokens yet. */
void ngram_restart(struct ngram *g);
int64_t ngram_known(const struct ngram *g);   /* tokens */
void ngram_add(struct ngram *g, int32_t token);
/* At most `most` tokens that may come next. Called once a step, after the tokens of the step before were added, which show what became
 * of its guess. Gives their number. */
int64_t ngram_draft(struct ngram *g, int64_t most, int32_t *to);

/* Indexes for some of many texts, each of which has an owner's number. */
struct ngram_set;
enum err ngram_set_create(int64_t n, int64_t n_tokens, struct ngram_set **out);
void ngram_set_destroy(struct ngram_set *set);                      /* takes NULL */
struct ngram *ngram_of(struct ngram_set *set, int32_t owner);       /* its own, or a new one; NULL when all have other owners */
void ngram_drop(struct ngram_set *set, int32_t owner);              /* takes NULL, and an owner of none */

#endif
