/* Normalisers: rewriting of a section before it is split. Unicode forms come from utf8proc. */
#include "runtime/tokenizer_parts.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* A hostile file could make a text grow without end (each "a" to "aa", sixty times over). */
enum { MAX_STEPS = 100, MAX_GROWTH = 256, MAX_EXTRA_BYTES = 1 << 20 };

enum err normal_put(struct normal_steps *s, enum normal_kind kind, const char *text, size_t bytes, struct normal_step **out)
{
	if (s->n >= MAX_STEPS)
		return ERR(MODEL, "a tokenizer with more than %d normalisers is not supported", MAX_STEPS);
	TRY(grow_for_one(&s->items, s->n, &s->capacity, sizeof *s->items, "normalisers"));
	struct normal_step *step = &s->items[s->n++];
	*step = (struct normal_step){ .kind = kind };
	bytes_put(&step->text, text, bytes);
	*out = step;
	return step->text.error;
}

void normal_free(struct normal_steps *s)
{
	for (int64_t i = 0; i < s->n; i++) {
		regex_destroy(s->items[i].regex);
		bytes_free(&s->items[i].text);
	}
	mem_free(s->items);
	*s = (struct normal_steps){ 0 };
}

static void mask_copy(struct origin *o, size_t from, size_t n)
{
	if (o)
		bytes_put(&o->spare, o->mask.data + from, n);
}

/* n bytes that were made of what stood at begin..end. */
static void mask_made(struct origin *o, size_t begin, size_t end, size_t n)
{
	const unsigned char mark = o && end > begin && memchr(o->mask.data + begin, 1, end - begin);
	for (; o && n; n--)
		bytes_put(&o->spare, &mark, 1);
}

static enum err unicode_form(enum normal_kind kind, const char *text, size_t bytes, struct bytes *out)
{
	utf8proc_uint8_t *form;
	int options = UTF8PROC_STABLE;
	options |= kind == NORMAL_NFC || kind == NORMAL_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
	options |= kind == NORMAL_NFKC || kind == NORMAL_NFKD ? UTF8PROC_COMPAT : 0;
	size_t ascii = 0;
	while (ascii < bytes && (unsigned char)text[ascii] < 0x80)
		ascii++;
	if (ascii == bytes) {   /* every form leaves ASCII as it is */
		bytes_put(out, text, bytes);
		return out->error;
	}
	utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &form,
					  (utf8proc_option_t)options);
	if (n == UTF8PROC_ERROR_NOMEM)
		return ERR(MEMORY, "no memory to normalise %zu bytes", bytes);
	if (n < 0)
		return ERR(WORK, "a text of %zu bytes cannot be normalised: %s", bytes, utf8proc_errmsg(n));
	bytes_put(out, form, (size_t)n);
	free(form);
	return out->error;
}

/* Forms change nothing across the front of an ASCII character, so a text can be cut there, and each part keeps its mask. */
static enum err unicode_form_marked(enum normal_kind kind, const char *text, size_t bytes, struct bytes *out, struct origin *o)
{
	for (size_t at = 0, end; at < bytes; at = end) {
		size_t before = out->size;
		for (end = at + 1; end < bytes && (unsigned char)text[end] >= 0x80;)
			end++;
		TRY(unicode_form(kind, text + at, end - at, out));
		if (out->size - before == end - at && !memcmp(out->data + before, text + at, end - at))
			mask_copy(o, at, end - at);
		else
			mask_made(o, at, end, out->size - before);
	}
	return out->error;
}

static void lowercase(const char *text, size_t bytes, struct bytes *out, struct origin *o)
{
	for (size_t at = 0, n; at < bytes; at += n) {
		char room[4];
		size_t before = out->size;
		n = utf8_length((unsigned char)text[at]);
		uint32_t c = utf8_decode(text + at);
		if (c == 0x130)   /* the one character whose lower case is two: i and a dot above */
			bytes_put(out, "i\xcc\x87", 3);
		else
			bytes_put(out, room, utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), room));
		mask_made(o, at, at + n, out->size - before);
	}
}

static enum err replace(const struct normal_step *step, struct matcher *m, const char *text, size_t bytes, size_t limit,
			struct bytes *out, struct origin *o)
{
	struct search s = { 0 };
	size_t done = 0;
	bool got;
	for (;;) {
		TRY(regex_next(step->regex, m, text, bytes, &s, &got));
		if (!got)
			break;
		bytes_put(out, text + done, s.begin - done);
		bytes_put(out, step->text.data, step->text.size);
		mask_copy(o, done, s.begin - done);
		mask_made(o, s.begin, s.end, step->text.size);
		if (out->size > limit)
			return ERR(MODEL, "a normaliser makes more than %zu bytes of a text", limit);
		done = s.end;
	}
	bytes_put(out, text + done, bytes - done);
	mask_copy(o, done, bytes - done);
	return out->error;
}

static void strip(const struct normal_step *step, const char *text, size_t bytes, struct bytes *out, struct origin *o)
{
	size_t begin = 0, end = bytes;
	while (step->left && begin < end && char_is_space(utf8_decode(text + begin)))
		begin += utf8_length((unsigned char)text[begin]);
	while (step->right && end > begin) {
		const char *c = utf8_before(text, text + end);
		if (!char_is_space(utf8_decode(c)))
			break;
		end = (size_t)(c - text);
	}
	bytes_put(out, text + begin, end - begin);
	mask_copy(o, begin, end - begin);
}

static enum err apply(const struct normal_step *step, struct matcher *m, const char *text, size_t bytes, size_t limit,
		      struct bytes *out, struct origin *o)
{
	switch (step->kind) {
	case NORMAL_LOWERCASE: lowercase(text, bytes, out, o); break;
	case NORMAL_REPLACE: return replace(step, m, text, bytes, limit, out, o);
	case NORMAL_STRIP: strip(step, text, bytes, out, o); break;
	case NORMAL_PREPEND:
		if (bytes) {
			bytes_put(out, step->text.data, step->text.size);
			mask_made(o, 0, 0, step->text.size);
		}
		bytes_put(out, text, bytes);
		mask_copy(o, 0, bytes);
		break;
	default: return o ? unicode_form_marked(step->kind, text, bytes, out, o) : unicode_form(step->kind, text, bytes, out);
	}
	return out->error;
}

enum err normal_apply(const struct normal_steps *s, struct matcher *m, const char *text, size_t bytes, struct bytes *out,
		      struct bytes *spare, struct origin *o)
{
	size_t limit = bytes > SIZE_MAX / (2 * MAX_GROWTH) ? SIZE_MAX : bytes * MAX_GROWTH + MAX_EXTRA_BYTES;
	bytes_clear(out);
	bytes_put(out, text, bytes);
	for (int64_t i = 0; i < s->n && !out->error; i++) {
		bytes_clear(spare);
		if (o)
			bytes_clear(&o->spare);
		TRY(apply(&s->items[i], m, bytes_text(out), out->size, limit, spare, o));
		if (spare->size > limit)
			return ERR(MODEL, "the normalisers make more than %zu bytes of a text of %zu bytes", limit, bytes);
		struct bytes swap = *out;
		*out = *spare;
		*spare = swap;
		if (o) {
			TRY(o->spare.error);
			swap = o->mask;
			o->mask = o->spare;
			o->spare = swap;
		}
	}
	return out->error;
}
