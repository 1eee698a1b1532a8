/* labels: unit
 * Shards: ranges cover the whole exactly once, as even as the blocks allow, and key/value heads follow their query heads. */
#include "parallel/shard.h"
#include "tests/test.h"

TEST(parts_cover_the_whole_once_and_are_even)
{
	for (int64_t n = 0; n < 50; n++)
		for (int64_t unit = 1; unit < 9; unit++)
			for (int parts = 1; parts < 12; parts++) {
				int64_t at = 0, least = INT64_MAX, most = 0, before = INT64_MAX;
				for (int i = 0; i < parts; i++) {
					struct range r = range_part(n, unit, parts, i);
					int64_t units = (range_size(r) + unit - 1) / unit;
					CU_ASSERT_EQUAL_FATAL(r.begin, at);
					CU_ASSERT_FATAL(r.end >= r.begin && (r.begin % unit == 0 || r.begin == n));
					CU_ASSERT_FATAL(units <= before);   /* the first ones are the longer ones */
					least = units < least ? units : least;
					most = units > most ? units : most;
					before = units;
					at = r.end;
				}
				CU_ASSERT_EQUAL_FATAL(at, n);
				CU_ASSERT_FATAL(most - least <= 1);
			}
}

TEST(a_huge_whole_does_not_overflow)
{
	struct range r = range_part(INT64_MAX, 1ll << 40, 7, 6);
	CU_ASSERT_EQUAL(r.end, INT64_MAX);
	CU_ASSERT(r.begin > 0 && r.begin < r.end);
}

/* SmolLM2-135M: 30 layers, 9 heads in 3 groups, 1536 FFN columns in 16 runs of 96, 49152 words. */
static const struct shard_model smollm2 = { .n_layers = 30, .n_head = 9, .n_kv_head = 3, .n_ffn = 1536, .n_vocab = 49152,
					    .head_run = 1, .ffn_run = 96 };
/* The bundled mixture: 6 layers, 6 heads in 2 groups, 8 experts. */
static const struct shard_model jargon = { .n_layers = 6, .n_head = 6, .n_kv_head = 2, .n_ffn = 512, .n_expert = 8,
					   .n_vocab = 4096, .head_run = 1, .ffn_run = 32 };

TEST(heads_bring_their_key_value_heads)
{
	/* 9 heads over 4 ranks are 3 2 2 2: 0-2 3-4 5-6 7-8; three query heads share one kv head. */
	static const int64_t want[4][4] = { { 0, 3, 0, 1 }, { 3, 5, 1, 2 }, { 5, 7, 1, 3 }, { 7, 9, 2, 3 } };
	struct layout l = { .tp = 4, .pp = 1, .ep = 1, .dp = 1, .etp = 1 };
	for (int tp = 0; tp < 4; tp++) {
		struct member m = { .tp = tp };
		struct shard s;
		shard_of(&smollm2, &l, &m, &s);
		CU_ASSERT_EQUAL(s.heads.begin, want[tp][0]);
		CU_ASSERT_EQUAL(s.heads.end, want[tp][1]);
		CU_ASSERT_EQUAL(s.kv_heads.begin, want[tp][2]);
		CU_ASSERT_EQUAL(s.kv_heads.end, want[tp][3]);
		CU_ASSERT_EQUAL(range_size(s.ffn), 384);
		CU_ASSERT(s.first_stage && s.last_stage);
		struct range q = shard_dim_range(&s, SHARD_HEADS, 576, 64), kv = shard_dim_range(&s, SHARD_KV_HEADS, 192, 64);
		CU_ASSERT_EQUAL(q.begin, want[tp][0] * 64);
		CU_ASSERT_EQUAL(kv.end, want[tp][3] * 64);
		CU_ASSERT_EQUAL(range_size(shard_dim_range(&s, SHARD_ALL, 576, 1)), 576);
	}
}

TEST(every_head_column_word_and_layer_has_its_ranks)
{
	for (int tp = 1; tp <= 9; tp++)
		for (int pp = 1; pp <= 7; pp++) {
			struct layout l = { .tp = tp, .pp = pp, .ep = 1, .dp = 1, .etp = 1 };
			int64_t layers = 0, heads = 0, columns = 0, words = 0;
			for (int p = 0; p < pp; p++)
				for (int t = 0; t < tp; t++) {
					struct member m = { .pp = p, .tp = t };
					struct shard s;
					shard_of(&smollm2, &l, &m, &s);
					layers += t == 0 ? range_size(s.layers) : 0;
					heads += p == 0 ? range_size(s.heads) : 0;
					columns += p == 0 ? range_size(s.ffn) : 0;
					words += p == 0 ? range_size(s.vocab) : 0;
					CU_ASSERT_EQUAL(s.first_stage, p == 0);
					CU_ASSERT_EQUAL(s.last_stage, p == pp - 1);
					for (int64_t h = s.heads.begin; h < s.heads.end; h++)
						CU_ASSERT(h / 3 >= s.kv_heads.begin && h / 3 < s.kv_heads.end);
				}
			CU_ASSERT_EQUAL(layers, 30);
			CU_ASSERT_EQUAL(heads, 9);
			CU_ASSERT_EQUAL(columns, 1536);
			CU_ASSERT_EQUAL(words, 49152);
		}
}

TEST(experts_need_not_divide)
{
	for (int ep = 1; ep <= 8; ep++) {
		struct layout l = { .tp = 1, .pp = 1, .ep = ep, .dp = ep, .etp = 1 };
		int64_t owned[8] = { 0 };
		for (int e = 0; e < ep; e++) {
			struct member m = { .ep = e };
			struct shard s;
			shard_of(&jargon, &l, &m, &s);
			for (int64_t x = s.experts.begin; x < s.experts.end; x++) {
				CU_ASSERT_EQUAL(shard_expert_owner(&jargon, &l, x), e);
				owned[x]++;
			}
			CU_ASSERT(range_size(s.experts) >= 1);
			CU_ASSERT_EQUAL(range_size(s.expert_ffn), 512);
		}
		for (int x = 0; x < 8; x++)
			CU_ASSERT_EQUAL(owned[x], 1);
	}
	struct layout l = { .tp = 4, .pp = 1, .ep = 2, .dp = 1, .etp = 2 };
	struct member m = { .tp = 3, .ep = 1, .etp = 1 };
	struct shard s;
	shard_of(&jargon, &l, &m, &s);
	CU_ASSERT(s.experts.begin == 4 && s.experts.end == 8);
	CU_ASSERT(s.expert_ffn.begin == 256 && s.expert_ffn.end == 512);
	CU_ASSERT(s.ffn.begin == 384 && s.ffn.end == 512);
}

TEST(stages_may_be_listed)
{
	struct layout l = { .tp = 1, .pp = 3, .n_stage_layers = 3, .stage_layers = { 1, 4, 1 } };
	struct range r = shard_layers(6, &l, 1);
	CU_ASSERT(r.begin == 1 && r.end == 5);
	r = shard_layers(6, &l, 2);
	CU_ASSERT(r.begin == 5 && r.end == 6);
	l.n_stage_layers = 0;   /* 6 layers in 4 stages: 2 2 1 1 */
	l.pp = 4;
	r = shard_layers(6, &l, 2);
	CU_ASSERT(r.begin == 4 && r.end == 5);
}

TEST(limits_count_blocks)
{
	struct shard_model s = smollm2;
	struct layout_limits limits;
	s.head_run = 2;      /* 9 heads: 4 runs of 2 and one of 1 */
	s.ffn_run = 100;     /* 1536 columns: 15 runs of 100 and one of 36 */
	shard_limits(&s, &limits);
	CU_ASSERT_EQUAL(limits.heads, 9);          /* tp may exceed the runs: the input is gathered then */
	CU_ASSERT_EQUAL(limits.ffn_blocks, 48);    /* 1536 / 32 */
	CU_ASSERT_EQUAL(limits.n_layers, 30);
	CU_ASSERT_EQUAL(limits.n_experts, 0);
	struct layout l = { .tp = 5, .pp = 1, .ep = 1, .dp = 1, .etp = 1 };
	struct member m = { .tp = 4 };
	struct shard last;
	shard_of(&s, &l, &m, &last);
	CU_ASSERT(last.heads.begin == 8 && last.heads.end == 9);
	s.n_expert = 4;
	shard_limits(&s, &limits);
	CU_ASSERT_EQUAL(limits.ffn_blocks, 16);    /* experts are cut between runs only */
}

TEST(more_ranks_than_runs_hold_output_rows_instead)
{
	struct shard_model s = smollm2;
	struct layout l = { .tp = 7, .pp = 1, .ep = 1, .dp = 1, .etp = 1 };
	int64_t heads = 0, rows = 0, columns = 0;
	s.n_embd = 576;
	s.head_run = 2;      /* 5 runs of heads, fewer than 7 ranks */
	s.ffn_run = 512;     /* 3 runs of columns */
	for (int t = 0; t < 7; t++) {
		struct member m = { .tp = t };
		struct shard part;
		shard_of(&s, &l, &m, &part);
		CU_ASSERT(part.gather_attn && part.gather_ffn);
		CU_ASSERT(part.heads.begin == heads && part.attn_out.begin == rows && part.ffn.begin == columns);
		CU_ASSERT(part.ffn.begin % 32 == 0 && part.ffn_out.begin == part.attn_out.begin);
		heads = part.heads.end, rows = part.attn_out.end, columns = part.ffn.end;
	}
	CU_ASSERT(heads == 9 && rows == 576 && columns == 1536);
	l.tp = 3;
	struct member m = { .tp = 1 };
	struct shard part;
	shard_of(&s, &l, &m, &part);
	CU_ASSERT(!part.gather_attn && !part.gather_ffn);
	CU_ASSERT(part.attn_out.begin == 0 && part.attn_out.end == 576);
}

TEST_MAIN("shard", CASE(parts_cover_the_whole_once_and_are_even), CASE(a_huge_whole_does_not_overflow),
	  CASE(heads_bring_their_key_value_heads), CASE(every_head_column_word_and_layer_has_its_ranks), CASE(experts_need_not_divide),
	  CASE(stages_may_be_listed), CASE(limits_count_blocks),
	  CASE(more_ranks_than_runs_hold_output_rows_instead))
