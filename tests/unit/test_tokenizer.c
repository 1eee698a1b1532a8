/* labels: unit
 * Text to ids and back. The bundled model's prompts and texts are those of its expected.json (by transformers). */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "runtime/tokenizer.h"
#include "tests/test.h"

static const char *bundled(void)
{
	static const char *const places[] = { SOURCE_DIR "/configs/models/jargon-moe", SOURCE_DIR "/../shared/models/jargon-moe" };
	return file_is_directory(places[0]) ? places[0] : places[1];
}

static int same_ids(const struct tokens *got, json_t *want)
{
	if ((size_t)got->n != json_array_size(want))
		return 0;
	for (int64_t i = 0; i < got->n; i++)
		if (json_integer_value(json_array_get(want, (size_t)i)) != got->ids[i])
			return 0;
	return 1;
}

TEST(the_bundled_model_reads_and_writes_as_transformers_does)
{
	char path[1024];
	struct tokenizer *t;
	json_t *list, *item;
	size_t i, k;
	CHECK_OK(file_join(bundled(), "expected.json", path, sizeof path));
	CHECK_OK(json_parse_file(path, 1 << 20, ERR_MODEL, &list));
	CHECK_OK(tokenizer_open_directory(bundled(), &t));
	CU_ASSERT_EQUAL(tokenizer_n_tokens(t), 2048);
	CU_ASSERT_TRUE(json_array_size(list) >= 10);
	json_array_foreach(list, i, item) {
		const char *prompt = json_string_value(json_object_get(item, "prompt"));
		struct tokens ids = { 0 };
		struct bytes text = { 0 };
		struct detokenizer d = { 0 };
		CHECK_OK(tokenizer_encode(t, prompt, strlen(prompt), TOKENIZE_ADD_SPECIAL, &ids));
		CU_ASSERT_TRUE(same_ids(&ids, json_object_get(item, "ids")));
		json_t *greedy = json_object_get(item, "greedy"), *id;
		json_array_foreach(greedy, k, id) {
			if (tokenizer_is_control(t, (int32_t)json_integer_value(id)))   /* their text ends at the first one */
				break;
			CHECK_OK(detokenizer_put(&d, t, (int32_t)json_integer_value(id), &text));
		}
		detokenizer_end(&d, &text);
		CU_ASSERT_STRING_EQUAL(bytes_text(&text), json_string_value(json_object_get(item, "text")));
		bytes_free(&text);
		tokens_free(&ids);
	}
	tokenizer_close(t);
	json_decref(list);
}

TEST_MAIN("tokenizer", CASE(the_bundled_model_reads_and_writes_as_transformers_does))
