#include "runtime/token_trie.h"

#include "base/mem.h"
#include "runtime/tokenizer.h"

#include <stdlib.h>
#include <string.h>

struct sorted { const unsigned char *text; uint32_t bytes; int32_t id; };

static int compare(const void *a, const void *b)
{
	const struct sorted *x = a, *y = b;
	uint32_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
	int c = n ? memcmp(x->text, y->text, n) : 0;
	if (c)
		return c;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t common(const struct sorted *a, const struct sorted *b)
{
	uint32_t n = 0;
	while (n < a->bytes && n < b->bytes && a->text[n] == b->text[n])
		n++;
	return n;
}

/* Closes the nodes from a level on. open: the node of each level. */
static void close_from(struct token_trie *t, const uint32_t *open, uint32_t level, uint32_t last)
{
	for (uint32_t l = level; l <= last; l++)
		t->skip[open[l]] = t->n_nodes;
}

/* Tokens in order make the nodes in order. */
static void fill(struct token_trie *t, const struct sorted *s, size_t n)
{
	uint32_t open[TRIE_MOST_BYTES + 1] = { 0 }, last = 0;
	t->n_nodes = 1;
	t->level[0] = 0;
	t->first_token[0] = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t kept = i ? common(&s[i - 1], &s[i]) : 0;
		close_from(t, open, kept + 1, last);
		for (uint32_t l = kept + 1; l <= s[i].bytes; l++) {
			open[l] = t->n_nodes;
			t->byte[t->n_nodes] = s[i].text[l - 1];
			t->level[t->n_nodes] = (uint16_t)l;
			t->first_token[t->n_nodes++] = (uint32_t)i;
		}
		last = s[i].bytes;
		t->ids[i] = s[i].id;
	}
	close_from(t, open, 0, last);
	t->first_token[t->n_nodes] = (uint32_t)n;
}

static enum err make_nodes(struct token_trie *t, const struct sorted *s, size_t n)
{
	size_t nodes = 1;
	for (size_t i = 0; i < n; i++)
		nodes += s[i].bytes - (i ? common(&s[i - 1], &s[i]) : 0);
	TRY(MEM_NEW(nodes, unsigned char, &t->byte));
	TRY(MEM_NEW(nodes, uint16_t, &t->level));
	TRY(MEM_NEW(nodes, uint32_t, &t->skip));
	TRY(MEM_NEW(nodes + 1, uint32_t, &t->first_token));
	TRY(MEM_NEW(n, int32_t, &t->ids));
	fill(t, s, n);
	return ERR_OK;
}

static enum err sort_and_make(struct token_trie *t)
{
	struct sorted *s;
	size_t n = 0;
	TRY(MEM_NEW((size_t)t->n_tokens, struct sorted, &s));
	for (int64_t i = 0; i < t->n_tokens; i++) {
		uint32_t bytes = t->text_at[i + 1] - t->text_at[i];
		if (bytes > 0 && bytes <= TRIE_MOST_BYTES)
			s[n++] = (struct sorted){ t->text + t->text_at[i], bytes, (int32_t)i };
	}
	qsort(s, n, sizeof *s, compare);
	enum err e = make_nodes(t, s, n);
	mem_free(s);
	return e;
}

enum err token_trie_create(const void *text, const uint32_t *text_at, int64_t n_tokens, struct token_trie **out)
{
	struct token_trie *t;
	size_t bytes = text_at[n_tokens];
	enum err e;
	TRY(MEM_NEW(1, struct token_trie, &t));
	t->n_tokens = n_tokens;
	TRY_OR(free_it, e, MEM_NEW(bytes, unsigned char, &t->text));
	TRY_OR(free_it, e, MEM_NEW((size_t)n_tokens + 1, uint32_t, &t->text_at));
	if (bytes)
		memcpy(t->text, text, bytes);
	memcpy(t->text_at, text_at, ((size_t)n_tokens + 1) * sizeof *text_at);
	TRY_OR(free_it, e, sort_and_make(t));
	*out = t;
	return ERR_OK;
free_it:
	token_trie_free(t);
	return e;
}

/* Some tokenizers take the first blank off a text: then a token that begins with one may begin a document. */
static enum err find_blank(const struct tokenizer *tokenizer, struct token_trie *t)
{
	uint32_t node = 1;
	while (node < t->n_nodes && t->byte[node] != ' ')
		node = t->skip[node];
	for (int64_t i = 0; node < t->n_nodes && i < t->n_tokens; i++) {
		struct detokenizer d = { 0 };
		struct bytes shown = { 0 };
		uint32_t bytes = t->text_at[i + 1] - t->text_at[i];
		if (bytes < 2 || t->text[t->text_at[i]] != ' ' || t->text[t->text_at[i] + 1] >= 0x80)
			continue;
		enum err e = detokenizer_put(&d, tokenizer, (int32_t)i, &shown);
		t->blank = shown.size < bytes ? node : 0;
		bytes_free(&shown);
		return e;
	}
	return ERR_OK;
}

enum err token_trie_of(const struct tokenizer *tokenizer, int64_t n_vocab, struct token_trie **out)
{
	struct bytes text = { 0 };
	uint32_t *at;
	int64_t n_known = tokenizer_n_tokens(tokenizer);
	enum err e = ERR_OK;
	TRY(MEM_NEW((size_t)n_vocab + 1, uint32_t, &at));
	for (int64_t i = 0; i < n_vocab && !e; i++) {
		if (i < n_known)
			e = tokenizer_piece(tokenizer, (int32_t)i, &text);
		at[i + 1] = (uint32_t)text.size;
	}
	struct token_trie *t = NULL;
	if (!e)
		e = token_trie_create(bytes_text(&text), at, n_vocab, &t);
	if (!e)
		e = find_blank(tokenizer, t);
	if (e)
		token_trie_free(t);
	else
		*out = t;
	mem_free(at);
	bytes_free(&text);
	return e;
}

void token_trie_free(struct token_trie *t)
{
	if (!t)
		return;
	mem_free(t->text);
	mem_free(t->text_at);
	mem_free(t->byte);
	mem_free(t->level);
	mem_free(t->skip);
	mem_free(t->first_token);
	mem_free(t->ids);
	mem_free(t);
}
