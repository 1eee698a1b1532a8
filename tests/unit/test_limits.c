/* labels: unit
 * timeout: 180
 * What `bench` measures the machine with: every kernel table counts its operations, reads every byte, and shows speeds that a
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
		struct read_probe *r;
		struct limits l;
		if (!k->usable())
			continue;
		CU_ASSERT_EQUAL_FATAL(pool_create(2, NULL, 0, &pool), ERR_OK);
		CHECK_OK(limits_measure(pool, k, &l));
		CU_ASSERT_EQUAL_FATAL(read_probe_create(pool, k, 0, 1, &r), ERR_OK);
		double gbps = read_probe_run(r);
		read_probe_destroy(r);
		printf("\n    %s: reads %.1f GB/s; f32 %.1f, int8 %.1f, bf16 %.1f G op/s ", k->name, gbps, l.f32_gops, l.int8_gops,
		       l.bf16_gops);
		CU_ASSERT(gbps > 0.01 && gbps < 5000);
		CU_ASSERT(l.f32_gops > 0.01 && l.f32_gops < 2000);
		CU_ASSERT(l.int8_gops > 0.01 && l.int8_gops < 8000);
		CU_ASSERT(l.bf16_gops > 0.01 && l.bf16_gops < 4000);
		pool_destroy(pool);
	}
}

/* Four times the caches, as far as there is room; whole units. */
TEST(the_probe_is_larger_than_the_caches)
{
	static const uint64_t cases[][3] = {        /* caches, room, bytes */
		{ 32 << 20, UINT64_MAX, 128 << 20 }, { 20000003, UINT64_MAX, 80000012 / 4096 * 4096 }, { 32 << 20, 100 << 20, 100 << 20 },
		{ 1 << 20, UINT64_MAX, 64 << 20 }, { 32 << 20, 0, 64 << 20 }, { 0, 80 << 20, 80 << 20 }
	};
	struct pool *pool;
	CU_ASSERT_EQUAL_FATAL(pool_create(2, NULL, 0, &pool), ERR_OK);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct read_probe *r;
		CU_ASSERT_EQUAL_FATAL(read_probe_create(pool, kernels_best(), cases[i][0], cases[i][1], &r), ERR_OK);
		CU_ASSERT_EQUAL(read_probe_bytes(r), cases[i][2]);
		read_probe_destroy(r);
	}
	pool_destroy(pool);
}

/* Two ranks on a node whose 8 cores share an 8 MiB cache in fours, and have 1 MiB each; a rank on another, alike. */
TEST(caches_are_those_of_the_ranks_cores)
{
	enum { MIB = 1 << 20 };
	struct cluster c;
	struct plan_rank ranks[3] = { { .member = { .node = 0, .cores = { 0x3 } } }, { .member = { .node = 0, .cores = { 0xc } } },
				      { .member = { .node = 1, .cores = { 0xf8 } } } };
	const struct plan p = { .n_ranks = 3, .ranks = ranks };
	CU_ASSERT_EQUAL_FATAL(cluster_read("2 x pack:1 l3:2 l2:4(size=1MB) core:1 pu:1", &c), ERR_OK);
	for (int node = 0; node < 2; node++) {
		c.nodes[node].l3_bytes = 8 * MIB;
		c.nodes[node].l2_bytes = MIB;
	}
	CU_ASSERT_EQUAL(c.nodes[0].n_cores, 8);
	CU_ASSERT_EQUAL(limits_cache_bytes(&p, &c, 0), (8 + 2) * MIB);
	CU_ASSERT_EQUAL(limits_cache_bytes(&p, &c, 1), (8 + 2) * MIB);
	CU_ASSERT_EQUAL(limits_cache_bytes(&p, &c, 2), (2 * 8 + 5) * MIB);
	CU_ASSERT_EQUAL(limits_cache_bytes(&p, &c, -1), (8 + 4 + 2 * 8 + 5) * MIB);
	for (int i = 0; i < 8; i++)
		c.nodes[0].cores[i].l3 = -1;
	CU_ASSERT_EQUAL(limits_cache_bytes(&p, &c, 0), 2 * MIB);
	cluster_free(&c);
}

/* Half of what is left of a node's memory, for each of its ranks. */
TEST(spare_memory_is_what_the_plan_leaves)
{
	struct cluster c;
	struct plan_rank ranks[2] = { { .weights_bytes = 10000, .kv_bytes = 2000, .buffer_bytes = 400 }, { .weights_bytes = 20000 } };
	const struct plan p = { .n_ranks = 2, .ranks = ranks };
	CU_ASSERT_EQUAL_FATAL(cluster_read("pack:1 core:2 pu:1", &c), ERR_OK);
	c.nodes[0].memory_limit_bytes = 72400;
	CU_ASSERT_EQUAL(limits_spare_bytes(&p, &c, 0), (72400 - 32400) / 4);
	c.nodes[0].memory_limit_bytes = 32000;
	CU_ASSERT_EQUAL(limits_spare_bytes(&p, &c, 1), 0);
	cluster_free(&c);
}

TEST_MAIN("limits", CASE(operations_grow_with_the_rounds), CASE(every_byte_is_read),
	  CASE(measured_limits_are_those_of_a_processor), CASE(the_probe_is_larger_than_the_caches),
	  CASE(caches_are_those_of_the_ranks_cores), CASE(spare_memory_is_what_the_plan_leaves))
