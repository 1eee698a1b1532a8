/* labels: unit
 * Every weight type means what the `gguf` package says it means, bit for bit (tests/golden/make_wtypes.py); f16 and bf16
 * are checked over all their values against their definition. */
#include "base/file.h"
#include "base/mem.h"
#include "runtime/printable.h"
#include "runtime/wtype.h"
#include "tests/test.h"

#include <math.h>

static uint32_t bits(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return u;
}

static float from_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static int same(float a, float b) { return bits(a) == bits(b) || (isnan(a) && isnan(b)); }

/* Widens from and to odd addresses: rows in a file or a buffer need not be aligned. */
static void check_type(const struct wtype_info *t)
{
	char path[1024];
	struct bytes blocks = { 0 }, want = { 0 };
	unsigned char *odd;
	float *got;
	int wrong = 0;
	snprintf(path, sizeof path, "%s/tests/golden/wtypes/%s.bin", SOURCE_DIR, t->name);
	CHECK_OK(file_read_all(path, 1 << 20, &blocks));
	snprintf(path, sizeof path, "%s/tests/golden/wtypes/%s.f32", SOURCE_DIR, t->name);
	CHECK_OK(file_read_all(path, 1 << 20, &want));
	int64_t n = (int64_t)want.size / 4;
	CU_ASSERT_EQUAL(n, 2048);
	CU_ASSERT_EQUAL((int64_t)blocks.size, wtype_row_bytes((enum wtype)(t - wtypes), n));
	CHECK_OK(mem_alloc(blocks.size + 1, 1, "blocks", &odd));
	CHECK_OK(MEM_NEW((size_t)n + 1, float, &got));
	memcpy(odd + 1, blocks.data, blocks.size);
	got[n] = 12345;
	t->widen(odd + 1, got, n);
	for (int64_t i = 0; i < n; i++) {
		float w;
		memcpy(&w, want.data + 4 * i, 4);
		wrong += !same(w, got[i]);
	}
	if (wrong)
		fprintf(stderr, "%s: %d of %d items differ\n", t->name, wrong, (int)n);
	CU_ASSERT_EQUAL(wrong, 0);
	CU_ASSERT_EQUAL(got[n], 12345);   /* nothing is written past the end */
	mem_free(odd);
	mem_free(got);
	bytes_free(&blocks);
	bytes_free(&want);
}

TEST(every_type_means_what_the_gguf_package_says)
{
	for (int t = 0; t < WTYPE_COUNT; t++)
		check_type(&wtypes[t]);
}

/* One row at a time or all at once: the same bits. */
TEST(blocks_do_not_depend_on_each_other)
{
	for (int t = 0; t < WTYPE_COUNT; t++) {
		unsigned char blocks[8 * 256];
		float all[4 * 256], one[256];
		for (size_t i = 0; i < sizeof blocks; i++)
			blocks[i] = (unsigned char)(i * 37 + i / 7);
		wtypes[t].widen(blocks, all, 4 * wtypes[t].block);
		for (int b = 0; b < 4; b++) {
			wtypes[t].widen(blocks + b * wtypes[t].block_bytes, one, wtypes[t].block);
			CU_ASSERT_EQUAL(memcmp(one, all + b * wtypes[t].block, (size_t)wtypes[t].block * 4), 0);
		}
	}
}

/* IEEE 754 binary16: sign, five bits of exponent with bias 15, ten of mantissa. */
static float f16_by_definition(uint32_t h)
{
	int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
	float x = exponent == 31 ? (mantissa ? NAN : INFINITY)
		: exponent ? ldexpf((float)(1024 + mantissa), exponent - 25) : ldexpf((float)mantissa, -24);
	return h >> 15 ? -x : x;
}

TEST(all_f16_values_widen_and_come_back)
{
	int wrong = 0;
	for (uint32_t h = 0; h < 65536; h++) {
		float x = wtype_f16_to_f32((uint16_t)h);
		wrong += !same(x, f16_by_definition(h));
		if (isnan(x))
			wrong += !isnan(wtype_f16_to_f32(wtype_f32_to_f16(x)));
		else
			wrong += wtype_f32_to_f16(x) != h;
	}
	CU_ASSERT_EQUAL(wrong, 0);
}

/* Between two neighbours everything below the middle goes down, above it up, and the middle to the even one. */
TEST(f16_rounds_to_nearest_even)
{
	int wrong = 0;
	for (uint32_t h = 0; h < 0x7c00; h++) {
		float low = f16_by_definition(h), high = h == 0x7bff ? 65536.0f : f16_by_definition(h + 1);
		float middle = (low + high) / 2;   /* exact: one bit more than f16 has */
		uint32_t even = h & 1 ? h + 1 : h;
		wrong += wtype_f32_to_f16(middle) != even;
		wrong += wtype_f32_to_f16(-middle) != (even | 0x8000);
		wrong += wtype_f32_to_f16(from_bits(bits(middle) - 1)) != h;
		wrong += wtype_f32_to_f16(from_bits(bits(middle) + 1)) != h + 1;
	}
	CU_ASSERT_EQUAL(wrong, 0);
	CU_ASSERT_EQUAL(wtype_f32_to_f16(1e30f), 0x7c00);
	CU_ASSERT_EQUAL(wtype_f32_to_f16(from_bits(1)), 0);            /* the smallest float */
	CU_ASSERT_EQUAL(wtype_f32_to_f16(from_bits(0x7f800001)) & 0x7e00, 0x7e00);   /* a NaN with a low payload stays one */
}

TEST(bf16_rounds_to_nearest_even)
{
	int wrong = 0;
	for (uint32_t h = 0; h < 65536; h++) {
		float x = wtype_bf16_to_f32((uint16_t)h);
		CU_ASSERT_EQUAL_FATAL(bits(x), h << 16);
		if (isnan(x)) {
			wrong += !isnan(wtype_bf16_to_f32(wtype_f32_to_bf16(x)));
			wrong += !isnan(wtype_bf16_to_f32(wtype_f32_to_bf16(from_bits(bits(x) | 0xffff))));
			continue;
		}
		uint32_t next = h + 1;   /* away from zero; of the largest: infinity */
		wrong += wtype_f32_to_bf16(x) != h;
		if (isinf(x))
			continue;
		wrong += wtype_f32_to_bf16(from_bits(h << 16 | 0x7fff)) != h;
		wrong += wtype_f32_to_bf16(from_bits(h << 16 | 0x8000)) != (h & 1 ? next : h);
		wrong += wtype_f32_to_bf16(from_bits(h << 16 | 0x8001)) != next;
	}
	CU_ASSERT_EQUAL(wrong, 0);
	CU_ASSERT(isnan(wtype_bf16_to_f32(wtype_f32_to_bf16(from_bits(0x7f800001)))));
}

TEST(hostile_text_becomes_one_short_line)
{
	char room[PRINTABLE_BYTES], longer[500];
	CU_ASSERT_STRING_EQUAL(printable(room, "a\n\x1b[31m\xff", 8), "a??[31m?");
	CU_ASSERT_STRING_EQUAL(printable(room, "", 0), "");
	memset(longer, 'x', sizeof longer);
	printable(room, longer, sizeof longer);
	CU_ASSERT_EQUAL(strlen(room), PRINTABLE_BYTES - 1);
	CU_ASSERT_STRING_EQUAL(room + PRINTABLE_BYTES - 5, "x...");
	printable(room, longer, PRINTABLE_BYTES - 1);
	CU_ASSERT_STRING_EQUAL(room + PRINTABLE_BYTES - 5, "xxxx");
}

TEST_MAIN("wtype", CASE(every_type_means_what_the_gguf_package_says), CASE(blocks_do_not_depend_on_each_other),
	  CASE(all_f16_values_widen_and_come_back), CASE(f16_rounds_to_nearest_even), CASE(bf16_rounds_to_nearest_even),
	  CASE(hostile_text_becomes_one_short_line))
