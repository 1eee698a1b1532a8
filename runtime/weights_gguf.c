/* Weights in GGUF files, one or a split set (name-00001-of-00003.gguf, keys split.no and split.count).
 *
 * gguf.c has checked the form of the header; here each tensor's claims are checked: a type that wtypes has, dimensions
 * >= 1 whose product does not overflow, rows of whole blocks, an offset that is aligned, and a place inside the file
 * (weights_add_tensor). Dimensions turn around: GGUF lists the contiguous one first, tensor_info last. Of a split set
 * the first file holds the metadata; every file has its own tensor list. */
#include "base/mem.h"
#include "runtime/gguf.h"
#include "runtime/printable.h"
#include "runtime/weights.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct { uint32_t number; const char *name; } unsupported[] = {
	{ 9, "Q8_1" }, { 10, "Q2_K" }, { 11, "Q3_K" }, { 15, "Q8_K" }, { 16, "IQ2_XXS" }, { 17, "IQ2_XS" },
	{ 18, "IQ3_XXS" }, { 19, "IQ1_S" }, { 20, "IQ4_NL" }, { 21, "IQ3_S" }, { 22, "IQ2_S" }, { 23, "IQ4_XS" },
	{ 24, "I8" }, { 25, "I16" }, { 26, "I32" }, { 27, "I64" }, { 28, "F64" }, { 29, "IQ1_M" }, { 34, "TQ1_0" },
	{ 35, "TQ2_0" }, { 39, "MXFP4" },
};

static const char *unsupported_name(uint32_t number)
{
	for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
		if (unsupported[i].number == number)
			return unsupported[i].name;
	return "unknown";
}

static enum err find_type(const char *what, uint32_t number, enum wtype *out)
{
	for (int t = 0; t < WTYPE_COUNT; t++)
		if ((uint32_t)wtypes[t].gguf == number) {
			*out = (enum wtype)t;
			return ERR_OK;
		}
	return ERR(MODEL,
		   "%s: has ggml type %" PRIu32 " (%s), but only F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K "
		   "and Q6_K are supported",
		   what, number, unsupported_name(number));
}

/* Turned around; the rest of their checks is weights_tensor_bytes. */
static enum err take_dims(const char *what, const struct gguf_tensor *from, struct tensor_info *t)
{
	t->n_dims = (int)from->n_dims;
	for (uint32_t i = 0; i < from->n_dims; i++) {
		if (from->dims[i] > INT64_MAX)
			return ERR(MODEL, "%s: a dimension is %" PRIu64 ", but must be 1 to %" PRId64, what, from->dims[i],
				   INT64_MAX);
		t->dims[from->n_dims - 1 - i] = (int64_t)from->dims[i];
	}
	return ERR_OK;
}

static enum err add_tensor(struct weights *w, const struct gguf *g, int file, uint64_t i)
{
	struct gguf_tensor from = gguf_tensor_at(g, i);
	struct tensor_info t = { .file = file };
	char what[1200], shown[PRINTABLE_BYTES];
	snprintf(what, sizeof what, "%s: tensor %s", gguf_path(g), printable(shown, from.name.text, from.name.bytes));
	TRY(find_type(what, from.type, &t.type));
	TRY(take_dims(what, &from, &t));
	TRY(weights_tensor_bytes(&t, what, &t.bytes));
	if (from.offset % gguf_alignment(g))
		return ERR(MODEL, "%s: its offset %" PRIu64 " is not a multiple of the alignment %" PRIu64, what,
			   from.offset, gguf_alignment(g));
	TRY(size_add(gguf_data_offset(g), from.offset, what, &t.offset));
	return weights_add_tensor(w, &t, from.name.text, from.name.bytes);
}

static enum err add_shard(struct weights *w, const struct gguf *g)
{
	int file;
	TRY(weights_add_file(w, gguf_path(g), &file));
	for (uint64_t i = 0; i < gguf_tensor_count(g); i++)
		TRY(add_tensor(w, g, file, i));
	weights_count_header(w, gguf_read_bytes(g));
	return ERR_OK;
}

/* The split sets' names: PREFIX-00001-of-00003.gguf */
enum { SPLIT_SUFFIX_BYTES = sizeof "-00001-of-00003.gguf" - 1 };

static int split_prefix_bytes(const char *path, int number, int count)
{
	char suffix[SPLIT_SUFFIX_BYTES + 16];
	size_t n = strlen(path), m = (size_t)snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", number, count);
	return n > m && !strcmp(path + n - m, suffix) ? (int)(n - m) : 0;
}

static enum err add_further_shard(struct weights *w, const char *path, int64_t number, int64_t count)
{
	struct gguf *g;
	int64_t no, of;
	if (!file_exists(path))
		return ERR(MODEL, "%s: is missing: part %" PRId64 " of a split of %" PRId64, path, number + 1, count);
	TRY(gguf_open(path, &g));
	enum err e = gguf_int(g, "split.no", 0, UINT16_MAX, &no);
	if (!e)
		e = gguf_int(g, "split.count", 0, UINT16_MAX, &of);
	if (!e && (no != number || of != count))
		e = ERR(MODEL,
			"%s: says that it is part %" PRId64 " of %" PRId64 ", but its name says part %" PRId64
			" of %" PRId64,
			path, no + 1, of, number + 1, count);
	if (!e)
		e = add_shard(w, g);
	gguf_close(g);
	return e;
}

static enum err add_split(struct weights *w, const struct gguf *first, int64_t count)
{
	char path[1024];
	int64_t no, n_tensors;
	TRY(gguf_int(first, "split.no", 0, UINT16_MAX, &no));
	TRY(gguf_int_or(first, "split.tensors.count", 0, INT64_MAX, -1, &n_tensors));
	if (no != 0)
		return ERR(MODEL, "%s: is part %" PRId64 " of a split of %" PRId64 "; name the first part", gguf_path(first),
			   no + 1, count);
	int prefix = split_prefix_bytes(gguf_path(first), 1, (int)count);
	if (!prefix)
		return ERR(MODEL,
			   "%s: is the first of a split of %" PRId64 ", so its name must end in -00001-of-%05" PRId64
			   ".gguf",
			   gguf_path(first), count, count);
	for (int64_t i = 1; i < count; i++) {
		/* as long as the first part's path, so it fits */
		snprintf(path, sizeof path, "%.*s-%05d-of-%05d.gguf", prefix, gguf_path(first), (int)i + 1, (int)count);
		TRY(add_further_shard(w, path, i, count));
	}
	if (n_tensors >= 0 && n_tensors != weights_count(w))
		return ERR(MODEL, "%s: split.tensors.count is %" PRId64 ", but the parts hold %" PRId64 " tensors",
			   gguf_path(first), n_tensors, weights_count(w));
	return ERR_OK;
}

static int ends_with(const char *text, const char *suffix)
{
	size_t n = strlen(text), m = strlen(suffix);
	return n >= m && !strcmp(text + n - m, suffix);
}

static int is_later_part(const char *name)
{
	int number, count, n = 0;
	size_t bytes = strlen(name), suffix = SPLIT_SUFFIX_BYTES;
	return bytes > suffix && sscanf(name + bytes - suffix, "-%5d-of-%5d.gguf%n", &number, &count, &n) == 2 &&
	       n == (int)suffix && number > 1;
}

/* The one model in a directory: its only .gguf file that is not a later part of a split; a later part only when there is
 * nothing else, so that opening it says what is wrong. Gives how many there are to choose from: 0, 1, or 2 for more. */
static int find_inside(const char *directory, char *path, size_t capacity)
{
	DIR *d = opendir(directory);
	int n = 0, n_later = 0;
	for (struct dirent *entry; d && n < 2 && (entry = readdir(d));) {
		if (!ends_with(entry->d_name, ".gguf"))
			continue;
		int later = is_later_part(entry->d_name);
		if ((later && n) || file_join(directory, entry->d_name, path, capacity))
			continue;
		n += !later;
		n_later += later;
	}
	if (d)
		closedir(d);
	return n || !n_later ? n : 1;
}

static int accepts_gguf(const char *path)
{
	char inside[1024];
	unsigned char magic[4];
	struct file f;
	if (file_is_directory(path))
		return find_inside(path, inside, sizeof inside) > 0;
	if (ends_with(path, ".gguf"))
		return 1;
	if (file_open(path, &f))
		return 0;
	int is = f.size >= sizeof magic && !file_read_at(&f, 0, magic, sizeof magic) && !memcmp(magic, "GGUF", 4);
	file_close(&f);
	return is;
}

static enum err open_gguf(const char *path, struct weights *w)
{
	char inside[1024];
	struct gguf *g;
	int64_t count;
	if (file_is_directory(path)) {
		int n = find_inside(path, inside, sizeof inside);
		if (n != 1)
			return ERR(MODEL, "%s: holds %s .gguf file; name the file itself", path, n ? "more than one" : "no");
		path = inside;
	}
	TRY(gguf_open(path, &g));
	weights_set_gguf(w, g);
	TRY(gguf_int_or(g, "split.count", 0, UINT16_MAX, 0, &count));
	TRY(add_shard(w, g));
	return count > 1 ? add_split(w, g, count) : ERR_OK;
}

const struct weights_format weights_gguf_format = { "gguf", accepts_gguf, open_gguf };
