/* labels: unit
 * timeout: 240
 * How many steps a short prompt waits for its first token while long ones keep coming: in the scheduler, at many loads, and through the
 * engine. A request comes at some moment within a step that it is too late for; that moment to the end of the step with its first
 * token is what is counted, so one that is in the next step has waited for 1 to 2 steps. */
#include "base/mem.h"
#include "runtime/engine.h"
#include "runtime/kernels.h"
#include "tests/kernel_data.h"
#include "tests/test.h"

#include <math.h>

enum { MOST_REQUESTS = 6000, LEAST_LONG = 2000, MOST_LONG = 8000, MOST_SHORT = 100, MOST_NEW = 60, CONTEXT = MOST_LONG + MOST_NEW,
       SEQUENCES = 64, LONGS = 8 };

static double uniform(void) { return ((double)random_below(1 << 24) + 0.5) / (1 << 24); }

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Of waits, in steps. */
struct waits { double *of; int n; };

static double share_at(struct waits *w, double share)
{
	qsort(w->of, (size_t)w->n, sizeof *w->of, ascending);
	return w->of[(int)(share * (w->n - 1))];
}

/* --- the scheduler --- */

struct load {
	int64_t step_tokens;
	double shorts_a_step;
	struct schedule *s;
	struct step *step;
	int32_t *text;                        /* all prompts are parts of it, none beginning like another */
	struct { double came; int is_short, told; int32_t *answer; } of[MOST_REQUESTS];
	int of_number[MOST_REQUESTS];
	int n, steps, longs;                  /* longs: that have no token yet */
	int64_t long_tokens;                  /* read of long prompts */
	struct waits waits;
};

static void come(struct load *l, int64_t n_prompt, int64_t n_new, double when, int is_short)
{
	int32_t number = -1;
	CU_ASSERT_FATAL(l->n < MOST_REQUESTS);
	CU_ASSERT_EQUAL_FATAL(MEM_NEW((size_t)n_new, int32_t, &l->of[l->n].answer), ERR_OK);
	struct request r = { .prompt = l->text + l->n, .n_prompt = n_prompt, .max_tokens = n_new, .answer = l->of[l->n].answer };
	CHECK_OK(schedule_add(l->s, &r, &number));
	CU_ASSERT_FATAL(number >= 0 && number < MOST_REQUESTS);
	l->of_number[number] = l->n;
	l->of[l->n].came = when;
	l->of[l->n].is_short = is_short;
	l->n++;
	l->longs += !is_short;
}

/* What came while the step that has just landed was under way: the next one is decided now. */
static void arrivals(struct load *l)
{
	while (l->longs < LONGS)
		come(l, LEAST_LONG + random_below(MOST_LONG - LEAST_LONG + 1), 1 + random_below(MOST_NEW), l->steps, 0);
	for (double p = uniform(), q = exp(-l->shorts_a_step); p > q; p *= uniform())            /* Poisson, Knuth's way */
		come(l, 1 + random_below(MOST_SHORT), 1 + random_below(MOST_NEW), l->steps - uniform(), 1);
}

static void one_step(struct load *l)
{
	schedule_next(l->s, l->step);
	schedule_landed(l->s, l->step);
	l->steps++;
	for (int32_t i = 0; i < l->step->n_slices; i++) {
		const struct slice *sl = &l->step->slices[i];
		int at = l->of_number[sl->sequence];
		if (!l->of[at].is_short && !l->of[at].told)
			l->long_tokens += sl->n_tokens;
		if (!(sl->flags & SLICE_SAMPLE))
			continue;
		if (l->of[at].is_short && !l->of[at].told)
			l->waits.of[l->waits.n++] = l->steps - l->of[at].came;
		l->longs -= !l->of[at].is_short && !l->of[at].told;
		l->of[at].told = 1;
		int is_last = schedule_room(l->s, sl->sequence) <= 1;
		schedule_token(l->s, sl->sequence, 1, !is_last);
	}
}

static void simulate(struct load *l, int steps)
{
	int64_t pages = (CONTEXT + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS * SEQUENCES;
	struct schedule_limits limits = { .n_replicas = 1, .n_pages = pages, .step_tokens = l->step_tokens, .sequences = SEQUENCES,
					  .context = CONTEXT };
	CU_ASSERT_EQUAL_FATAL(schedule_create(&limits, &l->s), ERR_OK);
	CU_ASSERT_EQUAL_FATAL(step_create(&(struct step_room){ SEQUENCES, l->step_tokens, pages, 0 }, &l->step), ERR_OK);
	CU_ASSERT_EQUAL_FATAL(MEM_NEW(MOST_REQUESTS + MOST_LONG, int32_t, &l->text), ERR_OK);
	CU_ASSERT_EQUAL_FATAL(MEM_NEW(MOST_REQUESTS, double, &l->waits.of), ERR_OK);
	for (int i = 0; i < MOST_REQUESTS + MOST_LONG; i++)
		l->text[i] = (int32_t)random_below(50000);
	while (l->steps < steps) {
		one_step(l);
		arrivals(l);
	}
	CHECK_OK(schedule_check(l->s));
}

static void end(struct load *l)
{
	for (int i = 0; i < l->n; i++)
		mem_free(l->of[i].answer);
	schedule_destroy(l->s);
	step_destroy(l->step);
	mem_free(l->text);
	mem_free(l->waits.of);
}

/* Half of what the answers leave of a step is for the short prompts that end in it, and as long as they fit there none waits. There are
 * places and pages for all. The long ones get at least the other half. */
TEST(a_short_prompt_has_its_first_token_within_two_and_a_half_steps)
{
	static const struct { int64_t step_tokens; double shorts_a_step; } loads[] = {
		{ 256, 0.1 }, { 512, 0.1 }, { 512, 0.5 }, { 512, 1 }, { 2048, 0.3 }, { 2048, 0.7 } };
	for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
		static struct load l;
		random_state = 11 + i;
		l = (struct load){ .step_tokens = loads[i].step_tokens, .shorts_a_step = loads[i].shorts_a_step };
		simulate(&l, 4000);
		double most = share_at(&l.waits, 1), high = share_at(&l.waits, 0.99);
		printf("%lld tokens a step, %.2f short ones: %d waited %.2f steps (median), 99 %% below %.2f, most %.2f, long ones read %.0f%% of the "
		       "tokens\n", (long long)l.step_tokens, l.shorts_a_step, l.waits.n, share_at(&l.waits, 0.5), high, most,
		       100 * (double)l.long_tokens / (double)(l.steps * l.step_tokens));
		CU_ASSERT(l.waits.n > 200);
		CU_ASSERT(high < 2.5);
		CU_ASSERT((double)l.long_tokens > 0.5 * (double)((l.step_tokens - SEQUENCES) * l.steps));
		end(&l);
	}
}

/* --- the engine --- */

enum { ENGINE_STEP = 64, ENGINE_SEQUENCES = 16, ENGINE_CONTEXT = 1600, ENGINE_LONGS = 4, ENGINE_SHORT = 20, ENGINE_STEPS = 400,
       MOST_GIVEN = 600, VOCAB = 131 };

struct given { int32_t prompt[ENGINE_CONTEXT]; int is_short, told; int64_t step; };

struct source {
	struct layout layout;
	int ranks;
	struct cluster cluster;
	struct given *of;                     /* (MOST_GIVEN) */
	int n, longs, asked;
	int64_t step;                         /* the one that is being decided, from 1 */
	struct waits waits;                   /* from that one to the one with the first token, both counted */
};

/* There are always some long prompts; short ones come now and then, at most one a step. */
static enum engine_next next(void *arg, struct request *r)
{
	struct source *s = arg;
	int is_short = s->longs == ENGINE_LONGS;
	if (s->step > ENGINE_STEPS)
		return ENGINE_NO_MORE;
	if (is_short && (s->asked++ || random_below(3)))
		return ENGINE_NONE_NOW;
	CU_ASSERT_FATAL(s->n < MOST_GIVEN);
	struct given *g = &s->of[s->n++];
	*g = (struct given){ .is_short = is_short, .step = s->step };
	for (int i = 0; i < ENGINE_CONTEXT; i++)
		g->prompt[i] = (int32_t)random_below(VOCAB);
	s->longs += !is_short;
	*r = (struct request){ .prompt = g->prompt, .n_prompt = is_short ? 1 + random_below(ENGINE_SHORT) : 500 + random_below(1000),
			       .max_tokens = 1 + random_below(20), .ignore_eos = 1, .tag = g };
	return ENGINE_REQUEST;
}

static int token(void *arg, const struct answer *a, int32_t id)
{
	struct source *s = arg;
	struct given *g = a->tag;
	(void)id;
	if (g->is_short && !g->told)
		s->waits.of[s->waits.n++] = (double)(s->step - g->step + 1);
	g->told = 1;
	return 0;
}

static void done(void *arg, struct answer *a)
{
	struct source *s = arg;
	s->longs -= !((struct given *)a->tag)->is_short;
	CU_ASSERT_EQUAL(a->finish, FINISH_LENGTH);
}

static enum engine_order order(void *arg, struct engine *e)
{
	struct source *s = arg;
	(void)e;
	s->step++;
	s->asked = 0;
	return ENGINE_GO_ON;
}

static enum err body(struct comm *world, void *arg)
{
	struct source *s = arg;
	struct place place = { 0 };
	struct session *session = NULL;
	struct session_wish wish = { .model_path = SOURCE_DIR "/tests/golden/models/llama-tied", .isa = "auto" };
	struct engine_calls calls = { .next = next, .token = token, .done = done, .order = order, .arg = s };
	int is_head = comm_rank(world) == 0;
	wish.plan = (struct plan_wish){ .layout = s->layout, .threads = 1, .step_tokens = ENGINE_STEP, .sequences = ENGINE_SEQUENCES,
					.context = ENGINE_CONTEXT };
	enum err e = place_invent(&s->cluster, s->ranks, 0, &place);
	if (!e)
		e = session_create(world, &wish, &place, &session);
	if (!e)
		e = engine_run(session, is_head ? &calls : NULL, NULL);
	session_destroy(session);
	place_free(&place);
	return e;
}

/* The step that is being decided when a short one is taken is the one in which it has its first token; it came while the one before
 * was under way. */
TEST(the_engine_puts_a_short_prompt_into_the_next_step)
{
	for (int tp = 1; tp <= 2; tp++) {
		struct source s = { .layout = { .tp = tp, .pp = 1, .dp = 1 }, .ranks = tp };
		random_state = 5;
		CU_ASSERT_EQUAL_FATAL(MEM_NEW(MOST_GIVEN, struct given, &s.of), ERR_OK);
		CU_ASSERT_EQUAL_FATAL(MEM_NEW(MOST_GIVEN, double, &s.waits.of), ERR_OK);
		CU_ASSERT_EQUAL_FATAL(cluster_read("pack:1 core:8 pu:1", &s.cluster), ERR_OK);
		CHECK_OK(comm_inproc_run(tp, NULL, body, &s));
		printf("tp %d: %d short ones, %d long ones; waited %.0f to %.0f steps\n", tp, s.waits.n, s.n - s.waits.n, share_at(&s.waits, 0),
		       share_at(&s.waits, 1));
		CU_ASSERT(s.waits.n > 80 && s.n - s.waits.n > 10);
		CU_ASSERT_EQUAL(share_at(&s.waits, 1), 1);
		cluster_free(&s.cluster);
		mem_free(s.of);
		mem_free(s.waits.of);
	}
}

TEST_MAIN("first token", CASE(a_short_prompt_has_its_first_token_within_two_and_a_half_steps),
	  CASE(the_engine_puts_a_short_prompt_into_the_next_step))
