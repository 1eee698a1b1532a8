/* The journal's records on disk: one file `records-EPOCH` for each run that owned the journal, written by that run only.
 *
 *     header   magic 8 | epoch 8 | previous epoch 8 | cut 8 | created 8 | identity bytes 4 | identity | hash 8
 *     group    magic 8 | epoch 8 | index 8 | records 8 | payload bytes 8 | input lines 8 | input digest 8 | payload hash 8
 *              | hash 8 | payload: records
 *     record   line 8 | bytes 4 | hash 4 | the result, without its newline
 *
 * Little-endian, no padding; hashes are XXH3 of 64 bits, `hash` of all before it in its header, a record's the low 32 bits
 * of its result's. Lines count from 0; the highest bit of a record's says that the result is an error. `input lines` and
 * `input digest` say how far the input was read, and what it was till there.
 *
 * The files form a chain: a header names the epoch before it and the byte where that epoch's file ends for good (`cut`, the
 * end of its last whole group when the new owner read it). Nothing behind the cut is ever looked at, so a run that writes
 * after it lost the journal changes nothing. The chain begins at the greatest epoch whose header is whole: a header without
 * a group holds no result, so one that a kill has left in pieces is skipped.
 *
 * Only the last group of the last file can be in pieces, since a group begins after the one before it was fsynced. What is
 * not whole there is cut off. Anything else that is not whole is damage, which is refused with the file and the byte. */
#ifndef SHARDRUN_LAUNCHER_JOURNAL_RECORDS_H
#define SHARDRUN_LAUNCHER_JOURNAL_RECORDS_H

#include "launcher/journal_file.h"

struct records_header {
	uint64_t epoch, previous, cut;   /* previous 0: none */
	int64_t created;
	struct bytes identity;
};

/* How far the input was read, and the digest of it till there (batch_input.h). */
struct records_input { uint64_t lines, digest; };

/* Writing. Groups are collected in memory, then written and fsynced as one. */
struct records_writer {
	int fd;                          /* -1: none */
	char path[JOURNAL_PATH_BYTES];
	const struct journal_io *io;
	uint64_t epoch, end, index;      /* end: of the last whole group; index: of the next group */
	struct bytes group;              /* header and records so far */
	uint64_t n;                      /* records in it */
};

#define RECORDS_FAULT (UINT64_C(1) << 63)   /* in a record's line */
enum { RECORDS_GROUP_HEADER_BYTES = 72, RECORDS_RECORD_HEADER_BYTES = 16 };

/* Makes the file and its header durable. */
enum err records_create(const char *directory, const struct journal_io *io, const struct records_header *h,
			struct records_writer *out);
/* Where the result itself will lie in the file: at *offset. */
enum err records_put(struct records_writer *w, uint64_t line, const void *data, size_t bytes, uint64_t *offset);
/* Writes the group and syncs; its bytes stay in w->group until the next put. On an error the group does not count and what
 * is in the file of it is cut off; the writer is of no more use. */
enum err records_commit(struct records_writer *w, const struct records_input *input);
void records_close(struct records_writer *w);

/* Reading. */
struct records_place { uint64_t epoch, offset; uint32_t bytes, hash; };
typedef enum err records_visit(void *context, uint64_t line, const struct records_place *place, const void *data);

struct records_chain {
	struct records_header newest;    /* epoch 0: there are no records */
	int64_t n;
	struct { uint64_t epoch, begin, cut; } *files;   /* oldest first; cut UINT64_MAX: the last, up to where it is whole */
};

/* Finds the chain of all files of epochs below `below`. */
enum err records_chain_open(const char *directory, uint64_t below, struct records_chain *out);
/* Visits all records in the order in which they were written. *end: where the last file ends for good, fsynced;
 * *input: as the last group says, untouched without a group. */
enum err records_chain_read(const char *directory, const struct records_chain *c, records_visit *visit, void *context,
			    uint64_t *end, struct records_input *input);
void records_chain_free(struct records_chain *c);

/* Reads single results by place; keeps the last file open. */
struct records_reader { int fd; uint64_t epoch; char path[JOURNAL_PATH_BYTES]; };
enum err records_read(struct records_reader *r, const char *directory, const struct records_place *place, struct bytes *out);
void records_reader_close(struct records_reader *r);

#endif
