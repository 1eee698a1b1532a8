/* Memory: every allocation of the program goes through here, so that a test can make the nth one fail. */
#ifndef SHARDRUN_BASE_MEM_H
#define SHARDRUN_BASE_MEM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every `out` and `block` below is the address of a pointer of any type. */

/* Zeroed memory for n items of size bytes, the product checked; ERR_MEMORY names `what`. n or size 0 gives a
 * pointer that may be freed. The caller frees with mem_free. */
enum err mem_alloc(size_t n, size_t size, const char *what, void *out);
/* Like realloc; new bytes are not zeroed. The pointer is replaced on success only. */
enum err mem_grow(void *block, size_t n, size_t size, const char *what);
/* Aligned, not touched (so that its pages are placed by whoever writes first), rounded up to whole alignments.
 * alignment is a power of two. Large blocks (4 MiB) lie on
 * huge pages where the system has them, and stay out of core dumps. Freed with mem_free_aligned. */
enum err mem_alloc_aligned(size_t bytes, size_t alignment, const char *what, void *out);
void mem_free_aligned(void *block);
void mem_free(void *block);
enum err mem_copy_string(const char *text, char **out);

/* The nth allocation from now (1 = the next) fails, and only that one; 0 switches this off. For tests. */
void mem_fail_at(int64_t nth);

/* MEM_NEW(n, type, &pointer) */
#define MEM_NEW(n, type, out) mem_alloc((n), sizeof(type), #type, (out))

/* Size arithmetic on numbers that came from files. Each gives ERR_MODEL naming `what` instead of wrapping. */
enum err size_mul(uint64_t a, uint64_t b, const char *what, uint64_t *out);
enum err size_add(uint64_t a, uint64_t b, const char *what, uint64_t *out);
/* Rounds up to a multiple of `unit` (> 0). */
static inline uint64_t size_round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

/* Arena: memory of one lifetime. Allocations are freed together. Not for use by two threads at once. */
struct arena;
enum err arena_create(const char *name, size_t chunk_bytes, struct arena **out);
/* Zeroed, aligned to 64 bytes. Owned by the arena. */
enum err arena_alloc(struct arena *a, size_t n, size_t size, void *out);
enum err arena_copy_string(struct arena *a, const char *text, size_t bytes, char **out);
void arena_reset(struct arena *a);      /* keeps the memory for the next use */
size_t arena_used_bytes(const struct arena *a);
void arena_destroy(struct arena *a);    /* takes NULL */
#define ARENA_NEW(a, n, type, out) arena_alloc((a), (n), sizeof(type), (out))

#endif
