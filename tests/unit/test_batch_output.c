/* Result lines, byte for byte. The shapes are those of OpenAI's API reference (batch output, chat completion and completion
 * objects). */
#include "launcher/batch_output.h"
#include "tests/test.h"

#include <math.h>

static const struct batch_output batch = { .model = "m", .created = 1700000000, .fingerprint = 7 };
#define T(text) { text, sizeof(text) - 1 }

static json_t *line_of(const struct batch_request *r, const struct batch_choice *choices, int64_t n, struct bytes *out)
{
	json_error_t fault;
	struct batch_usage usage = { 3, 5 };
	bytes_clear(out);
	CHECK_OK(batch_output_answer(&batch, r, choices, n, &usage, out));
	CU_ASSERT_PTR_NULL(memchr(out->data, '\n', out->size));
	return json_loadb(bytes_text(out), out->size, JSON_REJECT_DUPLICATES, &fault);
}

/* With its ids, which follow from a hash, cut out of the text. */
static void check_text(const struct bytes *out, const char *want)
{
	char text[4000];
	size_t n = 0;
	for (size_t i = 0; i < out->size && n < sizeof text - 1;) {
		size_t hex = strspn((const char *)out->data + i, "0123456789abcdef");
		if (hex == 32) {
			i += 32;
			text[n++] = '#';
			continue;
		}
		hex = hex ? hex : 1;
		memcpy(text + n, out->data + i, hex);
		n += hex;
		i += hex;
	}
	text[n] = '\0';
	CU_ASSERT_STRING_EQUAL(text, want);
	if (strcmp(text, want))
		fprintf(stderr, "got  %s\nwant %s\n", text, want);
}

TEST(a_chat_answer)
{
	struct bytes out = { 0 };
	struct batch_request r = { .line = 4, .kind = BATCH_CHAT, .custom_id = "a \"b\"" };
	struct batch_choice c[2] = { { .text = T("Hi\n\xc3\xa9"), .finish_reason = "stop" }, { .text = T("x"), .finish_reason = "length" } };
	json_decref(line_of(&r, c, 2, &out));
	check_text(&out, "{\"id\":\"batch_req_#\",\"custom_id\":\"a \\\"b\\\"\",\"response\":{\"status_code\":200,\"request_id\":\"req_#\","
			 "\"body\":{\"id\":\"chatcmpl-#\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"m\",\"choices\":["
			 "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hi\\n\xc3\xa9\"},\"logprobs\":null,\"finish_reason\":\"stop\"},"
			 "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"x\"},\"logprobs\":null,\"finish_reason\":\"length\"}],"
			 "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5,\"total_tokens\":8}}},\"error\":null}");
	bytes_free(&out);
}

TEST(a_completion_with_logprobs)
{
	struct bytes out = { 0 };
	struct batch_request r = { .kind = BATCH_PLAIN, .custom_id = "line-1" };
	struct batch_best best[] = { { T("\xc3\xa9"), -0.25 }, { T("\xc3"), -2 }, { T("\xff"), -3 } };   /* the last two look alike */
	struct batch_logprob l[] = { { T("\xc3\xa9"), -0.25, best, 3 }, { T("b"), -INFINITY, NULL, 0 }, { T("c"), -1, NULL, 0 } };
	struct batch_choice c = { .text = T("\xc3\xa9" "bc"), .finish_reason = "length", .logprobs = l, .n_logprobs = 3 };
	json_decref(line_of(&r, &c, 1, &out));
	check_text(&out, "{\"id\":\"batch_req_#\",\"custom_id\":\"line-1\",\"response\":{\"status_code\":200,\"request_id\":\"req_#\","
			 "\"body\":{\"id\":\"cmpl-#\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"m\",\"choices\":["
			 "{\"index\":0,\"text\":\"\xc3\xa9" "bc\",\"logprobs\":{\"tokens\":[\"\xc3\xa9\",\"b\",\"c\"],"
			 "\"token_logprobs\":[-0.25,-9999.0,-1.0],\"top_logprobs\":[{\"\xc3\xa9\":-0.25,\"\xef\xbf\xbd\":-2.0},{},{}],"
			 "\"text_offset\":[0,1,2]},\"finish_reason\":\"length\"}],"
			 "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5,\"total_tokens\":8}}},\"error\":null}");
	bytes_free(&out);
}

TEST(chat_logprobs_and_tool_calls)
{
	struct bytes out = { 0 };
	struct batch_request r = { .kind = BATCH_CHAT, .custom_id = "a" };
	struct batch_best best[] = { { T("\xff"), -0.5 } };
	struct batch_logprob l[] = { { T("\xff"), -0.5, best, 1 } };
	json_t *calls = json_pack("[{s:s}]", "id", "call_1");
	struct batch_choice c = { .text = T(""), .finish_reason = "tool_calls", .logprobs = l, .n_logprobs = 1, .tool_calls = calls };
	json_t *line = line_of(&r, &c, 1, &out), *body = json_object_get(json_object_get(line, "response"), "body");
	json_t *choice = json_array_get(json_object_get(body, "choices"), 0), *message = json_object_get(choice, "message");
	CU_ASSERT_TRUE(json_is_null(json_object_get(message, "content")));
	CU_ASSERT_TRUE(json_equal(json_object_get(message, "tool_calls"), calls));
	json_t *token = json_array_get(json_object_get(json_object_get(choice, "logprobs"), "content"), 0);
	CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(token, "token")), "\xef\xbf\xbd");
	CU_ASSERT_EQUAL(json_integer_value(json_array_get(json_object_get(token, "bytes"), 0)), 255);
	CU_ASSERT_EQUAL(json_real_value(json_object_get(token, "logprob")), -0.5);
	CU_ASSERT_EQUAL(json_array_size(json_object_get(token, "top_logprobs")), 1);
	json_decref(line);
	json_decref(calls);
	bytes_free(&out);
}

TEST(faults)
{
	struct bytes out = { 0 };
	CHECK_OK(batch_output_fault(&batch, 16, NULL, "invalid_json", "line 17: \xff is bad", &out));
	check_text(&out, "{\"id\":\"batch_req_#\",\"custom_id\":null,\"response\":null,\"error\":{\"code\":\"invalid_json\","
			 "\"message\":\"line 17: \xef\xbf\xbd is bad\",\"line\":17}}");
	bytes_clear(&out);
	CHECK_OK(batch_output_fault(&batch, 0, "x", "duplicate_custom_id", "again", &out));
	CU_ASSERT_PTR_NOT_NULL(strstr(bytes_text(&out), "\"custom_id\":\"x\""));
	bytes_free(&out);
}

static void id_of(const struct batch_output *o, uint64_t line, const char *custom_id, char room[64])
{
	struct bytes out = { 0 };
	CHECK_OK(batch_output_fault(o, line, custom_id, "c", "m", &out));
	snprintf(room, 64, "%.49s", bytes_text(&out));
	bytes_free(&out);
}

/* The same in every run of a batch; different for lines, ids and batches. */
TEST(ids_follow_from_the_line)
{
	struct batch_output other = batch, later = batch;
	char ids[5][64];
	other.fingerprint = 8;
	later.created = 5;
	id_of(&batch, 1, "a", ids[0]);
	id_of(&batch, 2, "a", ids[1]);
	id_of(&batch, 1, "b", ids[2]);
	id_of(&other, 1, "a", ids[3]);
	id_of(&batch, 1, NULL, ids[4]);
	for (int i = 0; i < 5; i++)
		for (int k = 0; k < i; k++)
			CU_ASSERT_STRING_NOT_EQUAL(ids[i], ids[k]);
	id_of(&later, 1, "a", ids[1]);
	CU_ASSERT_STRING_EQUAL(ids[0], ids[1]);
}

TEST_MAIN("batch_output", CASE(a_chat_answer), CASE(a_completion_with_logprobs), CASE(chat_logprobs_and_tool_calls), CASE(faults),
	  CASE(ids_follow_from_the_line))
