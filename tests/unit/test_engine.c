/* labels: unit
 * timeout: 240
 * Requests that come while the engine runs: from a source that has none at times, in bounded number, some refused, some cancelled; and
 * an engine that is told to admit no more or to drop all. Every answer is done exactly once, and is the one that it gets alone. */
#include "base/clock.h"
#include "base/mem.h"
#include "runtime/engine.h"
#include "tests/test.h"

#include <sys/resource.h>

#define MODEL SOURCE_DIR "/tests/golden/models/llama-tied"

enum { MOST = 600, VOCAB = 131, MOST_PROMPT = 40, MOST_NEW = 12, SEQUENCES = 4, CONTEXT = 64 };

/* What a scene does; the rest is the same for all. */
struct scene {
	struct layout layout;
	int ranks, n;                   /* requests */
	int pauses;                     /* the source has none every so often; 0: always one */
	int several;                    /* each request has three answers */
	int repeats;                    /* prompts and answers repeat themselves */
	int speculates;
	int first;                      /* lengths begin with those of this request */
	int refuse_every, cancel_every, stop_every;
	int order_at;                   /* after so many answers .. */
	enum engine_order order;        /* .. say this */
	int cancel_any;                 /* every so often when it asks for orders, one of the last requests is cancelled */
	long long idle_us;              /* the source has none for this long, then no more */
	struct cluster cluster;
	/* how it went */
	int given, out, most_out, n_done;
	int asked;                      /* while there were pauses, or nothing to do */
	int n_orders;
	struct engine *engine;
	long long began_us;
	double idle_cpu_s;
	struct engine_counts counts;
	unsigned char done[MOST][3];    /* per answer: how often */
	enum finish finish[MOST];
	int64_t n_tokens[MOST];
	int32_t tokens[MOST][MOST_NEW];
};

static int32_t prompts[MOST][MOST_PROMPT];

static int is_refused(const struct scene *s, int i) { return s->refuse_every && i % s->refuse_every == 1; }
static int is_cancelled(const struct scene *s, int i) { return s->cancel_every && i % s->cancel_every == 2; }
static int is_stopped(const struct scene *s, int i) { return s->stop_every && i % s->stop_every == 3; }
static int n_of(const struct scene *s, int i) { return s->several || i % 11 == 4 ? 3 : 1; }

static int prompt_of(const struct scene *s, int i) { return 1 + (i + s->first) * 7 % (MOST_PROMPT - 1); }

/* With its first token when there are others, which then are just about to start. */
static int cancelled_after(const struct scene *s, int i) { return n_of(s, i) > 1 ? 1 : 2; }

static void make_request(const struct scene *s, int i, struct request *r)
{
	int n = prompt_of(s, i);
	for (int k = 0; k < n; k++)
		prompts[i][k] = ((s->repeats ? k % 4 : k) * 5 + i % 5 * 13) % VOCAB;
	*r = (struct request){ .prompt = prompts[i], .n_prompt = n, .max_tokens = 1 + (i + s->first) * 5 % MOST_NEW, .ignore_eos = 1, .n = n_of(s, i),
			       .sample = { .temperature = 0.8f, .top_p = 1, .seed = 1, .choice = (uint32_t)i },
			       .repetition_penalty = i % 3 ? 0 : 1.3f, .tag = prompts[i] };
	if (s->repeats)
		r->sample.temperature = i % 2 ? 0.2f : 0;
	if (is_refused(s, i))
		prompts[i][n - 1] = VOCAB;
}

static int index_of(const struct answer *a) { return (int)(((const int32_t *)a->tag - prompts[0]) / MOST_PROMPT); }

static double cpu_s(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static enum engine_next next(void *arg, struct request *r)
{
	struct scene *s = arg;
	if (s->given < s->n && s->pauses && ++s->asked % s->pauses)
		return ENGINE_NONE_NOW;
	if (s->given < s->n) {
		make_request(s, s->given++, r);
		s->out += r->n;
		s->most_out = s->out > s->most_out ? s->out : s->most_out;
		return ENGINE_REQUEST;
	}
	if (s->idle_us && s->out == 0) {
		if (!s->began_us) {
			s->began_us = clock_us();
			s->idle_cpu_s = cpu_s();
		}
		s->asked++;
		if (clock_us() - s->began_us < s->idle_us)
			return ENGINE_NONE_NOW;
		s->idle_cpu_s = cpu_s() - s->idle_cpu_s;
	}
	return s->idle_us && s->out ? ENGINE_NONE_NOW : ENGINE_NO_MORE;
}

static int token(void *arg, const struct answer *a, int32_t id)
{
	struct scene *s = arg;
	int i = index_of(a);
	CU_ASSERT_EQUAL(a->tokens[a->n_tokens - 1], id);
	if (is_cancelled(s, i) && a->choice == (uint32_t)i && a->n_tokens == cancelled_after(s, i))
		engine_cancel(s->engine, a->tag);
	return is_stopped(s, i) && a->n_tokens == 3;
}

static void done(void *arg, struct answer *a)
{
	struct scene *s = arg;
	int i = index_of(a);
	s->out--;
	s->n_done++;
	CU_ASSERT_FATAL(a->choice - (uint32_t)i < (uint32_t)n_of(s, i));
	s->done[i][a->choice - (uint32_t)i]++;
	CU_ASSERT_EQUAL(a->finish == FINISH_REFUSED, a->error != NULL);
	CU_ASSERT_EQUAL(a->finish == FINISH_REFUSED, a->code == ERR_WORK);
	if (a->choice != (uint32_t)i) {
		CU_ASSERT(s->cancel_any || (a->finish == FINISH_CANCELLED) == (is_cancelled(s, i) && !is_refused(s, i)));
		return;
	}
	s->finish[i] = a->finish;
	s->n_tokens[i] = a->n_tokens;
	if (a->n_tokens)
		memcpy(s->tokens[i], a->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
}

static enum engine_order order(void *arg, struct engine *e)
{
	struct scene *s = arg;
	s->engine = e;
	if (s->cancel_any && ++s->n_orders % s->cancel_any == 0 && s->given)
		engine_cancel(e, prompts[s->given - 1 - s->n_orders / s->cancel_any % (s->given < 8 ? s->given : 8)]);
	return s->order_at && s->n_done >= s->order_at ? s->order : ENGINE_GO_ON;
}

static enum err body(struct comm *world, void *arg)
{
	struct scene *s = arg;
	struct place place = { 0 };
	struct session *session = NULL;
	struct session_wish wish = { .model_path = MODEL, .isa = "auto" };
	struct engine_calls calls = { .next = next, .token = token, .done = done, .order = order, .arg = s };
	int head = comm_rank(world) == 0;
	wish.plan = (struct plan_wish){ .layout = s->layout, .threads = 1, .step_tokens = 32, .sequences = SEQUENCES, .context = CONTEXT,
					.speculates = s->speculates };
	enum err e = place_invent(&s->cluster, s->ranks, 0, &place);
	if (!e)
		e = session_create(world, &wish, &place, &session);
	if (!e)
		e = engine_run(session, head ? &calls : NULL, head ? &s->counts : NULL);
	session_destroy(session);
	place_free(&place);
	return e;
}

static void play(struct scene *s)
{
	CU_ASSERT_EQUAL_FATAL(cluster_read("pack:1 core:8 pu:1", &s->cluster), ERR_OK);
	CHECK_OK(comm_inproc_run(s->ranks, NULL, body, s));
	cluster_free(&s->cluster);
	CU_ASSERT_EQUAL(s->out, 0);
	for (int i = 0; i < s->given; i++)
		for (int c = 0; c < n_of(s, i); c++)
			CU_ASSERT_EQUAL(s->done[i][c], 1);
}

static const struct layout one = { .tp = 1, .pp = 1, .dp = 1 };

/* Against all of them without pauses, on one rank. Gives how many guesses came true. */
static int64_t check_own_answers(int repeats, int speculates)
{
	static struct scene reference, s;
	static const struct { struct layout layout; int ranks, pauses; } cases[] = {
		{ { .tp = 1, .pp = 1, .dp = 1 }, 1, 7 }, { { .tp = 2, .pp = 1, .dp = 1 }, 2, 3 }, { { .tp = 1, .pp = 2, .dp = 2 }, 4, 2 } };
	int64_t accepted = 0;
	reference = (struct scene){ .layout = one, .ranks = 1, .n = 60, .repeats = repeats };
	play(&reference);
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		s = (struct scene){ .layout = cases[c].layout, .ranks = cases[c].ranks, .n = 60, .pauses = cases[c].pauses, .refuse_every = 8,
				    .cancel_every = 7, .stop_every = 5, .repeats = repeats, .speculates = speculates };
		play(&s);
		accepted += s.counts.schedule.accepted;
		CU_ASSERT_EQUAL(s.given, 60);
		for (int i = 0; i < 60; i++) {
			int64_t want = reference.n_tokens[i];
			enum finish finish = FINISH_LENGTH;
			if (is_refused(&s, i))
				want = 0, finish = FINISH_REFUSED;
			else if (is_cancelled(&s, i) && want >= cancelled_after(&s, i))
				want = cancelled_after(&s, i), finish = FINISH_CANCELLED;
			else if (is_stopped(&s, i) && want >= 3)
				want = 3, finish = FINISH_STOP;
			CU_ASSERT_EQUAL(s.n_tokens[i], want);
			CU_ASSERT_EQUAL(s.finish[i], finish);
			CU_ASSERT(!memcmp(s.tokens[i], reference.tokens[i], (size_t)want * sizeof(int32_t)));
		}
	}
	return accepted;
}

TEST(requests_that_come_at_any_time_get_their_own_answers) { CU_ASSERT_EQUAL(check_own_answers(0, 0), 0); }

/* Some of them are stopped or cancelled at a token that was guessed. */
TEST(they_get_them_with_guesses_too)
{
	int64_t accepted = check_own_answers(1, 1);
	printf("%lld accepted  ", (long long)accepted);
	CU_ASSERT(accepted > 100);
}

/* Also while steps with it are under way, of which there are several, be it with chunks of its prompt. What it got until then is the
 * beginning of its answer. */
static void check_cancelled(int guessing)
{
	static struct scene reference, s;
	static const struct { struct layout layout; int ranks; } cases[] = { { { .tp = 1, .pp = 1, .dp = 1 }, 1 },
		{ { .tp = 1, .pp = 2, .dp = 1 }, 2 }, { { .tp = 1, .pp = 2, .dp = 2 }, 4 }, { { .tp = 2, .pp = 2, .dp = 1 }, 4 } };
	reference = (struct scene){ .layout = one, .ranks = 1, .n = 120, .repeats = guessing };
	play(&reference);
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
		int n_cancelled = 0, n_whole = 0;
		s = (struct scene){ .layout = cases[c].layout, .ranks = cases[c].ranks, .n = 120, .cancel_any = 3,
				    .repeats = guessing, .speculates = guessing };
		play(&s);
		for (int i = 0; i < 120; i++) {
			CU_ASSERT(s.finish[i] == FINISH_CANCELLED ? s.n_tokens[i] < reference.n_tokens[i] : s.finish[i] == FINISH_LENGTH);
			CU_ASSERT(!memcmp(s.tokens[i], reference.tokens[i], (size_t)s.n_tokens[i] * sizeof(int32_t)));
			n_cancelled += s.finish[i] == FINISH_CANCELLED;
			n_whole += s.finish[i] == FINISH_LENGTH && s.n_tokens[i] == reference.n_tokens[i];
		}
		CU_ASSERT_EQUAL(s.counts.schedule.accepted > 0, guessing);
		CU_ASSERT(n_cancelled > 5 && n_whole > 5 && n_cancelled + n_whole == 120);
	}
}

TEST(a_request_may_be_cancelled_at_any_time)
{
	check_cancelled(0);
	check_cancelled(1);
}

/* As many run as there are places, as many wait, and one request of three answers may be on its way. */
TEST(no_more_requests_are_taken_than_needed)
{
	static struct scene s;
	s = (struct scene){ .layout = one, .ranks = 1, .n = MOST };
	play(&s);
	CU_ASSERT_EQUAL(s.given, MOST);
	CU_ASSERT(s.most_out <= 2 * SEQUENCES + 3 * 3);
	CU_ASSERT(s.most_out >= 2 * SEQUENCES);
}

/* The prompt is computed once, but for its last token, and the others' tokens come one step after the first one's. */
TEST(several_answers_share_their_prompt_and_run_together)
{
	static struct scene s;
	s = (struct scene){ .layout = one, .ranks = 1, .n = 1, .several = 1, .first = 7 };
	play(&s);
	CU_ASSERT_EQUAL(s.n_done, 3);
	CU_ASSERT(prompt_of(&s, 0) == 11 && s.n_tokens[0] == 12);
	CU_ASSERT_EQUAL(s.counts.steps, 12 + 1);
	CU_ASSERT_EQUAL(s.counts.schedule.shared_tokens, 2 * (11 - 1));
}

TEST(told_to_admit_no_more_what_has_begun_is_finished)
{
	static struct scene s;
	int finished = 0, dropped = 0;
	s = (struct scene){ .layout = one, .ranks = 1, .n = 200, .order_at = 30, .order = ENGINE_ADMIT_NO_MORE };
	play(&s);
	for (int i = 0; i < s.given; i++) {
		finished += s.finish[i] == FINISH_LENGTH;
		dropped += s.finish[i] == FINISH_DROPPED;
		CU_ASSERT(s.finish[i] != FINISH_DROPPED || s.n_tokens[i] == 0);
	}
	CU_ASSERT(s.given < 60 && finished >= 20 && dropped > 0 && dropped <= SEQUENCES + 1);
	CU_ASSERT_EQUAL(finished + dropped, s.given);
}

TEST(told_to_drop_all_it_ends_at_once)
{
	static struct scene s;
	int begun = 0;
	s = (struct scene){ .layout = { .tp = 2, .pp = 1, .dp = 1 }, .ranks = 2, .n = 200, .order_at = 30, .order = ENGINE_DROP_ALL };
	play(&s);
	for (int i = 0; i < s.given; i++)
		begun += s.finish[i] == FINISH_DROPPED && s.n_tokens[i] > 0;
	CU_ASSERT(begun > 0 && s.given < 60);
}

/* Half a second without work on two ranks takes less than half of that on a processor; it is asked at most every half millisecond. */
TEST(waiting_for_requests_costs_little)
{
	static struct scene s;
	s = (struct scene){ .layout = { .tp = 2, .pp = 1, .dp = 1 }, .ranks = 2, .n = 5, .idle_us = 500000 };
	play(&s);
	printf("%.3f s, asked %d times  ", s.idle_cpu_s, s.asked);
	CU_ASSERT(s.asked <= 1001);
	CU_ASSERT(s.idle_cpu_s < 0.25);
}

TEST(an_engine_without_requests_ends)
{
	static struct scene s;
	s = (struct scene){ .layout = { .tp = 1, .pp = 1, .dp = 2 }, .ranks = 2 };
	play(&s);
	CU_ASSERT_EQUAL(s.counts.steps, 0);
}

TEST_MAIN("engine", CASE(requests_that_come_at_any_time_get_their_own_answers), CASE(they_get_them_with_guesses_too),
	  CASE(no_more_requests_are_taken_than_needed), CASE(a_request_may_be_cancelled_at_any_time),
	  CASE(several_answers_share_their_prompt_and_run_together),
	  CASE(told_to_admit_no_more_what_has_begun_is_finished), CASE(told_to_drop_all_it_ends_at_once),
	  CASE(waiting_for_requests_costs_little), CASE(an_engine_without_requests_ends))
