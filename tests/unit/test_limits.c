/* What `bench` measures the machine with: every kernel table counts its operations, reads every byte, and shows speeds that a
 * processor can have. */
#include "runtime/limits.h"
#include "base/mem.h"
#include "tests/test.h"

TEST(operations_grow_with_the_rounds)
{
	for (int t = 0; kernel_tables[t]; t++) {
		const struct kernels *k = kernel_tables[t];
		if (!k->usable())
			continue;
		CU_ASSERT(k->peak_int8(1) >= 8 * 16 * 4 * 2);        /* 8 groups, 16 rows: a panel times one token */
		CU_ASSERT_EQUAL(k->peak_int8(7), 7 * k->peak_int8(1));
		CU_ASSERT(k->peak_bf16(1) >= 16 * 2);
		CU_ASSERT_EQUAL(k->peak_bf16(7), 7 * k->peak_bf16(1));
	}
}

/* One bit anywhere is found, the last byte's as well. */
TEST(every_byte_is_read)
{
	enum { BYTES = 3 * KERNEL_READ_UNIT };
	unsigned char *block;
	CU_ASSERT_EQUAL_FATAL(mem_alloc_aligned(BYTES, 64, "block", &block), ERR_OK);
	memset(block, 0, BYTES);
	for (int t = 0; kernel_tables[t]; t++) {
		const struct kernels *k = kernel_tables[t];
		int missed = 0;
		if (!k->usable())
			continue;
		CU_ASSERT_EQUAL(k->read_all(block, BYTES), 0);
		for (int i = 0; i < BYTES; i++) {
			uint64_t want = 0;
			block[i] = (unsigned char)(1 << i % 8);
			memcpy((unsigned char *)&want + i % 8, block + i, 1);
			missed += k->read_all(block, BYTES) != want;
			block[i] = 0;
		}
		CU_ASSERT_EQUAL(missed, 0);
	}
	mem_free_aligned(block);
}

/* The fastest core of today does some 1,500 operations on int8 in a nanosecond: more means that a loop was optimised away. */
TEST(measured_limits_are_those_of_a_processor)
{
	for (int t = 0; kernel_tables[t]; t++) {
		const struct kernels *k = kernel_tables[t];
		struct pool *pool;
		struct limits l;
		if (!k->usable())
			continue;
		CU_ASSERT_EQUAL_FATAL(pool_create(2, NULL, 0, &pool), ERR_OK);
		CHECK_OK(limits_measure(pool, k, &l));
		printf("\n    %s: reads %.1f GB/s; f32 %.1f, int8 %.1f, bf16 %.1f G op/s ", k->name, l.read_gbps, l.f32_gops, l.int8_gops,
		       l.bf16_gops);
		CU_ASSERT(l.read_gbps > 0.01 && l.read_gbps < 1000);
		CU_ASSERT(l.f32_gops > 0.01 && l.f32_gops < 2000);
		CU_ASSERT(l.int8_gops > 0.01 && l.int8_gops < 8000);
		CU_ASSERT(l.bf16_gops > 0.01 && l.bf16_gops < 4000);
		pool_destroy(pool);
	}
}

TEST_MAIN("limits", CASE(operations_grow_with_the_rounds), CASE(every_byte_is_read),
	  CASE(measured_limits_are_those_of_a_processor))
