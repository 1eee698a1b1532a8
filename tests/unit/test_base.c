/* labels: unit
 * What everything stands on: errors, memory, byte strings, JSON, files, the pool. */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pool.h"
#include "tests/test.h"

#include <stdatomic.h>
#include <unistd.h>

TEST(an_error_keeps_its_sentence_and_takes_context)
{
	CU_ASSERT_EQUAL(ERR(MODEL, "tensor %s has %d rows", "a", 3), ERR_MODEL);
	CU_ASSERT_STRING_EQUAL(err_sentence(), "tensor a has 3 rows");
	err_context(ERR_MODEL, "file %s", "x");
	CU_ASSERT_STRING_EQUAL(err_sentence(), "file x: tensor a has 3 rows");
	(void)ERR(IO, "again: %s", err_sentence());   /* the sentence may be an argument of the next */
	CU_ASSERT_STRING_EQUAL(err_sentence(), "again: file x: tensor a has 3 rows");
	CU_ASSERT_EQUAL(err_exit_status(ERR_MODEL), 4);
	CU_ASSERT_EQUAL(err_exit_status(ERR_REQUEUE), 75);
	char longer[4 * ERR_SENTENCE_BYTES];
	memset(longer, 'x', sizeof longer);
	longer[sizeof longer - 1] = 0;
	(void)ERR(IO, "%s", longer);
	err_context(ERR_IO, "%s", longer);
	CU_ASSERT_EQUAL(strlen(err_sentence()), ERR_SENTENCE_BYTES - 1);
}

TEST(sizes_do_not_wrap)
{
	uint64_t n = 7;
	CHECK_ERR(size_mul(UINT64_MAX / 2, 3, "dims of t", &n), MODEL, "dims of t");
	CHECK_ERR(size_add(UINT64_MAX, 1, "offset", &n), MODEL, "offset");
	CHECK_OK(size_mul(1ull << 32, 1ull << 31, "x", &n));
	CU_ASSERT_EQUAL(n, 1ull << 63);
}

TEST(the_nth_allocation_can_fail)
{
	void *a = NULL, *b = NULL;
	mem_fail_at(2);
	CHECK_OK(mem_alloc(1, 8, "a", &a));
	CHECK_ERR(mem_alloc(1, 8, "b", &b), MEMORY, "b");
	CHECK_OK(mem_alloc(1, 8, "b", &b));
	mem_free(a);
	mem_free(b);
}

TEST(an_arena_is_reused_after_reset)
{
	struct arena *a;
	char *first, *second;
	CHECK_OK(arena_create("test", 4096, &a));
	CHECK_OK(ARENA_NEW(a, 100, char, &first));
	memset(first, 1, 100);
	CHECK_OK(ARENA_NEW(a, 100000, char, &second));
	arena_reset(a);
	CHECK_OK(ARENA_NEW(a, 100, char, &second));
	CU_ASSERT_PTR_EQUAL(first, second);
	CU_ASSERT_EQUAL(second[5], 0);
	CHECK_ERR(arena_alloc(a, SIZE_MAX / 2, 3, &second), MEMORY, "overflow");
	arena_destroy(a);
}

TEST(bytes_come_back_as_they_went)
{
	struct bytes b = { 0 };
	struct reader r;
	char room[8];
	bytes_put_u32(&b, 0xdeadbeef);
	bytes_put_u64(&b, 1ull << 60);
	bytes_put_f64(&b, -0.1);
	bytes_put_string(&b, "name");
	bytes_put_string(&b, "far too long");
	reader_init(&r, "test", b.data, b.size);
	CU_ASSERT_EQUAL(reader_u32(&r), 0xdeadbeef);
	CU_ASSERT_EQUAL(reader_u64(&r), 1ull << 60);
	CU_ASSERT_EQUAL(reader_f64(&r), -0.1);
	reader_string(&r, room, sizeof room);
	CU_ASSERT_STRING_EQUAL(room, "name");
	reader_string(&r, room, sizeof room);
	CU_ASSERT_EQUAL(r.error, ERR_WORK);
	for (size_t cut = 0; cut < b.size; cut++) {   /* every truncation ends in an error, never past the end */
		reader_init(&r, "test", b.data, cut);
		reader_u32(&r), reader_u64(&r), reader_f64(&r), reader_string(&r, room, sizeof room);
		reader_get(&r, 4 + 12);
		CU_ASSERT_NOT_EQUAL(r.error, ERR_OK);
	}
	bytes_free(&b);
}

TEST(json_names_the_place_and_the_key)
{
	json_t *j;
	int64_t n;
	double x;
	const char *s;
	CHECK_ERR(json_parse("c.json", "{\"a\":1,\n \"a\":2}", 15, ERR_MODEL, &j), MODEL, "c.json:2:");
	CHECK_ERR(json_parse("c.json", "{\"a\":", 5, ERR_MODEL, &j), MODEL, "c.json:1:");
	const char *text = "{\"a\":null,\"b\":\"7\",\"c\":1e3,\"d\":-4}";
	CHECK_OK(json_parse("c.json", text, strlen(text), ERR_MODEL, &j));
	CHECK_ERR(json_get_int(j, "c.json", "a", 1, 9, &n), MODEL, "\"a\" is missing");
	CHECK_ERR(json_get_int(j, "c.json", "b", 1, 9, &n), MODEL, "must be an integer, found a string");
	CHECK_ERR(json_get_int(j, "c.json", "c", 1, 9, &n), MODEL, "found a real");
	CHECK_ERR(json_get_int(j, "c.json", "d", 1, 9, &n), MODEL, "is -4, but must be 1 to 9");
	CHECK_OK(json_get_real(j, "c.json", "c", 0, 1e9, &x));
	CHECK_OK(json_get_int_or(j, "c.json", "a", 1, 9, 5, &n));
	CU_ASSERT_EQUAL(n, 5);
	CHECK_OK(json_get_string_or_null(j, "c.json", "a", &s));
	CU_ASSERT_PTR_NULL(s);
	json_decref(j);
}

TEST(files_are_checked_and_counted)
{
	char path[] = "/tmp/shardrun-test-XXXXXX", part[4];
	struct file f;
	int fd = mkstemp(path);
	CU_ASSERT_EQUAL(write(fd, "0123456789", 10), 10);
	close(fd);
	CHECK_OK(file_open(path, &f));
	CHECK_OK(file_read_at(&f, 3, part, 4));
	CU_ASSERT_EQUAL(memcmp(part, "3456", 4), 0);
	CHECK_ERR(file_read_at(&f, 8, part, 4), IO, "past its end");
	CHECK_ERR(file_read_at(&f, UINT64_MAX, part, 4), IO, "past its end");
	CU_ASSERT_EQUAL(f.read_bytes, 4);
	file_close(&f);
	unlink(path);
	CHECK_ERR(file_open(path, &f), IO, "cannot be opened");
	CHECK_ERR(file_open("/tmp", &f), IO, "not a regular file");
}

struct sum { _Atomic long total; int64_t n; };

static void add_part(void *arg, int thread, int n_threads)
{
	struct sum *s = arg;
	int64_t begin, end;
	pool_part(s->n, 16, thread, n_threads, &begin, &end);
	for (int64_t i = begin; i < end; i++)
		atomic_fetch_add(&s->total, i);
}

TEST(a_pool_does_every_item_once)
{
	for (int threads = 1; threads <= 5; threads++) {
		struct pool *p;
		CHECK_OK(pool_create(threads, NULL, 0, &p));
		for (int round = 0; round < 200; round++) {
			struct sum s = { 0, 100 + round };
			pool_run(p, add_part, &s);
			CU_ASSERT_EQUAL(s.total, s.n * (s.n - 1) / 2);
		}
		pool_destroy(p);
	}
}

/* One thread after the other is so late that the others sleep, and so is the caller between runs: nobody misses being woken. */
struct late { int who; _Atomic int done; };

static void late_part(void *arg, int thread, int n_threads)
{
	struct late *l = arg;
	(void)n_threads;
	if (thread == l->who)
		clock_sleep_us(4000);
	atomic_fetch_add(&l->done, 1);
}

TEST(threads_of_a_pool_sleep_and_wake)
{
	enum { THREADS = 4, RUNS = 100 };
	struct pool *p;
	CHECK_OK(pool_create(THREADS, NULL, 0, &p));
	for (int run = 0; run < RUNS; run++) {
		struct late l = { .who = run % (THREADS + 1) };
		pool_run(p, late_part, &l);
		CU_ASSERT_EQUAL(atomic_load(&l.done), THREADS);
		if (run % 3 == 0)
			clock_sleep_us(4000);
	}
	pool_destroy(p);
}

enum { SHARED_ITEMS = 1003 };
struct shared { struct pool *pool; int64_t n, unit; int several, slow; _Atomic int done[SHARED_ITEMS], by_others, uneven; };

/* The last thread starts late: others have done its part by then when they may. */
static void shared_part(void *arg, int thread, int n_threads)
{
	struct shared *s = arg;
	int64_t begin, end, own_begin, own_end;
	pool_part(s->n, s->unit, thread, n_threads, &own_begin, &own_end);
	for (unsigned round = 0; s->slow && thread == n_threads - 1 && !s->by_others && round < 200000;)
		clock_wait(&round);
	while (pool_take(s->pool, s->n, s->unit, s->several, thread, &begin, &end)) {
		s->uneven += begin % s->unit || (end % s->unit && end != s->n) || begin >= end;
		s->by_others += begin < own_begin || end > own_end;
		for (int64_t i = begin; i < end; i++)
			s->done[i]++;
	}
}

TEST(threads_share_every_item_once)
{
	static const struct { int64_t n, unit; int several; } cases[] = {
		{ SHARED_ITEMS, 16, 4 }, { SHARED_ITEMS, 1, 1 }, { SHARED_ITEMS, 64, 1 }, { SHARED_ITEMS, 16, 0 }, { 5, 16, 4 }, { 0, 1, 1 }
	};
	for (int threads = 1; threads <= 4; threads++) {
		struct pool *p;
		CHECK_OK(pool_create(threads, NULL, 0, &p));
		for (int run = 0; run < 300; run++) {
			struct shared s = { .pool = p, .n = cases[run % 6].n, .unit = cases[run % 6].unit, .several = cases[run % 6].several };
			s.slow = run < 3 && threads > 1;
			pool_run(p, shared_part, &s);
			int wrong = s.uneven;
			for (int64_t i = 0; i < SHARED_ITEMS; i++)
				wrong += s.done[i] != (i < s.n);
			CU_ASSERT_EQUAL(wrong, 0);
			CU_ASSERT(!s.slow || s.by_others > 0);
			CU_ASSERT(s.several || s.by_others == 0);
		}
		pool_destroy(p);
	}
}

TEST_MAIN("base", CASE(an_error_keeps_its_sentence_and_takes_context), CASE(sizes_do_not_wrap),
	  CASE(the_nth_allocation_can_fail), CASE(an_arena_is_reused_after_reset), CASE(bytes_come_back_as_they_went),
	  CASE(json_names_the_place_and_the_key), CASE(files_are_checked_and_counted), CASE(a_pool_does_every_item_once),
	  CASE(threads_of_a_pool_sleep_and_wake), CASE(threads_share_every_item_once))
