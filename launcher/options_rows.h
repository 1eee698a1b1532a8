/* The table of commands and the table of options; private to launcher/options*.c. */
#ifndef SHARDRUN_LAUNCHER_OPTIONS_ROWS_H
#define SHARDRUN_LAUNCHER_OPTIONS_ROWS_H

#include "launcher/options.h"

#include <stddef.h>

enum option_kind {
	OPTION_FLAG,               /* int, becomes 1 */
	OPTION_TEXT,               /* const char *, once */
	OPTION_NUMBER,             /* int64_t */
	OPTION_NUMBERS,            /* struct recipe_list, from 1,2,3 */
	OPTION_IDS, OPTION_PROMPT, OPTION_SET,
	OPTION_KEY,                /* short form of a recipe key, which checks the value */
	OPTION_KEY_FLAG,           /* the same for true and false; alone it is true */
};

struct option_row {
	const char *name;          /* "--json" */
	const char *letter;        /* "-q", NULL: none */
	enum option_kind kind;
	unsigned commands;         /* bit 1 << COMMAND_X: who has it; bit COMMAND_NONE: also before a command */
	size_t offset;             /* in struct options */
	const char *argument;      /* "FILE" in help; NULL: takes no value */
	const char *key;           /* of the recipe */
	int64_t min, max;          /* of numbers */
	const char *help;          /* NULL: that of the key */
};
extern const struct option_row option_rows[];
extern const int n_option_rows;

struct command_row {
	enum command command;
	const char *name;
	const char *positional;    /* "RECIPE"; NULL: none */
	const char *usage;         /* what stands behind it in help */
	const char *help;          /* one sentence */
	const char *more;          /* what else to know, or "" */
};
extern const struct command_row command_rows[];   /* ends with name NULL */

/* By --name or -letter of n bytes; NULL if there is none. */
const struct option_row *option_find(const char *name, size_t n);
/* Does the command have the option? command NULL: no command was seen yet. */
int option_fits(const struct option_row *row, const struct command_row *command);

#endif
