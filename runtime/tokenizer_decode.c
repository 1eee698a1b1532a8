/* Ids to text. Tokens give bytes; the detokenizer gives characters, so that what is shown never changes afterwards. */
#include "runtime/tokenizer_parts.h"

#include <inttypes.h>
#include <string.h>

static bool id_is_token(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && id < t->vocab.n_tokens && (t->vocab.tokens[id].flags & TOKEN_PRESENT);
}

int tokenizer_is_control(const struct tokenizer *t, int32_t id)
{
	return id_is_token(t, id) && (t->vocab.tokens[id].flags & TOKEN_CONTROL);
}

/* The bytes that GPT-2's stand-ins mean; a token with any other character is shown as it is written, whole. */
static void put_byte_level(const char *text, size_t bytes, struct bytes *out)
{
	size_t begin = out->size;
	for (size_t at = 0; at < bytes; at += utf8_length((unsigned char)text[at])) {
		int byte = char_to_byte(utf8_decode(text + at));
		unsigned char b = (unsigned char)byte;
		if (byte < 0) {
			out->size = begin;
			bytes_put(out, text, bytes);
			return;
		}
		bytes_put(out, &b, 1);
	}
}

static void put_with_spaces(const char *text, size_t bytes, const char *mark, struct bytes *out)
{
	size_t mark_bytes = strlen(mark);
	for (size_t at = 0; at < bytes;) {
		if (mark_bytes && bytes - at >= mark_bytes && !memcmp(text + at, mark, mark_bytes)) {
			bytes_put(out, " ", 1);
			at += mark_bytes;
		} else {
			bytes_put(out, text + at, 1);
			at++;
		}
	}
}

enum err tokenizer_piece(const struct tokenizer *t, int32_t id, struct bytes *out)
{
	if (id < 0 || id >= t->vocab.n_tokens)
		return ERR(WORK, "token id %" PRId32 " is outside of the vocabulary (0 to %" PRId64 ")", id,
			   t->vocab.n_tokens - 1);
	const struct token *k = &t->vocab.tokens[id];
	const char *text = (const char *)t->vocab.pool.data + k->shown_at;
	if (!(k->flags & TOKEN_PRESENT) || (k->flags & TOKEN_CONTROL))
		return ERR_OK;   /* ids without a token exist where a model pads its vocabulary */
	if (k->flags & TOKEN_BYTE)
		bytes_put(out, &k->byte, 1);
	else if (k->flags & TOKEN_LITERAL)
		bytes_put(out, text, k->shown_bytes);
	else if (t->byte_level)
		put_byte_level(text, k->shown_bytes, out);
	else
		put_with_spaces(text, k->shown_bytes, t->space_mark, out);
	return out->error;
}

static void put_broken(struct detokenizer *d, struct bytes *out)
{
	bytes_put(out, "\xef\xbf\xbd", 3);
	d->n_held = 0;
}

static void put_byte(struct detokenizer *d, unsigned char b, struct bytes *out)
{
	enum utf8_step step = utf8_step(d->held, d->n_held, b);
	if (step == UTF8_BROKEN && d->n_held) {   /* what is held ends here, and b begins anew */
		put_broken(d, out);
		step = utf8_step(d->held, 0, b);
	}
	if (step == UTF8_BROKEN) {
		put_broken(d, out);
		return;
	}
	d->held[d->n_held++] = b;
	if (step == UTF8_WHOLE) {
		bytes_put(out, d->held, (size_t)d->n_held);
		d->n_held = 0;
	}
}

enum err detokenizer_put(struct detokenizer *d, const struct tokenizer *t, int32_t id, struct bytes *out)
{
	struct bytes piece = { 0 };
	enum err e = tokenizer_piece(t, id, &piece);
	size_t at = 0;
	if (!e && piece.size) {
		at = !d->started && t->strip_first_space && piece.data[0] == ' ';
		d->started = 1;
	}
	for (; !e && at < piece.size; at++)
		put_byte(d, piece.data[at], out);
	bytes_free(&piece);
	return e ? e : out->error;
}

void detokenizer_end(struct detokenizer *d, struct bytes *out)
{
	if (d->n_held)
		put_broken(d, out);
}
