/* Words that users wrote: what they may have meant, and how they are shown in a sentence. */
#ifndef SHARDRUN_LAUNCHER_WORDS_H
#define SHARDRUN_LAUNCHER_WORDS_H

#include <stddef.h>

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

/* Bytes of the UTF-8 character at the start of text, 1 to 4; 0 when what stands there is none. */
size_t text_character(const char *text, size_t bytes);
unsigned text_code_point(const char *text, size_t n);   /* of a character of n bytes */
int text_is_utf8(const char *text, size_t bytes);
/* Is the character of n bytes a control character (C0, DEL, C1)? */
int text_is_control(const char *text, size_t n);

enum { SHOWN_BYTES = 60 };
struct shown { char text[SHOWN_BYTES + 4]; };
/* Text as found, made fit for a sentence: short, whole characters, "?" for what cannot be printed. */
struct shown text_shown(const char *text, size_t bytes);
/* The same of a whole string, as an argument of ERR. */
#define SHOWN(string) text_shown((string), strlen(string)).text

#endif
