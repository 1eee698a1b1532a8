/* labels: unit
 * A session only starts when all ranks see the same model, in its numbers as in its tensors. */
#include "runtime/session.h"
#include "tests/files.h"
#include "tests/test.h"

#include "base/file.h"

#define MODEL SOURCE_DIR "/tests/golden/models/llama-untied"

/* The model of the golden tests beside a config.json in which one text was replaced; NULL: as it is. */
static void copy_model(const struct test_dir *d, const char *from, const char *to)
{
	static const char *const names[] = { "model.safetensors", "config.json" };
	for (int i = 0; i < 2; i++) {
		char path[400];
		struct bytes text = { 0 }, changed = { 0 };
		snprintf(path, sizeof path, MODEL "/%s", names[i]);
		CHECK_OK(file_read_all(path, 1 << 24, &text));
		const char *at = from && i == 1 ? strstr(bytes_text(&text), from) : NULL;
		CU_ASSERT_FATAL(!from || i == 0 || at != NULL);
		if (at) {
			size_t before = (size_t)(at - bytes_text(&text));
			bytes_put(&changed, text.data, before);
			bytes_put(&changed, to, strlen(to));
			bytes_put(&changed, text.data + before + strlen(from), text.size - before - strlen(from));
		}
		struct bytes *b = at ? &changed : &text;
		test_write(d, names[i], b->data, b->size);
		bytes_free(&text);
		bytes_free(&changed);
	}
}

struct trial { const char *other; struct cluster cluster; };

static enum err body(struct comm *world, void *arg)
{
	const struct trial *t = arg;
	struct place place = { 0 };
	struct session *s = NULL;
	struct session_wish wish = { .model_path = comm_rank(world) == 1 ? t->other : MODEL, .isa = "c" };
	wish.plan.layout = (struct layout){ .tp = 2, .pp = 1, .dp = 1 };
	wish.plan.threads = 1;
	wish.plan.step_tokens = wish.plan.sequences = wish.plan.context = 16;
	enum err e = place_invent(&t->cluster, comm_size(world), 0, &place);
	if (!e)
		e = session_create(world, &wish, &place, &s);
	session_destroy(s);
	place_free(&place);
	return e;
}

TEST(ranks_that_see_another_model_are_found)
{
	static const struct { const char *from, *to; } changes[] = {
		{ "10000.0", "10001.0" }, { "\"rms_norm_eps\": 1e-0", "\"rms_norm_eps\": 2e-0" },
	};
	struct test_dir d;
	struct trial t = { .other = d.path };
	test_dir_make(&d);
	CHECK_OK(cluster_read("pack:1 core:8 pu:1", &t.cluster));
	copy_model(&d, NULL, NULL);
	CHECK_OK(comm_inproc_run(2, NULL, body, &t));
	for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
		copy_model(&d, changes[i].from, changes[i].to);
		CHECK_ERR(comm_inproc_run(2, NULL, body, &t), MODEL, "the ranks see different files");
	}
	cluster_free(&t.cluster);
	test_dir_remove(&d);
}

TEST_MAIN("session", CASE(ranks_that_see_another_model_are_found))
