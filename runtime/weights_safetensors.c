/* Weights in safetensors files. https://github.com/huggingface/safetensors (README, "Format")
 *
 *   u64 n | n bytes of JSON | data        {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..}
 *
 * Offsets count from the end of the header. A sharded model has model.safetensors.index.json beside its files, whose
 * "weight_map" says which file holds each tensor.
 *
 * Refused, each with one sentence: a file shorter than its header says, a header over 100 MB, JSON faults and duplicate
 * names, entries without dtype, shape or data_offsets, numbers that are not integers >= 0, types that wtypes does not
 * have, zero dimensions, products that overflow, offsets that do not match type and shape, that overlap or pass the end;
 * an index that names a file outside its directory, an absent file, or a tensor that its file does not hold. */
#include "base/json.h"
#include "base/mem.h"
#include "runtime/printable.h"
#include "runtime/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char single_name[] = "model.safetensors", index_name[] = "model.safetensors.index.json";
enum { HEADER_BYTES_MAX = 100 * 1000 * 1000 };

static int ends_with(const char *text, const char *suffix)
{
	size_t n = strlen(text), m = strlen(suffix);
	return n >= m && !strcmp(text + n - m, suffix);
}

static enum err parse_type(const char *what, json_t *entry, enum wtype *out)
{
	const char *dtype;
	char shown[PRINTABLE_BYTES];
	TRY(json_get_string_or_null(entry, what, "dtype", &dtype));
	if (!dtype)
		return ERR(MODEL, "%s: \"dtype\" is missing", what);
	for (int t = 0; t < WTYPE_COUNT; t++)
		if (wtypes[t].safetensors && !strcmp(wtypes[t].safetensors, dtype)) {
			*out = (enum wtype)t;
			return ERR_OK;
		}
	return ERR(MODEL, "%s: has type %s, but only F32, F16 and BF16 are supported", what,
		   printable(shown, dtype, strlen(dtype)));
}

static enum err parse_size(const char *what, const char *key, json_t *v, int64_t *out)
{
	if (!json_is_integer(v))
		return ERR(MODEL, "%s: \"%s\" must hold integers", what, key);
	if (json_integer_value(v) < 0)
		return ERR(MODEL, "%s: \"%s\" holds %" JSON_INTEGER_FORMAT ", but must not be negative", what, key,
			   json_integer_value(v));
	*out = json_integer_value(v);
	return ERR_OK;
}

static enum err parse_shape(const char *what, json_t *entry, struct tensor_info *t)
{
	json_t *shape = json_object_get(entry, "shape");
	size_t n = json_array_size(shape);
	if (!json_is_array(shape))
		return ERR(MODEL, "%s: \"shape\" is missing or not a list", what);
	if (n > WEIGHTS_MAX_DIMS)
		return ERR(MODEL, "%s: has %zu dimensions, but at most %d are supported", what, n, WEIGHTS_MAX_DIMS);
	for (size_t i = 0; i < n; i++)
		TRY(parse_size(what, "shape", json_array_get(shape, i), &t->dims[i]));
	t->n_dims = (int)n;
	if (!n)
		t->dims[t->n_dims++] = 1;   /* a scalar: one item */
	return ERR_OK;
}

static enum err parse_place(const char *what, json_t *entry, uint64_t data_offset, struct tensor_info *t)
{
	json_t *offsets = json_object_get(entry, "data_offsets");
	int64_t begin, end;
	if (!json_is_array(offsets) || json_array_size(offsets) != 2)
		return ERR(MODEL, "%s: \"data_offsets\" is missing or not a list of two", what);
	TRY(parse_size(what, "data_offsets", json_array_get(offsets, 0), &begin));
	TRY(parse_size(what, "data_offsets", json_array_get(offsets, 1), &end));
	if (end < begin)
		return ERR(MODEL, "%s: ends at byte %" PRId64 ", before it begins at %" PRId64, what, end, begin);
	t->offset = data_offset + (uint64_t)begin;   /* both below 2^63 */
	t->bytes = (uint64_t)(end - begin);
	return ERR_OK;
}

static enum err add_entry(struct weights *w, int file, uint64_t data_offset, const char *name, size_t name_bytes,
			  json_t *entry)
{
	char what[1200], shown[PRINTABLE_BYTES];
	struct tensor_info t = { .file = file };
	snprintf(what, sizeof what, "%s: tensor %s", weights_file(w, file)->path, printable(shown, name, name_bytes));
	if (!json_is_object(entry))
		return ERR(MODEL, "%s: its entry in the header is not an object", what);
	TRY(parse_type(what, entry, &t.type));
	TRY(parse_shape(what, entry, &t));
	TRY(parse_place(what, entry, data_offset, &t));
	return weights_add_tensor(w, &t, name, name_bytes);
}

/* The header's JSON, read by one read. *data_offset: where it ends. */
static enum err read_header(struct file *f, json_t **out, uint64_t *data_offset)
{
	unsigned char le[8];
	uint64_t n = 0;
	char *text;
	if (f->size < sizeof le)
		return ERR(MODEL, "%s: has %" PRIu64 " bytes, too few for a safetensors file", f->path, f->size);
	TRY(file_read_at(f, 0, le, sizeof le));
	for (int i = 7; i >= 0; i--)
		n = n << 8 | le[i];
	if (n > HEADER_BYTES_MAX)
		return ERR(MODEL, "%s: claims a header of %" PRIu64 " bytes, but at most %d are allowed", f->path, n,
			   HEADER_BYTES_MAX);
	if (n > f->size - sizeof le)
		return ERR(MODEL, "%s: its header of %" PRIu64 " bytes is longer than the file (%" PRIu64 " bytes)", f->path,
			   n, f->size);
	TRY(mem_alloc(n, 1, "safetensors header", &text));
	enum err e = file_read_at(f, sizeof le, text, n);
	if (!e)
		e = json_parse(f->path, text, n, ERR_MODEL, out);
	mem_free(text);
	*data_offset = sizeof le + n;
	return e;
}

static enum err add_shard(struct weights *w, const char *path, int *file)
{
	json_t *header, *entry;
	const char *name;
	uint64_t data_offset;
	enum err e = ERR_OK;
	TRY(weights_add_file(w, path, file));
	TRY(read_header(weights_file(w, *file), &header, &data_offset));
	if (!json_is_object(header))
		e = ERR(MODEL, "%s: its header is not a JSON object", path);
	json_object_foreach(header, name, entry) {
		if (strcmp(name, "__metadata__"))
			e = add_entry(w, *file, data_offset, name, strlen(name), entry);
		if (e)
			break;
	}
	json_decref(header);
	return e;
}

/* A shard is a plain file name beside the index: a model from elsewhere must not make us open other files. */
static enum err check_shard_name(const char *index, const char *name)
{
	char shown[PRINTABLE_BYTES];
	int plain = name[0] != '.' && strlen(name) < 256 && ends_with(name, ".safetensors");
	for (const char *c = name; *c; c++)
		plain = plain && *c != '/' && *c != '\\' && (unsigned char)*c >= ' ' && *c != 127;
	if (!plain)
		return ERR(MODEL, "%s: names the file \"%s\", but must name .safetensors files in its own directory", index,
			   printable(shown, name, strlen(name)));
	return ERR_OK;
}

/* Opens the shard unless it is open. */
static enum err open_shard(struct weights *w, const char *index, const char *name, int *n_files)
{
	char path[sizeof weights_file(w, 0)->path], shown[PRINTABLE_BYTES];
	int file;
	TRY(check_shard_name(index, name));
	TRY(file_join(weights_directory(w), name, path, sizeof path));
	for (int i = *n_files - 1; i >= 0; i--)   /* tensors of one shard mostly follow each other */
		if (!strcmp(weights_file(w, i)->path, path))
			return ERR_OK;
	if (!file_exists(path))
		return ERR(MODEL, "%s: names the shard %s, which is missing", index, printable(shown, name, strlen(name)));
	TRY(add_shard(w, path, &file));
	*n_files = file + 1;
	return ERR_OK;
}

/* Every tensor that the index names is in the shard that the index says. */
static enum err check_map(struct weights *w, const char *index, json_t *map)
{
	json_t *shard;
	const char *name;
	char shown[PRINTABLE_BYTES];
	json_object_foreach(map, name, shard) {
		const struct tensor_info *t = weights_find(w, name);
		printable(shown, name, strlen(name));
		if (!t)
			return ERR(MODEL, "%s: names tensor %s, but %s does not hold it", index, shown,
				   json_string_value(shard));
		const char *path = weights_file(w, t->file)->path, *slash = strrchr(path, '/');
		if (strcmp(slash ? slash + 1 : path, json_string_value(shard)))
			return ERR(MODEL, "%s: says that tensor %s is in %s, but it is in %s", index, shown,
				   json_string_value(shard), path);
	}
	return ERR_OK;
}

static enum err open_map(struct weights *w, const char *index, json_t *map)
{
	json_t *shard;
	const char *name;
	char shown[PRINTABLE_BYTES];
	int n_files = 0;
	if (!json_is_object(map) || !json_object_size(map))
		return ERR(MODEL, "%s: \"weight_map\" is missing, empty or not an object", index);
	json_object_foreach(map, name, shard) {
		if (!json_is_string(shard))
			return ERR(MODEL, "%s: the file of tensor %s is not a string", index,
				   printable(shown, name, strlen(name)));
		TRY(open_shard(w, index, json_string_value(shard), &n_files));
	}
	TRY(weights_seal(w));
	return check_map(w, index, map);
}

static enum err open_index(struct weights *w, const char *path)
{
	struct bytes text = { 0 };
	json_t *index = NULL;
	enum err e = file_read_all(path, HEADER_BYTES_MAX, &text);
	if (e == ERR_IO)
		e = ERR(MODEL, "%s", err_sentence());
	weights_count_header(w, text.size);
	if (!e)
		e = json_parse(path, bytes_text(&text), text.size, ERR_MODEL, &index);
	bytes_free(&text);
	if (!e && !json_is_object(index))
		e = ERR(MODEL, "%s: is not a JSON object", path);
	if (!e)
		e = open_map(w, path, json_object_get(index, "weight_map"));
	json_decref(index);
	return e;
}

/* model.safetensors or else the index, inside a directory. */
static int find_inside(const char *directory, char *path, size_t capacity)
{
	return (!file_join(directory, single_name, path, capacity) && file_exists(path)) ||
	       (!file_join(directory, index_name, path, capacity) && file_exists(path));
}

static int accepts_safetensors(const char *path)
{
	char inside[1024];
	if (file_is_directory(path))
		return find_inside(path, inside, sizeof inside);
	return ends_with(path, ".safetensors") || ends_with(path, ".safetensors.index.json");
}

static enum err open_safetensors(const char *path, struct weights *w)
{
	char inside[1024];
	int file;
	if (file_is_directory(path)) {
		if (!find_inside(path, inside, sizeof inside))
			return ERR(MODEL, "%s: holds neither %s nor %s", path, single_name, index_name);
		path = inside;
	}
	return ends_with(path, ".index.json") ? open_index(w, path) : add_shard(w, path, &file);
}

const struct weights_format weights_safetensors = { "safetensors", accepts_safetensors, open_safetensors };
