/* The journal when disks are full or fail, and when its files are not what was written.
 * timeout: 300 */
#include "base/mem.h"
#include "tests/journal_runs.h"

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

/* Each allocation of a run fails in turn. */
TEST(memory_that_runs_out)
{
	struct bytes want = { 0 };
	enum journal_state state;
	enum err e = ERR_MEMORY;
	int n = 0;
	begin();
	fate_make();
	struct batch b = batch_of(40, 600);
	expect(40, 600, &want);
	for (int nth = 1; e; nth++, n++) {
		clean(&b);
		b.stop_after = 20;
		CHECK_OK(run_batch(&b, &state));
		b.stop_after = 0;
		mem_fail_at(nth);
		e = run_batch(&b, &state);
		mem_fail_at(0);
		CU_ASSERT_TRUE(!e || e == ERR_MEMORY);
		CHECK_OK(run_batch(&b, &state));
		CU_ASSERT_TRUE(output_is(&b, &want));
		CU_ASSERT_EQUAL(fate->n_twice, 0);
	}
	printf(" (%d allocations)", n);
	CU_ASSERT_TRUE(n > 10);
	bytes_free(&want);
	fate_free();
	end();
}

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

static void change_byte(const char *path, size_t at, unsigned char by)
{
	struct bytes text = { 0 };
	CU_ASSERT_TRUE_FATAL(load(path, &text) && at < text.size);
	text.data[at] ^= by;
	store(path, text.data, text.size);
	bytes_free(&text);
}

/* In the middle of the last file there is something that no kill can have left. */
TEST(damage_in_the_middle_is_refused)
{
	enum journal_state state;
	struct bytes want = { 0 }, records = { 0 };
	char magic[] = "\x89SRG1";
	begin();
	fate_make();
	struct batch b = batch_of(60, 200);
	const char *path = in_folder("out.jsonl.journal/records-000001");
	expect(60, 200, &want);
	b.config.group_bytes = 600;
	b.stop_after = 40;
	CHECK_OK(run_batch(&b, &state));
	b.stop_after = 0;
	CU_ASSERT_TRUE(load(path, &records));
	size_t groups[100], n = 0;
	for (size_t i = 0; i + 5 < records.size; i++)
		if (!memcmp(records.data + i, magic, 5))
			groups[n++] = i;
	CU_ASSERT_TRUE_FATAL(n > 4);
	for (int of_header = 0; of_header < 2; of_header++) {
		size_t at = groups[1] + (of_header ? 9 : 100);
		char says[100];
		snprintf(says, sizeof says, "records-000001: damaged at byte %zu: a group of results is not whole, but others follow", groups[1]);
		change_byte(path, at, 4);
		CHECK_ERR(run_batch(&b, &state), IO, says);
		CHECK_ERR(run_batch(&b, &state), IO, says);   /* a refusal changes nothing */
		change_byte(path, at, 4);
	}
	change_byte(path, 20, 1);
	CHECK_ERR(run_batch(&b, &state), IO, "its header is not whole, but results follow it");
	change_byte(path, 20, 1);
	change_byte(path, groups[n - 1] + 100, 1);   /* the last group may be in pieces: its results are computed again */
	int64_t computed = fate->n_computed;
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_TRUE(output_is(&b, &want));
	CU_ASSERT_TRUE(fate->n_computed > computed + 20);
	bytes_free(&want);
	bytes_free(&records);
	fate_free();
	end();
}

TEST(a_done_batch_whose_mark_is_damaged)
{
	enum journal_state state;
	struct bytes want = { 0 };
	begin();
	fate_make();
	struct batch b = batch_of(10, 50);
	expect(10, 50, &want);
	CHECK_OK(run_batch(&b, &state));
	for (size_t at = 0; at < 60; at++) {
		const char *path = in_folder("out.jsonl.journal/done-000001");
		struct bytes text = { 0 };
		CU_ASSERT_TRUE(load(path, &text));
		size_t size = text.size;
		bytes_free(&text);
		if (at >= size)
			break;
		change_byte(path, at, 1);
		CHECK_ERR(run_batch(&b, &state), IO, "done-000001: damaged");
		CU_ASSERT_TRUE(output_is(&b, &want));
		change_byte(path, at, 1);
	}
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_DONE);
	bytes_free(&want);
	fate_free();
	end();
}

TEST_MAIN("journal_faults", CASE(full_disks), CASE(used_up_quotas), CASE(failing_disks), CASE(memory_that_runs_out),
	  CASE(files_that_may_not_grow_and_a_file_system_that_is_full), CASE(every_byte_changed), CASE(damage_in_the_middle_is_refused),
	  CASE(a_done_batch_whose_mark_is_damaged))
