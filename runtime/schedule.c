#include "runtime/schedule.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

enum state { WAITING, RUNNING, FINISHED };

struct sequence {
	struct request r;
	enum state state;
	int replica;
	int64_t n_done;           /* tokens whose K and V are in the cache, or on their way in a step */
	int64_t n_made;           /* tokens of the answer */
	int32_t last_token;       /* the answer's last token, not yet computed */
	int32_t *pages;           /* owned; for the whole length */
	int64_t n_pages;
};

struct replica {
	int32_t *free_pages;      /* stack */
	int64_t n_free, n_running, load_tokens;
};

struct schedule {
	struct schedule_limits limits;
	struct replica *replicas;
	struct sequence *sequences;
	int64_t n_sequences, capacity, first_open, n_unfinished;
};

enum err schedule_create(const struct schedule_limits *limits, struct schedule **out)
{
	struct schedule *s;
	enum err e;
	TRY(MEM_NEW(1, struct schedule, &s));
	s->limits = *limits;
	TRY_OR(destroy, e, MEM_NEW((size_t)limits->n_replicas, struct replica, &s->replicas));
	for (int i = 0; i < limits->n_replicas; i++) {
		struct replica *r = &s->replicas[i];
		TRY_OR(destroy, e, MEM_NEW((size_t)limits->n_pages, int32_t, &r->free_pages));
		for (int64_t p = limits->n_pages; p-- > 0;)   /* page 0 on top */
			r->free_pages[r->n_free++] = (int32_t)p;
	}
	*out = s;
	return ERR_OK;
destroy:
	schedule_destroy(s);
	return e;
}

void schedule_destroy(struct schedule *s)
{
	if (!s)
		return;
	for (int i = 0; s->replicas && i < s->limits.n_replicas; i++)
		mem_free(s->replicas[i].free_pages);
	for (int64_t i = 0; i < s->n_sequences; i++)
		mem_free(s->sequences[i].pages);
	mem_free(s->replicas);
	mem_free(s->sequences);
	mem_free(s);
}

enum err schedule_add(struct schedule *s, const struct request *r, int32_t *sequence)
{
	const struct schedule_limits *l = &s->limits;
	if (r->n_prompt < 1)
		return ERR(WORK, "a prompt has no tokens; it needs at least one");
	if (r->max_tokens < 1)
		return ERR(WORK, "an answer of at most %" PRId64 " tokens is asked for; it needs room for at least one", r->max_tokens);
	if (r->n_prompt >= l->context)
		return ERR(FIT, "a prompt of %" PRId64 " tokens leaves no room for an answer in a context of %" PRId64
				" (runtime.context)", r->n_prompt, l->context);
	struct sequence q = { .r = *r };
	if (q.r.max_tokens > l->context - r->n_prompt)
		q.r.max_tokens = l->context - r->n_prompt;
	/* the last token of the answer is never computed, so its K and V need no place */
	int64_t tokens = r->n_prompt + q.r.max_tokens - 1;
	q.n_pages = (tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
	if (q.n_pages > l->n_pages)
		return ERR(FIT, "a sequence of %" PRId64 " tokens needs %" PRId64 " pages of %d tokens, but the KV cache has %" PRId64
				" (runtime.kv_bytes)", tokens, q.n_pages, KV_PAGE_TOKENS, l->n_pages);
	if (s->n_sequences == s->capacity) {
		int64_t capacity = s->capacity ? 2 * s->capacity : 64;
		TRY(mem_grow(&s->sequences, (size_t)capacity, sizeof *s->sequences, "sequences"));
		s->capacity = capacity;
	}
	TRY(MEM_NEW((size_t)q.n_pages, int32_t, &q.pages));
	*sequence = (int32_t)s->n_sequences;
	s->sequences[s->n_sequences++] = q;
	s->n_unfinished++;
	return ERR_OK;
}

static int can_admit(const struct schedule *s, const struct replica *r, const struct sequence *q)
{
	return r->n_running < s->limits.sequences && r->n_free >= q->n_pages;
}

/* In order of arrival; the first that does not fit holds back those behind it, so that long requests do not starve. */
static void admit(struct schedule *s)
{
	while (s->first_open < s->n_sequences && s->sequences[s->first_open].state == FINISHED)
		s->first_open++;
	for (int64_t i = s->first_open; i < s->n_sequences; i++) {
		struct sequence *q = &s->sequences[i];
		int best = -1;
		if (q->state != WAITING)
			continue;
		for (int r = 0; r < s->limits.n_replicas; r++)
			if (can_admit(s, &s->replicas[r], q) &&
			    (best < 0 || s->replicas[r].load_tokens < s->replicas[best].load_tokens))
				best = r;
		if (best < 0)
			return;
		struct replica *r = &s->replicas[best];
		q->state = RUNNING;
		q->replica = best;
		for (int64_t p = 0; p < q->n_pages; p++)
			q->pages[p] = r->free_pages[--r->n_free];
		r->n_running++;
		r->load_tokens += q->r.n_prompt + q->r.max_tokens;
	}
}

static void put_slice(struct step *step, const struct sequence *q, int32_t number, int64_t n)
{
	struct slice *sl = &step->slices[step->n_slices++];
	*sl = (struct slice){ .sequence = number, .replica = q->replica, .pos = (int32_t)q->n_done, .n_tokens = (int32_t)n,
			      .first_token = step->n_tokens, .first_page = step->n_pages, .sample = q->r.sample };
	sl->n_pages = (int32_t)((q->n_done + n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
	memcpy(step->pages + step->n_pages, q->pages, (size_t)sl->n_pages * sizeof *q->pages);
	step->n_pages += sl->n_pages;
	for (int64_t i = q->n_done; i < q->n_done + n; i++)
		step->tokens[step->n_tokens++] = i < q->r.n_prompt ? q->r.prompt[i] : q->last_token;
	if (q->n_done + n >= q->r.n_prompt)
		sl->flags |= SLICE_SAMPLE;
	if (q->r.all_logits && q->n_done < q->r.n_prompt)
		sl->flags |= SLICE_ALL_LOGITS;
}

/* One pass over the running sequences of a replica: decode tokens, or prefill chunks. */
static void fill(struct schedule *s, struct step *step, int replica, int prefill, int64_t *budget)
{
	for (int64_t i = s->first_open; i < s->n_sequences && *budget > 0; i++) {
		struct sequence *q = &s->sequences[i];
		if (q->state == WAITING)
			return;   /* requests are let in by order of arrival: so are all behind it */
		if (q->state != RUNNING || q->replica != replica || (q->n_done < q->r.n_prompt) != prefill)
			continue;
		int64_t n = prefill ? q->r.n_prompt - q->n_done : 1;
		if (n > *budget)
			n = *budget;
		if (step->n_slices == step->max_slices ||
		    step->n_pages + (q->n_done + n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS > step->max_pages)
			return;
		put_slice(step, q, (int32_t)i, n);
		q->n_done += n;
		*budget -= n;
	}
}

void schedule_next(struct schedule *s, struct step *step)
{
	step_clear(step);
	admit(s);
	for (int r = 0; r < s->limits.n_replicas; r++) {
		int64_t budget = s->limits.step_tokens;
		fill(s, step, r, 0, &budget);
		fill(s, step, r, 1, &budget);
	}
}

int64_t schedule_room(const struct schedule *s, int32_t sequence)
{
	const struct sequence *q = &s->sequences[sequence];
	return q->r.max_tokens - q->n_made;
}

int schedule_is_full(const struct schedule *s, int32_t sequence) { return schedule_room(s, sequence) <= 0; }

void schedule_token(struct schedule *s, int32_t sequence, int32_t token, int more)
{
	struct sequence *q = &s->sequences[sequence];
	struct replica *r = &s->replicas[q->replica];
	q->n_made++;
	q->last_token = token;
	if (more && q->n_made < q->r.max_tokens)
		return;
	for (int64_t p = q->n_pages; p-- > 0;)
		r->free_pages[r->n_free++] = q->pages[p];
	q->state = FINISHED;
	r->n_running--;
	r->load_tokens -= q->r.n_prompt + q->r.max_tokens;
	s->n_unfinished--;
}

int64_t schedule_unfinished(const struct schedule *s) { return s->n_unfinished; }

static enum err mark(unsigned char *seen, int64_t n, int32_t page, int replica)
{
	if (page < 0 || page >= n || seen[page]++)
		return ERR(BUG, "page %d of replica %d is in two places or out of range", page, replica);
	return ERR_OK;
}

enum err schedule_check(const struct schedule *s)
{
	unsigned char *seen;
	enum err e = ERR_OK;
	TRY(mem_alloc((size_t)s->limits.n_pages, 1, "page check", &seen));
	for (int r = 0; !e && r < s->limits.n_replicas; r++) {
		const struct replica *rep = &s->replicas[r];
		int64_t found = rep->n_free;
		memset(seen, 0, (size_t)s->limits.n_pages);
		for (int64_t p = 0; !e && p < rep->n_free; p++)
			e = mark(seen, s->limits.n_pages, rep->free_pages[p], r);
		for (int64_t i = 0; !e && i < s->n_sequences; i++) {
			const struct sequence *q = &s->sequences[i];
			if (q->state != RUNNING || q->replica != r)
				continue;
			found += q->n_pages;
			for (int64_t p = 0; !e && p < q->n_pages; p++)
				e = mark(seen, s->limits.n_pages, q->pages[p], r);
		}
		if (!e && found != s->limits.n_pages)
			e = ERR(BUG, "replica %d has %" PRId64 " pages, %" PRId64 " are accounted for", r, s->limits.n_pages, found);
	}
	mem_free(seen);
	return e;
}
