/* A JSON schema from anywhere: it is refused, or it becomes a grammar of a bounded size, in which a document that is written at random can
 * be ended, and then parses. */
#include "runtime/json_schema.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_BYTES = 64 << 20, RANDOM_BYTES = 300, MOST_TEXT = 1 << 16 };

/* A byte that may come: one that ends something once the text is long, else any. -1: none. */
static int pick(struct matcher *m, size_t written, uint32_t *random)
{
	static const char ends[] = "}]\"";
	struct grammar_place to[GRAMMAR_PLACES];
	uint32_t frames = m->n_frames;
	int found = -1, n = 0;
	for (int b = 0; b < 256; b++) {
		int got = matcher_step(m, m->places, m->n_places, (unsigned char)b, to);
		FUZZ_CHECK(got >= 0);
		m->n_frames = frames;
		*random = *random * 1664525 + 1013904223;
		int is_end = b == ends[0] || b == ends[1] || b == ends[2], weight = is_end && written > RANDOM_BYTES ? 200 : 1;
		if (got && (n += weight, (*random >> 8) % (uint32_t)n < (uint32_t)weight))
			found = b;
	}
	return found;
}

static void write_one(const struct grammar *g, uint32_t random)
{
	static char text[MOST_TEXT];
	struct matcher m;
	size_t n = 0;
	FUZZ_CHECK(!matcher_begin(&m, g));
	while (n < MOST_TEXT && matcher_may_go_on(&m) && !(n > RANDOM_BYTES && matcher_may_end(&m))) {
		int good, b = pick(&m, n, &random);
		FUZZ_CHECK(b >= 0 || matcher_may_end(&m));
		if (b < 0)
			break;
		text[n++] = (char)b;
		FUZZ_CHECK(!matcher_read(&m, &text[n - 1], 1, &good) && good);
	}
	if (n < MOST_TEXT) {
		FUZZ_CHECK(matcher_may_end(&m));
		json_t *v = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		FUZZ_CHECK(v != NULL);
		json_decref(v);
	}
	matcher_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct grammar *g;
	json_t *s = json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (!s)
		return 0;
	enum err e = json_schema_compile(s, &g);
	FUZZ_CHECK_ERROR(e);
	if (!e) {
		FUZZ_CHECK(grammar_bytes(g) < MOST_BYTES);
		write_one(g, (uint32_t)size);
		grammar_free(g);
	}
	json_decref(s);
	return 0;
}
