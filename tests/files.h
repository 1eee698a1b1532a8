/* Files that tests build byte by byte, in a directory of their own that goes away at the end. */
#ifndef SHARDRUN_TESTS_FILES_H
#define SHARDRUN_TESTS_FILES_H

#include "base/bytes.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct test_dir { char path[64]; };

static inline void test_dir_make(struct test_dir *d)
{
	memcpy(d->path, "/tmp/shardrun-test-XXXXXX", 26);
	if (!mkdtemp(d->path))
		abort();
}

/* Into one of four rooms in turn, so that a call may take two paths: copy what must live longer. */
static inline const char *test_path(const struct test_dir *d, const char *name)
{
	static char rooms[4][400];
	static int turn;
	char *room = rooms[turn++ % 4];
	snprintf(room, sizeof rooms[0], "%s/%s", d->path, name);
	return room;
}

static inline void test_dir_empty(const struct test_dir *d)
{
	DIR *dir = opendir(d->path);
	for (struct dirent *e; dir && (e = readdir(dir));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlink(test_path(d, e->d_name));
	if (dir)
		closedir(dir);
}

static inline void test_dir_remove(const struct test_dir *d)
{
	test_dir_empty(d);
	rmdir(d->path);
}

static inline const char *test_write(const struct test_dir *d, const char *name, const void *data, size_t bytes)
{
	const char *path = test_path(d, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
		abort();
	close(fd);
	return path;
}

/* GGUF */
enum { T_U8, T_I8, T_U16, T_I16, T_U32, T_I32, T_F32, T_BOOL, T_STRING, T_ARRAY, T_U64, T_I64, T_F64 };

static inline void put_le(struct bytes *b, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		bytes_put(b, &(unsigned char){ (unsigned char)(v >> (8 * i)) }, 1);
}

static inline void put_text(struct bytes *b, const char *text)
{
	put_le(b, strlen(text), 8);
	bytes_put(b, text, strlen(text));
}

static inline void put_gguf(struct bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
	bytes_clear(b);
	bytes_put(b, "GGUF", 4);
	put_le(b, version, 4);
	put_le(b, n_tensors, 8);
	put_le(b, n_keys, 8);
}

static inline void put_key(struct bytes *b, const char *key, uint32_t type, uint64_t value, int n)
{
	put_text(b, key);
	put_le(b, type, 4);
	put_le(b, value, n);
}

static inline void put_array(struct bytes *b, const char *key, uint32_t item_type, uint64_t n)
{
	put_key(b, key, T_ARRAY, item_type, 4);
	put_le(b, n, 8);
}

/* dims: innermost first */
static inline void put_tensor(struct bytes *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
			      uint64_t offset)
{
	put_text(b, name);
	put_le(b, n_dims, 4);
	for (uint32_t i = 0; i < n_dims; i++)
		put_le(b, dims[i], 8);
	put_le(b, type, 4);
	put_le(b, offset, 8);
}

static inline void put_padding(struct bytes *b, size_t alignment)
{
	while (b->size % alignment)
		bytes_put(b, "", 1);
}

static inline void put_zeros(struct bytes *b, size_t n)
{
	while (n--)
		bytes_put(b, "", 1);
}

/* safetensors: length, header, n bytes of data */
static inline const char *test_write_safetensors(const struct test_dir *d, const char *name, const char *header, size_t n)
{
	struct bytes b = { 0 };
	put_le(&b, strlen(header), 8);
	bytes_put(&b, header, strlen(header));
	put_zeros(&b, n);
	const char *path = test_write(d, name, b.data, b.size);
	bytes_free(&b);
	return path;
}

/* The most memory that this process has had, in KiB. */
static inline long peak_kib(void)
{
	char line[200];
	long kib = -1;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

#endif
