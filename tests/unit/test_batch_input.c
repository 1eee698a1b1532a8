/* The lines of a batch: what a good one becomes, what each kind of bad one is told, and what a million of them cost.
 * timeout: 300 */
#include "base/mem.h"
#include "launcher/batch_fields.h"
#include "launcher/batch_input.h"
#include "tests/files.h"
#include "tests/test.h"

#include <sys/wait.h>

static const struct batch_sampling defaults = { .temperature = 0.5, .top_p = 0.9, .min_p = 0.1, .repetition_penalty = 1, .top_k = 7,
						.seed = 42, .n = 1, .max_tokens = 128 };

static struct batch_input *open_text(const struct test_dir *d, const char *text, size_t bytes, size_t max_line_bytes)
{
	struct batch_input_config c = { .path = test_write(d, "in.jsonl", text, bytes), .max_line_bytes = max_line_bytes,
					.n_vocab = 1000, .defaults = defaults };
	struct batch_input *in = NULL;
	CHECK_OK(batch_input_open(&c, &in));
	return in;
}

/* One line, as a file of its own. */
static void one(const char *text, size_t bytes, struct batch_request *r)
{
	struct test_dir d;
	int more;
	test_dir_make(&d);
	struct batch_input *in = open_text(&d, text, bytes, 300);
	CHECK_OK(batch_input_next(in, r, &more));
	CU_ASSERT_TRUE(more);
	CU_ASSERT_EQUAL(r->line, 0);
	batch_input_close(in);
	test_dir_remove(&d);
}

static void good(const char *text, struct batch_request *r)
{
	one(text, strlen(text), r);
	if (r->fault_code)
		fprintf(stderr, "%s: %s\n", text, r->fault);
	CU_ASSERT_PTR_NULL_FATAL(r->fault_code);
}

#define CHAT(fields) "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{" fields "}}"
#define TEXT(fields) "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{" fields "}}"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define P "\"prompt\":\"hi\""

TEST(a_chat_with_everything)
{
	struct batch_request r;
	good(CHAT("\"model\":\"m\"," HI ",\"temperature\":0.25,\"top_p\":0.75,\"top_k\":-1,\"min_p\":0.05,\"logprobs\":true,"
		  "\"top_logprobs\":20,\"stop\":[\"x\",\"yz\"]"), &r);
	CU_ASSERT_EQUAL(r.kind, BATCH_CHAT);
	CU_ASSERT_STRING_EQUAL(r.custom_id, "a");
	CU_ASSERT_STRING_EQUAL(r.model, "m");
	CU_ASSERT_EQUAL(json_array_size(r.messages), 1);
	CU_ASSERT_TRUE(r.sampling.temperature == 0.25 && r.sampling.top_p == 0.75 && r.sampling.min_p == 0.05);
	CU_ASSERT_TRUE(r.sampling.top_k == 0 && r.sampling.logprobs == 1 && r.sampling.top_logprobs == 20);
	CU_ASSERT_EQUAL(r.n_stops, 2);
	CU_ASSERT_STRING_EQUAL(r.stops[1], "yz");
	CU_ASSERT_TRUE(r.sampling.seed == 42 && r.sampling.max_tokens == 128 && r.sampling.n == 1);   /* as configured */
	batch_request_free(&r);
	good(CHAT(HI ",\"repetition_penalty\":1.5,\"presence_penalty\":-2,\"frequency_penalty\":2,\"logit_bias\":{\"7\":-100,\"999\":1.5},"
		  "\"seed\":-3,\"n\":4,\"max_completion_tokens\":9"), &r);
	CU_ASSERT_TRUE(r.sampling.repetition_penalty == 1.5 && r.sampling.presence_penalty == -2 && r.sampling.frequency_penalty == 2);
	CU_ASSERT_EQUAL(r.n_biases, 2);
	CU_ASSERT_TRUE(r.biases[0].token == 7 && r.biases[0].bias == -100 && r.biases[1].token == 999 && r.biases[1].bias == 1.5f);
	CU_ASSERT_TRUE(r.sampling.seed == -3 && r.sampling.n == 4 && r.sampling.max_tokens == 9);
	batch_request_free(&r);
	good(CHAT(HI ",\"stop_token_ids\":[0,999],\"ignore_eos\":true,\"min_tokens\":3,\"max_tokens\":3,\"max_completion_tokens\":3,"
		  "\"stream\":false,\"user\":\"u\",\"seed\":null"), &r);
	CU_ASSERT_TRUE(r.n_stop_ids == 2 && r.stop_ids[1] == 999 && r.sampling.ignore_eos && r.sampling.min_tokens == 3);
	CU_ASSERT_EQUAL(r.sampling.seed, 42);
	batch_request_free(&r);
}

TEST(tools_formats_and_messages)
{
	struct batch_request r;
	good(CHAT(HI ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":\"auto\""), &r);
	CU_ASSERT_EQUAL(json_array_size(r.tools), 1);
	batch_request_free(&r);
	good(CHAT(HI ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"tool_choice\":\"none\""), &r);
	CU_ASSERT_PTR_NULL(r.tools);
	batch_request_free(&r);
	good(CHAT(HI ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}"), &r);
	CU_ASSERT_PTR_NOT_NULL(r.response_format);
	batch_request_free(&r);
	good(CHAT(HI ",\"response_format\":{\"type\":\"text\"},\"chat_template_kwargs\":{\"thinking\":false}"), &r);
	CU_ASSERT_PTR_NULL(r.response_format);
	CU_ASSERT_PTR_NOT_NULL(r.template_arguments);
	batch_request_free(&r);
	good(CHAT("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"},{\"type\":\"text\",\"text\":\"two\"}]},"
		  "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]}]"), &r);
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(json_array_get(r.messages, 0), "content")), "one\ntwo");
	batch_request_free(&r);
}

TEST(prompts_of_every_form)
{
	struct batch_request r;
	good(TEXT("\"prompt\":[1,2,999],\"logprobs\":5,\"best_of\":1"), &r);
	CU_ASSERT_EQUAL(r.kind, BATCH_COMPLETION);
	CU_ASSERT_TRUE(r.n_prompt_ids == 3 && r.prompt_ids[2] == 999 && !r.prompt);
	CU_ASSERT_TRUE(r.sampling.logprobs == 1 && r.sampling.top_logprobs == 5);
	batch_request_free(&r);
	good(TEXT("\"prompt\":[[4,5]],\"logprobs\":0"), &r);
	CU_ASSERT_TRUE(r.n_prompt_ids == 2 && r.prompt_ids[0] == 4 && r.sampling.logprobs == 1 && r.sampling.top_logprobs == 0);
	batch_request_free(&r);
	good("{\"prompt\":[\"a\\u0000b\"],\"max_tokens\":5}", &r);
	CU_ASSERT_EQUAL(r.kind, BATCH_PLAIN);
	CU_ASSERT_STRING_EQUAL(r.custom_id, "line-1");
	CU_ASSERT_TRUE(r.prompt_bytes == 3 && !memcmp(r.prompt, "a\0b", 3) && r.sampling.max_tokens == 5);
	batch_request_free(&r);
	good(" {\"prompt\":\"hi\",\"custom_id\":\"mine\",\"temperature\":2} ", &r);   /* blanks around are JSON */
	CU_ASSERT_STRING_EQUAL(r.custom_id, "mine");
	batch_request_free(&r);
}

struct bad { const char *text, *code, *says; size_t bytes; };

static const struct bad bad_lines[] = {
	{ "nonsense", "invalid_json", "line 1: is not valid JSON", 0 },
	{ "{\"custom_id\":\"a\"", "invalid_json", "not valid JSON", 0 },
	{ "{\"prompt\":\"a\",\"prompt\":\"b\"}", "invalid_json", "duplicate object key", 0 },
	{ "{\"prompt\":\"a\"} {}", "invalid_json", "not valid JSON", 0 },
	{ "", "empty_line", "line 1: is empty", 1 },
	{ " \t ", "empty_line", "is empty", 0 },
	{ "\r\n", "empty_line", "is empty", 0 },
	{ "\xef\xbb\xbf{\"prompt\":\"a\"}", "byte_order_mark", "byte order mark (EF BB BF)", 0 },
	{ "{\"prompt\":\"a\"}\r\n", "carriage_return", "ends in CR LF", 0 },
	{ "{\"prompt\":\"a\0b\"}", "binary", "a 0 byte at column 13", 16 },
	{ "\0\0\0\0", "binary", "a 0 byte at column 1", 4 },
	{ "{\"prompt\":\"a\x01\"}", "binary", "control character 0x01 at column 13", 0 },
	{ "\x7f" "ELF\x02\x01", "binary", "control character 0x02 at column 5", 0 },
	{ "{\"prompt\":\"a\xff\"}", "not_utf8", "the byte 0xff at column 13 is not UTF-8", 0 },
	{ "{\"prompt\":\"\xed\xa0\x80\"}", "not_utf8", "0xed", 0 },
	{ "[1]", "not_an_object", "must be a JSON object, found a list", 0 },
	{ "\"text\"", "invalid_json", "not valid JSON", 0 },
	{ "{}", "missing_custom_id", "has no custom_id", 0 },
	{ "{\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{" P "}}", "missing_custom_id", "has no custom_id", 0 },
	{ "{\"custom_id\":7,\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}", "invalid_custom_id", "found an integer", 0 },
	{ "{\"custom_id\":\"\",\"prompt\":\"a\"}", "invalid_custom_id", "an empty one", 0 },
	{ "{\"custom_id\":\"a\\u0000\",\"prompt\":\"a\"}", "invalid_custom_id", "a 0 byte in it", 0 },
	{ "{\"custom_id\":\"a\"}", "invalid_request", "must have custom_id, method, url and body, or a prompt", 0 },
	{ "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":{}}", "invalid_url", "\"/v1/embeddings\" is not known", 0 },
	{ "{\"custom_id\":\"a\",\"method\":\"POST\",\"body\":{}}", "invalid_url", "\"url\" must be a string, found nothing", 0 },
	{ "{\"custom_id\":\"a\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}", "invalid_method", "must be \"POST\", found \"GET\"", 0 },
	{ "{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":{}}", "invalid_method", "must be \"POST\", found nothing", 0 },
	{ "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":[]}", "invalid_body", "found a list", 0 },
	{ "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\"}", "invalid_body", "found nothing", 0 },
};

static const struct bad bad_requests[] = {   /* all "invalid_request" */
	{ CHAT(""), NULL, "\"messages\" is missing", 0 },
	{ TEXT(""), NULL, "\"prompt\" is missing", 0 },
	{ CHAT("\"messages\":7"), NULL, "\"messages\" must be a list, found an integer", 0 },
	{ CHAT("\"messages\":[]"), NULL, "\"messages\" is empty", 0 },
	{ CHAT("\"messages\":[7]"), NULL, "message 1 must be an object", 0 },
	{ CHAT("\"messages\":[{\"content\":\"a\"}]"), NULL, "message 1 has no role", 0 },
	{ CHAT("\"messages\":[{\"role\":\"boss\",\"content\":\"a\"}]"), NULL, "the role \"boss\"", 0 },
	{ CHAT("\"messages\":[{\"role\":\"user\"}]"), NULL, "\"content\" of message 1 must be a string, found nothing", 0 },
	{ CHAT("\"messages\":[{\"role\":\"user\",\"content\":3}]"), NULL, "found an integer", 0 },
	{ CHAT("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]"), NULL, "part 1 of message 1 is image_url", 0 },
	{ CHAT("\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":7}]"), NULL, "\"tool_calls\" of message 1", 0 },
	{ CHAT("\"prompt\":\"a\""), NULL, "\"prompt\" is no field of /v1/chat/completions", 0 },
	{ TEXT(HI), NULL, "\"messages\" is no field of /v1/completions", 0 },
	{ "{\"prompt\":\"a\",\"max_token\":5}", NULL, "\"max_token\" is not known; did you mean \"max_tokens\"?", 0 },
	{ TEXT("\"prompt\":\"\""), NULL, "\"prompt\" is empty", 0 },
	{ TEXT("\"prompt\":[]"), NULL, "\"prompt\" is empty", 0 },
	{ TEXT("\"prompt\":[\"a\",\"b\"]"), NULL, "holds 2 prompts", 0 },
	{ TEXT("\"prompt\":[1,1000]"), NULL, "the token id 1000, but ids are 0 to 999", 0 },
	{ TEXT("\"prompt\":[1,-1]"), NULL, "the token id -1", 0 },
	{ TEXT("\"prompt\":[1,\"a\"]"), NULL, "holds a string where a token id", 0 },
	{ TEXT("\"prompt\":{}"), NULL, "must be a string or a list of token ids, found an object", 0 },
	{ TEXT("\"prompt\":null"), NULL, "\"prompt\" is missing", 0 },
	{ CHAT("\"model\":7," HI), NULL, "\"model\" must be a string", 0 },
	{ TEXT(P ",\"stream\":true"), NULL, "\"stream\" is not supported", 0 },
	{ TEXT(P ",\"echo\":true"), NULL, "\"echo\" is not supported", 0 },
	{ TEXT(P ",\"suffix\":\"x\""), NULL, "\"suffix\" is not supported", 0 },
	{ TEXT(P ",\"best_of\":2"), NULL, "\"best_of\" is 2, but must be 1 to 1", 0 },
	{ TEXT(P ",\"logit_bias\":[]"), NULL, "\"logit_bias\" must be an object", 0 },
	{ TEXT(P ",\"logit_bias\":{\"x\":1}"), NULL, "holds \"x\" where a token id", 0 },
	{ TEXT(P ",\"logit_bias\":{\"1000\":1}"), NULL, "token id 1000", 0 },
	{ TEXT(P ",\"logit_bias\":{\"1\":101}"), NULL, "from -100 to 100", 0 },
	{ TEXT(P ",\"logit_bias\":{\"1\":\"a\"}"), NULL, "from -100 to 100", 0 },
	{ TEXT(P ",\"stop\":7"), NULL, "\"stop\" must be a string or a list of strings", 0 },
	{ TEXT(P ",\"stop\":[7]"), NULL, "\"stop\" must be a string or a list of strings", 0 },
	{ TEXT(P ",\"stop\":\"\""), NULL, "\"stop\" is empty", 0 },
	{ TEXT(P ",\"stop\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"), NULL, "at most 16", 0 },
	{ TEXT(P ",\"stop_token_ids\":\"a\""), NULL, "must be a list of token ids", 0 },
	{ TEXT(P ",\"stop_token_ids\":[1000]"), NULL, "token id 1000", 0 },
	{ TEXT(P ",\"logprobs\":true"), NULL, "\"logprobs\" must be an integer from 0 to 20", 0 },
	{ TEXT(P ",\"logprobs\":21"), NULL, "from 0 to 20", 0 },
	{ TEXT(P ",\"tools\":[]"), NULL, "\"tools\" is no field of /v1/completions", 0 },
	{ CHAT(HI ",\"logprobs\":3"), NULL, "\"logprobs\" must be true or false", 0 },
	{ CHAT(HI ",\"top_logprobs\":3"), NULL, "\"top_logprobs\" needs", 0 },
	{ CHAT(HI ",\"tools\":7"), NULL, "\"tools\" must be a list", 0 },
	{ CHAT(HI ",\"tools\":[{\"type\":\"retrieval\"}]"), NULL, "tool 1 must be", 0 },
	{ CHAT(HI ",\"tool_choice\":\"required\""), NULL, "cannot be forced", 0 },
	{ CHAT(HI ",\"response_format\":\"json\""), NULL, "\"response_format\" must be an object", 0 },
	{ CHAT(HI ",\"response_format\":{\"type\":\"xml\"}"), NULL, "\"text\", \"json_object\" or \"json_schema\"", 0 },
	{ CHAT(HI ",\"response_format\":{\"type\":\"json_schema\"}"), NULL, "{\"json_schema\": {\"schema\"", 0 },
	{ CHAT(HI ",\"chat_template_kwargs\":7"), NULL, "must be an object", 0 },
	{ CHAT(HI ",\"min_tokens\":200"), NULL, "\"min_tokens\" is 200, more than the 128", 0 },
	{ CHAT(HI ",\"max_tokens\":2,\"max_completion_tokens\":3"), NULL, "give one of them", 0 },
};

static void check_bad(const struct bad *b, const char *code)
{
	struct batch_request r;
	one(b->text, b->bytes ? b->bytes == 1 ? 0 : b->bytes : strlen(b->text), &r);
	int is = r.fault_code && !strcmp(r.fault_code, code) && strstr(r.fault, b->says) && !strncmp(r.fault, "line 1: ", 8);
	if (!is)
		fprintf(stderr, "%s: got %s \"%s\", want %s \"%s\"\n", b->text, r.fault_code ? r.fault_code : "none", r.fault, code, b->says);
	CU_ASSERT_TRUE(is);
	batch_request_free(&r);
}

TEST(every_kind_of_bad_line)
{
	struct batch_request r;
	for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
		if (bad_lines[i].bytes == 1) {   /* nothing but a newline */
			one("\n", 1, &r);
			CU_ASSERT_STRING_EQUAL(r.fault_code, "empty_line");
			batch_request_free(&r);
		} else {
			check_bad(&bad_lines[i], bad_lines[i].code);
		}
	}
	char text[1200];
	snprintf(text, sizeof text, "{\"custom_id\":\"%0*d\",\"prompt\":\"a\"}", 250, 1);
	good(text, &r);
	batch_request_free(&r);
	snprintf(text, sizeof text, "{\"custom_id\":\"%0*d\",\"prompt\":\"a\"}", 290, 1);   /* the limit here is 300 */
	struct bad too_long = { text, NULL, "has 319 bytes, at most 300 are allowed", 0 };
	check_bad(&too_long, "line_too_long");
	for (size_t i = 0; i < sizeof bad_requests / sizeof bad_requests[0]; i++)
		check_bad(&bad_requests[i], "invalid_request");
}

/* Every row with numbers, at its borders and past them, and with other types. */
TEST(every_range)
{
	struct test_dir d;
	struct batch_request r;
	char line[400];
	int more;
	test_dir_make(&d);
	for (int i = 0; i < n_batch_fields; i++) {
		const struct batch_field *f = &batch_fields[i];
		if ((f->type != FIELD_REAL && f->type != FIELD_INTEGER) || !strcmp(f->name, "top_logprobs"))
			continue;
		double step = f->type == FIELD_INTEGER ? f->max >= 0x1p53 ? 2 : 1 : 0.001;
		const struct { double value; int good; } tries[] = { { f->min, 1 }, { f->max, 1 }, { f->min - step, 0 }, { f->max + step, 0 } };
		for (int k = 0; k < 6; k++) {
			char number[64] = "\"1\"";
			if (k == 5)
				strcpy(number, f->type == FIELD_REAL ? "true" : "1.5");
			else if (k < 4)
				snprintf(number, sizeof number, "%.*f", f->type == FIELD_REAL ? 3 : 0, tries[k].value);
			snprintf(line, sizeof line, f->kinds & BATCH_CHAT ? CHAT(HI ",\"%s\":%s") : TEXT(P ",\"%s\":%s"), f->name, number);
			struct batch_input *in = open_text(&d, line, strlen(line), 0);
			CHECK_OK(batch_input_next(in, &r, &more));
			int is_good = k < 4 && tries[k].good && !(!strcmp(f->name, "min_tokens") && k == 1);
			if ((r.fault_code == NULL) != is_good)
				fprintf(stderr, "%s: %s\n", line, r.fault);
			CU_ASSERT_EQUAL(r.fault_code == NULL, is_good);
			if (r.fault_code)
				CU_ASSERT_PTR_NOT_NULL(strstr(r.fault, f->name));
			batch_request_free(&r);
			batch_input_close(in);
		}
	}
	test_dir_remove(&d);
}

TEST(the_rest_goes_on_and_ids_are_used_once)
{
	static const char text[] = "{\"custom_id\":\"a\",\"prompt\":\"1\"}\n"
				   "broken\n"
				   "{\"custom_id\":\"a\",\"prompt\":\"2\"}\n"
				   "\n"
				   "{\"custom_id\":\"b\",\"prompt\":7}\n"      /* its id counts all the same */
				   "{\"custom_id\":\"b\",\"prompt\":\"4\"}\n"
				   "{\"custom_id\":\"c\",\"prompt\":\"5\"}";
	static const char *const codes[] = { NULL, "invalid_json", "duplicate_custom_id", "empty_line", "invalid_request",
					     "duplicate_custom_id", NULL };
	struct test_dir d;
	struct batch_request r;
	int more = 1;
	test_dir_make(&d);
	struct batch_input *in = open_text(&d, text, sizeof text - 1, 0);
	for (uint64_t i = 0; i < 7; i++) {
		CHECK_OK(batch_input_next(in, &r, &more));
		CU_ASSERT_TRUE_FATAL(more);
		CU_ASSERT_EQUAL(r.line, i);
		CU_ASSERT_EQUAL(batch_input_lines(in), i + 1);
		CU_ASSERT_TRUE(codes[i] ? r.fault_code && !strcmp(codes[i], r.fault_code) : !r.fault_code);
		if (i == 2)
			CU_ASSERT_STRING_EQUAL(r.fault, "line 3: the custom_id \"a\" was used by an earlier line");
		CU_ASSERT_EQUAL(r.custom_id == NULL, i == 1 || i == 3);
		batch_request_free(&r);
	}
	CHECK_OK(batch_input_next(in, &r, &more));
	CU_ASSERT_FALSE(more);
	CHECK_OK(batch_input_next(in, &r, &more));
	CU_ASSERT_FALSE(more);
	batch_input_close(in);
	struct batch_input_config c = { .path = test_path(&d, "nothing") };
	CHECK_ERR(batch_input_open(&c, &in), IO, "nothing: cannot be opened");
	c.path = d.path;
	CHECK_OK(batch_input_open(&c, &in));
	CHECK_ERR(batch_input_next(in, &r, &more), IO, "cannot be read after line 0: Is a directory");
	batch_input_close(in);
	test_dir_remove(&d);
}

static uint64_t digest_of(const struct test_dir *d, const char *text, size_t max_line_bytes, uint64_t *lines)
{
	struct batch_request r;
	int more = 1;
	struct batch_input *in = open_text(d, text, strlen(text), max_line_bytes);
	for (;;) {
		CHECK_OK(batch_input_next(in, &r, &more));
		if (!more)
			break;
		batch_request_free(&r);
	}
	uint64_t digest = batch_input_digest(in), skimmed, n;
	*lines = batch_input_lines(in);
	batch_input_close(in);
	struct batch_input_config c = { .path = test_path(d, "in.jsonl") };
	CHECK_OK(batch_input_skim(&c, UINT64_MAX, &n, &skimmed));
	CU_ASSERT_TRUE(n == *lines && skimmed == digest);
	return digest;
}

TEST(the_digest_is_of_the_lines)
{
	struct test_dir d;
	uint64_t lines;
	test_dir_make(&d);
	uint64_t digest = digest_of(&d, "abc\nde\n", 0, &lines);
	CU_ASSERT_EQUAL(lines, 2);
	CU_ASSERT_EQUAL(digest_of(&d, "abc\nde", 0, &lines), digest);
	CU_ASSERT_EQUAL(digest_of(&d, "abc\nde", 1, &lines), digest);   /* also of lines that were too long */
	CU_ASSERT_NOT_EQUAL(digest_of(&d, "abc\ndf\n", 0, &lines), digest);
	CU_ASSERT_NOT_EQUAL(digest_of(&d, "ab\ncde\n", 0, &lines), digest);
	CU_ASSERT_NOT_EQUAL(digest_of(&d, "abc\nde\n\n", 0, &lines), digest);
	CU_ASSERT_EQUAL(lines, 3);
	uint64_t first = digest_of(&d, "abc\n", 0, &lines), skimmed;
	struct batch_input_config c = { .path = test_write(&d, "in.jsonl", "abc\nde\n", 7) };
	CHECK_OK(batch_input_skim(&c, 1, &lines, &skimmed));
	CU_ASSERT_TRUE(lines == 1 && skimmed == first);
	test_dir_remove(&d);
}

TEST(memory_that_runs_out_is_an_error_of_the_call)
{
	struct test_dir d;
	struct batch_request r;
	int more, failed = 0;
	test_dir_make(&d);
	for (int nth = 1; nth < 6; nth++) {
		struct batch_input *in = open_text(&d, TEXT("\"prompt\":[1],\"stop\":\"x\",\"stop_token_ids\":[1]"),
						   strlen(TEXT("\"prompt\":[1],\"stop\":\"x\",\"stop_token_ids\":[1]")), 0);
		mem_fail_at(nth);
		enum err e = batch_input_next(in, &r, &more);
		mem_fail_at(0);
		failed += e == ERR_MEMORY;
		CU_ASSERT_TRUE(e == ERR_MEMORY || (!e && !r.fault_code));
		if (!e)
			batch_request_free(&r);
		batch_input_close(in);
	}
	CU_ASSERT_EQUAL(failed, 5);   /* the line, the ids, three lists */
	test_dir_remove(&d);
}

static void put_all(int fd, const char *text, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = write(fd, text + done, bytes - done);
		if (n <= 0)
			_exit(1);
		done += (size_t)n;
	}
}

/* A million lines through a pipe as standard input, one in a thousand with an id that was there; and one of 200 MB. */
static void feed(int fd)
{
	static char block[1 << 20];
	size_t used = 0;
	for (int i = 0; i < 1000000; i++) {
		used += (size_t)snprintf(block + used, 300, "{\"custom_id\":\"id %d\",\"method\":\"POST\",\"url\":\"/v1/completions\","
					 "\"body\":{\"model\":\"m\",\"prompt\":\"number %d\",\"max_tokens\":%d}}\n",
					 i % 1000 == 999 ? i / 2000 * 1000 : i, i, i % 500 + 1);
		if (used > sizeof block - 400) {
			put_all(fd, block, used);
			used = 0;
		}
	}
	put_all(fd, block, used);
	memset(block, 'x', sizeof block);
	for (int i = 0; i < 200; i++)
		put_all(fd, block, sizeof block);
}

TEST(a_million_lines_in_flat_memory)
{
	int ends[2], more = 1, saved = dup(0), status;
	uint64_t n_bad = 0, n = 0;
	struct batch_input_config c = { .path = "-", .defaults = defaults };
	struct batch_input *in;
	struct batch_request r = { 0 };
	CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
	pid_t pid = fork();
	if (!pid) {
		close(ends[0]);
		feed(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	dup2(ends[0], 0);
	close(ends[0]);
	long before = peak_kib();
	CHECK_OK(batch_input_open(&c, &in));
	for (; more; n++) {
		CHECK_OK(batch_input_next(in, &r, &more));
		if (!more)
			break;
		n_bad += r.fault_code != NULL;
		if (n == 1000000)
			CU_ASSERT_STRING_EQUAL(r.fault_code, "line_too_long");
		batch_request_free(&r);
	}
	batch_input_close(in);
	dup2(saved, 0);
	close(saved);
	waitpid(pid, &status, 0);
	long grown = peak_kib() - before;
	printf(" (%ld KiB)", grown);
	CU_ASSERT_EQUAL(n, 1000001);
	CU_ASSERT_EQUAL(n_bad, 1001);   /* 1000 ids and the long line */
#ifndef __SANITIZE_ADDRESS__
	CU_ASSERT_TRUE(grown < 80 << 10);   /* ids: 32 MiB, and 16 more while they move; one line's limit: 16 MiB */
#endif
}

/* Whoever writes into a pipe may take his time: others are not kept waiting by it. */
TEST(a_silent_pipe_is_not_ready)
{
	static const char lines[] = "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n";
	char path[32];
	int ends[2], more;
	struct batch_input *in;
	struct batch_request r;
	CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
	snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
	CHECK_OK(batch_input_open(&(struct batch_input_config){ .path = path, .defaults = defaults }, &in));
	CU_ASSERT_FALSE(batch_input_ready(in));
	CU_ASSERT_EQUAL(write(ends[1], lines, sizeof lines - 1), sizeof lines - 1);
	for (int i = 0; i < 2; i++) {
		CU_ASSERT_TRUE(batch_input_ready(in));
		CHECK_OK(batch_input_next(in, &r, &more));
		CU_ASSERT_TRUE(more && !r.fault_code);
		batch_request_free(&r);
	}
	CU_ASSERT_FALSE(batch_input_ready(in));
	close(ends[1]);
	CU_ASSERT_TRUE(batch_input_ready(in));
	CHECK_OK(batch_input_next(in, &r, &more));
	CU_ASSERT_FALSE(more);
	batch_input_close(in);
	close(ends[0]);
}

TEST_MAIN("batch_input", CASE(a_chat_with_everything), CASE(tools_formats_and_messages), CASE(prompts_of_every_form),
	  CASE(every_kind_of_bad_line), CASE(every_range), CASE(the_rest_goes_on_and_ids_are_used_once), CASE(the_digest_is_of_the_lines),
	  CASE(memory_that_runs_out_is_an_error_of_the_call), CASE(a_silent_pipe_is_not_ready),
	  CASE(a_million_lines_in_flat_memory))
