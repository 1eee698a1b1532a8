#include "launcher/batch_formats.h"

#include "base/mem.h"
#include "runtime/json_schema.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT = 32 };

/* What formats share; as long as one of them is used. */
struct vocabulary { struct token_trie *trie; int64_t n_vocab; int users; };

struct format {
	char *key;                   /* the schema's text; "": any object */
	struct token_masks *masks;
	struct vocabulary *vocabulary;
	int users;
};

struct formats {
	const struct tokenizer *tokenizer;
	struct vocabulary *vocabulary;
	struct format *kept[KEPT];   /* the last used first */
};

enum err formats_create(const struct tokenizer *t, int64_t n_vocab, struct formats **out)
{
	struct formats *f;
	TRY(MEM_NEW(1, struct formats, &f));
	f->tokenizer = t;
	enum err e = MEM_NEW(1, struct vocabulary, &f->vocabulary);
	if (e) {
		mem_free(f);
		return e;
	}
	f->vocabulary->n_vocab = n_vocab;
	f->vocabulary->users = 1;
	*out = f;
	return ERR_OK;
}

static void vocabulary_release(struct vocabulary *v)
{
	if (--v->users)
		return;
	token_trie_free(v->trie);
	mem_free(v);
}

void format_release(struct format *f)
{
	if (!f || --f->users)
		return;
	token_masks_free(f->masks);
	vocabulary_release(f->vocabulary);
	free(f->key);
	mem_free(f);
}

void formats_destroy(struct formats *f)
{
	if (!f)
		return;
	for (int i = 0; i < KEPT; i++)
		format_release(f->kept[i]);
	vocabulary_release(f->vocabulary);
	mem_free(f);
}

/* Puts it in front; what was at the end goes. */
static void keep(struct formats *f, struct format *found)
{
	int at = 0;
	while (at < KEPT - 1 && f->kept[at] && f->kept[at] != found)
		at++;
	if (f->kept[at] != found) {
		format_release(f->kept[at]);
		found->users++;
	}
	memmove(f->kept + 1, f->kept, (size_t)at * sizeof *f->kept);
	f->kept[0] = found;
}

static enum err make(struct formats *f, json_t *schema, struct format *made)
{
	struct vocabulary *v = f->vocabulary;
	struct grammar *g;
	if (!v->trie)
		TRY(token_trie_of(f->tokenizer, v->n_vocab, &v->trie));
	TRY(json_schema_compile(schema, &g));
	return token_masks_create(v->trie, g, &made->masks);
}

enum err formats_find(struct formats *f, json_t *response_format, struct format **out)
{
	json_t *schema = json_object_get(json_object_get(response_format, "json_schema"), "schema");
	char *key = schema ? json_dumps(schema, JSON_COMPACT) : strdup("");
	struct format *made;
	if (!key)
		return ERR(MEMORY, "a response_format");
	for (int i = 0; i < KEPT && f->kept[i]; i++)
		if (!strcmp(f->kept[i]->key, key)) {
			*out = f->kept[i];
			free(key);
			(*out)->users++;
			keep(f, *out);
			return ERR_OK;
		}
	enum err e = MEM_NEW(1, struct format, &made);
	if (e) {
		free(key);
		return e;
	}
	made->key = key;
	made->users = 1;
	made->vocabulary = f->vocabulary;
	made->vocabulary->users++;
	e = make(f, schema, made);
	if (e) {
		format_release(made);
		return err_context(e, "response_format");
	}
	keep(f, made);
	*out = made;
	return ERR_OK;
}

enum err format_begin(struct format *f, const int32_t *stops, int n_stops, struct held *out)
{
	return held_begin(out, f->masks, f->vocabulary->n_vocab, stops, n_stops);
}
