/* The look at a recipe's bytes before YAML sees them: UTF-8, no control characters, no tab in front of a line. libyaml
 * would refuse most of it too, but without the line. */
#include "launcher/recipe_rows.h"

#include <string.h>

static const char bom[] = "\xef\xbb\xbf";

/* Characters that a recipe must not hold. NEL is one: YAML would take it for the end of the line. */
static int is_refused(const char *at, size_t n)
{
	if (n == 1 && (*at == '\t' || *at == '\n' || *at == '\r'))
		return 0;
	/* U+FFFE and U+FFFF are no characters; a byte order mark has its place at the start only */
	return text_is_control(at, n) || (n == 3 && (!memcmp(at, "\xef\xbf\xbe", 3) || !memcmp(at, "\xef\xbf\xbf", 3) ||
						     !memcmp(at, bom, 3)));
}

static unsigned code_point(const char *at, size_t n)
{
	unsigned c = (unsigned char)at[0] & (n == 1 ? 0x7fu : 0xffu >> (n + 1));
	for (size_t i = 1; i < n; i++)
		c = c << 6 | ((unsigned char)at[i] & 0x3fu);
	return c;
}

enum err text_check(const char *name, const char *text, size_t bytes)
{
	size_t line = 1, column = 1, i = bytes >= 3 && !memcmp(text, bom, 3) ? 3 : 0;
	int in_front = 1;   /* only blanks so far on this line */
	while (i < bytes) {
		const char *at = text + i;
		size_t n = text_character(at, bytes - i);
		if (!n)
			return ERR(RECIPE, "%s:%zu:%zu: found the byte 0x%02x, which is not UTF-8, allowed: text in UTF-8", name, line,
				   column, (unsigned char)*at);
		if (is_refused(at, n))
			return ERR(RECIPE, "%s:%zu:%zu: found the control character U+%04X, allowed: printable characters", name, line,
				   column, code_point(at, n));
		if (*at == '\t' && in_front)
			return ERR(RECIPE, "%s:%zu:%zu: found a tab in front of the line, indent with blanks", name, line, column);
		in_front = in_front && *at == ' ';
		column++;
		if (*at == '\n' || (*at == '\r' && !(i + 1 < bytes && at[1] == '\n'))) {
			line++;
			column = 1;
			in_front = 1;
		}
		i += n;
	}
	return ERR_OK;
}
