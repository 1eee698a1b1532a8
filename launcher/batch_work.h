/* A batch at work, on the head: lines of the input become requests of the engine, and its answers become results in the journal.
 *
 *   input --next--> line (prompt, one text for each of its n answers) --token--> .. --done--> result line --> journal
 *
 * A line that is no good, or that the model cannot answer, becomes an error result at once. What is dropped when time is up
 * gets no result: the next run computes it. Memory is that of the lines that wait or run.
 *
 * The n answers of a line are one request, but those that are held to a format are one each, as each has a mask of its own. The
 * others are handed over when the first has its first token, like the engine does, so that they find the prompt computed. */
#ifndef SHARDRUN_LAUNCHER_BATCH_WORK_H
#define SHARDRUN_LAUNCHER_BATCH_WORK_H

#include "launcher/batch_formats.h"
#include "launcher/batch_input.h"
#include "launcher/batch_output.h"
#include "launcher/journal.h"
#include "launcher/timings.h"
#include "launcher/wishes.h"
#include "runtime/engine.h"
#include "runtime/template.h"
#include "runtime/tokenizer.h"

struct batch_times {                 /* of the monotonic clock; LLONG_MAX: never */
	long long admit_until_us;    /* no request begins after that */
	long long drop_at_us;        /* what still runs then ends without a result */
};

struct batch_work {
	const struct recipe *recipe;          /* borrowed, as all down to model */
	struct journal *journal;
	struct batch_input *input;
	const struct tokenizer *tokenizer;
	const struct chat_templates *templates;
	const struct model *model;
	struct batch_output output;
	struct wishes wishes;
	/* Asked between steps: what is left of the time. */
	struct batch_times (*times)(void *arg);
	void *arg;
	/* for batch_work_*: */
	int ended;                            /* the input has */
	int64_t running, dropped;             /* lines */
	int64_t tokens;                       /* of all answers, in this run */
	int64_t done, faults;                 /* lines that got their result in this run; of them, those with an error */
	long long idle_since_us, idle_us;     /* nothing runs and the input has nothing: since when (0: not now), and in all */
	struct timings timings;
	enum err error;                       /* ends the batch */
	struct err_record record;             /* its sentence */
	struct bytes text;                    /* room */
	struct formats *formats;              /* NULL before the first */
	struct line *siblings;                /* lines with more answers to hand over, oldest first */
	int64_t unhanded;                     /* lines that are or will be among them */
	int no_more;                          /* nothing is handed over any more */
};

/* What a line leaves out, as the recipe says. */
void batch_defaults(const struct recipe *r, struct batch_sampling *out);
/* For engine_run on the head; calls->arg is w. */
void batch_work_calls(struct batch_work *w, struct engine_calls *calls);
/* After engine_run: commits, and gives the error that ended the work; ERR_OK also when time was up. */
enum err batch_work_end(struct batch_work *w);
/* What is left, also after an engine that broke. */
void batch_work_free(struct batch_work *w);

#endif
