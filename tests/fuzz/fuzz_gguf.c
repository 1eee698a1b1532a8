/* A GGUF file: its metadata, asked for keys of every type, and its tensors. */
#include "runtime/gguf.h"
#include "tests/fuzz/fuzz_weights.h"

/* Touches every byte that a value claims to have; the sum keeps the reads. */
static unsigned sum_of(struct gguf_string s)
{
	unsigned sum = 0;
	for (uint64_t i = 0; i < s.bytes; i++)
		sum += (unsigned char)s.text[i];
	return sum;
}

static void ask(const struct gguf *g, const char *key)
{
	static volatile double sink;
	const struct gguf_string *strings;
	struct gguf_string s;
	const int32_t *ints;
	const float *reals;
	int64_t i;
	uint64_t n;
	double x;
	int yes;
	if (!gguf_int(g, key, -5, INT64_MAX, &i))
		FUZZ_CHECK(i >= -5);
	if (!gguf_bool_or(g, key, 0, &yes))
		FUZZ_CHECK(yes == 0 || yes == 1);
	if (!gguf_real(g, key, &x))
		sink = x;
	if (!gguf_string(g, key, &s))
		sink = sum_of(s);
	if (!gguf_strings(g, key, &strings, &n))
		for (uint64_t k = 0; k < n; k++)
			sink = sum_of(strings[k]);
	if (!gguf_ints(g, key, &ints, &n))
		for (uint64_t k = 0; k < n; k++)
			sink = ints[k];
	if (!gguf_reals(g, key, &reals, &n))
		for (uint64_t k = 0; k < n; k++)
			sink = (double)reals[k];
	(void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const keys[] = { "general.architecture", "general.alignment", "t.u8", "t.i64", "t.u64", "t.f64",
		"t.bool", "t.strings", "t.ints", "t.reals", "t.bools", "tokenizer.ggml.tokens", "tokenizer.ggml.scores",
		"tokenizer.ggml.token_type" };
	struct gguf *g;
	enum err e = gguf_open(fuzz_file(data, size), &g);
	FUZZ_CHECK_ERROR(e);
	if (e)
		return 0;
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		ask(g, keys[i]);
	gguf_close(g);
	fuzz_weights(&weights_gguf_format, data, size);
	return 0;
}
