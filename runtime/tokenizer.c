/* Opening and closing, and the order of the steps of encoding (tokenizer_parts.h). */
#include "runtime/tokenizer_parts.h"

#include "base/mem.h"

#include <string.h>

enum err grow_for_one(void *items, int64_t n, int64_t *capacity, size_t size, const char *what)
{
	if (n < *capacity)
		return ERR_OK;
	int64_t larger = *capacity ? *capacity * 2 : 16;
	TRY(mem_grow(items, (size_t)larger, size, what));
	*capacity = larger;
	return ERR_OK;
}

enum err tokens_push(struct tokens *t, int32_t id)
{
	TRY(grow_for_one(&t->ids, t->n, &t->capacity, sizeof *t->ids, "token ids"));
	t->ids[t->n++] = id;
	return ERR_OK;
}

void tokens_free(struct tokens *t)
{
	mem_free(t->ids);
	*t = (struct tokens){ 0 };
}

enum err tokenizer_create(const char *name, struct tokenizer **out)
{
	struct tokenizer *t;
	TRY(MEM_NEW(1, struct tokenizer, &t));
	t->unk = -1;
	enum err e = mem_copy_string(name, &t->name);
	if (e) {
		mem_free(t);
		return e;
	}
	*out = t;
	return ERR_OK;
}

void tokenizer_close(struct tokenizer *t)
{
	if (!t)
		return;
	vocab_free(&t->vocab);
	mem_free(t->merges.slots);
	mem_free(t->scores);
	normal_free(&t->normal);
	split_free(&t->split);
	added_free(&t->raw);
	added_free(&t->normalized);
	tokens_free(&t->before);
	tokens_free(&t->after);
	mem_free(t->name);
	mem_free(t);
}

int64_t tokenizer_n_tokens(const struct tokenizer *t) { return t->vocab.n_tokens; }

int32_t tokenizer_find(const struct tokenizer *t, const char *content)
{
	return vocab_find(&t->vocab, content, strlen(content));
}

static enum err encode_words(struct encoder *e, const char *text, size_t bytes, bool at_start, struct tokens *out)
{
	TRY(split_apply(e, text, bytes, at_start));
	for (int64_t i = 0; i < e->pieces.n; i++) {
		const struct span *p = &e->pieces.items[i];
		TRY(bpe_encode(e, bytes_text(&e->text) + p->begin, p->end - p->begin, out));
	}
	return ERR_OK;
}

static bool is_white(const char *text, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += utf8_length((unsigned char)text[at]))
		if (!char_is_space(utf8_decode(text + at)))
			return false;
	return true;
}

bool token_is_refused(struct encoder *e, int32_t id)
{
	const struct token *k = &e->t->vocab.tokens[id];
	if (!e->foreign || !(k->flags & (TOKEN_ADDED | TOKEN_CONTROL)))
		return false;
	if (!e->refused[id]) {
		const char *text = vocab_text(&e->t->vocab, id);
		bool yes = k->flags & TOKEN_CONTROL;
		if (!yes && e->foreign->own_bytes)
			yes = memmem(e->foreign->own, e->foreign->own_bytes, text, k->bytes) && utf8_valid(text, k->bytes) &&
			      !is_white(text, k->bytes);
		e->refused[id] = yes ? 2 : 1;
	}
	return e->refused[id] == 2;
}

/* at: where in the whole text the section begins. */
static enum err encode_section(struct encoder *e, size_t at, size_t bytes, bool at_start, int flags, struct tokens *out)
{
	struct origin *o = e->foreign ? &e->origin : NULL;
	struct guard guard = { .e = e };
	if (o) {
		bytes_clear(&o->mask);
		bytes_put(&o->mask, e->mask.data + at, bytes);
		TRY(o->mask.error);
	}
	TRY(normal_apply(&e->t->normal, e->matcher, bytes_text(&e->repaired) + at, bytes, &e->normal, &e->spare, o));
	guard.mask = e->origin.mask.data;
	e->cut.n = 0;
	TRY(added_cut(&e->t->normalized, bytes_text(&e->normal), e->normal.size, o ? &guard : NULL,
		      flags & TOKENIZE_PARSE_SPECIAL, at_start, &e->cut));
	for (int64_t i = 0; i < e->cut.n; i++) {
		const struct span *s = &e->cut.items[i];
		if (s->id >= 0)
			TRY(tokens_push(out, s->id));
		else
			TRY(encode_words(e, bytes_text(&e->normal) + s->begin, s->end - s->begin, s->at_start, out));
	}
	return ERR_OK;
}

static enum err encode(struct encoder *e, const char *text, size_t bytes, int flags, struct tokens *out)
{
	struct guard guard = { e, e->mask.data };
	utf8_repair(text, bytes, &e->repaired);
	TRY(e->repaired.error);
	for (int64_t i = 0; (flags & TOKENIZE_ADD_SPECIAL) && i < e->t->before.n; i++)
		TRY(tokens_push(out, e->t->before.ids[i]));
	TRY(added_cut(&e->t->raw, bytes_text(&e->repaired), e->repaired.size, e->foreign ? &guard : NULL,
		      flags & TOKENIZE_PARSE_SPECIAL, true, &e->raw));
	for (int64_t i = 0; i < e->raw.n; i++) {
		const struct span *s = &e->raw.items[i];
		if (s->id >= 0)
			TRY(tokens_push(out, s->id));
		else
			TRY(encode_section(e, s->begin, s->end - s->begin, s->at_start, flags, out));
	}
	for (int64_t i = 0; (flags & TOKENIZE_ADD_SPECIAL) && i < e->t->after.n; i++)
		TRY(tokens_push(out, e->t->after.ids[i]));
	return ERR_OK;
}

static void encoder_free(struct encoder *e)
{
	matcher_destroy(e->matcher);
	bytes_free(&e->repaired);
	bytes_free(&e->normal);
	bytes_free(&e->spare);
	bytes_free(&e->text);
	bytes_free(&e->other);
	spans_free(&e->raw);
	spans_free(&e->cut);
	spans_free(&e->pieces);
	spans_free(&e->next_pieces);
	mem_free(e->symbols);
	mem_free(e->heap);
	bytes_free(&e->mask);
	bytes_free(&e->origin.mask);
	bytes_free(&e->origin.spare);
	mem_free(e->refused);
}

static enum err encode_or_nothing(struct encoder *e, const char *text, size_t bytes, int flags, struct tokens *out)
{
	int64_t n = out->n;
	enum err fault = matcher_create(&e->matcher);
	if (!fault)
		fault = encode(e, text, bytes, flags, out);
	if (fault)
		out->n = n;
	return fault;
}

enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, int flags, struct tokens *out)
{
	struct encoder e = { .t = t };
	enum err fault = encode_or_nothing(&e, text, bytes, flags, out);
	encoder_free(&e);
	return fault;
}

static enum err mark_foreign(struct encoder *e, const char *text, size_t bytes, const struct foreign *f)
{
	size_t done = 0;
	if (!utf8_valid(text, bytes))   /* repairing it would move the runs */
		return ERR(WORK, "a prompt of %zu bytes is not UTF-8", bytes);
	for (int64_t i = 0; i < f->n; i++) {
		if (f->runs[i].begin < done || f->runs[i].end < f->runs[i].begin || f->runs[i].end > bytes)
			return ERR(BUG, "foreign run %lld is out of order", (long long)i);
		done = f->runs[i].end;
	}
	uint8_t *mask;
	TRY(mem_alloc(bytes ? bytes : 1, 1, "what is foreign", &mask));
	for (int64_t i = 0; i < f->n; i++)
		memset(mask + f->runs[i].begin, 1, f->runs[i].end - f->runs[i].begin);
	bytes_put(&e->mask, mask, bytes ? bytes : 1);
	mem_free(mask);
	TRY(e->mask.error);
	TRY(mem_alloc((size_t)e->t->vocab.n_tokens + 1, 1, "tokens that are refused", &e->refused));
	e->foreign = f;
	return ERR_OK;
}

enum err tokenizer_encode_foreign(const struct tokenizer *t, const char *text, size_t bytes, int flags,
				  const struct foreign *foreign, struct tokens *out)
{
	struct encoder e = { .t = t };
	enum err fault = mark_foreign(&e, text, bytes, foreign);
	if (!fault)
		fault = encode_or_nothing(&e, text, bytes, flags, out);
	encoder_free(&e);
	return fault;
}
