/* labels: unit
 * Weight files: what the formats' own packages wrote is found (tests/golden/make_weights.py), every fault of a safetensors
 * file, an index, a GGUF tensor list and a split set is one sentence, and bytes are counted. */
#include "base/mem.h"
#include "runtime/gguf.h"
#include "runtime/weights.h"
#include "tests/files.h"
#include "tests/test.h"

static const char golden[] = SOURCE_DIR "/tests/golden/weights/";

static const char *golden_path(const char *name)
{
	static char room[1024];
	snprintf(room, sizeof room, "%s%s", golden, name);
	return room;
}

/* Reads a tensor and compares it with first, first+1, ... */
static void check_counts_up(struct weights *w, const char *name, int64_t items, float first)
{
	const struct tensor_info *t = weights_find(w, name);
	unsigned char raw[1024];
	float x[256];
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CHECK_OK(weights_read(w, t, 0, raw, t->bytes));
	wtypes[t->type].widen(raw, x, items);
	for (int64_t i = 0; i < items; i++)
		CU_ASSERT_EQUAL(x[i], first + (float)i);
}

TEST(safetensors_come_back_as_their_package_wrote_them)
{
	struct weights *w;
	CHECK_OK(weights_open(golden_path("small.safetensors"), &w));
	CU_ASSERT_STRING_EQUAL(weights_format_name(w), "safetensors");
	CU_ASSERT_EQUAL(weights_count(w), 3);
	CU_ASSERT_PTR_NULL(weights_gguf(w));
	CU_ASSERT_PTR_NULL(weights_find(w, "squar"));
	const struct tensor_info *t = weights_find(w, "square");
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT(t->type == WTYPE_F32 && t->n_dims == 2 && t->dims[0] == 2 && t->dims[1] == 3 && t->bytes == 24);
	t = weights_find(w, "scalar");
	CU_ASSERT(t && t->n_dims == 1 && t->dims[0] == 1);
	check_counts_up(w, "square", 6, 0);
	check_counts_up(w, "half", 5, 0);
	check_counts_up(w, "scalar", 1, 7);
	CU_ASSERT_EQUAL(weights_read_bytes(w), 24 + 10 + 4);
	weights_close(w);
}

TEST(gguf_tensors_come_back_as_their_package_wrote_them)
{
	struct weights *w;
	float x[64];
	unsigned char raw[36];
	CHECK_OK(weights_open(golden_path("small.gguf"), &w));
	CU_ASSERT_STRING_EQUAL(weights_format_name(w), "gguf");
	CU_ASSERT_PTR_NOT_NULL(weights_gguf(w));
	CU_ASSERT_STRING_EQUAL(weights_config_path(w), "");
	const struct tensor_info *t = weights_find(w, "stack");   /* numpy shape (2, 3, 4) */
	CU_ASSERT(t && t->n_dims == 3 && t->dims[0] == 2 && t->dims[1] == 3 && t->dims[2] == 4);
	check_counts_up(w, "square", 6, 0);
	check_counts_up(w, "half", 5, 0);
	check_counts_up(w, "stack", 24, 0);
	t = weights_find(w, "quantised");
	CU_ASSERT_FATAL(t && t->type == WTYPE_Q4_0 && t->dims[0] == 2 && t->dims[1] == 64 && t->bytes == 2 * 36);
	CHECK_OK(weights_read(w, t, 36, raw, 36));   /* the second row: -8 .. 7, four times */
	wtypes[t->type].widen(raw, x, 64);
	for (int i = 0; i < 64; i++)
		CU_ASSERT_EQUAL(x[i], (float)(i % 16 - 8));
	CU_ASSERT_STRING_EQUAL(weights_at(w, 0)->name, "square");   /* file order, not sorted */
	CU_ASSERT_STRING_EQUAL(weights_at(w, 2)->name, "quantised");
	weights_close(w);
}

/* safetensors */

#define ENTRY(name, dtype, shape, from, to) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
	",\"data_offsets\":[" #from "," #to "]}"
static const struct { const char *header; size_t data_bytes; const char *sentence; } headers[] = {
	{ "{" ENTRY("t", "F32", "[2,3]", 0, 24), 24, ":1:" },
	{ "[1,2]", 0, "its header is not a JSON object" },
	{ "{" ENTRY("t", "F32", "[1]", 0, 4) "," ENTRY("t", "F32", "[1]", 4, 8) "}", 8,
	  "duplicate object key near '\"t\"'" },
	{ "{\"t\":7}", 0, "tensor t: its entry in the header is not an object" },
	{ "{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor t: \"dtype\" is missing" },
	{ "{\"t\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor t: \"dtype\" must be a string" },
	{ "{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor t: \"shape\" is missing or not a list" },
	{ "{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor t: \"data_offsets\" is missing or not a list of two" },
	{ "{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
	  "tensor t: \"data_offsets\" is missing or not" },
	{ "{" ENTRY("t", "I64", "[1]", 0, 8) "}", 8, "tensor t: has type I64, but only F32, F16 and BF16 are supported" },
	{ "{" ENTRY("t", "F8_E4M3", "[1]", 0, 1) "}", 1, "tensor t: has type F8_E4M3" },
	{ "{" ENTRY("t", "F32", "[0]", 0, 0) "}", 0, "tensor t: dimension 0 is 0, but must be at least 1" },
	{ "{" ENTRY("t", "F32", "[2,0,3]", 0, 0) "}", 8, "tensor t: dimension 1 is 0, but must be at least 1" },
	{ "{" ENTRY("t", "F32", "[-1]", 0, 4) "}", 4, "tensor t: \"shape\" holds -1, but must not be negative" },
	{ "{" ENTRY("t", "F32", "[1.0]", 0, 4) "}", 4, "tensor t: \"shape\" must hold integers" },
	{ "{" ENTRY("t", "F32", "[\"1\"]", 0, 4) "}", 4, "tensor t: \"shape\" must hold integers" },
	{ "{" ENTRY("t", "F32", "[null]", 0, 4) "}", 4, "tensor t: \"shape\" must hold integers" },
	{ "{" ENTRY("t", "F32", "[18446744073709551616]", 0, 4) "}", 4, "too big integer" },
	{ "{" ENTRY("t", "F32", "[1,1,1,1,1]", 0, 4) "}", 4, "tensor t: has 5 dimensions, but at most 4 are supported" },
	{ "{" ENTRY("t", "F32", "[4294967296,4294967296]", 0, 0) "}", 8,
	  "tensor t: 4294967296 x 4294967296 overflows 64 bits" },
	{ "{" ENTRY("t", "F32", "[4611686018427387904]", 0, 0) "}", 8,
	  "tensor t: 4611686018427387904 x 4 overflows 64 bits" },
	{ "{" ENTRY("t", "F16", "[4611686018427387904]", 0, 0) "}", 8, "overflow 63 bits" },
	{ "{" ENTRY("t", "F32", "[2]", 0, 4) "}", 8,
	  "tensor t: takes 4 bytes in the file, but its type and dimensions need 8" },
	{ "{" ENTRY("t", "F32", "[2]", 0, 12) "}", 12,
	  "tensor t: takes 12 bytes in the file, but its type and dimensions need 8" },
	{ "{" ENTRY("t", "F32", "[1]", 4, 0) "}", 8, "tensor t: ends at byte 0, before it begins at 4" },
	{ "{" ENTRY("t", "F32", "[1]", -4, 0) "}", 8, "tensor t: \"data_offsets\" holds -4, but must not be negative" },
	{ "{" ENTRY("t", "F32", "[1]", 0.0, 4) "}", 8, "tensor t: \"data_offsets\" must hold integers" },
	{ "{" ENTRY("t", "F32", "[2]", 0, 8) "}", 7, "pass the end of the file" },
	{ "{" ENTRY("t", "F32", "[1]", 9223372036854775803, 9223372036854775807) "}", 8, "pass the end of the file" },
	{ "{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[1]", 4, 8) "}", 8, "tensors a (bytes " },
	{ "{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("b", "F32", "[1]", 0, 4) "}", 8, "overlap" },
	{ "{" ENTRY("", "F32", "[1]", 0, 4) "}", 4, "a name of 0 bytes is empty" },
	{ "{" ENTRY("new\\nline", "I8", "[1]", 0, 1) "}", 1, "tensor new?line: has type I8" },
};

TEST(every_fault_of_a_safetensors_header_is_one_sentence)
{
	struct test_dir dir;
	struct weights *w = NULL;
	test_dir_make(&dir);
	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
		char want[200];
		const char *path = test_write_safetensors(&dir, "bad.safetensors", headers[i].header, headers[i].data_bytes);
		CHECK_ERR(weights_open(path, &w), MODEL, headers[i].sentence);
		snprintf(want, sizeof want, "%s:", path);
		CU_ASSERT_EQUAL(strncmp(err_sentence(), want, strlen(want)), 0);
		CU_ASSERT_PTR_NULL(strchr(err_sentence(), '\n'));
	}
	CU_ASSERT_PTR_NULL(w);
	test_dir_remove(&dir);
}

TEST(a_safetensors_file_shorter_than_it_says_is_refused)
{
	static const char header[] = "{\"t\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]}}   ";
	struct test_dir dir;
	struct bytes b = { 0 };
	struct weights *w;
	test_dir_make(&dir);
	put_le(&b, strlen(header), 8);
	bytes_put(&b, header, strlen(header));
	size_t header_bytes = b.size;
	put_zeros(&b, 6);
	for (size_t cut = 0; cut < b.size; cut++)
		CHECK_ERR(weights_open(test_write(&dir, "cut.safetensors", b.data, cut), &w), MODEL,
			  cut < 8 ? "too few for a safetensors file" : cut < header_bytes ? "is longer than the file" :
			  "pass the end of the file");
	CHECK_OK(weights_open(test_write(&dir, "cut.safetensors", b.data, b.size), &w));
	weights_close(w);
	const struct { uint64_t n; const char *sentence; } lengths[] = {
		{ UINT64_MAX, "claims a header of 18446744073709551615 bytes, but at most 100000000 are allowed" },
		{ 100000001, "claims a header of 100000001 bytes" },
		{ 100000000, "its header of 100000000 bytes is longer than the file" },
		{ b.size, "is longer than the file" },
		{ 0, ":1:" },
	};
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		for (int k = 0; k < 8; k++)
			b.data[k] = (unsigned char)(lengths[i].n >> (8 * k));
		CHECK_ERR(weights_open(test_write(&dir, "long.safetensors", b.data, b.size), &w), MODEL,
			  lengths[i].sentence);
	}
	bytes_free(&b);
	test_dir_remove(&dir);
}

/* An index and its shards */

static const char index_name[] = "model.safetensors.index.json";

static void write_shards(const struct test_dir *dir)
{
	test_dir_empty(dir);
	test_write_safetensors(dir, "one.safetensors",
			       "{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("b", "F16", "[2]", 4, 8) "}", 8);
	test_write_safetensors(dir, "two.safetensors", "{" ENTRY("c", "BF16", "[3]", 0, 6) "}", 6);
}

TEST(an_index_opens_its_shards)
{
	struct test_dir dir;
	struct weights *w;
	static const char index[] = "{\"metadata\":{\"total_size\":14},\"weight_map\":{\"a\":\"one.safetensors\","
		"\"c\":\"two.safetensors\",\"b\":\"one.safetensors\"}}";
	test_dir_make(&dir);
	write_shards(&dir);
	test_write(&dir, index_name, index, strlen(index));
	CHECK_OK(weights_open(dir.path, &w));
	CU_ASSERT_EQUAL(weights_count(w), 3);
	CU_ASSERT_STRING_EQUAL(weights_directory(w), dir.path);
	CU_ASSERT_STRING_EQUAL(weights_config_path(w), test_path(&dir, "config.json"));
	CU_ASSERT_STRING_EQUAL(weights_file(w, weights_find(w, "c")->file)->path, test_path(&dir, "two.safetensors"));
	CU_ASSERT_EQUAL(weights_find(w, "b")->bytes, 4);
	weights_close(w);
	CHECK_OK(weights_open(test_path(&dir, index_name), &w));   /* the index itself may be named */
	CU_ASSERT_EQUAL(weights_count(w), 3);
	weights_close(w);
	test_dir_remove(&dir);
}

static const struct { const char *index, *sentence; } indexes[] = {
	{ "{", "index.json:1:" },
	{ "[]", "index.json: is not a JSON object" },
	{ "{}", "index.json: \"weight_map\" is missing, empty or not an object" },
	{ "{\"weight_map\":{}}", "\"weight_map\" is missing, empty or not an object" },
	{ "{\"weight_map\":[\"one.safetensors\"]}", "\"weight_map\" is missing, empty or not an object" },
	{ "{\"weight_map\":{\"a\":null}}", "the file of tensor a is not a string" },
	{ "{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"two.safetensors\"}}", "duplicate object key" },
	{ "{\"weight_map\":{\"a\":\"three.safetensors\"}}",
	  "index.json: names the shard three.safetensors, which is missing" },
	{ "{\"weight_map\":{\"a\":\"../one.safetensors\"}}", "names the file \"../one.safetensors\", but must name" },
	{ "{\"weight_map\":{\"a\":\"/one.safetensors\"}}", "names the file \"/one.safetensors\", but must name" },
	{ "{\"weight_map\":{\"a\":\"x/../one.safetensors\"}}", "names the file \"x/../one.safetensors\", but must name" },
	{ "{\"weight_map\":{\"a\":\"..\\\\one.safetensors\"}}", "but must name .safetensors files in its own directory" },
	{ "{\"weight_map\":{\"a\":\"one\\n.safetensors\"}}", "names the file \"one?.safetensors\", but must name" },
	{ "{\"weight_map\":{\"a\":\"config.json\"}}", "names the file \"config.json\", but must name" },
	{ "{\"weight_map\":{\"a\":\"\"}}", "names the file \"\", but must name" },
	{ "{\"weight_map\":{\"a\":\"one.safetensors\",\"x\":\"two.safetensors\"}}",
	  "names tensor x, but two.safetensors does not hold it" },
	{ "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}",
	  "says that tensor b is in two.safetensors, but it is in " },
	{ "{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"again.safetensors\"}}",
	  "again.safetensors: tensor a is also in " },
	{ "{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"cut.safetensors\"}}",
	  "cut.safetensors: its header of 999 bytes" },
};

TEST(every_fault_of_an_index_is_one_sentence)
{
	struct test_dir dir;
	struct weights *w = NULL;
	test_dir_make(&dir);
	write_shards(&dir);
	test_write_safetensors(&dir, "again.safetensors",
			       "{" ENTRY("c", "F32", "[1]", 0, 4) "," ENTRY("a", "F32", "[1]", 4, 8) "}", 8);
	test_write(&dir, "cut.safetensors", "\xe7\x03\0\0\0\0\0\0{", 9);
	for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
		test_write(&dir, index_name, indexes[i].index, strlen(indexes[i].index));
		CHECK_ERR(weights_open(dir.path, &w), MODEL, indexes[i].sentence);
	}
	CU_ASSERT_PTR_NULL(w);
	test_dir_remove(&dir);
}

TEST(paths_without_a_model_are_refused)
{
	struct test_dir dir;
	struct weights *w;
	test_dir_make(&dir);
	CHECK_ERR(weights_open(dir.path, &w), MODEL,
		  "holds no model: expected model.safetensors, model.safetensors.index.json or");
	CHECK_ERR(weights_open_as(&weights_safetensors, dir.path, &w), MODEL,
		  "holds neither model.safetensors nor model.safe");
	CHECK_ERR(weights_open_as(&weights_gguf_format, dir.path, &w), MODEL, "holds no .gguf file; name the file itself");
	char longer[2000];
	memset(longer, '/', sizeof longer);
	memcpy(longer + sizeof longer - 5, "/tmp", 5);
	CHECK_ERR(weights_open_as(&weights_gguf_format, longer, &w), MODEL, "a model path of 1999 bytes is too long");
	CU_ASSERT_EQUAL(mkdir(test_path(&dir, "model.safetensors"), 0700), 0);
	CHECK_ERR(weights_open(dir.path, &w), MODEL, "model.safetensors: is not a regular file");
	CU_ASSERT_EQUAL(rmdir(test_path(&dir, "model.safetensors")), 0);
	CHECK_ERR(weights_open(test_path(&dir, "x.gguf"), &w), MODEL, "x.gguf: there is no such model directory or file");
	CHECK_ERR(weights_open(test_write(&dir, "x.bin", "pickle", 6), &w), MODEL,
		  "x.bin: is neither a .safetensors nor a .gguf file");
	test_write(&dir, "a.gguf", "GGUF", 4);
	CHECK_ERR(weights_open(dir.path, &w), MODEL, "a.gguf: truncated: has 4 bytes");
	test_write(&dir, "b.gguf", "GGUF", 4);
	CHECK_ERR(weights_open(dir.path, &w), MODEL, "holds more than one .gguf file; name the file itself");
	test_write_safetensors(&dir, "model.safetensors", "{" ENTRY("a", "F32", "[1]", 0, 4) "}", 4);
	CHECK_OK(weights_open(dir.path, &w));
	CU_ASSERT_STRING_EQUAL(weights_format_name(w), "safetensors");
	weights_close(w);
	test_dir_remove(&dir);
}

/* GGUF's tensor list. Each file: one or two tensors, then 256 bytes of data. */

struct gguf_case {
	const char *a, *b;                 /* names; b NULL: one tensor */
	uint32_t type, n_dims;
	uint64_t dims[4];                  /* innermost first; of both tensors */
	uint64_t a_offset, b_offset;
	const char *sentence;
};

static const struct gguf_case gguf_cases[] = {
	{ "t", NULL, 99, 1, { 4 }, 0, 0, "tensor t: has ggml type 99 (unknown), but only F32, F16," },
	{ "t", NULL, 20, 1, { 32 }, 0, 0, "tensor t: has ggml type 20 (IQ4_NL)" },
	{ "t", NULL, UINT32_MAX, 1, { 32 }, 0, 0, "tensor t: has ggml type 4294967295 (unknown)" },
	{ "t", NULL, 0, 2, { 4, 0 }, 0, 0, "tensor t: dimension 0 is 0, but must be at least 1" },
	{ "t", NULL, 0, 1, { 1ull << 63 }, 0, 0,
	  "tensor t: a dimension is 9223372036854775808, but must be 1 to 9223372036854775807" },
	{ "t", NULL, 0, 1, { UINT64_MAX }, 0, 0, "tensor t: a dimension is 18446744073709551615" },
	{ "t", NULL, 0, 3, { 1 << 30, 1 << 30, 1 << 30 }, 0, 0,
	  "tensor t: 1152921504606846976 x 1073741824 overflows 64 bits" },
	{ "t", NULL, 0, 2, { 1ull << 31, 1ull << 31 }, 0, 0, "tensor t: 4611686018427387904 x 4 overflows 64 bits" },
	{ "t", NULL, 2, 2, { 48, 2 }, 0, 0, "tensor t: rows of 48 items are not whole blocks of 32 (Q4_0)" },
	{ "t", NULL, 12, 1, { 128 }, 0, 0, "tensor t: rows of 128 items are not whole blocks of 256 (Q4_K)" },
	{ "t", NULL, 0, 1, { 4 }, 16, 0, "tensor t: its offset 16 is not a multiple of the alignment 32" },
	{ "t", NULL, 0, 1, { 4 }, 256, 0, "pass the end of the file" },
	{ "t", NULL, 0, 1, { 65 }, 0, 0, "pass the end of the file" },
	{ "t", NULL, 0, 1, { 4 }, UINT64_MAX - 31, 0, "overflows 64 bits" },
	{ "t", NULL, 0, 1, { 4 }, 1ull << 63, 0, "pass the end of the file" },
	{ "a", "b", 0, 1, { 16 }, 0, 32, "tensors a (bytes " },
	{ "a", "b", 0, 1, { 4 }, 64, 64, "overlap" },
	{ "a", "a", 0, 1, { 4 }, 0, 32, "tensor a is there twice" },
	{ "a", "a", 0, 1, { 4 }, 0, 0, "tensor a is there twice" },
	{ "", NULL, 0, 1, { 4 }, 0, 0, "a name of 0 bytes is empty" },
};

static void build_gguf_case(struct bytes *b, const struct gguf_case *c)
{
	put_gguf(b, 3, c->b ? 2 : 1, 0);
	put_tensor(b, c->a, c->n_dims, c->dims, c->type, c->a_offset);
	if (c->b)
		put_tensor(b, c->b, c->n_dims, c->dims, c->type, c->b_offset);
	put_padding(b, 32);
	put_zeros(b, 256);
}

TEST(every_fault_of_a_gguf_tensor_list_is_one_sentence)
{
	struct test_dir dir;
	struct bytes b = { 0 };
	struct weights *w = NULL;
	test_dir_make(&dir);
	for (size_t i = 0; i < sizeof gguf_cases / sizeof gguf_cases[0]; i++) {
		char want[200];
		build_gguf_case(&b, &gguf_cases[i]);
		const char *path = test_write(&dir, "bad.gguf", b.data, b.size);
		CHECK_ERR(weights_open(path, &w), MODEL, gguf_cases[i].sentence);
		snprintf(want, sizeof want, "%s: ", path);
		CU_ASSERT_EQUAL(strncmp(err_sentence(), want, strlen(want)), 0);
	}
	CU_ASSERT_PTR_NULL(w);
	build_gguf_case(&b, &(struct gguf_case){ "a", "b", 0, 1, { 8 }, 0, 224, NULL });   /* the last byte is b's */
	CHECK_OK(weights_open(test_write(&dir, "good.gguf", b.data, b.size), &w));
	weights_close(w);
	CHECK_OK(weights_open(test_write(&dir, "good", b.data, b.size), &w));   /* known by its magic */
	weights_close(w);
	CHECK_ERR(weights_open(test_write(&dir, "cut.gguf", b.data, b.size - 1), &w), MODEL,
		  "tensor b: bytes 320 + 32 pass the end");
	bytes_free(&b);
	test_dir_remove(&dir);
}

/* Split sets */

static void write_part(const struct test_dir *dir, const char *name, int no, int count, int total, const char *tensor)
{
	struct bytes b = { 0 };
	put_gguf(&b, 3, 1, 3);
	put_key(&b, "split.no", T_U16, (uint64_t)no, 2);
	put_key(&b, "split.count", T_U16, (uint64_t)count, 2);
	put_key(&b, "split.tensors.count", T_I32, (uint64_t)total, 4);
	put_tensor(&b, tensor, 1, (uint64_t[]){ 4 }, 0, 0);
	put_padding(&b, 32);
	put_zeros(&b, 16);
	test_write(dir, name, b.data, b.size);
	bytes_free(&b);
}

TEST(a_split_gguf_is_one_model)
{
	struct test_dir dir;
	struct weights *w;
	test_dir_make(&dir);
	write_part(&dir, "m-00001-of-00003.gguf", 0, 3, 3, "a");
	write_part(&dir, "m-00002-of-00003.gguf", 1, 3, 3, "b");
	char first[400];
	snprintf(first, sizeof first, "%s", test_path(&dir, "m-00001-of-00003.gguf"));
	CHECK_ERR(weights_open(first, &w), MODEL, "m-00003-of-00003.gguf: is missing: part 3 of a split of 3");
	write_part(&dir, "m-00003-of-00003.gguf", 2, 3, 3, "c");
	CHECK_OK(weights_open(first, &w));
	CU_ASSERT_EQUAL(weights_count(w), 3);
	CU_ASSERT(weights_find(w, "c") && weights_find(w, "c")->file == 2);
	weights_close(w);
	CHECK_OK(weights_open(dir.path, &w));   /* the directory holds one model */
	CU_ASSERT_EQUAL(weights_count(w), 3);
	weights_close(w);
	CHECK_ERR(weights_open(test_path(&dir, "m-00002-of-00003.gguf"), &w), MODEL,
		  "is part 2 of a split of 3; name the first part");
	write_part(&dir, "m-00002-of-00003.gguf", 2, 3, 3, "b");
	CHECK_ERR(weights_open(first, &w), MODEL, "says that it is part 3 of 3, but its name says part 2 of 3");
	write_part(&dir, "m-00002-of-00003.gguf", 1, 3, 3, "c");
	CHECK_ERR(weights_open(first, &w), MODEL, "tensor c is also in");
	write_part(&dir, "m-00002-of-00003.gguf", 1, 3, 3, "b");
	write_part(&dir, "m-00001-of-00003.gguf", 0, 3, 4, "a");
	CHECK_ERR(weights_open(first, &w), MODEL, "split.tensors.count is 4, but the parts hold 3 tensors");
	write_part(&dir, "other.gguf", 0, 3, 3, "a");
	CHECK_ERR(weights_open(test_path(&dir, "other.gguf"), &w), MODEL, "its name must end in -00001-of-00003.gguf");
	test_dir_empty(&dir);
	write_part(&dir, "m-00002-of-00003.gguf", 1, 3, 3, "b");
	CHECK_ERR(weights_open(dir.path, &w), MODEL,
		  "m-00002-of-00003.gguf: is part 2 of a split of 3; name the first part");
	test_dir_remove(&dir);
}

/* Counting, and memory that runs out */

TEST(bytes_are_counted)
{
	struct test_dir dir;
	struct weights *w;
	struct stat st;
	char raw[8];
	static const char index[] = "{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}}";
	test_dir_make(&dir);
	write_shards(&dir);
	test_write(&dir, index_name, index, strlen(index));
	CHECK_OK(weights_open(dir.path, &w));
	uint64_t headers_bytes = strlen(index);
	CU_ASSERT_EQUAL(stat(test_path(&dir, "one.safetensors"), &st), 0);
	headers_bytes += (uint64_t)st.st_size - 8;
	CU_ASSERT_EQUAL(stat(test_path(&dir, "two.safetensors"), &st), 0);
	headers_bytes += (uint64_t)st.st_size - 6;
	CU_ASSERT_EQUAL(weights_header_bytes(w), headers_bytes);
	CU_ASSERT_EQUAL(weights_read_bytes(w), 0);
	CHECK_OK(weights_read(w, weights_find(w, "c"), 2, raw, 4));
	CHECK_OK(weights_read(w, weights_find(w, "a"), 4, raw, 0));
	CU_ASSERT_EQUAL(weights_read_bytes(w), 4);
	CHECK_ERR(weights_read(w, weights_find(w, "c"), 3, raw, 4), BUG, "tensor c: bytes 3 + 4 asked of 6");
	CHECK_ERR(weights_read(w, weights_find(w, "c"), UINT64_MAX, raw, 4), BUG, "tensor c");
	CU_ASSERT_EQUAL(weights_read_bytes(w), 4);
	CU_ASSERT_EQUAL(truncate(test_path(&dir, "two.safetensors"), 20), 0);
	CHECK_ERR(weights_read(w, weights_find(w, "c"), 0, raw, 6), IO, "the file became shorter");
	weights_close(w);
	CHECK_OK(weights_open(golden_path("small.gguf"), &w));
	CU_ASSERT_EQUAL(stat(golden_path("small.gguf"), &st), 0);
	CU_ASSERT_EQUAL(weights_header_bytes(w), st.st_size);   /* the first read takes all of a small file */
	weights_close(w);
	test_dir_remove(&dir);
}

static void fail_each_allocation(const char *path)
{
	struct weights *w;
	enum err e = ERR_MEMORY;
	int n = 0;
	while (e && n < 1000) {
		mem_fail_at(++n);
		e = weights_open(path, &w);
		mem_fail_at(0);
		CU_ASSERT(!e || e == ERR_MEMORY);
	}
	CU_ASSERT(n > 5 && n < 1000);
	if (!e)
		weights_close(w);
}

TEST(every_allocation_may_fail)
{
	struct test_dir dir;
	static const char index[] = "{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}}";
	test_dir_make(&dir);
	write_shards(&dir);
	test_write(&dir, index_name, index, strlen(index));
	fail_each_allocation(dir.path);
	fail_each_allocation(golden_path("small.gguf"));
	fail_each_allocation(golden_path("small.safetensors"));
	write_part(&dir, "m-00001-of-00002.gguf", 0, 2, 2, "a");
	write_part(&dir, "m-00002-of-00002.gguf", 1, 2, 2, "b");
	fail_each_allocation(test_path(&dir, "m-00001-of-00002.gguf"));
	test_dir_remove(&dir);
}

TEST_MAIN("weights", CASE(safetensors_come_back_as_their_package_wrote_them),
	  CASE(gguf_tensors_come_back_as_their_package_wrote_them),
	  CASE(every_fault_of_a_safetensors_header_is_one_sentence),
	  CASE(a_safetensors_file_shorter_than_it_says_is_refused), CASE(an_index_opens_its_shards),
	  CASE(every_fault_of_an_index_is_one_sentence), CASE(paths_without_a_model_are_refused),
	  CASE(every_fault_of_a_gguf_tensor_list_is_one_sentence), CASE(a_split_gguf_is_one_model), CASE(bytes_are_counted),
	  CASE(every_allocation_may_fail))
