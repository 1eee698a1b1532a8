/* labels: unit
 * Prompts and answers: what stands on stdout after each token is final and made of whole characters, stop strings end a
 * text and are never shown, and every prompt's text follows as soon as the one before it has ended. */
#include "launcher/commands.h"
#include "launcher/prompts.h"
#include "launcher/words.h"
#include "tests/test.h"

#include <fcntl.h>
#include <unistd.h>

#define MODEL SOURCE_DIR "/configs/models/jargon-moe"

/* Byte-level BPE of ASCII letters, the three bytes of U+20AC, and one token that ends a stop string within a character.
 * GPT-2's stand-ins for bytes: U+00E2 is 0xe2, U+0124 0x82, U+00AC 0xac. */
static const char tiny_json[] =
	"{\"added_tokens\":[],\"normalizer\":null,\"post_processor\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
	"\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
	"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"!\":2,\"\\u00e2\":3,\"\\u0124\":4,\"\\u00ac\":5,\"!\\u00e2\":6},"
	"\"merges\":[\"! \\u00e2\"]}}";
enum { A, B, BANG, E2, X82, AC, BANG_E2 };

struct stage_set {
	struct options o;
	struct recipe *r;
	struct tokenizer *t;
	struct prompts *p;
	struct answer answers[8];
	int saved_out, pipe_in;
	char shown[4096];
	size_t n_shown;
};

/* argv ends with NULL. */
static void set_up(struct stage_set *s, const char *json, char *const *argv)
{
	int argc = 0, ends[2];
	memset(s, 0, sizeof *s);
	while (argv[argc])
		argc++;
	CHECK_OK(options_parse(argc, argv, &s->o));
	CHECK_OK(recipe_create(&s->r));
	CHECK_OK(options_apply(&s->o, s->r));
	if (json)
		CHECK_OK(tokenizer_open_json("tiny", json, strlen(json), &s->t));
	else
		CHECK_OK(tokenizer_open_directory(MODEL, &s->t));
	CHECK_OK(prompts_read(&s->o, s->r, s->t, &s->p));
	fflush(stdout);
	s->saved_out = dup(STDOUT_FILENO);
	CU_ASSERT_FATAL(s->p && s->saved_out >= 0 && pipe(ends) == 0);
	s->pipe_in = ends[0];
	fcntl(s->pipe_in, F_SETFL, O_NONBLOCK);
	dup2(ends[1], STDOUT_FILENO);
	close(ends[1]);
}

static void take_shown(struct stage_set *s)
{
	ssize_t n = read(s->pipe_in, s->shown + s->n_shown, sizeof s->shown - 1 - s->n_shown);
	s->n_shown += n > 0 ? (size_t)n : 0;
	s->shown[s->n_shown] = '\0';
}

static void tear_down(struct stage_set *s)
{
	dup2(s->saved_out, STDOUT_FILENO);
	close(s->saved_out);
	close(s->pipe_in);
	prompts_destroy(s->p);
	tokenizer_close(s->t);
	recipe_destroy(s->r);
	options_free(&s->o);
}

/* One token of an answer, as session_generate hands it over. */
static int give(struct stage_set *s, int64_t request, int32_t token, enum finish finish)
{
	struct answer *a = &s->answers[request];
	a->n_tokens++;
	a->finish = finish;
	int stop = prompts_token(s->p, request, a, token);
	take_shown(s);
	return stop;
}

#define WORDS(...) ((char *[]){ (char[]){ "shardrun" }, (char[]){ "run" }, (char[]){ "--model=m" }, __VA_ARGS__, NULL })
#define WORD(text) ((char[]){ text })

TEST(no_character_is_ever_cut)
{
	static const char text[] = "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80 \xe4\xb8\xad\xe6\x96\x87 caf\xc3\xa9";
	struct stage_set s;
	struct tokens ids = { 0 };
	int whole = 1, final = 1;
	set_up(&s, NULL, WORDS(WORD("--prompt-ids=1"), WORD("--stop=caf\xc3\xa9s and bars"), WORD("--stop=\n\n")));
	CHECK_OK(tokenizer_encode(s.t, text, strlen(text), 0, &ids));
	for (int64_t i = 0; i < ids.n; i++) {
		give(&s, 0, ids.ids[i], i + 1 == ids.n ? FINISH_LENGTH : FINISH_NOT_YET);
		whole &= text_is_utf8(s.shown, s.n_shown);
		final &= s.n_shown <= strlen(text) + 1 && !memcmp(s.shown, text, s.n_shown < strlen(text) ? s.n_shown : strlen(text));
	}
	tokens_free(&ids);
	tear_down(&s);
	CU_ASSERT(whole);
	CU_ASSERT(final);
	CU_ASSERT_STRING_EQUAL(s.shown, "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80 \xe4\xb8\xad\xe6\x96\x87 caf\xc3\xa9\n");
}

TEST(only_what_may_begin_a_stop_string_is_held_back)
{
	struct stage_set s;
	set_up(&s, tiny_json, WORDS(WORD("--prompt-ids=1"), WORD("--stop=aab")));
	give(&s, 0, B, FINISH_NOT_YET);
	int at_once = !strcmp(s.shown, "b");
	give(&s, 0, A, FINISH_NOT_YET);
	give(&s, 0, A, FINISH_NOT_YET);
	int held = !strcmp(s.shown, "b");
	give(&s, 0, A, FINISH_NOT_YET);          /* "baaa": the last two may still become "aab" */
	int moved = !strcmp(s.shown, "ba");
	int stop = give(&s, 0, B, FINISH_NOT_YET);
	tear_down(&s);
	CU_ASSERT(at_once && held && moved && stop);
	CU_ASSERT_STRING_EQUAL(s.shown, "ba\n");
}

TEST(a_stop_string_is_found_across_tokens_and_the_first_one_counts)
{
	struct stage_set s;
	set_up(&s, tiny_json, WORDS(WORD("--prompt-ids=1"), WORD("--stop=bb"), WORD("--stop=ab!")));
	CU_ASSERT_EQUAL(give(&s, 0, B, FINISH_NOT_YET), 0);
	CU_ASSERT_EQUAL(give(&s, 0, A, FINISH_NOT_YET), 0);
	CU_ASSERT_EQUAL(give(&s, 0, B, FINISH_NOT_YET), 0);
	CU_ASSERT_EQUAL(give(&s, 0, BANG, FINISH_NOT_YET), 1);
	tear_down(&s);
	CU_ASSERT_STRING_EQUAL(s.shown, "b\n");
}

/* The token that ends the stop string also begins a character: it belongs to what was cut off. */
TEST(nothing_follows_a_stop_string)
{
	struct stage_set s;
	set_up(&s, tiny_json, WORDS(WORD("--prompt-ids=1"), WORD("--stop=b!")));
	give(&s, 0, A, FINISH_NOT_YET);
	give(&s, 0, B, FINISH_NOT_YET);
	CU_ASSERT_EQUAL(give(&s, 0, BANG_E2, FINISH_LENGTH), 1);
	tear_down(&s);
	CU_ASSERT_STRING_EQUAL(s.shown, "a\n");
}

TEST(an_answer_that_ends_within_a_character_says_so)
{
	struct stage_set s;
	set_up(&s, tiny_json, WORDS(WORD("--prompt-ids=1")));
	give(&s, 0, E2, FINISH_NOT_YET);
	give(&s, 0, X82, FINISH_LENGTH);
	tear_down(&s);
	CU_ASSERT_STRING_EQUAL(s.shown, "\xef\xbf\xbd\n");
}

/* An answer may be shorter than max_tokens, as when the context is full. */
TEST(the_next_text_follows_when_one_has_ended_for_any_reason)
{
	static const enum finish ends[] = { FINISH_LENGTH, FINISH_STOP };
	for (int i = 0; i < 2; i++) {
		struct stage_set s;
		set_up(&s, tiny_json, WORDS(WORD("--prompt=a"), WORD("--prompt=b"), WORD("--max-tokens=100")));
		give(&s, 1, B, FINISH_LENGTH);
		int waits = !strcmp(s.shown, "a");                /* the first prompt */
		give(&s, 0, A, FINISH_NOT_YET);
		int streams = !strcmp(s.shown, "aa");
		give(&s, 0, B, ends[i]);
		tear_down(&s);
		CU_ASSERT(waits && streams);
		CU_ASSERT_STRING_EQUAL(s.shown, i == 0 ? "aab\nbb\n" : "aa\nbb\n");   /* an end-of-text token has no text */
	}
}

/* Hand count: "b" is there twice, "a" three times. */
TEST(only_repeats_of_a_prompt_are_other_choices)
{
	static const uint32_t want[] = { 0, 0, 1, 2, 1, 0 };
	struct stage_set s;
	set_up(&s, tiny_json, WORDS(WORD("--prompt=a"), WORD("--prompt=b"), WORD("--prompt=a"), WORD("--prompt=a"),
				    WORD("--prompt=b"), WORD("--prompt=ab"), WORD("--temperature=1")));
	for (int i = 0; i < 6; i++)
		CU_ASSERT_EQUAL(s.p->requests[i].sample.choice, want[i]);
	tear_down(&s);
}

/* Two answers each, the prompt in front of both; a repeated prompt's are choices 2 and 3. */
TEST(several_answers_follow_their_prompt)
{
	struct stage_set s;
	set_up(&s, tiny_json, WORDS(WORD("--prompt=a"), WORD("--prompt=a"), WORD("--set=generation.n=2")));
	CU_ASSERT(s.p->n_answers == 4 && s.p->requests[0].n == 2);
	CU_ASSERT(s.p->requests[0].sample.choice == 0 && s.p->requests[1].sample.choice == 2);
	give(&s, 1, BANG, FINISH_LENGTH);
	give(&s, 0, B, FINISH_LENGTH);
	int both = !strcmp(s.shown, "ab\na!\na");
	give(&s, 2, A, FINISH_LENGTH);
	give(&s, 3, B, FINISH_LENGTH);
	tear_down(&s);
	CU_ASSERT(both);
	CU_ASSERT_STRING_EQUAL(s.shown, "ab\na!\naa\nab\n");
}

TEST(the_recipe_says_how_answers_are_chosen)
{
	struct stage_set s;
	set_up(&s, tiny_json, WORDS(WORD("--prompt=a"), WORD("--set=generation.logit_bias=3:-100  0:2.5"),
				    WORD("--set=generation.stop_token_ids=4,6"), WORD("--set=generation.min_tokens=5"),
				    WORD("--set=generation.repetition_penalty=1.5"), WORD("--set=generation.presence_penalty=-0.5"),
				    WORD("--set=generation.frequency_penalty=0.25"), WORD("--set=generation.logprobs=7")));
	const struct request *r = &s.p->requests[0];
	CU_ASSERT(r->n_biases == 2 && r->biases[0].token == 3 && r->biases[0].bias == -100 && r->biases[1].token == 0);
	CU_ASSERT(r->biases[1].bias == 2.5f && r->n_stop_tokens == 2 && r->stop_tokens[1] == 6 && r->min_tokens == 5);
	CU_ASSERT(r->repetition_penalty == 1.5f && r->presence_penalty == -0.5f && r->frequency_penalty == 0.25f);
	CU_ASSERT_EQUAL(r->sample.logprobs, 8);
	tear_down(&s);
}

TEST(a_wrong_bias_is_shown)
{
	static const char *const wrong[] = { "3", "3:", ":1", "x:1", "3:1,4:2", "3:101", "3:nan", "1234567890:1", "-3:1", "3:1 4" };
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct recipe *r;
		struct tokenizer *t;
		struct prompts *p;
		struct options o;
		char set[80];
		char *const argv[] = { WORD("shardrun"), WORD("run"), WORD("--model=m"), WORD("--prompt=a"), set, NULL };
		snprintf(set, sizeof set, "--set=generation.logit_bias=%s", wrong[i]);
		CHECK_OK(options_parse(5, argv, &o));
		CHECK_OK(recipe_create(&r));
		CHECK_OK(options_apply(&o, r));
		CHECK_OK(tokenizer_open_json("tiny", tiny_json, strlen(tiny_json), &t));
		CHECK_ERR(prompts_read(&o, r, t, &p), RECIPE, "TOKEN:BIAS with blanks between");
		tokenizer_close(t);
		recipe_destroy(r);
		options_free(&o);
	}
}

TEST_MAIN("prompts", CASE(no_character_is_ever_cut), CASE(only_what_may_begin_a_stop_string_is_held_back),
	  CASE(a_stop_string_is_found_across_tokens_and_the_first_one_counts), CASE(nothing_follows_a_stop_string),
	  CASE(an_answer_that_ends_within_a_character_says_so), CASE(the_next_text_follows_when_one_has_ended_for_any_reason),
	  CASE(only_repeats_of_a_prompt_are_other_choices), CASE(several_answers_follow_their_prompt),
	  CASE(the_recipe_says_how_answers_are_chosen), CASE(a_wrong_bias_is_shown))
