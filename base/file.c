#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum err file_open(const char *path, struct file *out)
{
	struct file f = { .fd = -1 };
	struct stat st;
	if (strlen(path) >= sizeof f.path)
		return ERR(IO, "a path of %zu bytes is too long (at most %zu): %.60s...", strlen(path), sizeof f.path - 1, path);
	memcpy(f.path, path, strlen(path) + 1);
	f.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);   /* O_NONBLOCK: a fifo must not hang us */
	if (f.fd < 0)
		return ERR(IO, "%s: cannot be opened: %s", path, strerror(errno));
	if (fstat(f.fd, &st) || !S_ISREG(st.st_mode)) {
		close(f.fd);
		return ERR(IO, "%s: is not a regular file", path);
	}
	f.size = (uint64_t)st.st_size;
	*out = f;
	return ERR_OK;
}

enum err file_read_at(struct file *f, uint64_t offset, void *to, uint64_t bytes)
{
	unsigned char *at = to;
	if (offset > f->size || bytes > f->size - offset)
		return ERR(IO, "%s: bytes %" PRIu64 " + %" PRIu64 " are past its end at %" PRIu64, f->path, offset, bytes, f->size);
	while (bytes) {
		size_t want = bytes > (1u << 30) ? (1u << 30) : (size_t)bytes;
		ssize_t got = pread(f->fd, at, want, (off_t)offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return ERR(IO, "%s: reading at %" PRIu64 ": %s", f->path, offset, got ? strerror(errno) : "the file became shorter");
		at += got;
		offset += (uint64_t)got;
		bytes -= (uint64_t)got;
		f->read_bytes += (uint64_t)got;
	}
	return ERR_OK;
}

void file_close(struct file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

enum err file_read_all(const char *path, uint64_t max_bytes, struct bytes *out)
{
	struct file f;
	unsigned char part[65536];
	enum err e = ERR_OK;
	TRY(file_open(path, &f));
	bytes_clear(out);
	if (f.size > max_bytes)
		e = ERR(IO, "%s: has %" PRIu64 " bytes, more than the %" PRIu64 " allowed here", path, f.size, max_bytes);
	for (uint64_t at = 0; !e && at < f.size;) {
		uint64_t n = f.size - at < sizeof part ? f.size - at : sizeof part;
		e = file_read_at(&f, at, part, n);
		if (!e)
			bytes_put(out, part, n);
		at += n;
	}
	file_close(&f);
	return e ? e : out->error;
}

int file_exists(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0;
}

int file_is_directory(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum err file_join(const char *dir, const char *name, char *room, size_t capacity)
{
	int n = snprintf(room, capacity, "%s/%s", dir, name);
	if (n < 0 || (size_t)n >= capacity)
		return ERR(IO, "the path %.200s/%.200s is too long", dir, name);
	return ERR_OK;
}
