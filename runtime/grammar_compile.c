/* From a draft to rows: heights first, then the rows of all states that can be reached, callees before their callers. */
#include "runtime/grammar.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { NEVER = 255, MOST_MERGED = 50000, MOST_MOVES = 1 << 20, MOST_WORK = 1 << 24, MOST_NESTED = 200, HASH_SIZE = 1 << 14 };

struct list { uint32_t *of; size_t n, room; };

struct merged { uint32_t state, first, n, next; };     /* its members are in the list `members` */

struct item { uint32_t lo, hi, target, pushes, n_pushes; };

struct work {
	struct draft d;               /* a copy, to which merged states are added */
	uint8_t *height;              /* by state, as the next three */
	uint8_t *is_final;            /* 0: not known, 1: yes, 2: no */
	uint32_t *row_of, *stamp;
	size_t height_room, final_room, row_of_room, stamp_room;
	uint32_t stamp_now;
	struct list closure, wanted, members, group;
	struct merged *merged;
	size_t n_merged, merged_room;
	uint32_t bucket[HASH_SIZE];
	struct item *items;
	size_t n_items, items_room;
	struct grammar *g;
	size_t rows_room, ranges_room, moves_room, pushes_room;
	uint64_t effort;
};

static enum err room_for(void *block, size_t *room, size_t n, size_t size)
{
	if (n <= *room)
		return ERR_OK;
	size_t more = 2 * *room > n ? 2 * *room : n + 64;
	TRY(mem_grow(block, more, size, "a format"));
	*room = more;
	return ERR_OK;
}

static enum err put(struct list *l, uint32_t v)
{
	TRY(room_for(&l->of, &l->room, l->n + 1, sizeof *l->of));
	l->of[l->n++] = v;
	return ERR_OK;
}

static enum err count_effort(struct work *w, size_t n)
{
	w->effort += n;
	return w->effort > MOST_WORK ? ERR(WORK, "the format has too many alternatives") : ERR_OK;
}

static enum err room_for_states(struct work *w)
{
	size_t n = w->d.n_states, old = w->stamp_room;
	TRY(room_for(&w->height, &w->height_room, n, 1));
	TRY(room_for(&w->is_final, &w->final_room, n, 1));
	TRY(room_for(&w->row_of, &w->row_of_room, n, sizeof *w->row_of));
	TRY(room_for(&w->stamp, &w->stamp_room, n, sizeof *w->stamp));
	if (w->stamp_room > old)
		memset(w->stamp + old, 0, (w->stamp_room - old) * sizeof *w->stamp);
	return ERR_OK;
}

/* --- heights --- */

/* Edges into each state, and the calls of each rule. */
struct backward { uint32_t *first, *next, *from; };

static uint32_t edge_height(const struct work *w, const struct draft_edge *e)
{
	uint32_t h = w->height[e->to], below = e->call == GRAMMAR_NONE ? 0 : w->height[e->call];
	if (h == NEVER || below == NEVER)
		return NEVER;
	below += e->call != GRAMMAR_NONE;
	return below > h ? below : h;
}

static enum err mark(struct work *w, uint32_t state, uint32_t height, struct list *news)
{
	if (w->height[state] <= height)
		return ERR_OK;
	w->height[state] = (uint8_t)height;
	return put(news, state);
}

/* Heights in order: all that are h are known before one of h + 1 is looked for. */
static enum err spread(struct work *w, const struct backward *b, struct list *news)
{
	for (uint32_t h = 0; h <= GRAMMAR_DEPTH; h++) {
		size_t known = news->n;
		for (uint32_t s = 0; h == 0 && s < w->d.n_states; s++)
			if (w->d.states[s].accepts)
				TRY(mark(w, s, 0, news));
		for (uint32_t s = 0; h > 0 && s < w->d.n_states; s++)
			for (uint32_t i = w->d.states[s].first; w->height[s] == NEVER && i != GRAMMAR_NONE; i = w->d.edges[i].next)
				if (edge_height(w, &w->d.edges[i]) <= h)
					TRY(mark(w, s, h, news));
		if (h > 0 && news->n == known)
			return ERR_OK;
		for (size_t at = known; at < news->n; at++)
			for (uint32_t i = b->first[news->of[at]]; i != GRAMMAR_NONE; i = b->next[i])
				if (edge_height(w, &w->d.edges[i]) <= h)
					TRY(mark(w, b->from[i], h, news));
	}
	return ERR_OK;
}

static enum err find_heights(struct work *w)
{
	struct backward b = { 0 };
	struct list news = { 0 };
	enum err e;
	memset(w->height, NEVER, w->d.n_states);
	TRY_OR(free_all, e, MEM_NEW(w->d.n_states, uint32_t, &b.first));
	TRY_OR(free_all, e, MEM_NEW(w->d.n_edges, uint32_t, &b.next));
	TRY_OR(free_all, e, MEM_NEW(w->d.n_edges, uint32_t, &b.from));
	memset(b.first, 0xff, w->d.n_states * sizeof *b.first);
	for (uint32_t s = 0; s < w->d.n_states; s++)
		for (uint32_t i = w->d.states[s].first; i != GRAMMAR_NONE; i = w->d.edges[i].next) {
			b.from[i] = s;
			b.next[i] = b.first[w->d.edges[i].to];
			b.first[w->d.edges[i].to] = i;
		}
	e = spread(w, &b, &news);
free_all:
	mem_free(b.first);
	mem_free(b.next);
	mem_free(b.from);
	mem_free(news.of);
	return e;
}

/* --- sets of states --- */

/* The states that are the same place as this one, itself first. */
static enum err close_over(struct work *w, uint32_t state)
{
	struct list *c = &w->closure;
	c->n = 0;
	w->stamp_now++;
	w->stamp[state] = w->stamp_now;
	TRY(put(c, state));
	for (size_t at = 0; at < c->n; at++)
		for (uint32_t i = w->d.states[c->of[at]].first; i != GRAMMAR_NONE; i = w->d.edges[i].next) {
			const struct draft_edge *e = &w->d.edges[i];
			if (!e->is_empty || w->height[e->to] == NEVER || w->stamp[e->to] == w->stamp_now)
				continue;
			w->stamp[e->to] = w->stamp_now;
			TRY(put(c, e->to));
		}
	return count_effort(w, c->n);
}

static int closure_accepts(const struct work *w)
{
	for (size_t i = 0; i < w->closure.n; i++)
		if (w->d.states[w->closure.of[i]].accepts)
			return 1;
	return 0;
}

static int is_use(const struct work *w, const struct draft_edge *e) { return !e->is_empty && edge_height(w, e) != NEVER; }

/* A state at which the rule ends and nothing else may come need not be gone back to. */
static enum err find_final(struct work *w, uint32_t state, int *is_final)
{
	if (!w->is_final[state]) {
		TRY(close_over(w, state));
		int has_edges = 0;
		for (size_t k = 0; k < w->closure.n; k++)
			for (uint32_t i = w->d.states[w->closure.of[k]].first; i != GRAMMAR_NONE; i = w->d.edges[i].next)
				has_edges |= is_use(w, &w->d.edges[i]);
		w->is_final[state] = closure_accepts(w) && !has_edges ? 1 : 2;
	}
	*is_final = w->is_final[state] == 1;
	return ERR_OK;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static enum err new_state(struct work *w, uint32_t *out)
{
	*out = draft_state(&w->d);
	TRY(w->d.error);
	TRY(room_for_states(w));
	w->height[*out] = NEVER;
	w->is_final[*out] = 0;
	w->row_of[*out] = GRAMMAR_NONE;
	return ERR_OK;
}

/* The state that is all of the group's states at once. */
static enum err merge(struct work *w, uint32_t *out)
{
	struct list *l = &w->group;
	uint64_t hash = 14695981039346656037U;
	for (size_t i = 0; i < l->n; i++)
		hash = (hash ^ l->of[i]) * 1099511628211U;
	uint32_t *bucket = &w->bucket[(hash ^ hash >> 32) % HASH_SIZE];
	for (uint32_t i = *bucket; i; i = w->merged[i - 1].next) {
		const struct merged *m = &w->merged[i - 1];
		if (m->n == l->n && !memcmp(w->members.of + m->first, l->of, l->n * sizeof *l->of)) {
			*out = m->state;
			return ERR_OK;
		}
	}
	TRY(new_state(w, out));
	for (size_t i = 0; i < l->n; i++) {
		draft_empty(&w->d, *out, l->of[i]);
		if (w->height[l->of[i]] < w->height[*out])
			w->height[*out] = w->height[l->of[i]];
	}
	TRY(w->d.error);
	TRY(room_for(&w->merged, &w->merged_room, w->n_merged + 1, sizeof *w->merged));
	w->merged[w->n_merged++] = (struct merged){ *out, (uint32_t)w->members.n, (uint32_t)l->n, *bucket };
	*bucket = (uint32_t)w->n_merged;
	for (size_t i = 0; i < l->n; i++)
		TRY(put(&w->members, l->of[i]));
	return count_effort(w, l->n);
}

/* --- rows --- */

static int same_pushes(const struct work *w, const struct item *a, const struct item *b)
{
	const uint32_t *p = w->g->pushes;
	return a->n_pushes == b->n_pushes &&
	       (!a->n_pushes || !memcmp(p + a->pushes, p + b->pushes, a->n_pushes * sizeof *p));
}

static uint32_t need_of(const struct work *w, const struct item *it)
{
	uint32_t need = it->n_pushes + w->height[it->target];
	for (uint32_t i = 0; i < it->n_pushes; i++) {
		uint32_t h = i + w->height[w->g->pushes[it->pushes + i]];
		need = h > need ? h : need;
	}
	return need;
}

static enum err add_move(struct work *w, const struct item *it)
{
	struct grammar *g = w->g;
	uint32_t need = need_of(w, it);
	if (need > GRAMMAR_DEPTH)
		return ERR_OK;
	if (g->n_moves >= MOST_MOVES)
		return ERR(WORK, "the format has too many alternatives");
	TRY(room_for(&g->moves, &w->moves_room, g->n_moves + 1, sizeof *g->moves));
	g->moves[g->n_moves++] = (struct grammar_move){ it->target, it->pushes, it->n_pushes, (uint8_t)need };
	TRY(put(&w->wanted, it->target));
	for (uint32_t i = 0; i < it->n_pushes; i++)
		TRY(put(&w->wanted, g->pushes[it->pushes + i]));
	return ERR_OK;
}

/* Items of the range that push what the first of them does become one move. `list`: which are left; what remains is given back. */
static enum err take_group(struct work *w, struct list *list)
{
	struct item first = w->items[list->of[0]];
	size_t left = 0, n = 0;
	int is_split = w->n_merged >= MOST_MERGED;
	w->group.n = 0;
	for (size_t i = 0; i < list->n; i++) {
		const struct item *it = &w->items[list->of[i]];
		if (i == 0 || ((!is_split || it->target == first.target) && same_pushes(w, it, &first)))
			TRY(put(&w->group, it->target));
		else
			list->of[left++] = list->of[i];
	}
	TRY(count_effort(w, list->n));
	list->n = left;
	qsort(w->group.of, w->group.n, sizeof *w->group.of, compare);
	for (size_t i = 0; i < w->group.n; i++)
		if (!n || w->group.of[n - 1] != w->group.of[i])
			w->group.of[n++] = w->group.of[i];
	w->group.n = n;
	if (n > 1)
		TRY(merge(w, &first.target));
	return add_move(w, &first);
}

static int same_moves(const struct grammar *g, uint32_t a, uint32_t b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct grammar_move *x = &g->moves[a + i], *y = &g->moves[b + i];
		if (x->target != y->target || x->n_pushes != y->n_pushes ||
		    (x->n_pushes && memcmp(g->pushes + x->pushes, g->pushes + y->pushes, x->n_pushes * sizeof *g->pushes)))
			return 0;
	}
	return 1;
}

/* The moves for bytes lo to hi, in which the same items take part; a range that goes on with the same moves grows. */
static enum err add_range(struct work *w, uint32_t row_first, uint32_t lo, uint32_t hi, struct list *list)
{
	struct grammar *g = w->g;
	uint32_t first = g->n_moves;
	list->n = 0;
	for (size_t i = 0; i < w->n_items; i++)
		if (w->items[i].lo <= lo && hi <= w->items[i].hi)
			TRY(put(list, (uint32_t)i));
	TRY(count_effort(w, w->n_items));
	while (list->n)
		TRY(take_group(w, list));
	uint32_t n = g->n_moves - first;
	struct grammar_range *last = g->n_ranges > row_first ? &g->ranges[g->n_ranges - 1] : NULL;
	if (last && last->hi + 1U == lo && last->n_moves == n && same_moves(g, last->first_move, first, n)) {
		last->hi = (uint8_t)hi;
		g->n_moves = first;
		return ERR_OK;
	}
	if (!n)
		return ERR_OK;
	TRY(room_for(&g->ranges, &w->ranges_room, g->n_ranges + 1, sizeof *g->ranges));
	g->ranges[g->n_ranges++] = (struct grammar_range){ (uint8_t)lo, (uint8_t)hi, first, n };
	return ERR_OK;
}

static enum err add_item(struct work *w, struct item it)
{
	TRY(room_for(&w->items, &w->items_room, w->n_items + 1, sizeof *w->items));
	w->items[w->n_items++] = it;
	return count_effort(w, 1);
}

/* The moves of a called rule's first state, with the state to go on in below them. */
static enum err add_call(struct work *w, const struct draft_edge *e)
{
	struct grammar *g = w->g;
	const struct grammar_row row = g->rows[w->row_of[e->call]];
	int is_final;
	TRY(find_final(w, e->to, &is_final));
	for (uint32_t r = row.first_range; r < row.first_range + row.n_ranges; r++)
		for (uint32_t i = 0; i < g->ranges[r].n_moves; i++) {
			struct grammar_move m = g->moves[g->ranges[r].first_move + i];
			struct item it = { g->ranges[r].lo, g->ranges[r].hi, m.target, m.pushes, m.n_pushes };
			if (!is_final) {
				it.pushes = g->n_pushes;
				it.n_pushes = m.n_pushes + 1;
				if (g->n_pushes > MOST_MOVES)
					return ERR(WORK, "the format has too many alternatives");
				TRY(room_for(&g->pushes, &w->pushes_room, g->n_pushes + (size_t)it.n_pushes, sizeof *g->pushes));
				g->pushes[g->n_pushes] = e->to;
				if (m.n_pushes)
					memcpy(g->pushes + g->n_pushes + 1, g->pushes + m.pushes, m.n_pushes * sizeof *g->pushes);
				g->n_pushes += it.n_pushes;
			}
			TRY(add_item(w, it));
		}
	return ERR_OK;
}

static enum err build_row(struct work *w, uint32_t state, int depth);

enum { BUILDING = -2 };

static enum err build_callees(struct work *w, const struct list *states, int depth)
{
	for (size_t k = 0; k < states->n; k++)
		for (uint32_t i = w->d.states[states->of[k]].first; i != GRAMMAR_NONE; i = w->d.edges[i].next) {
			struct draft_edge e = w->d.edges[i];
			if (e.call != GRAMMAR_NONE && is_use(w, &e) && w->row_of[e.call] == GRAMMAR_NONE)
				TRY(build_row(w, e.call, depth + 1));
			if (e.call != GRAMMAR_NONE && is_use(w, &e) && w->row_of[e.call] == (uint32_t)BUILDING)
				return ERR(WORK, "a part of the format leads to itself without reading anything");
		}
	return ERR_OK;
}

static enum err gather(struct work *w, const struct list *states)
{
	w->n_items = 0;
	for (size_t k = 0; k < states->n; k++)
		for (uint32_t i = w->d.states[states->of[k]].first; i != GRAMMAR_NONE; i = w->d.edges[i].next) {
			struct draft_edge e = w->d.edges[i];
			if (is_use(w, &e))
				TRY(e.call != GRAMMAR_NONE ? add_call(w, &e) : add_item(w, (struct item){ e.lo, e.hi, e.to, 0, 0 }));
		}
	return ERR_OK;
}

static enum err write_ranges(struct work *w)
{
	uint8_t begins[257] = { 1 };
	uint32_t first = w->g->n_ranges;
	struct list list = { 0 };
	enum err e = ERR_OK;
	for (size_t i = 0; i < w->n_items; i++)
		begins[w->items[i].lo] = begins[w->items[i].hi + 1] = 1;
	for (uint32_t lo = 0, hi; !e && lo < 256; lo = hi + 1) {
		for (hi = lo; hi < 255 && !begins[hi + 1];)
			hi++;
		e = add_range(w, first, lo, hi, &list);
	}
	mem_free(list.of);
	return e;
}

static enum err build_row(struct work *w, uint32_t state, int depth)
{
	struct grammar *g = w->g;
	struct list states = { 0 };
	if (depth > MOST_NESTED)
		return ERR(WORK, "alternatives of the format are nested too deep");
	w->row_of[state] = (uint32_t)BUILDING;
	TRY(close_over(w, state));
	enum err e = ERR_OK;
	int accepts = closure_accepts(w);
	for (size_t i = 0; !e && i < w->closure.n; i++)
		e = put(&states, w->closure.of[i]);
	if (!e)
		e = build_callees(w, &states, depth);
	if (!e)
		e = gather(w, &states);
	mem_free(states.of);
	TRY(e);
	uint32_t first = g->n_ranges;
	TRY(write_ranges(w));
	TRY(room_for(&g->rows, &w->rows_room, g->n_rows + 1, sizeof *g->rows));
	g->rows[g->n_rows] = (struct grammar_row){ first, (uint16_t)(g->n_ranges - first), w->height[state], (uint8_t)accepts };
	w->row_of[state] = g->n_rows++;
	return ERR_OK;
}

static enum err build_all(struct work *w, uint32_t start)
{
	struct grammar *g = w->g;
	if (w->height[start] == NEVER)
		return ERR(WORK, "no text that ends is of the format");
	TRY(put(&w->wanted, start));
	while (w->wanted.n) {
		uint32_t state = w->wanted.of[--w->wanted.n];
		if (w->row_of[state] == GRAMMAR_NONE)
			TRY(build_row(w, state, 0));
	}
	for (uint32_t i = 0; i < g->n_moves; i++)
		g->moves[i].target = w->row_of[g->moves[i].target];
	/* Pushes that stood only in moves which were dropped have no row. */
	for (uint32_t i = 0; i < g->n_pushes; i++)
		g->pushes[i] = w->row_of[g->pushes[i]];
	g->start = w->row_of[start];
	return ERR_OK;
}

static enum err copy_draft(struct work *w, const struct draft *d)
{
	w->d = (struct draft){ .n_states = d->n_states, .n_edges = d->n_edges, .states_room = d->n_states, .edges_room = d->n_edges };
	TRY(MEM_NEW(d->n_states, struct draft_state, &w->d.states));
	TRY(MEM_NEW(d->n_edges, struct draft_edge, &w->d.edges));
	if (d->n_states)
		memcpy(w->d.states, d->states, d->n_states * sizeof *d->states);
	if (d->n_edges)
		memcpy(w->d.edges, d->edges, d->n_edges * sizeof *d->edges);
	TRY(room_for_states(w));
	memset(w->row_of, 0xff, d->n_states * sizeof *w->row_of);
	memset(w->is_final, 0, d->n_states);
	return ERR_OK;
}

static void work_free(struct work *w)
{
	draft_free(&w->d);
	grammar_free(w->g);
	mem_free(w->height);
	mem_free(w->is_final);
	mem_free(w->row_of);
	mem_free(w->stamp);
	mem_free(w->closure.of);
	mem_free(w->wanted.of);
	mem_free(w->members.of);
	mem_free(w->group.of);
	mem_free(w->merged);
	mem_free(w->items);
	mem_free(w);
}

enum err grammar_compile(const struct draft *d, uint32_t start, struct grammar **out)
{
	struct work *w;
	enum err e;
	TRY(d->error);
	TRY(MEM_NEW(1, struct work, &w));
	TRY_OR(free_it, e, MEM_NEW(1, struct grammar, &w->g));
	TRY_OR(free_it, e, copy_draft(w, d));
	TRY_OR(free_it, e, find_heights(w));
	TRY_OR(free_it, e, build_all(w, start));
	*out = w->g;
	w->g = NULL;
free_it:
	work_free(w);
	return e;
}

void grammar_free(struct grammar *g)
{
	if (!g)
		return;
	mem_free(g->rows);
	mem_free(g->ranges);
	mem_free(g->moves);
	mem_free(g->pushes);
	mem_free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
	return sizeof *g + g->n_rows * sizeof *g->rows + g->n_ranges * sizeof *g->ranges + g->n_moves * sizeof *g->moves +
	       g->n_pushes * sizeof *g->pushes;
}
