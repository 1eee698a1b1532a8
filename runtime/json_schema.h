/* A JSON schema as a grammar: docs/STRUCTURED-OUTPUT.md says which keywords are read and what they become. A document that
 * the grammar reads is valid by the schema; not every valid document is read (order of properties, white space, lengths of numbers).
 *
 * Each schema is one rule, made once for each place where it stands, so that $ref may recurse; rules that wait to be made are a list,
 * and nothing here recurses by the schema's depth. */
#ifndef SHARDRUN_RUNTIME_JSON_SCHEMA_H
#define SHARDRUN_RUNTIME_JSON_SCHEMA_H

#include "base/json.h"
#include "runtime/grammar.h"

/* schema NULL: any object. ERR_WORK: a sentence with the keyword and its place, as "#/properties/x". */
enum err json_schema_compile(json_t *schema, struct grammar **out);

#endif
