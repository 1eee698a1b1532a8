/* labels: unit
 * Text to ids and back. The bundled model's prompts and texts are those of its expected.json (by transformers). */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "runtime/tokenizer.h"
#include "tests/test.h"
#include "tests/tokenizer_golden.h"

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

TEST(hard_strings_give_the_ids_and_texts_of_the_tokenizers_library)
{
	static const char *const names[] = { "llama3", "qwen2", "smollm", "cased", "falcon", "behaviors", "llama2", "metaspace",
					     "unknown", "fused" };
	struct tokenizer *plain = open_json_of(bundled());
	check_golden(plain, plain, "jargon-moe");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char dir[1024];
		snprintf(dir, sizeof dir, GOLDEN "/%s", names[i]);
		struct tokenizer *t = open_json_of(dir);
		check_golden(t, plain, names[i]);
		tokenizer_close(t);
	}
	tokenizer_close(plain);
}

TEST_MAIN("tokenizer", CASE(the_bundled_model_reads_and_writes_as_transformers_does),
	  CASE(hard_strings_give_the_ids_and_texts_of_the_tokenizers_library))
