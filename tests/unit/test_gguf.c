/* labels: unit
 * GGUF metadata: every type comes back as the gguf package wrote it (tests/golden/make_weights.py), every fault is one
 * sentence, a large vocabulary is read in bulk. */
#include "base/clock.h"
#include "base/mem.h"
#include "runtime/gguf.h"
#include "tests/files.h"
#include "tests/test.h"

static const char golden[] = SOURCE_DIR "/tests/golden/weights/small.gguf";
static const uint64_t one_dim[] = { 4 };

static int text_is(struct gguf_string s, const char *want)
{
	return s.bytes == strlen(want) && !memcmp(s.text, want, s.bytes);
}

TEST(every_type_comes_back_as_the_gguf_package_wrote_it)
{
	struct gguf *g;
	struct gguf_string s;
	int64_t n;
	double x;
	int yes;
	const struct { const char *key; int64_t value; } ints[] = {
		{ "t.u8", 200 }, { "t.i8", -100 }, { "t.u16", 60000 }, { "t.i16", -30000 }, { "t.u32", 4000000000 },
		{ "t.i32", -2000000000 }, { "t.i64", -((int64_t)1 << 62) },
	};
	CHECK_OK(gguf_open(golden, &g));
	CU_ASSERT_STRING_EQUAL(gguf_path(g), golden);
	for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
		CHECK_OK(gguf_int(g, ints[i].key, INT64_MIN, INT64_MAX, &n));
		CU_ASSERT_EQUAL(n, ints[i].value);
	}
	CHECK_ERR(gguf_int(g, "t.u64", 0, INT64_MAX, &n), MODEL,
		  "small.gguf: key t.u64 is 9223372036854775809, but must be 0 to");
	CHECK_OK(gguf_real(g, "t.f32", &x));
	CU_ASSERT_EQUAL(x, (double)0.1f);
	CHECK_OK(gguf_real(g, "t.f64", &x));
	CU_ASSERT_EQUAL(x, 0.1);
	CHECK_OK(gguf_bool_or(g, "t.bool", 0, &yes));
	CU_ASSERT_EQUAL(yes, 1);
	CHECK_OK(gguf_string(g, "general.architecture", &s));
	CU_ASSERT(text_is(s, "llama"));
	CHECK_OK(gguf_string(g, "t.text", &s));
	CU_ASSERT(text_is(s, "plain"));
	gguf_close(g);
}

TEST(arrays_come_back)
{
	struct gguf *g;
	const struct gguf_string *strings;
	const int32_t *ints;
	const float *reals;
	uint64_t n;
	CHECK_OK(gguf_open(golden, &g));
	CHECK_OK(gguf_strings(g, "t.strings", &strings, &n));
	CU_ASSERT_EQUAL_FATAL(n, 4);
	CU_ASSERT(text_is(strings[0], "a") && text_is(strings[1], "") && text_is(strings[2], "Stra\xc3\x9f" "e") &&
		  text_is(strings[3], "\n"));
	CHECK_OK(gguf_ints(g, "t.ints", &ints, &n));
	CU_ASSERT_EQUAL_FATAL(n, 3);
	CU_ASSERT(ints[0] == 1 && ints[1] == -2 && ints[2] == INT32_MAX);
	CHECK_OK(gguf_ints(g, "t.bools", &ints, &n));
	CU_ASSERT(n == 2 && ints[0] == 1 && ints[1] == 0);
	CHECK_OK(gguf_reals(g, "t.reals", &reals, &n));
	CU_ASSERT(n == 2 && reals[0] == 0.5f && reals[1] == -0.25f);
	gguf_close(g);
}

TEST(tensors_are_listed_as_they_stand)
{
	struct gguf *g;
	CHECK_OK(gguf_open(golden, &g));
	CU_ASSERT_EQUAL_FATAL(gguf_tensor_count(g), 4);
	struct gguf_tensor t = gguf_tensor_at(g, 2);
	CU_ASSERT(text_is(t.name, "quantised"));
	CU_ASSERT(t.n_dims == 2 && t.dims[0] == 64 && t.dims[1] == 2 && t.type == 2);
	CU_ASSERT_EQUAL(gguf_alignment(g), 64);
	CU_ASSERT_EQUAL(gguf_data_offset(g) % 64, 0);
	gguf_close(g);
}

TEST(absent_keys_and_wrong_types_are_named)
{
	struct gguf *g;
	struct gguf_string s;
	const struct gguf_string *strings;
	const int32_t *ints;
	const float *reals;
	int64_t n;
	uint64_t count;
	double x;
	int yes;
	CHECK_OK(gguf_open(golden, &g));
	CU_ASSERT(gguf_has(g, "t.u8") && !gguf_has(g, "t.u") && !gguf_has(g, "t.u88") && !gguf_has(g, ""));
	CHECK_ERR(gguf_int(g, "none", 0, 1, &n), MODEL, "small.gguf: key none is missing");
	CHECK_ERR(gguf_string(g, "none", &s), MODEL, "key none is missing");
	CHECK_ERR(gguf_strings(g, "none", &strings, &count), MODEL, "key none is missing");
	CHECK_ERR(gguf_int(g, "t.f32", 0, 1, &n), MODEL, "key t.f32 is FLOAT32, but must be an integer");
	CHECK_ERR(gguf_int(g, "t.bool", 0, 1, &n), MODEL, "key t.bool is BOOL, but must be an integer");
	CHECK_ERR(gguf_int(g, "t.ints", 0, 1, &n), MODEL, "key t.ints is an array of INT32, but must be an integer");
	CHECK_ERR(gguf_int_or(g, "t.text", 0, 1, 0, &n), MODEL, "key t.text is STRING, but must be an integer");
	CHECK_ERR(gguf_int(g, "t.u8", 0, 199, &n), MODEL, "key t.u8 is 200, but must be 0 to 199");
	CHECK_ERR(gguf_int(g, "t.i8", 0, 199, &n), MODEL, "key t.i8 is -100, but must be 0 to 199");
	CHECK_ERR(gguf_real(g, "t.u8", &x), MODEL, "key t.u8 is UINT8, but must be FLOAT32 or FLOAT64");
	CHECK_ERR(gguf_real_or(g, "t.text", 0, &x), MODEL, "key t.text is STRING");
	CHECK_ERR(gguf_bool_or(g, "t.u8", 0, &yes), MODEL, "key t.u8 is UINT8, but must be BOOL");
	CHECK_ERR(gguf_string(g, "t.u8", &s), MODEL, "key t.u8 is UINT8, but must be STRING");
	CHECK_ERR(gguf_strings(g, "t.ints", &strings, &count), MODEL,
		  "is an array of INT32, but must be an array of STRING");
	CHECK_ERR(gguf_ints(g, "t.strings", &ints, &count), MODEL,
		  "is an array of STRING, but must be an array of integers");
	CHECK_ERR(gguf_ints(g, "t.reals", &ints, &count), MODEL, "is an array of FLOAT32, but must be an array of integers");
	CHECK_ERR(gguf_reals(g, "t.ints", &reals, &count), MODEL, "is an array of INT32, but must be an array of FLOAT32");
	CHECK_OK(gguf_int_or(g, "none", 0, 1, 77, &n));
	CHECK_OK(gguf_real_or(g, "none", 1.5, &x));
	CHECK_OK(gguf_bool_or(g, "none", 1, &yes));
	CU_ASSERT(n == 77 && x == 1.5 && yes == 1);
	gguf_close(g);
}

/* One file per fault. */

static void unknown_type(struct bytes *b) { put_gguf(b, 3, 0, 1), put_key(b, "k", 13, 0, 8); }
static void unknown_item_type(struct bytes *b) { put_gguf(b, 3, 0, 1), put_array(b, "k", 99, 1), put_zeros(b, 8); }
static void nested(struct bytes *b) { put_gguf(b, 3, 0, 1), put_array(b, "k", T_ARRAY, 1), put_zeros(b, 64); }
static void no_magic(struct bytes *b) { put_gguf(b, 3, 0, 0), b->data[3] = 'g'; }
static void version_1(struct bytes *b) { put_gguf(b, 1, 0, 0); }
static void version_4(struct bytes *b) { put_gguf(b, 4, 0, 0); }
static void big_endian(struct bytes *b) { put_gguf(b, 0x03000000, 0, 0); }
static void empty(struct bytes *b) { bytes_clear(b); }
static void many_tensors(struct bytes *b) { put_gguf(b, 3, 1ull << 62, 0); }
static void negative_tensors(struct bytes *b) { put_gguf(b, 3, UINT64_MAX, 0); }
static void negative_keys(struct bytes *b) { put_gguf(b, 3, 0, UINT64_MAX); }
static void one_key_too_many(struct bytes *b) { put_gguf(b, 3, 0, 2), put_key(b, "key", T_STRING, 8, 8), put_zeros(b, 8); }

static void long_key(struct bytes *b) { put_gguf(b, 3, 0, 1), put_le(b, UINT64_MAX, 8), put_zeros(b, 20); }
static void wrapping_key(struct bytes *b) { put_gguf(b, 3, 0, 1), put_le(b, UINT64_MAX - 31, 8), put_zeros(b, 20); }
static void empty_key(struct bytes *b) { put_gguf(b, 3, 0, 1), put_key(b, "", T_U64, 1, 8); }
static void huge_key(struct bytes *b)
{
	put_gguf(b, 3, 0, 1), put_le(b, 65536, 8), put_zeros(b, 65536 + 4 + 1);
}
static void long_value(struct bytes *b)
{
	put_gguf(b, 3, 0, 1), put_key(b, "k", T_STRING, UINT64_MAX - 7, 8), put_zeros(b, 9);
}
static void long_item(struct bytes *b)
{
	put_gguf(b, 3, 0, 1), put_array(b, "k", T_STRING, 1), put_le(b, UINT64_MAX - 40, 8), put_zeros(b, 9);
}
static void many_strings(struct bytes *b) { put_gguf(b, 3, 0, 1), put_array(b, "k", T_STRING, 1ull << 61), put_zeros(b, 9); }
static void many_numbers(struct bytes *b)
{
	put_gguf(b, 3, 0, 1), put_array(b, "k", T_U64, (1ull << 61) + 1), put_zeros(b, 9);
}
static void more_numbers(struct bytes *b) { put_gguf(b, 3, 0, 1), put_array(b, "k", T_U8, 10), put_zeros(b, 9); }
static void twice(struct bytes *b)
{
	put_gguf(b, 3, 0, 3), put_key(b, "k\n", T_U8, 1, 1), put_key(b, "k", T_U8, 1, 1), put_key(b, "k\n", T_I8, 1, 1);
}
static void alignment_0(struct bytes *b) { put_gguf(b, 3, 0, 1), put_key(b, "general.alignment", T_U32, 0, 4); }
static void alignment_24(struct bytes *b) { put_gguf(b, 3, 0, 1), put_key(b, "general.alignment", T_U32, 24, 4); }
static void alignment_2_31(struct bytes *b) { put_gguf(b, 3, 0, 1), put_key(b, "general.alignment", T_U32, 1u << 31, 4); }
static void alignment_u64(struct bytes *b) { put_gguf(b, 3, 0, 1), put_key(b, "general.alignment", T_U64, 32, 8); }
static void tensor_0_dims(struct bytes *b) { put_gguf(b, 3, 1, 0), put_tensor(b, "t", 0, NULL, 0, 0), put_zeros(b, 64); }
static void tensor_5_dims(struct bytes *b)
{
	put_gguf(b, 3, 1, 0), put_tensor(b, "t", 5, (uint64_t[]){ 1, 1, 1, 1, 1 }, 0, 0), put_zeros(b, 64);
}
static void tensor_long_name(struct bytes *b) { put_gguf(b, 3, 1, 0), put_le(b, UINT64_MAX, 8), put_zeros(b, 64); }

static const struct fault { void (*build)(struct bytes *b); const char *sentence; } faults[] = {
	{ unknown_type, "key k has the unknown value type 13" },
	{ unknown_item_type, "key k has the unknown value type 99" },
	{ nested, "key k is an array of arrays, which is not supported" },
	{ no_magic, "does not begin with \"GGUF\"" },
	{ version_1, "is GGUF version 1, only 2 and 3 are supported" },
	{ version_4, "is GGUF version 4" },
	{ big_endian, "is big endian (version 0x03000000)" },
	{ empty, "truncated: has 0 bytes, too few for a GGUF file" },
	{ many_tensors, "claims 4611686018427387904 tensors, more than its 24 bytes have room for" },
	{ negative_tensors, "claims 18446744073709551615 tensors" },
	{ negative_keys, "claims 18446744073709551615 keys" },
	{ one_key_too_many, "truncated: a key at byte 55 needs 8 bytes, but the file has 55" },
	{ long_key, "truncated: a key at byte 32 needs 18446744073709551615 bytes, but the file has 52" },
	{ wrapping_key, "truncated: a key at byte 32 needs 18446744073709551584 bytes" },
	{ empty_key, "has 0 bytes, but must have 1 to 65535" },
	{ huge_key, "has 65536 bytes, but must have 1 to 65535" },
	{ long_value, "truncated: a string at byte 45 needs 18446744073709551608 bytes" },
	{ long_item, "truncated: a string of an array at byte 57 needs 18446744073709551575 bytes" },
	{ many_strings, "key k claims 2305843009213693952 strings, more than the file has room for" },
	{ many_numbers, "key k claims 2305843009213693953 items of UINT64, more than the file has room for" },
	{ more_numbers, "key k claims 10 items of UINT8, more than the file has room for" },
	{ twice, "key k? is there twice" },
	{ alignment_0, "general.alignment is 0, but must be a power of two" },
	{ alignment_24, "general.alignment is 24, but must be a power of two" },
	{ alignment_2_31, "general.alignment is 2147483648, but must be a power of two, at most 1048576" },
	{ alignment_u64, "general.alignment is UINT64, but must be UINT32" },
	{ tensor_0_dims, "tensor t has 0 dimensions, but must have 1 to 4" },
	{ tensor_5_dims, "tensor t has 5 dimensions, but must have 1 to 4" },
	{ tensor_long_name, "truncated: a tensor's name at byte 32 needs 18446744073709551615 bytes" },
};

TEST(every_fault_is_one_sentence)
{
	struct test_dir dir;
	struct bytes b = { 0 };
	struct gguf *g = NULL;
	test_dir_make(&dir);
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		char want[200];
		faults[i].build(&b);
		const char *path = test_write(&dir, "bad.gguf", b.data, b.size);
		CHECK_ERR(gguf_open(path, &g), MODEL, faults[i].sentence);
		snprintf(want, sizeof want, "%s: ", path);
		CU_ASSERT_EQUAL(strncmp(err_sentence(), want, strlen(want)), 0);   /* the file is named first */
	}
	CHECK_ERR(gguf_open(test_path(&dir, "none.gguf"), &g), MODEL, "none.gguf: cannot be opened");
	CHECK_ERR(gguf_open(dir.path, &g), MODEL, "is not a regular file");
	CU_ASSERT_PTR_NULL(g);
	bytes_free(&b);
	test_dir_remove(&dir);
}

/* Metadata and tensor list of a small file with something of every kind. */
static void build_small(struct bytes *b)
{
	put_gguf(b, 2, 2, 5);
	put_key(b, "a.bool", T_BOOL, 7, 1);
	put_key(b, "a.string", T_STRING, 3, 8), bytes_put(b, "xyz", 3);
	put_array(b, "a.strings", T_STRING, 2), put_text(b, "one"), put_text(b, "two");
	put_array(b, "a.u32", T_U32, 2), put_le(b, 1, 4), put_le(b, UINT32_MAX, 4);
	put_array(b, "a.f64", T_F64, 1), put_le(b, 0x7fe0000000000000, 8);   /* 2^1023 */
	put_tensor(b, "t1", 1, one_dim, 0, 0);
	put_tensor(b, "t2", 1, one_dim, 0, 32);
}

TEST(every_truncation_is_refused)
{
	struct test_dir dir;
	struct bytes b = { 0 };
	struct gguf *g;
	test_dir_make(&dir);
	build_small(&b);
	for (size_t cut = 0; cut < b.size; cut++) {
		CU_ASSERT_EQUAL(gguf_open(test_write(&dir, "cut.gguf", b.data, cut), &g), ERR_MODEL);
		CU_ASSERT(strstr(err_sentence(), "truncated: ") || strstr(err_sentence(), "room for"));
	}
	CHECK_OK(gguf_open(test_write(&dir, "cut.gguf", b.data, b.size), &g));
	gguf_close(g);
	bytes_free(&b);
	test_dir_remove(&dir);
}

TEST(values_that_do_not_fit_are_refused_when_asked_for)
{
	struct test_dir dir;
	struct bytes b = { 0 };
	struct gguf *g;
	const int32_t *ints;
	const float *reals;
	uint64_t n;
	int yes;
	test_dir_make(&dir);
	build_small(&b);
	CHECK_OK(gguf_open(test_write(&dir, "small.gguf", b.data, b.size), &g));
	CHECK_ERR(gguf_bool_or(g, "a.bool", 0, &yes), MODEL, "key a.bool is the boolean 7, but must be 0 or 1");
	CHECK_ERR(gguf_ints(g, "a.u32", &ints, &n), MODEL, "key a.u32 holds a number that does not fit 32 bits");
	CHECK_ERR(gguf_reals(g, "a.f64", &reals, &n), MODEL, "key a.f64 holds a number that does not fit a float");
	gguf_close(g);
	bytes_free(&b);
	test_dir_remove(&dir);
}

/* A sparse file of 4 GiB whose only key claims 2 GiB: must not be read to learn that it is wrong. */
TEST(a_header_over_1_gib_is_refused_before_it_is_read)
{
	struct test_dir dir;
	struct bytes b = { 0 };
	struct gguf *g;
	test_dir_make(&dir);
	put_gguf(&b, 3, 0, 1);
	put_key(&b, "k", T_STRING, 2ull << 30, 8);
	const char *path = test_write(&dir, "sparse.gguf", b.data, b.size);
	CU_ASSERT_EQUAL_FATAL(truncate(path, (off_t)4 << 30), 0);
	CHECK_ERR(gguf_open(path, &g), MODEL, "its header is longer than the 1073741824 bytes allowed");
	bytes_free(&b);
	test_dir_remove(&dir);
}

/* 300,000 tokens with scores and types, 300,000 merges. Strings share one buffer; reads double, so at most twice the
 * header plus the first read is read, and it takes milliseconds. */
TEST(a_large_vocabulary_is_read_in_bulk)
{
	enum { N = 300000 };
	struct test_dir dir;
	struct bytes b = { 0 };
	struct gguf *g;
	const struct gguf_string *tokens, *merges;
	char text[32];
	uint64_t n;
	test_dir_make(&dir);
	put_gguf(&b, 3, 0, 3);
	put_array(&b, "tokenizer.ggml.tokens", T_STRING, N);
	for (int i = 0; i < N; i++)
		snprintf(text, sizeof text, "token%d", i), put_text(&b, text);
	put_array(&b, "tokenizer.ggml.token_type", T_I32, N), put_zeros(&b, 4 * N);
	put_array(&b, "tokenizer.ggml.merges", T_STRING, N);
	for (int i = 0; i < N; i++)
		snprintf(text, sizeof text, "a %d", i), put_text(&b, text);
	const char *path = test_write(&dir, "large.gguf", b.data, b.size);
	long long start = clock_us();
	CHECK_OK(gguf_open(path, &g));
	CU_ASSERT(clock_us() - start < 2000000);   /* some 10 ms; one system call per string would take longer under asan */
	CHECK_OK(gguf_strings(g, "tokenizer.ggml.tokens", &tokens, &n));
	CU_ASSERT(n == N && text_is(tokens[0], "token0") && text_is(tokens[N - 1], "token299999"));
	CHECK_OK(gguf_strings(g, "tokenizer.ggml.merges", &merges, &n));
	CU_ASSERT(n == N && text_is(merges[N - 1], "a 299999"));
	CU_ASSERT_EQUAL(gguf_read_bytes(g), b.size);   /* nothing twice, and no further than the file goes */
	gguf_close(g);
	bytes_free(&b);
	test_dir_remove(&dir);
}

TEST(every_allocation_may_fail)
{
	struct gguf *g;
	enum err e = ERR_MEMORY;
	int n = 0;
	while (e && n < 1000) {
		mem_fail_at(++n);
		e = gguf_open(golden, &g);
		mem_fail_at(0);
		CU_ASSERT(!e || e == ERR_MEMORY);
	}
	CU_ASSERT(n > 5 && n < 1000);
	if (!e)
		gguf_close(g);
}

TEST_MAIN("gguf", CASE(every_type_comes_back_as_the_gguf_package_wrote_it), CASE(arrays_come_back),
	  CASE(tensors_are_listed_as_they_stand), CASE(absent_keys_and_wrong_types_are_named),
	  CASE(every_fault_is_one_sentence), CASE(every_truncation_is_refused),
	  CASE(values_that_do_not_fit_are_refused_when_asked_for), CASE(a_header_over_1_gib_is_refused_before_it_is_read),
	  CASE(a_large_vocabulary_is_read_in_bulk), CASE(every_allocation_may_fail))
