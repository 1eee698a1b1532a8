/* What is written from the rows: --help, configs/reference.yaml, and a whole recipe as YAML. */
#include "launcher/recipe_rows.h"

#include "base/mem.h"

#include <string.h>

enum { HELP_WIDTH = 100 };

static const char *section_help(const char *name, size_t n)
{
	for (int i = 0; i < n_sections; i++)
		if (strlen(sections[i].name) == n && !memcmp(sections[i].name, name, n))
			return sections[i].help;
	return "";
}

/* Words of `text`, broken so that no line passes the width; every line starts with `lead`. */
static void put_wrapped(struct bytes *to, const char *lead, const char *text)
{
	size_t used = 0;
	while (*text) {
		size_t n = strcspn(text, " ");
		if (used && used + 1 + n > HELP_WIDTH) {
			bytes_printf(to, "\n");
			used = 0;
		}
		bytes_printf(to, "%s%.*s", used ? " " : lead, (int)n, text);
		used += used ? n + 1 : n + strlen(lead);
		text += n;
		text += strspn(text, " ");
	}
	bytes_printf(to, "\n");
}

/* Types whose allowed values do not already say what they are. */
static const char *const type_names[ROW_STRINGS + 1] = {
	[ROW_CHOICE] = "choice: ", [ROW_COUNT] = "number: ", [ROW_SIZE] = "size: ", [ROW_REAL] = "real number: ",
};

/* Type, what is allowed and the default, in one line of text. */
static void put_facts(struct bytes *to, const struct row *row)
{
	bytes_printf(to, "= %s", type_names[row->type] ? type_names[row->type] : "");
	value_allowed(row, to);
	bytes_printf(to, "; default %s", *row->initial ? row->initial : "\"\"");
}

static void put_row(struct bytes *to, const struct row *row, const char *lead)
{
	struct bytes facts = { 0 };
	put_facts(&facts, row);
	put_wrapped(to, lead, row->help);
	put_wrapped(to, lead, bytes_text(&facts));
	if (facts.error && !to->error)
		to->error = facts.error;
	bytes_free(&facts);
}

static size_t section_bytes(const char *key) { return (size_t)(strrchr(key, '.') - key); }

/* True when row i is the first of its section. */
static int starts_section(int i)
{
	size_t n = section_bytes(rows[i].key);
	return !i || section_bytes(rows[i - 1].key) != n || memcmp(rows[i - 1].key, rows[i].key, n);
}

void recipe_help(struct bytes *to)
{
	for (int i = 0; i < n_rows; i++) {
		if (starts_section(i)) {
			size_t n = section_bytes(rows[i].key);
			bytes_printf(to, "%s%.*s: ", i ? "\n" : "", (int)n, rows[i].key);
			put_wrapped(to, "", section_help(rows[i].key, n));
		}
		bytes_printf(to, "  %s\n", rows[i].key);
		put_row(to, &rows[i], "      ");
	}
}

/* The lines that open the sections of row i; returns the indent of its key. */
static int open_sections(struct bytes *to, int i, int with_help)
{
	const char *key = rows[i].key;
	int depth = 0;
	for (const char *dot = strchr(key, '.'); dot; dot = strchr(dot + 1, '.'), depth++) {
		size_t n = (size_t)(dot - key);
		const char *name = key + n;
		if (i && !strncmp(rows[i - 1].key, key, n + 1))
			continue;
		while (name > key && name[-1] != '.')
			name--;
		if (with_help) {
			bytes_printf(to, "\n%*s# ", 2 * depth, "");
			put_wrapped(to, "", section_help(key, n));
		}
		bytes_printf(to, "%*s%.*s:\n", 2 * depth, "", (int)(key + n - name), name);
	}
	return 2 * depth;
}

static void put_recipe(const struct recipe *r, struct bytes *to, int with_help)
{
	for (int i = 0; i < n_rows; i++) {
		int indent = open_sections(to, i, with_help);
		if (with_help)
			put_row(to, &rows[i], indent == 2 ? "  # " : "    # ");
		bytes_printf(to, "%*s%s: ", indent, "", strrchr(rows[i].key, '.') + 1);
		value_write(r, &rows[i], to);
		bytes_printf(to, "\n");
	}
}

void recipe_reference(struct bytes *to)
{
	struct recipe *r;
	enum err e = recipe_create(&r);
	if (e) {
		to->error = to->error ? to->error : e;
		return;
	}
	bytes_printf(to, "%s",
		     "# Every key of a recipe: what it does, then after \"=\" its type, what is allowed and its default.\n"
		     "# This file is written by `shardrun --reference` and is itself a recipe: copy what you need and leave\n"
		     "# out the rest. A relative path is taken from the directory of the recipe that holds it.\n"
		     "# `--set parallel.tp=2` on the command line changes one key; paths there are taken from the current\n"
		     "# directory.\n");
	put_recipe(r, to, 1);
	recipe_destroy(r);
}

void recipe_write(const struct recipe *r, struct bytes *to) { put_recipe(r, to, 0); }

const char *recipe_word(const struct recipe *r, const char *key)
{
	const struct row *row = row_find(key);
	return row && row->type == ROW_CHOICE ? row->choices[*(const int *)row_value(r, row)] : "";
}
