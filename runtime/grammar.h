/* Grammars over bytes: what may come next in a text that must keep to a format. Pure.
 *
 * A grammar is a stack machine. Rules are finite automata over bytes, whose edges may also call a rule: its text stands there, then
 * the caller goes on in the state that the edge names. What is drafted (draft_*) is compiled once and then never changes:
 *
 *   row     of a state: ranges of bytes with where each leads. Calls are followed until a byte is read, so a move pushes the states
 *           to go on in and enters one. Moves that push the same are merged into one state of their own, as in the subset
 *           construction, so that alternatives that begin alike (names, enums) are one path for as long as they are alike.
 *   accept  the rule's text may end here: then also what the state on top of the stack may read may come.
 *   height  the least stack above a state that the end of its rule takes. No move is made after which height does not fit in
 *           GRAMMAR_DEPTH: so nothing that was begun can become impossible to end. States from which no end can be reached are left
 *           out, and a grammar without any text is refused.
 *
 * A matcher is a place in a text: a set of (state, stack). It is one, nearly always; of more than GRAMMAR_PLACES the first are kept,
 * which forgets texts, but admits none that is wrong. Sizes are limited, as grammars are made of what strangers send. */
#ifndef SHARDRUN_RUNTIME_GRAMMAR_H
#define SHARDRUN_RUNTIME_GRAMMAR_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { GRAMMAR_DEPTH = 128, GRAMMAR_PLACES = 64 };
#define GRAMMAR_NONE UINT32_MAX

/* --- drafting --- */

struct draft_edge { uint32_t next, to, call; uint8_t lo, hi, is_empty; };
struct draft_state { uint32_t first, last; uint8_t accepts; };

/* Carries its first error, as struct bytes does: calls after it do nothing. A state is a number. Zeroed: empty. */
struct draft {
	struct draft_state *states;   /* owned, as edges */
	struct draft_edge *edges;
	uint32_t n_states, n_edges;
	size_t states_room, edges_room;
	enum err error;
};

uint32_t draft_state(struct draft *d);
void draft_accept(struct draft *d, uint32_t state);
void draft_bytes(struct draft *d, uint32_t from, int lo, int hi, uint32_t to);
void draft_empty(struct draft *d, uint32_t from, uint32_t to);
/* A rule is called by its first state. It must read at least one byte. */
void draft_call(struct draft *d, uint32_t from, uint32_t rule, uint32_t to);
/* A chain of single bytes to a new state. */
uint32_t draft_text(struct draft *d, uint32_t from, const char *text, size_t bytes);
void draft_free(struct draft *d);

/* --- compiled --- */

struct grammar_range { uint8_t lo, hi; uint32_t first_move, n_moves; };
struct grammar_move {
	uint32_t target;
	uint32_t pushes, n_pushes;    /* in the grammar's list, the outermost first */
	uint8_t need;                 /* the stack that it takes at least until all is ended, from where it is made */
};
struct grammar_row { uint32_t first_range; uint16_t n_ranges; uint8_t height, accepts; };

struct grammar {
	struct grammar_row *rows;     /* owned, as all below; by state */
	struct grammar_range *ranges; /* of a row: in order, apart */
	struct grammar_move *moves;
	uint32_t *pushes;
	uint32_t n_rows, n_ranges, n_moves, n_pushes;
	uint32_t start;
};

/* ERR_WORK with a sentence when it is too large, calls itself without reading, or has no text. The draft stays the caller's. */
enum err grammar_compile(const struct draft *d, uint32_t start, struct grammar **out);
void grammar_free(struct grammar *g);
size_t grammar_bytes(const struct grammar *g);

/* --- at work --- */

struct grammar_place { uint32_t state, stack; };
struct grammar_frame { uint32_t to, below, depth; };     /* frame 0: the bottom */

/* Frames lie in one list, each after the one below it; those that a byte adds are at its end, and can be cut off again. */
struct matcher {
	const struct grammar *g;      /* borrowed */
	struct grammar_frame *frames; /* owned */
	uint32_t n_frames;
	size_t frames_room;
	struct grammar_place places[GRAMMAR_PLACES];
	int n_places;
	uint32_t deepest;             /* stack that moves have needed; for who walks (token_mask.h) */
};

enum err matcher_begin(struct matcher *m, const struct grammar *g);
void matcher_free(struct matcher *m);
/* Where a byte leads from n places; gives how many, at `to` (GRAMMAR_PLACES), which must be others than `from`. -1: no memory. */
int matcher_step(struct matcher *m, const struct grammar_place *from, int n, unsigned char byte, struct grammar_place *to);
/* Reads on; *good 0: the text is not of the grammar, and nothing was read. */
enum err matcher_read(struct matcher *m, const void *bytes, size_t n, int *good);
int matcher_may_end(const struct matcher *m);
int matcher_may_go_on(const struct matcher *m);

#endif
