/* What the files of the tokenizer share; no one else includes this.
 *
 * Encoding runs in this order, which is that of the Hugging Face `tokenizers` library:
 *   repair       the bytes become valid UTF-8 (broken parts as U+FFFD)              tokenizer_text.c
 *   added        tokens that are matched in the raw text cut it into sections       tokenizer_added.c
 *   normalise    each section is rewritten                                          tokenizer_normal.c
 *   added        tokens that are matched in normalised text cut it again            tokenizer_added.c
 *   split        what is left is cut into pieces, and maybe rewritten               tokenizer_split.c
 *   merge        each piece becomes ids                                             tokenizer_bpe.c
 *   post         ids before and after the whole                                     tokenizer.c
 * A struct tokenizer never changes once it is open, so many threads may encode with it; what one call needs is in its
 * struct encoder. All text inside is valid UTF-8. */
#ifndef SHARDRUN_RUNTIME_TOKENIZER_PARTS_H
#define SHARDRUN_RUNTIME_TOKENIZER_PARTS_H

#include "base/bytes.h"
#include "base/err.h"
#include "runtime/characters.h"
#include "runtime/tokenizer.h"

#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- vocabulary --------------------------------------------------------------------------------------------------- */

enum { TOKEN_PRESENT = 1, TOKEN_CONTROL = 2, TOKEN_BYTE = 4, TOKEN_LITERAL = 8, TOKEN_ADDED = 16 };   /* LITERAL: shown as it is written */

/* text is pool + at; what is shown for it differs only for added tokens that a normaliser changes */
struct token { uint64_t at, shown_at; uint32_t bytes, shown_bytes; uint8_t flags, byte; };

struct vocab {
	struct bytes pool;
	struct token *tokens;          /* by id */
	int64_t n_tokens, capacity;    /* highest id + 1 */
	int32_t *slots;                /* open addressing; id + 1, 0 is empty */
	uint64_t n_slots, n_used;
	uint32_t longest;              /* bytes of the longest token */
	int32_t byte_ids[256];         /* of <0xNN>, -1 */
};

enum err vocab_create(uint64_t n_entries, struct vocab *v);
/* The id may be anything below 4 * n_entries + 65536. An id that is taken is an error, a text that is known moves to the
 * new id. */
enum err vocab_add(struct vocab *v, const char *name, int64_t id, const char *text, size_t bytes);
int32_t vocab_find(const struct vocab *v, const char *text, size_t bytes);   /* -1 */
static inline const char *vocab_text(const struct vocab *v, int32_t id)
{
	return (const char *)v->pool.data + v->tokens[id].at;
}
enum err vocab_show(struct vocab *v, int32_t id, const char *text, size_t bytes);
void vocab_find_bytes(struct vocab *v);          /* fills byte_ids and the BYTE flags from tokens named <0xNN> */
void vocab_free(struct vocab *v);

struct merge { uint64_t key; int32_t rank, id; };                        /* key: (left << 32 | right) + 1; 0 is empty */
struct merges { struct merge *slots; uint64_t n_slots; };
enum err merges_create(uint64_t n, struct merges *m);
/* A pair that is there already keeps its first rank, or takes the last one. */
void merges_add(struct merges *m, int32_t left, int32_t right, int32_t rank, int32_t id, bool last_wins);
const struct merge *merges_find(const struct merges *m, int32_t left, int32_t right);   /* NULL */

/* -- expressions -------------------------------------------------------------------------------------------------- */

struct regex;
struct matcher;                    /* room for matching, of one call */
enum err regex_compile(const char *name, const char *pattern, size_t bytes, struct regex **out);
enum err regex_compile_literal(const char *name, const char *text, size_t bytes, struct regex **out);
void regex_destroy(struct regex *r);
enum err matcher_create(struct matcher **out);
void matcher_destroy(struct matcher *m);
/* Walks over the matches from left to right, from { 0 } on. An empty match right behind another one does not count. */
struct search { size_t begin, end, from; bool found; };
enum err regex_next(const struct regex *r, struct matcher *m, const char *text, size_t bytes, struct search *s, bool *got);

/* -- added tokens ------------------------------------------------------------------------------------------------- */

struct added {
	const char *text;              /* owned by the set */
	size_t bytes;
	int32_t id;
	bool control, lstrip, rstrip, single_word;
};
struct added_set { struct added *items; int64_t n, capacity; };         /* sorted bytewise once added_sort was called */
enum err added_put(struct added_set *s, const struct added *item, const char *text, size_t bytes);
void added_sort(struct added_set *s);
void added_free(struct added_set *s);

/* A run of text; id >= 0: it is that added token. at_start: it begins where the text given to encode begins. */
struct span { size_t begin, end; int32_t id; bool at_start; };
struct spans { struct span *items; int64_t n, capacity; };
enum err spans_put(struct spans *s, size_t begin, size_t end, int32_t id, bool at_start);
void spans_free(struct spans *s);
/* For text of which parts are foreign (tokenizer.h): mask has a byte for each of the text's, not 0 where it is foreign. NULL:
 * nothing is. */
struct encoder;
struct guard { struct encoder *e; const unsigned char *mask; };
enum err added_cut(const struct added_set *s, const char *text, size_t bytes, const struct guard *g, bool with_control,
		   bool at_start, struct spans *out);

/* -- normalisers and splitters ------------------------------------------------------------------------------------ */

enum normal_kind { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD, NORMAL_LOWERCASE, NORMAL_PREPEND, NORMAL_REPLACE,
		   NORMAL_STRIP };
struct normal_step {
	enum normal_kind kind;
	struct regex *regex;           /* REPLACE */
	struct bytes text;             /* PREPEND, REPLACE */
	bool left, right;              /* STRIP */
};
struct normal_steps { struct normal_step *items; int64_t n, capacity; };
enum err normal_put(struct normal_steps *s, enum normal_kind kind, const char *text, size_t bytes, struct normal_step **out);
void normal_free(struct normal_steps *s);
/* A mask that follows its text through being rewritten; spare is room. What is made of foreign bytes is foreign. */
struct origin { struct bytes mask, spare; };
/* Rewrites text into *out (cleared first); *spare is room. o: NULL, or the mask of text, which becomes that of *out. */
enum err normal_apply(const struct normal_steps *s, struct matcher *m, const char *text, size_t bytes, struct bytes *out,
		      struct bytes *spare, struct origin *o);

enum split_kind { SPLIT_REGEX, SPLIT_BYTE_LEVEL, SPLIT_META_SPACE };
enum split_behavior { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT, SPLIT_CONTIGUOUS };
enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };
struct split_step {
	enum split_kind kind;
	struct regex *regex;           /* REGEX, or NULL */
	enum split_behavior behavior;
	bool invert;
	bool prefix_space;             /* BYTE_LEVEL */
	enum prepend prepend;          /* META_SPACE */
	struct bytes mark;             /* META_SPACE: what a space becomes */
};
struct split_steps { struct split_step *items; int64_t n, capacity; };
enum err split_put(struct split_steps *s, enum split_kind kind, struct split_step **out);
void split_free(struct split_steps *s);

/* -- one tokenizer, and one call ---------------------------------------------------------------------------------- */

struct tokenizer {
	char *name;                    /* file, for sentences */
	struct vocab vocab;
	struct merges merges;
	float *scores;                 /* not NULL: SentencePiece's merging by score, else by merge rank */
	bool byte_fallback, fuse_unk, ignore_merges;
	int32_t unk;                   /* -1 */
	struct normal_steps normal;
	struct split_steps split;
	struct added_set raw, normalized;      /* matched before and after the normaliser */
	struct tokens before, after;           /* ids that ADD_SPECIAL puts around the text */
	bool byte_level;               /* tokens are written in GPT-2's stand-ins */
	char space_mark[8];            /* this becomes a space in pieces; "": nothing does */
	bool strip_first_space;        /* of a whole text */
};

struct symbol { int32_t id, prev, next; uint32_t bytes; size_t begin; };
struct candidate { uint32_t order; int32_t at, id; uint32_t bytes; };

struct encoder {
	const struct tokenizer *t;
	struct matcher *matcher;
	struct bytes repaired, normal, spare, text, other;
	struct spans raw, cut, pieces, next_pieces;
	struct symbol *symbols;        /* of the piece being merged, and the heap of its candidates */
	int64_t n_symbols, symbols_capacity;
	struct candidate *heap;
	int64_t n_heap, heap_capacity;
	const struct foreign *foreign; /* NULL: nothing is */
	struct bytes mask;             /* of the whole text; empty when nothing is foreign */
	struct origin origin;          /* of the section that is normalised */
	uint8_t *refused;              /* by id, what token_is_refused found: 0 nothing yet, 1 no, 2 yes */
};

/* Must not be made of foreign text. Always false when nothing is foreign. */
bool token_is_refused(struct encoder *e, int32_t id);

/* Cuts text into e->pieces, spans of e->text. */
enum err split_apply(struct encoder *e, const char *text, size_t bytes, bool at_start);
/* Appends the ids of one piece. */
enum err bpe_encode(struct encoder *e, const char *text, size_t bytes, struct tokens *out);

enum err tokenizer_create(const char *name, struct tokenizer **out);
/* For arrays that grow one by one: room for one more. */
enum err grow_for_one(void *items, int64_t n, int64_t *capacity, size_t size, const char *what);

/* Parts of tokenizer.json; each takes null. tokenizer_json_steps.c */
enum err json_normalizer(struct tokenizer *t, json_t *j);
enum err json_pre_tokenizer(struct tokenizer *t, json_t *j);
enum err json_post_processor(struct tokenizer *t, json_t *j);
enum err json_decoder(struct tokenizer *t, json_t *j);

/* Pre-tokenisers that GGUF files name. tokenizer_patterns.c */
struct named_pattern {
	const char *name;
	const char *const *patterns;   /* applied in turn, NULL at the end */
	bool ignore_merges, add_bos;
};
const struct named_pattern *named_pattern_find(const char *name, size_t bytes);
void named_pattern_list(struct bytes *out);      /* "a, b, c" */
extern const char gpt2_pattern[];

#endif
