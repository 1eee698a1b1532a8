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
			p->requests[seen[i].prompt].sample.choice = p->requests[seen[i - 1].prompt].sample.choice + (uint32_t)p->n_each;
	mem_free(seen);
	return ERR_OK;
}

static enum err make_requests(struct prompts *p)
{
	TRY(wishes_read(p->recipe, &p->wishes));
	struct request wishes = p->wishes.request;
	wishes.all_logits = p->options->logits != NULL;
	p->n_each = wishes.n > 1 ? wishes.n : 1;
	p->n_answers = p->n * p->n_each;
	TRY(MEM_NEW((size_t)p->n, struct request, &p->requests));
	TRY(MEM_NEW((size_t)p->n_answers, struct bytes, &p->answers));
	TRY(MEM_NEW((size_t)p->n_answers, struct stop_text, &p->stop_texts));
	TRY(MEM_NEW((size_t)p->n_answers, struct detokenizer, &p->detokenizers));
	TRY(MEM_NEW((size_t)p->n_answers, int64_t, &p->shown));
	TRY(MEM_NEW((size_t)p->n_answers, unsigned char, &p->ended));
	for (int64_t i = 0; i < p->n; i++) {
		p->requests[i] = wishes;
		p->requests[i].prompt = p->tokens[i].ids;
		p->requests[i].n_prompt = p->tokens[i].n;
	}
	for (int64_t i = 0; i < p->n_answers; i++)
		stop_text_begin(&p->stop_texts[i], (const char *const *)p->recipe->generation.stop.items, p->recipe->generation.stop.n);
	if (p->options->logits && wishes.n > 1)
		return ERR(USAGE, "--logits takes one answer, generation.n asks for %d", wishes.n);
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
	}
	for (int64_t i = 0; i < p->n_answers; i++) {
		if (p->answers)
			bytes_free(&p->answers[i]);
		if (p->stop_texts)
			stop_text_free(&p->stop_texts[i]);
	}
	bytes_free(&p->piece);
	wishes_free(&p->wishes);
	mem_free(p->stop_texts);
	mem_free(p->texts);
	mem_free(p->tokens);
	mem_free(p->requests);
	mem_free(p->answers);
	mem_free(p->detokenizers);
	mem_free(p->shown);
	mem_free(p->ended);
	mem_free(p);
}

/* Shows the current answer's new text, after its prompt; goes on to the next when it has ended. */
static enum err show(struct prompts *p)
{
	while (!p->quiet && p->current < p->n_answers) {
		int64_t i = p->current, size = (int64_t)p->answers[i].size;
		const char *prompt = p->texts[i / p->n_each];
		if (!p->prompt_shown && prompt)
			TRY(print_out(prompt, strlen(prompt)));
		p->prompt_shown = 1;
		if (size > p->shown[i]) {
			TRY(print_out(p->answers[i].data + p->shown[i], (size_t)(size - p->shown[i])));
			p->shown[i] = size;
		}
		if (!p->ended[i])
			return ERR_OK;
		TRY(print_out("\n", 1));
		p->prompt_shown = 0;
		p->current++;
	}
	return ERR_OK;
}

/* The answer's text is complete. */
static void end_text(struct prompts *p, int64_t i)
{
	bytes_clear(&p->piece);
	detokenizer_end(&p->detokenizers[i], &p->piece);
	stop_text_put(&p->stop_texts[i], bytes_text(&p->piece), p->piece.size, &p->answers[i]);
	stop_text_end(&p->stop_texts[i], &p->answers[i]);
	p->ended[i] = 1;
}

int prompts_token(void *prompts, int64_t index, const struct answer *a, int32_t token)
{
	struct prompts *p = prompts;
	int stop = 0;
	bytes_clear(&p->piece);
	if (a->finish != FINISH_STOP) {
		detokenizer_put(&p->detokenizers[index], p->tokenizer, token, &p->piece);
		stop = stop_text_put(&p->stop_texts[index], bytes_text(&p->piece), p->piece.size, &p->answers[index]);
	}
	if (stop)
		p->ended[index] = 1;
	else if (a->finish != FINISH_NOT_YET)
		end_text(p, index);
	if (!p->unread && show(p))
		p->unread = 1;
	return stop || p->unread;
}

enum err prompts_end(struct prompts *p)
{
	for (int64_t i = 0; i < p->n_answers; i++)
		if (!p->ended[i])
			end_text(p, i);
	return show(p);
}
