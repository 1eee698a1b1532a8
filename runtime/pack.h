/* Weights in the order in which the default arithmetic reads them: panels of 16 rows, interleaved.
 *
 * BF16, PACK_BF16: a panel is one stream of pairs of columns, any number of them; a pair has 4 bytes for each of the 16 rows,
 * column 2i and then column 2i+1. The second column of an odd number's last pair is zeros.
 *
 * Every quantised type has one packed form, of codes. Codes are the file's integers, unsigned; scales and minimums are the file's
 * numbers, so nothing is rounded and pack_widen_row gives the bits of wtypes[type].widen. A panel is 64-byte aligned and
 * rows that are missing from the last one are zeros. It is one stream of units; a unit has the heads of 1, 2 or 8 blocks of
 * 32 columns, filled up to 64 bytes, and then their codes. The last unit's missing blocks are not written.
 *
 *   codes    bits * 64 bytes a block, blocks in order. A plane of 64 bytes has 4 bytes for each of the 16 rows; "group g"
 *            are columns 4g .. 4g+3 of the block, column 4g+j in byte j of the row's four.
 *     U4     4 planes; plane p: group 2p in the low halves, group 2p+1 in the high ones
 *     U5     U4's planes of the low 4 bits, then 1 plane: bit g of a byte is the fifth bit of group g
 *     U6     U4's planes of the low 4 bits, then 2 planes: bits 2i, 2i+1 of plane q are the high ones of group 4q+i
 *     U8     8 planes, a group each
 *   heads    16 numbers side by side, one for each row; f16 unless said
 *     Q4_0 Q5_0 Q8_0   d                 2 blocks of 32 bytes;   w = (code - 8, 16, 128) * d
 *     Q4_1 Q5_1        d, m              1 block of 64 bytes;    w = code * d + m
 *     Q4_K Q5_K        d, -dmin          64 bytes for 8 blocks, then for each block 16 bytes of scales and 16 of minimums;
 *                                        w = code * (d * scale) + (-dmin * minimum)
 *     Q6_K             d                 32 bytes for 8 blocks, then for each block 16 int8 scales of its first 16 columns
 *                                        and 16 of its last;   w = (code - 32) * (d * scale) */
#ifndef SHARDRUN_RUNTIME_PACK_H
#define SHARDRUN_RUNTIME_PACK_H

#include "runtime/wtype.h"

enum { PANEL_ROWS = 16,        /* rows in a panel */
       PACK_BLOCK = 32,        /* columns in a block */
       PACK_GROUPS = 8,        /* of 4 columns in a block */
       PLANE_BYTES = 64,
       PAIR_BYTES = 64 };      /* of two columns of a panel of BF16 */

/* PACK_ROWS when there is none: F32, F16. */
enum pack_form pack_form_of(enum wtype type);

/* Bits of a code, 0 where there are no codes: the weights are not quantised. */
static inline int pack_bits(enum wtype type)
{
	switch (type) {
	case WTYPE_Q4_0: case WTYPE_Q4_1: case WTYPE_Q4_K: return 4;
	case WTYPE_Q5_0: case WTYPE_Q5_1: case WTYPE_Q5_K: return 5;
	case WTYPE_Q6_K: return 6;
	case WTYPE_Q8_0: return 8;
	default: return 0;
	}
}

/* What is subtracted from a code. */
static inline int pack_offset(enum wtype type)
{
	switch (type) {
	case WTYPE_Q4_0: return 8;
	case WTYPE_Q5_0: return 16;
	case WTYPE_Q6_K: return 32;
	case WTYPE_Q8_0: return 128;
	default: return 0;
	}
}

/* Pairs of columns that a row of BF16 has. */
static inline int64_t pack_pairs(int64_t cols) { return (cols + 1) / 2; }

static inline int pack_has_minimum(enum wtype type) { return pack_bits(type) != 0 && pack_offset(type) == 0; }

static inline int pack_is_super(enum wtype type) { return type == WTYPE_Q4_K || type == WTYPE_Q5_K || type == WTYPE_Q6_K; }

/* Blocks in a unit, and bytes of its heads. */
static inline int pack_unit_blocks(enum wtype type)
{
	return pack_is_super(type) ? 8 : pack_has_minimum(type) ? 1 : 2;
}

static inline int pack_unit_heads(enum wtype type) { return pack_is_super(type) ? 320 : 64; }

static inline int64_t pack_unit_at(enum wtype type, int64_t block)
{
	int64_t blocks = pack_unit_blocks(type);
	return block / blocks * (pack_unit_heads(type) + blocks * pack_bits(type) * PLANE_BYTES);
}

/* Where block b's things begin in a panel: codes; d; scales of K-quants. */
static inline int64_t pack_codes_at(enum wtype type, int64_t block)
{
	return pack_unit_at(type, block) + pack_unit_heads(type) +
	       block % pack_unit_blocks(type) * pack_bits(type) * PLANE_BYTES;
}

static inline int64_t pack_head_at(enum wtype type, int64_t block)
{
	return pack_unit_at(type, block) + (pack_unit_blocks(type) == 2 ? block % 2 * 32 : 0);
}

static inline int64_t pack_scales_at(enum wtype type, int64_t block)
{
	return pack_unit_at(type, block) + (pack_has_minimum(type) ? 64 : 32) + block % 8 * 32;
}

/* cols is a multiple of the type's block. */
int64_t pack_panel_bytes(enum wtype type, int64_t cols);
int64_t pack_bytes(enum wtype type, int64_t rows, int64_t cols);   /* of the matrix, rows padded to whole panels */

/* Writes rows first .. first+n-1 of `to` from rows as they stand in the file, one after the other at `from`. to->data (64-byte
 * aligned, pack_bytes) and to->form, not PACK_ROWS, are set. Threads may write different rows at once. Whoever writes the
 * last row also writes the zeros behind it. */
void pack_rows(const struct weight *to, int64_t first, int64_t n, const unsigned char *from);

/* Row r of a packed matrix as floats: the bits of wtypes[type].widen on the row as it stood in the file. */
void pack_widen_row(const struct weight *w, int64_t r, float *out);

#endif
