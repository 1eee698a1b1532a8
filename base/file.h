/* Files, read by position and counted: the tests compare bytes read with the bytes a rank's plan says it needs. */
#ifndef SHARDRUN_BASE_FILE_H
#define SHARDRUN_BASE_FILE_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdint.h>

struct file {
	int fd;                /* -1 when closed */
	uint64_t size;         /* bytes, when opened */
	uint64_t read_bytes;   /* counted by file_read_at; not synchronised: one reader at a time */
	char path[1024];
};

/* Opens a regular file for reading; ERR_IO names the path and the reason, also for a directory or a fifo. */
enum err file_open(const char *path, struct file *out);
/* Exactly `bytes` at `offset`; reading past the end is ERR_IO. */
enum err file_read_at(struct file *f, uint64_t offset, void *to, uint64_t bytes);
void file_close(struct file *f);
/* A whole file of at most max_bytes, into out (cleared first). */
enum err file_read_all(const char *path, uint64_t max_bytes, struct bytes *out);
int file_exists(const char *path);
int file_is_directory(const char *path);
/* dir/name into room[capacity]; ERR_IO when too long. */
enum err file_join(const char *dir, const char *name, char *room, size_t capacity);

#endif
