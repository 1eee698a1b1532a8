/* The look at a recipe's bytes before YAML sees them: UTF-8, no control characters, no tab in front of a line. libyaml
 * would refuse most of it too, but without the line. */
#include "launcher/recipe_rows.h"

#include <string.h>

static const char bom[] = "\xef\xbb\xbf";

/* NEL among the control characters: YAML would take it for the end of the line. U+FFFE and U+FFFF are no characters; a
 * byte order mark has its place at the start only. */
static int is_refused(const char *at, size_t n)
{
	unsigned code = text_code_point(at, n);
	if (code == '\t' || code == '\n' || code == '\r')
		return 0;
	return text_is_control(at, n) || code == 0xfffe || code == 0xffff || code == 0xfeff;
}

enum err text_check(const char *name, const char *text, size_t bytes)
{
	size_t line = 1, column = 1, i = bytes >= 3 && !memcmp(text, bom, 3) ? 3 : 0;
	int in_front = 1;   /* only blanks so far on this line */
	while (i < bytes) {
		const char *at = text + i;
		size_t n = text_character(at, bytes - i);
		if (!n)
			return ERR(RECIPE, "%s:%zu:%zu: found the byte 0x%02x, which is not UTF-8, allowed: text in UTF-8",
				   name, line, column, (unsigned char)*at);
		if (is_refused(at, n))
			return ERR(RECIPE, "%s:%zu:%zu: found the control character U+%04X, allowed: printable characters",
				   name, line, column, text_code_point(at, n));
		if (*at == '\t' && in_front)
			return ERR(RECIPE, "%s:%zu:%zu: found a tab in front of the line, indent with blanks", name, line,
				   column);
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
