/* The KV pages of one replica: who holds which, and what stands in them, so that sequences which begin alike share pages.
 * Pure bookkeeping: which bytes a page is, the stages know.
 *
 * A page is empty, held (by one sequence or more), or kept: nobody holds it, but what stands in it is noted and may be of use.
 * Kept pages are given out again when no empty one is left, the longest unused first.
 *
 * What stands in a page is a run of up to 32 token ids and what came before them. A full page that is noted gets a number
 * that is never used again, its serial; "what came before" is the serial of the page before, so equal serials mean equal
 * beginnings and nothing rests on a hash alone. A note under a serial whose page is gone can no longer be found, and
 * its page is given out in time like any other. */
#ifndef SHARDRUN_RUNTIME_PAGES_H
#define SHARDRUN_RUNTIME_PAGES_H

#include "base/err.h"

#include <stdint.h>

enum { PAGES_ROOT = 0 };      /* the serial before a sequence's first page */

struct pages;
enum err pages_create(int64_t n_pages, struct pages **out);
void pages_destroy(struct pages *p);                      /* takes NULL */
/* How many pages pages_take would give. */
int64_t pages_available(const struct pages *p);
/* A page, held once and without a note; -1 when all are held. */
int32_t pages_take(struct pages *p);
int pages_is_held(const struct pages *p, int32_t page);
void pages_hold(struct pages *p, int32_t page);
/* The last holder's release keeps a noted page. Pages of a sequence are released from its end, so that ends go first. */
void pages_release(struct pages *p, int32_t page);
/* Notes that the first n (1 to 32) positions of a held page are of these ids after `before`. More of the same page may be noted later.
 * Returns the serial for the page after it when n is 32: that of an equal page when there is one, else this page's. */
uint64_t pages_note(struct pages *p, int32_t page, uint64_t before, const int32_t *ids, int n);

/* The page whose noted ids have most of the n ids in common from the start on, after `before`. Only a few candidates of a partial
 * match are looked at; a page with 32 in common is found when there is one. */
struct page_match {
	int32_t page;             /* not yet held; -1: none has even the first id in common */
	int n;                    /* how many */
	uint64_t serial;          /* of the page when n is 32 */
};
struct page_match pages_find(const struct pages *p, uint64_t before, const int32_t *ids, int64_t n);

/* ERR_BUG when the books do not agree with themselves, or with how often each page is held as the caller counted it. */
enum err pages_check(const struct pages *p, const int32_t *held);

#endif
