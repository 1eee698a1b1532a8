/* labels: unit
 * However a text is cut into pieces, the same of it goes on: up to the stop string that is complete first; nothing goes on that must
 * be taken back, nothing ends within a character, and nothing is held back that cannot become a stop string. */
#include "runtime/stop_text.h"
#include "tests/kernel_data.h"
#include "tests/test.h"

enum { MAX_TEXT = 60, MAX_STOPS = 4 };

static const char *const letters[] = { "a", "b", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80" };

static void random_text(char *to, int n_letters, int of)
{
	*to = '\0';
	for (int i = 0; i < n_letters; i++)
		strcat(to, letters[random_below(of)]);
}

/* Where the text ends: from the definition. *end: where the stop string is complete; -1 when there is none. */
static size_t cut_of(const char *text, const char *const *stops, int n, long *end)
{
	for (size_t e = 1; e <= strlen(text); e++)
		for (size_t begin = 0; begin < e; begin++)      /* the earliest beginning is the longest */
			for (int i = 0; i < n; i++)
				if (strlen(stops[i]) == e - begin && !memcmp(text + begin, stops[i], e - begin)) {
					*end = (long)e;
					return begin;
				}
	*end = -1;
	return strlen(text);
}

static int is_boundary(const char *text, size_t at) { return ((unsigned char)text[at] & 0xc0) != 0x80; }

/* The least that must be held of the first n bytes: what begins a stop string, or an unfinished character. */
static size_t least_held(const char *text, size_t n, const char *const *stops, int n_stops)
{
	size_t held = 0;
	for (int i = 0; i < n_stops; i++)
		for (size_t k = 1; k < strlen(stops[i]) && k <= n; k++)
			if (k > held && !memcmp(text + n - k, stops[i], k))
				held = k;
	while (!is_boundary(text, n - held))
		held++;
	return held;
}

/* most: bytes of the largest piece. */
static void check(const char *text, const char *const *stops, int n_stops, size_t most)
{
	struct stop_text t;
	struct bytes out = { 0 };
	long end;
	size_t cut = cut_of(text, stops, n_stops, &end), size = strlen(text);
	int stopped = 0;
	stop_text_begin(&t, stops, n_stops);
	for (size_t at = 0, n; at < size; at += n) {
		n = 1 + (size_t)random_below((int64_t)most);
		n = n < size - at ? n : size - at;
		stopped = stop_text_put(&t, text + at, n, &out);
		CU_ASSERT_EQUAL(stopped, end >= 0 && at + n >= (size_t)end);
		CU_ASSERT(out.size <= cut && !memcmp(bytes_text(&out), text, out.size) && is_boundary(text, out.size));
		if (!stopped)
			CU_ASSERT_EQUAL(out.size, at + n - least_held(text, at + n, stops, n_stops));
	}
	CU_ASSERT_EQUAL(t.found >= 0, end >= 0);
	stop_text_end(&t, &out);
	CU_ASSERT_EQUAL(out.size, cut);
	CU_ASSERT(!memcmp(bytes_text(&out), text, out.size));
	stop_text_free(&t);
	bytes_free(&out);
}

TEST(any_pieces_give_the_same_text)
{
	int stopped = 0;
	for (int round = 0; round < 20000; round++) {
		char text[4 * MAX_TEXT + 1], rooms[MAX_STOPS][4 * 6 + 1];
		const char *stops[MAX_STOPS];
		int n = (int)random_below(MAX_STOPS + 1), of = 2 + (int)random_below(4);
		long end;
		random_text(text, (int)random_below(MAX_TEXT), of);
		for (int i = 0; i < n; i++) {
			random_text(rooms[i], 1 + (int)random_below(5), of);
			stops[i] = rooms[i];
		}
		check(text, stops, n, 1);
		check(text, stops, n, 4);
		check(text, stops, n, sizeof text);
		cut_of(text, stops, n, &end);
		stopped += end >= 0;
	}
	CU_ASSERT(stopped > 3000 && stopped < 19000);
}

TEST(broken_utf8_is_not_waited_for)
{
	struct stop_text t;
	struct bytes out = { 0 };
	stop_text_begin(&t, NULL, 0);
	CU_ASSERT_EQUAL(stop_text_put(&t, "a\x80\x80\x80\x80", 5, &out), 0);
	CU_ASSERT_EQUAL(out.size, 5);
	stop_text_put(&t, "\xe2\x82", 2, &out);
	CU_ASSERT_EQUAL(out.size, 5);
	stop_text_put(&t, "b", 1, &out);
	CU_ASSERT_EQUAL(out.size, 8);
	stop_text_put(&t, "\xf0\x9f", 2, &out);
	stop_text_end(&t, &out);
	CU_ASSERT_EQUAL(out.size, 10);
	stop_text_free(&t);
	bytes_free(&out);
}

TEST(nothing_follows_a_stop_string)
{
	static const char *const stops[] = { "abc", "b" };
	struct stop_text t;
	struct bytes out = { 0 };
	stop_text_begin(&t, stops, 2);
	CU_ASSERT_EQUAL(stop_text_put(&t, "xabc", 4, &out), 1);       /* "b" is complete before "abc" */
	CU_ASSERT_EQUAL(stop_text_put(&t, "more", 4, &out), 1);
	stop_text_end(&t, &out);
	CU_ASSERT_STRING_EQUAL(bytes_text(&out), "xa");
	CU_ASSERT_EQUAL(t.found, 1);
	stop_text_free(&t);
	bytes_free(&out);
}

TEST_MAIN("stop text", CASE(any_pieces_give_the_same_text), CASE(broken_utf8_is_not_waited_for), CASE(nothing_follows_a_stop_string))
