/* Which known word a user may have meant: used by the recipe's keys and the command line's options. */
#ifndef SHARDRUN_LAUNCHER_NEAREST_H
#define SHARDRUN_LAUNCHER_NEAREST_H

enum { NEAREST_MAX_BYTES = 64 };   /* longer words are compared by their beginning */

struct nearest {
	const char *word;          /* the best so far, NULL: none */
	int distance;
};

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b (optimal string alignment). */
int nearest_distance(const char *a, const char *b);
/* Keeps `known` when it is nearer to `found` than what n holds; ties go to the earlier one. */
void nearest_offer(struct nearest *n, const char *found, const char *known);
/* The word, when it is near enough to be worth a suggestion, else NULL. */
const char *nearest_word(const struct nearest *n, const char *found);

#endif
