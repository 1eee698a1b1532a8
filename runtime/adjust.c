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

struct token_counts {
	int64_t n_slots, n_local, first_id;
	uint32_t *of;            /* (n_slots, n_local) */
};

uint64_t token_counts_bytes(int64_t n_slots, int64_t n_local)
{
	return sizeof(struct token_counts) + (uint64_t)(n_slots * n_local) * sizeof(uint32_t);
}

enum err token_counts_create(int64_t n_slots, int64_t n_local, int64_t first_id, struct token_counts **out)
{
	struct token_counts *c;
	TRY(MEM_NEW(1, struct token_counts, &c));
	*c = (struct token_counts){ n_slots, n_local, first_id, NULL };
	enum err e = MEM_NEW((size_t)(n_slots * n_local), uint32_t, &c->of);
	if (e) {
		token_counts_destroy(c);
		return e;
	}
	*out = c;
	return ERR_OK;
}

void token_counts_destroy(struct token_counts *c)
{
	if (!c)
		return;
	mem_free(c->of);
	mem_free(c);
}

void token_counts_note(struct token_counts *c, const struct adjustments *a, const int32_t *tokens, int64_t n)
{
	if (!adjust_counts(a))
		return;
	uint32_t *of = c->of + a->slot * c->n_local;
	if (a->n_prompt > 0) {
		memset(of, 0, (size_t)c->n_local * sizeof *of);
		tokens = a->answer;
		n = a->n_answer;
	}
	for (int64_t i = 0; i < a->n_prompt; i++)
		if (a->prompt[i] >= c->first_id && a->prompt[i] < c->first_id + c->n_local)
			of[a->prompt[i] - c->first_id] |= IN_PROMPT;
	for (int64_t i = 0; i < n; i++)
		if (tokens[i] >= c->first_id && tokens[i] < c->first_id + c->n_local)
			of[tokens[i] - c->first_id]++;
}

/* --- logits --- */

static void penalise(const struct adjustments *a, const uint32_t *of, int64_t n, float *l)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t count = of[i] & ~IN_PROMPT;
		if (!of[i])
			continue;
		if (a->repetition != 1)
			l[i] = l[i] < 0 ? l[i] * a->repetition : l[i] / a->repetition;
		l[i] -= a->frequency * (float)count;
		if (count)
			l[i] -= a->presence;
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
		penalise(a, c->of + a->slot * c->n_local, c->n_local, to);
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
