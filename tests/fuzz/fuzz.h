/* What fuzz targets share. A target is int LLVMFuzzerTestOneInput(data, size): it must return for any input, without a
 * crash, a hang or a leak, and FUZZ_CHECK what holds of whatever was accepted. */
#ifndef SHARDRUN_TESTS_FUZZ_FUZZ_H
#define SHARDRUN_TESTS_FUZZ_FUZZ_H

#include "base/err.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(fact)                                                                        \
	do {                                                                                    \
		if (!(fact)) {                                                                  \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #fact); \
			abort();                                                                \
		}                                                                               \
	} while (0)

/* An input of some kilobytes that makes the program run out of memory (the driver allows 1 GiB) sized an allocation by
 * a number it should not have believed. */
#define FUZZ_CHECK_ERROR(e) FUZZ_CHECK((e) != ERR_MEMORY && (e) != ERR_BUG)

/* The input as a file in memory; the path is good until the next call. For openers that want a path. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
	static int fd = -1;
	static char path[64];
	if (fd < 0) {
		fd = memfd_create("input", 0);
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	}
	FUZZ_CHECK(fd >= 0 && !ftruncate(fd, 0));
	for (size_t at = 0; at < size;) {
		ssize_t n = pwrite(fd, data + at, size - at, (off_t)at);
		FUZZ_CHECK(n > 0);
		at += (size_t)n;
	}
	return path;
}

#endif
