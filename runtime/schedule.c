#include "runtime/schedule_impl.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

static enum err create_replica(const struct schedule *s, struct replica *r)
{
	int64_t n = s->limits.sequences;
	TRY(pages_create(s->limits.n_pages, &r->pages));
	TRY(MEM_NEW((size_t)(n * s->table_pages), int32_t, &r->tables));
	TRY(MEM_NEW((size_t)n, int32_t, &r->free_tables));
	TRY(MEM_NEW((size_t)n, int32_t, &r->running));
	TRY(drafts_create(&s->limits, r));
	while (r->n_free_tables < n) {
		r->free_tables[r->n_free_tables] = (int32_t)(n - 1 - r->n_free_tables);
		r->n_free_tables++;
	}
	return ERR_OK;
}

enum err schedule_create(const struct schedule_limits *limits, struct schedule **out)
{
	struct schedule *s;
	enum err e;
	TRY(MEM_NEW(1, struct schedule, &s));
	s->limits = *limits;
	s->limits.in_flight = limits->in_flight > 1 ? limits->in_flight : 1;
	s->table_pages = pages_for(limits->context);
	s->first_free = NONE;
	TRY_OR(destroy, e, MEM_NEW((size_t)limits->n_replicas, struct replica, &s->replicas));
	TRY_OR(destroy, e, MEM_NEW((size_t)limits->sequences, int32_t, &s->by_length));
	for (int i = 0; i < limits->n_replicas; i++)
		TRY_OR(destroy, e, create_replica(s, &s->replicas[i]));
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
	for (int i = 0; s->replicas && i < s->limits.n_replicas; i++) {
		pages_destroy(s->replicas[i].pages);
		mem_free(s->replicas[i].tables);
		mem_free(s->replicas[i].free_tables);
		mem_free(s->replicas[i].running);
		ngram_set_destroy(s->replicas[i].texts);
	}
	mem_free(s->replicas);
	mem_free(s->sequences);
	mem_free(s->waiting);
	mem_free(s->by_length);
	mem_free(s);
}

/* --- a sequence --- */

static int is_answering(const struct sequence *q) { return q->n_made > 0 && q->n_done == known(q) - 1; }

/* Tokens first .. first + n - 1 of what is known. */
static void copy_ids(const struct sequence *q, int64_t first, int64_t n, int32_t *to)
{
	for (int64_t i = first; i < first + n; i++)
		*to++ = token_at(q, i);
}

static int is_before(const struct schedule *s, int32_t a, int32_t b)
{
	const struct sequence *x = &s->sequences[a], *y = &s->sequences[b];
	return x->r.priority != y->r.priority ? x->r.priority < y->r.priority : x->arrival < y->arrival;
}

/* --- those that wait --- */

static void push_waiting(struct schedule *s, int32_t number)
{
	int64_t at = s->n_waiting++;
	for (; at > 0 && is_before(s, number, s->waiting[(at - 1) / 2]); at = (at - 1) / 2)
		s->waiting[at] = s->waiting[(at - 1) / 2];
	s->waiting[at] = number;
}

/* Takes out the one at this place of the heap: the last one sinks, or rises, from there. */
static void pull_waiting(struct schedule *s, int64_t at)
{
	int32_t last = s->waiting[--s->n_waiting];
	if (at == s->n_waiting)
		return;
	for (; at > 0 && is_before(s, last, s->waiting[(at - 1) / 2]); at = (at - 1) / 2)
		s->waiting[at] = s->waiting[(at - 1) / 2];
	for (int64_t child; (child = 2 * at + 1) < s->n_waiting; at = child) {
		if (child + 1 < s->n_waiting && is_before(s, s->waiting[child + 1], s->waiting[child]))
			child++;
		if (!is_before(s, s->waiting[child], last))
			break;
		s->waiting[at] = s->waiting[child];
	}
	s->waiting[at] = last;
}

/* --- coming and going --- */

/* Of what is asked, what the context leaves room for. */
static int64_t most_tokens(const struct schedule_limits *l, const struct request *r)
{
	int64_t room = l->context - r->n_prompt;
	return r->max_tokens < room ? r->max_tokens : room;
}

enum err schedule_check_request(const struct schedule_limits *l, const struct request *r)
{
	if (r->n_prompt < 1)
		return ERR(WORK, "a prompt has no tokens; it needs at least one");
	if (r->max_tokens < 1)
		return ERR(WORK, "an answer of at most %" PRId64 " tokens is asked for; it needs room for at least one", r->max_tokens);
	if (r->n_biases > ADJUST_MAX_BIASES || r->n_stop_tokens > ADJUST_MAX_BANNED)
		return ERR(WORK, "a request has %d logit biases and %d stop tokens; at most %d and %d are possible", r->n_biases,
			   r->n_stop_tokens, ADJUST_MAX_BIASES, ADJUST_MAX_BANNED);
	if (r->n_prompt >= l->context)
		return ERR(FIT, "a prompt of %" PRId64 " tokens leaves no room for an answer in a context of %" PRId64
				" (runtime.context)", r->n_prompt, l->context);
	/* the last token of the answer is never computed, so its K and V need no place */
	int64_t tokens = r->n_prompt + most_tokens(l, r) - 1;
	if (pages_for(tokens) > l->n_pages)
		return ERR(FIT, "a sequence of %" PRId64 " tokens needs %" PRId64 " pages of %d tokens, but the KV cache has %" PRId64
				" (runtime.kv_bytes)", tokens, pages_for(tokens), KV_PAGE_TOKENS, l->n_pages);
	return ERR_OK;
}

static enum err new_number(struct schedule *s, int32_t *number)
{
	if (s->first_free != NONE) {
		*number = s->first_free;
		s->first_free = s->sequences[*number].next_free;
		return ERR_OK;
	}
	if (s->n_sequences == s->capacity) {
		int64_t capacity = s->capacity ? 2 * s->capacity : 64;
		TRY(mem_grow(&s->sequences, (size_t)capacity, sizeof *s->sequences, "sequences"));
		TRY(mem_grow(&s->waiting, (size_t)capacity, sizeof *s->waiting, "waiting sequences"));
		s->capacity = capacity;
	}
	*number = (int32_t)s->n_sequences++;
	return ERR_OK;
}

enum err schedule_add(struct schedule *s, const struct request *r, int32_t *sequence)
{
	TRY(schedule_check_request(&s->limits, r));
	TRY(new_number(s, sequence));
	struct sequence *q = &s->sequences[*sequence];
	*q = (struct sequence){ .r = *r, .state = WAITING, .arrival = ++s->last_arrival, .serial = PAGES_ROOT };
	q->r.max_tokens = most_tokens(&s->limits, r);
	push_waiting(s, *sequence);
	s->n_unfinished++;
	return ERR_OK;
}

static void note_full_pages(struct schedule *s, struct sequence *q)
{
	int32_t ids[KV_PAGE_TOKENS];
	for (; (q->n_noted + 1) * KV_PAGE_TOKENS <= q->n_done; q->n_noted++) {
		copy_ids(q, q->n_noted * KV_PAGE_TOKENS, KV_PAGE_TOKENS, ids);
		q->serial = pages_note(s->replicas[q->replica].pages, table_of(s, q)[q->n_noted], q->serial, ids, KV_PAGE_TOKENS);
	}
}

/* Notes what stands in the page after the last full one. */
static void note_partial(struct schedule *s, const struct sequence *q)
{
	int32_t ids[KV_PAGE_TOKENS];
	int64_t n = q->n_done - q->n_noted * KV_PAGE_TOKENS;
	if (n <= 0 || n >= KV_PAGE_TOKENS)
		return;
	copy_ids(q, q->n_noted * KV_PAGE_TOKENS, n, ids);
	pages_note(s->replicas[q->replica].pages, table_of(s, q)[q->n_noted], q->serial, ids, (int)n);
}

/* Takes a running sequence out of its replica; what it computed stays noted. */
static void stop(struct schedule *s, int32_t number)
{
	struct sequence *q = &s->sequences[number];
	struct replica *r = &s->replicas[q->replica];
	int32_t *table = table_of(s, q);
	int64_t at = 0;
	note_full_pages(s, q);               /* drafts that came true may have filled one */
	note_partial(s, q);
	ngram_drop(r->texts, number);
	for (int64_t p = q->n_pages; p-- > 0;)
		pages_release(r->pages, table[p]);
	while (r->running[at] != number)
		at++;
	memmove(r->running + at, r->running + at + 1, (size_t)(--r->n_running - at) * sizeof *r->running);
	r->free_tables[r->n_free_tables++] = q->table;
	r->load_tokens -= q->r.n_prompt + q->r.max_tokens;
	q->n_pages = q->n_noted = q->n_done = q->n_drafts = 0;
	q->counted = 0;
	q->serial = PAGES_ROOT;
}

static void finish(struct schedule *s, int32_t number)
{
	struct sequence *q = &s->sequences[number];
	if (q->state == RUNNING)
		stop(s, number);
	q->state = FINISHED;
	q->next_free = s->first_free;
	s->first_free = number;
	s->n_unfinished--;
}

static void put_back(struct schedule *s, int32_t number)
{
	stop(s, number);
	s->sequences[number].state = WAITING;
	push_waiting(s, number);
	s->put_back++;
}

/* --- beginnings --- */

/* How many tokens of what is known stand in pages of this replica, and how many of these pages nobody holds. A page's serial is
 * what the next one is found under. */
static int64_t tokens_found(const struct replica *r, const struct sequence *q, int64_t *n_kept)
{
	int32_t ids[KV_PAGE_TOKENS];
	uint64_t serial = PAGES_ROOT;
	int64_t n = 0;
	*n_kept = 0;
	while (!q->r.all_logits && n + KV_PAGE_TOKENS < known(q)) {
		copy_ids(q, n, KV_PAGE_TOKENS, ids);
		struct page_match m = pages_find(r->pages, serial, ids, KV_PAGE_TOKENS);
		if (m.n < KV_PAGE_TOKENS)
			return n + m.n;
		*n_kept += !pages_is_held(r->pages, m.page);
		serial = m.serial;
		n += KV_PAGE_TOKENS;
	}
	return n;
}

/* How many of the tokens that come next (into ids) may stand in a shared page: none unless it is a page's beginning; at least one
 * token is left to compute. */
static int64_t may_share(const struct sequence *q, int32_t *ids)
{
	int64_t most = known(q) - 1 - q->n_done;
	if (q->r.all_logits || q->n_done != q->n_noted * KV_PAGE_TOKENS || q->n_done != q->n_pages * KV_PAGE_TOKENS || most <= 0)
		return 0;
	if (most > KV_PAGE_TOKENS)
		most = KV_PAGE_TOKENS;
	copy_ids(q, q->n_done, most, ids);
	return most;
}

static void share_full_pages(struct schedule *s, struct sequence *q)
{
	struct pages *pages = s->replicas[q->replica].pages;
	int32_t ids[KV_PAGE_TOKENS];
	while (may_share(q, ids) == KV_PAGE_TOKENS) {
		struct page_match m = pages_find(pages, q->serial, ids, KV_PAGE_TOKENS);
		if (m.n < KV_PAGE_TOKENS)
			return;
		pages_hold(pages, m.page);
		table_of(s, q)[q->n_pages++] = m.page;
		q->n_noted++;
		q->serial = m.serial;
		q->n_done += m.n;
		s->shared_tokens += m.n;
	}
}

/* A page that begins like what comes next is copied. The page that is taken for it may be that very one, or be copied by who comes
 * later: copies are made in order, and before anything is written. */
static void copy_part_of_page(struct schedule *s, struct sequence *q, struct step *step)
{
	struct pages *pages = s->replicas[q->replica].pages;
	int32_t ids[KV_PAGE_TOKENS], to;
	struct page_match m = pages_find(pages, q->serial, ids, may_share(q, ids));
	if (m.n == 0 || step->n_copies == step->max_slices || (to = pages_take(pages)) == NONE)
		return;
	step->copies[step->n_copies++] = (struct page_copy){ q->replica, m.page, to };
	table_of(s, q)[q->n_pages++] = to;
	q->n_done += m.n;
	s->shared_tokens += m.n;
}

/* --- letting in --- */

int64_t schedule_pages_promised(const struct schedule *s, const struct replica *r)
{
	int64_t n = r->n_running;
	for (int64_t i = 0; i < r->n_running; i++) {
		const struct sequence *q = &s->sequences[r->running[i]];
		n += pages_for(known(q)) - q->n_pages;
	}
	return n;
}

static int can_let_in(const struct schedule *s, const struct replica *r, const struct sequence *q, int64_t *found)
{
	int64_t n_kept;
	if (r->n_running == s->limits.sequences)
		return 0;
	*found = tokens_found(r, q, &n_kept);
	int64_t wanted = pages_for(known(q)) - *found / KV_PAGE_TOKENS;
	return pages_available(r->pages) - n_kept - schedule_pages_promised(s, r) >= wanted;
}

/* Prompts that end in the step after they come, as the head of schedule.h says. */
static int is_short(const struct schedule *s, const struct sequence *q) { return known(q) <= s->limits.step_tokens / 2; }

/* Would it wait there for long prompts before it that fill the steps to come? It would get on no sooner, and keep a place from short
 * ones. */
static int must_stay_out(const struct schedule *s, const struct replica *r, int32_t number)
{
	int64_t left = 0;
	if (is_short(s, &s->sequences[number]))
		return 0;
	for (int64_t i = 0; i < r->n_running && is_before(s, r->running[i], number); i++) {
		const struct sequence *q = &s->sequences[r->running[i]];
		left += is_short(s, q) || is_answering(q) ? 0 : known(q) - q->n_done;
	}
	return left > (s->limits.in_flight + 1) * s->limits.step_tokens;
}

/* Place in the heap of the one to be let in next, NONE: nobody. When the first in order must stay out, all long ones must. */
static int64_t next_to_come(const struct schedule *s)
{
	int64_t first = NONE;
	for (int i = 0; s->n_waiting && i < s->limits.n_replicas; i++)
		if (!must_stay_out(s, &s->replicas[i], s->waiting[0]))
			return 0;
	for (int64_t i = 0; i < s->n_waiting; i++)
		if (is_short(s, &s->sequences[s->waiting[i]]) && (first == NONE || is_before(s, s->waiting[i], s->waiting[first])))
			first = i;
	return first;
}

static int best_replica(const struct schedule *s, int32_t number)
{
	const struct sequence *q = &s->sequences[number];
	int best = NONE;
	int64_t least = 0;
	for (int i = 0; i < s->limits.n_replicas; i++) {
		const struct replica *r = &s->replicas[i];
		int64_t found;
		if (!must_stay_out(s, r, number) && can_let_in(s, r, q, &found) && (best == NONE || r->load_tokens - found < least)) {
			best = i;
			least = r->load_tokens - found;
		}
	}
	return best;
}

/* The first that does not fit holds back those behind it, so that long requests do not starve. */
static void let_in(struct schedule *s)
{
	for (int64_t place; (place = next_to_come(s)) != NONE;) {
		int32_t number = s->waiting[place];
		struct sequence *q = &s->sequences[number];
		int best = best_replica(s, number);
		if (best == NONE)
			return;
		struct replica *r = &s->replicas[best];
		int64_t at = r->n_running++;
		pull_waiting(s, place);
		for (; at > 0 && is_before(s, number, r->running[at - 1]); at--)
			r->running[at] = r->running[at - 1];
		r->running[at] = number;
		r->load_tokens += q->r.n_prompt + q->r.max_tokens;
		q->state = RUNNING;
		q->replica = best;
		q->table = r->free_tables[--r->n_free_tables];
		share_full_pages(s, q);
	}
}

/* --- filling a step --- */

/* Puts back the last in order that is after this one and not in flight. */
static int make_room(struct schedule *s, const struct replica *r, int32_t number)
{
	for (int64_t i = r->n_running; i-- > 0 && r->running[i] != number;)
		if (!s->sequences[r->running[i]].in_flight) {
			put_back(s, r->running[i]);
			return 1;
		}
	return 0;
}

/* Takes pages for n more tokens; gives how many there is room for. */
static int64_t take_pages(struct schedule *s, int32_t number, int64_t n)
{
	struct sequence *q = &s->sequences[number];
	struct replica *r = &s->replicas[q->replica];
	int32_t *table = table_of(s, q);
	while (q->n_pages < pages_for(q->n_done + n)) {
		int32_t page = pages_take(r->pages);
		if (page != NONE)
			table[q->n_pages++] = page;
		else if (!make_room(s, r, number))
			break;
	}
	int64_t room = q->n_pages * KV_PAGE_TOKENS - q->n_done;
	return room < n ? room : n;
}

int schedule_adjustments(const struct schedule *s, const struct sequence *q, struct adjustments *out)
{
	const struct request *r = &q->r;
	struct adjustments a = { .repetition = r->repetition_penalty > 0 ? r->repetition_penalty : 1, .slot = q->table,
				 .frequency = r->frequency_penalty, .presence = r->presence_penalty,
				 .n_biases = r->n_biases, .biases = r->biases };
	if (adjust_counts(&a) && !q->counted) {
		a.n_prompt = (int32_t)r->n_prompt, a.prompt = r->prompt;
		a.n_answer = (int32_t)q->n_made, a.answer = r->answer;
	}
	if (q->n_made < r->min_tokens)
		a.n_banned = r->n_stop_tokens, a.banned = r->stop_tokens;
	if (r->mask)
		a.n_mask = (int32_t)s->limits.mask_words, a.mask = r->mask;
	*out = a;
	return adjust_counts(&a) || a.n_banned || a.n_biases || a.n_mask;
}

/* Each replica has its part of the room: one that is full must not keep others waiting. */
static int has_room_for_extra(const struct schedule *s, const struct step *step, const struct sequence *q)
{
	struct adjustments a;
	return !schedule_adjustments(s, q, &a) ||
	       step->n_extra - s->extra_begin + adjust_ints(&a) <= s->extra_room;
}

static void put_extra(struct schedule *s, struct step *step, struct slice *sl)
{
	struct sequence *q = &s->sequences[sl->sequence];
	struct adjustments a;
	sl->first_extra = step->n_extra;
	if (!schedule_adjustments(s, q, &a))
		return;
	adjust_pack(&a, step->extra + step->n_extra);
	sl->n_extra = (int32_t)adjust_ints(&a);
	step->n_extra += sl->n_extra;
	q->counted = 1;
}

static void put_slice(struct schedule *s, struct step *step, int32_t number, int64_t n)
{
	struct sequence *q = &s->sequences[number];
	struct slice *sl = &step->slices[step->n_slices++];
	*sl = (struct slice){ .sequence = number, .replica = q->replica, .pos = (int32_t)q->n_done, .n_tokens = (int32_t)n,
			      .first_token = step->n_tokens, .first_page = step->n_pages,
			      .n_pages = (int32_t)pages_for(q->n_done + n), .sample = q->r.sample };
	memcpy(step->pages + step->n_pages, table_of(s, q), (size_t)sl->n_pages * sizeof(int32_t));
	step->n_pages += sl->n_pages;
	copy_ids(q, q->n_done, n, step->tokens + step->n_tokens);
	step->n_tokens += sl->n_tokens;
	if (q->n_done + n == known(q))
		sl->flags |= SLICE_SAMPLE;
	if (sl->flags & SLICE_SAMPLE)
		put_extra(s, step, sl);
	if (q->r.all_logits && q->n_done < q->r.n_prompt)
		sl->flags |= SLICE_ALL_LOGITS;
	q->n_done += n;
	q->in_flight++;
	q->last_step = s->n_steps;
}

/* Up to n (at least 1) tokens of a running sequence; gives how many. */
static int64_t add_tokens(struct schedule *s, struct step *step, int32_t number, int64_t n)
{
	struct sequence *q = &s->sequences[number];
	if (step->n_slices == step->max_slices)
		return 0;
	share_full_pages(s, q);
	int64_t left = known(q) - q->n_done, end = q->n_done + n + KV_PAGE_TOKENS - 1;   /* at most, with what is copied */
	if (step->n_pages + pages_for(end < known(q) ? end : known(q)) > step->max_pages)
		return 0;
	if (end >= known(q) && !has_room_for_extra(s, step, q))
		return 0;
	if (left > 1)
		copy_part_of_page(s, q, step);   /* leaves room in the page, so a slice follows */
	left = known(q) - q->n_done;
	n = n < left ? n : left;
	if (q->r.all_logits && q->n_done < q->r.n_prompt && n > q->r.n_prompt - q->n_done)
		n = q->r.n_prompt - q->n_done;   /* logits are wanted of the prompt alone */
	n = take_pages(s, number, n);
	if (n > 0)
		put_slice(s, step, number, n);
	return n;
}

/* With one step more than there are stages none of them waits for the head; with more steps each sequence would wait longer for its
 * turn. */
int schedule_answering_steps(const struct schedule_limits *l) { return l->in_flight > 1 ? l->in_flight / 2 + 1 : 1; }

/* A token each, and drafts of what the others of them leave. What is put back meanwhile comes from behind. */
static void fill_answers(struct schedule *s, struct step *step, struct replica *r, int64_t *budget)
{
	int64_t n_answering = 0, share, n_added = 0, rows;
	int n_steps = schedule_answering_steps(&s->limits);
	if (r->n_answering_steps >= n_steps)
		return;
	for (int64_t i = 0; i < r->n_running; i++) {
		const struct sequence *q = &s->sequences[r->running[i]];
		n_answering += q->n_made > 0 && q->n_done >= known(q) - 1;
	}
	share = (n_answering + n_steps - 1) / n_steps;
	rows = drafts_rows(s, r, share);
	rows = rows < *budget ? rows : *budget;
	for (int64_t i = 0; i < r->n_running && share > n_added && *budget > 0; i++) {
		const struct sequence *q = &s->sequences[r->running[i]];
		if (q->in_flight || !is_answering(q))
			continue;
		if (!add_tokens(s, step, r->running[i], 1))
			continue;
		step->slices[step->n_slices - 1].flags |= SLICE_ANSWERS;
		int64_t n = 1 + drafts_add(s, step, rows - (share - n_added));
		n_added++;
		rows -= n;
		*budget -= n;
	}
	r->n_answering_steps += n_added > 0;
}

/* Those that have tokens to compute before they answer and are not in this step; others may be under way, but for logits of every
 * position there is room in one step. */
static int is_reading(const struct schedule *s, const struct sequence *q)
{
	if (q->state != RUNNING || q->cancelled || q->last_step == s->n_steps || is_answering(q))
		return 0;
	return !q->in_flight || (q->n_done < known(q) && !q->r.all_logits);
}

static int64_t left_to_read(const struct sequence *q) { return known(q) - q->n_done; }

/* s->by_length = those that read, but for the first in order, the shortest first. Gives their number. Sorted by insertion: few
 * read at a time. */
static int64_t sort_by_length(struct schedule *s, const struct replica *r)
{
	int64_t n_sorted = 0, n_seen = 0;
	for (int64_t i = 0; i < r->n_running; i++) {
		const struct sequence *q = &s->sequences[r->running[i]];
		int64_t at = n_sorted;
		if (!is_reading(s, q) || n_seen++ == 0)
			continue;
		for (n_sorted++; at > 0 && left_to_read(&s->sequences[s->by_length[at - 1]]) > left_to_read(q); at--)
			s->by_length[at] = s->by_length[at - 1];
		s->by_length[at] = r->running[i];
	}
	return n_sorted;
}

/* How many tokens the shortest take that end within `most`. */
static int64_t short_tokens(const struct schedule *s, int64_t n_sorted, int64_t most)
{
	int64_t sum = 0;
	for (int64_t i = 0; i < n_sorted && sum + left_to_read(&s->sequences[s->by_length[i]]) <= most; i++)
		sum += left_to_read(&s->sequences[s->by_length[i]]);
	return sum;
}

/* Those of the sorted that end in this step. */
static void fill_short(struct schedule *s, struct step *step, int64_t n_sorted, int64_t *budget)
{
	for (int64_t i = 0; i < n_sorted && *budget > 0; i++) {
		const struct sequence *q = &s->sequences[s->by_length[i]];
		if (is_reading(s, q) && left_to_read(q) <= *budget)      /* it may have got its tokens in order, or been put back */
			*budget -= add_tokens(s, step, s->by_length[i], left_to_read(q));
	}
}

static void fill_in_order(struct schedule *s, struct step *step, struct replica *r, int64_t most, int64_t *budget)
{
	for (int64_t i = 0; i < r->n_running && most > 0; i++) {
		struct sequence *q = &s->sequences[r->running[i]];
		if (!is_reading(s, q))
			continue;
		int64_t left = left_to_read(q), n = add_tokens(s, step, r->running[i], left < most ? left : most);
		most -= n;
		*budget -= n;
	}
}

/* Of what is left to read a step takes what keeps the steps under way even, since in a pipeline all wait for the longest; but many
 * small ones would read all weights often. */
static int64_t reading_share(const struct schedule *s, const struct replica *r, int64_t n_answers)
{
	enum { LEAST = 8 };
	int64_t left = 0, share, even = r->n_steps ? r->step_tokens / r->n_steps - n_answers : 0;
	if (s->limits.in_flight == 1)
		return INT64_MAX;
	for (int64_t i = 0; i < r->n_running; i++)
		if (is_reading(s, &s->sequences[r->running[i]]))
			left += left_to_read(&s->sequences[r->running[i]]);
	share = (left + s->limits.in_flight - 1) / s->limits.in_flight;
	share = share > even ? share : even;
	return share > LEAST ? share : LEAST;
}

/* What the step writes may be shared from the next one on. */
static void note_pages(struct schedule *s, const struct step *step)
{
	for (int32_t i = 0; i < step->n_slices; i++) {
		struct sequence *q = &s->sequences[step->slices[i].sequence];
		note_full_pages(s, q);
		if (step->slices[i].pos < q->r.n_prompt && q->n_done >= q->r.n_prompt)
			note_partial(s, q);
	}
}

static void fill(struct schedule *s, struct step *step, struct replica *r)
{
	int64_t budget = s->limits.step_tokens;
	int32_t first_token = step->n_tokens, first_slice = step->n_slices;
	s->extra_begin = step->n_extra;
	fill_answers(s, step, r, &budget);
	int64_t share = reading_share(s, r, step->n_tokens - first_token);
	budget = share < budget ? share : budget;
	int64_t n_sorted = sort_by_length(s, r), kept_free = short_tokens(s, n_sorted, budget / 2);
	fill_in_order(s, step, r, budget - kept_free, &budget);   /* first: short ones could take its pages for ever */
	fill_short(s, step, n_sorted, &budget);
	fill_in_order(s, step, r, budget, &budget);
	r->n_steps += step->n_slices > first_slice;
	r->step_tokens += step->n_tokens - first_token;
}

void schedule_next(struct schedule *s, int first_replica, int n_replicas, struct step *step)
{
	step_clear(step);
	s->n_steps++;
	for (int i = first_replica; i < first_replica + n_replicas; i++)
		drafts_settle(s, &s->replicas[i]);
	let_in(s);
	s->extra_room = step->max_extra / n_replicas;
	for (int i = first_replica; i < first_replica + n_replicas; i++)
		fill(s, step, &s->replicas[i]);
	note_pages(s, step);
}

/* --- results --- */

/* A replica's slices stand together, those that answer first. */
void schedule_landed(struct schedule *s, const struct step *step)
{
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		struct sequence *q = &s->sequences[sl->sequence];
		struct replica *r = &s->replicas[sl->replica];
		if (i == 0 || sl[-1].replica != sl->replica) {
			r->n_steps--;
			r->n_answering_steps -= (sl->flags & SLICE_ANSWERS) != 0;
		}
		r->step_tokens -= sl->n_tokens;
		if (--q->in_flight == 0 && q->cancelled && !(sl->flags & SLICE_SAMPLE))
			finish(s, sl->sequence);
	}
}

void schedule_token(struct schedule *s, int32_t sequence, int32_t token, int more)
{
	struct sequence *q = &s->sequences[sequence];
	s->accepted += known(q) - q->n_done;     /* the token before this one was a draft */
	q->n_done = known(q);
	if (!q->cancelled)
		q->r.answer[q->n_made++] = token;
	if (q->cancelled || !more || q->n_made == q->r.max_tokens)
		finish(s, sequence);
}

void schedule_cancel(struct schedule *s, int32_t sequence)
{
	struct sequence *q = &s->sequences[sequence];
	int64_t at = 0;
	if (q->in_flight) {
		q->cancelled = 1;
		return;
	}
	while (q->state == WAITING && s->waiting[at] != sequence)
		at++;
	if (q->state == WAITING)
		pull_waiting(s, at);
	finish(s, sequence);
}

int schedule_is_waiting(const struct schedule *s, int32_t sequence) { return s->sequences[sequence].state == WAITING; }

int64_t schedule_room(const struct schedule *s, int32_t sequence)
{
	const struct sequence *q = &s->sequences[sequence];
	return q->r.max_tokens - q->n_made;
}

int64_t schedule_unfinished(const struct schedule *s) { return s->n_unfinished; }

void schedule_count(const struct schedule *s, struct schedule_counts *out)
{
	*out = (struct schedule_counts){ .shared_tokens = s->shared_tokens, .put_back = s->put_back, .waiting = s->n_waiting,
					.drafted = s->drafted, .accepted = s->accepted, .draft_slices = s->draft_slices };
	for (int i = 0; i < s->limits.n_replicas; i++) {
		out->running += s->replicas[i].n_running;
		out->free_pages += pages_available(s->replicas[i].pages);
	}
}

static enum err check_replica(const struct schedule *s, const struct replica *r, int32_t *held)
{
	memset(held, 0, (size_t)s->limits.n_pages * sizeof *held);
	for (int64_t i = 0; i < r->n_running; i++) {
		const struct sequence *q = &s->sequences[r->running[i]];
		if (q->state != RUNNING || &s->replicas[q->replica] != r || (i > 0 && !is_before(s, r->running[i - 1], r->running[i])))
			return ERR(BUG, "sequence %d is out of place among those that run", r->running[i]);
		if (q->n_pages < pages_for(q->n_done) || q->n_pages > pages_for(q->n_done + q->n_drafts) ||
		    q->n_noted > q->n_done / KV_PAGE_TOKENS)
			return ERR(BUG, "sequence %d has %" PRId64 " pages for %" PRId64 " tokens, %" PRId64 " of them noted",
				   r->running[i], q->n_pages, q->n_done, q->n_noted);
		for (int64_t p = 0; p < q->n_pages; p++)
			held[table_of(s, q)[p]]++;
	}
	return pages_check(r->pages, held);
}

enum err schedule_check(const struct schedule *s)
{
	int32_t *held;
	enum err e = ERR_OK;
	int64_t n_waiting = 0, n_running = 0;
	TRY(MEM_NEW((size_t)s->limits.n_pages, int32_t, &held));
	for (int r = 0; !e && r < s->limits.n_replicas; r++) {
		e = check_replica(s, &s->replicas[r], held);
		n_running += s->replicas[r].n_running;
	}
	mem_free(held);
	for (int64_t i = 0; i < s->n_sequences; i++)
		n_waiting += s->sequences[i].state == WAITING;
	if (!e && (n_waiting != s->n_waiting || n_running + n_waiting != s->n_unfinished))
		e = ERR(BUG, "%" PRId64 " requests are unfinished, but %" PRId64 " run and %" PRId64 " wait", s->n_unfinished,
			n_running, n_waiting);
	return e;
}
