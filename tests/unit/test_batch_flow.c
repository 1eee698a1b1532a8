/* Input, journal and output together, driven as journal.h says: a batch with good and bad lines that is killed at random
 * moments, and whose requests end in another order each time, has the bytes of one that ran undisturbed.
 * timeout: 300 */
#include "base/clock.h"
#include "base/file.h"
#include "launcher/batch_input.h"
#include "launcher/batch_output.h"
#include "launcher/journal.h"
#include "tests/files.h"
#include "tests/test.h"

#include <signal.h>
#include <sys/wait.h>

enum { LINES = 400, WINDOW = 12 };

struct flow {
	struct journal *journal;
	struct batch_input *input;
	struct batch_output output;
	struct batch_request under_way[WINDOW];
	int n, window;
	unsigned random;
};

static const char *write_input(const struct test_dir *d)
{
	struct bytes b = { 0 };
	for (int i = 0; i < LINES; i++) {
		if (i % 17 == 3)
			bytes_printf(&b, "broken %d\n", i);
		else if (i % 23 == 4)
			bytes_printf(&b, "{\"custom_id\":\"id 0\",\"prompt\":\"again %d\"}\n", i);
		else if (i % 3)
			bytes_printf(&b, "{\"custom_id\":\"id %d\",\"prompt\":\"p%d\",\"max_tokens\":%d}\n", i, i, i % 90 + 1);
		else
			bytes_printf(&b, "{\"custom_id\":\"id %d\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":"
					 "{\"messages\":[{\"role\":\"user\",\"content\":\"q%d\"}],\"n\":2,\"logprobs\":true}}\n", i, i);
	}
	const char *path = test_write(d, "in.jsonl", b.data, b.size);
	bytes_free(&b);
	return path;
}

/* What a model would say: a text that follows from the request. */
static enum err answer(struct flow *f, const struct batch_request *r, struct bytes *line)
{
	char text[200];
	const char *from = r->prompt ? r->prompt
				     : json_string_value(json_object_get(json_array_get(r->messages, 0), "content"));
	int n = snprintf(text, sizeof text, "%s: %.*s", from, (int)r->sampling.max_tokens,
			 "the quick brown fox jumps over the lazy dog, and then again, and once more until it is tired");
	struct batch_logprob logprob = { .text = { text, (size_t)n }, .logprob = -0.5 };
	struct batch_choice c[2];
	for (int i = 0; i < 2; i++)
		c[i] = (struct batch_choice){ .text = { text, (size_t)n - (size_t)i }, .finish_reason = i ? "stop" : "length",
					      .logprobs = r->sampling.logprobs ? &logprob : NULL, .n_logprobs = 1 };
	struct batch_usage usage = { 1, r->sampling.max_tokens };
	bytes_clear(line);
	return batch_output_answer(&f->output, r, c, r->sampling.n, &usage, line);
}

static enum err finish_any(struct flow *f)
{
	struct bytes line = { 0 };
	int which = (int)((f->random = f->random * 1103515245 + 12345) >> 16) % f->n;
	struct batch_request r = f->under_way[which];
	f->under_way[which] = f->under_way[--f->n];
	enum err e = answer(f, &r, &line);
	if (!e)
		e = journal_append(f->journal, r.line, line.data, line.size, 0, clock_us());
	if (!e)
		e = journal_tick(f->journal, clock_us());
	bytes_free(&line);
	batch_request_free(&r);
	return e;
}

static enum err take_line(struct flow *f, int *more)
{
	struct batch_request r;
	struct bytes line = { 0 };
	TRY(batch_input_next(f->input, &r, more));
	if (!*more)
		return ERR_OK;
	enum err e = journal_input(f->journal, batch_input_lines(f->input), batch_input_digest(f->input));
	if (!e && !journal_has(f->journal, r.line)) {
		if (!r.fault_code) {
			f->under_way[f->n++] = r;
			return ERR_OK;
		}
		e = batch_output_fault(&f->output, r.line, r.custom_id, r.fault_code, r.fault, &line);
		if (!e)
			e = journal_append(f->journal, r.line, line.data, line.size, 1, clock_us());
	}
	bytes_free(&line);
	batch_request_free(&r);
	return e;
}

static enum err work(struct flow *f)
{
	int more = 1;
	while (more || f->n) {
		while (more && f->n < f->window)
			TRY(take_line(f, &more));
		if (f->n)
			TRY(finish_any(f));
	}
	TRY(journal_input_end(f->journal));
	TRY(journal_commit(f->journal, clock_us()));
	return journal_finish(f->journal);
}

static enum err run(const char *in, const char *out, int window, unsigned random)
{
	struct flow f = { .window = window, .random = random };
	struct journal_config c = { .output = out, .identity = "model=m\n", .group_bytes = 3000 };
	struct batch_input_config ic = { .path = in, .defaults = { .top_p = 1, .repetition_penalty = 1, .n = 1, .max_tokens = 20 } };
	enum journal_state state = JOURNAL_WAITS;
	uint64_t lines, digest, known;
	journal_config_here(&c);
	TRY(journal_create(&c, &f.journal));
	for (enum err e; state == JOURNAL_WAITS;)
		if ((e = journal_acquire(f.journal, clock_us(), &state)))
			return e;
	known = state == JOURNAL_DONE ? UINT64_MAX : journal_known_lines(f.journal);
	if (known) {
		TRY(batch_input_skim(&ic, known, &lines, &digest));
		TRY(journal_input(f.journal, lines, digest));
	}
	f.output = (struct batch_output){ .model = "m", .created = journal_created(f.journal),
					  .fingerprint = journal_fingerprint(f.journal) };
	TRY(batch_input_open(&ic, &f.input));
	enum err e = state == JOURNAL_DONE ? journal_input_end(f.journal) : work(&f);
	if (!e && journal_faults(f.journal) != 41)   /* 24 lines are i % 17 == 3, 18 are i % 23 == 4, one (326) is both */
		e = ERR(BUG, "%d faults", (int)journal_faults(f.journal));
	batch_input_close(f.input);
	journal_destroy(f.journal);
	return e;
}

TEST(killed_batches_have_the_same_bytes)
{
	struct test_dir d;
	struct bytes want = { 0 }, got = { 0 };
	char in[200], out[200];
	int kills = 0, rounds = 0, status;
	test_dir_make(&d);
	setenv("SOURCE_DATE_EPOCH", "1700000000", 1);
	snprintf(in, sizeof in, "%s", write_input(&d));
	snprintf(out, sizeof out, "%s", test_path(&d, "undisturbed"));
	CHECK_OK(run(in, out, 1, 1));
	CHECK_OK(file_read_all(out, 1 << 24, &want));
	for (; kills < 60 || rounds < 3; rounds++) {
		snprintf(out, sizeof out, "%s/out-%d", d.path, rounds);
		for (unsigned i = 1;; i++) {
			pid_t pid = fork();
			if (!pid)
				_exit(run(in, out, WINDOW, i) != ERR_OK);
			clock_sleep_us((i * 7919 + (unsigned)rounds * 104729) % (5000 + 500 * i));   /* a slow disk gets its time */
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			kills += WIFSIGNALED(status);
			CU_ASSERT_TRUE_FATAL(i < 2000);
			if (WIFEXITED(status))
				break;
		}
		CU_ASSERT_EQUAL(WEXITSTATUS(status), 0);
		CHECK_OK(file_read_all(out, 1 << 24, &got));
		CU_ASSERT_TRUE(got.size == want.size && !memcmp(got.data, want.data, got.size));
		CHECK_OK(run(in, out, WINDOW, 5));   /* there is nothing left to do */
	}
	size_t lines = 0;
	for (size_t i = 0; i < want.size; i++)
		lines += want.data[i] == '\n';
	CU_ASSERT_EQUAL(lines, LINES);
	printf(" (%d kills, %d batches)", kills, rounds);
	bytes_free(&want);
	bytes_free(&got);
	char command[300];
	snprintf(command, sizeof command, "rm -rf '%s'", d.path);
	CU_ASSERT_EQUAL(system(command), 0);
}

TEST_MAIN("batch_flow", CASE(killed_batches_have_the_same_bytes))
