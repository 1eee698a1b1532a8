/* --help, from the tables of commands, options and recipe keys. */
#include "launcher/options_rows.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 100, INDENT = 28 };

/* `left`, then `text` from column INDENT on, broken between words. */
static void put_entry(struct bytes *to, const char *left, const char *text)
{
	size_t column = strlen(left);
	bytes_printf(to, "%s", left);
	if (column + 1 > INDENT) {
		bytes_printf(to, "\n");
		column = 0;
	}
	bytes_printf(to, "%*s", (int)(INDENT - column), "");
	column = INDENT;
	while (*text) {
		size_t n = strcspn(text, " ");
		if (column + n > WIDTH && column > INDENT) {
			bytes_printf(to, "\n%*s", INDENT, "");
			column = INDENT;
		}
		bytes_printf(to, "%.*s", (int)n, text);
		column += n;
		text += n;
		if (*text == ' ') {
			text++;
			bytes_printf(to, "%s", *text && column + 1 + strcspn(text, " ") <= WIDTH ? " " : "");
			column++;
		}
	}
	bytes_printf(to, "\n");
}

static void put_option(struct bytes *to, const struct option_row *row)
{
	char left[80];
	struct bytes text = { 0 };
	snprintf(left, sizeof left, "  %s%s%s%s%s", row->name, row->letter ? ", " : "", row->letter ? row->letter : "",
		 row->argument ? " " : "", row->argument ? row->argument : "");
	bytes_printf(&text, "%s", row->help ? row->help : recipe_key_help(row->key));
	if (row->kind == OPTION_KEY && !row->help) {
		bytes_printf(&text, " Allowed: ");
		recipe_key_allowed(row->key, &text);
		bytes_printf(&text, ".");
	}
	put_entry(to, left, bytes_text(&text));
	if (text.error && !to->error)
		to->error = text.error;
	bytes_free(&text);
}

static void put_options(struct bytes *to, const struct command_row *command, int short_forms)
{
	for (int i = 0; i < n_option_rows; i++)
		if (option_fits(&option_rows[i], command) && (option_rows[i].key != NULL) == short_forms)
			put_option(to, &option_rows[i]);
}

static void help_for_program(struct bytes *to)
{
	bytes_printf(to, "shardrun runs one large language model across a cluster.\n\nusage: shardrun COMMAND ...\n\n");
	for (const struct command_row *c = command_rows; c->name; c++) {
		char left[80];
		snprintf(left, sizeof left, "  %s %s", c->name, c->positional ? c->positional : "");
		put_entry(to, left, c->help);
	}
	bytes_printf(to, "\n");
	put_options(to, NULL, 0);
	bytes_printf(to,
		     "\nshardrun COMMAND --help shows a command's options.\n"
		     "Results go to stdout, everything else to stderr.\n"
			 "\nExit status:\n");
	for (int e = ERR_OK; e < ERR_COUNT; e++) {
		char left[16];
		snprintf(left, sizeof left, "  %d", err_exit_status((enum err)e));
		if (e == ERR_OK || err_exit_status((enum err)e) != err_exit_status((enum err)(e - 1)))
			put_entry(to, left, e == ERR_USAGE ? "the command line or the recipe is wrong" :
					    e == ERR_OK ? "all is well" : err_text((enum err)e));
	}
	bytes_printf(to, "\nThe keys of a recipe:\n\n");
	recipe_help(to);
}

void options_help(enum command command, struct bytes *to)
{
	const struct command_row *c = command_rows;
	while (c->name && c->command != command)
		c++;
	if (!c->name) {
		help_for_program(to);
		return;
	}
	bytes_printf(to, "usage: shardrun %s %s\n\n%s\n%s%s\n", c->name, c->usage, c->help, c->more, *c->more ? "\n" : "");
	put_options(to, c, 0);
	if (c->command == COMMAND_TOPO || c->command == COMMAND_INSPECT)
		return;
	bytes_printf(to, "\nShort forms of keys of the recipe:\n");
	put_options(to, c, 1);
}
