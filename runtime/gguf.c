/* GGUF metadata. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md ("File Structure")
 *
 *   "GGUF" | u32 version | u64 n_tensors | u64 n_keys | keys | tensors | padding to alignment | data      little endian
 *   key:     string | u32 value type | value            string: u64 n | n bytes           array: u32 type | u64 n | items
 *   tensor:  string | u32 n_dims | u64 dims[n_dims] | u32 type | u64 offset from data
 *
 * Opening walks the header once. The walk owns a buffer that holds the file from its start; it grows by reads that
 * double in size, so positions in it are kept as offsets, never as pointers, until the walk is done. Everything the walk
 * has passed lies inside the buffer, so later decoding needs no checks. What it allocates is bounded by what it has
 * read: a count alone never sizes an allocation. After the walk arrays get their index or their int32 / float copy. */
#include "runtime/gguf.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/printable.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_READ_BYTES = 1 << 20, HEADER_BYTES_MAX = 1 << 30, ALIGNMENT_MAX = 1 << 20, KEY_BYTES_MAX = 65535 };

enum value_type {
	TYPE_U8, TYPE_I8, TYPE_U16, TYPE_I16, TYPE_U32, TYPE_I32, TYPE_F32, TYPE_BOOL, TYPE_STRING, TYPE_ARRAY,
	TYPE_U64, TYPE_I64, TYPE_F64, TYPE_COUNT
};

static const struct {
	const char *name;
	unsigned bytes;     /* 0: a string or an array */
} types[TYPE_COUNT] = {
	[TYPE_U8] = { "UINT8", 1 }, [TYPE_I8] = { "INT8", 1 }, [TYPE_U16] = { "UINT16", 2 }, [TYPE_I16] = { "INT16", 2 },
	[TYPE_U32] = { "UINT32", 4 }, [TYPE_I32] = { "INT32", 4 }, [TYPE_F32] = { "FLOAT32", 4 },
	[TYPE_BOOL] = { "BOOL", 1 }, [TYPE_STRING] = { "STRING", 0 }, [TYPE_ARRAY] = { "ARRAY", 0 },
	[TYPE_U64] = { "UINT64", 8 }, [TYPE_I64] = { "INT64", 8 }, [TYPE_F64] = { "FLOAT64", 8 },
};

struct span { uint64_t at, bytes; };       /* of the buffer */

struct value {
	struct span key;
	enum value_type type, item_type;   /* item_type: of an array */
	uint64_t at, n;                    /* the value, or the first item and the number of items */
	void *items;                       /* of an array: gguf_string, int32_t or float by item_type; owned */
	int misfit;                        /* an item does not fit int32_t or float */
};

struct tensor {
	struct span name;
	uint32_t n_dims, type;
	uint64_t dims[4], offset;
};

struct gguf {
	struct file file;                  /* closed after gguf_open */
	unsigned char *data;
	uint64_t size, at;                 /* bytes in data; the walk's position */
	uint64_t n_values, n_tensors;      /* so far, at last as claimed */
	size_t values_capacity, tensors_capacity;
	struct value *values;              /* sorted by key after the walk */
	struct tensor *tensors;
	uint64_t alignment, data_offset;
};

/* The walk. */

static enum err too_short(const struct gguf *g, const char *what, uint64_t bytes)
{
	return ERR(MODEL, "%s: truncated: %s at byte %" PRIu64 " needs %" PRIu64 " bytes, but the file has %" PRIu64,
		   g->file.path, what, g->at, bytes, g->file.size);
}

/* Reads on until the next `bytes` are in the buffer. */
static enum err need_more(struct gguf *g, uint64_t bytes, const char *what)
{
	if (bytes > g->file.size - g->at)
		return too_short(g, what, bytes);
	if (bytes > HEADER_BYTES_MAX - g->at)
		return ERR(MODEL, "%s: its header is longer than the %d bytes allowed", g->file.path, HEADER_BYTES_MAX);
	uint64_t size = g->size ? 2 * g->size : FIRST_READ_BYTES;
	while (size < g->at + bytes)
		size *= 2;
	if (size > g->file.size)
		size = g->file.size;
	if (size > HEADER_BYTES_MAX)
		size = HEADER_BYTES_MAX;
	TRY(mem_grow(&g->data, size, 1, "GGUF header"));
	TRY(file_read_at(&g->file, g->size, g->data + g->size, size - g->size));
	g->size = size;
	return ERR_OK;
}

static inline enum err need(struct gguf *g, uint64_t bytes, const char *what)
{
	return bytes <= g->size - g->at ? ERR_OK : need_more(g, bytes, what);
}

static inline uint64_t le_at(const struct gguf *g, uint64_t at, unsigned bytes)
{
	uint64_t v = 0;
	for (unsigned i = bytes; i-- > 0;)
		v = v << 8 | g->data[at + i];
	return v;
}

static enum err take(struct gguf *g, unsigned bytes, const char *what, uint64_t *out)
{
	TRY(need(g, bytes, what));
	*out = le_at(g, g->at, bytes);
	g->at += bytes;
	return ERR_OK;
}

static enum err take_u32(struct gguf *g, const char *what, uint32_t *out)
{
	uint64_t v;
	TRY(take(g, 4, what, &v));
	*out = (uint32_t)v;
	return ERR_OK;
}

static enum err take_string(struct gguf *g, const char *what, struct span *out)
{
	uint64_t bytes;
	TRY(take(g, 8, what, &bytes));
	TRY(need(g, bytes, what));
	*out = (struct span){ g->at, bytes };
	g->at += bytes;
	return ERR_OK;
}

static const char *shown(const struct gguf *g, struct span s, char room[PRINTABLE_BYTES])
{
	return printable(room, (const char *)g->data + s.at, s.bytes);
}

static enum err take_type(struct gguf *g, struct span key, const char *what, enum value_type *out)
{
	char room[PRINTABLE_BYTES];
	uint32_t type;
	TRY(take_u32(g, what, &type));
	if (type >= TYPE_COUNT)
		return ERR(MODEL, "%s: key %s has the unknown value type %" PRIu32, g->file.path, shown(g, key, room), type);
	*out = (enum value_type)type;
	return ERR_OK;
}

static enum err skip_array(struct gguf *g, struct value *v)
{
	char room[PRINTABLE_BYTES];
	struct span item;
	uint64_t bytes;
	TRY(take_type(g, v->key, "an array's type", &v->item_type));
	TRY(take(g, 8, "an array's length", &v->n));
	v->at = g->at;
	if (v->item_type == TYPE_ARRAY)
		return ERR(MODEL, "%s: key %s is an array of arrays, which is not supported", g->file.path,
			   shown(g, v->key, room));
	if (v->item_type == TYPE_STRING) {
		if (v->n > (g->file.size - g->at) / 8)
			return ERR(MODEL, "%s: key %s claims %" PRIu64 " strings, more than the file has room for",
				   g->file.path, shown(g, v->key, room), v->n);
		for (uint64_t i = 0; i < v->n; i++)
			TRY(take_string(g, "a string of an array", &item));
		return ERR_OK;
	}
	if (__builtin_mul_overflow(v->n, types[v->item_type].bytes, &bytes) || bytes > g->file.size - g->at)
		return ERR(MODEL, "%s: key %s claims %" PRIu64 " items of %s, more than the file has room for", g->file.path,
			   shown(g, v->key, room), v->n, types[v->item_type].name);
	TRY(need(g, bytes, "an array"));
	g->at += bytes;
	return ERR_OK;
}

static enum err reserve(void *block, uint64_t n, size_t *capacity, size_t size, const char *what)
{
	if (n < *capacity)
		return ERR_OK;
	size_t more = *capacity ? *capacity * 2 : 64;
	TRY(mem_grow(block, more, size, what));
	*capacity = more;
	return ERR_OK;
}

static enum err walk_value(struct gguf *g)
{
	struct value v = { .n = 1 };
	struct span text;
	TRY(take_string(g, "a key", &v.key));
	if (!v.key.bytes || v.key.bytes > KEY_BYTES_MAX)
		return ERR(MODEL, "%s: the key at byte %" PRIu64 " has %" PRIu64 " bytes, but must have 1 to %d",
			   g->file.path, v.key.at, v.key.bytes, KEY_BYTES_MAX);
	TRY(take_type(g, v.key, "a value's type", &v.type));
	v.at = g->at;
	if (v.type == TYPE_ARRAY) {
		TRY(skip_array(g, &v));
	} else if (v.type == TYPE_STRING) {
		TRY(take_string(g, "a string", &text));
	} else {
		TRY(need(g, types[v.type].bytes, "a value"));
		g->at += types[v.type].bytes;
	}
	TRY(reserve(&g->values, g->n_values, &g->values_capacity, sizeof v, "GGUF keys"));
	g->values[g->n_values++] = v;
	return ERR_OK;
}

static enum err walk_tensor(struct gguf *g)
{
	struct tensor t = { .n_dims = 0 };
	char room[PRINTABLE_BYTES];
	TRY(take_string(g, "a tensor's name", &t.name));
	TRY(take_u32(g, "a tensor's number of dimensions", &t.n_dims));
	if (t.n_dims < 1 || t.n_dims > 4)
		return ERR(MODEL, "%s: tensor %s has %" PRIu32 " dimensions, but must have 1 to 4", g->file.path,
			   shown(g, t.name, room), t.n_dims);
	for (uint32_t i = 0; i < t.n_dims; i++)
		TRY(take(g, 8, "a tensor's dimensions", &t.dims[i]));
	TRY(take_u32(g, "a tensor's type", &t.type));
	TRY(take(g, 8, "a tensor's offset", &t.offset));
	TRY(reserve(&g->tensors, g->n_tensors, &g->tensors_capacity, sizeof t, "GGUF tensors"));
	g->tensors[g->n_tensors++] = t;
	return ERR_OK;
}

static enum err check_version(struct gguf *g)
{
	uint32_t magic, version;
	if (g->file.size < 24)
		return ERR(MODEL, "%s: truncated: has %" PRIu64 " bytes, too few for a GGUF file", g->file.path,
			   g->file.size);
	TRY(take_u32(g, "the magic", &magic));
	if (magic != 0x46554747)
		return ERR(MODEL, "%s: does not begin with \"GGUF\"", g->file.path);
	TRY(take_u32(g, "the version", &version));
	if (!(version & 0xffff))
		return ERR(MODEL, "%s: is big endian (version 0x%08" PRIx32 "), only little endian is supported",
			   g->file.path, version);
	if (version != 2 && version != 3)
		return ERR(MODEL, "%s: is GGUF version %" PRIu32 ", only 2 and 3 are supported", g->file.path, version);
	return ERR_OK;
}

/* A count that the rest of the file cannot hold is refused before anything is read for it. */
static enum err check_count(const struct gguf *g, const char *what, uint64_t n, uint64_t least_bytes)
{
	if (n > (g->file.size - g->at) / least_bytes)
		return ERR(MODEL, "%s: claims %" PRIu64 " %s, more than its %" PRIu64 " bytes have room for", g->file.path,
			   n, what, g->file.size);
	return ERR_OK;
}

static enum err walk(struct gguf *g)
{
	uint64_t n_tensors, n_values;
	TRY(check_version(g));
	TRY(take(g, 8, "the number of tensors", &n_tensors));
	TRY(take(g, 8, "the number of keys", &n_values));
	TRY(check_count(g, "tensors", n_tensors, 8 + 4 + 8 + 4 + 8));
	TRY(check_count(g, "keys", n_values, 8 + 1 + 4 + 1));
	while (g->n_values < n_values)
		TRY(walk_value(g));
	while (g->n_tensors < n_tensors)
		TRY(walk_tensor(g));
	return ERR_OK;
}

/* After the walk. */

static int compare_keys(const unsigned char *a, uint64_t a_bytes, const unsigned char *b, uint64_t b_bytes)
{
	int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
	return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_values(const void *a, const void *b, void *arg)
{
	const struct value *x = a, *y = b;
	const struct gguf *g = arg;
	return compare_keys(g->data + x->key.at, x->key.bytes, g->data + y->key.at, y->key.bytes);
}

static enum err sort_values(struct gguf *g)
{
	char room[PRINTABLE_BYTES];
	if (g->n_values)
		qsort_r(g->values, g->n_values, sizeof *g->values, compare_values, g);
	for (uint64_t i = 1; i < g->n_values; i++)
		if (!compare_values(&g->values[i - 1], &g->values[i], g))
			return ERR(MODEL, "%s: key %s is there twice", g->file.path, shown(g, g->values[i].key, room));
	return ERR_OK;
}

static int is_integer(enum value_type t) { return types[t].bytes && t != TYPE_F32 && t != TYPE_F64 && t != TYPE_BOOL; }
static int is_signed(enum value_type t) { return t == TYPE_I8 || t == TYPE_I16 || t == TYPE_I32 || t == TYPE_I64; }
static int is_real(enum value_type t) { return t == TYPE_F32 || t == TYPE_F64; }

/* An integer or boolean as int64_t; 0 when a UINT64 does not fit. */
static int int_at(const struct gguf *g, enum value_type type, uint64_t at, int64_t *out)
{
	unsigned bytes = types[type].bytes;
	uint64_t u = le_at(g, at, bytes);
	if (is_signed(type) && bytes < 8 && u >> (8 * bytes - 1))
		u |= UINT64_MAX << (8 * bytes);
	memcpy(out, &u, sizeof u);
	return is_signed(type) || u <= INT64_MAX;
}

static double real_at(const struct gguf *g, enum value_type type, uint64_t at)
{
	float f;
	double d;
	if (type == TYPE_F32) {
		memcpy(&f, g->data + at, sizeof f);
		return (double)f;
	}
	memcpy(&d, g->data + at, sizeof d);
	return d;
}

static enum err index_strings(const struct gguf *g, struct value *v)
{
	struct gguf_string *items;
	uint64_t at = v->at;
	TRY(MEM_NEW(v->n, struct gguf_string, &items));
	v->items = items;
	for (uint64_t i = 0; i < v->n; i++) {
		items[i] = (struct gguf_string){ (const char *)g->data + at + 8, le_at(g, at, 8) };
		at += 8 + items[i].bytes;
	}
	return ERR_OK;
}

static enum err index_ints(const struct gguf *g, struct value *v)
{
	int32_t *items;
	int64_t n;
	TRY(MEM_NEW(v->n, int32_t, &items));
	v->items = items;
	for (uint64_t i = 0; i < v->n; i++) {
		if (!int_at(g, v->item_type, v->at + i * types[v->item_type].bytes, &n) || n < INT32_MIN || n > INT32_MAX)
			v->misfit = 1;
		else
			items[i] = (int32_t)n;
	}
	return ERR_OK;
}

static enum err index_reals(const struct gguf *g, struct value *v)
{
	float *items;
	TRY(MEM_NEW(v->n, float, &items));
	v->items = items;
	for (uint64_t i = 0; i < v->n; i++) {
		double d = real_at(g, v->item_type, v->at + i * types[v->item_type].bytes);
		if (isfinite(d) && fabs(d) > (double)FLT_MAX)
			v->misfit = 1;
		else
			items[i] = (float)d;
	}
	return ERR_OK;
}

static enum err index_arrays(struct gguf *g)
{
	for (uint64_t i = 0; i < g->n_values; i++) {
		struct value *v = &g->values[i];
		if (v->type != TYPE_ARRAY)
			continue;
		TRY(v->item_type == TYPE_STRING ? index_strings(g, v) : is_real(v->item_type) ? index_reals(g, v) :
			index_ints(g, v));
	}
	return ERR_OK;
}

static const struct value *find(const struct gguf *g, const char *key)
{
	uint64_t begin = 0, end = g->n_values, bytes = strlen(key);
	while (begin < end) {
		uint64_t middle = begin + (end - begin) / 2;
		const struct value *v = &g->values[middle];
		int order = compare_keys((const unsigned char *)key, bytes, g->data + v->key.at, v->key.bytes);
		if (!order)
			return v;
		if (order < 0)
			end = middle;
		else
			begin = middle + 1;
	}
	return NULL;
}

static enum err place_data(struct gguf *g)
{
	const struct value *v = find(g, "general.alignment");
	g->alignment = 32;
	if (v && v->type != TYPE_U32)
		return ERR(MODEL, "%s: general.alignment is %s, but must be UINT32", g->file.path, types[v->type].name);
	if (v)
		g->alignment = le_at(g, v->at, 4);
	if (!g->alignment || g->alignment & (g->alignment - 1) || g->alignment > ALIGNMENT_MAX)
		return ERR(MODEL, "%s: general.alignment is %" PRIu64 ", but must be a power of two, at most %d",
			   g->file.path, g->alignment, ALIGNMENT_MAX);
	g->data_offset = size_round_up(g->at, g->alignment);
	return ERR_OK;
}

enum err gguf_open(const char *path, struct gguf **out)
{
	struct gguf *g;
	enum err e;
	TRY(MEM_NEW(1, struct gguf, &g));
	if (file_open(path, &g->file)) {
		mem_free(g);
		return ERR(MODEL, "%s", err_sentence());
	}
	TRY_OR(close_gguf, e, walk(g));
	TRY_OR(close_gguf, e, sort_values(g));
	TRY_OR(close_gguf, e, place_data(g));
	TRY_OR(close_gguf, e, mem_grow(&g->data, g->at, 1, "GGUF header"));   /* gives back what was read too far */
	TRY_OR(close_gguf, e, index_arrays(g));
	file_close(&g->file);
	*out = g;
	return ERR_OK;
close_gguf:
	gguf_close(g);
	return e;
}

void gguf_close(struct gguf *g)
{
	if (!g)
		return;
	for (uint64_t i = 0; i < g->n_values; i++)
		mem_free(g->values[i].items);
	mem_free(g->values);
	mem_free(g->tensors);
	mem_free(g->data);
	file_close(&g->file);
	mem_free(g);
}

/* What callers ask. */

const char *gguf_path(const struct gguf *g) { return g->file.path; }
int gguf_has(const struct gguf *g, const char *key) { return find(g, key) != NULL; }
uint64_t gguf_tensor_count(const struct gguf *g) { return g->n_tensors; }
uint64_t gguf_data_offset(const struct gguf *g) { return g->data_offset; }
uint64_t gguf_alignment(const struct gguf *g) { return g->alignment; }
uint64_t gguf_read_bytes(const struct gguf *g) { return g->file.read_bytes; }

struct gguf_tensor gguf_tensor_at(const struct gguf *g, uint64_t i)
{
	const struct tensor *t = &g->tensors[i];
	struct gguf_tensor out = { .n_dims = t->n_dims, .type = t->type, .offset = t->offset };
	out.name = (struct gguf_string){ (const char *)g->data + t->name.at, t->name.bytes };
	memcpy(out.dims, t->dims, sizeof out.dims);
	return out;
}

static enum err get(const struct gguf *g, const char *key, const struct value **out)
{
	*out = find(g, key);
	return *out ? ERR_OK : ERR(MODEL, "%s: key %s is missing", g->file.path, key);
}

static enum err wrong_type(const struct gguf *g, const char *key, const struct value *v, const char *want)
{
	if (v->type == TYPE_ARRAY)
		return ERR(MODEL, "%s: key %s is an array of %s, but must be %s", g->file.path, key,
			   types[v->item_type].name, want);
	return ERR(MODEL, "%s: key %s is %s, but must be %s", g->file.path, key, types[v->type].name, want);
}

enum err gguf_int(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *out)
{
	const struct value *v;
	int64_t n;
	TRY(get(g, key, &v));
	if (!is_integer(v->type))
		return wrong_type(g, key, v, "an integer");
	if (!int_at(g, v->type, v->at, &n))
		return ERR(MODEL, "%s: key %s is %" PRIu64 ", but must be %" PRId64 " to %" PRId64, g->file.path, key,
			   le_at(g, v->at, 8), min, max);
	if (n < min || n > max)
		return ERR(MODEL, "%s: key %s is %" PRId64 ", but must be %" PRId64 " to %" PRId64, g->file.path, key, n,
			   min, max);
	*out = n;
	return ERR_OK;
}

enum err gguf_int_or(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t fallback, int64_t *out)
{
	if (find(g, key))
		return gguf_int(g, key, min, max, out);
	*out = fallback;
	return ERR_OK;
}

enum err gguf_real(const struct gguf *g, const char *key, double *out)
{
	const struct value *v;
	TRY(get(g, key, &v));
	if (!is_real(v->type))
		return wrong_type(g, key, v, "FLOAT32 or FLOAT64");
	*out = real_at(g, v->type, v->at);
	return ERR_OK;
}

enum err gguf_real_or(const struct gguf *g, const char *key, double fallback, double *out)
{
	if (find(g, key))
		return gguf_real(g, key, out);
	*out = fallback;
	return ERR_OK;
}

enum err gguf_bool_or(const struct gguf *g, const char *key, int fallback, int *out)
{
	const struct value *v = find(g, key);
	if (v && v->type != TYPE_BOOL)
		return wrong_type(g, key, v, "BOOL");
	if (v && g->data[v->at] > 1)
		return ERR(MODEL, "%s: key %s is the boolean %d, but must be 0 or 1", g->file.path, key, g->data[v->at]);
	*out = v ? g->data[v->at] : fallback;
	return ERR_OK;
}

enum err gguf_string(const struct gguf *g, const char *key, struct gguf_string *out)
{
	const struct value *v;
	TRY(get(g, key, &v));
	if (v->type != TYPE_STRING)
		return wrong_type(g, key, v, "STRING");
	*out = (struct gguf_string){ (const char *)g->data + v->at + 8, le_at(g, v->at, 8) };
	return ERR_OK;
}

enum err gguf_strings(const struct gguf *g, const char *key, const struct gguf_string **out, uint64_t *n)
{
	const struct value *v;
	TRY(get(g, key, &v));
	if (v->type != TYPE_ARRAY || v->item_type != TYPE_STRING)
		return wrong_type(g, key, v, "an array of STRING");
	*out = v->items;
	*n = v->n;
	return ERR_OK;
}

enum err gguf_ints(const struct gguf *g, const char *key, const int32_t **out, uint64_t *n)
{
	const struct value *v;
	TRY(get(g, key, &v));
	if (v->type != TYPE_ARRAY || v->item_type == TYPE_STRING || is_real(v->item_type))
		return wrong_type(g, key, v, "an array of integers");
	if (v->misfit)
		return ERR(MODEL, "%s: key %s holds a number that does not fit 32 bits", g->file.path, key);
	*out = v->items;
	*n = v->n;
	return ERR_OK;
}

enum err gguf_reals(const struct gguf *g, const char *key, const float **out, uint64_t *n)
{
	const struct value *v;
	TRY(get(g, key, &v));
	if (v->type != TYPE_ARRAY || !is_real(v->item_type))
		return wrong_type(g, key, v, "an array of FLOAT32 or FLOAT64");
	if (v->misfit)
		return ERR(MODEL, "%s: key %s holds a number that does not fit a float", g->file.path, key);
	*out = v->items;
	*n = v->n;
	return ERR_OK;
}
