/* labels: unit
 * timeout: 120
 * The in-process communicator and what all communicators share: every collective against sums written out by hand or by
 * a plain loop, counters against hand-calculated values, failures that reach all ranks, nothing that hangs. */
#include "base/clock.h"
#include "base/mem.h"
#include "parallel/comm.h"
#include "tests/test.h"

#include <stdatomic.h>

#define WANT(condition)                                                                         \
	do {                                                                                    \
		if (!(condition))                                                               \
			return ERR(BUG, "line %d, rank %d of %d: %s", __LINE__, comm_rank(c), comm_size(c), #condition); \
	} while (0)

enum { MOST = 16 };
static const int sizes[] = { 1, 2, 3, 5, 8, 16 };
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

/* Item i of rank r; large, so that sums of a few wrap. */
static int64_t value(int r, size_t i) { return (int64_t)(UINT64_C(0x1d0f3a5b7c9e2468) * (uint64_t)(r + 1) + i * 977); }

static enum err reduces(struct comm *c, void *arg)
{
	static const size_t counts[] = { 0, 1, 5, 513, 4099 };
	int64_t data[4099];
	(void)arg;
	for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
		for (size_t i = 0; i < counts[k]; i++)
			data[i] = value(comm_rank(c), i);
		TRY(comm_allreduce(c, data, counts[k], COMM_I64, COMM_SUM));
		for (size_t i = 0; i < counts[k]; i++) {
			uint64_t want = 0;
			for (int r = 0; r < comm_size(c); r++)
				want += (uint64_t)value(r, i);
			WANT((uint64_t)data[i] == want);
		}
	}
	return ERR_OK;
}

TEST(sums_of_64_bit_integers_wrap_and_are_the_same_on_all_ranks)
{
	for (int k = 0; k < N_SIZES; k++)
		CHECK_OK(comm_inproc_run(sizes[k], NULL, reduces, NULL));
}

TEST_MAIN("comm", CASE(sums_of_64_bit_integers_wrap_and_are_the_same_on_all_ranks))
