/* Characters of UTF-8 text: finding, classifying and repairing them. */
#ifndef SHARDRUN_RUNTIME_CHARACTERS_H
#define SHARDRUN_RUNTIME_CHARACTERS_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define META_SPACE "\xe2\x96\x81"           /* U+2581, SentencePiece's space */

/* What a byte means after the held ones; bytes 1 to 3 of an unfinished character are held by the caller. */
enum utf8_step { UTF8_WHOLE, UTF8_MORE, UTF8_BROKEN };
enum utf8_step utf8_step(const unsigned char *held, int n_held, unsigned char next);
/* Appends text, each maximal broken part as U+FFFD (what Python's errors="replace" does). */
void utf8_repair(const char *text, size_t bytes, struct bytes *out);
bool utf8_valid(const char *text, size_t bytes);
size_t utf8_length(unsigned char lead);                                  /* bytes of a character of valid text */
uint32_t utf8_decode(const char *text);                                  /* of valid text */
size_t utf8_encode(uint32_t c, char room[4]);
const char *utf8_before(const char *begin, const char *at);              /* start of the character that ends at `at` */
bool char_is_space(uint32_t c);                                          /* White_Space */
bool char_is_word(uint32_t c);                                           /* \w */
bool char_is_letter(uint32_t c);                                         /* categories L*, Nd and N* */
bool char_is_decimal(uint32_t c);
bool char_is_number(uint32_t c);
bool char_prints(uint32_t c);                                            /* Python's str.isprintable */
uint32_t char_to_upper(uint32_t c);                                      /* those whose other case is one character */
uint32_t char_to_lower(uint32_t c);
uint32_t char_to_title(uint32_t c);
/* GPT-2's printable stand-ins of bytes: https://github.com/openai/gpt-2/blob/master/src/encoder.py, bytes_to_unicode */
uint32_t byte_to_char(unsigned char byte);
int char_to_byte(uint32_t c);                                            /* -1: stands for no byte */

#endif
