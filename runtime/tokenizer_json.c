/* tokenizer.json, the file format of the Hugging Face `tokenizers` library (no specification; its source defines it), and
 * what tokenizer_config.json adds. */
#include "runtime/tokenizer_parts.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "runtime/printable.h"

#include <inttypes.h>
#include <string.h>

enum { JSON_MAX_BYTES = 512 << 20 };

static enum err refuse_unless_empty(const struct tokenizer *t, json_t *model, const char *key)
{
	const char *text;
	TRY(json_get_string_or_null(model, t->name, key, &text));
	char room[PRINTABLE_BYTES];
	if (text && *text)
		return ERR(MODEL, "%s: \"%s\" is \"%s\", but only files without it are supported", t->name, key,
			   printable(room, text, strlen(text)));
	return ERR_OK;
}

static enum err read_vocab(struct tokenizer *t, json_t *vocab, uint64_t n_added)
{
	const char *text;
	char room[PRINTABLE_BYTES];
	json_t *id;
	if (!json_is_object(vocab))
		return ERR(MODEL, "%s: \"vocab\" must be an object of token: id", t->name);
	TRY(vocab_create(json_object_size(vocab) + n_added, &t->vocab));
	json_object_foreach(vocab, text, id) {
		if (!json_is_integer(id))
			return ERR(MODEL, "%s: the id of token \"%s\" is not an integer", t->name,
				   printable(room, text, strlen(text)));
		TRY(vocab_add(&t->vocab, t->name, json_integer_value(id), text, strlen(text)));
	}
	return ERR_OK;
}

/* "left right" or ["left", "right"] */
static enum err merge_parts(const struct tokenizer *t, json_t *item, size_t i, const char *part[2], size_t bytes[2])
{
	if (json_is_array(item) && json_array_size(item) == 2) {
		for (int k = 0; k < 2; k++) {
			part[k] = json_string_value(json_array_get(item, (size_t)k));
			bytes[k] = json_string_length(json_array_get(item, (size_t)k));
		}
		if (part[0] && part[1])
			return ERR_OK;
	} else if (json_is_string(item)) {
		size_t all = json_string_length(item);
		part[0] = json_string_value(item);
		const char *space = memchr(part[0], ' ', all);
		if (space && !memchr(space + 1, ' ', all - (size_t)(space + 1 - part[0]))) {
			part[1] = space + 1;
			bytes[0] = (size_t)(space - part[0]);
			bytes[1] = all - bytes[0] - 1;
			return ERR_OK;
		}
	}
	return ERR(MODEL, "%s: merge %zu must be \"left right\" or [\"left\", \"right\"]", t->name, i);
}

static enum err read_merges(struct tokenizer *t, json_t *list)
{
	struct bytes joined = { 0 };
	char room[2][PRINTABLE_BYTES];
	enum err e = ERR_OK;
	if (!json_is_array(list))
		return ERR(MODEL, "%s: \"merges\" must be a list", t->name);
	TRY(merges_create(json_array_size(list), &t->merges));
	for (size_t i = 0; i < json_array_size(list) && !e; i++) {
		const char *part[2];
		size_t bytes[2];
		e = merge_parts(t, json_array_get(list, i), i, part, bytes);
		if (e)
			break;
		bytes_clear(&joined);
		bytes_put(&joined, part[0], bytes[0]);
		bytes_put(&joined, part[1], bytes[1]);
		int32_t left = vocab_find(&t->vocab, part[0], bytes[0]), right = vocab_find(&t->vocab, part[1], bytes[1]);
		int32_t id = vocab_find(&t->vocab, bytes_text(&joined), joined.size);
		if (joined.error)
			e = joined.error;
		else if (left < 0 || right < 0 || id < 0)
			e = ERR(MODEL, "%s: merge %zu (\"%s\" + \"%s\") %s is not in the vocabulary", t->name, i,
				printable(room[0], part[0], bytes[0]), printable(room[1], part[1], bytes[1]),
				left < 0 ? "has a left part that" : right < 0 ? "has a right part that"
										: "makes a token that");
		else
			merges_add(&t->merges, left, right, (int32_t)i, id, true);
	}
	bytes_free(&joined);
	return e;
}

static enum err read_model(struct tokenizer *t, json_t *model, uint64_t n_added)
{
	const char *type, *unk;
	char room[PRINTABLE_BYTES];
	int byte_fallback, fuse_unk, ignore_merges;
	TRY(json_get_string_or_null(model, t->name, "type", &type));
	if (type ? strcmp(type, "BPE") != 0 : !json_object_get(model, "merges"))
		return ERR(MODEL, "%s: the tokenizer model is %s, but only BPE is supported", t->name,
			   type ? printable(room, type, strlen(type)) : "unnamed");
	TRY(refuse_unless_empty(t, model, "continuing_subword_prefix"));
	TRY(refuse_unless_empty(t, model, "end_of_word_suffix"));
	TRY(json_get_bool_or(model, t->name, "byte_fallback", 0, &byte_fallback));
	TRY(json_get_bool_or(model, t->name, "fuse_unk", 0, &fuse_unk));
	TRY(json_get_bool_or(model, t->name, "ignore_merges", 0, &ignore_merges));
	TRY(json_get_string_or_null(model, t->name, "unk_token", &unk));
	json_t *dropout = json_object_get(model, "dropout");
	if (json_is_number(dropout) && json_number_value(dropout) > 0)
		return ERR(MODEL, "%s: \"dropout\" is %g, but the ids of a text must not be random", t->name,
			   json_number_value(dropout));
	TRY(read_vocab(t, json_object_get(model, "vocab"), n_added));
	TRY(read_merges(t, json_object_get(model, "merges")));
	t->byte_fallback = byte_fallback;
	t->fuse_unk = fuse_unk;
	t->ignore_merges = ignore_merges;
	if (byte_fallback)
		vocab_find_bytes(&t->vocab);
	t->unk = unk ? vocab_find(&t->vocab, unk, strlen(unk)) : -1;
	if (unk && *unk && t->unk < 0)
		return ERR(MODEL, "%s: unk_token \"%s\" is not in the vocabulary", t->name,
			   printable(room, unk, strlen(unk)));
	return ERR_OK;
}

/* The place of an added token is where the vocabulary has its text, else the id given. */
static enum err read_added(struct tokenizer *t, json_t *j)
{
	json_t *content = json_object_get(j, "content");
	struct added a = { 0 };
	int64_t id;
	int control, lstrip, rstrip, single_word, normalized;
	if (!json_is_string(content))
		return ERR(MODEL, "%s: an added token has no \"content\"", t->name);
	const char *text = json_string_value(content);
	size_t bytes = json_string_length(content);
	TRY(json_get_int(j, t->name, "id", 0, INT32_MAX, &id));
	TRY(json_get_bool_or(j, t->name, "special", 0, &control));
	TRY(json_get_bool_or(j, t->name, "lstrip", 0, &lstrip));
	TRY(json_get_bool_or(j, t->name, "rstrip", 0, &rstrip));
	TRY(json_get_bool_or(j, t->name, "single_word", 0, &single_word));
	TRY(json_get_bool_or(j, t->name, "normalized", !control, &normalized));
	a.id = vocab_find(&t->vocab, text, bytes);
	if (a.id < 0) {
		TRY(vocab_add(&t->vocab, t->name, id, text, bytes));
		a.id = (int32_t)id;
	}
	a.control = control;
	a.lstrip = lstrip;
	a.rstrip = rstrip;
	a.single_word = single_word;
	t->vocab.tokens[a.id].flags |= TOKEN_ADDED | (control ? TOKEN_CONTROL : 0);
	if (!normalized || !t->normal.n)
		return added_put(normalized ? &t->normalized : &t->raw, &a, text, bytes);
	struct bytes out = { 0 }, spare = { 0 };
	struct matcher *m;
	TRY(matcher_create(&m));
	enum err e = normal_apply(&t->normal, m, text, bytes, &out, &spare, NULL);
	if (!e)
		e = added_put(&t->normalized, &a, bytes_text(&out), out.size);
	if (!e)
		e = vocab_show(&t->vocab, a.id, bytes_text(&out), out.size);
	matcher_destroy(m);
	bytes_free(&out);
	bytes_free(&spare);
	return e;
}

/* "text" or {"content": "text"}; NULL when absent */
static const char *token_text(json_t *config, const char *key)
{
	json_t *v = json_object_get(config, key);
	return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

static enum err config_token(struct tokenizer *t, json_t *config, const char *flag, const char *key, struct tokens *out)
{
	int wanted;
	char room[PRINTABLE_BYTES];
	TRY(json_get_bool_or(config, "tokenizer_config.json", flag, 0, &wanted));
	const char *text = token_text(config, key);
	if (!wanted || !text)
		return ERR_OK;
	int32_t id = vocab_find(&t->vocab, text, strlen(text));
	if (id < 0)
		return ERR(MODEL, "%s: %s \"%s\" of tokenizer_config.json is not in the vocabulary", t->name, key,
			   printable(room, text, strlen(text)));
	return tokens_push(out, id);
}

/* A template in tokenizer.json says what surrounds a text, and add_bos_token is then without effect, as in transformers.
 * Without a template add_bos_token and add_eos_token count: that is how such models were trained, and what transformers
 * did up to version 4 for the classes that knew these keys. */
static enum err read_config(struct tokenizer *t, json_t *config)
{
	if (!config || t->before.n || t->after.n)
		return ERR_OK;
	TRY(config_token(t, config, "add_bos_token", "bos_token", &t->before));
	return config_token(t, config, "add_eos_token", "eos_token", &t->after);
}

/* Pieces are shown as the decoder says; a file without one, but with a byte-level splitter, means the obvious. */
static void guess_decoder(struct tokenizer *t, json_t *decoder)
{
	for (int64_t i = 0; i < t->split.n && (!decoder || json_is_null(decoder)); i++)
		t->byte_level |= t->split.items[i].kind == SPLIT_BYTE_LEVEL;
}

static enum err read_all(struct tokenizer *t, json_t *root, json_t *config)
{
	json_t *added = json_object_get(root, "added_tokens"), *model = json_object_get(root, "model");
	if (!json_is_object(model))
		return ERR(MODEL, "%s: has no \"model\"", t->name);
	if (added && !json_is_null(added) && !json_is_array(added))
		return ERR(MODEL, "%s: \"added_tokens\" must be a list", t->name);
	TRY(read_model(t, model, json_array_size(added)));
	TRY(json_normalizer(t, json_object_get(root, "normalizer")));
	for (size_t i = 0; i < json_array_size(added); i++)
		TRY(read_added(t, json_array_get(added, i)));
	added_sort(&t->raw);
	added_sort(&t->normalized);
	if (!t->vocab.n_tokens)
		return ERR(MODEL, "%s: the vocabulary is empty", t->name);
	TRY(json_pre_tokenizer(t, json_object_get(root, "pre_tokenizer")));
	TRY(json_post_processor(t, json_object_get(root, "post_processor")));
	TRY(json_decoder(t, json_object_get(root, "decoder")));
	guess_decoder(t, json_object_get(root, "decoder"));
	return read_config(t, config);
}

static enum err open_parsed(const char *name, json_t *root, json_t *config, struct tokenizer **out)
{
	struct tokenizer *t;
	TRY(tokenizer_create(name, &t));
	enum err e = read_all(t, root, config);
	if (e) {
		tokenizer_close(t);
		return e;
	}
	*out = t;
	return ERR_OK;
}

enum err tokenizer_open_json(const char *name, const char *json, size_t bytes, struct tokenizer **out)
{
	json_t *root;
	TRY(json_parse(name, json, bytes, ERR_MODEL, &root));
	enum err e = open_parsed(name, root, NULL, out);
	json_decref(root);
	return e;
}

enum err tokenizer_open_directory(const char *model_dir, struct tokenizer **out)
{
	char path[1024], config_path[1024];
	json_t *root, *config = NULL;
	TRY(file_join(model_dir, "tokenizer.json", path, sizeof path));
	TRY(file_join(model_dir, "tokenizer_config.json", config_path, sizeof config_path));
	if (!file_exists(path))
		return ERR(MODEL, "%s: has no tokenizer.json, the one tokenizer file that is read beside GGUF", model_dir);
	TRY(json_parse_file(path, JSON_MAX_BYTES, ERR_MODEL, &root));
	enum err e = ERR_OK;
	if (file_exists(config_path))
		e = json_parse_file(config_path, JSON_MAX_BYTES, ERR_MODEL, &config);
	if (!e)
		e = open_parsed(path, root, config, out);
	json_decref(root);
	json_decref(config);
	return e;
}
