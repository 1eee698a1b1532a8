/* The file that `--trace` writes: JSON in Chrome's trace event format, which Perfetto and chrome://tracing show. A process of it is a node, a
 * thread is a rank; times are microseconds of the head's clock since the beginning. Written as spans come, so memory is flat. */
#ifndef SHARDRUN_LAUNCHER_TRACE_FILE_H
#define SHARDRUN_LAUNCHER_TRACE_FILE_H

#include "runtime/session.h"
#include "runtime/trace.h"

struct trace_file;

/* path and s are borrowed. Times are counted from began_us. */
enum err trace_file_open(const char *path, const struct session *s, long long began_us, struct trace_file **out);
/* For trace_gather: arg is the file. */
enum err trace_file_take(void *file, int rank, const struct trace_span *spans, int64_t n);
/* ranks (n_ranks): what was gathered beside the spans. Closes the file, also after an error. command: what was run. */
enum err trace_file_end(struct trace_file *f, const struct trace_rank *ranks, const char *command);
void trace_file_close(struct trace_file *f);    /* after an error elsewhere; takes NULL */

#endif
