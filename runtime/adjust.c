#include "runtime/adjust.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* As it travels: this, the prompt, the answer, the banned tokens, the biases, the mask. */
struct header {
	float repetition, frequency, presence;
	int32_t slot, n_prompt, n_answer, n_banned, n_biases, n_mask;
};
enum { HEADER_INTS = sizeof(struct header) / sizeof(int32_t) };

int64_t adjust_ints(const struct adjustments *a)
{
	return HEADER_INTS + (int64_t)a->n_prompt + a->n_answer + a->n_banned + 2 * (int64_t)a->n_biases + a->n_mask;
}

int64_t adjust_most_ints(void) { return HEADER_INTS + ADJUST_MAX_BANNED + 2 * ADJUST_MAX_BIASES; }

static int32_t *put(int32_t *to, const void *from, int64_t n_ints)
{
	if (n_ints > 0)
		memcpy(to, from, (size_t)n_ints * sizeof *to);
	return to + n_ints;
}

void adjust_pack(const struct adjustments *a, int32_t *to)
{
	struct header h = { a->repetition, a->frequency, a->presence, a->slot, a->n_prompt, a->n_answer, a->n_banned, a->n_biases,
			    a->n_mask };
	to = put(to, &h, HEADER_INTS);
	to = put(to, a->prompt, a->n_prompt);
	to = put(to, a->answer, a->n_answer);
	to = put(to, a->banned, a->n_banned);
	to = put(to, a->biases, 2 * (int64_t)a->n_biases);
	put(to, a->mask, a->n_mask);
}

enum err adjust_unpack(const int32_t *from, int64_t n, struct adjustments *out)
{
	struct header h;
	if (n < HEADER_INTS)
		return ERR(BUG, "adjustments of %" PRId64 " numbers have no header", n);
	memcpy(&h, from, sizeof h);
	struct adjustments a = { .repetition = h.repetition, .frequency = h.frequency, .presence = h.presence, .slot = h.slot,
				 .n_prompt = h.n_prompt, .n_answer = h.n_answer, .n_banned = h.n_banned,
				 .n_biases = h.n_biases, .n_mask = h.n_mask };
	if (h.n_prompt < 0 || h.n_answer < 0 || h.n_banned < 0 || h.n_biases < 0 || h.n_mask < 0 || adjust_ints(&a) != n)
		return ERR(BUG, "adjustments of %" PRId64 " numbers say that they are %" PRId64, n, adjust_ints(&a));
	a.prompt = from + HEADER_INTS;
	a.answer = a.prompt + h.n_prompt;
	a.banned = a.answer + h.n_answer;
	const int32_t *biases = a.banned + h.n_banned;
	a.biases = (const struct token_bias *)(const void *)biases;
	a.mask = (const uint32_t *)(const void *)(biases + 2 * (int64_t)h.n_biases);
	*out = a;
	return ERR_OK;
}

/* --- counts --- */

static const uint32_t IN_PROMPT = 1u << 31;     /* below it: how often in the answer */

/* A slot is a list of the tokens that its sequence has, in no order: a new token looks through it, logits are walked by it. */
struct counted { int32_t at; uint32_t count; };   /* at: id - first_id */

struct token_counts {
	int64_t n_local, first_id, room;
	struct counted *lists;   /* (n_slots, room) */
	int32_t *n;              /* (n_slots) */
	int32_t *places;         /* (n_local), while a slot starts: where in its list, from 1; else 0 */
};

static int64_t list_room(int64_t n_tokens, int64_t n_local) { return n_tokens < n_local ? n_tokens : n_local; }

uint64_t token_counts_bytes(int64_t n_slots, int64_t n_tokens, int64_t n_local)
{
	return sizeof(struct token_counts) + (uint64_t)n_slots * sizeof(int32_t) + (uint64_t)n_local * sizeof(int32_t) +
	       (uint64_t)(n_slots * list_room(n_tokens, n_local)) * sizeof(struct counted);
}

enum err token_counts_create(int64_t n_slots, int64_t n_tokens, int64_t n_local, int64_t first_id, struct token_counts **out)
{
	struct token_counts *c;
	enum err e;
	TRY(MEM_NEW(1, struct token_counts, &c));
	c->n_local = n_local;
	c->first_id = first_id;
	c->room = list_room(n_tokens, n_local);
	TRY_OR(destroy, e, MEM_NEW((size_t)(n_slots * c->room), struct counted, &c->lists));
	TRY_OR(destroy, e, MEM_NEW((size_t)n_slots, int32_t, &c->n));
	TRY_OR(destroy, e, MEM_NEW((size_t)n_local, int32_t, &c->places));
	*out = c;
	return ERR_OK;
destroy:
	token_counts_destroy(c);
	return e;
}

void token_counts_destroy(struct token_counts *c)
{
	if (!c)
		return;
	mem_free(c->lists);
	mem_free(c->n);
	mem_free(c->places);
	mem_free(c);
}

static int is_local(const struct token_counts *c, int32_t token) { return token >= c->first_id && token < c->first_id + c->n_local; }

/* While the slot starts. */
static struct counted *find_or_add(struct token_counts *c, struct counted *list, int32_t *n, int32_t token)
{
	int32_t at = (int32_t)(token - c->first_id), *place = &c->places[at];
	if (!*place) {
		list[*n] = (struct counted){ at, 0 };
		*place = ++*n;
	}
	return &list[*place - 1];
}

static void start_slot(struct token_counts *c, const struct adjustments *a, struct counted *list, int32_t *n)
{
	*n = 0;
	for (int32_t i = 0; i < a->n_prompt; i++)
		if (is_local(c, a->prompt[i]))
			find_or_add(c, list, n, a->prompt[i])->count |= IN_PROMPT;
	for (int32_t i = 0; i < a->n_answer; i++)
		if (is_local(c, a->answer[i]))
			find_or_add(c, list, n, a->answer[i])->count++;
	for (int32_t i = 0; i < *n; i++)
		c->places[list[i].at] = 0;
}

void token_counts_note(struct token_counts *c, const struct adjustments *a, const int32_t *tokens, int64_t n_tokens)
{
	struct counted *list = c->lists + a->slot * c->room;
	int32_t *n = &c->n[a->slot], k;
	if (!adjust_counts(a))
		return;
	if (a->n_prompt > 0) {
		start_slot(c, a, list, n);
		return;
	}
	for (int64_t i = 0; i < n_tokens; i++) {
		if (!is_local(c, tokens[i]))
			continue;
		for (k = 0; k < *n && list[k].at != tokens[i] - c->first_id; k++)
			;
		if (k == *n)
			list[(*n)++] = (struct counted){ (int32_t)(tokens[i] - c->first_id), 0 };
		list[k].count++;
	}
}

/* --- logits --- */

static void penalise(const struct adjustments *a, const struct counted *list, int32_t n, float *l)
{
	for (int32_t i = 0; i < n; i++) {
		float *x = &l[list[i].at];
		uint32_t count = list[i].count & ~IN_PROMPT;
		if (a->repetition != 1)
			*x = *x < 0 ? *x * a->repetition : *x / a->repetition;
		*x -= a->frequency * (float)count;
		if (count)
			*x -= a->presence;
	}
}

/* A token beyond the mask may not be chosen. */
static void mask_out(const uint32_t *mask, int64_t n_mask, int64_t first_id, int64_t n, float *l)
{
	for (int64_t i = 0; i < n; i++) {
		int64_t id = first_id + i;
		if (id / 32 >= n_mask || !(mask[id / 32] >> (id % 32) & 1))
			l[i] = -INFINITY;
	}
}

void adjust_logits(const struct adjustments *a, const struct token_counts *c, const float *logits, float *to)
{
	memcpy(to, logits, (size_t)c->n_local * sizeof *to);
	if (adjust_counts(a))
		penalise(a, c->lists + a->slot * c->room, c->n[a->slot], to);
	for (int32_t i = 0; i < a->n_biases; i++) {
		int64_t at = a->biases[i].token - c->first_id;
		if (at >= 0 && at < c->n_local)
			to[at] += a->biases[i].bias;
	}
	for (int32_t i = 0; i < a->n_banned; i++) {
		int64_t at = a->banned[i] - c->first_id;
		if (at >= 0 && at < c->n_local)
			to[at] = -INFINITY;
	}
	if (a->n_mask)
		mask_out(a->mask, a->n_mask, c->first_id, c->n_local, to);
}
