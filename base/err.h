/* Errors.
 *
 * A function that can fail returns an enum err; ERR_OK is 0. The place that decides an error records one clear sentence
 * with ERR(); callers pass the code up with TRY(). The sentence lives in a thread-local record until the next ERR() or
 * err_clear(), so it can be printed, or carried to other ranks (parallel/comm.h, comm_agree).
 * A sentence names the file, line, tensor or key, says what was found and what would be right. */
#ifndef SHARDRUN_BASE_ERR_H
#define SHARDRUN_BASE_ERR_H

/* X(name, exit status, text): the one list that makes the enum, the names and the exit status. */
#define ERR_LIST(X)                                     \
	X(OK, 0, "no error")                            \
	X(WORK, 1, "the work failed")                   \
	X(IO, 1, "a file or socket failed")             \
	X(MEMORY, 1, "memory ran out")                  \
	X(BUG, 1, "an internal invariant is broken")    \
	X(USAGE, 2, "the command line is wrong")        \
	X(RECIPE, 2, "the recipe is wrong")             \
	X(FIT, 3, "the cluster does not fit the recipe") \
	X(MODEL, 4, "the model is unusable")            \
	X(LOST, 5, "a rank or node was lost")           \
	X(REQUEUE, 75, "requeue me")

enum err {
#define X(name, status, text) ERR_##name,
	ERR_LIST(X)
#undef X
	ERR_COUNT
};

enum { ERR_SENTENCE_BYTES = 1024 };

/* The error that this thread recorded last. */
struct err_record {
	enum err code;
	int rank;                          /* the rank that decided it; -1 before ranks exist */
	const char *file;                  /* source file that decided it, "" when it came from another rank */
	int line;
	char sentence[ERR_SENTENCE_BYTES]; /* always terminated, no newline at the end */
};

const char *err_name(enum err e);    /* "MODEL" */
const char *err_text(enum err e);    /* "the model is unusable" */
int err_exit_status(enum err e);     /* see docs/ARCHITECTURE.md, exit status */

const struct err_record *err_last(void);
const char *err_sentence(void);      /* err_last()->sentence */
void err_clear(void);
void err_set_rank(int rank);         /* of this process's main rank; ranks that are threads call it per thread */

/* Records and returns `code`. */
enum err err_raise(enum err code, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Puts "context: " before the recorded sentence; returns code. */
enum err err_context(enum err code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Replaces this thread's record, as when the error of another rank arrives. */
void err_restore(const struct err_record *record);

/* The constant is the value, so that the compiler sees that an error is not ERR_OK. */
#define ERR(code, ...) ((void)err_raise(ERR_##code, __FILE__, __LINE__, __VA_ARGS__), ERR_##code)
#define TRY(call)                                \
	do {                                     \
		enum err try_ = (call);          \
		if (try_ != ERR_OK)              \
			return try_;             \
	} while (0)
/* Sets the variable e and jumps to a cleanup label. */
#define TRY_OR(label, e, call)                   \
	do {                                     \
		(e) = (call);                    \
		if ((e) != ERR_OK)               \
			goto label;              \
	} while (0)

#endif
