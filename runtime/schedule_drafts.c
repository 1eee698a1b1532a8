/* Drafts: guesses behind the token of a sequence that answers, see schedule.h. */
#include "runtime/schedule_impl.h"

/* So many sequences at most can get drafts at a time: each step under way has a token for each, and one left for a draft. */
static int64_t n_texts(const struct schedule_limits *l)
{
	int64_t n = l->draft_rows > 1 ? (l->draft_rows - 1) * schedule_answering_steps(l) : 0;
	return n < l->sequences ? n : l->sequences;
}

uint64_t schedule_draft_bytes(const struct schedule_limits *l)
{
	return (uint64_t)l->n_replicas * (uint64_t)n_texts(l) * ngram_bytes(l->context);
}

enum err drafts_create(const struct schedule_limits *l, struct replica *r)
{
	return n_texts(l) ? ngram_set_create(n_texts(l), l->context, &r->texts) : ERR_OK;
}

void drafts_settle(struct schedule *s, struct replica *r)
{
	for (int64_t i = 0; r->texts && i < r->n_running; i++) {
		struct sequence *q = &s->sequences[r->running[i]];
		if (q->in_flight)
			continue;
		while (q->n_pages > pages_for(q->n_done))
			pages_release(r->pages, table_of(s, q)[--q->n_pages]);
		q->n_drafts = 0;
	}
}

/* A step with prompts in it has many tokens, each of which takes its time: guesses would make it longer. */
int64_t drafts_rows(const struct schedule *s, const struct replica *r, int64_t n_answering)
{
	if (!r->texts || n_answering >= s->limits.draft_rows)
		return 0;
	for (int64_t i = 0; i < r->n_running; i++) {
		const struct sequence *q = &s->sequences[r->running[i]];
		if (!q->cancelled && q->n_done < known(q) - (q->n_made > 0))
			return 0;
	}
	return s->limits.draft_rows;
}

/* How many drafts may follow the sequence's last token, which is in the step. */
static int64_t room_for(const struct schedule *s, const struct step *step, const struct sequence *q)
{
	const struct replica *r = &s->replicas[q->replica];
	struct adjustments a;
	int64_t in_pages = q->n_pages * KV_PAGE_TOKENS - q->n_done, room = q->r.max_tokens - q->n_made - 1;
	schedule_adjustments(s, q, &a);
	if (adjust_counts(&a) || a.n_mask)
		return 0;
	if (a.n_banned && room > q->r.min_tokens - 1 - q->n_made)
		room = q->r.min_tokens - 1 - q->n_made;     /* all choices of the slice have the same bans */
	if (room > in_pages && step->n_pages < step->max_pages && pages_available(r->pages) > schedule_pages_promised(s, r))
		in_pages += KV_PAGE_TOKENS;
	return room < in_pages ? room : in_pages;
}

/* The index of the text of a sequence, with all that is known of it. */
static struct ngram *text_of(struct schedule *s, int32_t number)
{
	const struct sequence *q = &s->sequences[number];
	struct ngram *g = ngram_of(s->replicas[q->replica].texts, number);
	for (int64_t i = g ? ngram_known(g) : 0; g && i < known(q); i++)
		ngram_add(g, token_at(q, i));
	return g;
}

int64_t drafts_add(struct schedule *s, struct step *step, int64_t most)
{
	struct slice *sl = &step->slices[step->n_slices - 1];
	struct sequence *q = &s->sequences[sl->sequence];
	int64_t room = most > 0 ? room_for(s, step, q) : 0;
	struct ngram *g = room > 0 ? text_of(s, sl->sequence) : NULL;
	int64_t n = g ? ngram_draft(g, most < room ? most : room, step->tokens + step->n_tokens) : 0;
	if (n == 0)
		return 0;
	sl->n_tokens += (int32_t)n;
	sl->n_drafts = (int32_t)n;
	step->n_tokens += (int32_t)n;
	q->n_drafts = n;
	if (q->n_pages < pages_for(q->n_done + n)) {
		int32_t page = pages_take(s->replicas[q->replica].pages);
		table_of(s, q)[q->n_pages++] = page;
		step->pages[step->n_pages++] = page;
		sl->n_pages++;
	}
	s->drafted += n;
	s->draft_slices++;
	return n;
}
