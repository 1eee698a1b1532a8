/* SmolLM2-135M-Instruct for tests: the file, its prompts and continuations (tests/golden/smollm2), and runs compared with
 * one rank's. */
#ifndef SHARDRUN_TESTS_SMOLLM2_H
#define SHARDRUN_TESTS_SMOLLM2_H

#include "runtime/tokenizer.h"
#include "tests/golden_logits.h"
#include "tests/test.h"

#include <sys/wait.h>

#define SMOLLM2 SOURCE_DIR "/tests/golden/smollm2"

enum { SMOLLM2_VOCAB = 49152, SMOLLM2_STRIDE = 37, SMOLLM2_GREEDY = 16, SMOLLM2_LONG = 24, SMOLLM2_NEW = 6 };

static char smollm2_path[1024];
static json_t *smollm2_golden;
static struct bits_prompt smollm2_prompts[2];
static int32_t smollm2_greedy[2][SMOLLM2_GREEDY];

/* Gives 0, or 77 when the file cannot be had, or 1. */
static inline int smollm2_open(void)
{
	FILE *f = popen("sh '" SOURCE_DIR "/tests/download.sh' smollm2 '" SOURCE_DIR "/build/cache'", "r");
	if (!f || !fgets(smollm2_path, sizeof smollm2_path, f))
		smollm2_path[0] = '\0';
	smollm2_path[strcspn(smollm2_path, "\n")] = '\0';
	int status = f ? pclose(f) : -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("skipped: tests/download.sh has no SmolLM2 (its reason is above)\n");
		return 77;
	}
	if (status || !smollm2_path[0])
		return 1;
	if (json_parse_file(SMOLLM2 "/golden.json", 1 << 20, ERR_IO, &smollm2_golden)) {
		fprintf(stderr, "%s\n", err_sentence());
		return 1;
	}
	for (size_t i = 0; i < 2; i++) {
		json_t *p = json_array_get(json_object_get(smollm2_golden, "prompts"), i);
		struct bits_prompt greedy;
		golden_ids(json_object_get(p, "ids"), &smollm2_prompts[i]);
		golden_ids(json_object_get(p, "greedy"), &greedy);
		memcpy(smollm2_greedy[i], greedy.ids, sizeof smollm2_greedy[i]);
	}
	return 0;
}

static inline const char *smollm2_string(int prompt, const char *key)
{
	json_t *p = json_array_get(json_object_get(smollm2_golden, "prompts"), (size_t)prompt);
	return json_string_value(json_object_get(p, key));
}

/* Positions whose best token is not transformers' first. logits (prompt tokens, V). */
static inline int smollm2_top_misses(size_t prompt, const float *logits)
{
	json_t *top = json_object_get(json_array_get(json_object_get(smollm2_golden, "prompts"), prompt), "top5");
	int misses = 0;
	for (int at = 0; at < smollm2_prompts[prompt].n; at++) {
		const float *row = logits + (int64_t)at * SMOLLM2_VOCAB;
		int64_t want = json_integer_value(json_array_get(json_array_get(top, (size_t)at), 0));
		for (int64_t v = 0; v < SMOLLM2_VOCAB; v++)
			if (row[v] > row[want]) {
				misses++;
				break;
			}
	}
	return misses;
}

/* Both prompts, cut to SMOLLM2_LONG tokens. */
static inline struct bits_run smollm2_base(void)
{
	static struct bits_prompt cut[2];
	struct bits_run b = { .model = smollm2_path, .ranks = 1, .threads = 1, .new_tokens = SMOLLM2_NEW, .prompts = cut,
			      .n_prompts = 2, .sequences = 1 };
	b.layout = (struct layout){ .tp = 1, .pp = 1, .dp = 1 };
	memcpy(cut, smollm2_prompts, sizeof cut);
	cut[1].n = SMOLLM2_LONG;
	return b;
}

/* Runs a layout and compares with one rank, one thread, prompts alone, whole prefill. Gives 0 when the bits and the bytes
 * read are right. */
static inline int smollm2_differs(int tp, int pp, int threads, int step_tokens, int together)
{
	static struct bits_result one;
	struct bits_run b = smollm2_base();
	struct bits_result r;
	if (!one.n_tokens[0] && bits_run(&b, &one)) {
		fprintf(stderr, "one rank: %s\n", err_sentence());
		return 1;
	}
	b.layout = (struct layout){ .tp = tp, .pp = pp, .dp = 1 };
	b.ranks = tp * pp;
	b.threads = threads;
	b.step_tokens = step_tokens;
	b.sequences = together ? 2 : 1;
	enum err e = bits_run(&b, &r);
	const char *what = e ? err_sentence() : r.uneven_reads ? "bytes read" : r.digest[0] == r.digest[1] ? "one digest for two" :
			   memcmp(r.digest, one.digest, sizeof r.digest) || memcmp(r.tokens, one.tokens, sizeof r.tokens) ? "bits" :
			   NULL;
	if (what)
		fprintf(stderr, "tp %d pp %d threads %d step %d: %s\n", tp, pp, threads, step_tokens, what);
	return what != NULL;
}

#define SMOLLM2_MAIN(suite, ...)                                                                \
	int main(int argc, char **argv)                                                         \
	{                                                                                       \
		static const struct test_case cases[] = { __VA_ARGS__ };                        \
		int status = smollm2_open();                                                    \
		if (!status)                                                                    \
			status = test_run(suite, cases, (int)(sizeof cases / sizeof cases[0]), argv + (argc > 0)); \
		json_decref(smollm2_golden);                                                    \
		return status;                                                                  \
	}

#endif
