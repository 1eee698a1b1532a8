/* Guesses from a text, against one that looks through all of it; how their number follows what comes true; and texts that come after
 * one another in an index, or share a set of them. */
#include "runtime/ngram.h"
#include "tests/test.h"

enum { MOST = 400 };

static uint64_t state;

static int32_t draw(int64_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int32_t)((state >> 33) % (uint64_t)below);
}

static struct ngram *make(int64_t n_tokens)
{
	struct ngram *g = NULL;
	CU_ASSERT_EQUAL_FATAL(ngram_create(n_tokens, &g), ERR_OK);
	return g;
}

static void add_all(struct ngram *g, const int32_t *ids, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		ngram_add(g, ids[i]);
}

/* Where the last 4, else 3, else 2 tokens stood last before the end: the place after them, or -1. */
static int64_t look_through(const int32_t *text, int64_t n)
{
	for (int64_t length = 4; length >= 2; length--)
		for (int64_t end = n - 2; end >= length - 1; end--)
			if (!memcmp(text + end - length + 1, text + n - length, (size_t)length * sizeof *text))
				return end + 1;
	return -1;
}

/* Texts of few words and of many, one after another in the same index. Collisions of hashes hide a place now and then, so that a
 * shorter run or none is found: seldom. */
TEST(what_followed_the_longest_run_is_guessed)
{
	int32_t text[MOST], drafts[NGRAM_MOST_DRAFTS];
	struct ngram *g = make(MOST);
	int guesses = 0, others = 0, none = 0;
	for (int round = 0; round < 2000; round++) {
		int64_t n = draw(MOST + 1), words = 2 + draw(60);
		for (int64_t i = 0; i < n; i++)
			text[i] = draw(words) - 3;
		ngram_restart(g);
		add_all(g, text, n);
		CU_ASSERT_EQUAL(ngram_known(g), n);
		int64_t at = look_through(text, n), k = ngram_draft(g, 3, drafts);
		if (at < 0) {
			CU_ASSERT_EQUAL(k, 0);
			none++;
			continue;
		}
		int differs = k != 3;
		for (int64_t i = 0; i < k; i++)
			differs |= drafts[i] != (at + i < n ? text[at + i] : drafts[at + i - n]);
		others += differs;
		guesses++;
	}
	printf("%d guesses, %d others, %d none  ", guesses, others, none);
	CU_ASSERT(guesses > 500 && none > 500 && others < guesses / 10);
	ngram_destroy(g);
}

TEST(a_guess_goes_on_beyond_the_end)
{
	static const int32_t text[] = { 1, 2, 3, 1, 2, 3, 1, 2 };
	int32_t drafts[4];
	struct ngram *g = make(8);
	add_all(g, text, 8);
	CU_ASSERT_EQUAL_FATAL(ngram_draft(g, 4, drafts), 4);
	CU_ASSERT(drafts[0] == 3 && drafts[1] == 1 && drafts[2] == 2 && drafts[3] == 3);
	ngram_destroy(g);
}

/* 4, 8, then the most, while all comes true; one more than came true after that. */
TEST(a_guess_is_longer_where_guesses_come_true)
{
	static const int64_t want[] = { 4, 8, NGRAM_MOST_DRAFTS, NGRAM_MOST_DRAFTS };
	int32_t drafts[NGRAM_MOST_DRAFTS];
	struct ngram *g = make(MOST);
	int64_t n = 0;
	for (; n < 6; n++)
		ngram_add(g, (int32_t)(n % 3));
	for (int i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL_FATAL(ngram_draft(g, 100, drafts), want[i]);
		for (int64_t k = 0; k < want[i]; k++, n++) {
			CU_ASSERT_EQUAL(drafts[k], n % 3);
			ngram_add(g, (int32_t)(n % 3));
		}
	}
	CU_ASSERT_EQUAL_FATAL(ngram_draft(g, 100, drafts), NGRAM_MOST_DRAFTS);
	ngram_add(g, drafts[0]);
	ngram_add(g, drafts[1]);
	ngram_add(g, 77);
	for (int k = 0; k < 4; k++)                            /* to where there is something to guess again */
		ngram_add(g, k % 3);
	CU_ASSERT_EQUAL(ngram_draft(g, 100, drafts), 3);
	ngram_destroy(g);
}

/* 1, 2, 4 .. 64 steps without one, and 2 * 64 / 4 when one came true before the next vain one. */
TEST(vain_guesses_become_rare)
{
	int32_t drafts[NGRAM_MOST_DRAFTS], next = 100;
	struct ngram *g = make(2000);
	static const int32_t again[] = { 1, 2, 3 };
	add_all(g, again, 3);
	for (int round = 0, pause = 0; round < 9; round++, pause = pause ? 2 * pause : 1) {
		int waited = 0;
		pause = pause < NGRAM_LONGEST_PAUSE ? pause : NGRAM_LONGEST_PAUSE;
		for (;; waited++) {
			ngram_add(g, next++);                  /* never what was guessed */
			add_all(g, again, 2);
			if (ngram_draft(g, 1, drafts))
				break;
			CU_ASSERT_FATAL(waited < 100);
		}
		CU_ASSERT_EQUAL(waited, pause);
		if (round == 7) {
			ngram_add(g, drafts[0]);               /* came true: no pause */
			add_all(g, again, 2);
			CU_ASSERT_EQUAL(ngram_draft(g, 1, drafts), 1);
			pause = NGRAM_LONGEST_PAUSE / 4;
		}
		CU_ASSERT_EQUAL(drafts[0], next > 101 ? next - 1 : 3);   /* what came after "1 2" last */
	}
	ngram_destroy(g);
}

/* One that is not given a text's end, by its owner's fault, holds what it has room for. */
TEST(a_full_index_adds_nothing)
{
	int32_t drafts[2];
	struct ngram *g = make(5);
	for (int i = 0; i < 20; i++)
		ngram_add(g, 1);
	CU_ASSERT_EQUAL(ngram_known(g), 5);
	CU_ASSERT_EQUAL(ngram_draft(g, 2, drafts), 2);
	CU_ASSERT_EQUAL(ngram_draft(g, 0, drafts), 0);
	ngram_destroy(g);
}

TEST(a_set_has_an_index_for_as_many_as_it_says)
{
	struct ngram_set *set = NULL;
	struct ngram *of[3];
	CU_ASSERT_EQUAL_FATAL(ngram_set_create(2, 10, &set), ERR_OK);
	of[0] = ngram_of(set, 7), of[1] = ngram_of(set, 0), of[2] = ngram_of(set, 9);
	CU_ASSERT(of[0] && of[1] && of[0] != of[1] && !of[2]);
	ngram_add(of[0], 1);
	CU_ASSERT(ngram_of(set, 7) == of[0] && ngram_known(of[0]) == 1);
	ngram_drop(set, 7);
	ngram_drop(set, 8);
	CU_ASSERT(ngram_of(set, 9) == of[0] && ngram_known(of[0]) == 0);
	CU_ASSERT(ngram_of(set, 0) == of[1] && !ngram_of(set, 7));
	ngram_set_destroy(set);
	ngram_set_destroy(NULL);
	ngram_drop(NULL, 1);
}

TEST_MAIN("n-grams", CASE(what_followed_the_longest_run_is_guessed), CASE(a_guess_goes_on_beyond_the_end),
	  CASE(a_guess_is_longer_where_guesses_come_true), CASE(vain_guesses_become_rare), CASE(a_full_index_adds_nothing),
	  CASE(a_set_has_an_index_for_as_many_as_it_says))
