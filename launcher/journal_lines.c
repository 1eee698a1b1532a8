#include "launcher/journal_lines.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

enum { OUT_BYTES = 1 << 18 };
static const uint64_t max_lines = UINT64_C(1) << 40;

void lines_init(struct lines *l, const char *directory, const struct journal_io *io, int unordered)
{
	memset(l, 0, sizeof *l);
	l->unordered = unordered;
	l->directory = directory;
	l->io = io;
	l->fd = -1;
	l->name = "output";
	l->reader.fd = -1;
}

void lines_free(struct lines *l)
{
	records_reader_close(&l->reader);
	bytes_free(&l->out);
	bytes_free(&l->again);
	mem_free(l->taken);
	mem_free(l->heap);
	l->taken = NULL;
	l->heap = NULL;
}

int lines_have(const struct lines *l, uint64_t line)
{
	return line / 64 < l->taken_words && l->taken[line / 64] >> line % 64 & 1;
}

enum err lines_take(struct lines *l, uint64_t line)
{
	if (line >= max_lines)
		return ERR(WORK, "line %" PRIu64 " is more than a batch may have (%" PRIu64 ")", line, max_lines);
	if (line / 64 >= l->taken_words) {
		uint64_t words = l->taken_words ? l->taken_words : 64;
		while (words <= line / 64)
			words *= 2;
		TRY(mem_grow(&l->taken, words, sizeof *l->taken, "the lines that have results"));
		memset(l->taken + l->taken_words, 0, (words - l->taken_words) * sizeof *l->taken);
		l->taken_words = words;
	}
	l->taken[line / 64] |= UINT64_C(1) << line % 64;
	return ERR_OK;
}

enum err lines_flush(struct lines *l)
{
	TRY(l->out.error);
	if (l->out.size && l->fd >= 0)
		TRY(journal_write(l->io, l->fd, l->name, l->out.data, l->out.size, l->positioned ? (int64_t)l->written : -1));
	l->written += l->out.size;
	bytes_clear(&l->out);
	return ERR_OK;
}

static enum err emit(struct lines *l, const void *data, size_t bytes)
{
	bytes_put(&l->out, data, bytes);
	bytes_put(&l->out, "\n", 1);
	l->next++;
	return l->out.size >= OUT_BYTES ? lines_flush(l) : l->out.error;
}

static enum err push(struct lines *l, uint64_t line, const struct records_place *place)
{
	if (l->n_waiting == l->waiting_capacity) {
		size_t capacity = l->waiting_capacity ? 2 * l->waiting_capacity : 256;
		TRY(mem_grow(&l->heap, capacity, sizeof *l->heap, "results that wait for earlier lines"));
		l->waiting_capacity = capacity;
	}
	size_t at = l->n_waiting++;
	for (; at && l->heap[(at - 1) / 2].line > line; at = (at - 1) / 2)
		l->heap[at] = l->heap[(at - 1) / 2];
	l->heap[at] = (struct waiting){ line, *place };
	return ERR_OK;
}

static struct waiting pop(struct lines *l)
{
	struct waiting first = l->heap[0], last = l->heap[--l->n_waiting];
	size_t at = 0;
	for (size_t child = 1; child < l->n_waiting; at = child, child = 2 * at + 1) {
		if (child + 1 < l->n_waiting && l->heap[child + 1].line < l->heap[child].line)
			child++;
		if (last.line <= l->heap[child].line)
			break;
		l->heap[at] = l->heap[child];
	}
	if (l->n_waiting)
		l->heap[at] = last;
	return first;
}

enum err lines_place(struct lines *l, uint64_t line, const struct records_place *place, const void *data)
{
	l->n_placed++;
	if (!l->unordered && line != l->next)
		return push(l, line, place);
	TRY(emit(l, data, place->bytes));
	while (l->n_waiting && l->heap[0].line == l->next) {
		struct waiting w = pop(l);
		TRY(records_read(&l->reader, l->directory, &w.place, &l->again));
		TRY(emit(l, bytes_text(&l->again), l->again.size));
	}
	return ERR_OK;
}
