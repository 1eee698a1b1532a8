/* A CUnit program in two macros: TEST(name) { ... } bodies, then TEST_MAIN(suite, name, name, ...). Its arguments name the
 * cases to run; without any it runs all. */
#ifndef SHARDRUN_TESTS_TEST_H
#define SHARDRUN_TESTS_TEST_H

#include "base/err.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_case { const char *name; void (*run)(void); };

/* Fails, showing the sentence, when an enum err is not ERR_OK. */
#define CHECK_OK(call)                                                                          \
	do {                                                                                    \
		enum err check_ = (call);                                                       \
		if (check_)                                                                     \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, err_name(check_), err_sentence()); \
		CU_ASSERT_EQUAL(check_, ERR_OK);                                                \
	} while (0)
/* Fails unless the call gives this error with this text in its sentence. */
#define CHECK_ERR(call, code, text)                                                             \
	do {                                                                                    \
		enum err check_ = (call);                                                       \
		if (check_ != ERR_##code || !strstr(err_sentence(), text))                      \
			fprintf(stderr, "%s:%d: got %s \"%s\", want %s with \"%s\"\n", __FILE__, __LINE__, err_name(check_), \
				check_ ? err_sentence() : "", #code, text);                     \
		CU_ASSERT_EQUAL(check_, ERR_##code);                                            \
		CU_ASSERT_PTR_NOT_NULL(check_ ? strstr(err_sentence(), text) : NULL);           \
	} while (0)

static inline int test_named(const char *name, char *const *names)
{
	while (*names && strcmp(name, *names))
		names++;
	return *names != NULL;
}

/* names: of the cases to run, NULL-terminated; none: all. */
static inline int test_run(const char *suite_name, const struct test_case *cases, int n, char *const *names)
{
	int n_names = 0, n_added = 0;
	if (CU_initialize_registry() != CUE_SUCCESS)
		return 1;
	CU_pSuite suite = CU_add_suite(suite_name, NULL, NULL);
	while (names[n_names])
		n_names++;
	for (int i = 0; i < n; i++)
		if (!n_names || test_named(cases[i].name, names))
			n_added += CU_add_test(suite, cases[i].name, cases[i].run) != NULL;
	if (n_added != (n_names ? n_names : n)) {
		fprintf(stderr, "%s has not all of the cases named\n", suite_name);
		return 1;
	}
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	int failed = (int)CU_get_number_of_failures() + (int)CU_get_number_of_suites_failed();
	CU_cleanup_registry();
	return failed != 0;
}

#define TEST(name) static void name(void)
#define TEST_MAIN(suite, ...)                                                                   \
	int main(int argc, char **argv)                                                         \
	{                                                                                       \
		static const struct test_case cases[] = { __VA_ARGS__ };                        \
		return test_run(suite, cases, (int)(sizeof cases / sizeof cases[0]), argv + (argc > 0)); \
	}
#define CASE(name) { #name, name }

#endif
