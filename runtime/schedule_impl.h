/* What schedule.c and schedule_drafts.c share; nobody else includes this. */
#ifndef SHARDRUN_RUNTIME_SCHEDULE_IMPL_H
#define SHARDRUN_RUNTIME_SCHEDULE_IMPL_H

#include "runtime/kernels.h"
#include "runtime/ngram.h"
#include "runtime/pages.h"
#include "runtime/schedule.h"

enum { NONE = -1 };
enum state { FINISHED, WAITING, RUNNING };

struct sequence {
	struct request r;
	enum state state;
	int in_flight;            /* steps under way that it is in */
	uint64_t last_step;       /* that it was put into */
	int cancelled;
	int counted;              /* the ranks that choose know its tokens so far, for penalties */
	int replica, table;       /* while running; table: which of the replica's */
	uint64_t arrival;
	int64_t n_done;           /* tokens whose K and V are in the cache, or on their way in a step */
	int64_t n_made;           /* tokens of the answer */
	int64_t n_pages, n_noted; /* n_noted: full pages that are noted, from the beginning */
	uint64_t serial;          /* of the last one noted */
	int64_t n_drafts;         /* of the step that it was in last: there may be pages for so many tokens more */
	int32_t next_free;        /* among finished ones */
};

struct replica {
	struct pages *pages;
	int32_t *tables;          /* (sequences, pages of the context) */
	int32_t *free_tables;     /* stack */
	int32_t *running;         /* (sequences), in order */
	struct ngram_set *texts;  /* of sequences that guess; NULL: none do */
	int64_t n_free_tables, n_running, load_tokens;
	int n_steps, n_answering_steps;   /* under way, and those with slices that answer */
	int64_t step_tokens;      /* in them */
};

struct schedule {
	struct schedule_limits limits;
	int64_t table_pages;
	struct replica *replicas;
	struct sequence *sequences;
	int32_t *waiting;         /* heap, the first in order on top; (capacity) */
	int32_t *by_length;       /* (sequences) */
	int64_t n_sequences, capacity, n_waiting, n_unfinished;
	int32_t first_free;
	uint64_t last_arrival, n_steps;   /* n_steps: the one that is being filled is the n-th */
	int64_t shared_tokens, put_back, drafted, accepted, draft_slices;
	int32_t extra_begin;      /* of the replica that is being filled, in step.extra */
	int32_t extra_room;       /* for each */
};

static inline int64_t pages_for(int64_t tokens) { return (tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS; }
static inline int64_t known(const struct sequence *q) { return q->r.n_prompt + q->n_made; }
/* Token i of what is known. */
static inline int32_t token_at(const struct sequence *q, int64_t i)
{
	return i < q->r.n_prompt ? q->r.prompt[i] : q->r.answer[i - q->r.n_prompt];
}

static inline int32_t *table_of(const struct schedule *s, const struct sequence *q)
{
	return s->replicas[q->replica].tables + q->table * s->table_pages;
}

/* --- schedule.c --- */
/* In how many steps under way those that answer are. */
int schedule_answering_steps(const struct schedule_limits *l);
/* What the sequence's next chosen token needs beside its logits. Gives 0 when that is nothing. */
int schedule_adjustments(const struct schedule *s, const struct sequence *q, struct adjustments *out);
/* Pages that those who run have yet to take for what is known of them, and one more each to go on. */
int64_t schedule_pages_promised(const struct schedule *s, const struct replica *r);

/* --- schedule_drafts.c --- */
enum err drafts_create(const struct schedule_limits *l, struct replica *r);
/* Pages in which only drafts stood that did not come true are given back. */
void drafts_settle(struct schedule *s, struct replica *r);
/* How many tokens a step of n sequences that answer may have with drafts; 0: it gets none. */
int64_t drafts_rows(const struct schedule *s, const struct replica *r, int64_t n_answering);
/* Puts at most `most` drafts behind the token of the step's last slice. Gives how many. */
int64_t drafts_add(struct schedule *s, struct step *step, int64_t most);

#endif
