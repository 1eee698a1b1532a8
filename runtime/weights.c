/* The index of tensors over one or more files.
 *
 * A format's open adds files and tensors; every tensor is checked on the way in (shape, size, place), and weights_seal
 * checks what only the whole shows: no name twice, no two tensors over the same bytes. Afterwards nothing changes, so
 * pointers to tensors stay good until weights_close. Names live in an arena, tensors in one array in the order in which
 * the files list them; by_name holds the same tensors sorted, for weights_find. */
#include "runtime/weights.h"

#include "base/mem.h"
#include "runtime/gguf.h"
#include "runtime/printable.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES_MAX = 65535 };

struct weights {
	const struct weights_format *format;
	struct gguf *gguf;                       /* owned */
	struct arena *names;
	struct file **files;                     /* each owned: their addresses are given out */
	int n_files, files_capacity;
	struct tensor_info *tensors;
	int64_t n_tensors, tensors_capacity;
	const struct tensor_info **by_name;
	uint64_t read_bytes, header_bytes;
	char directory[1024], config_path[1024];
};

const struct weights_format *const weights_formats[] = { &weights_safetensors, &weights_gguf_format, NULL };

static enum err set_directory(struct weights *w, const char *path)
{
	const char *slash = strrchr(path, '/');
	if (strlen(path) >= sizeof w->directory)
		return ERR(MODEL, "a model path of %zu bytes is too long: %.60s...", strlen(path), path);
	if (file_is_directory(path))
		memcpy(w->directory, path, strlen(path) + 1);
	else if (!slash)
		memcpy(w->directory, ".", 2);
	else
		memcpy(w->directory, path, slash == path ? 1 : (size_t)(slash - path));
	return ERR_OK;
}

enum err weights_open_as(const struct weights_format *format, const char *path, struct weights **out)
{
	struct weights *w;
	enum err e;
	TRY(MEM_NEW(1, struct weights, &w));
	w->format = format;
	TRY_OR(close_weights, e, arena_create("tensor names", 65536, &w->names));
	TRY_OR(close_weights, e, set_directory(w, path));
	TRY_OR(close_weights, e, format->open(path, w));
	TRY_OR(close_weights, e, weights_seal(w));
	if (!w->gguf)
		TRY_OR(close_weights, e, file_join(w->directory, "config.json", w->config_path, sizeof w->config_path));
	for (int i = 0; i < w->n_files; i++)
		w->header_bytes += w->files[i]->read_bytes;
	*out = w;
	return ERR_OK;
close_weights:
	weights_close(w);
	return e;
}

enum err weights_open(const char *path, struct weights **out)
{
	if (!file_exists(path))
		return ERR(MODEL, "%s: there is no such model directory or file", path);
	for (int i = 0; weights_formats[i]; i++)
		if (weights_formats[i]->accepts(path))
			return weights_open_as(weights_formats[i], path, out);
	if (file_is_directory(path))
		return ERR(MODEL,
			   "%s: holds no model: expected model.safetensors, model.safetensors.index.json or a .gguf file",
			   path);
	return ERR(MODEL, "%s: is neither a .safetensors nor a .gguf file", path);
}

void weights_close(struct weights *w)
{
	if (!w)
		return;
	for (int i = 0; i < w->n_files; i++) {
		file_close(w->files[i]);
		mem_free(w->files[i]);
	}
	mem_free(w->files);
	mem_free(w->tensors);
	mem_free(w->by_name);
	arena_destroy(w->names);
	gguf_close(w->gguf);
	mem_free(w);
}

const char *weights_format_name(const struct weights *w) { return w->format->name; }
struct gguf *weights_gguf(struct weights *w) { return w->gguf; }
const char *weights_config_path(const struct weights *w) { return w->config_path; }
const char *weights_directory(const struct weights *w) { return w->directory; }
int64_t weights_count(const struct weights *w) { return w->n_tensors; }
const struct tensor_info *weights_at(const struct weights *w, int64_t i) { return &w->tensors[i]; }
uint64_t weights_read_bytes(const struct weights *w) { return w->read_bytes; }
uint64_t weights_header_bytes(const struct weights *w) { return w->header_bytes; }
struct file *weights_file(struct weights *w, int index) { return w->files[index]; }
void weights_count_header(struct weights *w, uint64_t bytes) { w->header_bytes += bytes; }

void weights_set_gguf(struct weights *w, struct gguf *g)
{
	gguf_close(w->gguf);
	w->gguf = g;
}

const struct tensor_info *weights_find(const struct weights *w, const char *name)
{
	int64_t begin = 0, end = w->n_tensors;
	while (begin < end) {
		int64_t middle = begin + (end - begin) / 2;
		int order = strcmp(name, w->by_name[middle]->name);
		if (!order)
			return w->by_name[middle];
		if (order < 0)
			end = middle;
		else
			begin = middle + 1;
	}
	return NULL;
}

enum err weights_read(struct weights *w, const struct tensor_info *t, uint64_t offset, void *to, uint64_t bytes)
{
	if (offset > t->bytes || bytes > t->bytes - offset)
		return ERR(BUG, "tensor %s: bytes %" PRIu64 " + %" PRIu64 " asked of %" PRIu64, t->name, offset, bytes,
			   t->bytes);
	enum err e = file_read_at(w->files[t->file], t->offset + offset, to, bytes);
	if (e)
		return err_context(e, "tensor %s", t->name);
	w->read_bytes += bytes;
	return ERR_OK;
}

/* Room for one more item: capacities double. */
static enum err reserve(void *block, int64_t n, int64_t *capacity, size_t size, const char *what)
{
	if (n < *capacity)
		return ERR_OK;
	int64_t more = *capacity ? *capacity * 2 : 64;
	TRY(mem_grow(block, (size_t)more, size, what));
	*capacity = more;
	return ERR_OK;
}

enum err weights_add_file(struct weights *w, const char *path, int *index)
{
	struct file *f;
	int64_t capacity = w->files_capacity;
	TRY(reserve(&w->files, w->n_files, &capacity, sizeof(struct file *), "weight files"));
	w->files_capacity = (int)capacity;
	TRY(MEM_NEW(1, struct file, &f));
	if (file_open(path, f)) {
		mem_free(f);
		return ERR(MODEL, "%s", err_sentence());
	}
	w->files[w->n_files] = f;
	*index = w->n_files++;
	return ERR_OK;
}

enum err weights_tensor_bytes(const struct tensor_info *t, const char *what, uint64_t *out)
{
	const struct wtype_info *type = &wtypes[t->type];
	uint64_t items = 1;
	for (int i = 0; i < t->n_dims; i++) {
		if (t->dims[i] < 1)
			return ERR(MODEL, "%s: dimension %d is %" PRId64 ", but must be at least 1", what, i, t->dims[i]);
		TRY(size_mul(items, (uint64_t)t->dims[i], what, &items));
	}
	int64_t row = t->dims[t->n_dims - 1];
	if (row % type->block)
		return ERR(MODEL, "%s: rows of %" PRId64 " items are not whole blocks of %d (%s)", what, row, type->block,
			   type->name);
	TRY(size_mul(items / (uint64_t)type->block, (uint64_t)type->block_bytes, what, out));
	if (items > INT64_MAX || *out > INT64_MAX)
		return ERR(MODEL, "%s: %" PRIu64 " items overflow 63 bits", what, items);
	return ERR_OK;
}

enum err weights_add_tensor(struct weights *w, const struct tensor_info *t, const char *name, size_t name_bytes)
{
	char what[1200], shown[PRINTABLE_BYTES], *copy;
	const struct file *f = w->files[t->file];
	uint64_t bytes;
	snprintf(what, sizeof what, "%s: tensor %s", f->path, printable(shown, name, name_bytes));
	if (!name_bytes || name_bytes > NAME_BYTES_MAX || memchr(name, 0, name_bytes))
		return ERR(MODEL, "%s: a name of %zu bytes is empty, too long or holds a zero byte", what, name_bytes);
	TRY(weights_tensor_bytes(t, what, &bytes));
	if (t->bytes != bytes)
		return ERR(MODEL, "%s: takes %" PRIu64 " bytes in the file, but its type and dimensions need %" PRIu64, what,
			   t->bytes, bytes);
	if (t->offset > f->size || bytes > f->size - t->offset)
		return ERR(MODEL, "%s: bytes %" PRIu64 " + %" PRIu64 " pass the end of the file at %" PRIu64, what,
			   t->offset, bytes, f->size);
	TRY(reserve(&w->tensors, w->n_tensors, &w->tensors_capacity, sizeof *w->tensors, "tensors"));
	TRY(arena_copy_string(w->names, name, name_bytes, &copy));
	struct tensor_info *added = &w->tensors[w->n_tensors++];
	*added = *t;
	added->name = copy;
	return ERR_OK;
}

static int compare_names(const void *a, const void *b)
{
	const struct tensor_info *const *x = a, *const *y = b;
	int order = strcmp((*x)->name, (*y)->name);
	return order ? order : (*x > *y) - (*x < *y);
}

static int compare_places(const void *a, const void *b)
{
	const struct tensor_info *const *x = a, *const *y = b;
	if ((*x)->file != (*y)->file)
		return (*x)->file < (*y)->file ? -1 : 1;
	if ((*x)->offset != (*y)->offset)
		return (*x)->offset < (*y)->offset ? -1 : 1;
	return (*x > *y) - (*x < *y);
}

static enum err check_overlaps(const struct weights *w, const struct tensor_info *const *by_place)
{
	char a_shown[PRINTABLE_BYTES], b_shown[PRINTABLE_BYTES];
	for (int64_t i = 1; i < w->n_tensors; i++) {
		const struct tensor_info *a = by_place[i - 1], *b = by_place[i];
		if (a->file == b->file && b->offset - a->offset < a->bytes)
			return ERR(MODEL, "%s: tensors %s (bytes %" PRIu64 " + %" PRIu64 ") and %s (at %" PRIu64 ") overlap",
				   w->files[a->file]->path, printable(a_shown, a->name, strlen(a->name)), a->offset,
				   a->bytes, printable(b_shown, b->name, strlen(b->name)), b->offset);
	}
	return ERR_OK;
}

static enum err check_duplicates(const struct weights *w)
{
	char shown[PRINTABLE_BYTES];
	for (int64_t i = 1; i < w->n_tensors; i++) {
		const struct tensor_info *a = w->by_name[i - 1], *b = w->by_name[i];
		if (strcmp(a->name, b->name))
			continue;
		printable(shown, a->name, strlen(a->name));
		if (a->file == b->file)
			return ERR(MODEL, "%s: tensor %s is there twice", w->files[a->file]->path, shown);
		return ERR(MODEL, "%s: tensor %s is also in %s", w->files[b->file]->path, shown, w->files[a->file]->path);
	}
	return ERR_OK;
}

enum err weights_seal(struct weights *w)
{
	size_t n = (size_t)w->n_tensors;
	const struct tensor_info **by_place;
	enum err e;
	if (w->by_name)
		return ERR_OK;
	TRY(MEM_NEW(n, const struct tensor_info *, &by_place));
	TRY_OR(free_by_place, e, MEM_NEW(n, const struct tensor_info *, &w->by_name));
	for (size_t i = 0; i < n; i++)
		by_place[i] = w->by_name[i] = &w->tensors[i];
	qsort(w->by_name, n, sizeof *w->by_name, compare_names);
	qsort(by_place, n, sizeof *by_place, compare_places);
	TRY_OR(free_by_place, e, check_duplicates(w));
	e = check_overlaps(w, by_place);
free_by_place:
	mem_free(by_place);
	return e;
}
