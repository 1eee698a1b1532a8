/* Batch files from anyone: every line gives a request within its ranges or a sentence with its number, and each becomes one
 * line of JSON. */
#include "launcher/batch_input.h"
#include "launcher/batch_output.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_request(const struct batch_request *r)
{
	const struct batch_sampling *s = &r->sampling;
	FUZZ_CHECK(r->custom_id && *r->custom_id && (r->kind == BATCH_CHAT ? r->messages != NULL : r->prompt || r->prompt_ids));
	FUZZ_CHECK(s->temperature >= 0 && s->temperature <= 2 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
	FUZZ_CHECK(s->top_k >= 0 && s->n >= 1 && s->n <= 128 && s->top_logprobs >= 0 && s->top_logprobs <= 20);
	FUZZ_CHECK(s->min_tokens >= 0 && s->min_tokens <= s->max_tokens && s->max_tokens <= 16777216);
	for (int64_t i = 0; i < r->n_prompt_ids; i++)
		FUZZ_CHECK(r->prompt_ids[i] >= 0 && r->prompt_ids[i] < 100);
	for (int64_t i = 0; i < r->n_stops; i++)
		FUZZ_CHECK(*r->stops[i]);
	for (int64_t i = 0; i < r->n_biases; i++)
		FUZZ_CHECK(r->biases[i].token >= 0 && r->biases[i].token < 100 && r->biases[i].bias >= -100 && r->biases[i].bias <= 100);
}

static void check_line(const struct batch_request *r, struct bytes *out)
{
	static const struct batch_output batch = { .model = "m" };
	struct batch_choice choice = { .text = { r->prompt, r->prompt_bytes }, .finish_reason = "stop" };
	struct batch_usage usage = { 1, 2 };
	char begins[40];
	json_error_t fault;
	bytes_clear(out);
	if (r->fault_code) {
		snprintf(begins, sizeof begins, "line %llu: ", (unsigned long long)r->line + 1);
		FUZZ_CHECK(!strncmp(r->fault, begins, strlen(begins)) && strlen(r->fault) > strlen(begins));
		FUZZ_CHECK(!batch_output_fault(&batch, r->line, r->custom_id, r->fault_code, r->fault, out));
	} else {
		check_request(r);
		FUZZ_CHECK(!batch_output_answer(&batch, r, &choice, 1, &usage, out));
	}
	json_t *line = json_loadb(bytes_text(out), out->size, JSON_ALLOW_NUL, &fault);
	FUZZ_CHECK(json_is_object(line) && !memchr(out->data, '\n', out->size));
	json_decref(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct batch_input_config c = { .path = fuzz_file(data, size), .max_line_bytes = 5000, .n_vocab = 100,
					.defaults = { .top_p = 1, .repetition_penalty = 1, .n = 1, .max_tokens = 8 } };
	struct batch_input *in;
	struct batch_request r;
	struct bytes out = { 0 };
	uint64_t lines, digest;
	int more = 1;
	FUZZ_CHECK(!batch_input_open(&c, &in));
	for (;;) {
		FUZZ_CHECK(!batch_input_next(in, &r, &more));
		if (!more)
			break;
		check_line(&r, &out);
		batch_request_free(&r);
	}
	FUZZ_CHECK(!batch_input_skim(&c, UINT64_MAX, &lines, &digest));
	FUZZ_CHECK(lines == batch_input_lines(in) && digest == batch_input_digest(in));
	batch_input_close(in);
	bytes_free(&out);
	return 0;
}
