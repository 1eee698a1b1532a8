/* labels: golden slow
 * timeout: 1200
 * SmolLM2 over the full product of tp 1..4 and pp 1, 2, 4, 7: one digest; see test_smollm2.c. */
#include "tests/smollm2.h"

TEST(every_layout_gives_the_bits_of_one_rank)
{
	static const int stages[] = { 1, 2, 4, 7 };
	int n = 0, bad = 0;
	for (int tp = 1; tp <= 4; tp++)
		for (int i = 0; i < 4; i++, n++)
			bad += smollm2_differs(tp, stages[i], 1 + n % 3, n % 2 ? 7 : 512, n % 3 != 1);
	printf("%d layouts ", n);
	CU_ASSERT_EQUAL(n, 16);
	CU_ASSERT_EQUAL(bad, 0);
}

SMOLLM2_MAIN("SmolLM2 layouts", CASE(every_layout_gives_the_bits_of_one_rank))
