/* Where the limit stands: /proc/self/cgroup has a line "0::/path" for v2 and "7:memory:/path" for v1 (7 is any number,
 * memory may be one of several names); the limit is in <mount>/<path>/memory.max or memory.limit_in_bytes, and every
 * parent's counts too. In a container the path may be the host's and not exist below the mount; its existing parents are
 * still asked, the mount itself last. "max", or v1's number near 2^63, is no limit. */
#include "topology/cgroup.h"


#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* Kernel files have size 0 and are read to their end. 0 when there is none. */
static int read_text(const char *path, char *room, size_t capacity)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = 0;
	ssize_t got = 0;
	if (fd < 0)
		return 0;
	while (n + 1 < capacity && (got = read(fd, room + n, capacity - 1 - n)) > 0)
		n += (size_t)got;
	close(fd);
	room[n] = '\0';
	return got >= 0;
}

static uint64_t limit_in(const char *path)
{
	char text[64], *end;
	if (!read_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9')
		return UINT64_MAX;
	errno = 0;
	unsigned long long bytes = strtoull(text, &end, 10);
	return errno || bytes >= 1ull << 62 ? UINT64_MAX : bytes;
}

/* The least limit of mount/group and all groups above it. */
static uint64_t least_limit(const char *mount, const char *group, const char *file)
{
	char path[PATH_BYTES], at[PATH_BYTES];
	uint64_t least = UINT64_MAX;
	if (snprintf(at, sizeof at, "%s", group) >= (int)sizeof at || strstr(at, "/../"))
		at[0] = '\0';
	for (;;) {
		if (snprintf(path, sizeof path, "%s%s/%s", mount, at, file) < (int)sizeof path) {
			uint64_t limit = limit_in(path);
			if (limit < least)
				least = limit;
		}
		char *slash = strrchr(at, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

static int names_memory(const char *controllers, size_t n)
{
	for (const char *at = controllers, *end = controllers + n; at < end;) {
		size_t word = strcspn(at, ",:");
		if (word == 6 && !memcmp(at, "memory", 6))
			return 1;
		at += word + 1;
	}
	return 0;
}

uint64_t cgroup_memory_limit(const char *root)
{
	char path[PATH_BYTES], text[16384], mount[3][PATH_BYTES];
	uint64_t least = UINT64_MAX;
	snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
	if (!read_text(path, text, sizeof text))
		return UINT64_MAX;
	snprintf(mount[0], sizeof mount[0], "%s/sys/fs/cgroup", root);
	snprintf(mount[1], sizeof mount[1], "%s/sys/fs/cgroup/unified", root);   /* v2 beside v1 */
	snprintf(mount[2], sizeof mount[2], "%s/sys/fs/cgroup/memory", root);
	for (char *line = text, *next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		controllers++;
		int v2 = group == controllers;
		if (!v2 && !names_memory(controllers, (size_t)(group - controllers)))
			continue;
		for (int i = v2 ? 0 : 2; i < (v2 ? 2 : 3); i++) {
			uint64_t limit = least_limit(mount[i], group + 1, v2 ? "memory.max" : "memory.limit_in_bytes");
			if (limit < least)
				least = limit;
		}
	}
	return least;
}
