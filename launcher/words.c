#include "launcher/words.h"

#include <string.h>

static int least(int a, int b) { return a < b ? a : b; }

int nearest_distance(const char *a, const char *b)
{
	int d[NEAREST_MAX_BYTES + 1][NEAREST_MAX_BYTES + 1];
	int n = (int)strnlen(a, NEAREST_MAX_BYTES), m = (int)strnlen(b, NEAREST_MAX_BYTES);
	for (int i = 0; i <= n; i++)
		d[i][0] = i;
	for (int j = 0; j <= m; j++)
		d[0][j] = j;
	for (int i = 1; i <= n; i++)
		for (int j = 1; j <= m; j++) {
			int same = a[i - 1] == b[j - 1];
			d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + !same);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
		}
	return d[n][m];
}

void nearest_offer(struct nearest *n, const char *found, const char *known)
{
	int distance = nearest_distance(found, known);
	if (n->word && distance >= n->distance)
		return;
	n->word = known;
	n->distance = distance;
}

const char *nearest_word(const struct nearest *n, const char *found)
{
	int allowed = (int)strnlen(found, NEAREST_MAX_BYTES) / 3;
	return n->word && n->distance <= (allowed < 1 ? 1 : allowed) ? n->word : NULL;
}

/* The well-formed sequences of the Unicode standard, table 3-7. */
size_t text_character(const char *text, size_t bytes)
{
	const unsigned char *at = (const unsigned char *)text;
	unsigned char c = bytes ? at[0] : 0xff, low = 0x80, high = 0xbf;
	size_t n = c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
	if (!n || n > bytes)
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

unsigned text_code_point(const char *text, size_t n)
{
	unsigned code = (unsigned char)text[0] & (n == 1 ? 0x7fu : 0xffu >> (n + 1));
	for (size_t i = 1; i < n; i++)
		code = code << 6 | ((unsigned char)text[i] & 0x3fu);
	return code;
}

int text_is_utf8(const char *text, size_t bytes)
{
	for (size_t i = 0, n; i < bytes; i += n) {
		n = text_character(text + i, bytes - i);
		if (!n)
			return 0;
	}
	return 1;
}

int text_is_control(const char *text, size_t n)
{
	const unsigned char *at = (const unsigned char *)text;
	return (n == 1 && (at[0] < 0x20 || at[0] == 0x7f)) || (n == 2 && at[0] == 0xc2 && at[1] < 0xa0);
}

struct shown text_shown(const char *text, size_t bytes)
{
	struct shown s = { "" };
	size_t used = 0, i = 0;
	while (i < bytes) {
		size_t n = text_character(text + i, bytes - i);
		int printable = n && !text_is_control(text + i, n);
		if (used + (printable ? n : 1) > SHOWN_BYTES) {
			memcpy(s.text + used, "...", 4);
			break;
		}
		if (printable)
			memcpy(s.text + used, text + i, n);
		else
			s.text[used] = '?';
		used += printable ? n : 1;
		i += n ? n : 1;
	}
	return s;
}
