/* Runs of an invented batch over the journal, whose writes and syncs a test can cut short, fail, kill or freeze. */
#ifndef SHARDRUN_TESTS_JOURNAL_RUNS_H
#define SHARDRUN_TESTS_JOURNAL_RUNS_H

#include "base/bytes.h"
#include "base/clock.h"
#include "launcher/journal.h"
#include "tests/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A folder in memory where there is one: what is tested is order, not what a disk keeps without power. */
static char folder[64];
static char names[32][300];
static int n_names;

/* Good until the test ends; the same name gives the same text. */
static inline const char *in_folder(const char *name)
{
	char path[300];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	for (int i = 0; i < n_names; i++)
		if (!strcmp(names[i], path))
			return names[i];
	if (n_names == 32)
		abort();
	return strcpy(names[n_names++], path);
}

static inline void remove_tree(const char *path)
{
	char inner[600];
	DIR *dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(inner, sizeof inner, "%.300s/%.255s", path, e->d_name);
		if (unlink(inner))
			remove_tree(inner);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static inline void begin(void)
{
	strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/shardrun-test-XXXXXX" : "/dev/shm/shardrun-XXXXXX");
	if (!mkdtemp(folder))
		abort();
}

static inline void end(void)
{
	remove_tree(folder);
	n_names = 0;
}

static inline int load(const char *path, struct bytes *out)
{
	char part[65536];
	int fd = open(path, O_RDONLY);
	bytes_clear(out);
	if (fd < 0)
		return 0;
	for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;)
		bytes_put(out, part, (size_t)n);
	close(fd);
	return 1;
}

static inline void store(const char *path, const void *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
		abort();
	close(fd);
}

/* The batch that is run: line i's result follows from i. */

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 29;
}

static int signed_results;   /* with the process that made it */

static inline size_t make_result(uint64_t line, char *room, size_t longest)
{
	size_t n = (size_t)snprintf(room, 64, "{\"line\":%llu,\"text\":\"", (unsigned long long)line);
	size_t until = n + (size_t)(mix(line) % longest);
	for (; n < until; n++)
		room[n] = (char)('a' + mix(line * 4096 + n) % 26);
	return n + (size_t)sprintf(room + n, "\",\"by\":%d}", signed_results ? (int)getpid() : 0);
}

static inline uint64_t digest_of(uint64_t lines) { return mix(lines + 12345); }

static inline void expect(uint64_t n_lines, size_t longest, struct bytes *out)
{
	char room[8192];
	bytes_clear(out);
	for (uint64_t i = 0; i < n_lines; i++) {
		bytes_put(out, room, make_result(i, room, longest));
		bytes_put(out, "\n", 1);
	}
}

/* What befalls a run; shared between processes. */
struct fate {
	int64_t writes_left, syncs_left;   /* before a write or sync: when 0, it happens; -1: never */
	int at_write;                      /* 'k' killed halfway, 's' stopped halfway, 'f' disk full, 'q' quota, 'e' error */
	int at_sync;                       /* 'k', 'e', 's' after the sync */
	unsigned char counted[4096];       /* by line */
	pid_t counted_by[4096];
	int64_t n_computed, n_twice;       /* results that were computed; of lines that had been counted */
};
static struct fate *fate;

static inline void die(int how)
{
	raise(how == 's' ? SIGSTOP : SIGKILL);
}

static inline ssize_t fate_write(void *context, int fd, const void *data, size_t bytes, off_t at)
{
	struct fate *f = context;
	size_t some = bytes > 1 ? 1 + (size_t)(mix(bytes + (uint64_t)f->writes_left) % bytes) : bytes;   /* a short write */
	if (f->writes_left == 0) {
		f->writes_left = -1;
		if (f->at_write == 'f' || f->at_write == 'q' || f->at_write == 'e') {
			if (pwrite(fd, data, bytes / 2, at) < 0)
				return -1;
			errno = f->at_write == 'f' ? ENOSPC : f->at_write == 'q' ? EDQUOT : EIO;
			return -1;
		}
		some = bytes / 2;
		ssize_t n = pwrite(fd, data, some, at);
		die(f->at_write);
		return n;
	}
	if (f->writes_left > 0)
		f->writes_left--;
	return at < 0 ? write(fd, data, some) : pwrite(fd, data, some, at);
}

static inline int fate_sync(void *context, int fd)
{
	struct fate *f = context;
	(void)fd;
	if (f->syncs_left == 0) {
		f->syncs_left = -1;
		if (f->at_sync == 'e') {
			errno = EIO;
			return -1;
		}
		die(f->at_sync);
	}
	if (f->syncs_left > 0)
		f->syncs_left--;
	return 0;
}

static struct journal_io fate_io = { .write = fate_write, .sync = fate_sync };

static inline void fate_make(void)
{
	fate = mmap(NULL, sizeof *fate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fate == MAP_FAILED)
		abort();
	fate->writes_left = fate->syncs_left = -1;
	fate_io.context = fate;
}

static inline void fate_free(void) { munmap(fate, sizeof *fate); }

struct batch {
	uint64_t n_lines;
	size_t longest, window;        /* of results; of requests that are under way at once */
	uint64_t stop_after;           /* results, then the run ends as on TERM; 0: none */
	struct journal_config config;
	int real_clock;
};

static struct batch batch_of(uint64_t n_lines, size_t longest)
{
	struct batch b = { .n_lines = n_lines, .longest = longest, .window = 16 };
	b.config = (struct journal_config){ .output = in_folder("out.jsonl"), .identity = "model=a\nseed=1\n", .created = 77,
					    .host = "here", .group_bytes = 2048, .io = &fate_io };
	return b;
}

/* Requests under way are finished in a shuffled order, as an engine would. */
struct under_way { uint64_t lines[64]; size_t n; uint64_t made[4096]; size_t n_made; };

static inline enum err finish_one(struct journal *j, const struct batch *b, struct under_way *u, long long now)
{
	char room[8192];
	size_t which = (size_t)(mix((uint64_t)fate->n_computed + 7) % u->n);
	uint64_t line = u->lines[which], before = journal_counted(j);
	u->lines[which] = u->lines[--u->n];
	__atomic_fetch_add(&fate->n_computed, 1, __ATOMIC_RELAXED);
	if (fate->counted[line])
		__atomic_fetch_add(&fate->n_twice, 1, __ATOMIC_RELAXED);
	u->made[u->n_made++] = line;
	enum err e = journal_append(j, line, room, make_result(line, room, b->longest), line % 10 == 3, now);
	if (!e)
		e = journal_tick(j, now);
	if (!e && journal_counted(j) != before) {
		for (size_t i = 0; i < u->n_made; i++)
			fate->counted[u->made[i]] = 1, fate->counted_by[u->made[i]] = getpid();
		u->n_made = 0;
	}
	return e;
}

static inline enum err run_owned(struct journal *j, const struct batch *b, long long now)
{
	struct under_way *u = calloc(1, sizeof *u);
	enum err e = ERR_OK;
	uint64_t made = 0;
	for (uint64_t i = 0; !e && i < b->n_lines && (!b->stop_after || made < b->stop_after); i++) {
		e = journal_input(j, i + 1, digest_of(i + 1));
		if (e || journal_has(j, i))
			continue;
		u->lines[u->n++] = i;
		for (; !e && u->n == b->window; made++)
			e = finish_one(j, b, u, now += 1000);
	}
	if (!e && b->stop_after) {
		free(u);
		return journal_commit(j, now);
	}
	if (!e)
		e = journal_input_end(j);
	while (!e && u->n)
		e = finish_one(j, b, u, now += 1000);
	free(u);
	if (!e)
		e = journal_commit(j, now);
	return e ? e : journal_finish(j);
}

/* The whole of a run, as the command would do it. The clock is made up: a second for every try. */
static inline enum err run_batch(const struct batch *b, enum journal_state *state)
{
	struct journal *j = NULL;
	long long now = b->real_clock ? clock_us() : 1000000;
	enum err e = journal_create(&b->config, &j);
	if (!e)
		e = journal_acquire(j, now, state);
	while (!e && *state == JOURNAL_WAITS) {
		if (b->real_clock)
			sched_yield();
		now = b->real_clock ? clock_us() : now + 1000000;
		e = journal_acquire(j, now, state);
	}
	if (!e && *state == JOURNAL_OURS)
		e = run_owned(j, b, now);
	for (uint64_t i = 0; !e && *state == JOURNAL_DONE && i < b->n_lines; i++)
		e = journal_input(j, i + 1, digest_of(i + 1));
	if (!e && *state == JOURNAL_DONE)
		e = journal_input_end(j);
	if (!e && !b->stop_after && journal_faults(j) != (b->n_lines + 6) / 10)   /* lines 3, 13... */
		e = ERR(BUG, "there are %llu faults", (unsigned long long)journal_faults(j));
	journal_destroy(j);
	return e;
}

static inline pid_t fork_run(const struct batch *b)
{
	enum journal_state state;
	pid_t pid = fork();
	if (pid < 0)
		abort();
	if (!pid) {
		enum err e = run_batch(b, &state);
		if (e && e != ERR_WORK)
			fprintf(stderr, "%s\n", err_sentence());
		_exit(e ? 1 : 0);
	}
	return pid;
}

static inline int output_is(const struct batch *b, const struct bytes *want)
{
	struct bytes got = { 0 };
	int same = load(b->config.output, &got) && got.size == want->size && !memcmp(got.data, want->data, got.size);
	bytes_free(&got);
	return same;
}

static inline int count_files(const char *path)
{
	int n = 0;
	DIR *dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));)
		n += e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

/* Runs again and again until one run ends by itself; gives the number of runs that were killed. */
static inline int run_to_end(const struct batch *b)
{
	int killed = 0, status = 0;
	for (;;) {
		pid_t pid = fork_run(b);
		waitpid(pid, &status, 0);
		if (WIFEXITED(status))
			break;
		killed++;
		fate->writes_left = fate->syncs_left = -1;
	}
	CU_ASSERT_EQUAL(WEXITSTATUS(status), 0);
	return killed;
}

static inline void clean(const struct batch *b)
{
	char path[400];
	unlink(b->config.output);
	snprintf(path, sizeof path, "%s.journal", b->config.output);
	remove_tree(path);
	memset(fate->counted, 0, sizeof fate->counted);
	fate->n_computed = fate->n_twice = 0;
	fate->writes_left = fate->syncs_left = -1;
}

#endif
