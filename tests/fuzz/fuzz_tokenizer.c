/* tokenizer.json from anywhere: it is opened or refused, and what was opened takes a text of many kinds, and shows it again. */
#include "runtime/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char text[] = "Hello, y'all!  12345 \xe6\x88\x91\xe2\x96\x81 e\xcc\x81\xf0\x9f\x98\x80\n\n <s> a</s>\xff\xf0\x9f ";
	struct tokenizer *t;
	if (tokenizer_open_json("fuzz.json", (const char *)data, size, &t))
		return 0;
	for (int flags = 0; flags <= (TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL); flags++) {
		struct tokens ids = { 0 };
		struct bytes out = { 0 };
		struct detokenizer d = { 0 };
		enum err e = tokenizer_encode(t, text, sizeof text - 1, flags, &ids);
		for (int64_t i = 0; i < ids.n && !e; i++)
			e = detokenizer_put(&d, t, ids.ids[i], &out);
		detokenizer_end(&d, &out);
		tokens_free(&ids);
		bytes_free(&out);
	}
	for (int32_t id = -1; id <= 300; id++) {
		struct bytes piece = { 0 };
		(void)tokenizer_piece(t, id, &piece);
		(void)tokenizer_is_control(t, id);
		bytes_free(&piece);
	}
	tokenizer_close(t);
	return 0;
}
