/* Prints what the head does beside the model, per step of a batch: it lets requests in, decides steps, turns tokens into text, writes
 * result lines and commits the journal, all of it the real code, while no model runs: every token is one of the prompt. The
 * journal commits as often as it would if a step took STEP_US, which is also what the times are shown as a share of.
 *
 *     bench_head MODEL.gguf [STEP_US [SEQUENCES [PROMPT_TOKENS [ANSWER_TOKENS]]]]      (70000 64 200 250)
 *
 * Works in a folder that it makes where it is started, so that fsync is what it is on that file system. */
#include "base/clock.h"
#include "base/mem.h"
#include "launcher/batch_work.h"
#include "runtime/gguf.h"
#include "runtime/kernels.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STEP_TOKENS = 512, LINES_EACH = 6, GROUP_US = 2000000, MOST_COMMITS = 100000 };
enum part { REQUESTS, DECIDE, TOKENS, RESULTS, COMMIT, N_PARTS };
static const char *const part_names[N_PARTS] = { "requests: read, tokenized, let in", "deciding the step", "tokens to text",
						 "result lines", "journal's commits (fsync)" };

struct running { struct request r; struct answer a; };

struct bench {
	int64_t step_us, sequences, prompt, answer, n_lines;
	struct recipe *recipe;
	struct gguf *gguf;
	struct tokenizer *tokenizer;
	struct chat_templates templates;
	struct batch_work work;
	struct engine_calls calls;
	struct schedule *schedule;
	struct step *step;
	struct running *of_number;       /* (2 * sequences) */
	int ended;
	long long ns[N_PARTS], since;
	int64_t steps, full_steps, tokens;
	long long full_ns;               /* of steps in which all sequences answer, without commits */
	long long commit_ns[MOST_COMMITS];
	int64_t n_commits;
	char folder[64], input[80], output[80];
};

static long long now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What passed since the last call belongs to this part. */
static void spent(struct bench *b, enum part p)
{
	long long now = now_ns();
	b->ns[p] += now - b->since;
	b->since = now;
}

static struct batch_times never(void *arg)
{
	(void)arg;
	return (struct batch_times){ LLONG_MAX, LLONG_MAX };
}

/* Prompts of words, no two with the same beginning; a word is a token or two. */
static enum err write_input(struct bench *b)
{
	static const char *const words[] = { "the", "node", "waits", "for", "every", "page", "until", "a", "step", "has", "landed", "and" };
	uint32_t random = 1;
	FILE *f = fopen(b->input, "w");
	if (!f)
		return ERR(IO, "%s: cannot be made", b->input);
	for (int64_t i = 0; i < b->n_lines; i++) {
		fprintf(f, "{\"custom_id\":\"line %lld\",\"max_tokens\":%lld,\"ignore_eos\":true,\"prompt\":\"%lld", (long long)i,
			(long long)(1 + (i * 379 + 1) % (2 * b->answer)), (long long)i);
		for (int64_t k = 0; k < b->prompt; k++) {
			random = random * 1664525u + 1013904223u;
			fprintf(f, " %s", words[(random >> 16) % 12]);
		}
		fputs("\"}\n", f);
	}
	return fclose(f) ? ERR(IO, "%s: cannot be written", b->input) : ERR_OK;
}

static enum err open_work(struct bench *b)
{
	struct batch_work *w = &b->work;
	struct journal_config c = { .output = b->output, .identity = "model=m\n", .group_us = LLONG_MAX / 2 };
	struct batch_input_config in = { .path = b->input };
	enum journal_state state;
	batch_defaults(b->recipe, &in.defaults);
	journal_config_here(&c);
	TRY(journal_create(&c, &w->journal));
	TRY(journal_acquire(w->journal, clock_us(), &state));
	*w = (struct batch_work){ .recipe = b->recipe, .journal = w->journal, .tokenizer = b->tokenizer, .templates = &b->templates,
				  .times = never, .output = { .model = "m", .created = 1 } };
	TRY(wishes_read(b->recipe, &w->wishes));
	TRY(batch_input_open(&in, &w->input));
	batch_work_calls(w, &b->calls);
	return ERR_OK;
}

static enum err make(struct bench *b, const char *model)
{
	int64_t context = 2 * (b->prompt + b->answer) + 64, pages = (context + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS * b->sequences;
	struct schedule_limits l = { .n_replicas = 1, .n_pages = pages, .step_tokens = STEP_TOKENS, .sequences = b->sequences,
				     .context = context };
	strcpy(b->folder, "bench_head.XXXXXX");
	if (!mkdtemp(b->folder))
		return ERR(IO, "no folder can be made here");
	snprintf(b->input, sizeof b->input, "%s/in.jsonl", b->folder);
	snprintf(b->output, sizeof b->output, "%s/out.jsonl", b->folder);
	TRY(write_input(b));
	TRY(recipe_create(&b->recipe));
	TRY(gguf_open(model, &b->gguf));
	TRY(tokenizer_open_gguf(b->gguf, &b->tokenizer));
	TRY(MEM_NEW((size_t)(2 * b->sequences), struct running, &b->of_number));
	TRY(schedule_create(&l, &b->schedule));
	TRY(step_create(&(struct step_room){ b->sequences, STEP_TOKENS, pages, context + adjust_most_ints() }, &b->step));
	return open_work(b);
}

static void remove_files(struct bench *b)
{
	char command[200];
	snprintf(command, sizeof command, "rm -rf '%s'", b->folder);
	if (*b->folder && system(command))
		fprintf(stderr, "%s is left\n", b->folder);
}

static void unmake(struct bench *b)
{
	batch_input_close(b->work.input);
	wishes_free(&b->work.wishes);
	journal_destroy(b->work.journal);
	schedule_destroy(b->schedule);
	step_destroy(b->step);
	mem_free(b->of_number);
	tokenizer_close(b->tokenizer);
	gguf_close(b->gguf);
	recipe_destroy(b->recipe);
	remove_files(b);
}

/* As engine_pull does. */
static enum err let_in(struct bench *b)
{
	struct schedule_counts c;
	for (;;) {
		struct running q = { .a = { .n_prompt = 0 } };
		int32_t number;
		schedule_count(b->schedule, &c);
		if (b->ended || c.waiting >= b->sequences)
			return b->work.error;
		if (b->calls.next(b->calls.arg, &q.r) != ENGINE_REQUEST) {
			b->ended = 1;
			continue;
		}
		q.a = (struct answer){ .tag = q.r.tag, .n_prompt = q.r.n_prompt };
		TRY(MEM_NEW((size_t)q.r.max_tokens, int32_t, &q.a.tokens));
		q.r.answer = q.a.tokens;
		TRY(schedule_add(b->schedule, &q.r, &number));
		b->of_number[number] = q;
	}
}

/* As engine_take does, with a token of the prompt in place of the model's. */
static void take(struct bench *b, int32_t number)
{
	struct running *q = &b->of_number[number];
	int32_t token = q->r.prompt[(q->a.n_tokens * 7 + number) % q->r.n_prompt];
	int is_last = schedule_room(b->schedule, number) <= 1;
	q->a.tokens[q->a.n_tokens++] = token;
	q->a.finish = is_last ? FINISH_LENGTH : FINISH_NOT_YET;
	b->calls.token(b->calls.arg, &q->a, token);
	spent(b, TOKENS);
	schedule_token(b->schedule, number, token, !is_last);
	spent(b, DECIDE);
	if (!is_last)
		return;
	b->calls.done(b->calls.arg, &q->a);
	answer_free(&q->a);
	spent(b, RESULTS);
}

static enum err commit(struct bench *b)
{
	uint64_t counted = journal_counted(b->work.journal);
	TRY(journal_commit(b->work.journal, clock_us()));
	long long before = b->ns[COMMIT];
	spent(b, COMMIT);
	if (journal_counted(b->work.journal) > counted && b->n_commits < MOST_COMMITS)
		b->commit_ns[b->n_commits++] = b->ns[COMMIT] - before;
	return ERR_OK;
}

static enum err run(struct bench *b)
{
	int64_t until_commit = GROUP_US / b->step_us;
	b->since = now_ns();
	for (;; b->steps++) {
		long long begin = b->since;
		int64_t n_answers = 0;
		b->calls.order(b->calls.arg, NULL);
		TRY(let_in(b));
		spent(b, REQUESTS);
		schedule_next(b->schedule, b->step);
		schedule_landed(b->schedule, b->step);
		spent(b, DECIDE);
		if (!b->step->n_slices)
			break;
		for (int32_t i = 0; i < b->step->n_slices; i++) {
			const struct slice *sl = &b->step->slices[i];
			n_answers += sl->n_tokens == 1;
			if (sl->flags & SLICE_SAMPLE)
				take(b, sl->sequence), b->tokens++;
		}
		if (n_answers == b->sequences) {
			b->full_steps++;
			b->full_ns += b->since - begin;
		}
		if (--until_commit <= 0) {
			TRY(commit(b));
			until_commit = GROUP_US / b->step_us;
		}
	}
	TRY(batch_work_end(&b->work));
	spent(b, COMMIT);
	return journal_finish(b->work.journal);
}

static int ascending(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;
	return (x > y) - (x < y);
}

static void print(struct bench *b)
{
	double sum = 0, step = (double)b->step_us;
	printf("%lld requests, %lld tokens in %lld steps of up to %lld sequences\n%-36s %10s %10s\n", (long long)b->n_lines,
	       (long long)b->tokens, (long long)b->steps, (long long)b->sequences, "", "us a step", "share");
	for (int p = 0; p < N_PARTS; p++) {
		double us = (double)b->ns[p] * 1e-3 / (double)b->steps;
		sum += us;
		printf("%-36s %10.1f %9.2f%%\n", part_names[p], us, 100 * us / step);
	}
	printf("%-36s %10.1f %9.2f%%   of steps of %lld us\n", "together", sum, 100 * sum / step, (long long)b->step_us);
	if (b->full_steps)
		printf("with all %lld answering, no commit: %.1f us a step (%lld steps)\n", (long long)b->sequences,
		       (double)b->full_ns * 1e-3 / (double)b->full_steps, (long long)b->full_steps);
	qsort(b->commit_ns, (size_t)b->n_commits, sizeof b->commit_ns[0], ascending);
	if (b->n_commits)
		printf("%lld commits of a group every 2 s: median %.2f ms, 90 %% below %.2f, longest %.2f\n", (long long)b->n_commits,
		       (double)b->commit_ns[b->n_commits / 2] * 1e-6, (double)b->commit_ns[b->n_commits * 9 / 10] * 1e-6,
		       (double)b->commit_ns[b->n_commits - 1] * 1e-6);
}

int main(int argc, char **argv)
{
	static struct bench b = { .step_us = 70000, .sequences = 64, .prompt = 200, .answer = 250 };
	int64_t *const numbers[] = { &b.step_us, &b.sequences, &b.prompt, &b.answer };
	if (argc < 2)
		return fprintf(stderr, "%s MODEL.gguf [STEP_US [SEQUENCES [PROMPT_TOKENS [ANSWER_TOKENS]]]]\n", argv[0]), 2;
	for (int i = 2; i < argc && i < 6; i++)
		if ((*numbers[i - 2] = atoll(argv[i])) < 1)
			return fprintf(stderr, "%s: a number from 1 on is wanted\n", argv[i]), 2;
	b.n_lines = LINES_EACH * b.sequences;
	enum err e = make(&b, argv[1]);
	if (!e)
		e = run(&b);
	if (e)
		fprintf(stderr, "%s\n", err_sentence());
	else
		print(&b);
	unmake(&b);
	return err_exit_status(e);
}
