#include "launcher/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static enum err open_file(const char *path, int flags, int *out)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
	if (fd < 0)
		return ERR(IO, "%s cannot be written: %s", path, strerror(errno));
	*out = fd;
	return ERR_OK;
}

enum err private_file_try(const char *path)
{
	int fd;
	TRY(open_file(path, O_NONBLOCK, &fd));
	close(fd);
	return ERR_OK;
}

enum err private_file_open(const char *path, FILE **out)
{
	int fd;
	TRY(open_file(path, O_TRUNC, &fd));
	*out = fdopen(fd, "w");
	if (*out)
		return ERR_OK;
	close(fd);
	return ERR(IO, "%s cannot be written: %s", path, strerror(errno));
}

enum err private_file_close(const char *path, FILE *file)
{
	int failed = fflush(file) != 0 || ferror(file);
	int why = errno;
	if (fclose(file) != 0 && !failed) {
		failed = 1;
		why = errno;
	}
	return failed ? ERR(IO, "%s cannot be written: %s", path, strerror(why)) : ERR_OK;
}
