#include "launcher/prompts.h"

#include "base/file.h"
#include "base/mem.h"
#include "launcher/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT_BYTES = 64 << 20 };

static enum err add(struct prompts *p, const char *text, size_t bytes)
{
	TRY(mem_grow(&p->texts, (size_t)p->n + 1, sizeof *p->texts, "prompts"));
	TRY(mem_grow(&p->tokens, (size_t)p->n + 1, sizeof *p->tokens, "prompts"));
	p->texts[p->n] = NULL;
	p->tokens[p->n] = (struct tokens){ 0 };
	p->n++;
	if (!text)
		return ERR_OK;
	TRY(mem_alloc(bytes + 1, 1, "prompt", &p->texts[p->n - 1]));
	memcpy(p->texts[p->n - 1], text, bytes);
	return tokenizer_encode(p->tokenizer, text, bytes, TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, &p->tokens[p->n - 1]);
}

static enum err read_lines(struct prompts *p, FILE *in, const char *name)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	enum err e = ERR_OK;
	while (!e && (n = getline(&line, &room, in)) >= 0) {
		if (n > 0 && line[n - 1] == '\n')
			n--;
		if (n > 0 && line[n - 1] == '\r')
			n--;
		if (n > MAX_PROMPT_BYTES)
			e = ERR(WORK, "%s: a line is longer than %d bytes", name, MAX_PROMPT_BYTES);
		else if (n > 0)
			e = add(p, line, (size_t)n);
	}
	if (!e && ferror(in))
		e = ERR(IO, "%s: cannot be read", name);
	free(line);
	return e;
}

static enum err read_all(struct prompts *p, const struct options *o)
{
	struct bytes text = { 0 };
	for (int i = 0; i < o->n_prompts; i++)
		TRY(add(p, o->prompts[i], strlen(o->prompts[i])));
	if (o->prompt_file) {
		enum err e = file_read_all(o->prompt_file, MAX_PROMPT_BYTES, &text);
		if (!e)
			e = add(p, bytes_text(&text), text.size);
		bytes_free(&text);
		return e;
	}
	if (o->n_prompt_ids) {
		TRY(add(p, NULL, 0));
		for (int64_t i = 0; i < o->n_prompt_ids; i++)
			TRY(tokens_push(&p->tokens[p->n - 1], o->prompt_ids[i]));
		return ERR_OK;
	}
	if (!o->prompt_stdin)
		return ERR_OK;
	TRY(read_lines(p, stdin, "standard input"));
	return p->n ? ERR_OK : ERR(USAGE, "there is no prompt: give --prompt, --prompt-file, --prompt-ids, or lines on standard input");
}

struct seen { const struct tokens *tokens; int64_t prompt; };

static int compare_tokens(const struct tokens *x, const struct tokens *y)
{
	if (x->n != y->n)
		return x->n < y->n ? -1 : 1;
	return x->n ? memcmp(x->ids, y->ids, (size_t)x->n * sizeof *x->ids) : 0;
}

static int by_tokens(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;
	int order = compare_tokens(x->tokens, y->tokens);
	return order ? order : (x->prompt > y->prompt) - (x->prompt < y->prompt);
}

/* What a prompt becomes must not depend on what stands beside it, but a prompt that is there n times has n answers: the
 * same tokens are counted. */
static enum err number_choices(struct prompts *p)
{
	struct seen *seen;
	TRY(MEM_NEW((size_t)p->n, struct seen, &seen));
	for (int64_t i = 0; i < p->n; i++)
		seen[i] = (struct seen){ &p->tokens[i], i };
	qsort(seen, (size_t)p->n, sizeof *seen, by_tokens);
	for (int64_t i = 1; i < p->n; i++)
		if (!compare_tokens(seen[i].tokens, seen[i - 1].tokens))
			p->requests[seen[i].prompt].sample.choice = p->requests[seen[i - 1].prompt].sample.choice + 1;
	mem_free(seen);
	return ERR_OK;
}

static enum err make_requests(struct prompts *p)
{
	const struct recipe *r = p->recipe;
	TRY(MEM_NEW((size_t)p->n, struct request, &p->requests));
	TRY(MEM_NEW((size_t)p->n, struct bytes, &p->answers));
	TRY(MEM_NEW((size_t)p->n, struct detokenizer, &p->detokenizers));
	TRY(MEM_NEW((size_t)p->n, int64_t, &p->shown));
	TRY(MEM_NEW((size_t)p->n, unsigned char, &p->ended));
	for (int64_t i = 0; i < p->n; i++) {
		p->requests[i] = (struct request){
			.prompt = p->tokens[i].ids, .n_prompt = p->tokens[i].n, .max_tokens = r->generation.max_tokens,
			.sample = { .temperature = (float)r->generation.temperature, .top_k = (int32_t)r->generation.top_k,
				    .top_p = (float)r->generation.top_p, .min_p = (float)r->generation.min_p,
				    .seed = (uint64_t)r->generation.seed },
			.all_logits = p->options->logits != NULL };
	}
	if (p->options->logits && p->n != 1)
		return ERR(USAGE, "--logits takes one prompt, found %lld", (long long)p->n);
	return number_choices(p);
}

enum err prompts_read(const struct options *o, const struct recipe *r, const struct tokenizer *t, struct prompts **out)
{
	struct prompts *p;
	enum err e;
	TRY(MEM_NEW(1, struct prompts, &p));
	p->recipe = r;
	p->tokenizer = t;
	p->options = o;
	p->quiet = o->json;
	TRY_OR(destroy, e, read_all(p, o));
	TRY_OR(destroy, e, make_requests(p));
	*out = p;
	return ERR_OK;
destroy:
	prompts_destroy(p);
	return e;
}

void prompts_destroy(struct prompts *p)
{
	if (!p)
		return;
	for (int64_t i = 0; i < p->n; i++) {
		mem_free(p->texts[i]);
		tokens_free(&p->tokens[i]);
		if (p->answers)
			bytes_free(&p->answers[i]);
	}
	mem_free(p->texts);
	mem_free(p->tokens);
	mem_free(p->requests);
	mem_free(p->answers);
	mem_free(p->detokenizers);
	mem_free(p->shown);
	mem_free(p->ended);
	mem_free(p);
}

/* Where the first stop string begins at or after `from`, or -1. */
static int64_t find_stop(const struct prompts *p, const struct bytes *text, size_t from)
{
	const struct recipe_strings *stop = &p->recipe->generation.stop;
	for (size_t at = from; at < text->size; at++)
		for (int i = 0; i < stop->n; i++) {
			size_t n = strlen(stop->items[i]);
			if (n <= text->size - at && !memcmp(text->data + at, stop->items[i], n))
				return (int64_t)at;
		}
	return -1;
}

/* Bytes at the end that are the beginning of a stop string. Both are whole characters, so none is cut here. */
static size_t held_back(const struct prompts *p, const struct bytes *text)
{
	const struct recipe_strings *stop = &p->recipe->generation.stop;
	size_t most = 0;
	for (int i = 0; i < stop->n; i++) {
		size_t n = strlen(stop->items[i]) - 1;
		if (n > text->size)
			n = text->size;
		while (n > most && memcmp(text->data + text->size - n, stop->items[i], n))
			n--;
		if (n > most)
			most = n;
	}
	return most;
}

static size_t longest_stop(const struct prompts *p)
{
	size_t longest = 0;
	for (int i = 0; i < p->recipe->generation.stop.n; i++)
		if (strlen(p->recipe->generation.stop.items[i]) > longest)
			longest = strlen(p->recipe->generation.stop.items[i]);
	return longest;
}

/* Shows the current prompt's new text; goes on to the next when it has ended. */
static enum err show(struct prompts *p)
{
	while (!p->quiet && p->current < p->n) {
		int64_t i = p->current, size = (int64_t)p->answers[i].size;
		int64_t until = p->ended[i] ? size : size - (int64_t)held_back(p, &p->answers[i]);
		if (p->shown[i] == 0 && p->texts[i]) {
			TRY(print_out(p->texts[i], strlen(p->texts[i])));
			mem_free(p->texts[i]);
			p->texts[i] = NULL;   /* shown once */
		}
		if (until > p->shown[i]) {
			TRY(print_out(p->answers[i].data + p->shown[i], (size_t)(until - p->shown[i])));
			p->shown[i] = until;
		}
		if (!p->ended[i])
			return ERR_OK;
		TRY(print_out("\n", 1));
		p->current++;
	}
	return ERR_OK;
}

int prompts_token(void *prompts, int64_t request, const struct answer *a, int32_t token)
{
	struct prompts *p = prompts;
	struct bytes *text = &p->answers[request];
	size_t longest = longest_stop(p), from = text->size > longest ? text->size - longest : 0;
	if (a->finish != FINISH_STOP)
		detokenizer_put(&p->detokenizers[request], p->tokenizer, token, text);
	int64_t stop = find_stop(p, text, from);
	if (stop >= 0) {
		text->size = (size_t)stop;
		text->data[stop] = '\0';
		p->ended[request] = 1;
	} else if (a->finish != FINISH_NOT_YET) {
		detokenizer_end(&p->detokenizers[request], text);
		p->ended[request] = 1;
	}
	if (!p->unread && show(p))
		p->unread = 1;
	return stop >= 0 || p->unread;
}

enum err prompts_end(struct prompts *p)
{
	for (int64_t i = 0; i < p->n; i++) {
		if (!p->ended[i])
			detokenizer_end(&p->detokenizers[i], &p->answers[i]);
		p->ended[i] = 1;
	}
	return show(p);
}
