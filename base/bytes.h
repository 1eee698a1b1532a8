/* Byte strings: a growable buffer that is written to (text or little-endian fields), and a checked reader over bytes
 * that came from elsewhere. Both carry their first error, so a run of puts or gets is checked once at its end. */
#ifndef SHARDRUN_BASE_BYTES_H
#define SHARDRUN_BASE_BYTES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct bytes {
	unsigned char *data;   /* owned; always followed by a 0 byte once something was put */
	size_t size, capacity;
	enum err error;        /* the first one; later puts do nothing */
};

void bytes_put(struct bytes *b, const void *data, size_t size);
void bytes_put_u32(struct bytes *b, uint32_t v);
void bytes_put_u64(struct bytes *b, uint64_t v);
void bytes_put_f64(struct bytes *b, double v);
void bytes_put_string(struct bytes *b, const char *text);        /* u32 length and the bytes; NULL as "" */
void bytes_printf(struct bytes *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bytes_clear(struct bytes *b);                               /* keeps the memory */
void bytes_free(struct bytes *b);
static inline const char *bytes_text(const struct bytes *b) { return b->data ? (const char *)b->data : ""; }

struct reader {
	const unsigned char *data;
	size_t size, at;
	enum err error;        /* set when something did not fit; gets then give 0 */
	const char *name;      /* for the sentence */
};

void reader_init(struct reader *r, const char *name, const void *data, size_t size);
const void *reader_get(struct reader *r, size_t size);           /* NULL on error; points into data */
uint32_t reader_u32(struct reader *r);
uint64_t reader_u64(struct reader *r);
double reader_f64(struct reader *r);
/* Copies a string into room[capacity], terminated; error when it is too long or holds a 0 byte. */
void reader_string(struct reader *r, char *room, size_t capacity);

#endif
