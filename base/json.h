/* JSON through jansson: duplicate keys are errors, errors name file:line:column, and typed getters give one sentence
 * when a value is absent, of another type, or out of range. */
#ifndef SHARDRUN_BASE_JSON_H
#define SHARDRUN_BASE_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

/* `name` appears in sentences. code is what a fault is reported as (ERR_MODEL for model files). *out is the caller's:
 * json_decref. Text need not be terminated; nesting is limited by jansson (2048). */
enum err json_parse(const char *name, const char *text, size_t bytes, enum err code, json_t **out);
enum err json_parse_file(const char *path, uint64_t max_bytes, enum err code, json_t **out);

/* Getters: `object` is checked to be an object. has_default: absent or null gives fallback; else it is an ERR_MODEL. */
enum err json_get_int(json_t *object, const char *name, const char *key, int64_t min, int64_t max, int64_t *out);
enum err json_get_int_or(json_t *object, const char *name, const char *key, int64_t min, int64_t max, int64_t fallback,
			 int64_t *out);
enum err json_get_real(json_t *object, const char *name, const char *key, double min, double max, double *out);
enum err json_get_real_or(json_t *object, const char *name, const char *key, double min, double max, double fallback,
			  double *out);
enum err json_get_bool_or(json_t *object, const char *name, const char *key, int fallback, int *out);
/* The string is borrowed from the object. NULL when absent or null. */
enum err json_get_string_or_null(json_t *object, const char *name, const char *key, const char **out);

/* "a list", "an integer" ..: what a value is, in sentences; NULL is "nothing". */
const char *json_type_name(const json_t *v);

#endif
