/* The steps that tokenizer.json describes: normaliser, pre-tokeniser, post-processor, decoder. A kind that is not known
 * here is refused by name, since leaving one out would change the ids. */
#include "runtime/tokenizer_parts.h"

#include "base/json.h"
#include "base/mem.h"
#include "runtime/printable.h"

#include <string.h>

static enum err unknown(const struct tokenizer *t, const char *part, const char *kind, const char *known)
{
	char room[PRINTABLE_BYTES];
	return ERR(MODEL, "%s: %s \"%s\" is not supported (known: %s)", t->name, part,
		   printable(room, kind, strlen(kind)), known);
}

static enum err kind_of(const struct tokenizer *t, json_t *j, const char *part, const char **out)
{
	TRY(json_get_string_or_null(j, t->name, "type", out));
	return *out ? ERR_OK : ERR(MODEL, "%s: a %s has no \"type\"", t->name, part);
}

/* The list `key` of a Sequence, each item given to `take`. */
static enum err sequence(struct tokenizer *t, json_t *j, const char *part, const char *key,
			 enum err (*take)(struct tokenizer *, json_t *))
{
	json_t *list = json_object_get(j, key);
	if (!json_is_array(list))
		return ERR(MODEL, "%s: the %s Sequence has no list \"%s\"", t->name, part, key);
	for (size_t i = 0; i < json_array_size(list); i++)
		TRY(take(t, json_array_get(list, i)));
	return ERR_OK;
}

static enum err need_string(const struct tokenizer *t, json_t *j, const char *key, json_t **out)
{
	*out = json_object_get(j, key);
	return json_is_string(*out) ? ERR_OK : ERR(MODEL, "%s: \"%s\" must be a string", t->name, key);
}

/* {"String": ..} or {"Regex": ..} */
static enum err pattern_of(const struct tokenizer *t, json_t *j, struct regex **out)
{
	json_t *pattern = json_object_get(j, "pattern");
	json_t *literal = json_object_get(pattern, "String"), *regex = json_object_get(pattern, "Regex");
	if (json_is_string(regex))
		return regex_compile(t->name, json_string_value(regex), json_string_length(regex), out);
	if (json_is_string(literal))
		return regex_compile_literal(t->name, json_string_value(literal), json_string_length(literal), out);
	return ERR(MODEL, "%s: \"pattern\" must be {\"Regex\": text} or {\"String\": text}", t->name);
}

enum err json_normalizer(struct tokenizer *t, json_t *j)
{
	static const struct { const char *name; enum normal_kind kind; } forms[] = {
		{ "NFC", NORMAL_NFC }, { "NFD", NORMAL_NFD }, { "NFKC", NORMAL_NFKC }, { "NFKD", NORMAL_NFKD },
		{ "Lowercase", NORMAL_LOWERCASE },
	};
	const char *kind;
	struct normal_step *step;
	json_t *text;
	int left, right;
	if (!j || json_is_null(j))
		return ERR_OK;
	TRY(kind_of(t, j, "normalizer", &kind));
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
		if (!strcmp(kind, forms[i].name))
			return normal_put(&t->normal, forms[i].kind, "", 0, &step);
	if (!strcmp(kind, "Sequence"))
		return sequence(t, j, "normalizer", "normalizers", json_normalizer);
	if (!strcmp(kind, "Prepend")) {
		TRY(need_string(t, j, "prepend", &text));
		return normal_put(&t->normal, NORMAL_PREPEND, json_string_value(text), json_string_length(text), &step);
	}
	if (!strcmp(kind, "Replace")) {
		TRY(need_string(t, j, "content", &text));
		TRY(normal_put(&t->normal, NORMAL_REPLACE, json_string_value(text), json_string_length(text), &step));
		return pattern_of(t, j, &step->regex);
	}
	if (!strcmp(kind, "Strip")) {
		TRY(json_get_bool_or(j, t->name, "strip_left", 1, &left));
		TRY(json_get_bool_or(j, t->name, "strip_right", 1, &right));
		TRY(normal_put(&t->normal, NORMAL_STRIP, "", 0, &step));
		step->left = left;
		step->right = right;
		return ERR_OK;
	}
	return unknown(t, "normalizer", kind, "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, Sequence");
}

static enum err behavior_of(const struct tokenizer *t, json_t *j, enum split_behavior *out)
{
	static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
	const char *name;
	TRY(json_get_string_or_null(j, t->name, "behavior", &name));
	for (int i = 0; i < 5; i++) {
		if (!strcmp(name ? name : "Isolated", names[i])) {
			*out = (enum split_behavior)i;
			return ERR_OK;
		}
	}
	return unknown(t, "split behavior", name, "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

static enum err put_split(struct tokenizer *t, const char *pattern, enum split_behavior behavior, bool invert)
{
	struct split_step *step;
	TRY(split_put(&t->split, SPLIT_REGEX, &step));
	step->behavior = behavior;
	step->invert = invert;
	return regex_compile(t->name, pattern, strlen(pattern), &step->regex);
}

static enum err split(struct tokenizer *t, json_t *j)
{
	struct split_step *step;
	enum split_behavior behavior;
	int invert;
	TRY(behavior_of(t, j, &behavior));
	TRY(json_get_bool_or(j, t->name, "invert", 0, &invert));
	TRY(split_put(&t->split, SPLIT_REGEX, &step));
	step->behavior = behavior;
	step->invert = invert;
	return pattern_of(t, j, &step->regex);
}

static enum err byte_level(struct tokenizer *t, json_t *j)
{
	struct split_step *step;
	int prefix_space, use_regex;
	for (int64_t i = 0; i < t->split.n; i++)
		if (t->split.items[i].kind == SPLIT_BYTE_LEVEL)
			return ERR(MODEL, "%s: has the pre_tokenizer ByteLevel twice, but bytes can be rewritten only once",
				   t->name);
	TRY(json_get_bool_or(j, t->name, "add_prefix_space", 1, &prefix_space));
	TRY(json_get_bool_or(j, t->name, "use_regex", 1, &use_regex));
	TRY(split_put(&t->split, SPLIT_BYTE_LEVEL, &step));
	step->prefix_space = prefix_space;
	step->behavior = SPLIT_ISOLATED;
	return use_regex ? regex_compile(t->name, gpt2_pattern, strlen(gpt2_pattern), &step->regex) : ERR_OK;
}

static bool one_character(json_t *mark)
{
	const char *text = json_string_value(mark);
	return text && *text && json_string_length(mark) == utf8_length((unsigned char)text[0]);
}

/* prepend_scheme, or add_prefix_space of older files. */
static enum err prepend_of(const struct tokenizer *t, json_t *j, enum prepend *out)
{
	static const char *const names[] = { "never", "first", "always" };
	const char *scheme;
	int prefix_space;
	TRY(json_get_string_or_null(j, t->name, "prepend_scheme", &scheme));
	TRY(json_get_bool_or(j, t->name, "add_prefix_space", 1, &prefix_space));
	if (!scheme) {
		*out = prefix_space ? PREPEND_ALWAYS : PREPEND_NEVER;
		return ERR_OK;
	}
	for (int i = 0; i < 3; i++) {
		if (!strcmp(scheme, names[i])) {
			*out = (enum prepend)i;
			return ERR_OK;
		}
	}
	return unknown(t, "prepend_scheme", scheme, "never, first, always");
}

static enum err meta_space(struct tokenizer *t, json_t *j)
{
	struct split_step *step;
	json_t *mark;
	enum prepend prepend;
	int do_split;
	TRY(need_string(t, j, "replacement", &mark));
	TRY(prepend_of(t, j, &prepend));
	TRY(json_get_bool_or(j, t->name, "split", 1, &do_split));
	if (!one_character(mark))
		return ERR(MODEL, "%s: the Metaspace \"replacement\" must be one character", t->name);
	TRY(split_put(&t->split, SPLIT_META_SPACE, &step));
	step->prepend = prepend;
	step->behavior = SPLIT_WITH_NEXT;
	bytes_put(&step->mark, json_string_value(mark), json_string_length(mark));
	TRY(step->mark.error);
	return do_split ? regex_compile_literal(t->name, json_string_value(mark), json_string_length(mark), &step->regex)
			: ERR_OK;
}

enum err json_pre_tokenizer(struct tokenizer *t, json_t *j)
{
	const char *kind;
	enum split_behavior behavior;
	int individual;
	if (!j || json_is_null(j))
		return ERR_OK;
	TRY(kind_of(t, j, "pre_tokenizer", &kind));
	if (!strcmp(kind, "Sequence"))
		return sequence(t, j, "pre_tokenizer", "pretokenizers", json_pre_tokenizer);
	if (!strcmp(kind, "Split"))
		return split(t, j);
	if (!strcmp(kind, "ByteLevel"))
		return byte_level(t, j);
	if (!strcmp(kind, "Metaspace"))
		return meta_space(t, j);
	if (!strcmp(kind, "Digits")) {
		TRY(json_get_bool_or(j, t->name, "individual_digits", 0, &individual));
		return put_split(t, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false);
	}
	if (!strcmp(kind, "Punctuation")) {
		TRY(behavior_of(t, j, &behavior));
		return put_split(t, "[\\p{P}$+<=>\\^`|~]", behavior, false);   /* with ASCII's symbols */
	}
	if (!strcmp(kind, "Whitespace"))   /* Rust's \w, which has the two joiners; that of Oniguruma has not */
		return put_split(t, "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+", SPLIT_REMOVED, true);
	if (!strcmp(kind, "WhitespaceSplit"))
		return put_split(t, "\\s", SPLIT_REMOVED, false);
	return unknown(t, "pre_tokenizer", kind,
		       "ByteLevel, Split, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, Sequence");
}

/* The ids of a special token of a template: its entry in special_tokens. */
static enum err template_ids(struct tokenizer *t, json_t *j, const char *name, struct tokens *out)
{
	char room[PRINTABLE_BYTES];
	json_t *ids = json_object_get(json_object_get(json_object_get(j, "special_tokens"), name), "ids");
	if (!json_is_array(ids))
		return ERR(MODEL, "%s: the template names \"%s\", which has no \"ids\" in special_tokens", t->name,
			   printable(room, name, strlen(name)));
	for (size_t i = 0; i < json_array_size(ids); i++) {
		json_t *id = json_array_get(ids, i);
		int64_t value = json_is_integer(id) ? json_integer_value(id) : -1;
		if (value < 0 || value >= t->vocab.n_tokens)
			return ERR(MODEL, "%s: the template's \"%s\" has an id that is not in the vocabulary", t->name,
				   printable(room, name, strlen(name)));
		TRY(tokens_push(out, (int32_t)value));
	}
	return ERR_OK;
}

/* ids in front of, and behind, what is there already */
static enum err surround(struct tokenizer *t, struct tokens *front, const struct tokens *back)
{
	for (int64_t i = 0; i < t->before.n; i++)
		TRY(tokens_push(front, t->before.ids[i]));
	struct tokens swap = t->before;
	t->before = *front;
	*front = swap;
	for (int64_t i = 0; i < back->n; i++)
		TRY(tokens_push(&t->after, back->ids[i]));
	return ERR_OK;
}

static enum err read_template(struct tokenizer *t, json_t *j, struct tokens *front, struct tokens *back)
{
	json_t *single = json_object_get(j, "single");
	int n_texts = 0;
	for (size_t i = 0; i < json_array_size(single); i++) {
		json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
		const char *name = json_string_value(json_object_get(special, "id"));
		if (name)
			TRY(template_ids(t, j, name, n_texts ? back : front));
		else if (json_object_get(item, "Sequence"))
			n_texts++;
		else
			return ERR(MODEL, "%s: item %zu of the template is neither a SpecialToken nor a Sequence", t->name,
				   i);
	}
	if (n_texts != 1)
		return ERR(MODEL, "%s: the template has the text %d times, but must have it once", t->name, n_texts);
	return ERR_OK;
}

enum err json_post_processor(struct tokenizer *t, json_t *j)
{
	const char *kind;
	if (!j || json_is_null(j))
		return ERR_OK;
	TRY(kind_of(t, j, "post_processor", &kind));
	if (!strcmp(kind, "Sequence"))
		return sequence(t, j, "post_processor", "processors", json_post_processor);
	if (!strcmp(kind, "ByteLevel"))
		return ERR_OK;   /* moves offsets only */
	if (strcmp(kind, "TemplateProcessing"))
		return unknown(t, "post_processor", kind, "TemplateProcessing, ByteLevel, Sequence");
	struct tokens front = { 0 }, back = { 0 };
	enum err e = read_template(t, j, &front, &back);
	if (!e)
		e = surround(t, &front, &back);
	tokens_free(&front);
	tokens_free(&back);
	return e;
}

static enum err decode_replace(struct tokenizer *t, json_t *j)
{
	json_t *from = json_object_get(json_object_get(j, "pattern"), "String"), *to = json_object_get(j, "content");
	size_t bytes = json_string_length(from);
	if (!json_is_string(from) || !json_is_string(to) || strcmp(json_string_value(to), " ") || !bytes ||
	    bytes >= sizeof t->space_mark || memchr(json_string_value(from), 0, bytes))
		return ERR(MODEL, "%s: a decoder Replace is supported only from a short string to one space", t->name);
	memcpy(t->space_mark, json_string_value(from), bytes + 1);
	return ERR_OK;
}

static enum err decode_strip(struct tokenizer *t, json_t *j)
{
	const char *content;
	int64_t start, stop;
	TRY(json_get_string_or_null(j, t->name, "content", &content));
	TRY(json_get_int_or(j, t->name, "start", 0, 1000, 0, &start));
	TRY(json_get_int_or(j, t->name, "stop", 0, 1000, 0, &stop));
	if (!content || strcmp(content, " ") || start > 1 || stop)
		return ERR(MODEL, "%s: a decoder Strip is supported only for one space at the start", t->name);
	t->strip_first_space = start == 1;
	return ERR_OK;
}

enum err json_decoder(struct tokenizer *t, json_t *j)
{
	const char *kind;
	enum prepend prepend;
	if (!j || json_is_null(j))
		return ERR_OK;
	TRY(kind_of(t, j, "decoder", &kind));
	if (!strcmp(kind, "Sequence"))
		return sequence(t, j, "decoder", "decoders", json_decoder);
	if (!strcmp(kind, "ByteLevel")) {
		t->byte_level = true;
		return ERR_OK;
	}
	if (!strcmp(kind, "Fuse"))
		return ERR_OK;   /* pieces are joined anyway */
	if (!strcmp(kind, "ByteFallback")) {
		vocab_find_bytes(&t->vocab);
		return ERR_OK;
	}
	if (!strcmp(kind, "Replace"))
		return decode_replace(t, j);
	if (!strcmp(kind, "Strip"))
		return decode_strip(t, j);
	if (!strcmp(kind, "Metaspace")) {
		json_t *mark = json_object_get(j, "replacement");
		TRY(prepend_of(t, j, &prepend));
		if (!one_character(mark))
			return ERR(MODEL, "%s: the Metaspace \"replacement\" must be one character", t->name);
		memcpy(t->space_mark, json_string_value(mark), json_string_length(mark) + 1);
		t->strip_first_space = prepend != PREPEND_NEVER;
		return ERR_OK;
	}
	return unknown(t, "decoder", kind, "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence");
}
