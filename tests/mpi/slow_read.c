/* Preloaded into a program: rank SLOW_RANK takes half a minute to read weights, as from a file system that hangs, and makes
 * the file SLOW_MARK when it begins. So a test can kill a rank in the middle of loading, however small the model. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HEADER_BYTES = 4096, SECONDS = 30 };

static int is_slow_rank(void)
{
	const char *slow = getenv("SLOW_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
	if (!rank)
		rank = getenv("PMIX_RANK");
	return slow && rank && !strcmp(slow, rank);
}

static int is_weights(int fd)
{
	static const char end[] = ".safetensors";
	char link[40], path[4096];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path);
	return n > (ssize_t)strlen(end) && !memcmp(path + n - strlen(end), end, strlen(end));
}

static void linger(int fd, size_t bytes, off_t offset)
{
	static int began;
	if (began || bytes < 64 || offset < HEADER_BYTES || !is_slow_rank() || !is_weights(fd))
		return;
	began = 1;
	const char *mark = getenv("SLOW_MARK");
	if (mark)
		close(open(mark, O_CREAT | O_WRONLY, 0600));
	struct timespec t = { SECONDS, 0 };
	while (nanosleep(&t, &t))
		;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
	static ssize_t (*real)(int, void *, size_t, off_t);
	linger(fd, bytes, offset);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pread");
	return real(fd, to, bytes, offset);
}

ssize_t pread64(int fd, void *to, size_t bytes, off_t offset) { return pread(fd, to, bytes, offset); }
