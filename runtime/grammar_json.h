/* The parts of JSON that formats are made of, as rules of a draft. What they read parses everywhere:
 *
 *   white space  none, one blank, or a line's end with at most GRAMMAR_INDENT blanks or tabs; after brackets and commas and before closing
 *                brackets; after a colon at most one blank; none around the document
 *   strings      valid UTF-8; escapes of JSON, \uXXXX only as one character (surrogates in pairs), not \u0000
 *   numbers      integers of at most 18 digits; others of at most 15 digits, 17 after the point, and an exponent of two
 *   nesting      as the stack allows */
#ifndef SHARDRUN_RUNTIME_GRAMMAR_JSON_H
#define SHARDRUN_RUNTIME_GRAMMAR_JSON_H

#include "runtime/grammar.h"

enum { GRAMMAR_INDENT = 40, GRAMMAR_DIGITS = 18, GRAMMAR_REAL_DIGITS = 15, GRAMMAR_FRACTION = 17 };

struct json_rules {
	uint32_t space;              /* white space, at least one byte */
	uint32_t character;          /* of a string: those of several bytes */
	uint32_t plain_character;    /* likewise, without escapes */
	uint32_t string, number, integer, object, array, value;
};

void json_rules_draft(struct draft *d, struct json_rules *r);
/* White space may stand here. Gives the state after it. */
uint32_t json_space(struct draft *d, const struct json_rules *r, uint32_t from);
/* A colon and at most one blank. */
uint32_t json_colon(struct draft *d, uint32_t from);
/* One character of a string, from one state to another. */
void json_character(struct draft *d, const struct json_rules *r, uint32_t from, uint32_t to);
/* --- grammar_numbers.c --- */

#define JSON_NO_BOUND INT64_MIN
struct json_bounds { int64_t min, max; int min_is_out, max_is_out; };     /* JSON_NO_BOUND: none; out: exclusive */
/* Integers, or (with a point or without) numbers, within the bounds, from one state to another. */
void json_integers(struct draft *d, struct json_bounds b, uint32_t from, uint32_t to);
void json_reals(struct draft *d, struct json_bounds b, uint32_t from, uint32_t to);

#endif
