/* labels: golden
 * timeout: 400
 * Real models' chat templates (fetched by tests/download.sh; skipped, with the reason, when that is not possible) give what
 * Python's jinja2 gives, byte for byte, or fail where it raises: tests/golden/templates/models.json, made by
 * tests/golden/make_templates.py. With arguments: prints what template NAME gives for conversation N. */
#include "runtime/template.h"

#include "base/file.h"
#include "tests/test.h"

#include <inttypes.h>
#include <sys/wait.h>
#include <time.h>

#define GOLDEN SOURCE_DIR "/tests/golden/templates/models.json"

enum { WANTED = 70 };              /* of the 70; each agrees on every conversation */
enum { NOW = 1773500966 };         /* 2026-03-14 15:09:26 UTC */

static char folder[1024];
static json_t *golden;

/* zlib's crc32 and the length, as make_templates.py writes them. */
static void digest(const struct bytes *b, char room[32])
{
	uint32_t crc = 0xffffffff;
	for (size_t i = 0; i < b->size; i++) {
		crc ^= b->data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	snprintf(room, 32, "%08" PRIx32 "-%zx", ~crc, b->size);
}

static enum err render(const struct template *t, size_t i, struct template_result *out)
{
	json_t *c = json_array_get(json_object_get(golden, "conversations"), i / 2);
	json_t *own = json_pack("{s:s, s:s, s:s, s:s}", "bos_token", "<BOS>", "eos_token", "<EOS>", "pad_token", "<PAD>", "unk_token",
				"<UNK>");
	struct template_input in = { .messages = json_object_get(c, "messages"), .tools = json_object_get(c, "tools"),
				     .documents = json_object_get(c, "documents"), .variables = json_object_get(c, "variables"),
				     .own = own, .add_generation_prompt = i % 2 == 1, .now_s = NOW };
	enum err e = template_render(t, &in, out);
	json_decref(own);
	return e;
}

static struct template *open_template(const char *name, const char *hash)
{
	char path[1400], found[32];
	struct bytes source = { 0 };
	struct template *t = NULL;
	snprintf(path, sizeof path, "%s/%s.jinja", folder, name);
	CHECK_OK(file_read_all(path, 1 << 20, &source));
	digest(&source, found);
	if (hash)
		CU_ASSERT_STRING_EQUAL(found, hash);
	CHECK_OK(template_parse(name, bytes_text(&source), source.size, &t));
	bytes_free(&source);
	return t;
}

static int agrees(const char *name, const json_t *g)
{
	struct template *t = open_template(name, json_string_value(json_object_get(g, "source")));
	json_t *results = json_object_get(g, "results");
	int n_wrong = 0;
	for (size_t i = 0; t && i < json_array_size(results); i++) {
		struct template_result r;
		char found[32] = "!";
		const char *want = json_string_value(json_array_get(results, i));
		enum err e = render(t, i, &r);
		if (!e)
			digest(&r.text, found);
		if (strcmp(found, want) && n_wrong++ < 3)
			printf("\n%s: conversation %zu: %s", name, i, e ? err_sentence() : *want == '!' ? "jinja2 raises" : "another text");
		if (!e)
			template_result_free(&r);
	}
	template_free(t);
	return t && !n_wrong;
}

TEST(real_templates_give_what_jinja2_gives)
{
	int n = 0, n_agree = 0;
	const char *name;
	json_t *g;
	json_object_foreach(json_object_get(golden, "templates"), name, g) {
		n++;
		n_agree += agrees(name, g);
	}
	printf("\n%d of %d templates agree with jinja2 on all of %zu prompts each\n", n_agree, n,
	       2 * json_array_size(json_object_get(golden, "conversations")));
	CU_ASSERT_EQUAL(n, 70);
	CU_ASSERT_TRUE(n_agree >= WANTED);
}

static int show(const char *name, size_t i)
{
	struct template_result r;
	struct template *t = open_template(name, NULL);
	if (!t || render(t, i, &r)) {
		fprintf(stderr, "%s\n", err_sentence());
		return 1;
	}
	fwrite(r.text.data, 1, r.text.size, stdout);
	template_result_free(&r);
	template_free(t);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = { CASE(real_templates_give_what_jinja2_gives) };
	FILE *f = popen("sh '" SOURCE_DIR "/tests/download.sh' llama-templates '" SOURCE_DIR "/build/cache'", "r");
	if (!f || !fgets(folder, sizeof folder, f))
		folder[0] = 0;
	folder[strcspn(folder, "\n")] = 0;
	int status = f ? pclose(f) : -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("skipped: tests/download.sh has no chat templates (its reason is above)\n");
		return 77;
	}
	setenv("TZ", "UTC0", 1);
	if (status || json_parse_file(GOLDEN, 4 << 20, ERR_IO, &golden)) {
		fprintf(stderr, "%s\n", err_sentence());
		return 1;
	}
	char *none[] = { NULL };
	status = argc == 3 ? show(argv[1], (size_t)atoi(argv[2])) : test_run("chat templates", cases, 1, none);
	json_decref(golden);
	return status;
}
