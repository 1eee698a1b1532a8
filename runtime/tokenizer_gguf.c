/* Tokenizers in GGUF metadata (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Tokenizer"): the models "gpt2",
 * byte-level BPE whose pre-tokeniser is given by name, and "llama", SentencePiece-style BPE by scores. */
#include "runtime/tokenizer_parts.h"

#include "base/mem.h"
#include "runtime/gguf.h"
#include "runtime/printable.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4 };

/* Control, unknown and user-defined tokens are found in the text as a whole; the latter are always looked for. */
static enum err set_type(struct tokenizer *t, int32_t id, int32_t type, const struct gguf_string *text)
{
	struct added a = { .id = id, .control = type != TYPE_USER_DEFINED };
	if (type != TYPE_UNKNOWN && type != TYPE_CONTROL && type != TYPE_USER_DEFINED)
		return ERR_OK;
	t->vocab.tokens[id].flags |= TOKEN_ADDED | (a.control ? TOKEN_CONTROL : TOKEN_LITERAL);
	return added_put(&t->raw, &a, text->text, text->bytes);
}

static enum err read_tokens(struct tokenizer *t, const struct gguf *g)
{
	const struct gguf_string *texts;
	const int32_t *types = NULL;
	uint64_t n, n_types = 0;
	TRY(gguf_strings(g, KEY("tokens"), &texts, &n));
	if (gguf_has(g, KEY("token_type")))
		TRY(gguf_ints(g, KEY("token_type"), &types, &n_types));
	if (!n)
		return ERR(MODEL, "%s: " KEY("tokens") " is empty", t->name);
	if (types && n_types != n)
		return ERR(MODEL, "%s: " KEY("token_type") " has %" PRIu64 " entries, but there are %" PRIu64 " tokens",
			   t->name, n_types, n);
	TRY(vocab_create(n, &t->vocab));
	for (uint64_t i = 0; i < n; i++) {
		TRY(vocab_add(&t->vocab, t->name, (int64_t)i, texts[i].text, texts[i].bytes));
		if (types)
			TRY(set_type(t, (int32_t)i, types[i], &texts[i]));
	}
	added_sort(&t->raw);
	return ERR_OK;
}

/* A merge whose parts are no tokens can never apply to a text, and is left out. */
static enum err read_merges(struct tokenizer *t, const struct gguf *g)
{
	const struct gguf_string *list;
	struct bytes joined = { 0 };
	char room[PRINTABLE_BYTES];
	uint64_t n;
	TRY(gguf_strings(g, KEY("merges"), &list, &n));
	TRY(merges_create(n, &t->merges));
	for (uint64_t i = 0; i < n && !joined.error; i++) {
		const char *text = list[i].text;
		const char *space = list[i].bytes > 1 ? memchr(text + 1, ' ', list[i].bytes - 1) : NULL;
		if (!space) {
			bytes_free(&joined);
			return ERR(MODEL, "%s: " KEY("merges") " entry %" PRIu64 " is \"%s\", but must be \"left right\"",
				   t->name, i, printable(room, text, list[i].bytes));
		}
		size_t left_bytes = (size_t)(space - text), right_bytes = list[i].bytes - left_bytes - 1;
		bytes_clear(&joined);
		bytes_put(&joined, text, left_bytes);
		bytes_put(&joined, space + 1, right_bytes);
		int32_t left = vocab_find(&t->vocab, text, left_bytes);
		int32_t right = vocab_find(&t->vocab, space + 1, right_bytes);
		int32_t id = vocab_find(&t->vocab, bytes_text(&joined), joined.size);
		if (!joined.error && left >= 0 && right >= 0 && id >= 0)
			merges_add(&t->merges, left, right, (int32_t)i, id, false);
	}
	enum err e = joined.error;
	bytes_free(&joined);
	return e;
}

/* bos or eos: `fallback` is the id when the file names none, -1 for none at all. */
static enum err read_surrounding(struct tokenizer *t, const struct gguf *g, const char *flag, int wanted, const char *key,
				 int64_t fallback, struct tokens *out)
{
	int64_t id;
	TRY(gguf_bool_or(g, flag, wanted, &wanted));
	if (!wanted)
		return ERR_OK;
	if (!gguf_has(g, key)) {
		if (fallback >= 0 && fallback < t->vocab.n_tokens)
			return tokens_push(out, (int32_t)fallback);
		return gguf_has(g, flag) ? ERR(MODEL, "%s: %s is true, but there is no %s", t->name, flag, key) : ERR_OK;
	}
	TRY(gguf_int(g, key, 0, t->vocab.n_tokens - 1, &id));
	return tokens_push(out, (int32_t)id);
}

static enum err put_pattern(struct tokenizer *t, const char *pattern)
{
	struct split_step *step;
	TRY(split_put(&t->split, SPLIT_REGEX, &step));
	step->behavior = SPLIT_ISOLATED;
	return regex_compile(t->name, pattern, strlen(pattern), &step->regex);
}

static enum err unknown_pattern(const struct tokenizer *t, const struct gguf_string *name)
{
	struct bytes known = { 0 };
	char room[PRINTABLE_BYTES];
	named_pattern_list(&known);
	enum err e = known.error;
	if (!e)
		e = ERR(MODEL, "%s: " KEY("pre") " \"%s\" is not known (known: %s)", t->name,
			printable(room, name->text, name->bytes), bytes_text(&known));
	bytes_free(&known);
	return e;
}

static enum err open_gpt2(struct tokenizer *t, const struct gguf *g)
{
	struct gguf_string pre = { "default", 7 };
	struct split_step *step;
	if (gguf_has(g, KEY("pre")))
		TRY(gguf_string(g, KEY("pre"), &pre));
	const struct named_pattern *p = named_pattern_find(pre.text, pre.bytes);
	if (!p)
		return unknown_pattern(t, &pre);
	TRY(read_tokens(t, g));
	TRY(read_merges(t, g));
	for (const char *const *pattern = p->patterns; *pattern; pattern++)
		TRY(put_pattern(t, *pattern));
	TRY(split_put(&t->split, SPLIT_BYTE_LEVEL, &step));
	t->byte_level = true;
	t->ignore_merges = p->ignore_merges;
	TRY(read_surrounding(t, g, KEY("add_bos_token"), p->add_bos, KEY("bos_token_id"), -1, &t->before));
	return read_surrounding(t, g, KEY("add_eos_token"), 0, KEY("eos_token_id"), -1, &t->after);
}

static enum err read_scores(struct tokenizer *t, const struct gguf *g)
{
	const float *scores;
	uint64_t n;
	TRY(gguf_reals(g, KEY("scores"), &scores, &n));
	if (n != (uint64_t)t->vocab.n_tokens)
		return ERR(MODEL, "%s: " KEY("scores") " has %" PRIu64 " entries, but there are %" PRId64 " tokens", t->name,
			   n, t->vocab.n_tokens);
	for (uint64_t i = 0; i < n; i++)
		if (isnan(scores[i]))
			return ERR(MODEL, "%s: the score of token %" PRIu64 " is not a number", t->name, i);
	TRY(MEM_NEW(n, float, &t->scores));
	memcpy(t->scores, scores, n * sizeof *scores);
	return ERR_OK;
}

/* Every section gets a space in front (add_space_prefix), and spaces are written as U+2581. */
static enum err put_spaces(struct tokenizer *t, bool prefix)
{
	struct normal_step *step;
	if (prefix)
		TRY(normal_put(&t->normal, NORMAL_PREPEND, " ", 1, &step));
	TRY(normal_put(&t->normal, NORMAL_REPLACE, META_SPACE, 3, &step));
	TRY(regex_compile_literal(t->name, " ", 1, &step->regex));
	memcpy(t->space_mark, META_SPACE, 4);
	t->strip_first_space = prefix;
	return ERR_OK;
}

static enum err open_llama(struct tokenizer *t, const struct gguf *g)
{
	int prefix;
	int64_t unk;
	TRY(read_tokens(t, g));
	TRY(read_scores(t, g));
	vocab_find_bytes(&t->vocab);
	t->byte_fallback = true;
	TRY(gguf_int_or(g, KEY("unknown_token_id"), 0, t->vocab.n_tokens - 1, 0, &unk));
	t->unk = (int32_t)unk;
	TRY(gguf_bool_or(g, KEY("add_space_prefix"), 1, &prefix));
	TRY(put_spaces(t, prefix));
	TRY(read_surrounding(t, g, KEY("add_bos_token"), 1, KEY("bos_token_id"), 1, &t->before));
	return read_surrounding(t, g, KEY("add_eos_token"), 0, KEY("eos_token_id"), 2, &t->after);
}

static enum err read_model(struct tokenizer *t, const struct gguf *g)
{
	struct gguf_string model;
	char room[PRINTABLE_BYTES];
	TRY(gguf_string(g, KEY("model"), &model));
	if (model.bytes == 4 && !memcmp(model.text, "gpt2", 4))
		return open_gpt2(t, g);
	if (model.bytes == 5 && !memcmp(model.text, "llama", 5))
		return open_llama(t, g);
	return ERR(MODEL, "%s: " KEY("model") " \"%s\" is not supported (known: gpt2, llama)", t->name,
		   printable(room, model.text, model.bytes));
}

enum err tokenizer_open_gguf(const struct gguf *g, struct tokenizer **out)
{
	struct tokenizer *t;
	TRY(tokenizer_create(gguf_path(g), &t));
	enum err e = read_model(t, g);
	if (e) {
		tokenizer_close(t);
		return e;
	}
	*out = t;
	return ERR_OK;
}
