/* The scheduler under random traces: requests of random lengths, many of them alike in the beginning, arrive and are
 * cancelled at random times, with several steps in flight. Beside it stands a cache that knows for every place of every
 * page which beginning it was computed for: a step must find there, for each of its sequences, exactly that sequence's tokens. The
 * token that is chosen follows from the beginning alone, so each answer is known before; some answers repeat themselves, so that drafts
 * come true. And there stand the tables of the ranks that choose, which must know all of a sequence's tokens whenever its penalties
 * need them. */
#include "base/mem.h"
#include "runtime/kernels.h"
#include "runtime/ngram.h"
#include "runtime/schedule.h"
#include "tests/test.h"

enum { MAX_REQUESTS = 150, MAX_REPLICAS = 3, MAX_CONTEXT = 400, MAX_PAGES = 48, MAX_SEQUENCES = 12, MAX_FLIGHT = 4, WORDS = 50,
       BASES = 3, MAX_MASK = 40 };

static const struct token_bias biases[ADJUST_MAX_BIASES];
static const int32_t stop_tokens[ADJUST_MAX_BANNED];
static const uint32_t mask[MAX_MASK] = { 0x1234 };

/* One request as the test follows it. */
struct follow {
	struct request r;
	int32_t tokens[MAX_CONTEXT + 1], answer[MAX_CONTEXT], room[MAX_CONTEXT];
	int64_t want, made;              /* answer tokens: that it must get, that it has */
	int repeats;                     /* a token follows from the one before alone */
	int cancelled, finished;
	int flying;                      /* in how many steps */
	int32_t number;
};

struct trace {
	struct schedule *s;
	struct schedule_limits l;
	struct step *steps[MAX_FLIGHT];  /* the first n_flying are under way, oldest first */
	int n_flying, n, n_steps;
	struct follow *f;                /* (MAX_REQUESTS) */
	int of_number[MAX_REQUESTS];
	uint64_t (*cache)[MAX_PAGES][KV_PAGE_TOKENS];    /* (replicas): of a beginning, up to this token */
	int32_t bases[BASES][MAX_CONTEXT];
	struct { int32_t tokens[MAX_CONTEXT + 1]; int n; } told[MAX_REPLICAS][MAX_SEQUENCES];    /* what is counted in each slot */
	uint64_t random;
};

/* Counts over all traces, so that the test knows that it tested something. */
static struct { int64_t shared, copies, put_back, cancelled, done, drafted, accepted, draft_pages; } seen;

static uint64_t mix(uint64_t z)      /* SplitMix64's */
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static int64_t draw(struct trace *t, int64_t below) { return (int64_t)(mix(t->random += 0x9e3779b97f4a7c15u) % (uint64_t)below); }
static int64_t pages_of(int64_t tokens) { return (tokens + 31) / 32; }
static uint64_t longer(uint64_t beginning, int32_t token) { return mix(beginning * 31 + (uint64_t)token + 1); }

/* The answer that follows from the prompt: each token from the hash of all before it, which may also end it. */
static void foresee(struct follow *f, int64_t most)
{
	uint64_t h = 1;
	int64_t n = f->r.n_prompt;
	memcpy(f->tokens, f->r.prompt, (size_t)n * sizeof *f->tokens);
	for (int64_t i = 0; i < n; i++)
		h = longer(h, f->tokens[i]);
	for (f->want = 0; f->want < most; h = longer(h, f->tokens[n + f->want - 1])) {
		uint64_t from = f->repeats ? mix((uint64_t)f->tokens[n + f->want - 1]) >> 7 : h;
		f->tokens[n + f->want] = (int32_t)(from % WORDS);
		f->answer[f->want++] = (int32_t)(from % WORDS);
		if (h >> 32 & 1 && (h >> 40) % 40 == 0)
			return;
	}
}

static int ends(const struct follow *f, int64_t made) { return made == f->want; }

/* A prompt: a part of one of the bases, then anything. One that can never fit must be refused. */
static void arrive(struct trace *t)
{
	struct follow *f = &t->f[t->n];
	int32_t *prompt = f->room, number = -1;
	*f = (struct follow){ .number = -1, .repeats = (int)draw(t, 2) };
	int64_t n = 1 + draw(t, draw(t, 3) ? 60 : MAX_CONTEXT), alike = draw(t, n + 1), base = draw(t, BASES);
	f->r = (struct request){ .n_prompt = n, .max_tokens = 1 + draw(t, draw(t, 3) ? 40 : 2 * MAX_CONTEXT),
				 .answer = f->answer, .priority = draw(t, 5) ? 0 : (int)draw(t, 3) - 1 };
	for (int64_t i = 0; i < n; i++)
		prompt[i] = i < alike ? t->bases[base][i] : (int32_t)draw(t, WORDS);
	f->r.prompt = prompt;
	if (draw(t, 3) == 0)
		f->r.repetition_penalty = 1.5f;
	if (draw(t, 4) == 0)
		f->r.biases = biases, f->r.n_biases = 1 + (int)draw(t, ADJUST_MAX_BIASES);
	if (draw(t, 4) == 0)
		f->r.stop_tokens = stop_tokens, f->r.n_stop_tokens = 1 + (int)draw(t, ADJUST_MAX_BANNED), f->r.min_tokens = draw(t, 30);
	if (draw(t, 5) == 0)
		f->r.mask = mask;
	int64_t left = t->l.context - n, most = f->r.max_tokens < left ? f->r.max_tokens : left;
	if (left < 1) {
		CHECK_ERR(schedule_add(t->s, &f->r, &number), FIT, "leaves no room for an answer");
	} else if (pages_of(n + most - 1) > t->l.n_pages) {
		CHECK_ERR(schedule_add(t->s, &f->r, &number), FIT, "pages of 32 tokens, but the KV cache has");
	} else {
		foresee(f, most);
		memset(f->answer, 0xff, sizeof f->answer);
		CHECK_OK(schedule_add(t->s, &f->r, &number));
		CU_ASSERT_FATAL(number >= 0 && number < MAX_REQUESTS);
		for (int i = 0; i < t->n; i++)
			CU_ASSERT(t->f[i].finished || t->f[i].number != number);
		f->number = number;
		t->of_number[number] = t->n++;
	}
}

/* What travels with a slice that samples is what its request asks for, and the table of its slot gets to know its tokens. */
static void check_extra(struct trace *t, const struct step *step, const struct slice *sl)
{
	const struct follow *f = &t->f[t->of_number[sl->sequence]];
	const struct request *r = &f->r;
	struct adjustments a = { .repetition = 1 };
	int64_t known = r->n_prompt + f->made;
	CU_ASSERT(sl->n_extra == 0 || sl->flags & SLICE_SAMPLE);
	if (!(sl->flags & SLICE_SAMPLE))
		return;
	if (sl->n_extra)
		CHECK_OK(adjust_unpack(step->extra + sl->first_extra, sl->n_extra, &a));
	if (sl->n_drafts) {
		CU_ASSERT(!adjust_counts(&a) && !a.n_mask);
		CU_ASSERT((f->made < r->min_tokens) == (f->made + sl->n_drafts < r->min_tokens) || !r->n_stop_tokens);
	}
	CU_ASSERT(a.n_biases == r->n_biases && a.n_banned == (f->made < r->min_tokens ? r->n_stop_tokens : 0));
	CU_ASSERT_EQUAL(a.n_mask, r->mask ? t->l.mask_words : 0);
	CU_ASSERT(a.n_mask == 0 || a.mask[0] == mask[0]);
	CU_ASSERT_EQUAL(adjust_counts(&a), r->repetition_penalty > 0);
	if (!adjust_counts(&a))
		return;
	CU_ASSERT_FATAL(a.slot >= 0 && a.slot < t->l.sequences);
	int32_t *told = t->told[sl->replica][a.slot].tokens;
	int *n = &t->told[sl->replica][a.slot].n;
	if (a.n_prompt) {
		CU_ASSERT_FATAL(a.n_prompt == r->n_prompt && a.n_answer == f->made);
		memcpy(told, a.prompt, (size_t)a.n_prompt * sizeof *told);
		memcpy(told + a.n_prompt, a.answer, (size_t)a.n_answer * sizeof *told);
		*n = a.n_prompt + a.n_answer;
	} else {
		CU_ASSERT_FATAL(*n + sl->n_tokens <= MAX_CONTEXT);
		memcpy(told + *n, step->tokens + sl->first_token, (size_t)sl->n_tokens * sizeof *told);
		*n += sl->n_tokens;
	}
	CU_ASSERT(*n == known && !memcmp(told, f->tokens, (size_t)known * sizeof *told));
}

/* A slice does what a stage would: finds what is before it, and leaves its own tokens. */
static void work_on(struct trace *t, const struct step *step, const struct slice *sl)
{
	CU_ASSERT_FATAL(sl->replica >= 0 && sl->replica < t->l.n_replicas);
	struct follow *f = &t->f[t->of_number[sl->sequence]];
	const int32_t *pages = step->pages + sl->first_page, *tokens = step->tokens + sl->first_token;
	int64_t known = f->r.n_prompt + f->made, end = sl->pos + sl->n_tokens, right_end = end - sl->n_drafts;
	uint64_t h = 1;
	CU_ASSERT(!f->finished && sl->n_drafts >= 0 && right_end > sl->pos && right_end <= known);
	f->flying++;
	if (sl->flags & SLICE_ANSWERS)
		CU_ASSERT(f->flying == 1 && f->made > 0 && right_end == sl->pos + 1 && sl->flags & SLICE_SAMPLE);
	CU_ASSERT(sl->n_drafts == 0 || (sl->flags & SLICE_ANSWERS && f->made + sl->n_drafts < f->r.max_tokens && end < t->l.context));
	CU_ASSERT_EQUAL_FATAL(sl->n_pages, pages_of(end));
	CU_ASSERT_EQUAL(sl->flags & ~SLICE_ANSWERS, right_end == known ? SLICE_SAMPLE : 0);
	check_extra(t, step, sl);
	CU_ASSERT(!memcmp(tokens, f->tokens + sl->pos, (size_t)(right_end - sl->pos) * sizeof *tokens));
	for (int64_t i = 0; i < end; i++) {
		CU_ASSERT_FATAL(pages[i / 32] >= 0 && pages[i / 32] < t->l.n_pages);
		uint64_t *place = &t->cache[sl->replica][pages[i / 32]][i % 32];
		h = longer(h, i < known ? f->tokens[i] : tokens[i - sl->pos]);
		if (i < sl->pos)
			CU_ASSERT_EQUAL(*place, h);
		*place = h;
	}
}

/* Places that slices of one step write are read by none other of it, but after the whole step's writes. */
static void run_step(struct trace *t, const struct step *step)
{
	int64_t tokens[MAX_REPLICAS] = { 0 }, slices[MAX_REPLICAS] = { 0 }, drafts[MAX_REPLICAS] = { 0 };
	for (int32_t i = 0; i < step->n_copies; i++) {
		const struct page_copy *c = &step->copies[i];
		memcpy(t->cache[c->replica][c->to], t->cache[c->replica][c->from], sizeof t->cache[c->replica][c->to]);
	}
	for (int32_t i = 0; i < step->n_slices; i++) {
		work_on(t, step, &step->slices[i]);
		tokens[step->slices[i].replica] += step->slices[i].n_tokens;
		drafts[step->slices[i].replica] += step->slices[i].n_drafts;
		slices[step->slices[i].replica]++;
	}
	for (int r = 0; r < t->l.n_replicas; r++) {
		CU_ASSERT(tokens[r] <= t->l.step_tokens && slices[r] <= t->l.sequences);
		CU_ASSERT(drafts[r] == 0 || (tokens[r] <= t->l.draft_rows && tokens[r] == slices[r] + drafts[r]));
	}
}

/* A choice of a slice: gives 1 when the next one is right, too. */
static int take(struct trace *t, const struct slice *sl, int32_t draft)
{
	struct follow *f = &t->f[t->of_number[sl->sequence]];
	int32_t token = f->tokens[f->r.n_prompt + f->made];
	CU_ASSERT(f->cancelled || schedule_room(t->s, sl->sequence) >= f->want - f->made);
	if (!f->cancelled)
		f->finished = ends(f, ++f->made);
	schedule_token(t->s, sl->sequence, token, !f->finished);
	CHECK_OK(schedule_check(t->s));
	return !f->finished && token == draft;
}

/* Drafts take no page for which one is put back then. */
static void check_draft_pages(struct trace *t, const struct step *step, int64_t put_back_before)
{
	struct schedule_counts counts;
	int64_t n = 0;
	schedule_count(t->s, &counts);
	for (int32_t i = 0; i < step->n_slices; i++) {
		int64_t end = step->slices[i].pos + step->slices[i].n_tokens;
		n += pages_of(end) > pages_of(end - step->slices[i].n_drafts);
	}
	CU_ASSERT(n == 0 || t->l.n_replicas > 1 || counts.put_back == put_back_before);
	seen.draft_pages += n;
}

/* The oldest step under way comes back. */
static void land(struct trace *t)
{
	struct step *step = t->steps[0];
	schedule_landed(t->s, step);
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		struct follow *f = &t->f[t->of_number[sl->sequence]];
		f->flying--;
		f->finished |= f->cancelled && f->flying == 0;
		if (!(sl->flags & SLICE_SAMPLE))
			continue;
		const int32_t *drafts = step->tokens + slice_first_draft(sl);
		int32_t n = 0;
		while (take(t, sl, n < sl->n_drafts ? drafts[n] : -1))
			n++;
	}
	for (int i = 0; i + 1 < t->n_flying; i++)
		t->steps[i] = t->steps[i + 1];
	t->steps[--t->n_flying] = step;
}

static void cancel_one(struct trace *t)
{
	struct follow *f = &t->f[draw(t, t->n)];
	if (f->finished || f->cancelled)
		return;
	f->cancelled = 1;
	f->finished = f->flying == 0;
	schedule_cancel(t->s, f->number);
	CHECK_OK(schedule_check(t->s));
}

static void begin(struct trace *t)
{
	t->l = (struct schedule_limits){ .n_replicas = 1 + (int)draw(t, MAX_REPLICAS), .n_pages = 1 + draw(t, MAX_PAGES),
					 .sequences = 1 + draw(t, MAX_SEQUENCES), .context = 2 + draw(t, MAX_CONTEXT - 1),
					 .in_flight = (int)draw(t, MAX_FLIGHT + 1), .mask_words = draw(t, MAX_MASK + 1),
					 .draft_rows = draw(t, 3) ? draw(t, 2 * NGRAM_MOST_DRAFTS) : 0 };
	t->l.step_tokens = t->l.sequences + draw(t, 60);
	int64_t slices = t->l.sequences * t->l.n_replicas, extra = t->l.context + t->l.mask_words + adjust_most_ints();   /* the least */
	for (int b = 0; b < BASES; b++)
		for (int i = 0; i < MAX_CONTEXT; i++)
			t->bases[b][i] = (int32_t)draw(t, WORDS);
	CU_ASSERT_EQUAL_FATAL(MEM_NEW(MAX_REQUESTS, struct follow, &t->f), ERR_OK);
	CU_ASSERT_EQUAL_FATAL(mem_alloc(MAX_REPLICAS, sizeof *t->cache, "cache", &t->cache), ERR_OK);
	CU_ASSERT_EQUAL_FATAL(schedule_create(&t->l, &t->s), ERR_OK);
	for (int i = 0; i < MAX_FLIGHT; i++)
		CU_ASSERT_EQUAL_FATAL(step_create(&(struct step_room){ slices, t->l.step_tokens * t->l.n_replicas, slices * pages_of(t->l.context),
							  extra * t->l.n_replicas },
						  &t->steps[i]), ERR_OK);
}

static void end(struct trace *t)
{
	for (int i = 0; i < MAX_FLIGHT; i++)
		step_destroy(t->steps[i]);
	schedule_destroy(t->s);
	mem_free(t->cache);
	mem_free(t->f);
}

static void play(uint64_t seed)
{
	struct trace t = { .random = seed };
	struct schedule_counts counts;
	begin(&t);
	int flight = t.l.in_flight > 1 ? t.l.in_flight : 1;
	for (int to_come = 1 + (int)draw(&t, MAX_REQUESTS); to_come || schedule_unfinished(t.s); t.n_steps++) {
		for (int64_t k = draw(&t, 6); to_come && k > 0; k--, to_come--)
			arrive(&t);
		if (t.n && draw(&t, 20) == 0)
			cancel_one(&t);
		while (t.n_flying == flight || (t.n_flying && draw(&t, 2)))
			land(&t);
		CHECK_OK(schedule_check(t.s));
		schedule_count(t.s, &counts);
		schedule_next(t.s, 0, t.l.n_replicas, t.steps[t.n_flying]);
		CHECK_OK(schedule_check(t.s));
		check_draft_pages(&t, t.steps[t.n_flying], counts.put_back);
		seen.copies += t.steps[t.n_flying]->n_copies;
		if (t.steps[t.n_flying]->n_slices) {
			run_step(&t, t.steps[t.n_flying++]);
		} else {
			CU_ASSERT_EQUAL(t.steps[t.n_flying]->n_copies, 0);
			CU_ASSERT_FATAL(t.n_flying > 0 || schedule_unfinished(t.s) == 0);
			if (t.n_flying)
				land(&t);
		}
		CU_ASSERT_FATAL(t.n_steps < MAX_REQUESTS * 2 * MAX_CONTEXT);
	}
	for (int i = 0; i < t.n; i++) {
		const struct follow *f = &t.f[i];
		CU_ASSERT(f->finished && (f->cancelled || f->made == f->want));
		CU_ASSERT(!memcmp(f->answer, f->tokens + f->r.n_prompt, (size_t)f->made * sizeof *f->answer));
		seen.cancelled += f->cancelled;
		seen.done += !f->cancelled;
	}
	schedule_count(t.s, &counts);
	CU_ASSERT(counts.running == 0 && counts.waiting == 0 && counts.free_pages == t.l.n_pages * t.l.n_replicas);
	seen.shared += counts.shared_tokens;
	seen.put_back += counts.put_back;
	CU_ASSERT(counts.accepted <= counts.drafted && counts.draft_slices <= counts.drafted);
	seen.drafted += counts.drafted;
	seen.accepted += counts.accepted;
	end(&t);
}

TEST(random_traces_give_every_request_its_own_answer)
{
	for (uint64_t seed = 1; seed <= 1000; seed++)
		play(seed);
	printf("%lld answers, %lld cancelled, %lld put back, %lld tokens shared, %lld pages copied, %lld drafted, %lld accepted  ",
	       (long long)seen.done, (long long)seen.cancelled, (long long)seen.put_back, (long long)seen.shared, (long long)seen.copies,
	       (long long)seen.drafted, (long long)seen.accepted);
	CU_ASSERT(seen.done > 1000 && seen.cancelled > 1000 && seen.put_back > 100 && seen.shared > 1000 && seen.copies > 1000);
	CU_ASSERT(seen.drafted > 10000 && seen.accepted > 1000 && seen.accepted < seen.drafted && seen.draft_pages > 1000);
}

/* --- single traits --- */

static struct schedule *make(int64_t n_pages, int64_t sequences, int64_t context, int64_t step_tokens)
{
	struct schedule_limits l = { .n_replicas = 1, .n_pages = n_pages, .step_tokens = step_tokens, .sequences = sequences,
				     .context = context };
	struct schedule *s = NULL;
	CU_ASSERT_EQUAL_FATAL(schedule_create(&l, &s), ERR_OK);
	return s;
}

TEST(what_can_never_run_is_refused_with_the_numbers)
{
	static const int32_t prompt[200];
	static int32_t answer[200];
	struct schedule *s = make(3, 4, 150, 64);
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
	CHECK_OK(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = 60, .max_tokens = 37, .answer = answer }, &number));
	CU_ASSERT_EQUAL(number, 0);
	schedule_destroy(s);
}

/* Steps until the sequence gets a token, at most `most`. Others' tokens are taken, too; they go on for ever. */
static int steps_to_token(struct schedule *s, struct step *step, int32_t sequence, int most)
{
	for (int n = 1; n <= most; n++) {
		int mine = 0;
		schedule_next(s, 0, 1, step);
		schedule_landed(s, step);
		for (int32_t i = 0; i < step->n_slices; i++)
			if (step->slices[i].flags & SLICE_SAMPLE) {
				mine |= step->slices[i].sequence == sequence;
				schedule_token(s, step->slices[i].sequence, 1, 1);
			}
		if (mine)
			return n;
	}
	return most + 1;
}

static int32_t add(struct schedule *s, const int32_t *prompt, int64_t n, int64_t max_tokens, int32_t *answer)
{
	int32_t number = -1;
	CHECK_OK(schedule_add(s, &(struct request){ .prompt = prompt, .n_prompt = n, .max_tokens = max_tokens, .answer = answer },
			      &number));
	return number;
}

/* Eight prompts of 4000 tokens are being read, 512 tokens a step; a short one has its first token after a step or two. */
TEST(a_short_prompt_does_not_wait_for_long_ones)
{
	static int32_t prompts[9][4000], answers[9][100];
	struct schedule *s = make(2000, 16, 4200, 512);
	struct step *step;
	CU_ASSERT_EQUAL_FATAL(step_create(&(struct step_room){ 16, 512, 4000, 0 }, &step), ERR_OK);
	for (int i = 0; i < 8; i++) {
		prompts[i][0] = i;
		add(s, prompts[i], 4000, 100, answers[i]);
	}
	schedule_next(s, 0, 1, step);
	schedule_landed(s, step);
	prompts[8][0] = 9;
	int32_t number = add(s, prompts[8], 100, 100, answers[8]);
	CU_ASSERT(steps_to_token(s, step, number, 10) <= 2);
	step_destroy(step);
	schedule_destroy(s);
}

/* A long prompt gets on although short ones never cease to come, and pages are scarce. */
TEST(a_long_prompt_is_not_starved_by_short_ones)
{
	static int32_t long_prompt[1000], shorts[400][60], answers[401][40];
	struct schedule *s = make(40, 8, 1100, 64);
	struct step *step;
	int n_shorts = 0, steps = 0;
	CU_ASSERT_EQUAL_FATAL(step_create(&(struct step_room){ 8, 64, 400, 0 }, &step), ERR_OK);
	int32_t number = add(s, long_prompt, 1000, 4, answers[400]);
	for (int got = 0; !got; steps++) {
		for (int k = 0; k < 3 && n_shorts < 400; k++, n_shorts++) {
			shorts[n_shorts][0] = n_shorts + 1;
			add(s, shorts[n_shorts], 60, 40, answers[n_shorts]);
		}
		schedule_next(s, 0, 1, step);
		schedule_landed(s, step);
		for (int32_t i = 0; i < step->n_slices; i++)
			if (step->slices[i].flags & SLICE_SAMPLE) {
				got |= step->slices[i].sequence == number;
				schedule_token(s, step->slices[i].sequence, 1, 1);
			}
		CHECK_OK(schedule_check(s));
		CU_ASSERT_FATAL(steps < 100);
	}
	CU_ASSERT(n_shorts > 20);
	CU_ASSERT(steps <= 1000 / (64 - 8) * 2 + 2);      /* at least half of what the answers leave */
	step_destroy(step);
	schedule_destroy(s);
}

/* Of three equal prompts of 70 tokens the second and third find two full pages, and copy the last one up to the last token, which is
 * always computed. */
TEST(equal_prompts_are_computed_once)
{
	static int32_t prompt[70], answers[3][8];
	struct schedule *s = make(32, 4, 150, 128);
	struct schedule_counts counts;
	struct step *step;
	CU_ASSERT_EQUAL_FATAL(step_create(&(struct step_room){ 4, 128, 32, 0 }, &step), ERR_OK);
	for (int i = 0; i < 70; i++)
		prompt[i] = i;
	for (int i = 0; i < 3; i++) {
		add(s, prompt, 70, 8, answers[i]);
		schedule_next(s, 0, 1, step);
		schedule_landed(s, step);
		CU_ASSERT_EQUAL(step->n_copies, i > 0);
		CU_ASSERT_EQUAL(step->slices[step->n_slices - 1].pos, i ? 69 : 0);
		for (int32_t k = 0; k < step->n_slices; k++)
			schedule_token(s, step->slices[k].sequence, 7, 1);
	}
	schedule_count(s, &counts);
	CU_ASSERT_EQUAL(counts.shared_tokens, 2 * 69);
	CHECK_OK(schedule_check(s));
	step_destroy(step);
	schedule_destroy(s);
}

/* The second wants five pages and the first one has four of eight: the third, which would fit, does not pass it. */
TEST(a_request_that_must_wait_is_not_passed)
{
	static const int32_t first[128], second[160] = { 1 }, third[5] = { 2 };
	static int32_t answers[3][4];
	struct schedule *s = make(8, 4, 200, 192);
	struct step *step;
	CU_ASSERT_EQUAL_FATAL(step_create(&(struct step_room){ 4, 192, 32, 0 }, &step), ERR_OK);
	int32_t a = add(s, first, 128, 3, answers[0]), b = add(s, second, 160, 1, answers[1]);
	add(s, third, 5, 1, answers[2]);
	for (int i = 0; i < 3; i++) {
		schedule_next(s, 0, 1, step);
		schedule_landed(s, step);
		CU_ASSERT_EQUAL_FATAL(step->n_slices, 1);
		CU_ASSERT_EQUAL(step->slices[0].sequence, a);
		schedule_token(s, a, 9, 1);
	}
	schedule_next(s, 0, 1, step);
	CU_ASSERT_EQUAL_FATAL(step->n_slices, 2);
	CU_ASSERT_EQUAL(step->slices[0].sequence, b);
	CHECK_OK(schedule_check(s));
	step_destroy(step);
	schedule_destroy(s);
}

TEST_MAIN("schedule", CASE(random_traces_give_every_request_its_own_answer), CASE(what_can_never_run_is_refused_with_the_numbers),
	  CASE(a_short_prompt_does_not_wait_for_long_ones), CASE(a_long_prompt_is_not_starved_by_short_ones),
	  CASE(equal_prompts_are_computed_once), CASE(a_request_that_must_wait_is_not_passed))
