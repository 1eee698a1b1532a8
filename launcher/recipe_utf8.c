/* The look at a recipe's bytes before YAML sees them: UTF-8, no control characters, no tab in front of a line. libyaml
 * would refuse most of it too, but without the line. */
#include "launcher/recipe_rows.h"

#include <string.h>

/* Bytes of the well-formed character at `at` (Unicode 15, table 3-7), 0 if there is none. */
static size_t character(const unsigned char *at, size_t left)
{
	unsigned char c = at[0], low = 0x80, high = 0xbf;
	size_t n = c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
	if (!n || n > left)
		return 0;
	low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : low;
	high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : high;
	for (size_t i = 1; i < n; i++) {
		if (at[i] < low || at[i] > high)
			return 0;
		low = 0x80;
		high = 0xbf;
	}
	return n;
}

static int is_control(const unsigned char *at, size_t n)
{
	if (n == 1)
		return (at[0] < 0x20 && at[0] != '\t' && at[0] != '\n' && at[0] != '\r') || at[0] == 0x7f;
	return n == 2 && at[0] == 0xc2 && at[1] < 0xa0;   /* C1, NEL among them: YAML would take it for the end of the line */
}

int text_is_utf8(const char *text, size_t bytes)
{
	for (size_t i = 0, n; i < bytes; i += n) {
		n = character((const unsigned char *)text + i, bytes - i);
		if (!n)
			return 0;
	}
	return 1;
}

struct shown text_shown(const char *text, size_t bytes)
{
	struct shown s;
	size_t n = bytes > SHOWN_BYTES ? SHOWN_BYTES : bytes;
	while (bytes > n && n && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	for (size_t i = 0; i < n; i++)
		s.text[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
	memcpy(s.text + n, bytes > n ? "..." : "", bytes > n ? 4 : 1);
	return s;
}

enum err text_check(const char *name, const char *text, size_t bytes)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t line = 1, column = 1, i = 0;
	int in_front = 1;   /* only blanks so far on this line */
	if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		i = 3;
	while (i < bytes) {
		size_t n = character(at + i, bytes - i);
		if (!n)
			return ERR(RECIPE, "%s:%zu:%zu: found the byte 0x%02x, which is not UTF-8, allowed: text in UTF-8", name, line,
				   column, at[i]);
		if (is_control(at + i, n))
			return ERR(RECIPE, "%s:%zu:%zu: found the control character 0x%02x, allowed: printable characters", name, line,
				   column, at[i + n - 1]);
		if (at[i] == '\t' && in_front)
			return ERR(RECIPE, "%s:%zu:%zu: found a tab in front of the line, indent with blanks", name, line, column);
		in_front = in_front && at[i] == ' ';
		column++;
		if (at[i] == '\n' || (at[i] == '\r' && !(i + 1 < bytes && at[i + 1] == '\n'))) {
			line++;
			column = 1;
			in_front = 1;
		}
		i += n;
	}
	return ERR_OK;
}
