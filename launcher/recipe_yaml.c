/* A recipe's YAML, through libyaml's events.
 *
 * The subset: one document, a mapping of sections (launch.slurm is one in a section) of scalars and of lists of scalars,
 * each scalar on one line. What YAML has beyond that (anchors, aliases, tags, merge keys, block scalars, directives) is
 * refused by name: a recipe must mean the same to every reader, and none of it is needed. Every event carries its line
 * and column, and so does every sentence. */
#include "launcher/recipe_rows.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { MAX_KEY_BYTES = 64, MAX_PATH_BYTES = 1000, MAX_NAME_BYTES = 120, MAX_ROWS = 128, MAX_SECTIONS = 16 };

struct source {
	struct recipe *recipe;
	const char *name;              /* of the file */
	const char *dir;               /* relative paths are taken from here; NULL: left alone */
	yaml_parser_t parser;
	unsigned char seen[MAX_ROWS];  /* by row */
	unsigned char seen_sections[MAX_SECTIONS];
	int n_keys;
};

static int section_index(const char *name)
{
	for (int i = 0; i < n_sections; i++)
		if (!strcmp(sections[i].name, name))
			return i;
	return -1;
}

static const char *last_part(const char *key) { return strrchr(key, '.') ? strrchr(key, '.') + 1 : key; }

/* Offers every key and section. A right name in a wrong section is as near as a slip of one letter. */
static const char *suggestion(const char *found)
{
	struct nearest whole = { 0 }, part = { 0 };
	for (int i = 0; i < n_rows; i++) {
		nearest_offer(&whole, found, rows[i].key);
		if (!strcmp(last_part(found), last_part(rows[i].key)) && !part.word)
			part.word = rows[i].key;
	}
	const char *word = nearest_word(&whole, found);
	if (word && whole.distance <= 1)
		return word;
	if (part.word)
		return part.word;
	for (int i = 0; i < n_sections; i++)
		if (nearest_distance(found, sections[i].name) <= 2)
			return sections[i].name;
	return word;
}

/* What stands in the first n bytes of a row's key and one part more: "tp" for n = 9 ("parallel."). */
static int part_bytes(const struct row *row, size_t n) { return (int)strcspn(row->key + n, "."); }

/* The names that may stand where `found` stood, each once; rows of one section are neighbours. */
static void put_known(const char *found, struct bytes *to)
{
	const char *dot = strrchr(found, '.');
	const struct row *last = NULL;
	size_t n = dot ? (size_t)(dot + 1 - found) : 0;
	for (int i = 0; i < n_rows; i++) {
		if (strncmp(rows[i].key, found, n))
			continue;
		int part = part_bytes(&rows[i], n);
		if (!last || part_bytes(last, n) != part || strncmp(last->key + n, rows[i].key + n, (size_t)part))
			bytes_printf(to, "%s%.*s", last ? ", " : "", part, rows[i].key + n);
		last = &rows[i];
	}
}

enum err unknown_key(const char *place, const char *found)
{
	const char *near = suggestion(found), *kind = strchr(found, '.') || (near && row_find(near)) ? "key" : "section";
	struct shown shown = text_shown(found, strlen(found));
	struct bytes known = { 0 };
	if (near)
		return ERR(RECIPE, "%s: unknown %s \"%s\", the nearest known is %s", place, kind, shown.text, near);
	put_known(found, &known);
	enum err e = known.error;
	if (!e)
		e = ERR(RECIPE, "%s: unknown %s \"%s\", known here: %s", place, kind, shown.text,
			known.size ? bytes_text(&known) : "see shardrun --help");
	bytes_free(&known);
	return e;
}

static struct place at(const struct source *s, const yaml_mark_t *mark, const char *key)
{
	struct place place;
	size_t n = strlen(s->name);
	int cut = n > MAX_NAME_BYTES;   /* the end of a path says more than its beginning */
	snprintf(place.text, sizeof place.text, "%s%s:%zu:%zu%s%.*s", cut ? "..." : "",
		 cut ? s->name + n - MAX_NAME_BYTES : s->name,
		 mark->line + 1, mark->column + 1, *key ? ": " : "", MAX_KEY_BYTES, key);
	return place;
}

static enum err parser_error(struct source *s)
{
	const yaml_parser_t *p = &s->parser;
	const char *problem = p->problem ? p->problem : "it cannot be read";
	const char *context = p->context ? p->context : "";
	if (p->error == YAML_MEMORY_ERROR)
		return ERR(MEMORY, "%s: no memory to read it", s->name);
	return ERR(RECIPE, "%s: is not YAML: %s%s%s", at(s, &p->problem_mark, "").text, context, *context ? ", " : "",
		   problem);
}

static enum err next(struct source *s, yaml_event_t *event)
{
	if (!yaml_parser_parse(&s->parser, event))
		return parser_error(s);
	return ERR_OK;
}

static const char *event_name(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_MAPPING_START_EVENT: return "a mapping";
	case YAML_SEQUENCE_START_EVENT: return "a list";
	case YAML_SCALAR_EVENT: return "a single value";
	default: return "the end";
	}
}

/* What is refused wherever it stands, before the event is looked at otherwise. */
static enum err check_event(const struct source *s, const yaml_event_t *event, const char *key)
{
	const char *anchor = NULL, *tag = NULL;
	struct place place = at(s, &event->start_mark, key);
	if (event->type == YAML_ALIAS_EVENT)
		return ERR(RECIPE, "%s: found the alias *%s, aliases are not allowed; write the value again", place.text,
			   SHOWN((const char *)event->data.alias.anchor));
	if (event->type == YAML_SCALAR_EVENT) {
		anchor = (const char *)event->data.scalar.anchor;
		tag = (const char *)event->data.scalar.tag;
	} else if (event->type == YAML_SEQUENCE_START_EVENT) {
		anchor = (const char *)event->data.sequence_start.anchor;
		tag = (const char *)event->data.sequence_start.tag;
	} else if (event->type == YAML_MAPPING_START_EVENT) {
		anchor = (const char *)event->data.mapping_start.anchor;
		tag = (const char *)event->data.mapping_start.tag;
	}
	if (anchor)
		return ERR(RECIPE, "%s: found the anchor &%s, anchors are not allowed; write each value where it is used",
			   place.text, SHOWN(anchor));
	if (tag)
		return ERR(RECIPE, "%s: found the tag \"%s\", tags are not allowed; quotes make a text of a value",
			   place.text, SHOWN(tag));
	if (event->type != YAML_SCALAR_EVENT)
		return ERR_OK;
	if (event->data.scalar.style == YAML_LITERAL_SCALAR_STYLE || event->data.scalar.style == YAML_FOLDED_SCALAR_STYLE)
		return ERR(RECIPE, "%s: found a block text (| or >), write the text on one line in quotes", place.text);
	if (event->start_mark.line != event->end_mark.line)
		return ERR(RECIPE,
			   "%s: found a value that goes on on the next line, write it on one line "
			   "(is the next line indented too far?)",
			   place.text);
	return ERR_OK;
}

static enum style scalar_style(const yaml_event_t *event)
{
	return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? STYLE_PLAIN : STYLE_QUOTED;
}

/* "key:" with nothing behind, or one of YAML's words for nothing. */
static int is_null(const yaml_event_t *event)
{
	static const char *const words[] = { "", "~", "null", "Null", "NULL" };
	for (size_t i = 0; scalar_style(event) == STYLE_PLAIN && i < sizeof words / sizeof words[0]; i++)
		if (!strcmp((const char *)event->data.scalar.value, words[i]))
			return 1;
	return 0;
}

static enum err store(struct source *s, const struct row *row, int item, const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;
	size_t bytes = event->data.scalar.length;
	char joined[2 * MAX_PATH_BYTES];
	struct place place = at(s, &event->start_mark, row->key);
	if (is_null(event)) {
		struct bytes allowed = { 0 };
		value_allowed(row, &allowed);
		enum err e = ERR(RECIPE, "%s: found nothing, allowed: %s", place.text, bytes_text(&allowed));
		bytes_free(&allowed);
		return e;
	}
	if (row->type == ROW_PATH && s->dir && bytes && bytes <= MAX_PATH_BYTES && text[0] != '/' && text[0] != '~' &&
	    !memchr(text, 0, bytes) && strlen(s->dir) < MAX_PATH_BYTES) {
		bytes = (size_t)snprintf(joined, sizeof joined, "%s%s%s", s->dir, !strcmp(s->dir, "/") ? "" : "/", text);
		text = joined;
	}
	return value_store(s->recipe, row, item, text, bytes, scalar_style(event), &place);
}

static enum err read_list(struct source *s, const struct row *row)
{
	value_clear(s->recipe, row);
	for (int item = 0;; item++) {
		yaml_event_t event;
		TRY(next(s, &event));
		enum err e = check_event(s, &event, row->key);
		int done = event.type == YAML_SEQUENCE_END_EVENT;
		if (!e && !done && event.type != YAML_SCALAR_EVENT)
			e = ERR(RECIPE, "%s: found %s in the list, allowed: single values",
				at(s, &event.start_mark, row->key).text, event_name(&event));
		if (!e && !done)
			e = store(s, row, item, &event);
		yaml_event_delete(&event);
		if (e || done)
			return e;
	}
}

static enum err read_value(struct source *s, const struct row *row)
{
	yaml_event_t event;
	TRY(next(s, &event));
	enum err e = check_event(s, &event, row->key);
	int want_list = row_is_list(row), is_list = event.type == YAML_SEQUENCE_START_EVENT;
	int null = event.type == YAML_SCALAR_EVENT && is_null(&event);
	if (!e && !null && (want_list ? !is_list : event.type != YAML_SCALAR_EVENT)) {
		struct bytes allowed = { 0 };
		value_allowed(row, &allowed);
		e = ERR(RECIPE, "%s: found %s, allowed: %s%s", at(s, &event.start_mark, row->key).text, event_name(&event),
			bytes_text(&allowed), want_list ? ", as [one, two]" : "");
		bytes_free(&allowed);
	}
	if (!e && is_list)
		e = read_list(s, row);
	else if (!e)
		e = store(s, row, -1, &event);
	yaml_event_delete(&event);
	return e;
}

static enum err read_section(struct source *s, const char *section);

static enum err enter_section(struct source *s, const char *section, const yaml_mark_t *mark)
{
	yaml_event_t event;
	if (s->seen_sections[section_index(section)]++)
		return ERR(RECIPE, "%s: the section is there a second time, put its keys together",
			   at(s, mark, section).text);
	TRY(next(s, &event));
	enum err e = check_event(s, &event, section);
	if (!e && event.type != YAML_MAPPING_START_EVENT) {
		int null = event.type == YAML_SCALAR_EVENT && is_null(&event);
		e = ERR(RECIPE, "%s: found %s, allowed: keys of this section, indented below it",
			at(s, &event.start_mark, section).text, null ? "nothing" : event_name(&event));
	}
	yaml_event_delete(&event);
	return e ? e : read_section(s, section);
}

/* The value of one key of a section ("" for the top). */
static enum err read_key(struct source *s, const char *section, const yaml_event_t *event)
{
	const char *name = (const char *)event->data.scalar.value;
	const yaml_mark_t *mark = &event->start_mark;
	char key[2 * MAX_KEY_BYTES + 2];
	snprintf(key, sizeof key, "%.*s%s%.*s", MAX_KEY_BYTES, section, *section ? "." : "", MAX_KEY_BYTES, name);
	if (strlen(name) != event->data.scalar.length)
		return ERR(RECIPE, "%s: found a zero byte in the name of a key", at(s, mark, section).text);
	const struct row *row = strchr(name, '.') ? NULL : row_find(key);
	if (!row && strlen(key) < MAX_KEY_BYTES && !strchr(name, '.') && section_index(key) >= 0)
		return enter_section(s, key, mark);
	if (!row && !strcmp(name, "<<"))
		return ERR(RECIPE, "%s: found the merge key <<, merging is not allowed; write each value where it is used",
			   at(s, mark, section).text);
	if (!row && strchr(name, '.') && (row_find(name) || section_index(name) >= 0))
		return ERR(RECIPE, "%s: unknown key \"%s\", write \"%s:\" indented below \"%.*s:\"", at(s, mark, "").text,
			   name, last_part(name), (int)(last_part(name) - 1 - name), name);
	if (!row)
		return unknown_key(at(s, mark, "").text, key);
	if (s->seen[row - rows]++)
		return ERR(RECIPE, "%s: the key is there a second time, leave one", at(s, mark, key).text);
	s->n_keys++;
	return read_value(s, row);
}

static enum err read_section(struct source *s, const char *section)
{
	for (;;) {
		yaml_event_t event;
		TRY(next(s, &event));
		enum err e = check_event(s, &event, section);
		int done = event.type == YAML_MAPPING_END_EVENT;
		if (!e && !done && event.type != YAML_SCALAR_EVENT)
			e = ERR(RECIPE, "%s: found %s, allowed: the name of a key", at(s, &event.start_mark, section).text,
				event_name(&event));
		else if (!e && !done)
			e = read_key(s, section, &event);
		yaml_event_delete(&event);
		if (e || done)
			return e;
	}
}

/* Steps over the events before the first value: stream start, document start. *empty: there is no document. */
static enum err open_document(struct source *s, int *empty)
{
	yaml_event_t event;
	enum err e = ERR_OK;
	TRY(next(s, &event));   /* stream start */
	yaml_event_delete(&event);
	TRY(next(s, &event));
	*empty = event.type == YAML_STREAM_END_EVENT;
	if (!*empty && (event.data.document_start.version_directive ||
			event.data.document_start.tag_directives.start != event.data.document_start.tag_directives.end))
		e = ERR(RECIPE, "%s: found a %% directive, a recipe has none", at(s, &event.start_mark, "").text);
	yaml_event_delete(&event);
	return e;
}

static enum err close_document(struct source *s)
{
	yaml_event_t event;
	enum err e = ERR_OK;
	TRY(next(s, &event));   /* document end */
	yaml_event_delete(&event);
	TRY(next(s, &event));
	if (event.type != YAML_STREAM_END_EVENT)
		e = ERR(RECIPE, "%s: a second document starts here (---), a recipe is one document",
			at(s, &event.start_mark, "").text);
	yaml_event_delete(&event);
	return e;
}

static enum err read_document(struct source *s)
{
	yaml_event_t event;
	int empty;
	TRY(open_document(s, &empty));
	if (!empty) {
		TRY(next(s, &event));
		enum err e = check_event(s, &event, "");
		int is_mapping = event.type == YAML_MAPPING_START_EVENT;
		empty = event.type == YAML_SCALAR_EVENT && is_null(&event);
		if (!e && !is_mapping && !empty)
			e = ERR(RECIPE, "%s: found %s, a recipe is made of sections: model:, parallel:, ...",
				at(s, &event.start_mark, "").text, event_name(&event));
		yaml_event_delete(&event);
		if (e)
			return e;
		if (is_mapping)
			TRY(read_section(s, ""));
		TRY(close_document(s));
	}
	if (!s->n_keys)
		return ERR(RECIPE, "%s:1:1: the recipe is empty, it needs at least \"model:\" and below it \"path:\"",
			   s->name);
	return ERR_OK;
}

static enum err open_source(struct source *s, const char *text, size_t bytes)
{
	if (!yaml_parser_initialize(&s->parser))
		return ERR(MEMORY, "%s: no memory to read it", s->name);
	yaml_parser_set_encoding(&s->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&s->parser, (const unsigned char *)text, bytes);
	return ERR_OK;
}

enum err yaml_apply(struct recipe *r, const char *name, const char *dir, const char *text, size_t bytes)
{
	struct source s = { .recipe = r, .name = name, .dir = dir };
	if (!bytes)
		text = "";
	int bom = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3);
	TRY(text_check(name, text, bytes));
	TRY(open_source(&s, text + 3 * bom, bytes - 3 * (size_t)bom));
	enum err e = read_document(&s);
	yaml_parser_delete(&s.parser);
	return e;
}

enum err yaml_apply_list(struct recipe *r, const struct row *row, const char *text, size_t bytes, const struct place *place)
{
	struct source s = { .recipe = r, .name = place->text };
	yaml_event_t event;
	int empty;
	TRY(open_source(&s, text, bytes));
	enum err e = open_document(&s, &empty);
	if (!e)
		e = next(&s, &event);
	if (!e) {
		e = check_event(&s, &event, row->key);
		if (!e && event.type != YAML_SEQUENCE_START_EVENT)
			e = ERR(RECIPE, "%s: found %s, allowed: a list as [one, two]", place->text, event_name(&event));
		yaml_event_delete(&event);
	}
	if (!e)
		e = read_list(&s, row);
	if (!e)
		e = close_document(&s);
	yaml_parser_delete(&s.parser);
	return e;
}

