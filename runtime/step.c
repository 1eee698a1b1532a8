#include "runtime/step.h"

#include "base/mem.h"

#include <string.h>

/* The first broadcast carries this much, enough for most decode steps; the rest follows when there is more. */
enum { FIRST_BYTES = 8192, HEADER_INTS = 6, HEADER_BYTES = 4 * HEADER_INTS };

static uint64_t packed_bytes(const struct step_room *n, int64_t copies)
{
	return HEADER_BYTES + (uint64_t)n->slices * sizeof(struct slice) + (uint64_t)copies * sizeof(struct page_copy) +
	       (uint64_t)(n->tokens + n->pages + n->extra) * sizeof(int32_t);
}

uint64_t step_room_bytes(const struct step_room *room)
{
	return 2 * packed_bytes(room, room->slices) + FIRST_BYTES;   /* once as arrays, once as it travels */
}

enum err step_create(const struct step_room *room, struct step **out)
{
	struct step *s;
	enum err e;
	TRY(MEM_NEW(1, struct step, &s));
	s->max_slices = (int32_t)room->slices;
	s->max_tokens = (int32_t)room->tokens;
	s->max_pages = (int32_t)room->pages;
	s->max_extra = (int32_t)room->extra;
	s->wire_bytes = packed_bytes(room, room->slices);
	if (s->wire_bytes < FIRST_BYTES)
		s->wire_bytes = FIRST_BYTES;
	TRY_OR(destroy, e, MEM_NEW((size_t)room->slices, struct slice, &s->slices));
	TRY_OR(destroy, e, MEM_NEW((size_t)room->slices, struct page_copy, &s->copies));
	TRY_OR(destroy, e, MEM_NEW((size_t)room->tokens, int32_t, &s->tokens));
	TRY_OR(destroy, e, MEM_NEW((size_t)room->pages, int32_t, &s->pages));
	TRY_OR(destroy, e, MEM_NEW((size_t)room->extra, int32_t, &s->extra));
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
	mem_free(s->extra);
	mem_free(s->wire);
	mem_free(s);
}

void step_clear(struct step *s) { s->n_slices = s->n_tokens = s->n_pages = s->n_copies = s->n_extra = s->last = 0; }

/* Copies the parts of a step to or from its packed form; gives the size. */
static size_t copy_parts(struct step *s, int unpack)
{
	size_t at = HEADER_BYTES;
	struct { void *data; size_t bytes; } parts[] = {
		{ s->slices, (size_t)s->n_slices * sizeof *s->slices },
		{ s->tokens, (size_t)s->n_tokens * 4 },
		{ s->pages, (size_t)s->n_pages * 4 },
		{ s->copies, (size_t)s->n_copies * sizeof *s->copies },
		{ s->extra, (size_t)s->n_extra * 4 },
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

size_t step_pack(struct step *s)
{
	int32_t header[HEADER_INTS] = { s->n_slices, s->n_tokens, s->n_pages, s->n_copies, s->n_extra, s->last };
	memcpy(s->wire, header, sizeof header);
	return copy_parts(s, 0);
}

/* How many bytes the packed form has whose beginning is there. */
static enum err read_header(const struct step *s, int32_t header[HEADER_INTS], size_t *bytes)
{
	const int32_t most[HEADER_INTS] = { s->max_slices, s->max_tokens, s->max_pages, s->max_slices, s->max_extra, 1 };
	memcpy(header, s->wire, HEADER_BYTES);
	for (int i = 0; i < HEADER_INTS; i++)
		if (header[i] < 0 || header[i] > most[i])
			return ERR(BUG, "a step of %d slices, %d tokens, %d pages, %d copies, %d extras exceeds what was planned (%d, %d, "
					"%d, %d, %d)", header[0], header[1], header[2], header[3], header[4], most[0], most[1],
				   most[2], most[3], most[4]);
	*bytes = packed_bytes(&(struct step_room){ header[0], header[1], header[2], header[4] }, header[3]);
	return ERR_OK;
}

enum err step_unpack(struct step *s, size_t bytes)
{
	int32_t header[HEADER_INTS];
	size_t expected;
	TRY(read_header(s, header, &expected));
	if (bytes != expected)
		return ERR(BUG, "a step has %zu bytes instead of %zu", bytes, expected);
	s->n_slices = header[0], s->n_tokens = header[1], s->n_pages = header[2];
	s->n_copies = header[3], s->n_extra = header[4], s->last = header[5];
	copy_parts(s, 1);
	return ERR_OK;
}

enum err step_bcast(struct step *s, struct comm *c, int root)
{
	int32_t header[HEADER_INTS];
	size_t bytes;
	if (comm_size(c) == 1)
		return ERR_OK;
	TRY(comm_bcast(c, s->wire, FIRST_BYTES, root));
	TRY(read_header(s, header, &bytes));
	if (bytes > FIRST_BYTES)
		TRY(comm_bcast(c, s->wire + FIRST_BYTES, bytes - FIRST_BYTES, root));
	return comm_rank(c) == root ? ERR_OK : step_unpack(s, bytes);
}

/* --- results --- */

uint64_t step_results_bytes(int64_t choices)
{
	return (uint64_t)choices * (sizeof(struct step_result) + sizeof(struct sample_logprobs));
}

enum err step_results_create(int64_t choices, struct step_results *out)
{
	TRY(MEM_NEW((size_t)choices, struct step_result, &out->of));
	return MEM_NEW((size_t)choices, struct sample_logprobs, &out->logprobs);
}

void step_results_free(struct step_results *r)
{
	mem_free(r->of);
	mem_free(r->logprobs);
	*r = (struct step_results){ 0 };
}

void step_results_expect(const struct step *s, int replica, int32_t *n, int32_t *n_logprobs)
{
	*n = *n_logprobs = 0;
	for (int32_t i = 0; i < s->n_slices; i++) {
		const struct slice *sl = &s->slices[i];
		if (sl->replica != replica)
			continue;
		*n += slice_choices(sl);
		*n_logprobs += sl->sample.logprobs > 0 ? slice_choices(sl) : 0;
	}
}
