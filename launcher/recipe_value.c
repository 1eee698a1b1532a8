/* Values of recipe keys: text to value and back.
 *
 * YAML leaves many spellings open (yes, 010, 1_000, 1e3, .inf); a recipe takes one spelling of each thing and answers
 * the others with what to write, because two readers of one file must never see two numbers. */
#include "launcher/recipe_rows.h"

#include "base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct { const char *name; int64_t bytes; } units[] = {   /* each that divides comes before smaller ones */
	{ "TiB", INT64_C(1) << 40 }, { "TB", INT64_C(1000000000000) }, { "GiB", 1 << 30 }, { "GB", 1000000000 },
	{ "MiB", 1 << 20 }, { "MB", 1000000 }, { "KiB", 1 << 10 }, { "kB", 1000 }, { "B", 1 },
};
enum { N_UNITS = sizeof units / sizeof units[0] };

static void put_choices(const struct row *row, struct bytes *to)
{
	for (const char *const *c = row->choices; *c; c++)
		bytes_printf(to, "%s%s", c == row->choices ? "" : c[1] ? ", " : " or ", *c);
}

void value_allowed(const struct row *row, struct bytes *to)
{
	const char *unit = row->unit ? row->unit : "", *blank = row->unit ? " " : "", *any = row->has_auto ? "auto or " : "";
	switch (row->type) {
	case ROW_CHOICE: put_choices(row, to); break;
	case ROW_BOOL: bytes_printf(to, "true or false"); break;
	case ROW_COUNT: bytes_printf(to, "%s%.0f to %.0f%s%s", any, row->min, row->max, blank, unit); break;
	case ROW_SIZE: bytes_printf(to, "%sa whole number with a unit: B kB MB GB TB KiB MiB GiB TiB", any); break;
	case ROW_REAL: bytes_printf(to, "%g to %g%s%s", row->min, row->max, blank, unit); break;
	case ROW_STRING: bytes_printf(to, "a text of at most %.0f bytes", row->max); break;
	case ROW_PATH: bytes_printf(to, "a path of at most %.0f bytes", row->max); break;
	case ROW_COUNTS:
		bytes_printf(to, "a list of at most %d numbers, each %.0f to %.0f%s%s", RECIPE_MAX_LIST, row->min, row->max,
			     blank, unit);
		break;
	case ROW_STRINGS:
		bytes_printf(to, "a list of at most 16 texts, each %.0f to %.0f bytes", row->min, row->max);
		break;
	}
}

static enum err refuse(const struct row *row, const struct place *place, const char *text, size_t bytes, const char *hint)
{
	struct bytes allowed = { 0 };
	value_allowed(row, &allowed);
	enum err e = allowed.error;
	if (!e)
		e = ERR(RECIPE, "%s: found \"%s\", allowed: %s%s%s%s", place->text, text_shown(text, bytes).text,
			bytes_text(&allowed),
			*hint ? " (" : "", hint, *hint ? ")" : "");
	bytes_free(&allowed);
	return e;
}

static size_t digits(const char *text) { return strspn(text, "0123456789"); }

/* Why a text that is no plain whole number is not one; "" when there is nothing to say beyond what is allowed. */
static const char *number_hint(const char *text)
{
	const char *t = text + (*text == '-' || *text == '+');
	size_t n = digits(t);
	if (*t == '0' && (t[1] == 'x' || t[1] == 'o' || t[1] == 'b' || t[1] == 'X'))
		return "write it as a decimal number";
	if (n > 1 && *t == '0')
		return "a leading 0 looks octal; write it without";
	if (n && strspn(t, "0123456789_,'") == strlen(t) && t[n])
		return "write digits only";
	if (n && (t[n] == '.' || t[n] == 'e' || t[n] == 'E'))
		return "write a whole number, digits only";
	return "";
}

static enum err parse_count(const struct row *row, const char *text, size_t bytes, const struct place *place, int64_t *out)
{
	if (row->has_auto && !strcmp(text, "auto")) {
		*out = RECIPE_AUTO;
		return ERR_OK;
	}
	if (!bytes || digits(text) != bytes || (bytes > 1 && text[0] == '0'))
		return refuse(row, place, text, bytes, number_hint(text));
	if (bytes > 17)
		return refuse(row, place, text, bytes, "");
	int64_t value = strtoll(text, NULL, 10);
	if ((double)value < row->min || (double)value > row->max)
		return refuse(row, place, text, bytes, "");
	*out = value;
	return ERR_OK;
}

static const char *size_hint(const char *text)
{
	size_t n = digits(text);
	const char *unit = text + n + (text[n] == ' ');
	if (!n)
		return "";
	if (!*unit)
		return "add a unit";
	if (text[n] == '.' || text[n] == '_' || (n > 1 && text[0] == '0'))
		return "write a whole number, in a smaller unit if need be";
	switch (tolower((unsigned char)*unit)) {
	case 'k': return "kB is 1000 bytes, KiB is 1024";
	case 'm': return "MB is 10^6 bytes, MiB is 2^20";
	case 'g': return "GB is 10^9 bytes, GiB is 2^30";
	case 't': return "TB is 10^12 bytes, TiB is 2^40";
	default: return "";
	}
}

static enum err parse_size(const struct row *row, const char *text, size_t bytes, const struct place *place, int64_t *out)
{
	if (row->has_auto && !strcmp(text, "auto")) {
		*out = RECIPE_AUTO;
		return ERR_OK;
	}
	size_t n = digits(text);
	const char *unit = text + n + (text[n] == ' ');
	for (int u = 0; n && n <= 17 && !(n > 1 && text[0] == '0') && u < N_UNITS; u++) {
		int64_t value;
		if (strcmp(unit, units[u].name))
			continue;
		if (__builtin_mul_overflow(strtoll(text, NULL, 10), units[u].bytes, &value) || (double)value < row->min ||
		    (double)value > row->max)
			return refuse(row, place, text, bytes, "at least 1B, at most 1024TiB");
		*out = value;
		return ERR_OK;
	}
	return refuse(row, place, text, bytes, size_hint(text));
}

/* [-] digits [. digits] [e [sign] digits], with a digit before or after the point. */
static int is_real(const char *text)
{
	const char *t = text + (*text == '-');
	size_t whole = digits(t), part = 0;
	if (whole > 1 && *t == '0')
		return 0;
	t += whole;
	if (*t == '.') {
		part = digits(t + 1);
		t += 1 + part;
	}
	if (!whole && !part)
		return 0;
	if (*t == 'e' || *t == 'E') {
		t += 1 + (t[1] == '+' || t[1] == '-');
		size_t exponent = digits(t);
		if (!exponent)
			return 0;
		t += exponent;
	}
	return !*t;
}

static enum err parse_real(const struct row *row, const char *text, size_t bytes, const struct place *place, double *out)
{
	if (!is_real(text)) {
		const char *hint = number_hint(text);
		return refuse(row, place, text, bytes, strstr(hint, "whole") ? "" : hint);
	}
	double value = strtod(text, NULL);
	if (!(value >= row->min && value <= row->max))
		return refuse(row, place, text, bytes, "");
	*out = value + 0.0;   /* -0 becomes 0 */
	return ERR_OK;
}

static enum err parse_choice(const struct row *row, const char *text, size_t bytes, const struct place *place, int *out)
{
	for (int i = 0; row->choices[i]; i++)
		if (!strcmp(text, row->choices[i])) {
			*out = i;
			return ERR_OK;
		}
	return refuse(row, place, text, bytes, "");
}

static int is_word_of(const char *text, const char *const *words)
{
	while (*words && strcasecmp(text, *words))
		words++;
	return *words != NULL;
}

static enum err parse_bool(const struct row *row, const char *text, size_t bytes, const struct place *place, int *out)
{
	static const char *const yes[] = { "yes", "y", "on", "true", "1", NULL };
	static const char *const no[] = { "no", "n", "off", "false", "0", NULL };
	if (strcmp(text, "true") && strcmp(text, "false"))
		return refuse(row, place, text, bytes,
			      is_word_of(text, yes) ? "write true" : is_word_of(text, no) ? "write false" : "");
	*out = text[0] == 't';
	return ERR_OK;
}

static enum err check_string(const struct row *row, const char *text, size_t bytes, enum style style,
			     const struct place *place)
{
	static const char *const ambiguous[] = { "yes", "no", "on", "off", "true", "false", "y", "n", NULL };
	if (style == STYLE_PLAIN && is_word_of(text, ambiguous))
		return refuse(row, place, text, bytes, "YAML reads this word as true or false; put it in quotes");
	if ((double)bytes < row->min || (double)bytes > row->max)
		return refuse(row, place, text, bytes, "");
	for (size_t i = 0, n; i < bytes; i += n) {
		n = text_character(text + i, bytes - i);
		n = n ? n : 1;
		if (text_is_control(text + i, n) && !(row->line_breaks && strchr("\n\t\r", text[i])))
			return ERR(RECIPE,
				   "%s: found the control character U+%04X in the text, allowed: printable characters",
				   place->text, (unsigned char)text[i + n - 1]);
	}
	if (row->type == ROW_PATH && text[0] == '~' && (text[1] == '/' || !text[1]))
		return refuse(row, place, text, bytes, "~ is not replaced here; write the directory in full");
	return ERR_OK;
}

static enum err store_string(struct recipe *r, const struct row *row, int item, const char *text)
{
	char **slot, *copy;
	TRY(mem_copy_string(text, &copy));
	if (row->type == ROW_STRINGS) {
		struct recipe_strings *list = row_field(r, row);
		slot = &list->items[item];
		list->n = item + 1;
	} else {
		slot = row_field(r, row);
		mem_free(*slot);
	}
	*slot = copy;
	return ERR_OK;
}

enum err value_store(struct recipe *r, const struct row *row, int item, const char *text, size_t bytes, enum style style,
		     const struct place *place)
{
	int max_items = row->type == ROW_STRINGS ? (int)(sizeof r->launch.hosts.items / sizeof(char *)) : RECIPE_MAX_LIST;
	if (memchr(text, 0, bytes))
		return ERR(RECIPE, "%s: found a zero byte in the value, allowed: printable characters", place->text);
	if (item >= max_items)
		return refuse(row, place, text, bytes, "this list is longer");
	if (style == STYLE_QUOTED && (row->type == ROW_COUNT || row->type == ROW_REAL || row->type == ROW_BOOL ||
				      row->type == ROW_COUNTS))
		return refuse(row, place, text, bytes, "write it without quotes");
	switch (row->type) {
	case ROW_CHOICE: return parse_choice(row, text, bytes, place, row_field(r, row));
	case ROW_BOOL: return parse_bool(row, text, bytes, place, row_field(r, row));
	case ROW_COUNT: return parse_count(row, text, bytes, place, row_field(r, row));
	case ROW_SIZE: return parse_size(row, text, bytes, place, row_field(r, row));
	case ROW_REAL: return parse_real(row, text, bytes, place, row_field(r, row));
	case ROW_COUNTS: {
		struct recipe_list *list = row_field(r, row);
		TRY(parse_count(row, text, bytes, place, &list->items[item]));
		list->n = item + 1;
		return ERR_OK;
	}
	case ROW_STRING:
	case ROW_PATH:
	case ROW_STRINGS:
		TRY(check_string(row, text, bytes, style, place));
		return store_string(r, row, item, text);
	}
	return ERR(BUG, "%s: the key's row has no type", place->text);
}

void value_clear(struct recipe *r, const struct row *row)
{
	if (row->type == ROW_COUNTS) {
		struct recipe_list *list = row_field(r, row);
		list->n = 0;
	} else if (row->type == ROW_STRINGS) {
		struct recipe_strings *list = row_field(r, row);
		for (int i = 0; i < list->n; i++) {
			mem_free(list->items[i]);
			list->items[i] = NULL;
		}
		list->n = 0;
	} else if (row->type == ROW_STRING || row->type == ROW_PATH) {
		char **text = row_field(r, row);
		mem_free(*text);
		*text = NULL;
	}
}

/* Escapes what YAML would not read back as it stands: besides quotes and control characters the Unicode line ends, and
 * what is refused in a file. */
void recipe_quote(const char *text, struct bytes *to)
{
	size_t bytes = strlen(text);
	bytes_put(to, "\"", 1);
	for (size_t i = 0, n; i < bytes; i += n) {
		n = text_character(text + i, bytes - i);
		n = n ? n : 1;
		unsigned code = text_code_point(text + i, n);
		if (code == '"' || code == '\\')
			bytes_printf(to, "\\%c", (int)code);
		else if (text_is_control(text + i, n) || code == 0x2028 || code == 0x2029 || code == 0xfeff || code == 0xfffe ||
			 code == 0xffff)
			bytes_printf(to, "\\u%04x", code);
		else
			bytes_put(to, text + i, n);
	}
	bytes_put(to, "\"", 1);
}

static void write_size(int64_t bytes, struct bytes *to)
{
	int u = 0;
	while (bytes % units[u].bytes)
		u++;
	bytes_printf(to, "%" PRId64 "%s", bytes / units[u].bytes, units[u].name);
}

/* The fewest digits that read back as the same number. */
static void write_real(double value, struct bytes *to)
{
	char text[40];
	for (int precision = 6; precision <= 17; precision++) {
		snprintf(text, sizeof text, "%.*g", precision, value);
		if (strtod(text, NULL) == value)
			break;
	}
	bytes_printf(to, "%s", text);
}

static void write_list(const struct recipe *r, const struct row *row, struct bytes *to)
{
	const struct recipe_list *counts = row_value(r, row);
	const struct recipe_strings *strings = row_value(r, row);
	int n = row->type == ROW_COUNTS ? counts->n : strings->n;
	bytes_put(to, "[", 1);
	for (int i = 0; i < n; i++) {
		bytes_printf(to, "%s", i ? ", " : "");
		if (row->type == ROW_COUNTS)
			bytes_printf(to, "%" PRId64, counts->items[i]);
		else
			recipe_quote(strings->items[i], to);
	}
	bytes_put(to, "]", 1);
}

void value_write(const struct recipe *r, const struct row *row, struct bytes *to)
{
	const void *value = row_value(r, row);
	int64_t number = 0;
	if (row->type == ROW_COUNT || row->type == ROW_SIZE)
		memcpy(&number, value, sizeof number);
	if (row->has_auto && number == RECIPE_AUTO) {
		bytes_printf(to, "auto");
		return;
	}
	switch (row->type) {
	case ROW_CHOICE: bytes_printf(to, "%s", row->choices[*(const int *)value]); break;
	case ROW_BOOL: bytes_printf(to, *(const int *)value ? "true" : "false"); break;
	case ROW_COUNT: bytes_printf(to, "%" PRId64, number); break;
	case ROW_SIZE: write_size(number, to); break;
	case ROW_REAL: write_real(*(const double *)value, to); break;
	case ROW_STRING:
	case ROW_PATH: recipe_quote(*(char *const *)value, to); break;
	case ROW_COUNTS:
	case ROW_STRINGS: write_list(r, row, to); break;
	}
}
