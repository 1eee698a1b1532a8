/* labels: unit
 * Layouts: what auto chooses, what is refused, and that everything offered instead works. */
#include "parallel/layout.h"
#include "tests/test.h"

static const struct layout_limits smollm2 = { .n_layers = 30, .heads = 9, .ffn_blocks = 16 };      /* dense */
static const struct layout_limits jargon = { .n_layers = 6, .n_experts = 8, .heads = 6, .ffn_blocks = 16 };
static const struct layout_limits wide = { .n_layers = 4, .heads = 4096, .ffn_blocks = 4096 };
static const struct layout_limits big_moe = { .n_layers = 61, .n_experts = 256, .heads = 128, .ffn_blocks = 16 };

/* { tp, pp, dp, ep, etp }; 0 is auto. Wanted values are worked out by hand from the rule in layout.c. */
static const struct { const struct layout_limits *m; int ranks, per_node; int in[5], out[5]; } fits[] = {
	{ &smollm2, 1, 1, { 0 }, { 1, 1, 1, 1, 1 } },
	{ &smollm2, 8, 8, { 0 }, { 8, 1, 1, 1, 1 } },
	{ &smollm2, 8, 4, { 0 }, { 4, 2, 1, 1, 1 } },          /* tp stays inside a node, stages span them */
	{ &smollm2, 12, 12, { 0 }, { 6, 2, 1, 1, 1 } },        /* 12 and more than 9 head runs: 6 divides */
	{ &smollm2, 64, 1, { 0 }, { 1, 16, 4, 1, 1 } },        /* 30 layers: 16 stages, the rest replicas */
	{ &smollm2, 12, 4, { 3 }, { 0 } },                     /* refused: 3 does not fill nodes of 4 */
	{ &smollm2, 12, 3, { 3 }, { 3, 4, 1, 1, 1 } },
	{ &smollm2, 8, 8, { 0, 0, 2 }, { 4, 1, 2, 1, 1 } },
	{ &smollm2, 8, 8, { 0, 8 }, { 1, 8, 1, 1, 1 } },
	{ &smollm2, 7, 7, { 0, 7 }, { 1, 7, 1, 1, 1 } },
	{ &jargon, 4, 4, { 2, 2 }, { 2, 2, 1, 2, 1 } },        /* ep auto: the largest divisor of dp * tp within 8 */
	{ &jargon, 4, 1, { 0 }, { 1, 4, 1, 1, 1 } },
	{ &jargon, 8, 8, { 1, 1, 8 }, { 1, 1, 8, 8, 1 } },
	{ &jargon, 8, 8, { 2, 1, 4, 5 }, { 0 } },              /* refused: 5 does not divide 8 */
	{ &jargon, 5, 5, { 1, 1, 5, 5 }, { 1, 1, 5, 5, 1 } },  /* ep need not divide the experts */
	{ &jargon, 8, 8, { 4, 1, 2, 2 }, { 4, 1, 2, 2, 4 } },  /* etp auto: the largest divisor of 8 / 2 within tp */
	{ &jargon, 8, 8, { 2, 1, 4, 2 }, { 2, 1, 4, 2, 2 } },
	{ &jargon, 8, 8, { 2, 1, 4, 0, 2 }, { 2, 1, 4, 4, 2 } },
	{ &wide, 2048, 2048, { 2048 }, { 0 } },                /* refused: more than 1024 in a group */
	{ &wide, 2048, 2048, { 1024 }, { 1024, 2, 1, 1, 1 } },
	{ &big_moe, 128, 8, { 8, 1, 16 }, { 8, 1, 16, 128, 1 } },
	{ &big_moe, 512, 8, { 8, 1, 64 }, { 8, 1, 64, 256, 2 } },
	{ &big_moe, 128, 8, { 0 }, { 8, 16, 1, 8, 1 } },
};

static struct layout wish(const int v[5])
{
	return (struct layout){ .tp = v[0], .pp = v[1], .dp = v[2], .ep = v[3], .etp = v[4] };
}

TEST(auto_values_follow_the_rule)
{
	for (size_t i = 0; i < sizeof fits / sizeof fits[0]; i++) {
		struct layout l = wish(fits[i].in), want = wish(fits[i].out);
		if (!want.tp) {
			CU_ASSERT_EQUAL(layout_complete(&l, fits[i].m, fits[i].ranks, fits[i].per_node), ERR_FIT);
			continue;
		}
		CHECK_OK(layout_complete(&l, fits[i].m, fits[i].ranks, fits[i].per_node));
		if (memcmp(&l, &want, sizeof l))
			fprintf(stderr, "row %zu: tp %d pp %d dp %d ep %d etp %d\n", i, l.tp, l.pp, l.dp, l.ep, l.etp);
		CU_ASSERT_EQUAL(memcmp(&l, &want, sizeof l), 0);
	}
}

static const struct { const struct layout_limits *m; int ranks, per_node; int in[5]; const char *says, *offers; } misfits[] = {
	{ &smollm2, 10, 10, { 10 }, "tp 10 is more than the 9 heads of the model", "tp 5 x pp 2 x dp 1" },
	{ &smollm2, 31, 31, { 0, 31 }, "pp 31 is more than the model's 30 layers", "tp 1 x pp 1 x dp 31" },
	{ &smollm2, 8, 8, { 3 }, "tp 3 needs a multiple of 3 ranks, but there are 8", "tp 4 x pp 2 x dp 1" },
	{ &smollm2, 8, 8, { 2, 2, 3 }, "tp 2 x pp 2 x dp 3 needs 12 ranks, but there are 8", "tp 2 x pp 2 x dp 2" },
	{ &smollm2, 8, 4, { 8 }, "tp 8 does not fit whole into a node with 4 ranks", "tp 4 x pp 2 x dp 1" },
	{ &smollm2, 4, 4, { 2, 1, 2, 2 }, "the model has none", "tp 2 x pp 1 x dp 2" },
	{ &jargon, 16, 16, { 1, 1, 16, 16 }, "ep 16 is more than the model's 8 experts", "tp 1 x pp 1 x dp 16 with ep 8 x etp 1" },
	{ &jargon, 8, 8, { 2, 1, 4, 5 }, "ep 5 x etp 1 needs a multiple of 5 ranks, but there are 8",
	  "tp 2 x pp 1 x dp 4 with ep 4" },
	{ &jargon, 4, 4, { 2, 2, 1, 4 }, "ep 4 x etp 1 does not divide the dp 1 x tp 2 = 2 ranks of a stage", "with ep 2 x etp 1" },
	{ &jargon, 4, 4, { -1 }, "each must be at least 1", "" },
};

TEST(the_impossible_is_refused_with_what_would_work)
{
	for (size_t i = 0; i < sizeof misfits / sizeof misfits[0]; i++) {
		struct layout l = wish(misfits[i].in), before = l;
		CHECK_ERR(layout_complete(&l, misfits[i].m, misfits[i].ranks, misfits[i].per_node), FIT, misfits[i].says);
		if (!strstr(err_sentence(), misfits[i].offers))
			fprintf(stderr, "row %zu offers: %s\n", i, err_sentence());
		CU_ASSERT_PTR_NOT_NULL(strstr(err_sentence(), misfits[i].offers));
		CU_ASSERT_EQUAL(memcmp(&l, &before, sizeof l), 0);
	}
}

/* For every wish on up to 12 ranks: either it is met exactly, or each layout in the sentence works when asked for. */
TEST(every_answer_is_complete_and_every_offer_works)
{
	int met = 0, offered = 0;
	for (int ranks = 1; ranks <= 12; ranks++)
		for (int code = 0; code < 5 * 5 * 5 * 5; code++) {
			struct layout l = { .tp = code % 5, .pp = code / 5 % 5, .dp = code / 25 % 5, .ep = code / 125 % 5 };
			struct layout want = l;
			enum err e = layout_complete(&l, &jargon, ranks, ranks);
			if (!e) {
				met++;
				CU_ASSERT_EQUAL(l.tp * l.pp * l.dp, ranks);
				CU_ASSERT_EQUAL(l.dp * l.tp % (l.ep * l.etp), 0);
				CU_ASSERT(l.tp <= 6 && l.pp <= 6 && l.ep <= 8 && l.etp <= 16);
				CU_ASSERT((!want.tp || want.tp == l.tp) && (!want.pp || want.pp == l.pp));
				CU_ASSERT((!want.dp || want.dp == l.dp) && (!want.ep || want.ep == l.ep));
				continue;
			}
			char sentence[ERR_SENTENCE_BYTES];
			strcpy(sentence, err_sentence());
			const char *at = strstr(sentence, "that work are ");
			CU_ASSERT_PTR_NOT_NULL(at);
			for (at = at ? at + 9 : NULL; at; at = strchr(at + 1, ',')) {
				struct layout offer = { 0 };
				const char *tp = strstr(at, "tp ");
				CU_ASSERT_PTR_NOT_NULL_FATAL(tp);
				int found = sscanf(tp, "tp %d x pp %d x dp %d with ep %d x etp %d", &offer.tp, &offer.pp,
						   &offer.dp, &offer.ep, &offer.etp);
				CU_ASSERT_EQUAL(found, 5);
				CHECK_OK(layout_complete(&offer, &jargon, ranks, ranks));
				offered++;
			}
		}
	CU_ASSERT(met > 500 && offered > 500);
}

TEST(explicit_stages_are_checked)
{
	struct layout l = { .n_stage_layers = 2, .stage_layers = { 4, 2 } };
	CHECK_OK(layout_complete(&l, &jargon, 4, 4));
	CU_ASSERT_EQUAL(l.pp, 2);
	CU_ASSERT_EQUAL(l.tp, 2);
	struct layout sum = { .n_stage_layers = 2, .stage_layers = { 4, 3 } };
	CHECK_ERR(layout_complete(&sum, &jargon, 4, 4), FIT, "adds up to 7 layers, but the model has 6");
	struct layout none = { .n_stage_layers = 2, .stage_layers = { 6, 0 } };
	CHECK_ERR(layout_complete(&none, &jargon, 4, 4), FIT, "stage 1 0 layers");
	struct layout other = { .pp = 4, .n_stage_layers = 2, .stage_layers = { 3, 3 } };
	CHECK_ERR(layout_complete(&other, &jargon, 4, 4), FIT, "pp is 4, but pp_layers lists 2 stages");
}

TEST(tp_crosses_nodes_only_when_told)
{
	struct layout l = { .tp = 4, .tp_across_nodes = 1 };
	CHECK_OK(layout_complete(&l, &smollm2, 4, 2));
	struct layout free_tp = { .tp_across_nodes = 1 };
	CHECK_OK(layout_complete(&free_tp, &smollm2, 4, 2));
	CU_ASSERT_EQUAL(free_tp.tp, 2);
}

TEST_MAIN("layout", CASE(auto_values_follow_the_rule), CASE(the_impossible_is_refused_with_what_would_work),
	  CASE(every_answer_is_complete_and_every_offer_works), CASE(explicit_stages_are_checked),
	  CASE(tp_crosses_nodes_only_when_told))
