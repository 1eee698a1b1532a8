#include "base/log.h"

#include "base/clock.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum log_level max_level = LOG_INFO;
static int my_rank;
static volatile sig_atomic_t has_status;      /* a status line stands at the foot of the terminal */
static char my_prefix[160];
static const char *const level_names[] = { "error", "warning", "info", "debug" };

void log_set_level(enum log_level level) { max_level = level; }

void log_set_identity(int rank, const char *prefix)
{
	my_rank = rank;
	snprintf(my_prefix, sizeof my_prefix, "%s", prefix);
}

void log_line(int root_only, enum log_level level, const char *format, ...)
{
	char line[2048];
	if (level > max_level || (root_only && my_rank != 0))
		return;
	int n = 0;
	if (!root_only && my_prefix[0])
		n = snprintf(line, sizeof line, "%s: ", my_prefix);
	if (level != LOG_INFO)
		n += snprintf(line + n, sizeof line - (size_t)n, "%s: ", level_names[level]);
	va_list args;
	va_start(args, format);
	vsnprintf(line + n, sizeof line - (size_t)n, format, args);
	va_end(args);
	size_t size = strlen(line);
	if (size > sizeof line - 2)
		size = sizeof line - 2;
	line[size++] = '\n';
	if (has_status)
		log_status(NULL);
	fwrite(line, 1, size, stderr);   /* one write, so that lines of several ranks do not mix */
}

/* mpirun reads the ranks' stderr through a pipe: whoever starts it on a terminal says so by SHARDRUN_PROGRESS=1. */
static int someone_watches(void)
{
	const char *told = getenv("SHARDRUN_PROGRESS");
	return told && *told ? !strcmp(told, "1") : isatty(STDERR_FILENO);
}

int log_status_is_shown(void) { return my_rank == 0 && max_level >= LOG_INFO && someone_watches(); }

void log_status(const char *text)
{
	if (text ? !log_status_is_shown() : !has_status)
		return;
	has_status = text != NULL;
	fprintf(stderr, "\r%s\033[K", text ? text : "");
	fflush(stderr);
}

void progress_start(struct progress *p, const char *label, double total, int visible)
{
	*p = (struct progress){ .label = label, .total = total, .visible = visible && someone_watches() };
	progress_update(p, 0);
}

void progress_update(struct progress *p, double done)
{
	enum { WIDTH = 32 };
	long long now = clock_us();
	if (!p->visible || (p->last_us && now - p->last_us < 50000 && done < p->total))
		return;
	p->last_us = now;
	double share = p->total > 0 ? done / p->total : 1;
	int filled = (int)(share * WIDTH + 0.5);
	char bar[WIDTH + 1];
	for (int i = 0; i < WIDTH; i++)
		bar[i] = i < filled ? '#' : '.';
	bar[WIDTH] = '\0';
	fprintf(stderr, "\r%s [%s] %3.0f %%  %.1f MB", p->label, bar, share * 100, done / 1e6);
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (!p->visible)
		return;
	p->last_us = 0;
	progress_update(p, p->total);
	fputc('\n', stderr);
}
