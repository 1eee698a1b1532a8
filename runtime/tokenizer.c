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

static enum err encode_section(struct encoder *e, const char *text, size_t bytes, bool at_start, int flags,
			       struct tokens *out)
{
	TRY(normal_apply(&e->t->normal, e->matcher, text, bytes, &e->normal, &e->spare));
	e->cut.n = 0;
	TRY(added_cut(&e->t->normalized, bytes_text(&e->normal), e->normal.size, flags & TOKENIZE_PARSE_SPECIAL, at_start,
		      &e->cut));
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
	utf8_repair(text, bytes, &e->repaired);
	TRY(e->repaired.error);
	for (int64_t i = 0; (flags & TOKENIZE_ADD_SPECIAL) && i < e->t->before.n; i++)
		TRY(tokens_push(out, e->t->before.ids[i]));
	TRY(added_cut(&e->t->raw, bytes_text(&e->repaired), e->repaired.size, flags & TOKENIZE_PARSE_SPECIAL, true,
		      &e->raw));
	for (int64_t i = 0; i < e->raw.n; i++) {
		const struct span *s = &e->raw.items[i];
		if (s->id >= 0)
			TRY(tokens_push(out, s->id));
		else
			TRY(encode_section(e, bytes_text(&e->repaired) + s->begin, s->end - s->begin, s->at_start, flags,
					   out));
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
}

enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, int flags, struct tokens *out)
{
	struct encoder e = { .t = t };
	int64_t n = out->n;
	TRY(matcher_create(&e.matcher));
	enum err fault = encode(&e, text, bytes, flags, out);
	encoder_free(&e);
	if (fault)
		out->n = n;   /* all or nothing */
	return fault;
}
