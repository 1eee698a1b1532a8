/* GGUF metadata (v2, v3): typed keys and values. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef SHARDRUN_RUNTIME_GGUF_H
#define SHARDRUN_RUNTIME_GGUF_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct gguf;
struct gguf_string { const char *text; uint64_t bytes; };   /* borrowed, not terminated, may hold any byte */

/* Reads header and metadata of a file by bulk reads; strings of arrays are indexed, not copied one by one.
 * The tensor list is read by the weights format. ERR_MODEL with one sentence. */
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

#endif
