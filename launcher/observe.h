/* What `--report` and `--trace` ask for, from before the first step to the files. Costs nothing where neither is asked for: then there is
 * no trace. */
#ifndef SHARDRUN_LAUNCHER_OBSERVE_H
#define SHARDRUN_LAUNCHER_OBSERVE_H

#include "launcher/options.h"
#include "launcher/timings.h"
#include "runtime/session.h"

/* How a run went, on the head; what a summary and a report say. */
struct outcome {
	const char *state;            /* a sentence: "Every line has its result." */
	int is_cut_short;             /* there is more to do */
	int64_t requests, errors;     /* that ended in this run */
	int64_t resumed;              /* results that were there before; -1: there is no such thing */
	int64_t prompt_tokens, shared_tokens, answer_tokens;   /* of prompts: computed, and found in pages */
	int64_t steps, put_back;
	double seconds;
	double waited_s;              /* nothing could be done: there was no input, or, before these seconds, another run had the batch */
	const struct timings *timings;
};

struct observe {
	const struct options *o;
	struct trace *trace;          /* NULL: nobody asked */
	int wants_trace;
	long long end_us;
};

/* Whether the files can be written, before there is work to lose. Not collective; for the head. */
enum err observe_check(const struct options *o);
/* COLLECTIVE over the session's world, as the next one. The head's options count. */
enum err observe_begin(struct observe *b, const struct options *o, struct session *s);
/* After the engine has ended: writes what was asked for. how: on the head, NULL elsewhere. */
enum err observe_end(struct observe *b, struct session *s, const struct outcome *how);
void observe_close(struct observe *b);      /* where observe_end was not reached; before the session goes */
/* The command line, as far as it may be shown: without prompts. */
void observe_command(const struct options *o, struct bytes *to);

#endif
