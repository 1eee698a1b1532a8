/* The real scheduler with stages that work in virtual time: how much of the time each is busy. */
#include "tests/test.h"

#include "base/mem.h"
#include "runtime/schedule.h"

enum { MAX_STAGES = 16, MAX_ANSWER = 256, MAX_PROMPT = 1500, REQUESTS = 600 };

/* A step takes every stage step_us and token_us for each of its tokens; what is sent arrives hop_us later. */
struct trial {
	const char *name;
	int stages;
	int64_t sequences, step_tokens, prompt, answer;    /* prompts and answers of up to so many tokens */
	int is_even;                                       /* all as long as that */
	double step_us, token_us, hop_us;
};

struct underway { struct step *step; double lands_us; };

struct sim {
	const struct trial *t;
	struct schedule *s;
	struct underway ring[2 * MAX_STAGES];
	int64_t n_decided, n_landed, in_flight;
	double now_us, free_us[MAX_STAGES], busy_us[MAX_STAGES];
	int64_t n_left, tokens[REQUESTS], wanted[REQUESTS];    /* requests to come; of each answer, by its number */
	int32_t prompt[MAX_PROMPT + REQUESTS], answers[REQUESTS][MAX_ANSWER];
	uint64_t random;
};

static int64_t draw(struct sim *m, int64_t n)
{
	m->random = m->random * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)(m->random >> 33) % n;
}

/* There are always some that wait, until all have come. */
static void arrive(struct sim *m)
{
	struct schedule_counts c;
	for (schedule_count(m->s, &c); m->n_left && c.waiting < m->t->sequences; schedule_count(m->s, &c)) {
		int64_t n = m->t->is_even ? m->t->prompt : 1 + draw(m, m->t->prompt), first = draw(m, REQUESTS);
		int64_t answer = m->t->is_even ? m->t->answer : 1 + draw(m, m->t->answer);
		struct request r = { .prompt = m->prompt + first, .n_prompt = n, .max_tokens = answer, .answer = m->answers[--m->n_left] };
		int32_t number;
		CHECK_OK(schedule_add(m->s, &r, &number));
		CU_ASSERT_FATAL(number < REQUESTS);
		m->wanted[number] = answer;
		m->tokens[number] = 0;
	}
}

/* From stage to stage; a stage takes steps in their order. */
static void run(struct sim *m, struct underway *u)
{
	double at = m->now_us + m->t->hop_us, cost = m->t->step_us + m->t->token_us * u->step->n_tokens;
	for (int i = 0; i < m->t->stages; i++) {
		at = (at > m->free_us[i] ? at : m->free_us[i]) + cost;
		m->free_us[i] = at;
		m->busy_us[i] += cost;
		at += m->t->hop_us;
	}
	u->lands_us = at;
}

static void land(struct sim *m)
{
	struct underway *u = &m->ring[m->n_landed++ % m->in_flight];
	m->now_us = u->lands_us > m->now_us ? u->lands_us : m->now_us;
	schedule_landed(m->s, u->step);
	for (int32_t i = 0; i < u->step->n_slices; i++) {
		int32_t number = u->step->slices[i].sequence;
		if (!(u->step->slices[i].flags & SLICE_SAMPLE))
			continue;
		schedule_token(m->s, number, (int32_t)draw(m, 1000), ++m->tokens[number] < m->wanted[number]);
	}
}

/* The least busy stage's share, from when the first answers are there until the last request has come. */
static double least_busy(const struct trial *t)
{
	struct sim *m;
	struct schedule_limits l = { .n_replicas = 1, .n_pages = 1 << 16, .step_tokens = t->step_tokens, .sequences = t->sequences,
				     .context = 2048, .in_flight = t->stages > 1 ? 2 * t->stages : 1 };
	double share = 1, began_us = 0, busy_us[MAX_STAGES] = { 0 };
	CU_ASSERT_EQUAL_FATAL(MEM_NEW(1, struct sim, &m), ERR_OK);
	m->t = t;
	m->random = 7;
	m->in_flight = l.in_flight;
	m->n_left = REQUESTS;
	for (int i = 0; i < MAX_PROMPT + REQUESTS; i++)
		m->prompt[i] = (int32_t)draw(m, 1000);
	CU_ASSERT_EQUAL_FATAL(schedule_create(&l, &m->s), ERR_OK);
	for (int i = 0; i < m->in_flight; i++)
		CU_ASSERT_EQUAL_FATAL(step_create(&(struct step_room){ l.sequences, l.step_tokens, l.sequences * 64, 1 }, &m->ring[i].step),
				      ERR_OK);
	while (m->n_left) {
		arrive(m);
		while (m->n_decided - m->n_landed < m->in_flight) {
			struct underway *u = &m->ring[m->n_decided % m->in_flight];
			schedule_next(m->s, 0, 1, u->step);
			if (!u->step->n_slices)
				break;
			run(m, u);
			m->n_decided++;
		}
		CU_ASSERT_FATAL(m->n_decided > m->n_landed);
		land(m);
		if (m->n_landed == 4 * m->in_flight) {
			began_us = m->now_us;
			memcpy(busy_us, m->busy_us, sizeof busy_us);
		}
	}
	for (int i = 0; i < t->stages; i++) {
		double busy = (m->busy_us[i] - busy_us[i]) / (m->now_us - began_us);
		share = busy < share ? busy : share;
	}
	for (int i = 0; i < m->in_flight; i++)
		step_destroy(m->ring[i].step);
	schedule_destroy(m->s);
	mem_free(m);
	return share;
}

TEST(equal_stages_are_busy)
{
	static const struct trial trials[] = {
		{ "answers", 2, 64, 256, 16, 200, 0, 1000, 10, 20 },          { "answers", 4, 64, 256, 16, 200, 0, 1000, 10, 20 },
		{ "answers", 8, 64, 256, 16, 200, 0, 1000, 10, 20 },          { "answers", 16, 128, 256, 16, 200, 0, 1000, 10, 20 },
		{ "even answers", 2, 16, 256, 16, 200, 1, 1000, 10, 20 },     { "even answers", 4, 16, 256, 16, 200, 1, 1000, 10, 20 },
		{ "mixed", 2, 64, 256, 400, 200, 0, 1000, 10, 20 },           { "mixed", 4, 64, 256, 400, 200, 0, 1000, 10, 20 },
		{ "mixed", 8, 64, 256, 400, 200, 0, 1000, 10, 20 },           { "mixed", 8, 64, 512, 400, 200, 0, 1000, 100, 20 },
		{ "long prompts", 2, 64, 256, MAX_PROMPT, 100, 0, 1000, 10, 20 }, { "long prompts", 4, 64, 256, MAX_PROMPT, 100, 0, 1000, 10, 20 },
		{ "long prompts", 8, 64, 512, MAX_PROMPT, 30, 0, 1000, 100, 20 }, { "prompts alone", 4, 8, 256, MAX_PROMPT, 1, 0, 1000, 10, 20 },
	};
	for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
		double share = least_busy(&trials[i]);
		printf("\n    %s, %d stages: %.3f", trials[i].name, trials[i].stages, share);
		CU_ASSERT(share >= 0.9);
	}
	printf("  ");
}

TEST_MAIN("pipeline", CASE(equal_stages_are_busy))
