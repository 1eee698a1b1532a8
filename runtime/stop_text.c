#include "runtime/stop_text.h"

#include <string.h>

void stop_text_begin(struct stop_text *t, const char *const *stops, int n) { *t = (struct stop_text){ stops, n, -1, { 0 } }; }

/* The longest stop string that the n bytes end with; -1: none. */
static int ends_with(const struct stop_text *t, const char *text, size_t n)
{
	size_t longest = 0;
	int which = -1;
	for (int i = 0; i < t->n; i++) {
		size_t length = strlen(t->stops[i]);
		if (length > longest && length <= n && !memcmp(text + n - length, t->stops[i], length)) {
			longest = length;
			which = i;
		}
	}
	return which;
}

/* Bytes at the end that are the beginning of a stop string. */
static size_t begun(const struct stop_text *t, const char *text, size_t size)
{
	size_t most = 0;
	for (int i = 0; i < t->n; i++) {
		size_t n = strlen(t->stops[i]) - 1;
		if (n > size)
			n = size;
		while (n > most && memcmp(text + size - n, t->stops[i], n))
			n--;
		if (n > most)
			most = n;
	}
	return most;
}

/* Bytes of a character at the end that is not whole. Bytes that can be no character's beginning are not waited for. */
static size_t unfinished(const char *text, size_t size)
{
	for (size_t n = 1; n <= 3 && n <= size; n++) {
		unsigned char c = (unsigned char)text[size - n];
		size_t whole = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
		if ((c & 0xc0) != 0x80)
			return whole > n ? n : 0;
	}
	return 0;
}

int stop_text_put(struct stop_text *t, const char *text, size_t bytes, struct bytes *out)
{
	if (t->found >= 0)
		return 1;
	size_t from = t->held.size;
	bytes_put(&t->held, text, bytes);
	if (t->held.error) {
		out->error = out->error ? out->error : t->held.error;
		return 0;
	}
	const char *all = bytes_text(&t->held);
	for (size_t end = from + 1; end <= t->held.size; end++) {
		t->found = ends_with(t, all, end);
		if (t->found < 0)
			continue;
		bytes_put(out, all, end - strlen(t->stops[t->found]));
		bytes_clear(&t->held);
		return 1;
	}
	size_t size = t->held.size, begins = begun(t, all, size), keep = unfinished(all, size - begins) + begins;
	bytes_put(out, all, size - keep);
	if (keep)
		memmove(t->held.data, t->held.data + size - keep, keep);
	t->held.size = keep;
	return 0;
}

void stop_text_end(struct stop_text *t, struct bytes *out)
{
	bytes_put(out, bytes_text(&t->held), t->held.size);
	bytes_clear(&t->held);
}

void stop_text_free(struct stop_text *t) { bytes_free(&t->held); }
