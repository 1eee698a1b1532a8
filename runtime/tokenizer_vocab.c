/* The vocabulary and the merges: two hash tables with open addressing, sized once from the number of entries, never more
 * than half full. */
#include "runtime/tokenizer_parts.h"

#include "base/mem.h"
#include "runtime/printable.h"

#include <inttypes.h>
#include <string.h>

static uint64_t hash_bytes(const char *text, size_t bytes)
{
	uint64_t h = 0xcbf29ce484222325u;   /* FNV-1a, and a last mix so that the low bits depend on all */
	for (size_t i = 0; i < bytes; i++)
		h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
	return h ^ h >> 29;
}

static uint64_t hash_key(uint64_t key)
{
	key = (key ^ key >> 31) * 0x9e3779b97f4a7c15u;
	return key ^ key >> 29;
}

static uint64_t slots_for(uint64_t n)
{
	uint64_t slots = 16;
	while (slots < 2 * n)
		slots *= 2;
	return slots;
}

enum err vocab_create(uint64_t n_entries, struct vocab *v)
{
	if (n_entries > INT32_MAX / 8)
		return ERR(MODEL, "a vocabulary of %" PRIu64 " tokens is too large (at most %d)", n_entries, INT32_MAX / 8);
	*v = (struct vocab){ 0 };
	for (int i = 0; i < 256; i++)
		v->byte_ids[i] = -1;
	v->n_slots = slots_for(n_entries);
	v->capacity = (int64_t)n_entries;
	TRY(MEM_NEW(v->n_slots, int32_t, &v->slots));
	return MEM_NEW((size_t)v->capacity, struct token, &v->tokens);
}

/* The slot that holds text, or the empty one where it belongs. */
static uint64_t find_slot(const struct vocab *v, const char *text, size_t bytes)
{
	uint64_t mask = v->n_slots - 1, slot = hash_bytes(text, bytes) & mask;
	for (; v->slots[slot]; slot = (slot + 1) & mask) {
		const struct token *k = &v->tokens[v->slots[slot] - 1];
		if (k->bytes == bytes && !memcmp(v->pool.data + k->at, text, bytes))
			break;
	}
	return slot;
}

static enum err reserve_id(struct vocab *v, const char *name, int64_t id)
{
	int64_t limit = (int64_t)(v->n_slots / 2) * 4 + 65536;
	if (id < 0 || id >= limit)
		return ERR(MODEL, "%s: token id %" PRId64 " is out of range in this vocabulary (0 to %" PRId64 ")", name, id,
			   limit - 1);
	if (id >= v->capacity) {
		int64_t old = v->capacity, capacity = id + 1 > 2 * old ? id + 1 : 2 * old;
		TRY(mem_grow(&v->tokens, (size_t)capacity, sizeof *v->tokens, "vocabulary"));
		memset(v->tokens + old, 0, (size_t)(capacity - old) * sizeof *v->tokens);
		v->capacity = capacity;
	}
	return ERR_OK;
}

enum err vocab_add(struct vocab *v, const char *name, int64_t id, const char *text, size_t bytes)
{
	char room[PRINTABLE_BYTES], old[PRINTABLE_BYTES];
	TRY(reserve_id(v, name, id));
	struct token *k = &v->tokens[id];
	if (k->flags & TOKEN_PRESENT)
		return ERR(MODEL, "%s: token id %" PRId64 " is given twice, to \"%s\" and \"%s\"", name, id,
			   printable(old, vocab_text(v, (int32_t)id), k->bytes), printable(room, text, bytes));
	if (bytes > INT32_MAX)
		return ERR(MODEL, "%s: token %" PRId64 " has %zu bytes", name, id, bytes);
	uint64_t slot = find_slot(v, text, bytes);
	if (!v->slots[slot] && v->n_used + 1 >= v->n_slots)
		return ERR(MODEL, "%s: more tokens than the vocabulary was counted to have", name);
	*k = (struct token){ .at = v->pool.size, .bytes = (uint32_t)bytes, .flags = TOKEN_PRESENT };
	k->shown_at = k->at;
	k->shown_bytes = k->bytes;
	if (!utf8_valid(text, bytes))
		k->flags |= TOKEN_LITERAL;   /* GGUF files may hold anything; no character of it can be looked at */
	bytes_put(&v->pool, text, bytes);
	v->n_used += !v->slots[slot];
	v->slots[slot] = (int32_t)id + 1;
	if (id >= v->n_tokens)
		v->n_tokens = id + 1;
	if (bytes > v->longest)
		v->longest = (uint32_t)bytes;
	return v->pool.error;
}

enum err vocab_show(struct vocab *v, int32_t id, const char *text, size_t bytes)
{
	v->tokens[id].shown_at = v->pool.size;
	v->tokens[id].shown_bytes = (uint32_t)bytes;
	bytes_put(&v->pool, text, bytes);
	return v->pool.error;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t bytes)
{
	if (bytes > v->longest || !v->n_slots)
		return -1;
	return v->slots[find_slot(v, text, bytes)] - 1;
}

void vocab_find_bytes(struct vocab *v)
{
	static const char digits[] = "0123456789ABCDEF";
	for (int i = 0; i < 256; i++) {
		char name[6] = { '<', '0', 'x', digits[i >> 4], digits[i & 15], '>' };
		int32_t id = vocab_find(v, name, sizeof name);
		v->byte_ids[i] = id;
		if (id >= 0) {
			v->tokens[id].flags |= TOKEN_BYTE;
			v->tokens[id].byte = (uint8_t)i;
		}
	}
}

void vocab_free(struct vocab *v)
{
	bytes_free(&v->pool);
	mem_free(v->tokens);
	mem_free(v->slots);
	*v = (struct vocab){ 0 };
}

enum err merges_create(uint64_t n, struct merges *m)
{
	if (n > INT32_MAX)
		return ERR(MODEL, "%" PRIu64 " merges are too many", n);
	m->n_slots = slots_for(n);
	return MEM_NEW(m->n_slots, struct merge, &m->slots);
}

static struct merge *find_merge(const struct merges *m, uint64_t key)
{
	uint64_t mask = m->n_slots - 1, slot = hash_key(key) & mask;
	while (m->slots[slot].key && m->slots[slot].key != key)
		slot = (slot + 1) & mask;
	return &m->slots[slot];
}

static uint64_t pair_key(int32_t left, int32_t right) { return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1; }

void merges_add(struct merges *m, int32_t left, int32_t right, int32_t rank, int32_t id, bool last_wins)
{
	struct merge *slot = find_merge(m, pair_key(left, right));
	if (!slot->key || last_wins)
		*slot = (struct merge){ pair_key(left, right), rank, id };
}

const struct merge *merges_find(const struct merges *m, int32_t left, int32_t right)
{
	if (left < 0 || right < 0 || !m->n_slots)
		return NULL;
	const struct merge *slot = find_merge(m, pair_key(left, right));
	return slot->key ? slot : NULL;
}
