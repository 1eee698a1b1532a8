/* Reading by a grammar. */
#include "runtime/grammar.h"

#include "base/mem.h"

#include <string.h>

enum { FRAMES = 256, TIDY_AT = 1024 };

enum err matcher_begin(struct matcher *m, const struct grammar *g)
{
	*m = (struct matcher){ .g = g, .n_frames = 1, .frames_room = FRAMES, .n_places = 1 };
	m->places[0] = (struct grammar_place){ g->start, 0 };
	return MEM_NEW(FRAMES, struct grammar_frame, &m->frames);
}

void matcher_free(struct matcher *m)
{
	mem_free(m->frames);
	*m = (struct matcher){ 0 };
}

/* The frame above `below`; one that this byte has added already is used again, so that equal stacks are one. */
static int push(struct matcher *m, uint32_t since, uint32_t to, uint32_t *below)
{
	for (uint32_t i = since; i < m->n_frames; i++)
		if (m->frames[i].to == to && m->frames[i].below == *below) {
			*below = i;
			return 1;
		}
	if (m->n_frames == m->frames_room) {
		if (mem_grow(&m->frames, 2 * m->frames_room, sizeof *m->frames, "a format's stacks"))
			return 0;
		m->frames_room *= 2;
	}
	m->frames[m->n_frames] = (struct grammar_frame){ to, *below, m->frames[*below].depth + 1 };
	*below = m->n_frames++;
	return 1;
}

static const struct grammar_range *range_of(const struct grammar *g, const struct grammar_row *row, unsigned char byte)
{
	const struct grammar_range *r = g->ranges + row->first_range, *end = r + row->n_ranges;
	while (r < end && r->hi < byte)
		r++;
	return r < end && r->lo <= byte ? r : NULL;
}

static int step_one(struct matcher *m, struct grammar_place at, unsigned char byte, uint32_t since, struct grammar_place *to, int n)
{
	const struct grammar *g = m->g;
	for (;;) {
		const struct grammar_row *row = &g->rows[at.state];
		const struct grammar_range *r = range_of(g, row, byte);
		for (uint32_t i = 0; r && i < r->n_moves && n < GRAMMAR_PLACES; i++) {
			const struct grammar_move *move = &g->moves[r->first_move + i];
			uint32_t stack = at.stack;
			int known = 0;
			uint32_t deep = m->frames[stack].depth + move->need;
			if (deep > GRAMMAR_DEPTH)
				continue;
			m->deepest = deep > m->deepest ? deep : m->deepest;
			for (uint32_t k = 0; k < move->n_pushes; k++)
				if (!push(m, since, g->pushes[move->pushes + k], &stack))
					return -1;
			for (int k = 0; k < n && !known; k++)
				known = to[k].state == move->target && to[k].stack == stack;
			if (!known)
				to[n++] = (struct grammar_place){ move->target, stack };
		}
		if (!row->accepts || !at.stack)
			return n;
		at = (struct grammar_place){ m->frames[at.stack].to, m->frames[at.stack].below };
	}
}

int matcher_step(struct matcher *m, const struct grammar_place *from, int n, unsigned char byte, struct grammar_place *to)
{
	uint32_t since = m->n_frames;
	int got = 0;
	for (int i = 0; i < n && got >= 0; i++)
		got = step_one(m, from[i], byte, since, to, got);
	return got;
}

/* Drops the frames that no place stands on. Frames stay in order, each after the one below it. */
static enum err tidy(struct matcher *m)
{
	uint32_t *moved, n = 1;
	TRY(MEM_NEW(m->n_frames, uint32_t, &moved));
	for (int i = 0; i < m->n_places; i++)
		for (uint32_t f = m->places[i].stack; f && !moved[f]; f = m->frames[f].below)
			moved[f] = 1;
	for (uint32_t f = 1; f < m->n_frames; f++)
		if (moved[f]) {
			moved[f] = n;
			m->frames[n] = m->frames[f];
			m->frames[n].below = moved[m->frames[f].below];
			n++;
		}
	for (int i = 0; i < m->n_places; i++)
		m->places[i].stack = moved[m->places[i].stack];
	m->n_frames = n;
	mem_free(moved);
	return ERR_OK;
}

enum err matcher_read(struct matcher *m, const void *bytes, size_t n, int *good)
{
	struct grammar_place two[2][GRAMMAR_PLACES];
	uint32_t frames = m->n_frames;
	int at = m->n_places;
	memcpy(two[0], m->places, sizeof two[0]);
	for (size_t i = 0; i < n && at > 0; i++)
		at = matcher_step(m, two[i % 2], at, ((const unsigned char *)bytes)[i], two[(i + 1) % 2]);
	*good = at > 0;
	if (at < 0)
		return ERR_MEMORY;
	if (!at) {
		m->n_frames = frames;
		return ERR_OK;
	}
	memcpy(m->places, two[n % 2], sizeof m->places);
	m->n_places = at;
	return m->n_frames > TIDY_AT ? tidy(m) : ERR_OK;
}

static int ends_at(const struct matcher *m, struct grammar_place at)
{
	while (m->g->rows[at.state].accepts && at.stack)
		at = (struct grammar_place){ m->frames[at.stack].to, m->frames[at.stack].below };
	return m->g->rows[at.state].accepts && !at.stack;
}

int matcher_may_end(const struct matcher *m)
{
	for (int i = 0; i < m->n_places; i++)
		if (ends_at(m, m->places[i]))
			return 1;
	return 0;
}

int matcher_may_go_on(const struct matcher *m)
{
	for (int i = 0; i < m->n_places; i++)
		for (struct grammar_place at = m->places[i];;) {
			if (m->g->rows[at.state].n_ranges)
				return 1;
			if (!m->g->rows[at.state].accepts || !at.stack)
				break;
			at = (struct grammar_place){ m->frames[at.stack].to, m->frames[at.stack].below };
		}
	return 0;
}
