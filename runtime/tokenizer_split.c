/* The pre-tokeniser: cuts a section into the pieces within which merges happen. Steps follow one another; each sees only one
 * piece at a time, so an expression cannot look beyond the piece it was given. A step that rewrites text builds the
 * new text of all pieces in e->other, then the two change places. */
#include "runtime/tokenizer_parts.h"

#include "base/mem.h"

#include <string.h>

enum { MAX_STEPS = 100 };

enum err split_put(struct split_steps *s, enum split_kind kind, struct split_step **out)
{
	if (s->n >= MAX_STEPS)
		return ERR(MODEL, "a tokenizer with more than %d pre-tokenisers is not supported", MAX_STEPS);
	TRY(grow_for_one(&s->items, s->n, &s->capacity, sizeof *s->items, "pre-tokenisers"));
	struct split_step *step = &s->items[s->n++];
	*step = (struct split_step){ .kind = kind };
	*out = step;
	return ERR_OK;
}

void split_free(struct split_steps *s)
{
	for (int64_t i = 0; i < s->n; i++) {
		regex_destroy(s->items[i].regex);
		bytes_free(&s->items[i].mark);
	}
	mem_free(s->items);
	*s = (struct split_steps){ 0 };
}

enum err spans_put(struct spans *s, size_t begin, size_t end, int32_t id, bool at_start)
{
	TRY(grow_for_one(&s->items, s->n, &s->capacity, sizeof *s->items, "pieces"));
	s->items[s->n++] = (struct span){ begin, end, id, at_start };
	return ERR_OK;
}

void spans_free(struct spans *s)
{
	mem_free(s->items);
	*s = (struct spans){ 0 };
}

/* What cut() knows while it walks over the alternating gaps and matches of one piece. */
struct cutter {
	struct spans *out;
	enum split_behavior behavior;
	bool invert, previous;         /* previous: the part before was a match */
	size_t base;                   /* where the piece begins in the text */
	bool at_start;
	bool open;                     /* [begin, end) is a piece that may still grow */
	size_t begin, end;
};

static enum err flush(struct cutter *c)
{
	if (c->open && c->begin < c->end)
		TRY(spans_put(c->out, c->base + c->begin, c->base + c->end, -1, c->at_start && !c->begin));
	c->open = false;
	return ERR_OK;
}

/* Takes the next part. `joins`: it continues the piece before it. */
static enum err put_part(struct cutter *c, size_t begin, size_t end, bool match)
{
	bool joins = false;
	match = match != c->invert;
	switch (c->behavior) {
	case SPLIT_CONTIGUOUS: joins = match == c->previous; break;
	case SPLIT_WITH_PREVIOUS: joins = match && !c->previous; break;
	case SPLIT_WITH_NEXT: joins = !match && c->previous; break;
	default: break;
	}
	c->previous = match;
	if (joins && c->open) {
		c->end = end;
		return ERR_OK;
	}
	TRY(flush(c));
	if (c->behavior == SPLIT_REMOVED && match)
		return ERR_OK;
	c->open = true;
	c->begin = begin;
	c->end = end;
	return ERR_OK;
}

static enum err cut(struct encoder *e, const struct split_step *step, const struct span *piece, const char *text)
{
	struct cutter c = { .out = &e->next_pieces, .behavior = step->behavior, .invert = step->invert, .base = piece->begin,
			    .at_start = piece->at_start };
	struct search s = { 0 };
	size_t bytes = piece->end - piece->begin, done = 0;
	bool got;
	for (;;) {
		TRY(regex_next(step->regex, e->matcher, text, bytes, &s, &got));
		if (!got)
			break;
		if (done != s.begin)
			TRY(put_part(&c, done, s.begin, false));
		TRY(put_part(&c, s.begin, s.end, true));
		done = s.end;
	}
	if (done != bytes)
		TRY(put_part(&c, done, bytes, false));
	return flush(&c);
}

static void put_bytes_as_chars(const char *text, size_t bytes, struct bytes *out)
{
	for (size_t i = 0; i < bytes; i++) {
		char room[4];
		bytes_put(out, room, utf8_encode(byte_to_char((unsigned char)text[i]), room));
	}
}

/* "add_prefix_space", then the expression, then bytes as printable characters. */
static enum err byte_level(struct encoder *e, const struct split_step *step, const struct span *piece)
{
	const char *text = bytes_text(&e->text) + piece->begin;
	size_t bytes = piece->end - piece->begin;
	struct span whole = { 0, bytes, -1, piece->at_start };
	if (step->prefix_space && text[0] != ' ') {
		bytes_clear(&e->spare);
		bytes_put(&e->spare, " ", 1);
		bytes_put(&e->spare, text, bytes);
		TRY(e->spare.error);
		text = bytes_text(&e->spare);
		whole.end = ++bytes;
	}
	int64_t first = e->next_pieces.n;
	if (step->regex)
		TRY(cut(e, step, &whole, text));
	else
		TRY(spans_put(&e->next_pieces, 0, bytes, -1, piece->at_start));
	for (int64_t i = first; i < e->next_pieces.n; i++) {
		struct span *p = &e->next_pieces.items[i];
		size_t begin = e->other.size;
		put_bytes_as_chars(text + p->begin, p->end - p->begin, &e->other);
		p->begin = begin;
		p->end = e->other.size;
	}
	return e->other.error;
}

/* Spaces become the mark, one may be put in front, and the piece is cut before each mark. */
static enum err meta_space(struct encoder *e, const struct split_step *step, const struct span *piece)
{
	const char *text = bytes_text(&e->text) + piece->begin;
	size_t bytes = piece->end - piece->begin, begin = e->other.size;
	size_t mark_bytes = step->mark.size;
	bool starts_so = text[0] == ' ' || (bytes >= mark_bytes && !memcmp(text, step->mark.data, mark_bytes));
	if (!starts_so && (step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && piece->at_start)))
		bytes_put(&e->other, step->mark.data, mark_bytes);
	for (size_t i = 0; i < bytes; i++) {
		if (text[i] == ' ')
			bytes_put(&e->other, step->mark.data, mark_bytes);
		else
			bytes_put(&e->other, text + i, 1);
	}
	TRY(e->other.error);
	struct span whole = { begin, e->other.size, -1, piece->at_start };
	if (step->regex)
		return cut(e, step, &whole, bytes_text(&e->other) + begin);
	return spans_put(&e->next_pieces, whole.begin, whole.end, -1, whole.at_start);
}

enum err split_apply(struct encoder *e, const char *text, size_t bytes, bool at_start)
{
	bytes_clear(&e->text);
	bytes_put(&e->text, text, bytes);
	e->pieces.n = 0;
	TRY(spans_put(&e->pieces, 0, bytes, -1, at_start));
	for (int64_t i = 0; i < e->t->split.n && !e->text.error; i++) {
		const struct split_step *step = &e->t->split.items[i];
		e->next_pieces.n = 0;
		bytes_clear(&e->other);
		for (int64_t p = 0; p < e->pieces.n; p++) {
			const struct span *piece = &e->pieces.items[p];
			if (step->kind == SPLIT_BYTE_LEVEL)
				TRY(byte_level(e, step, piece));
			else if (step->kind == SPLIT_META_SPACE)
				TRY(meta_space(e, step, piece));
			else
				TRY(cut(e, step, piece, bytes_text(&e->text) + piece->begin));
		}
		struct spans swap = e->pieces;
		e->pieces = e->next_pieces;
		e->next_pieces = swap;
		if (step->kind != SPLIT_REGEX) {
			struct bytes text_swap = e->text;
			e->text = e->other;
			e->other = text_swap;
		}
	}
	return e->text.error;
}
