#include "launcher/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum err failed(const char *name, const char *doing)
{
	int reason = errno;
	if (reason == ENOSPC)
		return ERR(IO, "%s: the disk is full (%s): make room and run the same command again; no finished result is lost",
			   name, strerror(reason));
	if (reason == EDQUOT)
		return ERR(IO, "%s: the quota is used up (%s): make room and run the same command again; no finished result is lost",
			   name, strerror(reason));
	if (reason == EFBIG)
		return ERR(IO, "%s: a file may not grow further here (%s, see ulimit -f): raise the limit and run the same command again; no finished result is lost",
			   name, strerror(reason));
	return ERR(IO, "%s: %s: %s", name, doing, strerror(reason));
}

static ssize_t write_some(const struct journal_io *io, int fd, const void *data, size_t bytes, int64_t at)
{
	if (io && io->write)
		return io->write(io->context, fd, data, bytes, (off_t)at);
	return at < 0 ? write(fd, data, bytes) : pwrite(fd, data, bytes, (off_t)at);
}

enum err journal_write(const struct journal_io *io, int fd, const char *name, const void *data, size_t bytes, int64_t at)
{
	const unsigned char *from = data;
	while (bytes) {
		ssize_t n = write_some(io, fd, from, bytes > (1u << 30) ? (1u << 30) : bytes, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = EIO;
		if (n <= 0)
			return failed(name, "writing");
		from += n;
		bytes -= (size_t)n;
		at = at < 0 ? at : at + n;
	}
	return ERR_OK;
}

enum err journal_sync(const struct journal_io *io, int fd, const char *name)
{
	int status = io && io->sync ? io->sync(io->context, fd) : fsync(fd);
	return status ? failed(name, "fsync") : ERR_OK;
}

enum err journal_sync_directory(const char *directory)
{
	int fd = open(*directory ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return ERR(IO, "%s: cannot be opened: %s", directory, strerror(errno));
	enum err e = ERR_OK;
	if (fsync(fd) && errno != EINVAL && errno != ENOTSUP && errno != ENOSYS)
		e = failed(directory, "fsync of the folder");
	close(fd);
	return e;
}

enum err journal_read(int fd, const char *name, uint64_t offset, void *to, size_t bytes, size_t *got)
{
	size_t have = 0;
	while (have < bytes) {
		ssize_t n = pread(fd, (unsigned char *)to + have, bytes - have, (off_t)(offset + have));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed(name, "reading");
		if (n == 0)
			break;
		have += (size_t)n;
	}
	*got = have;
	return ERR_OK;
}

enum err journal_path(const char *directory, const char *kind, uint64_t epoch, char *room, size_t capacity)
{
	int n = snprintf(room, capacity, "%s/%s-%06" PRIu64, directory, kind, epoch);
	if (n < 0 || (size_t)n >= capacity)
		return ERR(IO, "the path %.200s... is too long", directory);
	return ERR_OK;
}

uint64_t journal_name_epoch(const char *name, const char *kind)
{
	const char *dash = strrchr(name, '-');
	uint64_t epoch = 0;
	if (!dash || !dash[1] || strlen(dash + 1) > 18 || strspn(dash + 1, "0123456789") != strlen(dash + 1))
		return 0;
	if (kind && (strlen(kind) != (size_t)(dash - name) || strncmp(name, kind, strlen(kind))))
		return 0;
	for (const char *digit = dash + 1; *digit; digit++)
		epoch = epoch * 10 + (uint64_t)(*digit - '0');
	return epoch;
}

enum err journal_parent(const char *path, char *room, size_t capacity)
{
	const char *slash = strrchr(path, '/');
	int n = snprintf(room, capacity, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	return n < 0 || (size_t)n >= capacity ? ERR(IO, "the path %.200s... is too long", path) : ERR_OK;
}

enum err journal_find_output(const char *path, char *room, size_t capacity, int *empty)
{
	struct stat st;
	char whole[4096];
	*empty = 1;
	if (!lstat(path, &st) && S_ISLNK(st.st_mode)) {
		if (!realpath(path, whole))
			return ERR(IO, "%s: is a link to nothing that is there: %s", path, strerror(errno));
		path = whole;
	}
	int n = snprintf(room, capacity, "%s", path);
	if (n < 0 || (size_t)n + 16 >= capacity)
		return ERR(USAGE, "the path of the output, %.200s..., is too long (at most %zu bytes)", path, capacity - 16);
	if (stat(path, &st))
		return errno == ENOENT ? ERR_OK : ERR(IO, "%s: cannot be looked at: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ERR(USAGE, "%s: is not a regular file; give a file's name, or - for standard output", path);
	*empty = st.st_size == 0;
	return ERR_OK;
}

enum err journal_make_directory(const char *directory)
{
	char parent[1024];
	if (mkdir(directory, 0700) && errno != EEXIST)
		return ERR(IO, "%s: cannot be made: %s", directory, strerror(errno));
	TRY(journal_parent(directory, parent, sizeof parent));
	return journal_sync_directory(parent);
}
