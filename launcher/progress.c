#include "launcher/progress.h"

#include "base/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DRAW_US = 200000, SAY_US = 30000000, WINDOW_US = 4000000 };

double progress_left_s(const struct progress_count *c)
{
	if (c->total < 0 || c->done_here <= 0 || c->seconds <= 0)
		return -1;
	return c->seconds * (double)(c->total - c->done) / (double)c->done_here;
}

static void put_left(double seconds, char *room, size_t bytes)
{
	long long s = (long long)(seconds + 0.5);
	if (seconds < 0)
		snprintf(room, bytes, "-");
	else if (s >= 86400)
		snprintf(room, bytes, "%lldd %02lldh", s / 86400, s / 3600 % 24);
	else if (s >= 3600)
		snprintf(room, bytes, "%lldh %02lldm", s / 3600, s / 60 % 60);
	else
		snprintf(room, bytes, "%lldm %02llds", s / 60, s % 60);
}

static void put_total(int64_t total, char *room, size_t bytes)
{
	if (total >= 0)
		snprintf(room, bytes, " of %" PRId64, total);
	else
		room[0] = '\0';
}

void progress_bar(const struct progress_count *c, int columns, char *room, size_t bytes)
{
	enum { LEAST = 4, MOST = 40 };
	char left[32], total[32], words[200], bar[MOST + 1];
	put_left(progress_left_s(c), left, sizeof left);
	put_total(c->total, total, sizeof total);
	int n = snprintf(words, sizeof words, " %" PRId64 "%s requests  %.0f tokens/s  %s left", c->done, total, c->recent_tokens_per_s, left);
	int wide = columns - n - 10;
	wide = wide > MOST ? MOST : wide;
	if (c->total < 0 || wide < LEAST) {
		snprintf(room, bytes, "%.*s", columns > 1 ? columns - 1 : 0, words + 1);
		return;
	}
	double share = c->total > 0 ? (double)c->done / (double)c->total : 1;
	int filled = share < 1 ? (int)(share * wide) : wide;
	for (int i = 0; i < wide; i++)
		bar[i] = i < filled ? '#' : '.';
	bar[wide] = '\0';
	snprintf(room, bytes, "[%s] %3.0f %%%s", bar, share < 1 ? share * 100 : 100, words);
}

void progress_line(const struct progress_count *c, char *room, size_t bytes)
{
	char left[32], total[32];
	double left_s = progress_left_s(c);
	put_left(left_s, left, sizeof left);
	put_total(c->total, total, sizeof total);
	snprintf(room, bytes, "batch: %" PRId64 "%s requests done, %" PRId64 " at work, %.0f tokens/s%s%s%s", c->done, total, c->running,
		 c->recent_tokens_per_s, left_s < 0 ? "" : ", ", left_s < 0 ? "" : left, left_s < 0 ? "" : " left");
}

int64_t progress_count_lines(const char *path)
{
	enum { MOST_BYTES = 1 << 30, ROOM = 1 << 16 };
	char room[ROOM], last = '\n';
	struct stat st;
	int64_t lines = 0;
	ssize_t n = -1;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= MOST_BYTES)
		while ((n = read(fd, room, sizeof room)) > 0) {
			for (const char *c = room; (c = memchr(c, '\n', (size_t)(room + n - c))) != NULL; c++)
				lines++;
			last = room[n - 1];
		}
	close(fd);
	return n < 0 ? -1 : lines + (last != '\n');
}

static int columns_of_terminal(void)
{
	struct winsize w;
	return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col > 0 ? w.ws_col : 80;
}

void progress_show(struct progress_state *s, struct progress_count *c, long long now_us)
{
	char text[256];
	int draws = log_status_is_shown();
	if (now_us - s->window_us >= WINDOW_US || !s->window_us) {
		long long since = s->window_us ? s->window_us : s->began_us;
		s->recent = now_us > since ? (double)(c->tokens - s->window_tokens) / ((double)(now_us - since) * 1e-6) : 0;
		s->window_us = now_us;
		s->window_tokens = c->tokens;
	}
	c->seconds = (double)(now_us - s->began_us) * 1e-6;
	c->recent_tokens_per_s = s->recent > 0 || c->seconds <= 0 ? s->recent : (double)c->tokens / c->seconds;
	if (draws && now_us - s->drawn_us >= DRAW_US) {
		s->drawn_us = now_us;
		progress_bar(c, columns_of_terminal(), text, sizeof text);
		log_status(text);
	} else if (!draws && now_us - s->said_us >= SAY_US) {
		s->said_us = now_us;
		progress_line(c, text, sizeof text);
		LOG_ROOT(INFO, "%s", text);
	}
}

void progress_hide(void) { log_status(NULL); }
