#include "base/json.h"

#include "base/file.h"

#include <inttypes.h>
#include <string.h>

enum err json_parse(const char *name, const char *text, size_t bytes, enum err code, json_t **out)
{
	json_error_t fault;
	json_t *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
	if (!value)
		return err_raise(code, __FILE__, __LINE__, "%s:%d:%d: not valid JSON: %s", name, fault.line, fault.column,
				 fault.text);
	*out = value;
	return ERR_OK;
}

enum err json_parse_file(const char *path, uint64_t max_bytes, enum err code, json_t **out)
{
	struct bytes text = { 0 };
	enum err e = file_read_all(path, max_bytes, &text);
	if (!e)
		e = json_parse(path, bytes_text(&text), text.size, code, out);
	bytes_free(&text);
	return e;
}

const char *json_type_name(const json_t *v)
{
	if (!v)
		return "nothing";
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "a list";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "an integer";
	case JSON_REAL: return "a real number";
	case JSON_TRUE:
	case JSON_FALSE: return "a boolean";
	default: return "null";
	}
}

static enum err find(json_t *object, const char *name, const char *key, json_t **out)
{
	if (!json_is_object(object))
		return ERR(MODEL, "%s: expected an object that holds \"%s\", found %s", name, key, json_type_name(object));
	json_t *v = json_object_get(object, key);
	*out = json_is_null(v) ? NULL : v;
	return ERR_OK;
}

static enum err check_int(const char *name, const char *key, const json_t *v, int64_t min, int64_t max, int64_t *out)
{
	if (!json_is_integer(v))
		return ERR(MODEL, "%s: \"%s\" must be an integer, found %s", name, key, json_type_name(v));
	int64_t n = json_integer_value(v);
	if (n < min || n > max)
		return ERR(MODEL, "%s: \"%s\" is %" PRId64 ", but must be %" PRId64 " to %" PRId64, name, key, n, min, max);
	*out = n;
	return ERR_OK;
}

static enum err check_real(const char *name, const char *key, const json_t *v, double min, double max, double *out)
{
	if (!json_is_number(v))
		return ERR(MODEL, "%s: \"%s\" must be a number, found %s", name, key, json_type_name(v));
	double x = json_number_value(v);
	if (!(x >= min && x <= max))
		return ERR(MODEL, "%s: \"%s\" is %g, but must be %g to %g", name, key, x, min, max);
	*out = x;
	return ERR_OK;
}

enum err json_get_int(json_t *object, const char *name, const char *key, int64_t min, int64_t max, int64_t *out)
{
	json_t *v;
	TRY(find(object, name, key, &v));
	if (!v)
		return ERR(MODEL, "%s: \"%s\" is missing", name, key);
	return check_int(name, key, v, min, max, out);
}

enum err json_get_int_or(json_t *object, const char *name, const char *key, int64_t min, int64_t max, int64_t fallback,
			 int64_t *out)
{
	json_t *v;
	TRY(find(object, name, key, &v));
	if (v)
		return check_int(name, key, v, min, max, out);
	*out = fallback;
	return ERR_OK;
}

enum err json_get_real(json_t *object, const char *name, const char *key, double min, double max, double *out)
{
	json_t *v;
	TRY(find(object, name, key, &v));
	if (!v)
		return ERR(MODEL, "%s: \"%s\" is missing", name, key);
	return check_real(name, key, v, min, max, out);
}

enum err json_get_real_or(json_t *object, const char *name, const char *key, double min, double max, double fallback,
			  double *out)
{
	json_t *v;
	TRY(find(object, name, key, &v));
	if (v)
		return check_real(name, key, v, min, max, out);
	*out = fallback;
	return ERR_OK;
}

enum err json_get_bool_or(json_t *object, const char *name, const char *key, int fallback, int *out)
{
	json_t *v;
	TRY(find(object, name, key, &v));
	if (v && !json_is_boolean(v))
		return ERR(MODEL, "%s: \"%s\" must be true or false, found %s", name, key, json_type_name(v));
	*out = v ? json_is_true(v) : fallback;
	return ERR_OK;
}

enum err json_get_string_or_null(json_t *object, const char *name, const char *key, const char **out)
{
	json_t *v;
	TRY(find(object, name, key, &v));
	if (v && !json_is_string(v))
		return ERR(MODEL, "%s: \"%s\" must be a string, found %s", name, key, json_type_name(v));
	*out = v ? json_string_value(v) : NULL;
	return ERR_OK;
}
