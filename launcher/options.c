/* Reading the command line by the rows of options_rows.c. Order does not matter, except that later changes of a recipe key
 * win over earlier ones. */
#include "launcher/options_rows.h"

#include "base/mem.h"
#include "launcher/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parse {
	int argc, at;
	char *const *argv;
	struct options *o;
	const struct command_row *command;   /* NULL: not seen yet */
	int only_positional;                 /* after "--" */
	int stdin_prompt;                    /* "-" was given */
};

static void *field(const struct parse *p, const struct option_row *row) { return (char *)p->o + row->offset; }

static enum err unknown_option(const struct parse *p, const char *name)
{
	struct nearest near = { 0 };
	const struct option_row *elsewhere = option_find(name, strlen(name));
	for (int i = 0; i < n_option_rows; i++)
		if (option_fits(&option_rows[i], p->command))
			nearest_offer(&near, name, option_rows[i].name);
	const char *word = nearest_word(&near, name), *command = p->command ? p->command->name : "";
	if (elsewhere && !p->command)
		return ERR(USAGE, "the option %s stands after the command, as shardrun run RECIPE %s", elsewhere->name,
			   elsewhere->name);
	if (elsewhere)
		return ERR(USAGE, "%s has no option %s; shardrun %s --help lists what it has", command, elsewhere->name,
			   command);
	return ERR(USAGE, "unknown option %s%s%s; shardrun %s%s--help lists all", SHOWN(name),
		   word ? ", the nearest known is " : "", word ? word : "", command, *command ? " " : "");
}

static enum err parse_number(const char *option, const char *text, const struct option_row *row, int64_t *out)
{
	size_t n = strspn(text, "0123456789");
	if (!n || n > 17 || text[n] || (n > 1 && text[0] == '0') || strtoll(text, NULL, 10) < row->min ||
	    strtoll(text, NULL, 10) > row->max)
		return ERR(USAGE, "%s: found \"%s\", allowed: a whole number from %lld to %lld", option, SHOWN(text),
			   (long long)row->min, (long long)row->max);
	*out = strtoll(text, NULL, 10);
	return ERR_OK;
}

/* "1,2,3" -> one call of `take` per item. */
static enum err parse_numbers(const struct parse *p, const struct option_row *row, const char *text,
			      enum err (*take)(const struct parse *p, const struct option_row *row, int64_t number))
{
	for (;;) {
		char item[32];
		int64_t number;
		size_t n = strcspn(text, ",");
		snprintf(item, sizeof item, "%.*s", (int)(n < sizeof item ? n : sizeof item - 1), text);
		TRY(parse_number(row->name, item, row, &number));
		TRY(take(p, row, number));
		if (!text[n])
			return ERR_OK;
		text += n + 1;
	}
}

static enum err take_count(const struct parse *p, const struct option_row *row, int64_t number)
{
	struct recipe_list *list = field(p, row);
	if (list->n == RECIPE_MAX_LIST)
		return ERR(USAGE, "%s: found more than %d numbers", row->name, RECIPE_MAX_LIST);
	list->items[list->n++] = number;
	return ERR_OK;
}

static enum err take_id(const struct parse *p, const struct option_row *row, int64_t number)
{
	(void)row;
	p->o->prompt_ids[p->o->n_prompt_ids++] = (int32_t)number;   /* room for every item was made */
	return ERR_OK;
}

static enum err take_ids(const struct parse *p, const struct option_row *row, const char *text)
{
	size_t n = 1;
	if (p->o->prompt_ids)
		return ERR(USAGE, "%s is there twice; it gives one prompt", row->name);
	for (const char *t = text; *t; t++)
		n += *t == ',';
	TRY(MEM_NEW(n, int32_t, &p->o->prompt_ids));
	return parse_numbers(p, row, text, take_id);
}

static enum err take_text(const struct parse *p, const struct option_row *row, const char *text)
{
	const char **slot = field(p, row);
	if (*slot)
		return ERR(USAGE, "%s is there twice: \"%s\" and \"%s\"", row->name, SHOWN(*slot), SHOWN(text));
	if (!*text)
		return ERR(USAGE, "%s: found nothing, needs %s", row->name, row->argument);
	*slot = text;
	return ERR_OK;
}

static enum err take_number(const struct parse *p, const struct option_row *row, const char *text)
{
	int64_t number;
	TRY(parse_number(row->name, text, row, &number));
	memcpy(field(p, row), &number, sizeof number);
	return ERR_OK;
}

static enum err take_value(struct parse *p, const struct option_row *row, const char *text)
{
	struct options *o = p->o;
	switch (row->kind) {
	case OPTION_TEXT: return take_text(p, row, text);
	case OPTION_NUMBER: return take_number(p, row, text);
	case OPTION_NUMBERS:
		((struct recipe_list *)field(p, row))->n = 0;
		return parse_numbers(p, row, text, take_count);
	case OPTION_IDS: return take_ids(p, row, text);
	case OPTION_PROMPT:
		if (!strcmp(text, "-"))
			p->stdin_prompt = 1;
		else
			o->prompts[o->n_prompts++] = text;   /* room for argc of them */
		return ERR_OK;
	case OPTION_KEY:
	case OPTION_KEY_FLAG:
	case OPTION_SET:
		o->sets[o->n_sets++] = (struct options_set){ row->name, row->key, text };
		return ERR_OK;
	case OPTION_FLAG: break;
	}
	return ERR(BUG, "option %s has no kind", row->name);
}

/* argv[at] is an option; steps over it and its value. */
static enum err take_option(struct parse *p)
{
	const char *arg = p->argv[p->at++], *equals = strchr(arg, '=');
	size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
	const struct option_row *row = option_find(arg, n);
	if (!row || !option_fits(row, p->command)) {
		char name[64];
		snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), arg);
		return unknown_option(p, name);
	}
	if (row->kind == OPTION_FLAG || (row->kind == OPTION_KEY_FLAG && !equals)) {
		if (equals)
			return ERR(USAGE, "%s takes no value, found \"%s\"", row->name, SHOWN(equals + 1));
		if (row->kind == OPTION_KEY_FLAG)
			return take_value(p, row, "true");
		*(int *)field(p, row) = 1;
		return ERR_OK;
	}
	if (equals)
		return take_value(p, row, equals + 1);
	if (p->at == p->argc || !strncmp(p->argv[p->at], "--", 2))
		return ERR(USAGE, "%s needs a value, as %s %s%s%s", row->name, row->name, row->argument,
			   p->at < p->argc ? "; one that begins with -- is written " : "", p->at < p->argc ? "with =" : "");
	return take_value(p, row, p->argv[p->at++]);
}

static enum err take_command(struct parse *p, const char *name)
{
	struct nearest near = { 0 };
	if (!strcmp(name, "help")) {
		p->o->help = 1;
		return ERR_OK;
	}
	for (const struct command_row *c = command_rows; c->name; c++) {
		nearest_offer(&near, name, c->name);
		if (!strcmp(c->name, name)) {
			p->command = c;
			p->o->command = c->command;
			return ERR_OK;
		}
	}
	const char *word = nearest_word(&near, name);
	return ERR(USAGE, "unknown command \"%s\"%s%s; shardrun --help lists all", SHOWN(name),
		   word ? ", the nearest known is " : "", word ? word : "");
}

static enum err take_positional(struct parse *p, const char *arg)
{
	struct options *o = p->o;
	if (!p->command)
		return take_command(p, arg);
	if (p->command->command == COMMAND_RUN && !strcmp(arg, "-") && !p->only_positional) {
		p->stdin_prompt = 1;
		return ERR_OK;
	}
	if (!*arg)
		return ERR(USAGE, "%s: found an empty %s", p->command->name,
			   p->command->positional ? p->command->positional : "argument");
	if (!p->command->positional)
		return ERR(USAGE, "%s takes no \"%s\"; shardrun %s --help shows what it takes", p->command->name,
			   SHOWN(arg), p->command->name);
	const char **slot = p->command->command == COMMAND_INSPECT ? &o->model : &o->recipe;
	if (*slot)
		return ERR(USAGE, "%s takes one %s, found \"%s\" and \"%s\"%s", p->command->name, p->command->positional,
			   SHOWN(*slot), SHOWN(arg),
			   p->command->command == COMMAND_RUN ? "; a prompt is given with --prompt" : "");
	*slot = arg;
	return ERR_OK;
}

static enum err check_prompts(struct parse *p)
{
	struct options *o = p->o;
	const char *given[4];
	int n = 0;
	if (o->n_prompts)
		given[n++] = "--prompt";
	if (o->prompt_file)
		given[n++] = "--prompt-file";
	if (o->n_prompt_ids)
		given[n++] = "--prompt-ids";
	if (p->stdin_prompt)
		given[n++] = "- (stdin)";
	if (n > 1)
		return ERR(USAGE, "run takes its prompts from one place, found %s and %s", given[0], given[1]);
	if (o->prompt_file && !strcmp(o->prompt_file, "-"))
		return ERR(USAGE, "--prompt-file needs a file; \"-\" alone reads one prompt per line from stdin");
	o->prompt_stdin = n == 0 || p->stdin_prompt;
	return ERR_OK;
}

static enum err check(struct parse *p)
{
	struct options *o = p->o;
	if (o->help || o->version || o->reference)
		return ERR_OK;
	if (!p->command)
		return ERR(USAGE,
			   "a command is needed: run, batch, serve, bench, plan, topo, script or inspect; "
			   "shardrun --help explains them");
	if (p->command->positional && !o->recipe && !o->model)
		return ERR(USAGE, "%s needs a %s%s", p->command->name, p->command->positional,
			   p->command->command == COMMAND_INSPECT ? "" : ", or --model PATH");
	if (p->command->command == COMMAND_BATCH && (!o->input || !o->output))
		return ERR(USAGE, "batch needs %s FILE", o->input ? "--output" : "--input");
	if (o->output && !strcmp(o->output, "-") && !o->journal)
		return ERR(USAGE, "batch with --output - needs --journal FOLDER");
	if (o->quiet && o->verbose)
		return ERR(USAGE, "--quiet and --verbose exclude each other");
	return p->command->command == COMMAND_RUN ? check_prompts(p) : ERR_OK;
}

enum err options_parse(int argc, char *const *argv, struct options *out)
{
	struct options o = { 0 };
	struct parse p = { .argc = argc, .argv = argv, .at = 1, .o = &o };
	size_t room = argc > 0 ? (size_t)argc : 1;
	enum err e = MEM_NEW(room, const char *, &o.prompts);
	if (!e)
		e = MEM_NEW(room, struct options_set, &o.sets);
	while (!e && p.at < argc && !o.help) {
		const char *arg = argv[p.at];
		if (!p.only_positional && !strcmp(arg, "--")) {
			p.only_positional = 1;
			p.at++;
		} else if (!p.only_positional && arg[0] == '-' && arg[1]) {
			e = take_option(&p);
		} else {
			p.at++;
			e = take_positional(&p, arg);
		}
	}
	if (!e && o.help && !p.command && p.at < argc && argv[p.at][0] != '-')   /* help run, --help run */
		e = take_command(&p, argv[p.at]);
	if (!e)
		e = check(&p);
	if (e) {
		options_free(&o);
		return e;
	}
	*out = o;
	return ERR_OK;
}

void options_free(struct options *o)
{
	mem_free(o->prompts);
	mem_free(o->prompt_ids);
	mem_free(o->sets);
	*o = (struct options){ 0 };
}

static int is_stop(const struct options_set *s) { return s->key && !strcmp(s->key, "generation.stop"); }

/* Every --stop is one whole text, commas and all: together they make the list. */
static enum err apply_stops(const struct options *o, struct recipe *r)
{
	struct bytes list = { 0 };
	enum err e = ERR_OK;
	for (int i = 0; i < o->n_sets; i++)
		if (is_stop(&o->sets[i])) {
			bytes_printf(&list, "%s", list.size ? ", " : "[");
			recipe_quote(o->sets[i].value, &list);
		}
	if (list.size) {
		bytes_printf(&list, "]");
		e = list.error ? list.error : recipe_set_value(r, "--stop", "generation.stop", bytes_text(&list));
	}
	bytes_free(&list);
	return e;
}

enum err options_apply(const struct options *o, struct recipe *r)
{
	if (o->model)
		TRY(recipe_set_value(r, "--model", "model.path", o->model));
	if (o->quiet || o->verbose)
		TRY(recipe_set_value(r, o->quiet ? "--quiet" : "--verbose", "runtime.log", o->quiet ? "warn" : "debug"));
	for (int i = 0; i < o->n_sets; i++) {
		const struct options_set *s = &o->sets[i];
		if (!s->key)
			TRY(recipe_set(r, s->value));
		else if (!is_stop(s))
			TRY(recipe_set_value(r, s->option, s->key, s->value));
	}
	return apply_stops(o, r);
}
