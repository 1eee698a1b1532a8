#include "parallel/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { NAME_BYTES = 64 };

static enum err create(char name[NAME_BYTES], const char *why, int *out)
{
	uint64_t random[2];
	if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
		return ERR(IO, "no random bytes: %s", strerror(errno));
	snprintf(name, NAME_BYTES, "/dev/shm/shardrun-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
	int fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return ERR(IO, "%s cannot be made %s: %s", name, why, strerror(errno));
	*out = fd;
	return ERR_OK;
}

/* This rank's part of the file, which so comes from the memory next to it. A full /dev/shm shows here, not as SIGBUS later. */
static enum err allocate_part(int fd, const struct comm *node, size_t bytes, const char *why)
{
	enum { PAGE = 4096 };
	size_t n = (size_t)comm_size(node), pages = (bytes + PAGE - 1) / PAGE;
	size_t begin = pages * (size_t)comm_rank(node) / n * PAGE, end = pages * ((size_t)comm_rank(node) + 1) / n * PAGE;
	int reason = end > begin ? posix_fallocate(fd, (off_t)begin, (off_t)(end - begin)) : 0;
	if (reason)
		return ERR(IO, "no %zu bytes left in /dev/shm %s: %s", bytes, why, strerror(reason));
	return ERR_OK;
}

static enum err map(int fd, const char *name, size_t bytes, const char *why, struct shared_memory *m)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return ERR(IO, "%s cannot be mapped %s: %s", name, why, strerror(errno));
	madvise(at, bytes, MADV_DONTDUMP);
	*m = (struct shared_memory){ at, bytes };
	return ERR_OK;
}

enum err shared_memory_map(struct comm *node, size_t bytes, const char *why, struct shared_memory *out)
{
	char name[NAME_BYTES] = "";
	struct shared_memory m = { NULL, 0 };
	int fd = -1, first = comm_rank(node) == 0;
	enum err e;
	TRY_OR(close_file, e, comm_agree(node, first ? create(name, why, &fd) : ERR_OK));
	TRY_OR(close_file, e, comm_bcast(node, name, sizeof name, 0));
	if (!first && (fd = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW)) < 0)
		e = ERR(IO, "%s cannot be opened %s: %s", name, why, strerror(errno));
	if (!e)
		e = allocate_part(fd, node, bytes, why);
	if (!e)
		e = map(fd, name, bytes, why, &m);
	e = comm_agree(node, e);
close_file:
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && first)
		unlink(name);
	if (e) {
		shared_memory_unmap(&m);
		return e;
	}
	*out = m;
	return ERR_OK;
}

void shared_memory_unmap(struct shared_memory *m)
{
	if (m->at)
		munmap(m->at, m->bytes);
	*m = (struct shared_memory){ NULL, 0 };
}
