/* Characters: UTF-8 in pieces, what counts as a space or a word, and GPT-2's printable bytes. */
#include "runtime/tokenizer_parts.h"

#include <utf8proc.h>

/* Unicode 15, table 3-7: which second bytes may follow a lead. */
static bool second_fits(unsigned char lead, unsigned char b)
{
	switch (lead) {
	case 0xe0: return b >= 0xa0 && b <= 0xbf;
	case 0xed: return b >= 0x80 && b <= 0x9f;
	case 0xf0: return b >= 0x90 && b <= 0xbf;
	case 0xf4: return b >= 0x80 && b <= 0x8f;
	default: return b >= 0x80 && b <= 0xbf;
	}
}

size_t utf8_length(unsigned char lead)
{
	return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

enum utf8_step utf8_step(const unsigned char *held, int n_held, unsigned char next)
{
	if (n_held == 0) {
		if (next < 0x80)
			return UTF8_WHOLE;
		return next >= 0xc2 && next <= 0xf4 ? UTF8_MORE : UTF8_BROKEN;
	}
	bool fits = n_held == 1 ? second_fits(held[0], next) : next >= 0x80 && next <= 0xbf;
	if (!fits)
		return UTF8_BROKEN;
	return (size_t)n_held + 1 == utf8_length(held[0]) ? UTF8_WHOLE : UTF8_MORE;
}

/* The number of bytes at text that belong together: a character, or (*whole false) a maximal broken part. */
static size_t next_part(const unsigned char *text, size_t bytes, bool *whole)
{
	*whole = false;
	for (size_t n = 0; n < bytes; n++) {
		enum utf8_step step = utf8_step(text, (int)n, text[n]);
		if (step == UTF8_BROKEN)
			return n ? n : 1;
		if (step == UTF8_WHOLE) {
			*whole = true;
			return n + 1;
		}
	}
	return bytes;
}

void utf8_repair(const char *text, size_t bytes, struct bytes *out)
{
	const unsigned char *u = (const unsigned char *)text;
	size_t good = 0;   /* start of the run of whole characters that is not yet copied */
	for (size_t at = 0; at < bytes;) {
		bool whole;
		size_t n = next_part(u + at, bytes - at, &whole);
		if (!whole) {
			bytes_put(out, text + good, at - good);
			bytes_put(out, "\xef\xbf\xbd", 3);
			good = at + n;
		}
		at += n;
	}
	bytes_put(out, text + good, bytes - good);
}

bool utf8_valid(const char *text, size_t bytes)
{
	const unsigned char *u = (const unsigned char *)text;
	bool whole = true;
	for (size_t at = 0; at < bytes && whole;)
		at += next_part(u + at, bytes - at, &whole);
	return whole;
}

uint32_t utf8_decode(const char *text)
{
	const unsigned char *u = (const unsigned char *)text;
	switch (utf8_length(u[0])) {
	case 1: return u[0];
	case 2: return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
	case 3: return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
	default: return (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
	}
}

size_t utf8_encode(uint32_t c, char room[4])
{
	return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)room);
}

const char *utf8_before(const char *begin, const char *at)
{
	do {
		at--;
	} while (at > begin && ((unsigned char)*at & 0xc0) == 0x80);
	return at;
}

bool char_is_space(uint32_t c)
{
	return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Alphabetic, Mark, Decimal_Number, Connector_Punctuation, Join_Control; the symbols among them are letters in circles. */
bool char_is_word(uint32_t c)
{
	if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
	    (c >= 0x1f170 && c <= 0x1f189))
		return true;
	utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
	return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC || c == 0x200c ||
	       c == 0x200d;
}

static utf8proc_category_t category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }

bool char_is_letter(uint32_t c) { return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO; }
bool char_is_decimal(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool char_is_number(uint32_t c) { return category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO; }

bool char_prints(uint32_t c)
{
	if (c < 0x7f)
		return c >= 0x20;
	return category(c) != UTF8PROC_CATEGORY_CN && category(c) < UTF8PROC_CATEGORY_ZS;
}

uint32_t char_to_upper(uint32_t c) { return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c); }
uint32_t char_to_lower(uint32_t c) { return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c); }
uint32_t char_to_title(uint32_t c) { return (uint32_t)utf8proc_totitle((utf8proc_int32_t)c); }

/* Bytes that print keep their value; the others (0-32, 127-160, 173) are numbered from 256 on. */
uint32_t byte_to_char(unsigned char byte)
{
	if (byte <= 32)
		return 256u + byte;
	if (byte >= 127 && byte <= 160)
		return 289u + byte - 127u;
	return byte == 173 ? 323u : byte;
}

int char_to_byte(uint32_t c)
{
	if (c >= 256 && c <= 288)
		return (int)(c - 256);
	if (c >= 289 && c <= 322)
		return (int)(c - 289 + 127);
	if (c == 323)
		return 173;
	return c < 256 && byte_to_char((unsigned char)c) == c ? (int)c : -1;
}
