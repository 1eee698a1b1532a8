/* Recipes from anyone: any bytes give a recipe or one sentence, and what is accepted survives being written and read. */
#include "launcher/recipe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* The written form of r; r itself is not changed. */
static void write(const struct recipe *r, struct bytes *to)
{
	recipe_write(r, to);
	if (to->error)
		abort();
}

/* The same bytes for --set, and as the value of one key that they choose. */
static void set(struct recipe *r, const unsigned char *data, size_t size)
{
	char value[256];
	size_t n = size < sizeof value - 1 ? size : sizeof value - 1;
	if (n)
		memcpy(value, data, n);
	value[n] = '\0';
	recipe_set(r, value);
	const char *key = recipe_key((int)(size % (size_t)recipe_n_keys()));
	if (recipe_set_value(r, "--key", key, value) != ERR_OK && !*err_sentence())
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	struct recipe *r, *back;
	struct bytes first = { 0 }, second = { 0 };
	if (recipe_create(&r))
		abort();
	enum err e = recipe_parse(r, "fuzz.yaml", (const char *)data, size);
	if (e && (e != ERR_RECIPE || !*err_sentence() || strpbrk(err_sentence(), "\n\r")))
		abort();
	write(r, &first);
	if (recipe_create(&back) || recipe_parse(back, "written.yaml", bytes_text(&first), first.size))
		abort();
	write(back, &second);
	if (first.size != second.size || memcmp(first.data, second.data, first.size))
		abort();
	set(r, data, size);
	recipe_destroy(r);
	recipe_destroy(back);
	bytes_free(&first);
	bytes_free(&second);
	return 0;
}
