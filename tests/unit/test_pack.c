/* labels: unit
 * Packed weights hold the file's numbers exactly: every row comes back with the bits of the plain widening, in whatever
 * pieces it was written; panels are padded with zeros; sizes are those of the layout in pack.h. */
#include "runtime/pack.h"
#include "tests/kernel_data.h"
#include "tests/test.h"

static struct weight packed_room(const struct weight *w)
{
	struct weight to = *w;
	to.form = pack_form_of(w->type);
	to.data = aligned_alloc(64, (size_t)pack_bytes(w->type, w->rows, w->cols));
	CU_ASSERT_PTR_NOT_NULL_FATAL(to.data);
	memset(to.data, 0xee, (size_t)pack_bytes(w->type, w->rows, w->cols));
	return to;
}

static void check_rows(const struct weight *raw, const struct weight *packed)
{
	float *want = room((size_t)raw->cols * 4), *got = room((size_t)raw->cols * 4);
	for (int64_t r = 0; r < raw->rows; r++) {
		wtypes[raw->type].widen(raw->data + r * raw->row_bytes, want, raw->cols);
		pack_widen_row(packed, r, got);
		CU_ASSERT(same_bits(want, got, raw->cols));
		FOR_TABLES(k) {
			memset(got, 0, (size_t)raw->cols * 4);
			k->widen_row(packed, r, got);
			CU_ASSERT(same_bits(want, got, raw->cols));
		}
	}
	free(want), free(got);
}

TEST(a_packed_row_comes_back_with_its_bits)
{
	for (int type = 0; type < WTYPE_COUNT; type++)
		for (int round = 0; round < 20 && pack_form_of((enum wtype)type) != PACK_ROWS; round++) {
			int64_t block = wtypes[type].block, cols = block * (1 + random_below(block == 32 ? 9 : block == 1 ? 70 : 3));
			struct weight raw = random_weight((enum wtype)type, 1 + random_below(40), cols);
			struct weight packed = packed_room(&raw);
			pack_rows(&packed, 0, raw.rows, raw.data);
			check_rows(&raw, &packed);
			free(raw.data), free(packed.data);
		}
}

TEST(rows_may_be_written_in_pieces_and_in_any_order)
{
	for (int type = 0; type < WTYPE_COUNT; type++) {
		if (pack_form_of((enum wtype)type) == PACK_ROWS)
			continue;
		struct weight raw = random_weight((enum wtype)type, 37, wtypes[type].block * (wtypes[type].block == 1 ? 7 : 2));
		struct weight whole = packed_room(&raw), pieces = packed_room(&raw);
		pack_rows(&whole, 0, 37, raw.data);
		pack_rows(&pieces, 20, 17, raw.data + 20 * raw.row_bytes);
		pack_rows(&pieces, 0, 3, raw.data);
		pack_rows(&pieces, 3, 17, raw.data + 3 * raw.row_bytes);
		pack_rows(&pieces, 37, 0, raw.data);
		CU_ASSERT(!memcmp(whole.data, pieces.data, (size_t)pack_bytes(raw.type, raw.rows, raw.cols)));
		check_rows(&raw, &pieces);
		free(raw.data), free(whole.data), free(pieces.data);
	}
}

/* Of a panel's planes and heads a row owns every 16th four bytes, two bytes or byte; those past the last row are 0. */
TEST(rows_that_are_missing_are_zeros)
{
	struct weight raw = random_weight(WTYPE_Q4_1, 18, 64), packed = packed_room(&raw);
	pack_rows(&packed, 0, 18, raw.data);
	const unsigned char *panel = packed.data + pack_panel_bytes(WTYPE_Q4_1, 64);
	for (int unit = 0; unit < 2; unit++, panel += 64 + 256) {
		for (int head = 0; head < 2; head++)
			for (int i = 2 * 2; i < 32; i++)
				CU_ASSERT_EQUAL(panel[head * 32 + i], 0);
		for (int plane = 0; plane < 4; plane++)
			for (int i = 2 * 4; i < 64; i++)
				CU_ASSERT_EQUAL(panel[64 + plane * 64 + i], 0);
	}
	free(raw.data), free(packed.data);
	raw = random_weight(WTYPE_BF16, 18, 3), packed = packed_room(&raw);
	pack_rows(&packed, 0, 18, raw.data);
	panel = packed.data + 2 * 64;
	CU_ASSERT(!memcmp(panel, raw.data + 16 * 6, 4) && !memcmp(panel + 4, raw.data + 17 * 6, 4));
	CU_ASSERT(!memcmp(panel + 64, raw.data + 16 * 6 + 4, 2) && !memcmp(panel + 68, raw.data + 17 * 6 + 4, 2));
	for (int i = 0; i < 64; i++)
		CU_ASSERT_EQUAL(panel[i] * (i >= 8) + panel[64 + i] * (i >= 8 || i % 4 >= 2), 0);   /* the fourth column, rows 18 .. */
	free(raw.data), free(packed.data);
}

/* By hand: a panel of 512 columns is 16 blocks. Q4_0 16 * (256 + 32); Q4_1 16 * (256 + 64); Q8_0 16 * (512 + 32);
 * Q5_0 16 * (320 + 32); Q4_K 2 * (320 + 8 * 256); Q5_K 2 * (320 + 8 * 320); Q6_K 2 * (320 + 8 * 384). 96 columns of Q4_0
 * are two units of 64 + 2 * 256. BF16: 16 * 512 * 2, and one column takes a pair of 64. */
TEST(sizes_are_those_of_the_layout)
{
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_Q4_0, 512), 4608);
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_Q4_1, 512), 5120);
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_Q8_0, 512), 8704);
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_Q5_0, 512), 5632);
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_Q4_K, 512), 4736);
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_Q5_K, 512), 5760);
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_Q6_K, 512), 6784);
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_Q4_0, 96), 1152);
	CU_ASSERT_EQUAL(pack_bytes(WTYPE_Q4_0, 1, 512), 4608);
	CU_ASSERT_EQUAL(pack_bytes(WTYPE_Q4_0, 16, 512), 4608);
	CU_ASSERT_EQUAL(pack_bytes(WTYPE_Q4_0, 17, 512), 9216);
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_BF16, 512), 16384);
	CU_ASSERT_EQUAL(pack_panel_bytes(WTYPE_BF16, 1), 64);
	CU_ASSERT_EQUAL(pack_bytes(WTYPE_BF16, 17, 3), 256);
	CU_ASSERT_EQUAL(pack_form_of(WTYPE_BF16), PACK_BF16);
	CU_ASSERT_EQUAL(pack_form_of(WTYPE_F16), PACK_ROWS);
	CU_ASSERT_EQUAL(pack_form_of(WTYPE_Q4_K), PACK_U4);
	CU_ASSERT_EQUAL(pack_form_of(WTYPE_Q5_1), PACK_U5);
	CU_ASSERT_EQUAL(pack_form_of(WTYPE_Q6_K), PACK_U6);
	CU_ASSERT_EQUAL(pack_form_of(WTYPE_Q8_0), PACK_U8);
}

TEST_MAIN("pack", CASE(a_packed_row_comes_back_with_its_bits), CASE(rows_may_be_written_in_pieces_and_in_any_order),
	  CASE(rows_that_are_missing_are_zeros), CASE(sizes_are_those_of_the_layout))
