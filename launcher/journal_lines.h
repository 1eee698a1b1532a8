/* Which lines have a result, and the output: results in the order of the input, each once.
 *
 * A result whose turn it is goes out at once; one that waits for an earlier line stays in the journal's files, and only its
 * place (32 bytes) is kept here, in a heap by line. A line that is done costs one bit. So memory does not grow with results, and
 * hardly with lines. Unordered, every result goes out as it comes. */
#ifndef SHARDRUN_LAUNCHER_JOURNAL_LINES_H
#define SHARDRUN_LAUNCHER_JOURNAL_LINES_H

#include "launcher/journal_records.h"

struct waiting { uint64_t line; struct records_place place; };

struct lines {
	int unordered;
	const char *directory;           /* borrowed: where the journal's files are */
	const struct journal_io *io;     /* borrowed */
	int fd;                          /* where results go; not owned; -1: nowhere */
	const char *name;                /* of it, borrowed */
	int positioned;                  /* write by position: a file of our own; else where the fd stands */
	uint64_t written;                /* bytes in fd */
	struct bytes out;                /* to be written next */
	uint64_t next;                   /* the line whose turn it is */
	uint64_t n_placed, taken_words;
	uint64_t *taken;                 /* a bit per line */
	struct waiting *heap;            /* the earliest line first */
	size_t n_waiting, waiting_capacity;
	struct records_reader reader;
	struct bytes again;              /* a result read again */
};

void lines_init(struct lines *l, const char *directory, const struct journal_io *io, int unordered);
void lines_free(struct lines *l);
/* Has the line's result been taken? Each line is taken once, before it is placed. */
int lines_have(const struct lines *l, uint64_t line);
enum err lines_take(struct lines *l, uint64_t line);
/* A result that is on disk at `place`. */
enum err lines_place(struct lines *l, uint64_t line, const struct records_place *place, const void *data);
/* Writes what is collected. */
enum err lines_flush(struct lines *l);

#endif
