/* Text from a hostile file, made fit for a sentence: one line, short, and nothing that a terminal acts on. */
#ifndef SHARDRUN_RUNTIME_PRINTABLE_H
#define SHARDRUN_RUNTIME_PRINTABLE_H

#include <stdint.h>

enum { PRINTABLE_BYTES = 100 };

/* Copies into room; bytes outside printable ASCII become '?', a long text ends in "...". Returns room. */
const char *printable(char room[PRINTABLE_BYTES], const char *text, uint64_t bytes);

#endif
