#include "runtime/pages.h"

#include "base/mem.h"
#include "runtime/kernels.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string.h>

enum { N = KV_PAGE_TOKENS, NONE = -1,
       CANDIDATES = 16 };         /* pages that a search for a partial match looks at */

/* Two tables find notes: one by all of a full page, one by the first id. Both chain pages by number. */
enum table { FULL, FIRST, TABLES };

struct page {
	int32_t held;                   /* how often; 0 and no note: on the stack of empty ones */
	int32_t n_ids;                  /* noted; 0: no note */
	uint64_t before, serial;        /* serial: when n_ids is N */
	int32_t ids[N];
	int32_t next[TABLES], previous[TABLES];     /* in chains */
	int32_t newer, older;           /* among those kept */
};

struct pages {
	int64_t n_pages, n_empty, n_kept;
	struct page *page;
	int32_t *empty;                 /* stack */
	int32_t *bucket[TABLES];
	uint64_t mask, last_serial;
	int32_t newest, oldest;         /* kept */
};

enum err pages_create(int64_t n_pages, struct pages **out)
{
	struct pages *p;
	enum err e;
	uint64_t n_buckets = 16;
	TRY(MEM_NEW(1, struct pages, &p));
	while (n_buckets < 2 * (uint64_t)n_pages)
		n_buckets *= 2;
	p->n_pages = n_pages;
	p->mask = n_buckets - 1;
	p->newest = p->oldest = NONE;
	p->last_serial = PAGES_ROOT;
	TRY_OR(destroy, e, MEM_NEW((size_t)n_pages, struct page, &p->page));
	TRY_OR(destroy, e, MEM_NEW((size_t)n_pages, int32_t, &p->empty));
	for (int t = 0; t < TABLES; t++) {
		TRY_OR(destroy, e, MEM_NEW((size_t)n_buckets, int32_t, &p->bucket[t]));
		memset(p->bucket[t], 0xff, (size_t)n_buckets * sizeof(int32_t));
	}
	while (p->n_empty < n_pages) {      /* page 0 on top */
		p->empty[p->n_empty] = (int32_t)(n_pages - 1 - p->n_empty);
		p->n_empty++;
	}
	*out = p;
	return ERR_OK;
destroy:
	pages_destroy(p);
	return e;
}

void pages_destroy(struct pages *p)
{
	if (!p)
		return;
	mem_free(p->page);
	mem_free(p->empty);
	for (int t = 0; t < TABLES; t++)
		mem_free(p->bucket[t]);
	mem_free(p);
}

int64_t pages_available(const struct pages *p) { return p->n_empty + p->n_kept; }

/* --- notes --- */

static int32_t *bucket_of(const struct pages *p, enum table t, uint64_t before, const int32_t *ids)
{
	uint64_t hash = XXH3_64bits_withSeed(ids, (t == FULL ? N : 1) * sizeof *ids, before);
	return &p->bucket[t][hash & p->mask];
}

static void link_note(struct pages *p, int32_t i, enum table t)
{
	struct page *g = &p->page[i];
	int32_t *head = bucket_of(p, t, g->before, g->ids);
	g->next[t] = *head;
	g->previous[t] = NONE;
	if (*head != NONE)
		p->page[*head].previous[t] = i;
	*head = i;
}

static void unlink_note(struct pages *p, int32_t i, enum table t)
{
	struct page *g = &p->page[i];
	if (g->next[t] != NONE)
		p->page[g->next[t]].previous[t] = g->previous[t];
	if (g->previous[t] != NONE)
		p->page[g->previous[t]].next[t] = g->next[t];
	else
		*bucket_of(p, t, g->before, g->ids) = g->next[t];
}

static void forget_note(struct pages *p, int32_t i)
{
	struct page *g = &p->page[i];
	if (g->n_ids == 0)
		return;
	unlink_note(p, i, FIRST);
	if (g->n_ids == N)
		unlink_note(p, i, FULL);
	g->n_ids = 0;
}

static int32_t find_full(const struct pages *p, uint64_t before, const int32_t *ids)
{
	int32_t i = *bucket_of(p, FULL, before, ids);
	while (i != NONE && (p->page[i].before != before || memcmp(p->page[i].ids, ids, sizeof p->page[i].ids)))
		i = p->page[i].next[FULL];
	return i;
}

uint64_t pages_note(struct pages *p, int32_t page, uint64_t before, const int32_t *ids, int n)
{
	struct page *g = &p->page[page];
	int32_t equal = n == N ? find_full(p, before, ids) : NONE;
	if (equal != NONE && equal != page) {      /* found under the other one; what is noted of this one is in that, too */
		forget_note(p, page);
		return p->page[equal].serial;
	}
	if (equal == NONE) {
		forget_note(p, page);
		g->before = before;
		g->n_ids = n;
		memcpy(g->ids, ids, (size_t)n * sizeof *ids);
		link_note(p, page, FIRST);
		if (n == N) {
			g->serial = ++p->last_serial;
			link_note(p, page, FULL);
		}
	}
	return n == N ? g->serial : before;
}

static int common(const int32_t *a, const int32_t *b, int64_t most)
{
	int n = 0;
	while (n < most && a[n] == b[n])
		n++;
	return n;
}

struct page_match pages_find(const struct pages *p, uint64_t before, const int32_t *ids, int64_t n)
{
	struct page_match best = { .page = NONE };
	if (n >= N) {
		int32_t i = find_full(p, before, ids);
		if (i != NONE)
			return (struct page_match){ i, N, p->page[i].serial };
	}
	int looked_at = 0;
	for (int32_t i = n > 0 ? *bucket_of(p, FIRST, before, ids) : NONE; i != NONE && looked_at < CANDIDATES;
	     i = p->page[i].next[FIRST]) {
		const struct page *g = &p->page[i];
		if (g->before != before)
			continue;
		int both = common(g->ids, ids, g->n_ids < n ? g->n_ids : n);
		looked_at++;
		if (both > best.n)
			best = (struct page_match){ .page = i, .n = both };
	}
	return best;
}

/* --- holding --- */

static void take_from_kept(struct pages *p, int32_t i)
{
	struct page *g = &p->page[i];
	if (g->newer != NONE)
		p->page[g->newer].older = g->older;
	else
		p->newest = g->older;
	if (g->older != NONE)
		p->page[g->older].newer = g->newer;
	else
		p->oldest = g->newer;
	p->n_kept--;
}

int32_t pages_take(struct pages *p)
{
	int32_t i = p->oldest;
	if (p->n_empty > 0) {
		i = p->empty[--p->n_empty];
	} else if (i != NONE) {
		take_from_kept(p, i);
		forget_note(p, i);
	}
	if (i != NONE)
		p->page[i].held = 1;
	return i;
}

int pages_is_held(const struct pages *p, int32_t page) { return p->page[page].held > 0; }

void pages_hold(struct pages *p, int32_t page)
{
	if (p->page[page].held++ == 0)
		take_from_kept(p, page);
}

void pages_release(struct pages *p, int32_t page)
{
	struct page *g = &p->page[page];
	if (--g->held > 0)
		return;
	if (g->n_ids == 0) {
		p->empty[p->n_empty++] = page;
		return;
	}
	g->newer = NONE;
	g->older = p->newest;
	if (p->newest != NONE)
		p->page[p->newest].newer = page;
	else
		p->oldest = page;
	p->newest = page;
	p->n_kept++;
}

/* --- checking --- */

enum err pages_check(const struct pages *p, const int32_t *held)
{
	int64_t n_held = 0, n_kept = 0;
	for (int64_t i = 0; i < p->n_pages; i++) {
		const struct page *g = &p->page[i];
		if (g->held != held[i])
			return ERR(BUG, "page %lld is held %d times, but %d sequences have it", (long long)i, g->held, held[i]);
		n_held += g->held > 0;
	}
	for (int32_t i = p->newest, newer = NONE; i != NONE; newer = i, i = p->page[i].older) {
		if (++n_kept > p->n_kept || p->page[i].newer != newer || p->page[i].held || p->page[i].n_ids == 0)
			return ERR(BUG, "the list of kept pages is broken at page %d", i);
	}
	for (int64_t k = 0; k < p->n_empty; k++)
		if (p->page[p->empty[k]].held || p->page[p->empty[k]].n_ids)
			return ERR(BUG, "page %d is on the stack of empty pages, but in use", p->empty[k]);
	if (n_kept != p->n_kept || n_held + n_kept + p->n_empty != p->n_pages)
		return ERR(BUG, "%lld pages: %lld held, %lld kept, %lld empty", (long long)p->n_pages, (long long)n_held,
			   (long long)n_kept, (long long)p->n_empty);
	for (int t = 0; t < TABLES; t++)
		for (uint64_t b = 0; b <= p->mask; b++)
			for (int32_t i = p->bucket[t][b]; i != NONE; i = p->page[i].next[t])
				if (p->page[i].n_ids == 0 || (t == FULL && p->page[i].n_ids < N) ||
				    bucket_of(p, (enum table)t, p->page[i].before, p->page[i].ids) != &p->bucket[t][b])
					return ERR(BUG, "page %d is found where it is not noted", i);
	return ERR_OK;
}
