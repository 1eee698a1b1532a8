/* Arenas are chains of chunks; a chunk is at least the arena's chunk size, larger for one large allocation. Reset
 * keeps the chunks and starts over with the first, so an arena that is reset every step soon allocates nothing. */
#include "base/mem.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic int64_t fail_countdown;

void mem_fail_at(int64_t nth) { atomic_store(&fail_countdown, nth); }

static bool fails_now(void)
{
	if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) <= 0)
		return false;
	return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

enum err size_mul(uint64_t a, uint64_t b, const char *what, uint64_t *out)
{
	if (__builtin_mul_overflow(a, b, out))
		return ERR(MODEL, "%s: %" PRIu64 " x %" PRIu64 " overflows 64 bits", what, a, b);
	return ERR_OK;
}

enum err size_add(uint64_t a, uint64_t b, const char *what, uint64_t *out)
{
	if (__builtin_add_overflow(a, b, out))
		return ERR(MODEL, "%s: %" PRIu64 " + %" PRIu64 " overflows 64 bits", what, a, b);
	return ERR_OK;
}

enum err mem_alloc(size_t n, size_t size, const char *what, void *out)
{
	void *block = fails_now() ? NULL : calloc(n ? n : 1, size ? size : 1);
	if (!block)
		return ERR(MEMORY, "no memory for %zu x %zu bytes (%s)", n, size, what);
	memcpy(out, &block, sizeof block);
	return ERR_OK;
}

enum err mem_grow(void *block, size_t n, size_t size, const char *what)
{
	size_t bytes;
	void *old;
	memcpy(&old, block, sizeof old);
	if (__builtin_mul_overflow(n ? n : 1, size ? size : 1, &bytes) || fails_now())
		return ERR(MEMORY, "no memory for %zu x %zu bytes (%s)", n, size, what);
	void *grown = realloc(old, bytes);
	if (!grown)
		return ERR(MEMORY, "no memory for %zu x %zu bytes (%s)", n, size, what);
	memcpy(block, &grown, sizeof grown);
	return ERR_OK;
}

enum err mem_alloc_aligned(size_t bytes, size_t alignment, const char *what, void *out)
{
	enum { LARGE = 4 << 20, HUGE_PAGE = 2 << 20 };
	void *block = NULL;
	if (bytes >= LARGE && alignment < HUGE_PAGE)
		alignment = HUGE_PAGE;
	size_t rounded = size_round_up(bytes ? bytes : 1, alignment);
	if (rounded < bytes || fails_now() || posix_memalign(&block, alignment, rounded))
		return ERR(MEMORY, "no memory for %zu bytes (%s)", bytes, what);
	if (bytes >= LARGE) {
		madvise(block, rounded, MADV_HUGEPAGE);   /* a hint: fewer faults at load, fewer TLB misses in a step */
		madvise(block, rounded, MADV_DONTDUMP);   /* weights and KV stay out of core dumps */
	}
	memcpy(out, &block, sizeof block);
	return ERR_OK;
}

void mem_free_aligned(void *block) { free(block); }
void mem_free(void *block) { free(block); }

enum err mem_copy_string(const char *text, char **out)
{
	size_t bytes = strlen(text) + 1;
	char *copy;
	TRY(mem_alloc(bytes, 1, "string", &copy));
	memcpy(copy, text, bytes);
	*out = copy;
	return ERR_OK;
}

struct chunk {
	struct chunk *next;
	size_t bytes, used;
	unsigned char *data;
};

struct arena {
	const char *name;
	size_t chunk_bytes, used_bytes;
	struct chunk *first, *current;
};

enum err arena_create(const char *name, size_t chunk_bytes, struct arena **out)
{
	struct arena *a;
	TRY(MEM_NEW(1, struct arena, &a));
	a->name = name;
	a->chunk_bytes = chunk_bytes;
	*out = a;
	return ERR_OK;
}

static enum err add_chunk(struct arena *a, size_t bytes)
{
	struct chunk *c;
	TRY(MEM_NEW(1, struct chunk, &c));
	c->bytes = bytes > a->chunk_bytes ? bytes : a->chunk_bytes;
	enum err e = mem_alloc_aligned(c->bytes, 64, a->name, &c->data);
	if (e) {
		mem_free(c);
		return e;
	}
	if (a->current) {
		c->next = a->current->next;
		a->current->next = c;
	} else {
		a->first = c;
	}
	a->current = c;
	return ERR_OK;
}

enum err arena_alloc(struct arena *a, size_t n, size_t size, void *out)
{
	size_t bytes, rounded;
	if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(bytes, (size_t)63, &rounded))
		return ERR(MEMORY, "%zu x %zu bytes overflow (arena %s)", n, size, a->name);
	rounded &= ~(size_t)63;
	while (!a->current || a->current->bytes - a->current->used < rounded) {
		if (a->current && a->current->next) {
			a->current = a->current->next;
			a->current->used = 0;
		} else {
			TRY(add_chunk(a, rounded));
		}
	}
	void *block = a->current->data + a->current->used;
	memset(block, 0, rounded);
	a->current->used += rounded;
	a->used_bytes += rounded;
	memcpy(out, &block, sizeof block);
	return ERR_OK;
}

enum err arena_copy_string(struct arena *a, const char *text, size_t bytes, char **out)
{
	char *copy;
	if (bytes == SIZE_MAX)
		return ERR(MEMORY, "a string of %zu bytes overflows (arena %s)", bytes, a->name);
	TRY(arena_alloc(a, bytes + 1, 1, &copy));
	if (bytes)
		memcpy(copy, text, bytes);
	*out = copy;
	return ERR_OK;
}

void arena_reset(struct arena *a)
{
	a->current = a->first;
	if (a->first)
		a->first->used = 0;
	a->used_bytes = 0;
}

size_t arena_used_bytes(const struct arena *a) { return a->used_bytes; }

void arena_destroy(struct arena *a)
{
	if (!a)
		return;
	for (struct chunk *c = a->first, *next; c; c = next) {
		next = c->next;
		mem_free_aligned(c->data);
		mem_free(c);
	}
	mem_free(a);
}
