/* The fields that a request's body may have: one row each, with type and range. */
#ifndef SHARDRUN_LAUNCHER_BATCH_FIELDS_H
#define SHARDRUN_LAUNCHER_BATCH_FIELDS_H

#include "launcher/batch_input.h"

enum batch_type {
	FIELD_REAL,        /* a double at `at`, min to max */
	FIELD_INTEGER,     /* an int64_t */
	FIELD_FLAG,        /* an int */
	FIELD_OWN,         /* `read` does it */
	FIELD_OFF,         /* known, but what it asks for is not there: false, null, 0, or left out */
	FIELD_IGNORED      /* changes no result */
};

struct batch_field {
	const char *name;
	unsigned kinds;    /* of enum batch_kind */
	enum batch_type type;
	size_t at;         /* in struct batch_request */
	double min, max;
	enum err (*read)(struct batch_request *r, const char *where, json_t *value);
};

extern const struct batch_field batch_fields[];
extern const int n_batch_fields;

/* Reads a body's fields; `where` begins sentences ("line 7"). Any error but ERR_MEMORY is the line's. */
enum err batch_fields_read(struct batch_request *r, const char *where, json_t *body);

/* The readers of single fields (batch_values.c). */
enum err batch_read_prompt(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_messages(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_tools(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_tool_choice(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_response_format(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_template_arguments(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_stop(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_stop_ids(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_logit_bias(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_model(struct batch_request *r, const char *where, json_t *value);
enum err batch_read_logprobs_number(struct batch_request *r, const char *where, json_t *value);


#endif
