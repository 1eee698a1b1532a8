/* Text to token ids and back. Byte-level BPE (tokenizer.json, GGUF gpt2) and SentencePiece-style BPE (tokenizer.json with
 * byte fallback, GGUF llama). Pre-tokenizer expressions run in PCRE2 (UTF, UCP); normalisers through utf8proc. */
#ifndef SHARDRUN_RUNTIME_TOKENIZER_H
#define SHARDRUN_RUNTIME_TOKENIZER_H

#include "base/bytes.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct gguf;
struct tokenizer;

/* A growing list of ids. */
struct tokens { int32_t *ids; int64_t n, capacity; };   /* owned */
enum err tokens_push(struct tokens *t, int32_t id);
void tokens_free(struct tokens *t);

/* model_dir holds tokenizer.json (and tokenizer_config.json when there: where tokenizer.json has no template, its
 * add_bos_token and add_eos_token say what ADD_SPECIAL adds). ERR_MODEL. */
enum err tokenizer_open_directory(const char *model_dir, struct tokenizer **out);
/* From the text of a tokenizer.json alone, for tests and fuzzing. */
enum err tokenizer_open_json(const char *name, const char *json, size_t bytes, struct tokenizer **out);
/* g is not needed afterwards. */
enum err tokenizer_open_gguf(const struct gguf *g, struct tokenizer **out);
void tokenizer_close(struct tokenizer *t);

int64_t tokenizer_n_tokens(const struct tokenizer *t);        /* highest id + 1 */
enum { TOKENIZE_ADD_SPECIAL = 1,      /* what the model's post-processor or add_bos_token adds */
       TOKENIZE_PARSE_SPECIAL = 2 };  /* control tokens written in the text become their ids, else plain text */
/* Appends to *out, all or nothing. Broken UTF-8 is taken as U+FFFD, one for each maximal broken part, as Python's
 * errors="replace" does. Any number of threads may encode with one tokenizer. */
enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, int flags, struct tokens *out);
/* A prompt of which some runs came from outside, in order and apart from each other. No control token is recognised that
 * has a byte in such a run; nor another added token, unless it is all white space, that stands in `own`: text, parted by
 * 0 bytes, that the writer of the prompt writes itself. All else is as for tokenizer_encode with these flags. ERR_WORK:
 * the text is not UTF-8. */
struct text_run { size_t begin, end; };
struct foreign { const struct text_run *runs; int64_t n; const char *own; size_t own_bytes; };
enum err tokenizer_encode_foreign(const struct tokenizer *t, const char *text, size_t bytes, int flags,
				  const struct foreign *foreign, struct tokens *out);
/* The bytes of one token as they appear in a running text ("" for control tokens). Appends. */
enum err tokenizer_piece(const struct tokenizer *t, int32_t id, struct bytes *out);
int tokenizer_is_control(const struct tokenizer *t, int32_t id);
int32_t tokenizer_find(const struct tokenizer *t, const char *content);    /* -1 */

/* Incremental output: gives only whole characters, holds back the bytes of an unfinished one. */
struct detokenizer { unsigned char held[8]; int n_held; int started; };
/* Appends the text that becomes certain with this token. */
enum err detokenizer_put(struct detokenizer *d, const struct tokenizer *t, int32_t id, struct bytes *out);
/* What is still held, as U+FFFD. */
void detokenizer_end(struct detokenizer *d, struct bytes *out);

#endif
