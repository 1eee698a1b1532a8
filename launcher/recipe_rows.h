/* The table of recipe keys and what its files share; private to launcher/recipe*.c.
 *
 * One row says all there is to know of a key. recipe_value.c turns text into values and back by it, recipe_yaml.c reads
 * files by it, recipe_text.c writes --help, the reference and whole recipes from it. */
#ifndef SHARDRUN_LAUNCHER_RECIPE_ROWS_H
#define SHARDRUN_LAUNCHER_RECIPE_ROWS_H

#include "launcher/recipe.h"
#include "launcher/words.h"

enum row_type { ROW_CHOICE, ROW_BOOL, ROW_COUNT, ROW_SIZE, ROW_REAL, ROW_STRING, ROW_PATH, ROW_COUNTS, ROW_STRINGS };

struct row {
	const char *key;           /* "parallel.tp" */
	enum row_type type;
	size_t offset;             /* in struct recipe: int, int64_t, double, char *, recipe_list or recipe_strings by type */
	const char *initial;       /* the default, as text */
	double min, max;           /* of a number, or of a string's bytes; integers up to 2^53, so exact */
	int has_auto;              /* the word `auto` is allowed and stored as 0 */
	const char *unit;          /* "tokens"; NULL: none */
	const char *const *choices; /* words, NULL at the end; the value is the index */
	const char *help;          /* one sentence or two */
	int line_breaks;           /* a text may hold line breaks and tabs */
};
extern const struct row rows[];
extern const int n_rows;

struct section { const char *name, *help; };   /* every key is in one; launch.slurm is a section in a section */
extern const struct section sections[];
extern const int n_sections;

/* How a value is written: decides which words need quotes. */
enum style {
	STYLE_PLAIN,               /* unquoted in a YAML file */
	STYLE_QUOTED,              /* 'quoted' or "quoted" in a YAML file */
	STYLE_TEXT,                /* from the command line: just text */
};

/* Where a value stands, for sentences: "r.yaml:3:7: parallel.tp" or "--set parallel.tp". */
struct place { char text[256]; };

const struct row *row_find(const char *key);
/* One item of a list, or all of a scalar. `item` is -1 for a scalar, else the next free index of the list. The value is
 * stored only on success; a string that was there is freed. */
enum err value_store(struct recipe *r, const struct row *row, int item, const char *text, size_t bytes, enum style style,
		     const struct place *place);
void value_clear(struct recipe *r, const struct row *row);          /* empties a list or a string */
/* The value as YAML that value_store reads back. */
void value_write(const struct recipe *r, const struct row *row, struct bytes *to);
/* "auto or 1 to 4096 tokens": what the row allows, for sentences and help. */
void value_allowed(const struct row *row, struct bytes *to);
int row_is_list(const struct row *row);
static inline void *row_field(struct recipe *r, const struct row *row) { return (char *)r + row->offset; }
static inline const void *row_value(const struct recipe *r, const struct row *row) { return (const char *)r + row->offset; }

/* Applies YAML text to r; r is half changed on error (callers work on a copy). dir, when not NULL: relative paths in the
 * text are taken from there. */
enum err yaml_apply(struct recipe *r, const char *name, const char *dir, const char *text, size_t bytes);
/* "[1, 2]": a list in YAML's flow style as the value of one key, for the command line. */
enum err yaml_apply_list(struct recipe *r, const struct row *row, const char *text, size_t bytes, const struct place *place);
/* The sentence for a key or section that does not exist. `found` is the full dotted name. */
enum err unknown_key(const char *place, const char *found);
/* ERR_RECIPE with line and column unless the text is UTF-8 without control characters and without tabs in front. */
enum err text_check(const char *name, const char *text, size_t bytes);

#endif
