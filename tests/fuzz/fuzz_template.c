/* A chat template from anywhere: it is refused, or it renders a request, or says why not; what it renders is UTF-8, and its
 * runs of foreign text lie in it in order. */
#include "runtime/characters.h"
#include "runtime/template.h"
#include "tests/fuzz/fuzz.h"

static const char request[] =
	"{\"messages\": [{\"role\": \"system\", \"content\": \"be \\u00fcseful\"}, {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"hi\"}]},"
	"{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true]}}}]}],"
	"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}],"
	"\"variables\": {\"s\": \"Hello, World\", \"n\": 7, \"list\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": [{\"k\": \"v\"}]}, \"words\": [\"b\", \"A\"]}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct template *t;
	struct template_result r;
	json_t *j = json_loads(request, 0, NULL);
	FUZZ_CHECK(j != NULL);
	enum err e = template_parse("fuzz", (const char *)data, size, &t);
	FUZZ_CHECK_ERROR(e);
	if (!e) {
		struct template_input in = { .messages = json_object_get(j, "messages"), .tools = json_object_get(j, "tools"),
					     .variables = json_object_get(j, "variables"), .add_generation_prompt = 1,
					     .max_memory_bytes = 16 << 20, .max_steps = 200000 };
		e = template_render(t, &in, &r);
		FUZZ_CHECK_ERROR(e);
		if (!e) {
			size_t done = 0;
			FUZZ_CHECK(utf8_valid(bytes_text(&r.text), r.text.size));
			for (int64_t i = 0; i < r.n_input; done = r.input[i++].end)
				FUZZ_CHECK((!i || r.input[i].begin > done) && r.input[i].begin < r.input[i].end && r.input[i].end <= r.text.size);
			template_result_free(&r);
		}
		template_free(t);
	}
	json_decref(j);
	return 0;
}
