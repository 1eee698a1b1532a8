#include "runtime/token_mask.h"

#include "base/mem.h"

#include <string.h>

enum { MOST_KEPT_BYTES = 4 << 20 };

/* What a state allows by itself. Few tokens are kept as a list, many as a mask. */
struct own {
	int is_known;
	uint32_t *words;             /* owned, as the next two; NULL: as a list */
	int32_t *ids;
	uint32_t *ends;              /* nodes with others below them, at which the rule may end */
	uint32_t n_ids, n_ends;
	uint32_t deepest;            /* the stack that is needed above the state's own, at most */
};

struct level { struct grammar_place places[GRAMMAR_PLACES]; int n; uint32_t n_frames; };

struct token_masks {
	const struct token_trie *trie;
	struct grammar *g;
	struct own *own;             /* by state */
	size_t kept_bytes, n_words;
	struct matcher bare;         /* for walks from a state without a stack */
	struct level *levels;        /* (TRIE_MOST_BYTES + 1) */
	uint32_t *words;             /* room for a mask */
	uint32_t *ends;              /* (n_nodes) room for a list of ends */
};

void token_masks_free(struct token_masks *k)
{
	if (!k)
		return;
	for (uint32_t i = 0; k->own && i < k->g->n_rows; i++) {
		mem_free(k->own[i].words);
		mem_free(k->own[i].ids);
		mem_free(k->own[i].ends);
	}
	mem_free(k->own);
	mem_free(k->levels);
	mem_free(k->words);
	mem_free(k->ends);
	matcher_free(&k->bare);
	grammar_free(k->g);
	mem_free(k);
}

enum err token_masks_create(const struct token_trie *trie, struct grammar *g, struct token_masks **out)
{
	struct token_masks *k;
	enum err e = MEM_NEW(1, struct token_masks, &k);
	if (e) {
		grammar_free(g);
		return e;
	}
	k->trie = trie;
	k->g = g;
	k->n_words = (size_t)(trie->n_tokens + 31) / 32;
	TRY_OR(free_it, e, MEM_NEW(g->n_rows, struct own, &k->own));
	TRY_OR(free_it, e, MEM_NEW(TRIE_MOST_BYTES + 1, struct level, &k->levels));
	TRY_OR(free_it, e, MEM_NEW(k->n_words, uint32_t, &k->words));
	TRY_OR(free_it, e, MEM_NEW(trie->n_nodes, uint32_t, &k->ends));
	TRY_OR(free_it, e, matcher_begin(&k->bare, g));
	*out = k;
	return ERR_OK;
free_it:
	token_masks_free(k);
	return e;
}

static void allow(uint32_t *words, int32_t id) { words[id / 32] |= (uint32_t)1 << (id % 32); }

/* --- walks --- */

/* One byte on, from the places of one level to those of the next. Nearly always it is one place that stays in its rule. */
static int descend(struct matcher *m, const struct level *from, unsigned char byte, struct level *to)
{
	if (from->n == 1) {
		const struct grammar *g = m->g;
		struct grammar_place at = from->places[0];
		const struct grammar_row *row = &g->rows[at.state];
		if (!row->accepts || !at.stack) {
			const struct grammar_range *r = g->ranges + row->first_range, *end = r + row->n_ranges;
			while (r < end && r->hi < byte)
				r++;
			if (r == end || r->lo > byte)
				return to->n = 0;
			const struct grammar_move *move = &g->moves[r->first_move];
			if (r->n_moves == 1 && !move->n_pushes) {
				uint32_t deep = m->frames[at.stack].depth + move->need;
				if (deep > GRAMMAR_DEPTH)
					return to->n = 0;
				m->deepest = deep > m->deepest ? deep : m->deepest;
				to->places[0] = (struct grammar_place){ move->target, at.stack };
				return to->n = 1;
			}
		}
	}
	return to->n = matcher_step(m, from->places, from->n, byte, to->places);
}

/* Where the text of a walk's own rule may end. */
static int ends_here(const struct grammar *g, const struct level *l)
{
	for (int i = 0; i < l->n; i++)
		if (!l->places[i].stack && g->rows[l->places[i].state].accepts)
			return 1;
	return 0;
}

/* Allows all tokens below a node that can be read from the places at its level. ends: NULL, or room for the nodes where the bottom
 * is left. */
static enum err walk(struct token_masks *k, struct matcher *m, uint32_t node, uint32_t *words, uint32_t *ends, uint32_t *n_ends)
{
	const struct token_trie *t = k->trie;
	struct level *levels = k->levels;
	uint32_t last = t->skip[node], frames = m->n_frames;
	levels[t->level[node]].n_frames = frames;
	for (uint32_t i = node + 1; i < last;) {
		struct level *from = &levels[t->level[i] - 1], *to = &levels[t->level[i]];
		m->n_frames = from->n_frames;
		if (descend(m, from, t->byte[i], to) < 0)
			return ERR_MEMORY;
		if (!to->n) {
			i = t->skip[i];
			continue;
		}
		to->n_frames = m->n_frames;
		for (uint32_t a = t->first_token[i]; a < t->first_token[i + 1]; a++)
			allow(words, t->ids[a]);
		if (ends && t->skip[i] > i + 1 && ends_here(k->g, to))
			ends[(*n_ends)++] = i;
		i++;
	}
	m->n_frames = frames;
	return ERR_OK;
}

static enum err walk_from(struct token_masks *k, struct matcher *m, struct grammar_place at, uint32_t node, uint32_t *words)
{
	struct level *l = &k->levels[k->trie->level[node]];
	l->places[0] = at;
	l->n = 1;
	return walk(k, m, node, words, NULL, NULL);
}

/* --- what states allow by themselves --- */

static void forget_all(struct token_masks *k)
{
	for (uint32_t i = 0; i < k->g->n_rows; i++) {
		mem_free(k->own[i].words);
		mem_free(k->own[i].ids);
		mem_free(k->own[i].ends);
		k->own[i] = (struct own){ 0 };
	}
	k->kept_bytes = 0;
}

static uint32_t count_bits(const uint32_t *words, size_t n)
{
	uint32_t bits = 0;
	for (size_t i = 0; i < n; i++)
		for (uint32_t w = words[i]; w; w &= w - 1)
			bits++;
	return bits;
}

static enum err keep(struct token_masks *k, struct own *o, uint32_t n_ends)
{
	uint32_t n = count_bits(k->words, k->n_words);
	int is_list = n < k->n_words;
	if (is_list)
		TRY(MEM_NEW(n, int32_t, &o->ids));
	else
		TRY(MEM_NEW(k->n_words, uint32_t, &o->words));
	TRY(MEM_NEW(n_ends, uint32_t, &o->ends));
	if (!is_list)
		memcpy(o->words, k->words, k->n_words * sizeof *o->words);
	for (size_t i = 0; is_list && i < k->n_words; i++)
		for (uint32_t bit = 0; k->words[i] && bit < 32; bit++)
			if (k->words[i] >> bit & 1)
				o->ids[o->n_ids++] = (int32_t)(i * 32 + bit);
	if (n_ends)
		memcpy(o->ends, k->ends, n_ends * sizeof *o->ends);
	o->n_ends = n_ends;
	k->kept_bytes += (is_list ? n : k->n_words) * 4 + n_ends * 4;
	o->is_known = 1;
	return ERR_OK;
}

static enum err own_of(struct token_masks *k, uint32_t state, const struct own **out)
{
	struct own *o = &k->own[state];
	uint32_t n_ends = 0;
	*out = o;
	if (o->is_known)
		return ERR_OK;
	if (k->kept_bytes > MOST_KEPT_BYTES)
		forget_all(k);
	memset(k->words, 0, k->n_words * sizeof *k->words);
	k->levels[0].places[0] = (struct grammar_place){ state, 0 };
	k->levels[0].n = 1;
	k->bare.deepest = 0;
	TRY(walk(k, &k->bare, 0, k->words, k->ends, &n_ends));
	o->deepest = k->bare.deepest;
	return keep(k, o, n_ends);
}

/* --- masks --- */

static void add_own(const struct own *o, uint32_t *words, size_t n_words)
{
	for (uint32_t i = 0; i < o->n_ids; i++)
		allow(words, o->ids[i]);
	for (size_t i = 0; o->words && i < n_words; i++)
		words[i] |= o->words[i];
}

/* All that may be read from a place. */
static enum err add_place(struct token_masks *k, struct matcher *m, struct grammar_place at, uint32_t *words)
{
	for (;;) {
		const struct own *o;
		TRY(own_of(k, at.state, &o));
		if (m->frames[at.stack].depth + o->deepest > GRAMMAR_DEPTH)
			return walk_from(k, m, at, 0, words);
		add_own(o, words, k->n_words);
		if (!at.stack)
			return ERR_OK;
		struct grammar_place below = { m->frames[at.stack].to, m->frames[at.stack].below };
		for (uint32_t i = 0; i < o->n_ends; i++)
			TRY(walk_from(k, m, below, o->ends[i], words));
		if (!k->g->rows[at.state].accepts)
			return ERR_OK;
		at = below;
	}
}

static enum err fill(struct held *h)
{
	struct token_masks *k = h->masks;
	memset(h->allowed, 0, (size_t)h->n_words * sizeof *h->allowed);
	for (int i = 0; i < h->matcher.n_places; i++)
		TRY(add_place(k, &h->matcher, h->matcher.places[i], h->allowed));
	if (!h->has_begun && k->trie->blank)
		TRY(walk_from(k, &h->matcher, h->matcher.places[0], k->trie->blank, h->allowed));
	for (int i = 0; i < h->n_stops; i++)
		if (matcher_may_end(&h->matcher))
			allow(h->allowed, h->stops[i]);
	return ERR_OK;
}

enum err held_begin(struct held *h, struct token_masks *masks, int64_t n_vocab, const int32_t *stops, int n_stops)
{
	*h = (struct held){ .masks = masks, .n_words = (n_vocab + 31) / 32, .stops = stops, .n_stops = n_stops };
	if (n_vocab < masks->trie->n_tokens)
		return ERR(BUG, "a mask of %lld tokens, for %lld", (long long)n_vocab, (long long)masks->trie->n_tokens);
	TRY(matcher_begin(&h->matcher, masks->g));
	TRY(MEM_NEW((size_t)h->n_words, uint32_t, &h->allowed));
	return fill(h);
}

enum err held_token(struct held *h, int32_t token, int *is_over)
{
	const struct token_trie *t = h->masks->trie;
	struct matcher *m = &h->matcher;
	int good = 1;
	*is_over = 1;
	if (token < 0 || token >= t->n_tokens)
		return ERR(BUG, "token %d is none of the vocabulary", token);
	const unsigned char *text = t->text + t->text_at[token];
	uint32_t bytes = t->text_at[token + 1] - t->text_at[token], from = !h->has_begun && t->blank && bytes && *text == ' ';
	struct grammar_place places[GRAMMAR_PLACES];
	int n_places = m->n_places, had_begun = h->has_begun;
	uint32_t n_frames = m->n_frames;
	memcpy(places, m->places, (size_t)n_places * sizeof *places);
	TRY(matcher_read(m, text + from, bytes - from, &good));
	h->has_begun = 1;
	if (!good)
		return ERR(BUG, "token %d does not fit in the format, but was chosen", token);
	if (!matcher_may_go_on(m))
		return ERR_OK;
	*is_over = 0;
	/* As within a string: no frame is new, and all stands where it stood. */
	if (had_begun && m->n_frames == n_frames && m->n_places == n_places &&
	    !memcmp(places, m->places, (size_t)n_places * sizeof *places))
		return ERR_OK;
	return fill(h);
}

int held_is_whole(const struct held *h) { return matcher_may_end(&h->matcher); }

void held_free(struct held *h)
{
	matcher_free(&h->matcher);
	mem_free(h->allowed);
	*h = (struct held){ 0 };
}
