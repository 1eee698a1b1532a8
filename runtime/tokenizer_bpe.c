/* Byte pair encoding of one piece. The symbols form a list; candidates for merging wait in a heap ordered by (rank, place),
 * so a piece of n characters takes n log n steps whatever it holds. A candidate that was overtaken by another merge is
 * known by its number of bytes: a symbol only ever grows, so the sum of two neighbours' bytes never comes back.
 *
 * Two rules share this: a table of merges with ranks (Sennrich et al. 2016), where the pair of ids decides, and
 * SentencePiece's (Kudo and Richardson 2018), where any two neighbours may merge whose joined text is a token, the
 * highest score first. */
#include "runtime/tokenizer_parts.h"

#include "base/mem.h"

#include <string.h>

static bool before(const struct candidate *a, const struct candidate *b)
{
	return a->order < b->order || (a->order == b->order && a->at < b->at);
}

static enum err heap_push(struct encoder *e, const struct candidate *c)
{
	TRY(grow_for_one(&e->heap, e->n_heap, &e->heap_capacity, sizeof *e->heap, "merge candidates"));
	int64_t i = e->n_heap++;
	while (i && before(c, &e->heap[(i - 1) / 2])) {
		e->heap[i] = e->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	e->heap[i] = *c;
	return ERR_OK;
}

static struct candidate heap_pop(struct encoder *e)
{
	struct candidate top = e->heap[0], last = e->heap[--e->n_heap];
	int64_t i = 0, child;
	while ((child = 2 * i + 1) < e->n_heap) {
		if (child + 1 < e->n_heap && before(&e->heap[child + 1], &e->heap[child]))
			child++;
		if (!before(&e->heap[child], &last))
			break;
		e->heap[i] = e->heap[child];
		i = child;
	}
	e->heap[i] = last;
	return top;
}

/* Floats in an unsigned order in which the highest comes first. */
static uint32_t score_order(float score)
{
	uint32_t bits;
	score += 0.0f;   /* -0 and 0 are one score */
	memcpy(&bits, &score, sizeof bits);
	return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

/* Merging must not make a control token of what looks like one. */
static int32_t find_plain(struct encoder *e, const char *text, size_t bytes)
{
	int32_t id = vocab_find(&e->t->vocab, text, bytes);
	return id >= 0 && token_is_refused(e, id) ? -1 : id;
}

/* Looks at the pair that begins with symbol `left`. */
static enum err consider(struct encoder *e, const char *text, int32_t left)
{
	if (left < 0 || e->symbols[left].next < 0)
		return ERR_OK;
	const struct symbol *a = &e->symbols[left], *b = &e->symbols[a->next];
	struct candidate c = { .at = left, .bytes = a->bytes + b->bytes };
	if (e->t->scores) {
		c.id = vocab_find(&e->t->vocab, text + a->begin, c.bytes);
		if (c.id < 0 || token_is_refused(e, c.id))
			return ERR_OK;
		c.order = score_order(e->t->scores[c.id]);
	} else {
		const struct merge *m = merges_find(&e->t->merges, a->id, b->id);
		if (!m || token_is_refused(e, m->id))
			return ERR_OK;
		c.id = m->id;
		c.order = (uint32_t)m->rank;
	}
	return heap_push(e, &c);
}

static enum err merge_all(struct encoder *e, const char *text)
{
	e->n_heap = 0;
	for (int64_t i = 0; i + 1 < e->n_symbols; i++)
		TRY(consider(e, text, (int32_t)i));
	while (e->n_heap) {
		struct candidate c = heap_pop(e);
		struct symbol *a = &e->symbols[c.at];
		if (!a->bytes || a->next < 0)
			continue;
		struct symbol *b = &e->symbols[a->next];
		if (a->bytes + b->bytes != c.bytes)
			continue;
		a->id = c.id;
		a->bytes = c.bytes;
		a->next = b->next;
		b->bytes = 0;
		if (a->next >= 0)
			e->symbols[a->next].prev = c.at;
		TRY(consider(e, text, a->prev));
		TRY(consider(e, text, c.at));
	}
	return ERR_OK;
}

static enum err put_symbol(struct encoder *e, int32_t id, size_t begin, size_t bytes)
{
	TRY(grow_for_one(&e->symbols, e->n_symbols, &e->symbols_capacity, sizeof *e->symbols, "symbols"));
	int32_t i = (int32_t)e->n_symbols++;
	e->symbols[i] = (struct symbol){ .id = id, .prev = i - 1, .next = -1, .bytes = (uint32_t)bytes, .begin = begin };
	if (i)
		e->symbols[i - 1].next = i;
	return ERR_OK;
}

static bool has_bytes(const struct vocab *v, const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (v->byte_ids[(unsigned char)text[i]] < 0)
			return false;
	return true;
}

/* The characters of the piece as symbols, for merging by rank: one that is no token becomes its bytes, or the unknown
 * token (several in a row one, with fuse_unk), or nothing. A waiting unknown is put before the next known character;
 * that bytes do not release it is how the tokenizers library does it. */
static enum err put_characters(struct encoder *e, const char *text, size_t bytes)
{
	const struct tokenizer *t = e->t;
	size_t unknown = 0;   /* bytes of the waiting unknown token */
	for (size_t at = 0, n; at < bytes; at += n) {
		n = utf8_length((unsigned char)text[at]);
		int32_t id = find_plain(e, text + at, n);
		if (id >= 0) {
			if (unknown)
				TRY(put_symbol(e, t->unk, at, unknown));
			unknown = 0;
			TRY(put_symbol(e, id, at, n));
		} else if (t->byte_fallback && has_bytes(&t->vocab, text + at, n)) {
			for (size_t i = 0; i < n; i++)
				TRY(put_symbol(e, t->vocab.byte_ids[(unsigned char)text[at + i]], at + i, 1));
		} else if (t->unk >= 0) {
			if (unknown && !t->fuse_unk) {
				TRY(put_symbol(e, t->unk, at, unknown));
				unknown = 0;
			}
			unknown += n;
		}
	}
	return unknown ? put_symbol(e, t->unk, bytes, unknown) : ERR_OK;
}

/* For merging by score every character is a symbol, token or not. */
static enum err put_any_characters(struct encoder *e, const char *text, size_t bytes)
{
	for (size_t at = 0, n; at < bytes; at += n) {
		n = utf8_length((unsigned char)text[at]);
		TRY(put_symbol(e, find_plain(e, text + at, n), at, n));
	}
	return ERR_OK;
}

/* A symbol that is no token: its bytes where they are tokens, else the unknown token. */
static enum err push_bytes(const struct tokenizer *t, const char *text, size_t bytes, struct tokens *out)
{
	if (!has_bytes(&t->vocab, text, bytes))
		return t->unk >= 0 ? tokens_push(out, t->unk) : ERR_OK;
	for (size_t i = 0; i < bytes; i++)
		TRY(tokens_push(out, t->vocab.byte_ids[(unsigned char)text[i]]));
	return ERR_OK;
}

enum err bpe_encode(struct encoder *e, const char *text, size_t bytes, struct tokens *out)
{
	const struct tokenizer *t = e->t;
	if (t->ignore_merges) {
		int32_t id = find_plain(e, text, bytes);
		if (id >= 0)
			return tokens_push(out, id);
	}
	if (bytes > INT32_MAX / 2)
		return ERR(WORK, "a text of %zu bytes is too long to tokenise in one piece", bytes);
	e->n_symbols = 0;
	TRY(t->scores ? put_any_characters(e, text, bytes) : put_characters(e, text, bytes));
	if (!e->n_symbols)
		return ERR_OK;
	TRY(merge_all(e, text));
	for (int32_t i = 0; i >= 0; i = e->symbols[i].next) {
		const struct symbol *s = &e->symbols[i];
		TRY(s->id >= 0 ? tokens_push(out, s->id) : push_bytes(t, text + s->begin, s->bytes, out));
	}
	return ERR_OK;
}
