/* The formats that answers are held to ("response_format"): schemas become grammars with masks over the model's vocabulary. Those that
 * were used last are kept, as batches ask for the same thousands of times. */
#ifndef SHARDRUN_LAUNCHER_BATCH_FORMATS_H
#define SHARDRUN_LAUNCHER_BATCH_FORMATS_H

#include "base/json.h"
#include "runtime/token_mask.h"
#include "runtime/tokenizer.h"

struct format;
struct formats;

/* The tokenizer is borrowed, and read at the first format. */
enum err formats_create(const struct tokenizer *t, int64_t n_vocab, struct formats **out);
void formats_destroy(struct formats *f);      /* takes NULL; formats that are still used stay until they are released */
/* response_format: as batch_input.h says, not NULL. ERR_WORK with a sentence when the schema is not supported. To be released. */
enum err formats_find(struct formats *f, json_t *response_format, struct format **out);
void format_release(struct format *f);        /* takes NULL */
/* An answer from its first token on; see held_begin. */
enum err format_begin(struct format *f, const int32_t *stops, int n_stops, struct held *out);

#endif
