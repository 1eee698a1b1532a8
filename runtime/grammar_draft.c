/* Grammars as they are written down. */
#include "runtime/grammar.h"

#include "base/mem.h"

enum { MOST_STATES = 1 << 18, MOST_EDGES = 1 << 19 };

static enum err make_room(void *block, size_t *room, size_t n, size_t size, size_t most)
{
	if (n < *room)
		return ERR_OK;
	if (n >= most)
		return ERR(WORK, "the format is too large");
	size_t more = *room ? 2 * *room : 256;
	TRY(mem_grow(block, more, size, "a format"));
	*room = more;
	return ERR_OK;
}

uint32_t draft_state(struct draft *d)
{
	if (!d->error)
		d->error = make_room(&d->states, &d->states_room, d->n_states, sizeof *d->states, MOST_STATES);
	if (d->error)
		return 0;
	d->states[d->n_states] = (struct draft_state){ GRAMMAR_NONE, GRAMMAR_NONE, 0 };
	return d->n_states++;
}

void draft_accept(struct draft *d, uint32_t state)
{
	if (!d->error)
		d->states[state].accepts = 1;
}

static void add_edge(struct draft *d, uint32_t from, struct draft_edge e)
{
	if (!d->error)
		d->error = make_room(&d->edges, &d->edges_room, d->n_edges, sizeof *d->edges, MOST_EDGES);
	if (d->error)
		return;
	struct draft_state *s = &d->states[from];
	e.next = GRAMMAR_NONE;
	d->edges[d->n_edges] = e;
	if (s->first == GRAMMAR_NONE)
		s->first = d->n_edges;
	else
		d->edges[s->last].next = d->n_edges;
	s->last = d->n_edges++;
}

void draft_bytes(struct draft *d, uint32_t from, int lo, int hi, uint32_t to)
{
	if (lo <= hi)
		add_edge(d, from, (struct draft_edge){ .to = to, .call = GRAMMAR_NONE, .lo = (uint8_t)lo, .hi = (uint8_t)hi });
}

void draft_empty(struct draft *d, uint32_t from, uint32_t to)
{
	add_edge(d, from, (struct draft_edge){ .to = to, .call = GRAMMAR_NONE, .is_empty = 1 });
}

void draft_call(struct draft *d, uint32_t from, uint32_t rule, uint32_t to)
{
	add_edge(d, from, (struct draft_edge){ .to = to, .call = rule });
}

uint32_t draft_text(struct draft *d, uint32_t from, const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes && !d->error; i++) {
		uint32_t to = draft_state(d);
		draft_bytes(d, from, (unsigned char)text[i], (unsigned char)text[i], to);
		from = to;
	}
	return from;
}

void draft_free(struct draft *d)
{
	mem_free(d->states);
	mem_free(d->edges);
	*d = (struct draft){ 0 };
}
