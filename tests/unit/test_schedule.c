/* The scheduler under random traces: requests of random lengths arrive at random times. A model kept beside it follows every
 * step: pages, budgets, order, positions. */
#include "base/mem.h"
#include "runtime/kernels.h"
#include "runtime/schedule.h"
#include "tests/test.h"

enum { MAX_REQUESTS = 200, MAX_REPLICAS = 4, MAX_CONTEXT = 400, MAX_PAGES = 64, MAX_SEQUENCES = 16 };

/* One request as the test follows it. */
struct follow {
	struct request r;
	int32_t prompt[MAX_CONTEXT];
	int64_t want, made, done;        /* answer tokens it may have, has; tokens computed */
	int32_t last_token, pages[MAX_PAGES], n_pages;
	int replica, finished, seen_step;    /* replica -1 until the first slice */
};

struct trace {
	struct schedule *s;
	struct step *step;
	struct schedule_limits l;
	struct follow *f;                /* (MAX_REQUESTS) */
	int n, step_number;
	uint64_t random;
};

/* splitmix64 */
static int64_t draw(struct trace *t, int64_t below)
{
	uint64_t z = t->random += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (int64_t)((z ^ (z >> 31)) % (uint64_t)below);
}

static int64_t pages_of(int64_t tokens) { return (tokens + 31) / 32; }

/* A random request; one that can never fit must be refused. */
static void arrive(struct trace *t)
{
	struct follow *f = &t->f[t->n];
	int32_t number = -1;
	*f = (struct follow){ .replica = -1, .seen_step = -1 };
	f->r = (struct request){ .prompt = f->prompt, .n_prompt = 1 + draw(t, draw(t, 3) ? 20 : MAX_CONTEXT),
				 .max_tokens = 1 + draw(t, draw(t, 3) ? 40 : 2 * MAX_CONTEXT) };
	for (int64_t i = 0; i < f->r.n_prompt; i++)
		f->prompt[i] = (int32_t)draw(t, 1000);
	int64_t left = t->l.context - f->r.n_prompt;
	f->want = f->r.max_tokens < left ? f->r.max_tokens : left;
	if (left < 1) {
		CHECK_ERR(schedule_add(t->s, &f->r, &number), FIT, "leaves no room for an answer");
	} else if (pages_of(f->r.n_prompt + f->want - 1) > t->l.n_pages) {
		CHECK_ERR(schedule_add(t->s, &f->r, &number), FIT, "pages of 32 tokens, but the KV cache has");
	} else {
		CHECK_OK(schedule_add(t->s, &f->r, &number));
		CU_ASSERT_EQUAL(number, t->n);
		t->n++;
	}
}

/* A slice against what the test knows of its sequence. */
static void check_slice(struct trace *t, const struct slice *sl)
{
	CU_ASSERT_FATAL(sl->sequence >= 0 && sl->sequence < t->n);
	struct follow *f = &t->f[sl->sequence];
	CU_ASSERT(!f->finished);
	CU_ASSERT(sl->replica >= 0 && sl->replica < t->l.n_replicas);
	CU_ASSERT(f->replica == -1 || f->replica == sl->replica);
	CU_ASSERT_NOT_EQUAL(f->seen_step, t->step_number);       /* one slice a step */
	CU_ASSERT_EQUAL(sl->pos, f->done);
	CU_ASSERT(sl->n_tokens >= 1);
	CU_ASSERT_EQUAL(sl->n_pages, pages_of(f->done + sl->n_tokens));
	CU_ASSERT_FATAL(sl->n_pages <= MAX_PAGES);
	const int32_t *pages = t->step->pages + sl->first_page, *tokens = t->step->tokens + sl->first_token;
	CU_ASSERT_EQUAL(memcmp(pages, f->pages, (size_t)f->n_pages * sizeof *pages), 0);      /* those it had stay */
	memcpy(f->pages, pages, (size_t)sl->n_pages * sizeof *pages);
	if (f->done < f->r.n_prompt) {
		CU_ASSERT(f->done + sl->n_tokens <= f->r.n_prompt);
		CU_ASSERT_EQUAL(memcmp(tokens, f->prompt + f->done, (size_t)sl->n_tokens * sizeof *tokens), 0);
	} else {
		CU_ASSERT_EQUAL(sl->n_tokens, 1);
		CU_ASSERT_EQUAL(tokens[0], f->last_token);
	}
	CU_ASSERT_EQUAL(sl->flags, f->done + sl->n_tokens >= f->r.n_prompt ? SLICE_SAMPLE : 0);
	f->replica = sl->replica;
	f->seen_step = t->step_number;
	f->n_pages = sl->n_pages;
}

/* No page of a replica belongs to two sequences that run. */
static void check_pages(const struct trace *t)
{
	int owner[MAX_REPLICAS][MAX_PAGES];
	memset(owner, 0xff, sizeof owner);
	for (int i = 0; i < t->n; i++) {
		const struct follow *f = &t->f[i];
		for (int32_t p = 0; !f->finished && p < f->n_pages; p++) {
			CU_ASSERT_FATAL(f->pages[p] >= 0 && f->pages[p] < t->l.n_pages);
			CU_ASSERT_EQUAL(owner[f->replica][f->pages[p]], -1);
			owner[f->replica][f->pages[p]] = i;
		}
	}
}

/* Budgets; decode tokens of all first, then prompts in order of arrival. */
static void check_step(struct trace *t)
{
	int64_t tokens[MAX_REPLICAS] = { 0 }, slices[MAX_REPLICAS] = { 0 };
	int32_t last[MAX_REPLICAS][2];
	memset(last, 0xff, sizeof last);
	for (int32_t i = 0; i < t->step->n_slices; i++) {
		const struct slice *sl = &t->step->slices[i];
		check_slice(t, sl);
		int prefill = sl->pos < t->f[sl->sequence].r.n_prompt;
		CU_ASSERT(last[sl->replica][prefill] < sl->sequence);
		CU_ASSERT(prefill || last[sl->replica][1] < 0);
		last[sl->replica][prefill] = sl->sequence;
		tokens[sl->replica] += sl->n_tokens;
		slices[sl->replica]++;
	}
	for (int r = 0; r < t->l.n_replicas; r++) {
		CU_ASSERT(tokens[r] <= t->l.step_tokens);
		CU_ASSERT(slices[r] <= t->l.sequences);
	}
	for (int i = 0; i < t->n; i++) {
		const struct follow *f = &t->f[i];
		if (f->replica < 0 || f->finished)
			continue;
		if (f->done >= f->r.n_prompt) {          /* a running answer never waits */
			CU_ASSERT_EQUAL(f->seen_step, t->step_number);
		} else if (f->seen_step != t->step_number) {    /* a prompt waits for the budget alone */
			CU_ASSERT_EQUAL(tokens[f->replica], t->l.step_tokens);
		}
	}
	check_pages(t);
}

/* What the last stage would send back. */
static void answer(struct trace *t)
{
	for (int32_t i = 0; i < t->step->n_slices; i++) {
		const struct slice *sl = &t->step->slices[i];
		struct follow *f = &t->f[sl->sequence];
		f->done += sl->n_tokens;
		if (!(sl->flags & SLICE_SAMPLE))
			continue;
		int more = draw(t, 30) != 0;
		f->last_token = (int32_t)draw(t, 1000);
		schedule_token(t->s, sl->sequence, f->last_token, more);
		f->made++;
		CU_ASSERT_EQUAL(schedule_is_full(t->s, sl->sequence), f->made == f->want);
		f->finished = !more || f->made == f->want;
		CHECK_OK(schedule_check(t->s));
	}
}

/* In one replica, who came earlier does not begin later. */
static void check_beginnings(const struct trace *t, const int *first_step)
{
	for (int i = 0; i < t->n; i++)
		for (int k = i + 1; k < t->n; k++)
			if (t->f[i].replica == t->f[k].replica)
				CU_ASSERT(first_step[i] <= first_step[k]);
}

static void play(uint64_t seed)
{
	static int first_step[MAX_REQUESTS];
	struct trace t = { .random = seed };
	t.l = (struct schedule_limits){ .n_replicas = 1 + (int)draw(&t, MAX_REPLICAS), .n_pages = 1 + draw(&t, MAX_PAGES),
					.sequences = 1 + draw(&t, MAX_SEQUENCES), .context = 2 + draw(&t, MAX_CONTEXT - 1) };
	t.l.step_tokens = t.l.sequences + draw(&t, 60);
	int64_t slices = t.l.sequences * t.l.n_replicas;
	int n_requests = 1 + (int)draw(&t, MAX_REQUESTS);
	CU_ASSERT_EQUAL_FATAL(MEM_NEW(MAX_REQUESTS, struct follow, &t.f), ERR_OK);
	CU_ASSERT_EQUAL_FATAL(schedule_create(&t.l, &t.s), ERR_OK);
	CU_ASSERT_EQUAL_FATAL(step_create(slices, t.l.step_tokens * t.l.n_replicas, slices * pages_of(t.l.context), &t.step),
			      ERR_OK);
	int to_come = n_requests;
	while (to_come || schedule_unfinished(t.s)) {
		for (int64_t k = draw(&t, 4); to_come && k > 0; k--, to_come--)
			arrive(&t);
		CHECK_OK(schedule_check(t.s));
		schedule_next(t.s, t.step);
		CHECK_OK(schedule_check(t.s));
		t.step_number++;
		for (int32_t i = 0; i < t.step->n_slices; i++)
			if (t.step->slices[i].pos == 0)
				first_step[t.step->slices[i].sequence] = t.step_number;
		CU_ASSERT_FATAL(t.step->n_slices > 0 || schedule_unfinished(t.s) == 0);
		check_step(&t);
		answer(&t);
		CU_ASSERT_FATAL(t.step_number < MAX_REQUESTS * 2 * MAX_CONTEXT);
	}
	for (int i = 0; i < t.n; i++)
		CU_ASSERT(t.f[i].finished && t.f[i].made >= 1 && t.f[i].made <= t.f[i].want);
	check_beginnings(&t, first_step);
	schedule_next(t.s, t.step);
	CU_ASSERT_EQUAL(t.step->n_slices, 0);
	step_destroy(t.step);
	schedule_destroy(t.s);
	mem_free(t.f);
}

TEST(random_traces_keep_pages_budgets_and_order)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		play(seed);
}

static struct schedule *make(int64_t n_pages, int64_t sequences, int64_t context)
{
	struct schedule_limits l = { .n_replicas = 1, .n_pages = n_pages, .step_tokens = 64, .sequences = sequences,
				     .context = context };
	struct schedule *s = NULL;
	CU_ASSERT_EQUAL_FATAL(schedule_create(&l, &s), ERR_OK);
	return s;
}

TEST(what_can_never_run_is_refused_with_the_numbers)
{
	static const int32_t prompt[200];
	struct schedule *s = make(3, 4, 150);
	int32_t number;
	CHECK_ERR(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = 150, .max_tokens = 1 }, &number), FIT,
		  "a prompt of 150 tokens leaves no room for an answer in a context of 150");
	/* 60 + 38 - 1 = 97 tokens: the last is never computed; 3 pages hold 96 */
	CHECK_ERR(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = 60, .max_tokens = 38 }, &number), FIT,
		  "a sequence of 97 tokens needs 4 pages of 32 tokens, but the KV cache has 3");
	CHECK_ERR(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = 0, .max_tokens = 1 }, &number), WORK,
		  "no tokens");
	CHECK_ERR(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = 1, .max_tokens = 0 }, &number), WORK,
		  "at most 0");
	CU_ASSERT_EQUAL(schedule_unfinished(s), 0);
	CHECK_OK(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = 60, .max_tokens = 37 }, &number));
	CU_ASSERT_EQUAL(number, 0);
	schedule_destroy(s);
}

/* Two pages are free, the second request needs three: the third, which would fit, does not pass it. */
TEST(a_short_request_does_not_pass_a_long_one)
{
	static const int32_t prompt[200];
	struct schedule *s = make(4, 4, 150);
	struct step *step;
	int32_t number;
	CU_ASSERT_EQUAL_FATAL(step_create(4, 64, 16, &step), ERR_OK);
	CHECK_OK(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = 40, .max_tokens = 3 }, &number));
	CHECK_OK(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = 70, .max_tokens = 1 }, &number));
	CHECK_OK(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = 5, .max_tokens = 1 }, &number));
	for (int i = 0; i < 3; i++) {
		schedule_next(s, step);
		CU_ASSERT_EQUAL_FATAL(step->n_slices, 1);
		CU_ASSERT_EQUAL(step->slices[0].sequence, 0);
		schedule_token(s, 0, 9, 1);
	}
	schedule_next(s, step);                          /* its pages are back: 70 tokens in chunks of 64, then both */
	CU_ASSERT_EQUAL_FATAL(step->n_slices, 1);
	CU_ASSERT_EQUAL(step->slices[0].sequence, 1);
	CU_ASSERT_EQUAL(step->slices[0].n_tokens, 64);
	schedule_next(s, step);
	CU_ASSERT_EQUAL_FATAL(step->n_slices, 2);
	CU_ASSERT_EQUAL(step->slices[0].n_tokens, 6);
	CU_ASSERT_EQUAL(step->slices[1].sequence, 2);
	CU_ASSERT_EQUAL(step->n_tokens, 11);
	CHECK_OK(schedule_check(s));
	step_destroy(step);
	schedule_destroy(s);
}

TEST_MAIN("schedule", CASE(random_traces_keep_pages_budgets_and_order), CASE(what_can_never_run_is_refused_with_the_numbers),
	  CASE(a_short_request_does_not_pass_a_long_one))
