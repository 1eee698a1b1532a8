/* What json_schema.c (schemas, references, alternatives) and json_schema_types.c (what a type's keywords say) share; nobody else
 * includes this. */
#ifndef SHARDRUN_RUNTIME_JSON_SCHEMA_PARTS_H
#define SHARDRUN_RUNTIME_JSON_SCHEMA_PARTS_H

#include "runtime/grammar_json.h"
#include "runtime/json_schema.h"

enum { SCHEMA_MOST_PARTS = 4096, SCHEMA_MOST_PROPERTIES = 1000, SCHEMA_MOST_ITEMS = 4096, SCHEMA_MOST_LENGTH = 16384 };

/* A schema and its rule. */
struct part {
	json_t *schema;
	uint32_t start, end;
	uint32_t parent;             /* and where it stands there: /keyword, then /name or /index where there is one */
	const char *keyword, *name;
	int64_t index;               /* -1: none */
};

struct schema {
	struct draft draft;
	struct json_rules rules;
	json_t *root;
	struct part *parts;          /* owned */
	uint32_t n_parts;
	size_t parts_room;
	uint32_t at;                 /* the part that is being made */
};

/* ERR_WORK: the place of the part at work, then this. */
enum err schema_refuse(const struct schema *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The rule of a schema that stands in the part at work. */
enum err schema_rule(struct schema *c, json_t *schema, const char *keyword, const char *name, int64_t index, uint32_t *rule);
/* The one text of a value, without white space. */
enum err schema_literal(struct schema *c, const json_t *value, uint32_t from, uint32_t to);

enum err schema_object(struct schema *c, json_t *s, uint32_t from, uint32_t to);
enum err schema_array(struct schema *c, json_t *s, uint32_t from, uint32_t to);
enum err schema_string(struct schema *c, json_t *s, uint32_t from, uint32_t to);
enum err schema_number(struct schema *c, json_t *s, int is_integer, uint32_t from, uint32_t to);

#endif
