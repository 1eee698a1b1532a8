#include "runtime/step.h"

#include "base/mem.h"

#include <string.h>

/* The first broadcast carries this much, enough for most decode steps; the rest follows when there is more. */
enum { FIRST_BYTES = 8192, HEADER_INTS = 5, HEADER_BYTES = 4 * HEADER_INTS };

static uint64_t packed_bytes(int64_t slices, int64_t tokens, int64_t pages, int64_t copies)
{
	return HEADER_BYTES + (uint64_t)slices * sizeof(struct slice) + (uint64_t)(tokens + pages) * sizeof(int32_t) +
	       (uint64_t)copies * sizeof(struct page_copy);
}

uint64_t step_room_bytes(int64_t max_slices, int64_t max_tokens, int64_t max_pages)
{
	return 2 * packed_bytes(max_slices, max_tokens, max_pages, max_slices) + FIRST_BYTES;   /* once as arrays, once as it travels */
}

enum err step_create(int64_t max_slices, int64_t max_tokens, int64_t max_pages, struct step **out)
{
	struct step *s;
	enum err e;
	TRY(MEM_NEW(1, struct step, &s));
	s->max_slices = (int32_t)max_slices;
	s->max_tokens = (int32_t)max_tokens;
	s->max_pages = (int32_t)max_pages;
	s->wire_bytes = packed_bytes(max_slices, max_tokens, max_pages, max_slices);
	if (s->wire_bytes < FIRST_BYTES)
		s->wire_bytes = FIRST_BYTES;
	TRY_OR(destroy, e, MEM_NEW((size_t)max_slices, struct slice, &s->slices));
	TRY_OR(destroy, e, MEM_NEW((size_t)max_slices, struct page_copy, &s->copies));
	TRY_OR(destroy, e, MEM_NEW((size_t)max_tokens, int32_t, &s->tokens));
	TRY_OR(destroy, e, MEM_NEW((size_t)max_pages, int32_t, &s->pages));
	TRY_OR(destroy, e, mem_alloc(s->wire_bytes, 1, "step", &s->wire));
	*out = s;
	return ERR_OK;
destroy:
	step_destroy(s);
	return e;
}

void step_destroy(struct step *s)
{
	if (!s)
		return;
	mem_free(s->slices);
	mem_free(s->copies);
	mem_free(s->tokens);
	mem_free(s->pages);
	mem_free(s->wire);
	mem_free(s);
}

void step_clear(struct step *s) { s->n_slices = s->n_tokens = s->n_pages = s->n_copies = s->last = 0; }

/* Copies the parts of a step to or from its packed form; gives the size. */
static size_t pack(struct step *s, int unpack)
{
	size_t at = HEADER_BYTES;
	struct { void *data; size_t bytes; } parts[] = {
		{ s->slices, (size_t)s->n_slices * sizeof *s->slices },
		{ s->tokens, (size_t)s->n_tokens * 4 },
		{ s->pages, (size_t)s->n_pages * 4 },
		{ s->copies, (size_t)s->n_copies * sizeof *s->copies },
	};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (unpack)
			memcpy(parts[i].data, s->wire + at, parts[i].bytes);
		else
			memcpy(s->wire + at, parts[i].data, parts[i].bytes);
		at += parts[i].bytes;
	}
	return at;
}

enum err step_bcast(struct step *s, struct comm *world, int root)
{
	int32_t header[HEADER_INTS] = { s->n_slices, s->n_tokens, s->n_pages, s->n_copies, s->last };
	int is_root = comm_rank(world) == root;
	if (comm_size(world) == 1)
		return ERR_OK;
	if (is_root) {
		memcpy(s->wire, header, sizeof header);
		pack(s, 0);
	}
	TRY(comm_bcast(world, s->wire, FIRST_BYTES, root));
	memcpy(header, s->wire, sizeof header);
	if (header[0] < 0 || header[0] > s->max_slices || header[1] < 0 || header[1] > s->max_tokens || header[2] < 0 ||
	    header[2] > s->max_pages || header[3] < 0 || header[3] > s->max_slices)
		return ERR(BUG, "a step of %d slices, %d tokens, %d pages, %d copies exceeds what was planned (%d, %d, %d, %d)",
			   header[0], header[1], header[2], header[3], s->max_slices, s->max_tokens, s->max_pages, s->max_slices);
	s->n_slices = header[0], s->n_tokens = header[1], s->n_pages = header[2], s->n_copies = header[3], s->last = header[4];
	size_t bytes = packed_bytes(header[0], header[1], header[2], header[3]);
	if (bytes > FIRST_BYTES)
		TRY(comm_bcast(world, s->wire + FIRST_BYTES, bytes - FIRST_BYTES, root));
	if (!is_root)
		pack(s, 1);
	return ERR_OK;
}
