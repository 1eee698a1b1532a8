/* Stop strings in a text that comes in pieces: what is certain goes on, what may be the beginning of a stop string is held back, and
 * from the first stop string on nothing goes on.
 *
 * The first one is the one that is complete first; of several that end at the same byte, the longest. So it does not matter how the
 * text is cut into pieces. A piece may end within a UTF-8 character: what goes on ends at a whole one. Pure, no allocation but in the
 * bytes that the caller gives. */
#ifndef SHARDRUN_RUNTIME_STOP_TEXT_H
#define SHARDRUN_RUNTIME_STOP_TEXT_H

#include "base/bytes.h"

#include <stddef.h>

struct stop_text {
	const char *const *stops;       /* borrowed: (n), none of them empty */
	int n;
	int found;                      /* which one ended the text; -1: none yet */
	struct bytes held;              /* owned */
};

void stop_text_begin(struct stop_text *t, const char *const *stops, int n);
/* Appends to *out what becomes certain. Gives 1 when the text has ended with a stop string, now or before. */
int stop_text_put(struct stop_text *t, const char *text, size_t bytes, struct bytes *out);
/* No more is to come: appends what was held back. */
void stop_text_end(struct stop_text *t, struct bytes *out);
void stop_text_free(struct stop_text *t);

#endif
