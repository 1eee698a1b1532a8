/* labels: unit
 * The plan covers what a session then takes, on every rank of uneven layouts, and refuses with numbers what cannot fit. */
#include "base/mem.h"
#include "runtime/session.h"
#include "tests/test.h"

#define MODELS SOURCE_DIR "/tests/golden/models/"
#define MOE MODELS "mixtral-5x3"
#define DENSE MODELS "llama-untied"

struct planned {
	struct weights *w;
	struct model m;
	struct place place;
	struct plan p;
};

static enum err try_plan(const char *model, const char *cluster, int ranks, const struct plan_wish *wish, struct planned *t)
{
	struct cluster c;
	memset(t, 0, sizeof *t);
	TRY(cluster_read(cluster, &c));
	enum err e = place_invent(&c, ranks, 0, &t->place);
	cluster_free(&c);
	TRY(e);
	TRY(weights_open(model, &t->w));
	TRY(model_describe(t->w, &t->m));
	return plan_make(&t->m, t->w, &t->place, wish, 1, &t->p);
}

static void end_plan(struct planned *t)
{
	plan_free(&t->p);
	place_free(&t->place);
	weights_close(t->w);
}

static struct plan_wish wish_of(int tp, int pp, int dp)
{
	return (struct plan_wish){ .layout = { .tp = tp, .pp = pp, .dp = dp }, .threads = 1, .step_tokens = 32, .sequences = 4,
				   .context = 100 };
}

/* 100 tokens are 4 pages of 32 (the last one short), 4 sequences 16 pages. Replicas with all experts step by themselves. */
TEST(a_step_has_room_for_all_sequences_of_the_replicas_that_step_together)
{
	static const struct { const char *model; int tp, ep, etp, dp, together; } cases[] = {
		{ DENSE, 1, 1, 1, 2, 1 }, { MOE, 2, 2, 1, 2, 1 }, { MOE, 1, 2, 1, 2, 2 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct planned t;
		struct plan_wish wish = wish_of(cases[i].tp, 1, cases[i].dp);
		wish.layout.ep = cases[i].ep;
		wish.layout.etp = cases[i].etp;
		CHECK_OK(try_plan(cases[i].model, "pack:1 core:4 pu:1", cases[i].tp * cases[i].dp, &wish, &t));
		CU_ASSERT_EQUAL(t.p.lane_replicas, cases[i].together);
		CU_ASSERT_EQUAL(t.p.step.slices, 4 * cases[i].together);
		CU_ASSERT_EQUAL(t.p.step.tokens, 32 * cases[i].together);
		CU_ASSERT_EQUAL(t.p.step.pages, 4 * 4 * cases[i].together);
		end_plan(&t);
	}
}

/* Sequences may share pages: a step names those of all of them, however few there are. */
TEST(a_step_has_room_for_shared_pages)
{
	struct planned t;
	struct plan_wish wish = wish_of(1, 1, 2);
	wish.context = 3200;
	wish.sequences = wish.step_tokens = 64;
	wish.kv_bytes = 1 << 20;
	CHECK_OK(try_plan(DENSE, "pack:1 core:2 pu:1 memory:64GiB", 2, &wish, &t));
	CU_ASSERT_EQUAL(t.p.step.pages, 64 * 100);
	CU_ASSERT(t.p.limits.n_pages > 0 && t.p.limits.n_pages < 64 * 100 && t.p.ranks[0].kv_bytes <= 1 << 20);
	end_plan(&t);
}

/* Half the bytes in f16; in int8 a quarter and the scales. */
TEST(the_kv_cache_takes_the_bytes_of_its_type)
{
	static const enum kv_type types[] = { KV_F16, KV_BF16, KV_INT8 };
	struct planned t;
	struct plan_wish wish = wish_of(1, 1, 1);
	CHECK_OK(try_plan(DENSE, "pack:1 core:2 pu:1 memory:64GiB", 1, &wish, &t));
	uint64_t floats = t.p.ranks[0].kv_bytes;
	end_plan(&t);
	for (int i = 0; i < 3; i++) {
		wish.kv_type = types[i];
		CHECK_OK(try_plan(DENSE, "pack:1 core:2 pu:1 memory:64GiB", 1, &wish, &t));
		int64_t d = t.m.n_head_dim, scales = d % 32 ? 1 : d / 32;
		CU_ASSERT_EQUAL(t.p.ranks[0].kv_bytes, types[i] == KV_INT8 ? floats / (uint64_t)(4 * d) * (uint64_t)(d + 4 * scales)
									   : floats / 2);
		end_plan(&t);
	}
}

/* 16777216 tokens are 524288 pages; 4096 such sequences would be 2^31. */
TEST(a_step_of_too_many_pages_is_refused)
{
	struct planned t;
	struct plan_wish wish = wish_of(1, 1, 2);
	wish.context = 16777216;
	wish.sequences = wish.step_tokens = 4096;
	CHECK_ERR(try_plan(DENSE, "pack:1 core:2 pu:1 memory:64GiB", 2, &wish, &t), FIT, "31 bits");
	end_plan(&t);
}

/* --logits: the head holds all rows of the vocabulary, tp rank 0 of a last stage those of one step. */
TEST(logits_are_part_of_the_plan)
{
	struct planned a, b;
	struct plan_wish wish = wish_of(2, 2, 1);
	CHECK_OK(try_plan(DENSE, "pack:1 core:4 pu:1", 4, &wish, &a));
	wish.logits_tokens = 77;
	CHECK_OK(try_plan(DENSE, "pack:1 core:4 pu:1", 4, &wish, &b));
	for (int r = 0; r < 4; r++) {
		const struct plan_rank *k = &b.p.ranks[r];
		uint64_t row = 4 * (uint64_t)b.m.n_vocab, want = (r == 0 ? 77 * row : 0) +
							      (k->member.pp == 1 && k->member.tp == 0 ? 32 * row : 0);
		CU_ASSERT_EQUAL(k->buffer_bytes - a.p.ranks[r].buffer_bytes, want);
	}
	end_plan(&a);
	end_plan(&b);
}

TEST(what_does_not_fit_is_refused_with_the_numbers)
{
	struct planned t;
	struct plan_wish wish = wish_of(1, 1, 1);
	CHECK_OK(try_plan(DENSE, "pack:1 core:2 pu:1 memory:1GiB", 1, &wish, &t));
	end_plan(&t);
	wish.logits_tokens = 2000000;                            /* 2e6 rows of 131 floats: 1.05 GB */
	CHECK_ERR(try_plan(DENSE, "pack:1 core:2 pu:1 memory:512MiB", 1, &wish, &t), FIT, "has 0.54 GB for its 1 ranks");
	end_plan(&t);
	wish.logits_tokens = 0;
	wish.kv_bytes = 1;
	CHECK_ERR(try_plan(DENSE, "pack:1 core:2 pu:1 memory:1GiB", 1, &wish, &t), FIT, "less than one page of 32 tokens");
	end_plan(&t);
}

/* gguf-llama-mixed has weights of every kind, llama-bf16 only BF16, gguf-llama-f32 only F32. */
TEST(an_arithmetic_asked_for_by_name_must_have_weights)
{
	static const struct { const char *model; int int8, bf16; } cases[] = {
		{ MODELS "gguf-llama-mixed/model.gguf", 1, 1 }, { MODELS "gguf-llama-k/model.gguf", 1, 0 },
		{ MODELS "llama-bf16", 0, 1 }, { MODELS "gguf-llama-f32/model.gguf", 0, 0 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int a = ARITHMETIC_F32; a <= ARITHMETIC_BF16; a++) {
			struct planned t;
			struct plan_wish wish = wish_of(1, 1, 1);
			int good = a == ARITHMETIC_INT8 ? cases[i].int8 : a == ARITHMETIC_BF16 ? cases[i].bf16 : 1;
			wish.arithmetic = (enum arithmetic)a;
			enum err e = try_plan(cases[i].model, "pack:1 core:2 pu:1", 1, &wish, &t);
			if (good)
				CHECK_OK(e);
			else
				CHECK_ERR(e, RECIPE, a == ARITHMETIC_INT8 ? "int8\" multiplies with quantised weights, and"
									   : "bf16\" multiplies with BF16 weights, and");
			CU_ASSERT(e || t.p.limits.int8_rows == (a != ARITHMETIC_F32 && cases[i].int8));
			end_plan(&t);
		}
}

/* --- plan against session --- */

/* The cluster is read before there are threads: reading forks, which sanitizers do not like beside threads. */
struct trial { const char *model; struct plan_wish wish; struct cluster cluster; int uncovered, loose; };

static enum err body(struct comm *world, void *arg)
{
	struct trial *t = arg;
	struct place place = { 0 };
	struct session *s = NULL;
	struct session_wish wish = { .model_path = t->model, .isa = "c", .plan = t->wish };
	enum err e = place_invent(&t->cluster, comm_size(world), 0, &place);
	if (!e)
		e = session_create(world, &wish, &place, &s);
	if (!e) {
		const struct plan_rank *k = &s->plan.ranks[comm_rank(world)];
		uint64_t loop = k->loop_bytes;                       /* the engine's, not the stage's */
		uint32_t bad[2] = { s->stage->buffer_bytes > k->buffer_bytes || s->stage->kv_bytes != k->kv_bytes ||
					    s->stage->weights->block_bytes != k->weights_bytes,
				    k->buffer_bytes - loop > 2 * s->stage->buffer_bytes + 65536 };
		e = comm_allreduce(world, bad, 2, COMM_U32, COMM_SUM);
		if (comm_rank(world) == 0)
			t->uncovered += (int)bad[0], t->loose += (int)bad[1];
	}
	session_destroy(s);
	place_free(&place);
	return e;
}

TEST(the_plan_covers_what_every_rank_takes)
{
	static const struct { const char *model; int tp, pp, ep, dp, nodes; } cases[] = {
		{ DENSE, 1, 1, 1, 1, 1 }, { DENSE, 2, 2, 1, 1, 1 }, { DENSE, 3, 1, 1, 2, 2 }, { DENSE, 1, 2, 1, 2, 2 },
		{ MOE, 1, 1, 1, 1, 1 },   { MOE, 2, 2, 2, 1, 1 },   { MOE, 2, 1, 4, 2, 2 },   { MOE, 1, 1, 3, 3, 3 },
		{ MOE, 2, 1, 1, 2, 2 },   { MOE, 2, 2, 4, 2, 4 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct trial t = { .model = cases[i].model, .wish = wish_of(cases[i].tp, cases[i].pp, cases[i].dp) };
		int n = cases[i].tp * cases[i].pp * cases[i].dp, node_of[16];
		char spec[64];
		for (int r = 0; r < n; r++)
			node_of[r] = r / (n / cases[i].nodes);
		t.wish.layout.ep = cases[i].ep;
		snprintf(spec, sizeof spec, "%d x pack:1 core:8 pu:1", cases[i].nodes);
		CHECK_OK(cluster_read(spec, &t.cluster));
		CHECK_OK(comm_inproc_run(n, node_of, body, &t));
		cluster_free(&t.cluster);
		if (t.uncovered || t.loose)
			fprintf(stderr, "case %zu: %d ranks take more than planned, %d far less\n", i, t.uncovered, t.loose);
		CU_ASSERT_EQUAL(t.uncovered, 0);
		CU_ASSERT_EQUAL(t.loose, 0);
	}
}

TEST_MAIN("plan", CASE(a_step_has_room_for_all_sequences_of_the_replicas_that_step_together),
	  CASE(a_step_has_room_for_shared_pages), CASE(the_kv_cache_takes_the_bytes_of_its_type),
	  CASE(a_step_of_too_many_pages_is_refused), CASE(logits_are_part_of_the_plan),
	  CASE(what_does_not_fit_is_refused_with_the_numbers),
	  CASE(an_arithmetic_asked_for_by_name_must_have_weights), CASE(the_plan_covers_what_every_rank_takes))
