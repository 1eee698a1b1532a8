#include "launcher/wishes.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* generation.logit_bias: "TOKEN:BIAS TOKEN:BIAS". */
static enum err read_biases(struct wishes *w, const char *text)
{
	const char *at = text + strspn(text, " ");
	int *n = &w->request.n_biases;
	for (*n = 0; *at; at += strspn(at, " ")) {
		char *end = NULL;
		size_t digits = strspn(at, "0123456789");
		long long token = strtoll(at, NULL, 10);
		double bias = at[digits] == ':' ? strtod(at + digits + 1, &end) : 0;
		if (!digits || digits > 9 || !end || end == at + digits + 1 || (*end && *end != ' ') || !(bias >= -100 && bias <= 100))
			return ERR(RECIPE, "generation.logit_bias: found \"%.40s\", allowed: TOKEN:BIAS with blanks between, each bias "
					   "-100 to 100", at);
		TRY(mem_grow(&w->biases, (size_t)*n + 1, sizeof *w->biases, "logit biases"));
		w->biases[(*n)++] = (struct token_bias){ (int32_t)token, (float)bias };
		at = end;
	}
	return ERR_OK;
}

enum err wishes_read(const struct recipe *r, struct wishes *w)
{
	const struct recipe_list *stops = &r->generation.stop_token_ids;
	*w = (struct wishes){ .request = {
		.max_tokens = r->generation.max_tokens, .min_tokens = r->generation.min_tokens, .n = (int)r->generation.n,
		.sample = { .temperature = (float)r->generation.temperature, .top_k = (int32_t)r->generation.top_k,
			    .top_p = (float)r->generation.top_p, .min_p = (float)r->generation.min_p,
			    .seed = (uint64_t)r->generation.seed,
			    .logprobs = r->generation.logprobs ? 1 + (int32_t)r->generation.logprobs : 0 },
		.repetition_penalty = (float)r->generation.repetition_penalty,
		.frequency_penalty = (float)r->generation.frequency_penalty,
		.presence_penalty = (float)r->generation.presence_penalty, .n_stop_tokens = stops->n,
		.ignore_eos = r->generation.ignore_eos } };
	TRY(read_biases(w, r->generation.logit_bias));
	TRY(MEM_NEW((size_t)stops->n, int32_t, &w->stop_tokens));
	for (int i = 0; i < stops->n; i++)
		w->stop_tokens[i] = (int32_t)stops->items[i];
	w->request.biases = w->biases;
	w->request.stop_tokens = w->stop_tokens;
	return ERR_OK;
}

void wishes_free(struct wishes *w)
{
	mem_free(w->biases);
	mem_free(w->stop_tokens);
}
