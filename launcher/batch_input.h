/* The lines of a batch: JSONL, read as a stream in flat memory, each line checked and given as a request.
 *
 * Two kinds of lines: OpenAI's batch format {"custom_id", "method": "POST", "url", "body"} for /v1/chat/completions and
 * /v1/completions, and plain {"prompt": ...} with the fields of a completion beside it (custom_id may be left out: "line-N").
 * The fields of a body, with types and ranges, are the rows of batch_fields.c; docs/BATCH.md shows them to users.
 *
 * A line that is no good is given with a code and one sentence in `fault`, to become an error result; only a stream that
 * cannot be read, or memory that runs out, is an error of the call. Every custom_id is kept as a 128-bit hash, 16 bytes in
 * a table that is at most 3/4 full, so a second use is found among millions. The first use counts, even where its line has
 * another fault. */
#ifndef SHARDRUN_LAUNCHER_BATCH_INPUT_H
#define SHARDRUN_LAUNCHER_BATCH_INPUT_H

#include "base/json.h"

#include <stddef.h>
#include <stdint.h>

enum batch_kind { BATCH_CHAT = 1, BATCH_COMPLETION = 2, BATCH_PLAIN = 4 };   /* bits: rows name those that they are for */

struct batch_sampling {
	double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
	int64_t top_k;                    /* 0: off */
	int64_t seed, n, max_tokens, min_tokens;
	int logprobs;                     /* of chosen tokens */
	int64_t top_logprobs;             /* and of this many of the best at each place */
	int ignore_eos;
};

struct batch_bias { int32_t token; float bias; };

struct batch_request {
	uint64_t line;                    /* from 0; sentences say line + 1 */
	enum batch_kind kind;             /* 0 when the line does not say */
	const char *custom_id;            /* NULL: not known */
	const char *fault_code;           /* NULL: the line is good; else as "invalid_json" */
	char fault[600];
	const char *model;                /* NULL: not named */
	json_t *messages;                 /* chat: a list; "content" is a string, or null beside tool calls. All json_t: of root */
	json_t *tools;                    /* NULL or a list of {"type": "function", "function": {"name", ...}}; not with tool_choice none */
	json_t *response_format;          /* NULL (text), or {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema"}} */
	json_t *template_arguments;       /* NULL or an object: chat_template_kwargs */
	const char *prompt;               /* completion, plain: text, which may hold 0 bytes; NULL when given as ids */
	size_t prompt_bytes;
	int32_t *prompt_ids;              /* owned */
	int64_t n_prompt_ids;
	struct batch_sampling sampling;   /* what the line leaves out is as the configuration says */
	const char **stops;               /* owned list of borrowed texts */
	int64_t n_stops;
	int32_t *stop_ids;                /* owned */
	int64_t n_stop_ids;
	struct batch_bias *biases;        /* owned, in the order of the line */
	int64_t n_biases;
	int64_t n_vocab;                  /* ids are checked against it; 0: not known */
	json_t *root;                     /* the line */
	char made_id[32];                 /* custom_id of a plain line without one */
};

struct batch_input_config {
	const char *path;                 /* NULL or "-": standard input */
	size_t max_line_bytes;            /* 0: 16 MiB. A longer line is skipped without being kept */
	int64_t n_vocab;
	struct batch_sampling defaults;
};

struct batch_input;

enum err batch_input_open(const struct batch_input_config *c, struct batch_input **out);
void batch_input_close(struct batch_input *in);           /* takes NULL */
/* 1 when batch_input_next need not wait for a pipe to say something, or only for the rest of a line that has begun. */
int batch_input_ready(const struct batch_input *in);
/* The next line. *more 0: there is none, and nothing is to be freed. ERR_IO, ERR_MEMORY. Blocks while a pipe is silent. */
enum err batch_input_next(struct batch_input *in, struct batch_request *r, int *more);
void batch_request_free(struct batch_request *r);
uint64_t batch_input_lines(const struct batch_input *in);  /* read so far */
/* Of all lines read so far; the same however the bytes came, and whether or not the last line ends in a newline. */
uint64_t batch_input_digest(const struct batch_input *in);
/* The digest of the first `lines` lines of a file, without looking at them; *read_lines is less where there are less. */
enum err batch_input_skim(const struct batch_input_config *c, uint64_t lines, uint64_t *read_lines,
			  uint64_t *digest);
/* Reads standard input, or any fd, to its end: for ranks that do not read the batch. */
void batch_input_drain(int fd);

#endif
