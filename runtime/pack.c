/* Rows of the file to panels and back, by plain C; the layout is told in pack.h. A row owns whole bytes of every plane and
 * head, so rows are written without looking at their neighbours. */
#include "runtime/pack.h"

#include <string.h>

/* One block of 32 of one row, taken apart. */
struct block {
	uint8_t code[PACK_BLOCK];
	uint16_t d, m;                /* f16; m: the minimum, or the negated dmin of a K-quant */
	uint8_t scale, second;        /* of K-quants: scale and minimum, or the two int8 scales of Q6_K */
};

enum pack_form pack_form_of(enum wtype type)
{
	if (type == WTYPE_BF16)
		return PACK_BF16;
	static const enum pack_form of_bits[] = { [0] = PACK_ROWS, [4] = PACK_U4, [5] = PACK_U5, [6] = PACK_U6, [8] = PACK_U8 };
	return of_bits[pack_bits(type)];
}

int64_t pack_panel_bytes(enum wtype type, int64_t cols)
{
	if (type == WTYPE_BF16)
		return pack_pairs(cols) * PAIR_BYTES;
	int64_t blocks = cols / PACK_BLOCK, unit = pack_unit_blocks(type);
	return pack_unit_at(type, blocks + unit - 1);
}

int64_t pack_bytes(enum wtype type, int64_t rows, int64_t cols)
{
	return (rows + PANEL_ROWS - 1) / PANEL_ROWS * pack_panel_bytes(type, cols);
}

/* --- a block of the file --- */

static uint16_t half_at(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }

static void read_nibbles(const unsigned char *q, uint8_t *code)
{
	for (int j = 0; j < 16; j++) {
		code[j] = q[j] & 15;
		code[j + 16] = q[j] >> 4;
	}
}

/* bits: 4 bytes, a bit for each code. */
static void add_fifth_bits(const unsigned char *bits, uint8_t *code)
{
	for (int j = 0; j < PACK_BLOCK; j++)
		code[j] = (uint8_t)(code[j] | (bits[j / 8] >> j % 8 & 1) << 4);
}

/* Group g of the 12 bytes of scales and minimums, 6 bits each, of Q4_K and Q5_K. */
static void read_scales(const unsigned char *s, int64_t g, struct block *b)
{
	if (g < 4) {
		b->scale = s[g] & 63;
		b->second = s[g + 4] & 63;
	} else {
		b->scale = (uint8_t)((s[g + 4] & 15) | (s[g - 4] >> 6) << 4);
		b->second = (uint8_t)(s[g + 4] >> 4 | (s[g] >> 6) << 4);
	}
}

/* Group g of a super-block of Q4_K or Q5_K; high: the 32 bytes of fifth bits, or NULL. */
static void read_k(const unsigned char *from, const unsigned char *high, const unsigned char *q, int64_t g, struct block *b)
{
	b->d = half_at(from);
	b->m = half_at(from + 2) ^ 0x8000;
	read_scales(from + 4, g, b);
	for (int j = 0; j < PACK_BLOCK; j++) {
		b->code[j] = q[g / 2 * 32 + j] >> g % 2 * 4 & 15;
		if (high)
			b->code[j] = (uint8_t)(b->code[j] | (high[j] >> g & 1) << 4);
	}
}

static void read_q6_k(const unsigned char *from, int64_t g, struct block *b)
{
	const unsigned char *low = from + g / 4 * 64 + g % 2 * 32, *high = from + 128 + g / 4 * 32;
	b->d = half_at(from + 208);
	b->scale = from[192 + 2 * g];
	b->second = from[193 + 2 * g];
	for (int j = 0; j < PACK_BLOCK; j++)
		b->code[j] = (uint8_t)((low[j] >> g % 4 / 2 * 4 & 15) | (high[j] >> g % 4 * 2 & 3) << 4);
}

/* Block i of a row that begins at `row`. */
static void read_block(enum wtype type, const unsigned char *row, int64_t i, struct block *b)
{
	int64_t per_block = wtypes[type].block / PACK_BLOCK;
	const unsigned char *from = row + i / per_block * wtypes[type].block_bytes;
	b->d = half_at(from);
	switch (type) {
	case WTYPE_Q8_0:
		for (int j = 0; j < PACK_BLOCK; j++)
			b->code[j] = from[2 + j] ^ 0x80;
		break;
	case WTYPE_Q4_0:
		read_nibbles(from + 2, b->code);
		break;
	case WTYPE_Q4_1:
		b->m = half_at(from + 2);
		read_nibbles(from + 4, b->code);
		break;
	case WTYPE_Q5_0:
		read_nibbles(from + 6, b->code);
		add_fifth_bits(from + 2, b->code);
		break;
	case WTYPE_Q5_1:
		b->m = half_at(from + 2);
		read_nibbles(from + 8, b->code);
		add_fifth_bits(from + 4, b->code);
		break;
	case WTYPE_Q4_K:
		read_k(from, NULL, from + 16, i % 8, b);
		break;
	case WTYPE_Q5_K:
		read_k(from, from + 16, from + 48, i % 8, b);
		break;
	default:
		read_q6_k(from, i % 8, b);
	}
}

/* --- a block of a panel --- */

/* `at`: the row's four bytes of the block's first plane. */
static void write_codes(int bits, const uint8_t *code, unsigned char *at)
{
	if (bits == 8) {
		for (int g = 0; g < PACK_GROUPS; g++)
			memcpy(at + g * PLANE_BYTES, code + 4 * g, 4);
		return;
	}
	for (int p = 0; p < PACK_GROUPS / 2; p++)
		for (int j = 0; j < 4; j++)
			at[p * PLANE_BYTES + j] = (unsigned char)((code[8 * p + j] & 15) | (code[8 * p + 4 + j] & 15) << 4);
	if (bits == 4)
		return;
	int high = bits - 4;
	for (int q = 0; q < high; q++)
		for (int j = 0; j < 4; j++) {
			int byte = 0;
			for (int i = 0; i < PACK_GROUPS / high; i++)
				byte |= code[4 * (q * PACK_GROUPS / high + i) + j] >> 4 << high * i;
			at[(4 + q) * PLANE_BYTES + j] = (unsigned char)byte;
		}
}

static void read_codes(int bits, const unsigned char *at, uint8_t *code)
{
	int high = bits - 4;
	for (int g = 0; g < PACK_GROUPS; g++)
		for (int j = 0; j < 4; j++) {
			if (bits == 8) {
				code[4 * g + j] = at[g * PLANE_BYTES + j];
				continue;
			}
			int low = at[g / 2 * PLANE_BYTES + j] >> g % 2 * 4 & 15, plane = 0, shift = 0;
			if (high) {
				plane = g / (PACK_GROUPS / high);
				shift = g % (PACK_GROUPS / high) * high;
			}
			int top = high ? at[(4 + plane) * PLANE_BYTES + j] >> shift & ((1 << high) - 1) : 0;
			code[4 * g + j] = (uint8_t)(low | top << 4);
		}
}

/* r: the row in the panel. */
static void write_head(enum wtype type, const struct block *b, unsigned char *panel, int64_t i, int64_t r)
{
	unsigned char *head = panel + pack_head_at(type, i);
	memcpy(head + 2 * r, &b->d, 2);
	if (pack_has_minimum(type))
		memcpy(head + 2 * PANEL_ROWS + 2 * r, &b->m, 2);
	if (pack_is_super(type)) {
		unsigned char *scales = panel + pack_scales_at(type, i);
		scales[r] = b->scale;
		scales[PANEL_ROWS + r] = b->second;
	}
}

static void read_head(enum wtype type, const unsigned char *panel, int64_t i, int64_t r, struct block *b)
{
	const unsigned char *head = panel + pack_head_at(type, i);
	memcpy(&b->d, head + 2 * r, 2);
	if (pack_has_minimum(type))
		memcpy(&b->m, head + 2 * PANEL_ROWS + 2 * r, 2);
	if (pack_is_super(type)) {
		const unsigned char *scales = panel + pack_scales_at(type, i);
		b->scale = scales[r];
		b->second = scales[PANEL_ROWS + r];
	}
}

/* --- rows --- */

static unsigned char *panel_of(const struct weight *w, int64_t r)
{
	return w->data + r / PANEL_ROWS * pack_panel_bytes(w->type, w->cols);
}

/* `at`: the row's four bytes of the first pair. */
static void write_pairs(int64_t cols, const unsigned char *from, unsigned char *at)
{
	for (int64_t k = 0; k < cols; k += 2, at += PAIR_BYTES) {
		memset(at, 0, 4);
		if (from)
			memcpy(at, from + 2 * k, cols - k > 1 ? 4 : 2);
	}
}

static void widen_pairs(int64_t cols, const unsigned char *at, float *out)
{
	for (int64_t k = 0; k < cols; k++) {
		uint16_t item;
		memcpy(&item, at + k / 2 * PAIR_BYTES + k % 2 * 2, 2);
		out[k] = wtype_bf16_to_f32(item);
	}
}

static void write_row(const struct weight *to, int64_t r, const unsigned char *from)
{
	unsigned char *panel = panel_of(to, r);
	if (to->form == PACK_BF16) {
		write_pairs(to->cols, from, panel + r % PANEL_ROWS * 4);
		return;
	}
	int bits = pack_bits(to->type);
	struct block b = { .m = 0 };
	for (int64_t i = 0; i < to->cols / PACK_BLOCK; i++) {
		if (from)
			read_block(to->type, from, i, &b);
		write_codes(bits, b.code, panel + pack_codes_at(to->type, i) + r % PANEL_ROWS * 4);
		write_head(to->type, &b, panel, i, r % PANEL_ROWS);
	}
}

void pack_rows(const struct weight *to, int64_t first, int64_t n, const unsigned char *from)
{
	for (int64_t i = 0; i < n; i++)
		write_row(to, first + i, from + i * to->row_bytes);
	if (n > 0 && first + n == to->rows)
		for (int64_t r = to->rows; r % PANEL_ROWS; r++)
			write_row(to, r, NULL);
}

void pack_widen_row(const struct weight *w, int64_t r, float *out)
{
	const unsigned char *panel = panel_of(w, r);
	if (w->form == PACK_BF16) {
		widen_pairs(w->cols, panel + r % PANEL_ROWS * 4, out);
		return;
	}
	int bits = pack_bits(w->type), offset = pack_offset(w->type);
	for (int64_t i = 0; i < w->cols / PACK_BLOCK; i++, out += PACK_BLOCK) {
		struct block b;
		read_codes(bits, panel + pack_codes_at(w->type, i) + r % PANEL_ROWS * 4, b.code);
		read_head(w->type, panel, i, r % PANEL_ROWS, &b);
		float first = wtype_f16_to_f32(b.d), second, minimum = 0;
		if (w->type == WTYPE_Q6_K) {
			second = first * (float)(int8_t)b.second;
			first *= (float)(int8_t)b.scale;
		} else {
			minimum = pack_has_minimum(w->type) ? wtype_f16_to_f32(b.m) : 0.0f;
			if (pack_is_super(w->type)) {
				first *= (float)b.scale;
				minimum *= (float)b.second;
			}
			second = first;
		}
		for (int j = 0; j < PACK_BLOCK; j++) {
			float product = (float)(b.code[j] - offset) * (j < 16 ? first : second);
			out[j] = pack_has_minimum(w->type) ? product + minimum : product;
		}
	}
}
