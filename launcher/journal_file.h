/* What the journal does with files, in one place: whole writes in spite of short ones, fsync, and sentences that say what a
 * full disk means. A test puts its own functions in place of the two calls that can fail halfway. */
#ifndef SHARDRUN_LAUNCHER_JOURNAL_FILE_H
#define SHARDRUN_LAUNCHER_JOURNAL_FILE_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdint.h>
#include <sys/types.h>

struct journal_io {
	ssize_t (*write)(void *context, int fd, const void *data, size_t bytes, off_t offset);   /* -1: at the fd's place */
	int (*sync)(void *context, int fd);
	void *context;
};

enum { JOURNAL_PATH_BYTES = 1200 };

/* `io` NULL: the real calls. `at` -1: where the fd stands. `name` is for the sentence; ENOSPC and EDQUOT have words of
 * their own. */
enum err journal_write(const struct journal_io *io, int fd, const char *name, const void *data, size_t bytes, int64_t at);
/* After a failure the kernel may have dropped what it could not write: never call it again and believe it. */
enum err journal_sync(const struct journal_io *io, int fd, const char *name);
/* Makes the names in a directory durable. File systems that cannot sync a directory are believed. */
enum err journal_sync_directory(const char *directory);
/* Up to `bytes` at `offset`; *got is less at the end of the file only. */
enum err journal_read(int fd, const char *name, uint64_t offset, void *to, size_t bytes, size_t *got);
/* The folder that a path's name is in. */
enum err journal_parent(const char *path, char *room, size_t capacity);
/* The output's path with links followed, since it is made by renaming; 16 bytes of room are left for endings. *empty 0:
 * something is in it. ERR_USAGE when it is no regular file. */
enum err journal_find_output(const char *path, char *room, size_t capacity, int *empty);
/* Durable; it may be there already. */
enum err journal_make_directory(const char *directory);
/* directory/kind-EPOCH, as "records-000007" */
enum err journal_path(const char *directory, const char *kind, uint64_t epoch, char *room, size_t capacity);
/* The epoch of a name of this kind, 0 for other names. kind NULL: of any kind. */
uint64_t journal_name_epoch(const char *name, const char *kind);

#endif
