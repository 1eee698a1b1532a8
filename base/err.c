#include "base/err.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct err_record last = { .rank = -1, .file = "" };
static _Atomic int process_rank = -1;   /* the first that was set; ranks that are threads race for it */
static _Thread_local int thread_rank = -1;

static const struct {
	const char *name, *text;
	int status;
} table[ERR_COUNT] = {
#define X(name, status, text) [ERR_##name] = { #name, text, status },
	ERR_LIST(X)
#undef X
};

const char *err_name(enum err e) { return e < ERR_COUNT ? table[e].name : "UNKNOWN"; }
const char *err_text(enum err e) { return e < ERR_COUNT ? table[e].text : "unknown error"; }
int err_exit_status(enum err e) { return e < ERR_COUNT ? table[e].status : 1; }

const struct err_record *err_last(void) { return &last; }
const char *err_sentence(void) { return last.sentence; }

void err_clear(void)
{
	last.code = ERR_OK;
	last.sentence[0] = '\0';
}

void err_set_rank(int rank)
{
	thread_rank = rank;
	int none = -1;
	atomic_compare_exchange_strong(&process_rank, &none, rank);
}

enum err err_raise(enum err code, const char *file, int line, const char *format, ...)
{
	char text[ERR_SENTENCE_BYTES];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);   /* into a copy: an argument may be the last sentence */
	va_end(args);
	memcpy(last.sentence, text, sizeof text);
	last.code = code;
	last.file = file;
	last.line = line;
	last.rank = thread_rank >= 0 ? thread_rank : process_rank;
	return code;
}

enum err err_context(enum err code, const char *format, ...)
{
	char text[2 * ERR_SENTENCE_BYTES];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, ERR_SENTENCE_BYTES, format, args);
	va_end(args);
	if (n < 0)
		return code;
	size_t used = strlen(text);
	snprintf(text + used, sizeof text - used, ": %s", last.sentence);
	text[ERR_SENTENCE_BYTES - 1] = '\0';
	memcpy(last.sentence, text, ERR_SENTENCE_BYTES);
	return code;
}

void err_restore(const struct err_record *record)
{
	last = *record;
	last.sentence[ERR_SENTENCE_BYTES - 1] = '\0';
}
