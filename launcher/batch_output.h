/* The result line of a request, in OpenAI's batch result format:
 *
 *     {"id", "custom_id", "response": {"status_code": 200, "request_id", "body": {"id", "object", "created", "model", "choices",
 *      "usage"}}, "error": null}
 *     {"id", "custom_id" or null, "response": null, "error": {"code", "message", "line"}}
 *
 * A line is a function of what is given here alone: no clock, no random numbers, no addresses, keys in one order. Ids follow
 * from the batch's fingerprint, the line's number and its custom_id; so a batch that was killed and resumed has the bytes of
 * one that was not. What depends on how a run went (times, tokens found in the prefix cache) has no place in it. */
#ifndef SHARDRUN_LAUNCHER_BATCH_OUTPUT_H
#define SHARDRUN_LAUNCHER_BATCH_OUTPUT_H

#include "base/bytes.h"
#include "launcher/batch_input.h"

/* The same for all lines of a batch. */
struct batch_output {
	const char *model;          /* the name shown */
	int64_t created;            /* journal_created */
	uint64_t fingerprint;       /* journal_fingerprint */
};

/* Texts may hold bytes that are not UTF-8 (a token that is part of a character): shown as U+FFFD. */
struct batch_text { const char *data; size_t bytes; };
struct batch_best { struct batch_text text; double logprob; };
struct batch_logprob {              /* of one token of the answer */
	struct batch_text text;
	double logprob;
	const struct batch_best *best;  /* n_best, best first */
	int64_t n_best;
};

struct batch_choice {
	struct batch_text text;
	const char *finish_reason;      /* "stop", "length", "tool_calls" */
	const struct batch_logprob *logprobs;   /* NULL: none were asked for */
	int64_t n_logprobs;
	json_t *tool_calls;             /* NULL, or a list that is shown as it is; borrowed */
};

struct batch_usage { int64_t prompt_tokens, completion_tokens; };   /* of all choices */

/* Appends the line, without a newline, to `out`. */
enum err batch_output_answer(const struct batch_output *o, const struct batch_request *r, const struct batch_choice *choices,
			     int64_t n, const struct batch_usage *usage, struct bytes *out);
/* code as "invalid_json"; custom_id may be NULL; line from 0. */
enum err batch_output_fault(const struct batch_output *o, uint64_t line, const char *custom_id, const char *code,
			    const char *message, struct bytes *out);

#endif
