/* The journal: runs that are killed at every write, at random moments, frozen, or out of room, and the output that comes of it.
 * timeout: 300 */
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
static const char *in_folder(const char *name)
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

static void remove_tree(const char *path)
{
	char inner[600];
	DIR *dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
		if (unlink(inner))
			remove_tree(inner);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static void begin(void)
{
	strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/shardrun-test-XXXXXX" : "/dev/shm/shardrun-XXXXXX");
	if (!mkdtemp(folder))
		abort();
}

static void end(void)
{
	remove_tree(folder);
	n_names = 0;
}

static int load(const char *path, struct bytes *out)
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

static void store(const char *path, const void *data, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
		abort();
	close(fd);
}

/* The batch that is run: line i's result follows from i. */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 29;
}

static int signed_results;   /* with the process that made it */

static size_t make_result(uint64_t line, char *room, size_t longest)
{
	size_t n = (size_t)snprintf(room, 64, "{\"line\":%llu,\"text\":\"", (unsigned long long)line);
	size_t until = n + (size_t)(mix(line) % longest);
	for (; n < until; n++)
		room[n] = (char)('a' + mix(line * 4096 + n) % 26);
	return n + (size_t)sprintf(room + n, "\",\"by\":%d}", signed_results ? (int)getpid() : 0);
}

static uint64_t digest_of(uint64_t lines) { return mix(lines + 12345); }

static void expect(uint64_t n_lines, size_t longest, struct bytes *out)
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

static void die(int how)
{
	raise(how == 's' ? SIGSTOP : SIGKILL);
}

static ssize_t fate_write(void *context, int fd, const void *data, size_t bytes, off_t at)
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

static int fate_sync(void *context, int fd)
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

static void fate_make(void)
{
	fate = mmap(NULL, sizeof *fate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fate == MAP_FAILED)
		abort();
	fate->writes_left = fate->syncs_left = -1;
	fate_io.context = fate;
}

static void fate_free(void) { munmap(fate, sizeof *fate); }

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

static enum err finish_one(struct journal *j, const struct batch *b, struct under_way *u, long long now)
{
	char room[8192];
	size_t which = (size_t)(mix((uint64_t)fate->n_computed + 7) % u->n);
	uint64_t line = u->lines[which], before = journal_counted(j);
	u->lines[which] = u->lines[--u->n];
	__atomic_fetch_add(&fate->n_computed, 1, __ATOMIC_RELAXED);
	if (fate->counted[line])
		__atomic_fetch_add(&fate->n_twice, 1, __ATOMIC_RELAXED);
	u->made[u->n_made++] = line;
	enum err e = journal_append(j, line, room, make_result(line, room, b->longest), now);
	if (!e)
		e = journal_tick(j, now);
	if (!e && journal_counted(j) != before) {
		for (size_t i = 0; i < u->n_made; i++)
			fate->counted[u->made[i]] = 1, fate->counted_by[u->made[i]] = getpid();
		u->n_made = 0;
	}
	return e;
}

static enum err run_owned(struct journal *j, const struct batch *b, long long now)
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
static enum err run_batch(const struct batch *b, enum journal_state *state)
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
	journal_destroy(j);
	return e;
}

static pid_t fork_run(const struct batch *b)
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

static int output_is(const struct batch *b, const struct bytes *want)
{
	struct bytes got = { 0 };
	int same = load(b->config.output, &got) && got.size == want->size && !memcmp(got.data, want->data, got.size);
	bytes_free(&got);
	return same;
}

static int count_files(const char *path)
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
static int run_to_end(const struct batch *b)
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

static void clean(const struct batch *b)
{
	char path[400];
	unlink(b->config.output);
	snprintf(path, sizeof path, "%s.journal", b->config.output);
	remove_tree(path);
	memset(fate->counted, 0, sizeof fate->counted);
	fate->n_computed = fate->n_twice = 0;
	fate->writes_left = fate->syncs_left = -1;
}

TEST(an_undisturbed_run_and_the_same_command_again)
{
	enum journal_state state;
	struct bytes want = { 0 };
	begin();
	fate_make();
	struct batch b = batch_of(300, 900);
	expect(300, 900, &want);
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_OURS);
	CU_ASSERT_TRUE(output_is(&b, &want));
	CU_ASSERT_EQUAL(fate->n_computed, 300);
	CU_ASSERT_EQUAL(count_files(in_folder("out.jsonl.journal")), 1);   /* done */
	for (int i = 0; i < 3; i++) {
		CHECK_OK(run_batch(&b, &state));
		CU_ASSERT_EQUAL(state, JOURNAL_DONE);
	}
	CU_ASSERT_EQUAL(fate->n_computed, 300);
	b.n_lines = 301;
	CHECK_ERR(run_batch(&b, &state), WORK, "belongs to another input: that one had 300 lines, this one has 301");
	b.n_lines = 299;
	CHECK_ERR(run_batch(&b, &state), WORK, "another input");
	b.n_lines = 300;
	b.config.identity = "model=a\nseed=2\n";
	CHECK_ERR(run_batch(&b, &state), WORK, "there \"seed=1\", here \"seed=2\"");
	b.config.identity = "model=a\nseed=1\n";
	CU_ASSERT_TRUE(output_is(&b, &want));
	unlink(b.config.output);   /* the output is gone: begin again */
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_OURS);
	CU_ASSERT_TRUE(output_is(&b, &want));
	CU_ASSERT_EQUAL(fate->n_computed, 600);
	bytes_free(&want);
	fate_free();
	end();
}

TEST(killed_in_every_write_and_every_sync)
{
	struct bytes want = { 0 };
	int killed = 1, total = 0;
	begin();
	fate_make();
	struct batch b = batch_of(40, 600);
	expect(40, 600, &want);
	for (int of_sync = 0; of_sync < 2; of_sync++) {
		killed = 1;
		for (int64_t nth = 0; killed; nth++) {
			clean(&b);
			*(of_sync ? &fate->syncs_left : &fate->writes_left) = nth;
			*(of_sync ? &fate->at_sync : &fate->at_write) = 'k';
			killed = run_to_end(&b);
			total += killed;
			CU_ASSERT_TRUE(output_is(&b, &want));
			CU_ASSERT_EQUAL(fate->n_twice, 0);
		}
	}
	printf(" (%d kills)", total);
	CU_ASSERT_TRUE(total > 30);
	bytes_free(&want);
	fate_free();
	end();
}

static void kill_at_random_moments(int unordered)
{
	struct bytes want = { 0 };
	int status, total = 0;
	begin();
	fate_make();
	struct batch b = batch_of(400, 300);
	b.config.unordered = unordered;
	expect(400, 300, &want);
	for (int round = 0; total < 150; round++) {
		clean(&b);
		for (int run = 0;; run++) {
			uint64_t r = mix((uint64_t)round * 1000 + (uint64_t)run + 1);
			fate->at_write = fate->at_sync = 'k';
			fate->writes_left = r % 3 ? -1 : (int64_t)(r >> 8 & 31);
			pid_t pid = fork_run(&b);
			clock_sleep_us((long long)(r >> 20 & 2047));
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			if (WIFEXITED(status) && !WEXITSTATUS(status))
				break;
			total += WIFSIGNALED(status);
			CU_ASSERT_TRUE_FATAL(WIFSIGNALED(status) && run < 1000);
		}
		if (!unordered)
			CU_ASSERT_TRUE(output_is(&b, &want));
		CU_ASSERT_EQUAL(fate->n_twice, 0);
	}
	if (unordered) {   /* every line once, in any order */
		struct bytes got = { 0 };
		unsigned char seen[400] = { 0 };
		CU_ASSERT_TRUE(load(b.config.output, &got));
		CU_ASSERT_EQUAL(got.size, want.size);
		for (char *at = (char *)got.data, *to; at && *at && (to = strchr(at, '\n')); at = to + 1) {
			char room[8192];
			uint64_t line = strtoull(at + 8, NULL, 10);
			size_t n = line < 400 ? make_result(line, room, 300) : 0;
			CU_ASSERT_TRUE(n == (size_t)(to - at) && !memcmp(room, at, n) && !seen[line]++);
		}
		CU_ASSERT_PTR_NULL(memchr(seen, 0, sizeof seen));
		bytes_free(&got);
	}
	printf(" (%d kills)", total);
	bytes_free(&want);
	fate_free();
	end();
}

TEST(killed_at_random_moments) { kill_at_random_moments(0); }
TEST(killed_at_random_moments_unordered) { kill_at_random_moments(1); }

TEST(stopped_runs_go_on_where_they_were)
{
	enum journal_state state;
	struct bytes want = { 0 };
	begin();
	fate_make();
	struct batch b = batch_of(200, 500);
	expect(200, 500, &want);
	b.stop_after = 37;
	for (int i = 0; i < 4; i++)
		CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_EQUAL(fate->n_computed, 4 * 37);
	b.stop_after = 0;
	b.config.created = 99;
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_EQUAL(fate->n_computed, 200);
	CU_ASSERT_TRUE(output_is(&b, &want));
	bytes_free(&want);
	fate_free();
	end();
}

TEST(created_and_fingerprint_stay)
{
	struct journal *j;
	enum journal_state state;
	begin();
	fate_make();
	struct batch b = batch_of(10, 50);
	CHECK_OK(journal_create(&b.config, &j));
	CHECK_OK(journal_acquire(j, 0, &state));
	uint64_t fingerprint = journal_fingerprint(j);
	journal_destroy(j);
	b.config.created = 5555;
	CHECK_OK(journal_create(&b.config, &j));
	CHECK_OK(journal_acquire(j, 0, &state));
	CU_ASSERT_EQUAL(journal_created(j), 77);
	CU_ASSERT_EQUAL(journal_fingerprint(j), fingerprint);
	CHECK_ERR(journal_finish(j), BUG, "before every line");
	CHECK_OK(journal_append(j, 3, "x", 1, 0));
	CHECK_ERR(journal_append(j, 3, "x", 1, 0), BUG, "line 4 has a result already");
	CHECK_ERR(journal_append(j, 4, "x\ny", 3, 0), BUG, "newline");
	CU_ASSERT_EQUAL(journal_counted(j), 0);
	CHECK_OK(journal_tick(j, 1999999));
	CU_ASSERT_EQUAL(journal_counted(j), 0);
	CHECK_OK(journal_tick(j, 2000000));
	CU_ASSERT_EQUAL(journal_counted(j), 1);
	journal_destroy(j);
	fate_free();
	end();
}

TEST(another_input_is_refused)
{
	enum journal_state state;
	struct journal *j;
	begin();
	fate_make();
	struct batch b = batch_of(60, 300);
	b.stop_after = 30;
	CHECK_OK(run_batch(&b, &state));
	CHECK_OK(journal_create(&b.config, &j));
	CHECK_OK(journal_acquire(j, 0, &state));
	enum err e = ERR_OK;
	uint64_t at = 0;
	while (!e && at < 60) {
		at++;
		e = journal_input(j, at, digest_of(at) + 1);
	}
	CHECK_ERR(e, WORK, "belongs to another input: the first 45 lines were different");   /* 30 made, 15 under way */
	CU_ASSERT_EQUAL(at, 45);
	CHECK_OK(journal_input(j, 20, digest_of(20)));
	CHECK_ERR(journal_input_end(j), WORK, "had at least 45 lines, this one has 20");
	journal_destroy(j);
	/* Results that come before the input is known to be the same are not kept when it is not. */
	CHECK_OK(journal_create(&b.config, &j));
	CHECK_OK(journal_acquire(j, 0, &state));
	CU_ASSERT_EQUAL(journal_known_lines(j), 45);
	uint64_t before = journal_counted(j), lacking = 0;
	while (journal_has(j, lacking))
		lacking++;
	CU_ASSERT_TRUE(lacking < 45);
	CHECK_OK(journal_input(j, lacking + 1, digest_of(lacking + 1) + 1));
	CHECK_OK(journal_append(j, lacking, "of another input", 16, 0));
	CHECK_OK(journal_commit(j, 0));
	CU_ASSERT_EQUAL(journal_counted(j), before);
	CHECK_ERR(journal_input(j, 45, digest_of(45) + 1), WORK, "belongs to another input");
	journal_destroy(j);
	CHECK_OK(journal_create(&b.config, &j));
	CHECK_OK(journal_acquire(j, 0, &state));
	CU_ASSERT_TRUE(journal_counted(j) == before && !journal_has(j, lacking));
	CHECK_OK(journal_append(j, lacking, "of this input", 13, 0));
	CHECK_OK(journal_input(j, 45, digest_of(45)));
	CHECK_OK(journal_commit(j, 0));
	CU_ASSERT_EQUAL(journal_counted(j), before + 1);
	journal_destroy(j);
	b.config.identity = "model=b\n";
	CHECK_ERR(run_batch(&b, &state), WORK, "there \"model=a\", here \"model=b\"");
	b.config.identity = "model=a\n";
	CHECK_ERR(run_batch(&b, &state), WORK, "there \"seed=1\", here \"\"");
	fate_free();
	end();
}

TEST(what_stands_at_the_output_is_not_lost)
{
	enum journal_state state;
	struct bytes want = { 0 };
	begin();
	fate_make();
	struct batch b = batch_of(20, 100);
	expect(20, 100, &want);
	store(b.config.output, "mine\n", 5);
	CHECK_ERR(run_batch(&b, &state), WORK, "is there already and has no journal");
	CU_ASSERT_EQUAL(count_files(in_folder("out.jsonl.journal")), 0);
	store(b.config.output, "", 0);   /* as mktemp leaves it */
	b.stop_after = 3;
	CHECK_OK(run_batch(&b, &state));
	store(b.config.output, "mine\n", 5);
	b.stop_after = 0;
	CHECK_ERR(run_batch(&b, &state), WORK, "appeared while the batch ran");
	CU_ASSERT_FALSE(output_is(&b, &want));
	unlink(b.config.output);
	store(in_folder("elsewhere"), "", 0);
	CU_ASSERT_EQUAL(symlink(in_folder("elsewhere"), in_folder("link")), 0);
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_TRUE(output_is(&b, &want));
	b.config.output = in_folder("link");
	CHECK_OK(run_batch(&b, &state));
	b.config.output = in_folder("elsewhere");
	CU_ASSERT_TRUE(output_is(&b, &want));
	b.config.output = "/dev/null";
	CHECK_ERR(run_batch(&b, &state), USAGE, "not a regular file");
	b.config.output = in_folder("nowhere/out");
	CHECK_ERR(run_batch(&b, &state), IO, "cannot be made");
	bytes_free(&want);
	fate_free();
	end();
}

TEST(lines_to_a_pipe)
{
	struct bytes want = { 0 }, got = { 0 };
	enum journal_state state;
	begin();
	fate_make();
	struct batch b = batch_of(100, 200);
	expect(100, 200, &want);
	b.window = 2;
	b.config.output = NULL;
	b.config.directory = in_folder("piped");
	for (int run = 0; run < 2; run++) {
		b.stop_after = run ? 0 : 50;
		b.config.output_fd = open(in_folder("pipe"), O_RDWR | O_CREAT | O_TRUNC, 0600);
		CHECK_OK(run_batch(&b, &state));
		close(b.config.output_fd);
		CU_ASSERT_TRUE(load(in_folder("pipe"), &got));
		CU_ASSERT_TRUE(got.size && (run ? got.size == want.size : got.size < want.size) && !memcmp(got.data, want.data, got.size));
	}
	CU_ASSERT_EQUAL(fate->n_computed, 100);
	CU_ASSERT_NOT_EQUAL(access(in_folder("piped"), F_OK), 0);
	bytes_free(&want);
	bytes_free(&got);
	fate_free();
	end();
}

TEST(many_runs_at_once_make_one_output)
{
	struct bytes want = { 0 };
	pid_t pids[8];
	int status;
	begin();
	fate_make();
	struct batch b = batch_of(400, 300);
	expect(400, 300, &want);
	b.real_clock = 1;
	for (int i = 0; i < 8; i++)
		pids[i] = fork_run(&b);
	for (int i = 0; i < 8; i++) {
		waitpid(pids[i], &status, 0);
		CU_ASSERT_TRUE(WIFEXITED(status) && !WEXITSTATUS(status));
	}
	CU_ASSERT_TRUE(output_is(&b, &want));
	CU_ASSERT_EQUAL(fate->n_computed, 400);
	bytes_free(&want);
	fate_free();
	end();
}

/* Is every line there, with the result that was counted? */
static int output_is_as_counted(const struct batch *b)
{
	char line[8192];
	uint64_t n = 0;
	FILE *f = fopen(b->config.output, "r");
	for (; f && fgets(line, sizeof line, f); n++) {
		const char *by = strstr(line, "\"by\":");
		if (strtoull(line + 8, NULL, 10) != n || !by || (fate->counted[n] && atoi(by + 5) != (int)fate->counted_by[n]))
			break;
	}
	if (f)
		fclose(f);
	return n == b->n_lines;
}

/* Every run steals from every other all the time: what was counted is still never lost. */
TEST(runs_that_steal_from_each_other)
{
	pid_t pids[4];
	int status, stolen = 0;
	begin();
	fate_make();
	struct batch b = batch_of(2000, 300);
	signed_results = 1;
	b.real_clock = 1;
	b.config.lease_us = 1;
	for (int i = 0; i < 4; i++)
		pids[i] = fork_run(&b);
	for (int left = 4; left;)
		for (int i = 0; i < 4; i++) {
			if (!pids[i] || waitpid(pids[i], &status, WNOHANG) != pids[i])
				continue;
			CU_ASSERT_TRUE(WIFEXITED(status));
			stolen += WEXITSTATUS(status) != 0;
			pids[i] = WEXITSTATUS(status) && stolen < 40 ? fork_run(&b) : 0;
			left -= !pids[i];
		}
	b.config.lease_us = 0;
	CU_ASSERT_EQUAL(run_to_end(&b), 0);
	printf(" (%d were robbed)", stolen);
	CU_ASSERT_TRUE(stolen > 0);
	CU_ASSERT_TRUE(output_is_as_counted(&b));
	signed_results = 0;
	fate_free();
	end();
}

/* A run freezes (before its write, in the middle of it, after its fsync), another takes over after the lease, the first wakes. */
static void freeze(int where, int when_it_wakes)
{
	struct journal *j = NULL;
	enum journal_state state;
	int status;
	char pid_text[32];
	fate_make();
	struct batch b = batch_of(120, 400);
	signed_results = 1;
	*(where == 's' ? &fate->syncs_left : &fate->writes_left) = 11;
	fate->at_sync = fate->at_write = 's';
	pid_t pid = fork_run(&b);
	CU_ASSERT_TRUE_FATAL(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	struct batch second = b;
	second.config.host = "there";
	CHECK_OK(journal_create(&second.config, &j));
	CHECK_OK(journal_acquire(j, 0, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_WAITS);
	snprintf(pid_text, sizeof pid_text, "process %d", (int)pid);
	CU_ASSERT_PTR_NOT_NULL(strstr(journal_holder(j), "host here"));
	CU_ASSERT_PTR_NOT_NULL(strstr(journal_holder(j), pid_text));
	CHECK_OK(journal_acquire(j, 59999999, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_WAITS);
	CHECK_OK(journal_acquire(j, 60000000, &state));
	CU_ASSERT_EQUAL_FATAL(state, JOURNAL_OURS);
	if (when_it_wakes == 0) {
		kill(pid, SIGCONT);
		waitpid(pid, &status, 0);
	}
	CHECK_OK(run_owned(j, &b, 60000000));
	if (when_it_wakes == 1) {
		kill(pid, SIGCONT);
		waitpid(pid, &status, 0);
	}
	CU_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	journal_destroy(j);
	CU_ASSERT_TRUE(output_is_as_counted(&b));
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_DONE);
	clean(&b);
	signed_results = 0;
	fate_free();
}

TEST(a_frozen_owner_wakes_and_does_no_harm)
{
	begin();
	for (int wakes = 0; wakes < 2; wakes++) {
		freeze('w', wakes);
		freeze('s', wakes);
	}
	end();
}

/* The frozen one writes on in its file, and then a third run reads it all. */
TEST(what_a_fenced_run_wrote_is_never_read)
{
	struct journal *a, *c;
	enum journal_state state;
	struct bytes got = { 0 };
	begin();
	fate_make();
	struct batch b = batch_of(3, 10);
	b.config.lease_us = 10;
	CHECK_OK(journal_create(&b.config, &a));
	CHECK_OK(journal_acquire(a, 0, &state));
	CHECK_OK(journal_append(a, 0, "first", 5, 0));
	CHECK_OK(journal_commit(a, 0));
	CHECK_OK(journal_append(a, 1, "not counted", 11, 0));
	CHECK_OK(journal_create(&b.config, &c));
	CHECK_OK(journal_acquire(c, 0, &state));
	CHECK_OK(journal_acquire(c, 10, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_OURS);
	CU_ASSERT_TRUE(journal_has(c, 0) && !journal_has(c, 1));
	CHECK_ERR(journal_commit(a, 20), WORK, "no longer owns the journal, which is held by host here, process");
	CHECK_ERR(journal_append(a, 2, "x", 1, 20), WORK, "failed before");
	CU_ASSERT_EQUAL(journal_counted(a), 1);
	journal_destroy(a);
	CHECK_OK(journal_append(c, 1, "second", 6, 20));
	CHECK_OK(journal_commit(c, 20));
	journal_destroy(c);   /* released: no waiting */
	CHECK_OK(journal_create(&b.config, &c));
	CHECK_OK(journal_acquire(c, 0, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_OURS);
	CHECK_OK(journal_append(c, 2, "third", 5, 20));
	CHECK_OK(journal_input(c, 3, 1));
	CHECK_OK(journal_input_end(c));
	CHECK_OK(journal_commit(c, 20));
	CU_ASSERT_TRUE(journal_complete(c));
	CHECK_OK(journal_finish(c));
	journal_destroy(c);
	CU_ASSERT_TRUE(load(b.config.output, &got));
	CU_ASSERT_STRING_EQUAL(bytes_text(&got), "first\nsecond\nthird\n");
	bytes_free(&got);
	fate_free();
	end();
}

TEST(an_earlier_start_of_the_same_job_is_not_waited_for)
{
	struct journal *a, *c;
	enum journal_state state;
	begin();
	fate_make();
	struct batch b = batch_of(3, 10);
	b.config.job = "4711";
	CHECK_OK(journal_create(&b.config, &a));
	CHECK_OK(journal_acquire(a, 0, &state));
	CHECK_OK(journal_create(&b.config, &c));
	CHECK_OK(journal_acquire(c, 0, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_WAITS);
	CU_ASSERT_PTR_NOT_NULL(strstr(journal_holder(c), "job 4711"));
	for (int i = 1; i < 20; i++) {   /* the first renews its lease, for as long as it likes */
		CHECK_OK(journal_tick(a, i * 15000000LL));
		CHECK_OK(journal_acquire(c, i * 15000000LL, &state));
		CU_ASSERT_EQUAL(state, JOURNAL_WAITS);
	}
	journal_destroy(c);
	b.config.restart = 1;
	CHECK_OK(journal_create(&b.config, &c));
	CHECK_OK(journal_acquire(c, 0, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_OURS);
	CHECK_ERR(journal_tick(a, 400000000LL), WORK, "no longer owns");
	journal_destroy(a);
	CHECK_OK(journal_tick(c, 500000000LL));
	journal_destroy(c);
	fate_free();
	end();
}

/* A write or sync fails, each in turn: one sentence, nothing counted is lost, and the next run ends the work. */
static void fail_each(int how, const char *sentence)
{
	struct bytes want = { 0 };
	enum journal_state state;
	begin();
	fate_make();
	struct batch b = batch_of(40, 600);
	expect(40, 600, &want);
	for (int of_sync = 0; of_sync < 1 + (how == 'e'); of_sync++) {
		int failed = 1, n = 0;
		for (int64_t nth = 0; failed; nth++) {
			clean(&b);
			*(of_sync ? &fate->syncs_left : &fate->writes_left) = nth;
			fate->at_write = fate->at_sync = how;
			enum err e = run_batch(&b, &state);
			failed = e != ERR_OK;
			n += failed;
			if (failed)
				CHECK_ERR(e, IO, sentence);
			fate->writes_left = fate->syncs_left = -1;
			CHECK_OK(run_batch(&b, &state));
			CU_ASSERT_TRUE(output_is(&b, &want));
			CU_ASSERT_EQUAL(fate->n_twice, 0);
		}
		CU_ASSERT_TRUE(n > 5);
	}
	bytes_free(&want);
	fate_free();
	end();
}

TEST(full_disks) { fail_each('f', "the disk is full"); }
TEST(used_up_quotas) { fail_each('q', "the quota is used up"); }
TEST(failing_disks) { fail_each('e', "Input/output error"); }

/* In a process of its own: a limit on files' sizes, or a small file system. */
static int run_limited(const struct batch *b, int by_mount, const char *mount_point)
{
	int status;
	pid_t pid = fork();
	if (pid < 0)
		abort();
	if (!pid) {
		enum journal_state state;
		struct bytes want = { 0 };
		struct batch whole = *b;
		expect(b->n_lines, b->longest, &want);
		whole.config.io = NULL;
		if (by_mount && (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
				 mount("none", mount_point, "tmpfs", 0, "size=64k")))
			_exit(77);
		signal(SIGXFSZ, SIG_IGN);
		struct rlimit most = { 20000, RLIM_INFINITY }, none = { RLIM_INFINITY, RLIM_INFINITY };
		if (!by_mount && setrlimit(RLIMIT_FSIZE, &most))
			_exit(77);
		if (run_batch(&whole, &state) != ERR_IO)
			_exit(1);
		fprintf(stderr, " (%s)", err_sentence());
		if (!strstr(err_sentence(), by_mount ? "the disk is full" : "a file may not grow"))
			_exit(2);
		if (by_mount ? mount("none", mount_point, "tmpfs", MS_REMOUNT, "size=10m") : setrlimit(RLIMIT_FSIZE, &none))
			_exit(3);
		if (run_batch(&whole, &state) != ERR_OK || fate->n_twice || !output_is(&whole, &want))
			_exit(4);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(files_that_may_not_grow_and_a_file_system_that_is_full)
{
	begin();
	fate_make();
	struct batch b = batch_of(200, 400);
	CU_ASSERT_EQUAL(run_limited(&b, 0, NULL), 0);
	clean(&b);
	mkdir(in_folder("small"), 0700);
	b.config.output = in_folder("small/out.jsonl");
	int status = run_limited(&b, 1, in_folder("small"));
	if (status == 77)
		printf(" (skipped the small file system: no right to mount one here)");
	else
		CU_ASSERT_EQUAL(status, 0);
	fate_free();
	end();
}

/* Every byte of a journal of two owners, changed: the right output, or a sentence and no output. */

static void copy_tree(const char *from, const char *to)
{
	struct bytes text = { 0 };
	char a[600], b[600];
	remove_tree(to);
	mkdir(to, 0700);
	DIR *dir = opendir(from);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(a, sizeof a, "%s/%s", from, e->d_name);
		snprintf(b, sizeof b, "%s/%s", to, e->d_name);
		if (!load(a, &text))
			abort();
		store(b, bytes_text(&text), text.size);
	}
	if (dir)
		closedir(dir);
	bytes_free(&text);
}

struct tally { int recovered, refused; };

static void flip_file(const struct batch *b, const char *name, const struct bytes *want, struct tally *t)
{
	enum journal_state state;
	struct bytes text = { 0 };
	char kept[600], path[600];
	snprintf(kept, sizeof kept, "%s/kept/%s", folder, name);
	snprintf(path, sizeof path, "%s/out.jsonl.journal/%s", folder, name);
	if (!load(kept, &text))
		abort();
	for (size_t i = 0; i < 2 * text.size; i++) {   /* a bit changed, or the file cut */
		copy_tree(in_folder("kept"), in_folder("out.jsonl.journal"));
		unlink(b->config.output);
		unsigned char old = text.data[i / 2];
		text.data[i / 2] ^= (unsigned char)(1u << i / 2 % 8);
		store(path, text.data, i % 2 ? i / 2 : text.size);
		text.data[i / 2] = old;
		enum err e = run_batch(b, &state);
		int there = !access(b->config.output, F_OK);
		t->recovered += !e;
		t->refused += e != ERR_OK;
		if (e ? there || strlen(err_sentence()) < 20 : !output_is(b, want))
			fprintf(stderr, "%s: byte %zu: %d %s\n", name, i / 2, e, e ? err_sentence() : "wrong output");
		CU_ASSERT_TRUE(e ? !there && (e == ERR_IO || e == ERR_WORK) : output_is(b, want));
	}
	bytes_free(&text);
}

TEST(every_byte_changed)
{
	enum journal_state state;
	struct bytes want = { 0 };
	struct tally t = { 0, 0 };
	begin();
	fate_make();
	struct batch b = batch_of(12, 40);
	expect(12, 40, &want);
	b.config.group_bytes = 200;
	b.window = 3;
	b.stop_after = 4;
	CHECK_OK(run_batch(&b, &state));
	CHECK_OK(run_batch(&b, &state));
	b.stop_after = 0;
	copy_tree(in_folder("out.jsonl.journal"), in_folder("kept"));
	DIR *dir = opendir(in_folder("kept"));
	for (struct dirent *e; dir && (e = readdir(dir));)
		if (e->d_name[0] != '.')
			flip_file(&b, e->d_name, &want, &t);
	if (dir)
		closedir(dir);
	printf(" (%d recovered, %d refused)", t.recovered, t.refused);
	CU_ASSERT_TRUE(t.recovered > 100 && t.refused > 100);
	copy_tree(in_folder("kept"), in_folder("out.jsonl.journal"));
	unlink(b.config.output);
	unlink(in_folder("out.jsonl.journal/records-000001"));
	CHECK_ERR(run_batch(&b, &state), IO, "records-000001: cannot be opened");
	bytes_free(&want);
	fate_free();
	end();
}

static long peak_kib(void)
{
	char line[200];
	long kib = -1;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* A million lines, shuffled over windows of 1000, in two runs: memory stays below a megabyte or two of groups and bits. */
TEST(a_million_lines_in_flat_memory)
{
	enum { N = 1000000, WINDOW = 1000 };
	struct journal *j = NULL;
	enum journal_state state;
	char room[100];
	begin();
	fate_make();
	struct batch b = batch_of(N, 10);
	b.config.io = NULL;
	b.config.group_bytes = 0;
	long before = peak_kib();
	for (int run = 0; run < 2; run++) {
		CHECK_OK(journal_create(&b.config, &j));
		CHECK_OK(journal_acquire(j, 0, &state));
		CU_ASSERT_EQUAL(journal_counted(j), run ? N / 2 : 0);
		CHECK_OK(journal_input(j, run ? N / 2 : 0, 5));
		enum err e = ERR_OK;
		for (uint64_t i = run ? N / 2 : 0; !e && i < (run ? N : N / 2); i++) {
			uint64_t line = i - i % WINDOW + (i % WINDOW * 7 + 3) % WINDOW;
			int n = snprintf(room, sizeof room, "%07llu the result of this line", (unsigned long long)line);
			e = journal_append(j, line, room, (size_t)n, 0);
		}
		CHECK_OK(e);
		CHECK_OK(journal_input(j, run ? N : N / 2, 5));
		CHECK_OK(journal_commit(j, 0));
		if (run) {
			CHECK_OK(journal_input_end(j));
			CHECK_OK(journal_finish(j));
		}
		journal_destroy(j);
	}
	long grown = peak_kib() - before;
	FILE *f = fopen(b.config.output, "r");
	uint64_t lines = 0, wrong = 0;
	while (f && fgets(room, sizeof room, f))
		wrong += strtoull(room, NULL, 10) != lines++;
	if (f)
		fclose(f);
	CU_ASSERT_TRUE(lines == N && !wrong);
	printf(" (%ld KiB)", grown);
#ifndef __SANITIZE_ADDRESS__
	CU_ASSERT_TRUE(grown < 8192);
#endif
	fate_free();
	end();
}

TEST_MAIN("journal", CASE(an_undisturbed_run_and_the_same_command_again), CASE(killed_in_every_write_and_every_sync),
	  CASE(killed_at_random_moments), CASE(killed_at_random_moments_unordered), CASE(stopped_runs_go_on_where_they_were),
	  CASE(created_and_fingerprint_stay), CASE(another_input_is_refused), CASE(what_stands_at_the_output_is_not_lost),
	  CASE(lines_to_a_pipe), CASE(many_runs_at_once_make_one_output), CASE(runs_that_steal_from_each_other),
	  CASE(a_frozen_owner_wakes_and_does_no_harm), CASE(what_a_fenced_run_wrote_is_never_read),
	  CASE(an_earlier_start_of_the_same_job_is_not_waited_for), CASE(full_disks), CASE(used_up_quotas), CASE(failing_disks),
	  CASE(files_that_may_not_grow_and_a_file_system_that_is_full), CASE(every_byte_changed),
	  CASE(a_million_lines_in_flat_memory))
