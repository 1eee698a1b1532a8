/* The journal: runs that are killed at every write and at random moments, that steal from each other, freeze and wake; and the
 * output that comes of it.
 * timeout: 300 */
#include "tests/files.h"
#include "tests/journal_runs.h"

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
			clock_sleep_us((long long)((r >> 20) % (2048 + 50 * (uint64_t)run)));   /* a busy machine gets its time */
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
	CHECK_OK(journal_append(j, 3, "x", 1, 0, 0));
	CHECK_ERR(journal_append(j, 3, "x", 1, 0, 0), BUG, "line 4 has a result already");
	CHECK_ERR(journal_append(j, 4, "x\ny", 3, 0, 0), BUG, "newline");
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
	CHECK_OK(journal_append(j, lacking, "of another input", 16, 0, 0));
	CHECK_OK(journal_commit(j, 0));
	CU_ASSERT_EQUAL(journal_counted(j), before);
	CHECK_ERR(journal_input(j, 45, digest_of(45) + 1), WORK, "belongs to another input");
	journal_destroy(j);
	CHECK_OK(journal_create(&b.config, &j));
	CHECK_OK(journal_acquire(j, 0, &state));
	CU_ASSERT_TRUE(journal_counted(j) == before && !journal_has(j, lacking));
	CHECK_OK(journal_append(j, lacking, "of this input", 13, 0, 0));
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
	CHECK_OK(journal_append(a, 0, "first", 5, 0, 0));
	CHECK_OK(journal_commit(a, 0));
	CHECK_OK(journal_append(a, 1, "not counted", 11, 0, 0));
	CHECK_OK(journal_create(&b.config, &c));
	CHECK_OK(journal_acquire(c, 0, &state));
	CHECK_OK(journal_acquire(c, 10, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_OURS);
	CU_ASSERT_TRUE(journal_has(c, 0) && !journal_has(c, 1));
	CHECK_ERR(journal_commit(a, 20), WORK, "no longer owns the journal, which is held by host here, process");
	CHECK_ERR(journal_append(a, 2, "x", 1, 0, 20), WORK, "failed before");
	CU_ASSERT_EQUAL(journal_counted(a), 1);
	CHECK_ERR(journal_append(a, 2, "x", 1, 0, 20), WORK, "failed before");
	journal_destroy(a);
	CU_ASSERT_PTR_NOT_NULL(strstr(err_sentence(), "failed before"));   /* it is still to be printed */
	CU_ASSERT_TRUE(access(in_folder("out.jsonl.journal/part-000001"), F_OK) && !access(in_folder("out.jsonl.journal/part-000002"), F_OK));
	CHECK_OK(journal_append(c, 1, "second", 6, 0, 20));
	CHECK_OK(journal_commit(c, 20));
	journal_destroy(c);   /* released: no waiting */
	CHECK_OK(journal_create(&b.config, &c));
	CHECK_OK(journal_acquire(c, 0, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_OURS);
	CHECK_OK(journal_append(c, 2, "third", 5, 0, 20));
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

static enum journal_state first_try(const struct batch *b)
{
	struct journal *j;
	enum journal_state state;
	CHECK_OK(journal_create(&b->config, &j));
	CHECK_OK(journal_acquire(j, 0, &state));
	journal_destroy(j);
	return state;
}

/* A claim with some words of it changed: what another run may have left. */
static void change_claim(const char *name, const char *word, const char *value)
{
	struct bytes text = { 0 };
	CU_ASSERT_TRUE_FATAL(load(name, &text));
	char *at = strstr((char *)text.data, word);
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	at += strlen(word);
	size_t was = strcspn(at, "\n"), is = strlen(value);
	struct bytes changed = { 0 };
	bytes_put(&changed, text.data, (size_t)(at - (char *)text.data));
	bytes_put(&changed, value, is);
	bytes_put(&changed, at + was, text.size - (size_t)(at - (char *)text.data) - was);
	store(name, changed.data, changed.size);
	bytes_free(&text);
	bytes_free(&changed);
}

TEST(an_owner_that_is_surely_gone_is_not_waited_for)
{
	struct batch b;
	const char *claim;
	begin();
	fate_make();
	b = batch_of(3, 10);
	claim = in_folder("out.jsonl.journal/claim-000001");
	pid_t pid = fork();
	if (!pid) {
		struct journal *j;
		enum journal_state state;
		_exit(journal_create(&b.config, &j) || journal_acquire(j, 0, &state) || state != JOURNAL_OURS);
	}
	siginfo_t info;
	CU_ASSERT_EQUAL(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);   /* it has ended, and nobody has asked how */
	CU_ASSERT_EQUAL(info.si_status, 0);
	struct bytes kept = { 0 };
	CU_ASSERT_TRUE(load(claim, &kept));
	CU_ASSERT_EQUAL(first_try(&b), JOURNAL_OURS);
	waitpid(pid, NULL, 0);

	static const struct { const char *word, *value; enum journal_state state; } tries[] = {
		{ "pid ", "1", JOURNAL_OURS },                 /* a process that is there, but began at another time */
		{ "boot ", "another", JOURNAL_WAITS },         /* of another machine, or before it was started again */
		{ "pid_space ", "5", JOURNAL_WAITS },          /* in a container */
		{ "started ", "0", JOURNAL_OURS },             /* there is no such process, whenever it began */
		{ "released ", "1", JOURNAL_OURS },
		{ "nonce ", "not a number", JOURNAL_WAITS },   /* who knows what that is */
	};
	for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
		clean(&b);
		mkdir(in_folder("out.jsonl.journal"), 0700);
		store(claim, kept.data, kept.size);
		change_claim(claim, tries[i].word, tries[i].value);
		CU_ASSERT_EQUAL(first_try(&b), tries[i].state);
	}
	clean(&b);
	mkdir(in_folder("out.jsonl.journal"), 0700);
	store(claim, "", 0);   /* made a moment ago */
	CU_ASSERT_EQUAL(first_try(&b), JOURNAL_WAITS);
	bytes_free(&kept);
	fate_free();
	end();
}

/* A name that shows that the listing was too old: the files of an epoch are there, its claim is not. */
TEST(an_epoch_is_owned_once)
{
	struct batch b;
	enum journal_state state;
	struct bytes want = { 0 };
	begin();
	fate_make();
	b = batch_of(20, 100);
	expect(20, 100, &want);
	mkdir(in_folder("out.jsonl.journal"), 0700);
	store(in_folder("out.jsonl.journal/records-000041"), "", 0);   /* killed before its header */
	b.stop_after = 5;
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_EQUAL(access(in_folder("out.jsonl.journal/records-000042"), F_OK), 0);
	b.stop_after = 0;
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_TRUE(output_is(&b, &want));
	CU_ASSERT_EQUAL(access(in_folder("out.jsonl.journal/done-000043"), F_OK), 0);
	bytes_free(&want);
	fate_free();
	end();
}

TEST(who_and_where_this_run_is)
{
	struct journal_config c = { 0 };
	setenv("SLURM_JOB_ID", "77", 1);
	setenv("PBS_JOBID", "88", 1);
	setenv("SLURM_RESTART_COUNT", "2", 1);
	setenv("SOURCE_DATE_EPOCH", "123456", 1);
	journal_config_here(&c);
	CU_ASSERT_TRUE(c.host && *c.host && !strcmp(c.job, "77") && c.restart == 2 && c.created == 123456);
	unsetenv("SLURM_JOB_ID");
	unsetenv("SLURM_RESTART_COUNT");
	unsetenv("SOURCE_DATE_EPOCH");
	journal_config_here(&c);
	CU_ASSERT_TRUE(!strcmp(c.job, "88") && c.restart == 0 && c.created > 1700000000);
	unsetenv("PBS_JOBID");
	unsetenv("LSB_JOBID");
	unsetenv("JOB_ID");
	journal_config_here(&c);
	CU_ASSERT_PTR_NULL(c.job);
}

TEST(no_lines_at_all)
{
	struct batch b;
	enum journal_state state;
	struct bytes got = { 0 };
	begin();
	fate_make();
	b = batch_of(0, 100);
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_TRUE(load(b.config.output, &got) && !got.size);
	CHECK_OK(run_batch(&b, &state));
	CU_ASSERT_EQUAL(state, JOURNAL_DONE);
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

static int n_slow_syncs;

static int slow_sync(void *context, int fd)
{
	(void)context, (void)fd;
	n_slow_syncs++;
	clock_sleep_us(4000);
	return 0;
}

/* A sync takes 4 ms and more. Each result is a group of its own and comes 20 ms after the last: without a rest each is synced; with one
 * of 50 times the commit one in 200 ms; with an endless one each 16 groups. Small ones, half a minute apart, wait a minute at most. */
TEST(a_slow_disk_takes_a_bounded_share_of_the_time)
{
	static const struct { int rest, results; size_t bytes, group_bytes; long long apart_us; int least, most; } cases[] = {
		{ 0, 100, 950, 900, 20000, 100, 100 }, { 50, 200, 950, 900, 20000, 12, 21 }, { 1000000, 320, 950, 900, 20000, 20, 22 },
		{ 1000000, 10, 90, 9000, 30000000, 3, 3 } };
	struct journal_io io = { .sync = slow_sync };
	char room[1000];
	begin();
	memset(room, 'x', sizeof room);
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		struct journal *j = NULL;
		enum journal_state state;
		struct journal_config config = { .output = in_folder("out"), .identity = "model=a\n", .io = &io,
						 .lease_us = INT64_MAX / 8, .commit_rest = cases[c].rest, .group_bytes = cases[c].group_bytes };
		CHECK_OK(journal_create(&config, &j));
		CHECK_OK(journal_acquire(j, 0, &state));
		n_slow_syncs = 0;
		for (int i = 0; i < cases[c].results; i++) {
			CHECK_OK(journal_input(j, (uint64_t)i + 1, 5));
			CHECK_OK(journal_append(j, (uint64_t)i, room, cases[c].bytes, 0, (i + 1) * cases[c].apart_us));
			CHECK_OK(journal_tick(j, (i + 1) * cases[c].apart_us));
		}
		printf("%d syncs ", n_slow_syncs);
		CU_ASSERT(n_slow_syncs >= cases[c].least && n_slow_syncs <= cases[c].most);
		CHECK_OK(journal_commit(j, 0));
		CHECK_OK(journal_input_end(j));
		CHECK_OK(journal_finish(j));
		journal_destroy(j);
		end();
		begin();
	}
	end();
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
			e = journal_append(j, line, room, (size_t)n, 0, 0);
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
	  CASE(an_earlier_start_of_the_same_job_is_not_waited_for), CASE(an_owner_that_is_surely_gone_is_not_waited_for),
	  CASE(an_epoch_is_owned_once), CASE(no_lines_at_all), CASE(who_and_where_this_run_is),
	  CASE(a_slow_disk_takes_a_bounded_share_of_the_time), CASE(a_million_lines_in_flat_memory))
