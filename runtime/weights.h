/* Weight files: what tensors there are and where their bytes lie. One file per format behind one table.
 *
 * Files are hostile: everything is checked when opened (see each format's file for its list), so that a tensor that
 * weights_find returns has dimensions >= 1, a byte size that follows from type and dimensions, and lies inside its
 * file without overlapping another. */
#ifndef SHARDRUN_RUNTIME_WEIGHTS_H
#define SHARDRUN_RUNTIME_WEIGHTS_H

#include "base/err.h"
#include "base/file.h"
#include "runtime/wtype.h"

#include <stdint.h>

enum { WEIGHTS_MAX_DIMS = 4 };

struct tensor_info {
	const char *name;                      /* owned by the weights */
	enum wtype type;
	int n_dims;                            /* 1 .. WEIGHTS_MAX_DIMS */
	int64_t dims[WEIGHTS_MAX_DIMS];        /* outermost first (GGUF's order reversed); the last is contiguous */
	int file;                              /* which of the files */
	uint64_t offset, bytes;                /* in that file */
};

struct weights;
struct gguf;

struct weights_format {
	const char *name;                                        /* "safetensors", "gguf" */
	int (*accepts)(const char *path);                        /* by directory content, suffix and magic */
	enum err (*open)(const char *path, struct weights *w);   /* fills w through weights_add_* */
};
extern const struct weights_format *const weights_formats[];     /* NULL-terminated */
extern const struct weights_format weights_safetensors, weights_gguf_format;

/* path: a model directory (model.safetensors, or model.safetensors.index.json with shards, or one .gguf), a
 * .safetensors file, or a .gguf file (also the first of a split: name-00001-of-00003.gguf). ERR_MODEL, one sentence. */
enum err weights_open(const char *path, struct weights **out);
/* The same by a given format, whatever the path looks like. */
enum err weights_open_as(const struct weights_format *format, const char *path, struct weights **out);
void weights_close(struct weights *w);
const char *weights_format_name(const struct weights *w);
struct gguf *weights_gguf(struct weights *w);                /* metadata, borrowed; NULL when not GGUF */
const char *weights_config_path(const struct weights *w);    /* config.json beside safetensors, "" for GGUF */
const char *weights_directory(const struct weights *w);
const struct tensor_info *weights_find(const struct weights *w, const char *name);   /* NULL: none */
int64_t weights_count(const struct weights *w);
const struct tensor_info *weights_at(const struct weights *w, int64_t i);            /* in file order */
/* Bytes [offset, offset+bytes) of a tensor, counted. */
enum err weights_read(struct weights *w, const struct tensor_info *t, uint64_t offset, void *to, uint64_t bytes);
uint64_t weights_read_bytes(const struct weights *w);        /* by weights_read */
uint64_t weights_header_bytes(const struct weights *w);      /* by weights_open, the index file included */

/* For the formats' own files. */
enum err weights_add_file(struct weights *w, const char *path, int *index);
struct file *weights_file(struct weights *w, int index);
/* What a tensor's type and dimensions need; refuses dimensions below 1, rows of broken blocks and products that
 * overflow. `what` names file and tensor. */
enum err weights_tensor_bytes(const struct tensor_info *t, const char *what, uint64_t *out);
/* Checks name, dimensions and place, and adds; n_dims is 1..WEIGHTS_MAX_DIMS, name is copied. Duplicates are found by
 * weights_seal. */
enum err weights_add_tensor(struct weights *w, const struct tensor_info *t, const char *name, size_t name_bytes);
/* Duplicates, overlaps; builds the index. Called by weights_open, or before by a format that needs weights_find. */
enum err weights_seal(struct weights *w);
void weights_set_gguf(struct weights *w, struct gguf *g);    /* takes ownership */
void weights_count_header(struct weights *w, uint64_t bytes);   /* header bytes that were not read through weights_file */

#endif
