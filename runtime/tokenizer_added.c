/* Added tokens: whole strings that are tokens wherever they stand. At each place the longest one wins, and the search goes
 * on behind it (leftmost-longest). The set is sorted bytewise, so walking along the text narrows it byte by byte. */
#include "runtime/tokenizer_parts.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum err added_put(struct added_set *s, const struct added *item, const char *text, size_t bytes)
{
	char *copy;
	if (!bytes || !utf8_valid(text, bytes))
		return ERR_OK;   /* is found nowhere; and part of a character must not be, or the rest of it would be left */
	TRY(grow_for_one(&s->items, s->n, &s->capacity, sizeof *s->items, "added tokens"));
	TRY(mem_alloc(bytes, 1, "added token", &copy));
	memcpy(copy, text, bytes);
	s->items[s->n] = *item;
	s->items[s->n].text = copy;
	s->items[s->n++].bytes = bytes;
	return ERR_OK;
}

static int compare(const void *left, const void *right)
{
	const struct added *a = left, *b = right;
	int c = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
	return c ? c : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

void added_sort(struct added_set *s)
{
	if (s->n)
		qsort(s->items, (size_t)s->n, sizeof *s->items, compare);
}

void added_free(struct added_set *s)
{
	for (int64_t i = 0; i < s->n; i++)
		mem_free((void *)(uintptr_t)s->items[i].text);
	mem_free(s->items);
	*s = (struct added_set){ 0 };
}

/* The first item in lo..hi whose byte at `depth` is >= byte; all of them are longer than depth. */
static int64_t lower(const struct added_set *s, int64_t lo, int64_t hi, size_t depth, int byte)
{
	while (lo < hi) {
		int64_t mid = lo + (hi - lo) / 2;
		if ((unsigned char)s->items[mid].text[depth] < byte)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool fits(const struct added *a, const struct guard *g, size_t at)
{
	return !g || !memchr(g->mask + at, 1, a->bytes) || !token_is_refused(g->e, a->id);
}

/* The longest item that text begins with; it stands at `at` of the mask. */
static const struct added *match_here(const struct added_set *s, const char *text, size_t bytes, const struct guard *g, size_t at)
{
	const struct added *best = NULL;
	int64_t lo = 0, hi = s->n;
	for (size_t depth = 0; depth < bytes; depth++) {
		int byte = (unsigned char)text[depth];
		while (lo < hi && s->items[lo].bytes == depth)   /* ended, and shorter than what we look for now */
			lo++;
		lo = lower(s, lo, hi, depth, byte);
		hi = lower(s, lo, hi, depth, byte + 1);
		if (lo == hi)
			break;
		if (s->items[lo].bytes == depth + 1 && fits(&s->items[lo], g, at))
			best = &s->items[lo];
	}
	return best;
}

static bool stands_alone(const char *text, size_t bytes, size_t begin, size_t end)
{
	if (begin && char_is_word(utf8_decode(utf8_before(text, text + begin))))
		return false;
	return end == bytes || !char_is_word(utf8_decode(text + end));
}

static size_t spaces_before(const char *text, size_t begin, size_t floor)
{
	while (begin > floor) {
		const char *c = utf8_before(text, text + begin);
		if (!char_is_space(utf8_decode(c)))
			break;
		begin = (size_t)(c - text);
	}
	return begin;
}

static size_t spaces_after(const char *text, size_t bytes, size_t end)
{
	while (end < bytes && char_is_space(utf8_decode(text + end)))
		end += utf8_length((unsigned char)text[end]);
	return end;
}

enum err added_cut(const struct added_set *s, const char *text, size_t bytes, const struct guard *g, bool with_control,
		   bool at_start, struct spans *out)
{
	size_t done = 0;
	for (size_t at = 0; s->n && at < bytes;) {
		const struct added *a = match_here(s, text + at, bytes - at, g, at);
		size_t begin = at, end = at + (a ? a->bytes : utf8_length((unsigned char)text[at]));
		at = end;
		if (!a || (a->control && !with_control) || (a->single_word && !stands_alone(text, bytes, begin, end)))
			continue;
		if (a->lstrip)
			begin = spaces_before(text, begin, done);
		if (a->rstrip)
			end = spaces_after(text, bytes, end);
		if (done < begin)
			TRY(spans_put(out, done, begin, -1, at_start && !done));
		TRY(spans_put(out, begin, end, a->id, false));
		done = end;
		if (at < end)
			at = end;
	}
	return done < bytes ? spans_put(out, done, bytes, -1, at_start && !done) : ERR_OK;
}
