/* Logs: one line each on stderr. Two kinds with two names: LOG_ROOT is written by the root rank only, LOG_RANK by every
 * rank that calls it, with "rank r host tp.pp.ep.dp" in front. Levels: error, warn, info, debug. */
#ifndef SHARDRUN_BASE_LOG_H
#define SHARDRUN_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);          /* lines above it are dropped; info at first */
/* Which rank this process is, and the words put in front of its LOG_RANK lines. Before it, this process counts as root. */
void log_set_identity(int rank, const char *prefix);
void log_line(int root_only, enum log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define LOG_ROOT(level, ...) log_line(1, LOG_##level, __VA_ARGS__)
#define LOG_RANK(level, ...) log_line(0, LOG_##level, __VA_ARGS__)

/* A line at the foot of a terminal that changes: it goes where another line is written, until it is drawn again; NULL takes it away.
 * Shown by the root when someone watches (see below) and infos are. For the thread that does the work. */
void log_status(const char *text);
int log_status_is_shown(void);

/* A progress bar on stderr; draws nothing when `visible` is 0, or stderr is no terminal and SHARDRUN_PROGRESS is not 1.
 * total in bytes. */
struct progress {
	const char *label;
	double total;
	int visible;
	long long last_us;
};
void progress_start(struct progress *p, const char *label, double total, int visible);
void progress_update(struct progress *p, double done);
void progress_end(struct progress *p);

#endif
