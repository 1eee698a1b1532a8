/* GGUF metadata (v2, v3): typed keys and values. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef SHARDRUN_RUNTIME_GGUF_H
#define SHARDRUN_RUNTIME_GGUF_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct gguf;
struct gguf_string { const char *text; uint64_t bytes; };   /* borrowed, not terminated, may hold any byte */

/* Reads header, metadata and tensor list of one file by bulk reads; strings of arrays are indexed, not copied one by
 * one. Refused, each with one ERR_MODEL sentence: no GGUF magic, version other than 2 and 3, big endian, a file that
 * ends early, counts, lengths and arrays larger than the file, a header over 1 GiB, unknown value types, arrays of
 * arrays, empty or duplicate keys, general.alignment that is not a UINT32, not a power of two or over 1 MiB, tensors
 * with 0 or more than 4 dimensions. What the tensors claim beyond that is checked by the weights format. */
enum err gguf_open(const char *path, struct gguf **out);
void gguf_close(struct gguf *g);
const char *gguf_path(const struct gguf *g);
int gguf_has(const struct gguf *g, const char *key);
/* Missing key or another type is ERR_MODEL naming path, key, both types. Integers of every width are accepted when they
 * fit min..max; reals accept F32 and F64. */
enum err gguf_int(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *out);
enum err gguf_int_or(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t fallback, int64_t *out);
enum err gguf_real(const struct gguf *g, const char *key, double *out);
enum err gguf_real_or(const struct gguf *g, const char *key, double fallback, double *out);
enum err gguf_bool_or(const struct gguf *g, const char *key, int fallback, int *out);
enum err gguf_string(const struct gguf *g, const char *key, struct gguf_string *out);
/* Arrays: n elements. Borrowed, live as long as g. Absent: ERR_MODEL. */
enum err gguf_strings(const struct gguf *g, const char *key, const struct gguf_string **out, uint64_t *n);
enum err gguf_ints(const struct gguf *g, const char *key, const int32_t **out, uint64_t *n);
enum err gguf_reals(const struct gguf *g, const char *key, const float **out, uint64_t *n);

/* The tensor list as it stands in the file, for the weights format. */
struct gguf_tensor {
	struct gguf_string name;
	uint32_t n_dims, type;         /* n_dims 1..4; type: ggml's number, any value */
	uint64_t dims[4];              /* innermost first */
	uint64_t offset;               /* from gguf_data_offset, any value */
};
uint64_t gguf_tensor_count(const struct gguf *g);
struct gguf_tensor gguf_tensor_at(const struct gguf *g, uint64_t i);
uint64_t gguf_data_offset(const struct gguf *g);    /* in the file, aligned; may lie past its end when there is no tensor */
uint64_t gguf_alignment(const struct gguf *g);
uint64_t gguf_read_bytes(const struct gguf *g);     /* read from the file by gguf_open */

#endif
