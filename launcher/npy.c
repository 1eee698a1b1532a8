#include "launcher/npy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum err npy_write(const char *path, const float *data, int64_t rows, int64_t cols)
{
	enum { ALIGN = 64, PREFIX = 10 };
	char header[2 * ALIGN + 1];
	int n = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
			 (long long)rows, (long long)cols);
	int padded = (PREFIX + n + 1 + ALIGN - 1) / ALIGN * ALIGN - PREFIX;   /* header ends with a newline on a boundary */
	memset(header + n, ' ', (size_t)(padded - n - 1));
	header[padded - 1] = '\n';
	unsigned char prefix[PREFIX] = { 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)padded, 0 };
	FILE *f = fopen(path, "wb");
	if (!f)
		return ERR(IO, "%s: cannot be written: %s", path, strerror(errno));
	size_t items = (size_t)(rows * cols);
	int good = fwrite(prefix, 1, PREFIX, f) == PREFIX && fwrite(header, 1, (size_t)padded, f) == (size_t)padded &&
		   (!items || fwrite(data, sizeof *data, items, f) == items);
	good = fclose(f) == 0 && good;
	return good ? ERR_OK : ERR(IO, "%s: writing failed: %s", path, strerror(errno));
}
