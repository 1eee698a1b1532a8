#include "runtime/ngram.h"

#include "base/mem.h"

enum { SHORTEST = 2, LONGEST = 4, LENGTHS = LONGEST - SHORTEST + 1 };

struct ngram {
	int64_t room, n;
	int32_t *text;            /* (room); n are known */
	int32_t *places;          /* (LENGTHS, n_places): where a run ended, by its hash. May be left over from an earlier text */
	int64_t n_places;         /* a power of two */
	/* how guesses went */
	int64_t wanted;           /* how many tokens the next one has */
	int64_t n_drafted, guessed_at;   /* the last guess: its tokens, and n at that time */
	int32_t drafts[NGRAM_MOST_DRAFTS];
	int64_t pause, last_pause;       /* steps without a guess: still to come, and after the last vain one */
};

static int64_t places_for(int64_t n_tokens)
{
	int64_t n = 64;
	while (n < 2 * n_tokens)
		n *= 2;
	return n;
}

uint64_t ngram_bytes(int64_t n_tokens)
{
	return sizeof(struct ngram) + ((uint64_t)n_tokens + LENGTHS * (uint64_t)places_for(n_tokens)) * sizeof(int32_t);
}

enum err ngram_create(int64_t n_tokens, struct ngram **out)
{
	struct ngram *g;
	enum err e;
	TRY(MEM_NEW(1, struct ngram, &g));
	g->room = n_tokens;
	g->n_places = places_for(n_tokens);
	TRY_OR(destroy, e, MEM_NEW((size_t)n_tokens, int32_t, &g->text));
	TRY_OR(destroy, e, MEM_NEW((size_t)(LENGTHS * g->n_places), int32_t, &g->places));
	ngram_restart(g);
	*out = g;
	return ERR_OK;
destroy:
	ngram_destroy(g);
	return e;
}

void ngram_destroy(struct ngram *g)
{
	if (!g)
		return;
	mem_free(g->text);
	mem_free(g->places);
	mem_free(g);
}

/* The places may stay: none is believed before the text was looked at. */
void ngram_restart(struct ngram *g)
{
	g->n = g->n_drafted = g->pause = g->last_pause = 0;
	g->wanted = NGRAM_FIRST_DRAFTS;
}

int64_t ngram_known(const struct ngram *g) { return g->n; }

/* Where the place of the run of `length` tokens that ends at `end` is kept. */
static int32_t *place_of(struct ngram *g, int64_t end, int64_t length)
{
	uint64_t h = (uint64_t)length;
	for (int64_t i = end - length + 1; i <= end; i++)
		h = (h ^ (uint32_t)g->text[i]) * 0x9e3779b97f4a7c15u;    /* 2^64 / golden ratio (Knuth, vol. 3, 6.4) */
	return &g->places[(length - SHORTEST) * g->n_places + (int64_t)(h >> 32 & (uint64_t)(g->n_places - 1))];
}

/* The runs that ended at the token before are noted now that something follows them. */
void ngram_add(struct ngram *g, int32_t token)
{
	if (g->n == g->room)
		return;
	for (int64_t length = SHORTEST; length <= LONGEST && length <= g->n; length++)
		*place_of(g, g->n - 1, length) = (int32_t)(g->n - 1);
	g->text[g->n++] = token;
}

/* The end of the last run before the text's end that is equal to its last `length` tokens, or -1. */
static int64_t find(struct ngram *g, int64_t length)
{
	int64_t last = g->n - 1, at;
	if (g->n <= length)
		return -1;
	at = *place_of(g, last, length);
	if (at < length - 1 || at >= last)
		return -1;
	for (int64_t i = 0; i < length; i++)
		if (g->text[at - i] != g->text[last - i])
			return -1;
	return at;
}

static void learn(struct ngram *g)
{
	int64_t n_true = 0;
	while (n_true < g->n_drafted && g->guessed_at + n_true < g->n && g->text[g->guessed_at + n_true] == g->drafts[n_true])
		n_true++;
	if (n_true == 0) {
		g->last_pause = !g->last_pause ? 1 : 2 * g->last_pause < NGRAM_LONGEST_PAUSE ? 2 * g->last_pause : NGRAM_LONGEST_PAUSE;
		g->pause = g->last_pause;
		g->wanted = 1;
	} else {
		g->last_pause /= 4;
		g->wanted = n_true == g->n_drafted ? 2 * g->wanted : n_true + 1;
		g->wanted = g->wanted < NGRAM_MOST_DRAFTS ? g->wanted : NGRAM_MOST_DRAFTS;
	}
	g->n_drafted = 0;
}

int64_t ngram_draft(struct ngram *g, int64_t most, int32_t *to)
{
	int64_t at = -1;
	if (g->n_drafted)
		learn(g);
	if (g->pause > 0) {
		g->pause--;
		return 0;
	}
	if (most > g->wanted)
		most = g->wanted;
	for (int64_t length = LONGEST; most > 0 && at < 0 && length >= SHORTEST; length--)
		at = find(g, length);
	if (at < 0)
		return 0;
	for (int64_t i = 0; i < most; i++) {
		int64_t from = at + 1 + i;
		g->drafts[i] = to[i] = from < g->n ? g->text[from] : to[from - g->n];
	}
	g->guessed_at = g->n;
	g->n_drafted = most;
	return most;
}

/* --- sets --- */

enum { NOBODY = -1 };

struct ngram_set {
	int64_t n;
	struct ngram **of;        /* (n), owned */
	int32_t *owners;          /* (n) */
};

enum err ngram_set_create(int64_t n, int64_t n_tokens, struct ngram_set **out)
{
	struct ngram_set *set;
	enum err e;
	TRY(MEM_NEW(1, struct ngram_set, &set));
	TRY_OR(destroy, e, MEM_NEW((size_t)n, struct ngram *, &set->of));
	TRY_OR(destroy, e, MEM_NEW((size_t)n, int32_t, &set->owners));
	for (; set->n < n; set->n++) {
		TRY_OR(destroy, e, ngram_create(n_tokens, &set->of[set->n]));
		set->owners[set->n] = NOBODY;
	}
	*out = set;
	return ERR_OK;
destroy:
	ngram_set_destroy(set);
	return e;
}

void ngram_set_destroy(struct ngram_set *set)
{
	if (!set)
		return;
	for (int64_t i = 0; i < set->n; i++)
		ngram_destroy(set->of[i]);
	mem_free(set->of);
	mem_free(set->owners);
	mem_free(set);
}

static int64_t place_in(const struct ngram_set *set, int32_t owner)
{
	int64_t i = 0;
	while (i < set->n && set->owners[i] != owner)
		i++;
	return i;
}

struct ngram *ngram_of(struct ngram_set *set, int32_t owner)
{
	int64_t at = place_in(set, owner);
	if (at < set->n)
		return set->of[at];
	at = place_in(set, NOBODY);
	if (at == set->n)
		return NULL;
	set->owners[at] = owner;
	ngram_restart(set->of[at]);
	return set->of[at];
}

void ngram_drop(struct ngram_set *set, int32_t owner)
{
	int64_t at = set ? place_in(set, owner) : 0;
	if (set && at < set->n)
		set->owners[at] = NOBODY;
}
