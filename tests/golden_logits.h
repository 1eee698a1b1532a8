/* Reading what tests/golden holds about a model: ids.json (a prompt) and logits.npy (NumPy's format 1.0, float32). */
#ifndef SHARDRUN_TESTS_GOLDEN_LOGITS_H
#define SHARDRUN_TESTS_GOLDEN_LOGITS_H

#include "base/file.h"
#include "base/json.h"
#include "tests/same_bits.h"

#include <math.h>

struct npy { float *data; int64_t rows, cols; };     /* data: mem_free */

/* Source: numpy.lib.format, version 1.0: magic, two bytes of version, two of header length, a Python dict, the items. */
static inline enum err npy_read(const char *path, struct npy *out)
{
	struct bytes text = { 0 };
	long long rows = 0, cols = 0;
	char header[256] = "";
	enum err e = file_read_all(path, 64 << 20, &text);
	const unsigned char *d = (const unsigned char *)bytes_text(&text);
	size_t n = e || text.size < 10 ? 0 : (size_t)d[8] | (size_t)d[9] << 8;
	if (n && n < sizeof header && 10 + n <= text.size && !memcmp(d, "\x93NUMPY\x01\x00", 8))
		memcpy(header, d + 10, n);
	const char *shape = strstr(header, "'shape': (");
	if (!e && (!strstr(header, "'<f4'") || !strstr(header, "'fortran_order': False") || !shape ||
		   sscanf(shape, "'shape': (%lld, %lld)", &rows, &cols) != 2 || text.size != 10 + n + (size_t)(rows * cols) * 4))
		e = ERR(IO, "%s: not a two-dimensional NumPy file of float32", path);
	if (!e)
		e = MEM_NEW((size_t)(rows * cols), float, &out->data);
	if (!e)
		memcpy(out->data, d + 10 + n, (size_t)(rows * cols) * 4);
	out->rows = rows, out->cols = cols;
	bytes_free(&text);
	return e;
}

static inline void golden_ids(json_t *list, struct bits_prompt *p)
{
	p->n = (int)json_array_size(list);
	for (int i = 0; i < p->n && i < BITS_MAX_PROMPT; i++)
		p->ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
}

/* The largest |a - b|, infinite where one is not a number. */
static inline double largest_difference(const float *a, const float *b, int64_t n)
{
	double largest = 0;
	for (int64_t i = 0; i < n; i++) {
		double d = fabs((double)a[i] - (double)b[i]);
		if (!(d <= largest))
			largest = isnan(d) ? INFINITY : d;
	}
	return largest;
}

#endif
