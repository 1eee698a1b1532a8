/* batch: a file of requests in, a file of results out, through a journal. */
#include "launcher/commands.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "launcher/batch_work.h"
#include "launcher/observe.h"
#include "launcher/progress.h"
#include "parallel/watch.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COMMIT_REST = 50,        /* a commit, in which no step begins, takes at most 2 % of the time */
       GRACE_S = 60, MOST_MARGIN_S = 5 };    /* for the last commit, before the time limit: half of the grace, at most this */

struct batch {
	const struct options *o;
	struct comm *world;
	const struct recipe *recipe;
	struct journal *journal;          /* on rank 0, as all below */
	struct tokenizer *tokenizer;
	struct chat_templates templates;
	struct batch_work work;
	struct bytes identity;
	long long end_us;                 /* of the time limit, on the monotonic clock; LLONG_MAX: none */
	long long grace_us, told_us, began_us;
	long long queued_us;              /* that another run had the batch */
	int64_t resumed, lines;           /* results that were there; lines of the input, -1: not known */
	struct progress_state progress;
	struct observe observe;
};

/* When a signal asked for an end; the handler can do no more. */
static volatile sig_atomic_t told;

static void on_signal(int signal)
{
	(void)signal;
	told = 1;
}

static void on_term(void) { told = 1; }

/* USR1 on every rank, as launchers pass it on to all. TERM comes through the watchdog where there is one. */
static void listen(const struct batch *b)
{
	enum { END_MS = 10000 };   /* beyond the grace: for the steps that are under way, and the last commit */
	watch_on_term(on_term, (int)(b->grace_us / 1000) + END_MS);
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigemptyset(&action.sa_mask);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int is_stdin(const struct options *o) { return !strcmp(o->input, "-"); }

/* srun hands every rank a copy of stdin, and ends the job when some leave theirs in the pipe. */
static void *drain(void *unused)
{
	batch_input_drain(STDIN_FILENO);
	return unused;
}

static void drop_input(void)
{
	pthread_t thread;
	if (!pthread_create(&thread, NULL, drain, NULL))
		pthread_detach(thread);
}

/* --- time --- */

/* When Slurm ends the job, if it says so; else 0. */
static long long slurm_end_s(void)
{
	const char *text = getenv("SLURM_JOB_END_TIME");
	return text ? atoll(text) : 0;
}

/* "[D-]H:M:S" in seconds. */
static enum err parse_time(const char *text, long long *out)
{
	long long days = 0, h, m, s;
	int used = 0;
	const char *dash = strchr(text, '-');
	if (dash && (sscanf(text, "%4lld-%n", &days, &used) != 1 || text + used != dash + 1))
		used = -1;
	const char *rest = text + (used < 0 ? 0 : used);
	if (used >= 0 && sscanf(rest, "%4lld:%2lld:%2lld%n", &h, &m, &s, &used) == 3 && !rest[used] && days >= 0 && h >= 0 && m >= 0 &&
	    m < 60 && s >= 0 && s < 60 && strspn(text, "0123456789:-") == strlen(text)) {
		*out = ((days * 24 + h) * 60 + m) * 60 + s;
		return ERR_OK;
	}
	return ERR(USAGE, "--time-limit: found \"%.40s\", allowed: [days-]hours:minutes:seconds, as 1:30:00", text);
}

static enum err set_limit(struct batch *b)
{
	long long now = clock_us(), slurm = slurm_end_s(), seconds = 0;
	b->end_us = LLONG_MAX;
	b->grace_us = (b->o->grace_s ? b->o->grace_s : GRACE_S) * 1000000LL;
	if (slurm > 0)
		b->end_us = now + (slurm - (long long)time(NULL)) * 1000000;
	if (b->o->time_limit)
		TRY(parse_time(b->o->time_limit, &seconds));
	if (b->o->time_limit && now + seconds * 1000000 < b->end_us)
		b->end_us = now + seconds * 1000000;
	if (b->end_us != LLONG_MAX && b->grace_us > (b->end_us - now) / 2)   /* else a short job would begin nothing */
		b->grace_us = b->end_us > now ? (b->end_us - now) / 2 : 0;
	return ERR_OK;
}

static void show_progress(struct batch *b, long long now)
{
	const struct batch_work *w = &b->work;
	struct progress_count c = { .done = b->resumed + w->done, .total = b->lines, .done_here = w->done, .running = w->running,
				    .tokens = w->tokens };
	progress_show(&b->progress, &c, now);
}

static struct batch_times times(void *arg)
{
	struct batch *b = arg;
	long long now = clock_us();
	struct batch_times t = { LLONG_MAX, LLONG_MAX };
	show_progress(b, now);
	if (told && !b->told_us) {
		b->told_us = now;
		LOG_ROOT(WARN, "batch: told to end; what runs has %lld s", b->grace_us / 1000000);
	}
	long long margin = b->grace_us / 2 < MOST_MARGIN_S * 1000000LL ? b->grace_us / 2 : MOST_MARGIN_S * 1000000LL;
	if (b->end_us != LLONG_MAX)
		t = (struct batch_times){ b->end_us - b->grace_us, b->end_us - margin };
	if (b->told_us && b->told_us < t.admit_until_us)
		t.admit_until_us = b->told_us;
	if (b->told_us && b->told_us + b->grace_us < t.drop_at_us)
		t.drop_at_us = b->told_us + b->grace_us;
	return t;
}

/* --- the journal --- */

/* What results depend on: what is asked of the model, not how it is laid out. */
static void write_identity(const struct recipe *r, struct bytes *to)
{
	struct bytes all = { 0 };
	recipe_write(r, &all);
	const char *line = bytes_text(&all), *section = "";
	for (const char *end; *line; line = end + (*end == '\n')) {
		end = line + strcspn(line, "\n");
		if (*line != ' ')
			section = line;
		static const char *const runtime[] = { "  activations: ", "  context: ", "  kv_type: " };
		int is_wanted = !strncmp(section, "model:", 6) || !strncmp(section, "generation:", 11);
		for (size_t i = 0; !strncmp(section, "runtime:", 8) && i < sizeof runtime / sizeof *runtime; i++)
			is_wanted |= !strncmp(line, runtime[i], strlen(runtime[i]));
		const char *colon = memchr(line, ':', (size_t)(end - line));
		if (is_wanted && *line == ' ' && colon)
			bytes_printf(to, "%.*s.%.*s=%.*s\n", (int)strcspn(section, ":"), section, (int)(colon - line - 2), line + 2,
				     (int)(end - colon - 2), colon + 2);
	}
	if (all.error)
		to->error = all.error;
	bytes_free(&all);
}

static enum err open_journal(struct batch *b, enum journal_state *state)
{
	struct journal_config c = { .unordered = b->o->unordered, .directory = b->o->journal, .commit_rest = COMMIT_REST };
	int to_stdout = !strcmp(b->o->output, "-");
	write_identity(b->recipe, &b->identity);
	TRY(b->identity.error);
	journal_config_here(&c);
	c.output = to_stdout ? NULL : b->o->output;
	c.output_fd = STDOUT_FILENO;
	c.identity = bytes_text(&b->identity);
	TRY(journal_create(&c, &b->journal));
	long long began = clock_us();
	for (int said = 0;; said = 1) {
		TRY(journal_acquire(b->journal, clock_us(), state));
		b->queued_us = said ? clock_us() - began : 0;
		if (*state != JOURNAL_WAITS)
			return ERR_OK;
		if (told)
			return ERR(REQUEUE, "told to end while %s had the batch", journal_holder(b->journal));
		if (!said)
			LOG_ROOT(WARN, "batch: %s works on it; waiting for its end", journal_holder(b->journal));
		clock_sleep_us(1000000);
	}
}

static struct batch_input_config input_config(const struct batch *b, int64_t n_vocab)
{
	struct batch_input_config c = { .path = b->o->input, .n_vocab = n_vocab };
	batch_defaults(b->recipe, &c.defaults);
	return c;
}

/* Looks whether a file still is what an earlier run had read. */
static enum err skim(struct batch *b, uint64_t lines, uint64_t *read_lines)
{
	struct batch_input_config c = input_config(b, 0);
	uint64_t digest;
	TRY(batch_input_skim(&c, lines, read_lines, &digest));
	return journal_input(b->journal, *read_lines, digest);
}

/* --strict: a batch with error results is no success. */
static enum err verdict(const struct batch *b)
{
	uint64_t faults = journal_faults(b->journal);
	if (faults && b->o->strict)
		return ERR(WORK, "%llu lines have an error as their result", (unsigned long long)faults);
	return ERR_OK;
}

static enum err done_before(struct batch *b)
{
	uint64_t lines;
	if (!is_stdin(b->o)) {
		TRY(skim(b, UINT64_MAX, &lines));
		TRY(journal_input_end(b->journal));
	} else {
		batch_input_drain(STDIN_FILENO);
	}
	LOG_ROOT(INFO, "batch: %s is complete already", b->o->output);
	return verdict(b);
}

/* --- the session --- */

static void phase(void *arg, const char *name)
{
	(void)arg;
	watch_phase("%s", name);
}

static void planned(void *arg, const struct plan *p, const struct model *m, const struct place *place)
{
	struct bytes text = { 0 };
	(void)arg;
	report_machines(&place->cluster, &text);
	plan_print(p, m, &place->cluster, &text);
	LOG_ROOT(INFO, "%s", bytes_text(&text));
	bytes_free(&text);
}

/* Loading may take longer than the journal's lease. What is wrong with it shows again at the next tick. */
static void loading(void *arg, uint64_t bytes_done, uint64_t total)
{
	struct batch *b = arg;
	(void)bytes_done, (void)total;
	if (b->journal && journal_tick(b->journal, clock_us()))
		err_clear();
}

static enum err open_texts(struct batch *b, struct weights *files)
{
	struct gguf *g = weights_gguf(files);
	TRY(job_tokenizer(files, &b->tokenizer));
	return g ? chat_templates_open_gguf(g, &b->templates) : chat_templates_open_directory(weights_directory(files), &b->templates);
}

static enum err prepare(void *arg, struct weights *files, const struct model *m, struct plan_wish *plan)
{
	struct batch *b = arg;
	(void)m, (void)plan;
	return comm_rank(b->world) == 0 ? open_texts(b, files) : ERR_OK;
}

static const char *model_name(const struct recipe *r)
{
	const char *slash = strrchr(r->model.path, '/');
	return slash && slash[1] ? slash + 1 : r->model.path;
}

static enum err begin_work(struct batch *b, const struct session *s)
{
	struct batch_work *w = &b->work;
	struct batch_input_config c = input_config(b, s->model.n_vocab);
	uint64_t lines;
	*w = (struct batch_work){ .recipe = b->recipe, .journal = b->journal, .tokenizer = b->tokenizer, .templates = &b->templates,
				  .model = &s->model, .times = times, .arg = b,
				  .output = { .model = model_name(b->recipe), .created = journal_created(b->journal),
					      .fingerprint = journal_fingerprint(b->journal) } };
	TRY(wishes_read(b->recipe, &w->wishes));
	b->began_us = clock_us();
	b->progress = (struct progress_state){ .began_us = b->began_us, .said_us = b->began_us };
	b->resumed = (int64_t)journal_counted(b->journal);
	b->lines = is_stdin(b->o) ? -1 : progress_count_lines(b->o->input);
	if (!is_stdin(b->o) && journal_known_lines(b->journal) > 0)
		TRY(skim(b, journal_known_lines(b->journal), &lines));
	return batch_input_open(&c, &w->input);
}

static struct outcome outcome_of(const struct batch *b, const struct engine_counts *counts)
{
	const struct batch_work *w = &b->work;
	return (struct outcome){ .requests = w->done, .errors = w->faults, .resumed = b->resumed, .prompt_tokens = counts->prefill_tokens,
				 .shared_tokens = counts->schedule.shared_tokens, .answer_tokens = w->tokens, .steps = counts->steps,
				 .put_back = counts->schedule.put_back, .seconds = (double)(clock_us() - b->began_us) * 1e-6,
				 .waited_s = (double)(b->queued_us + w->idle_us) * 1e-6, .timings = &w->timings };
}

static void summarize(const struct batch *b, const struct engine_counts *counts, const struct outcome *o)
{
	LOG_ROOT(INFO, "batch: %lld requests, %lld of them errors; %lld results were there before, %llu are now", (long long)o->requests,
		 (long long)o->errors, (long long)o->resumed, (unsigned long long)journal_counted(b->journal));
	LOG_ROOT(INFO, "batch: %lld tokens of answers in %.1f s, %.1f tokens/s; %lld tokens of prompts computed, %lld found; %.1f s without "
		 "anything to do", (long long)o->answer_tokens, o->seconds, (double)o->answer_tokens / o->seconds, (long long)o->prompt_tokens,
		 (long long)o->shared_tokens, o->waited_s);
	report_drafts(&counts->schedule);
}

/* Results first, then what is said of them. */
static enum err end_work(struct batch *b, const struct engine_counts *counts, struct outcome *o)
{
	enum err e = batch_work_end(&b->work);
	int is_complete = !e && journal_complete(b->journal);
	progress_hide();
	o->is_cut_short = !is_complete;
	o->state = is_complete ? "Every line of the input has its result."
			       : "The run ended before all was done; the same command goes on with what is left.";
	if (e)
		return e;
	summarize(b, counts, o);
	if (!is_complete)
		return ERR(REQUEUE, "time is up: %llu results are on disk; the same command goes on with the others",
			   (unsigned long long)journal_counted(b->journal));
	TRY(journal_finish(b->journal));
	return verdict(b);
}

static enum err work(struct batch *b, struct session *s)
{
	struct engine_calls calls;
	struct engine_counts counts = { 0 };
	struct outcome outcome = { 0 };
	int head = b->journal != NULL;
	TRY(comm_agree(b->world, head ? begin_work(b, s) : ERR_OK));
	TRY(observe_begin(&b->observe, b->o, s));
	if (head)
		batch_work_calls(&b->work, &calls);
	watch_phase("batch");
	TRY(engine_run(s, head ? &calls : NULL, head ? &counts : NULL));
	outcome = outcome_of(b, &counts);
	enum err e = comm_agree(b->world, head ? end_work(b, &counts, &outcome) : ERR_OK);
	struct err_record ended = *err_last();
	enum err reported = observe_end(&b->observe, s, head ? &outcome : NULL);
	if (!e)
		return reported;
	if (reported)
		LOG_ROOT(WARN, "%s", err_sentence());
	err_restore(&ended);
	return e;
}

static enum err open_and_work(struct batch *b, struct job_session *js)
{
	job_wish(js->recipe, &js->wish);
	js->wish.phase = phase;
	js->wish.prepare = prepare;
	js->wish.planned = planned;
	js->wish.loading = loading;
	js->wish.arg = b;
	enum err e = job_session_open(b->world, b->o, js);
	if (!e)
		e = work(b, js->session);
	observe_close(&b->observe);
	return job_session_close(js, e);
}

/* Before anything is loaded: whether there is anything to do, and whether it is ours to do. */
static enum err ask_journal(struct batch *b, int *is_done)
{
	enum journal_state state = JOURNAL_OURS;
	int32_t said = 0;
	enum err e = comm_rank(b->world) == 0 ? observe_check(b->o) : ERR_OK;
	if (!e && comm_rank(b->world) == 0)
		e = open_journal(b, &state);
	if (!e && state == JOURNAL_DONE)
		e = done_before(b);
	said = state == JOURNAL_DONE;
	TRY(comm_bcast(b->world, &said, sizeof said, 0));   /* the others wait here without a core */
	*is_done = said;
	return comm_agree(b->world, e);
}

static enum err body(struct comm *world, void *arg)
{
	struct batch b = { .o = arg, .world = world };
	struct job_session js = { 0 };
	int is_done;
	watch_phase("start");
	TRY(set_limit(&b));
	listen(&b);
	TRY(job_recipe(world, b.o, &js.recipe));
	b.recipe = js.recipe;
	if (is_stdin(b.o) && comm_rank(world) != 0)
		drop_input();
	enum err e = ask_journal(&b, &is_done);
	if (!e && !is_done)
		e = open_and_work(&b, &js);
	else
		recipe_destroy(js.recipe);
	batch_work_free(&b.work);
	batch_input_close(b.work.input);
	wishes_free(&b.work.wishes);
	journal_destroy(b.journal);
	chat_templates_close(&b.templates);
	tokenizer_close(b.tokenizer);
	bytes_free(&b.identity);
	return e;
}

enum err command_batch(const struct options *o) { return job_run(body, (void *)(uintptr_t)o); }
