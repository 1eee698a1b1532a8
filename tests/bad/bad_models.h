/* Bad models end to end: a good model with one fault, given to the program. */
#ifndef SHARDRUN_TESTS_BAD_MODELS_H
#define SHARDRUN_TESTS_BAD_MODELS_H

#include "tests/files.h"
#include "tests/test.h"

/* Runs the program on a model; gives its exit status (-1: killed), and what it wrote to standard error. */
int run_program(const char *model, char *errors, size_t room);
/* The program must refuse the model: status 4, one line on standard error that begins "shardrun: ", names the place and
 * holds `want`. */
void check_refused(const char *what, const char *model, const char *place, const char *want);
/* A golden file whole, into out. */
void read_golden(const char *name, struct bytes *out);
/* The first `find` in text becomes `put`; aborts when it is not there, so that a case cannot lose its fault. */
void replace_text(struct bytes *text, const char *find, const char *put);

void gguf_tests(void (*add)(const char *name, void (*run)(void)));

#endif
