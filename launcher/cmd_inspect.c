/* inspect: what is in a model; with --tokenize, a filter from JSON strings to lists of ids. */
#include "launcher/commands.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/gguf.h"
#include "runtime/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_tensor(const struct tensor_info *t, struct bytes *to)
{
	char shape[96] = "";
	size_t at = 0;
	for (int d = 0; d < t->n_dims; d++)
		at += (size_t)snprintf(shape + at, sizeof shape - at, d ? " x %" PRId64 : "%" PRId64, t->dims[d]);
	bytes_printf(to, "  %-56s %-5s %s\n", t->name, wtypes[t->type].name, shape);
}

static void describe(const struct model *m, const struct weights *w, struct bytes *to)
{
	struct shard_model sm;
	struct layout_limits limits;
	uint64_t bytes = 0;
	int64_t items = 0;
	for (int64_t i = 0; i < weights_count(w); i++) {
		const struct tensor_info *t = weights_at(w, i);
		int64_t n = 1;
		for (int d = 0; d < t->n_dims; d++)
			n *= t->dims[d];
		items += n;
		bytes += t->bytes;
	}
	bytes_printf(to, "%s: %s, %s\n", m->name[0] ? m->name : "model", m->arch->name, weights_format_name(w));
	bytes_printf(to, "layers %" PRId64 ", hidden %" PRId64 ", heads %" PRId64 " (kv %" PRId64 ") of %" PRId64 ", FFN %" PRId64,
		     m->n_layers, m->n_embd, m->n_head, m->n_kv_head, m->n_head_dim, m->n_ffn);
	if (m->n_expert)
		bytes_printf(to, ", experts %" PRId64 ", %" PRId64 " used", m->n_expert, m->n_expert_used);
	bytes_printf(to, "\nvocabulary %" PRId64 "%s, context %" PRId64 ", rope theta %g%s\n", m->n_vocab,
		     m->tied_embeddings ? " (tied)" : "", m->n_context, m->rope_theta, m->rope_interleaved ? " (interleaved)" : "");
	bytes_printf(to, "parameters %.3f million, %.2f MB in %" PRId64 " tensors\n", (double)items / 1e6, (double)bytes / 1e6,
		     weights_count(w));
	model_shard_model(m, &sm);
	shard_limits(&sm, &limits);
	bytes_printf(to, "at most tp %d, pp %d", limits.heads < limits.ffn_blocks || limits.n_experts ? limits.heads
			 : limits.ffn_blocks, limits.n_layers);
	bytes_printf(to, limits.n_experts ? ", ep %d, etp %d\n" : "\n", limits.n_experts, limits.ffn_blocks);
	for (int64_t i = 0; i < weights_count(w); i++)
		print_tensor(weights_at(w, i), to);
}

static enum err print_model(const struct options *o, const struct model *m, const struct weights *w, struct bytes *text)
{
	if (o->json) {
		json_t *object;
		TRY(report_inspect_json(m, w, &object));
		return report_print_json(object);
	}
	describe(m, w, text);
	return text->error ? text->error : print_out(bytes_text(text), text->size);
}

static enum err inspect(const struct options *o)
{
	struct weights *w;
	struct model m;
	struct bytes text = { 0 };
	TRY(weights_open(o->model, &w));
	enum err e = model_describe(w, &m);
	if (!e)
		e = print_model(o, &m, w, &text);
	bytes_free(&text);
	weights_close(w);
	return e;
}

/* One line: a JSON string to a JSON list. */
static enum err tokenize_line(const struct tokenizer *t, int64_t number, const char *line, size_t bytes, struct bytes *out)
{
	json_error_t fault;
	struct tokens ids = { 0 };
	json_t *text = json_loadb(line, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &fault);
	if (!json_is_string(text)) {
		json_decref(text);
		return ERR(WORK, "standard input:%" PRId64 ": expected a JSON string", number);
	}
	enum err e = tokenizer_encode(t, json_string_value(text), json_string_length(text),
				      TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, &ids);
	json_decref(text);
	bytes_clear(out);
	bytes_put(out, "[", 1);
	for (int64_t i = 0; !e && i < ids.n; i++)
		bytes_printf(out, i ? ",%d" : "%d", ids.ids[i]);
	bytes_put(out, "]\n", 2);
	tokens_free(&ids);
	return e ? e : out->error;
}

/* What holds a tokenizer while it is used. */
struct source { struct gguf *gguf; struct weights *files; };

/* Whatever `run` takes as a model, and vocabularies without one: a .gguf file without tensors, a directory with tokenizer.json
 * alone. */
static enum err open_tokenizer(const char *path, struct source *from, struct tokenizer **t)
{
	char beside[1100];
	size_t n = strlen(path);
	if (n > 5 && !strcmp(path + n - 5, ".gguf")) {
		TRY(gguf_open(path, &from->gguf));
		return tokenizer_open_gguf(from->gguf, t);
	}
	TRY(file_join(path, "tokenizer.json", beside, sizeof beside));
	if (file_exists(beside))
		return tokenizer_open_directory(path, t);
	TRY(weights_open(path, &from->files));
	return job_tokenizer(from->files, t);
}

static enum err tokenize(const char *path)
{
	struct source from = { NULL, NULL };
	struct tokenizer *t = NULL;
	struct bytes out = { 0 };
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	enum err e = open_tokenizer(path, &from, &t);
	for (int64_t number = 1; !e && (n = getline(&line, &room, stdin)) >= 0; number++) {
		while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
			n--;
		e = tokenize_line(t, number, line, (size_t)n, &out);
		if (!e)
			e = print_out(bytes_text(&out), out.size);
	}
	free(line);
	bytes_free(&out);
	tokenizer_close(t);
	gguf_close(from.gguf);
	weights_close(from.files);
	return e;
}

enum err command_inspect(const struct options *o)
{
	if (job_env_rank() != 0)
		return ERR_OK;
	return o->tokenize ? tokenize(o->model) : inspect(o);
}
