/* labels: unit
 * The pieces of a report: no text from outside becomes markup, numbers are as people read them, percentiles are right to 1 %, and a line
 * of progress fits its terminal. */
#include "launcher/html.h"
#include "launcher/progress.h"
#include "launcher/timings.h"
#include "tests/files.h"
#include "tests/test.h"

static int shows(void (*put)(struct bytes *, double), double value, const char *want)
{
	struct bytes b = { 0 };
	put(&b, value);
	int same = !strcmp(bytes_text(&b), want);
	if (!same)
		fprintf(stderr, "%g: \"%s\", \"%s\" expected\n", value, bytes_text(&b), want);
	bytes_free(&b);
	return same;
}

TEST(text_is_only_text)
{
	struct bytes b = { 0 };
	html_text(&b, "<script>\"a\" & 'b'</script>\x01\xff\xc3\xa9\xed\xa0\x80\n");
	CU_ASSERT_STRING_EQUAL(bytes_text(&b), "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9"
					       "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\n");
	bytes_free(&b);
}

TEST(charts_hold_hostile_words_as_text)
{
	struct bytes b = { 0 };
	const double values[] = { 0, 3, 1 };
	const int64_t counts[] = { 1, 0, 2 };
	const struct html_heat heat = { "<b>\"", values };
	const struct html_share share = { "<b>\"", { 0.5, 0.25, 0.25 } };
	const char *const names[HTML_PARTS] = { "<b>\"", NULL, "c" };
	html_begin(&b, "<b>\"");
	html_area(&b, "<b>\"", "tokens/s", 1, values, 3, 1e6, 2.5e6);
	html_bars(&b, "<b>\"", counts, 3, 10, 2, &(struct html_mark){ "<b>\"", 20 }, 1);
	html_shares(&b, names, &share, 1);
	html_heat(&b, &heat, 1, 3, 1e6, 2.5e6);
	html_end(&b);
	CHECK_OK(b.error);
	CU_ASSERT_PTR_NULL(strstr(bytes_text(&b), "<b>"));
	CU_ASSERT_PTR_NOT_NULL(strstr(bytes_text(&b), "&lt;b&gt;&quot;"));
	CU_ASSERT_PTR_NULL(strstr(bytes_text(&b), "nan"));
	CU_ASSERT_PTR_NULL(strstr(bytes_text(&b), "inf"));
	bytes_free(&b);
}

TEST(numbers_are_as_people_read_them)
{
	CU_ASSERT(shows(html_number, 0, "0"));
	CU_ASSERT(shows(html_number, 0.0421, "0.042"));
	CU_ASSERT(shows(html_number, 1.256, "1.26"));
	CU_ASSERT(shows(html_number, 12.34, "12.3"));
	CU_ASSERT(shows(html_number, 999.7, "1,000"));
	CU_ASSERT(shows(html_number, 1234567, "1,234,567"));
	CU_ASSERT(shows(html_time, 0, "0 s"));
	CU_ASSERT(shows(html_time, 850, "850 \xc2\xb5s"));
	CU_ASSERT(shows(html_time, 12340, "12.3 ms"));
	CU_ASSERT(shows(html_time, 999900, "1.00 s"));
	CU_ASSERT(shows(html_time, 119.6e6, "2 min 00 s"));
	CU_ASSERT(shows(html_time, 3600e6 * 26 + 61e6, "26 h 01 min"));
	CU_ASSERT(shows(html_size, 512, "512 B"));
	CU_ASSERT(shows(html_size, 96440000, "96.4 MB"));
}

TEST(percentiles_are_right_to_a_hundredth)
{
	static struct histogram h;
	CU_ASSERT_EQUAL(histogram_percentile(&h, 0.5), 0);
	for (int i = 1; i <= 10000; i++)
		histogram_add(&h, 1000.0 * ((i * 7919) % 10000 + 1));      /* 1 .. 10000 ms, each once (7919 is prime) */
	CU_ASSERT_DOUBLE_EQUAL(histogram_percentile(&h, 0.5), 5e6, 5e4 * 1.05);
	CU_ASSERT_DOUBLE_EQUAL(histogram_percentile(&h, 0.99), 9.9e6, 9.9e4 * 1.05);
	CU_ASSERT_EQUAL(histogram_percentile(&h, 1), 1e7);
	CU_ASSERT_DOUBLE_EQUAL(histogram_mean(&h), 5000500, 1);
	CU_ASSERT_EQUAL(histogram_between(&h, 0, 1e9), 10000);
	histogram_add(&h, 0);
	histogram_add(&h, 1e15);                                            /* beyond all buckets */
	CU_ASSERT_EQUAL(histogram_percentile(&h, 1), 1e15);
	CU_ASSERT_EQUAL(h.least_us, 0);
}

TEST(the_slowest_answers_are_kept_in_order)
{
	static struct timings t;
	for (int i = 0; i < 50; i++) {
		struct timed_answer a = { .came_us = 100, .first_us = 150, .ended_us = 200 + i * 37 % 50, .n_tokens = 11 };
		timings_add(&t, &a);
	}
	timings_add(&t, &(struct timed_answer){ .came_us = 1, .ended_us = 1000000 });      /* no token: no latency */
	CU_ASSERT_EQUAL(t.answers, 51);
	CU_ASSERT_EQUAL(t.of[TIMING_WHOLE].n, 50);
	CU_ASSERT_EQUAL(t.n_slowest, TIMINGS_SLOWEST);
	for (int i = 0; i < TIMINGS_SLOWEST; i++)
		CU_ASSERT_EQUAL(t.slowest[i].ended_us, 249 - i);
	char name[200];
	memset(name, 'x', sizeof name);
	memcpy(name + 79, "\xc3\xa9", 2);                                   /* a character that would be cut in two */
	name[199] = '\0';
	timed_answer_name(&t.slowest[0], name);
	CU_ASSERT_EQUAL(strlen(t.slowest[0].name), 79);
}

TEST(progress_fits_its_terminal)
{
	char text[256];
	struct progress_count c = { .done = 30, .total = 120, .done_here = 20, .seconds = 40, .recent_tokens_per_s = 123.4, .running = 8 };
	CU_ASSERT_EQUAL(progress_left_s(&c), 180);                          /* 20 in 40 s, 90 to go */
	progress_bar(&c, 100, text, sizeof text);
	CU_ASSERT_STRING_EQUAL(text, "[##########..............................]  25 % 30 of 120 requests  123 tokens/s  3m 00s left");
	for (int columns = 1; columns < 200; columns++) {
		progress_bar(&c, columns, text, sizeof text);
		CU_ASSERT(strlen(text) < (size_t)columns || (columns == 1 && !text[0]));
	}
	progress_line(&c, text, sizeof text);
	CU_ASSERT_STRING_EQUAL(text, "batch: 30 of 120 requests done, 8 at work, 123 tokens/s, 3m 00s left");
	c.total = -1;
	CU_ASSERT_EQUAL(progress_left_s(&c), -1);
	progress_line(&c, text, sizeof text);
	CU_ASSERT_STRING_EQUAL(text, "batch: 30 requests done, 8 at work, 123 tokens/s");
}

TEST(lines_of_a_file_are_counted)
{
	struct test_dir d;
	test_dir_make(&d);
	CU_ASSERT_EQUAL(progress_count_lines(test_write(&d, "a", "", 0)), 0);
	CU_ASSERT_EQUAL(progress_count_lines(test_write(&d, "b", "1\n2\n", 4)), 2);
	CU_ASSERT_EQUAL(progress_count_lines(test_write(&d, "c", "1\n\n3", 4)), 3);
	CU_ASSERT_EQUAL(progress_count_lines(test_path(&d, "none")), -1);
	CU_ASSERT_EQUAL(progress_count_lines(d.path), -1);
	test_dir_remove(&d);
}

TEST_MAIN("html", CASE(text_is_only_text), CASE(charts_hold_hostile_words_as_text), CASE(numbers_are_as_people_read_them),
	  CASE(percentiles_are_right_to_a_hundredth), CASE(the_slowest_answers_are_kept_in_order), CASE(progress_fits_its_terminal),
	  CASE(lines_of_a_file_are_counted))
