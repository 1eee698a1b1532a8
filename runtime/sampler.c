/* Choosing a token without gathering logits.
 *
 * Masses. A token's mass is exp((logit - best) / temperature) in units of 2^-40, rounded: whole numbers, so sums over
 * ranks are exact in any order.
 *
 * Cuts. "The top k" and "the smallest set that reaches p" are both the tokens from some key on: the greatest key for which
 * the weight (1 each, or the mass) of all keys from it on reaches a target. It is found digit by digit, highest first
 * (a radix select): the ranks add up histograms of counts and masses by the next digit over the keys that share the digits
 * found so far, and all walk the same histogram down to the digit in which the target falls. This asks for at most 8
 * sums of 4 KiB (typically 2 to 4), whatever k, p and the vocabulary, and needs no room for other ranks' candidates.
 *
 * Draw. The token with the greatest log-mass + Gumbel noise is a draw from the softmax over the tokens that are left
 * (Gumbel; see Maddison, Tarlow, Minka: A* sampling, NIPS 2014, section 2); noise depends on (seed, choice, position,
 * token) alone. */
#include "runtime/sampler_impl.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>

enum { DIGIT_BITS = SAMPLER_DIGIT_BITS, DIGITS = SAMPLER_DIGITS, KEY_BITS = 64 };

static const uint64_t NAN_KEY = UINT64_MAX;

/* What one choice works on. */
struct choice {
	struct sampler *s;
	struct comm *tp;
	const float *logits;
	int64_t n_local, first_id, position;
	const struct sample_params *p;
	const struct kernels *k;
	float top;                /* the greatest logit */
	uint64_t floor, prefix;   /* of a histogram: see find_cut */
	int shift;
	uint64_t cut;             /* of a draw */
};

/* Threads share the tokens of one row. */
static void share_out(struct choice *c, pool_work *work)
{
	if (c->s->pool)
		pool_run(c->s->pool, work, c);
	else
		work(c, 0, 1);
}

int64_t sampler_bytes(const struct sampler_size *z)
{
	return (int64_t)sizeof(struct sampler) + z->n_local * 3 * (int64_t)sizeof(float) + 2 * DIGITS * (int64_t)sizeof(uint64_t) +
	       z->n_ranks * (int64_t)(sizeof(struct best_part) + 2 * sizeof(size_t)) +
	       z->n_threads * (int64_t)sizeof(struct sampler_found) +
	       (int64_t)token_counts_bytes(z->n_slots, z->n_tokens, z->n_local);
}

static enum err create_room(struct sampler *s, const struct sampler_size *z)
{
	TRY(MEM_NEW((size_t)s->n_local, float, &s->scaled));
	TRY(MEM_NEW((size_t)s->n_local, float, &s->share));
	TRY(MEM_NEW((size_t)s->n_local, float, &s->adjusted));
	TRY(MEM_NEW(2 * DIGITS, uint64_t, &s->histogram));
	TRY(MEM_NEW((size_t)s->n_threads, struct sampler_found, &s->found));
	TRY(MEM_NEW((size_t)s->n_ranks, struct best_part, &s->parts));
	TRY(MEM_NEW((size_t)s->n_ranks, size_t, &s->part_bytes));
	TRY(MEM_NEW((size_t)s->n_ranks, size_t, &s->part_offsets));
	for (int r = 0; r < s->n_ranks; r++) {
		s->part_bytes[r] = sizeof *s->parts;
		s->part_offsets[r] = (size_t)r * sizeof *s->parts;
	}
	return token_counts_create(z->n_slots, z->n_tokens, s->n_local, s->first_id, &s->counts);
}

enum err sampler_create(const struct sampler_size *z, struct pool *pool, struct sampler **out)
{
	enum { FEW = 4096 };     /* tokens that one thread is done with before others have started */
	struct sampler *s;
	if (z->n_local < 0 || z->n_ranks < 1)
		return ERR(BUG, "a sampler of %" PRId64 " tokens on %d ranks", z->n_local, z->n_ranks);
	TRY(MEM_NEW(1, struct sampler, &s));
	s->n_local = z->n_local;
	s->first_id = z->first_id;
	s->n_ranks = z->n_ranks;
	s->pool = s->n_local > FEW ? pool : NULL;
	s->n_threads = s->pool ? pool_threads(pool) : 1;
	enum err e = create_room(s, z);
	if (e) {
		sampler_destroy(s);
		return e;
	}
	*out = s;
	return ERR_OK;
}

void sampler_destroy(struct sampler *s)
{
	if (!s)
		return;
	mem_free(s->scaled);
	mem_free(s->share);
	mem_free(s->adjusted);
	mem_free(s->histogram);
	mem_free(s->found);
	mem_free(s->parts);
	mem_free(s->part_bytes);
	mem_free(s->part_offsets);
	token_counts_destroy(s->counts);
	mem_free(s);
}

void sampler_note(struct sampler *s, const struct adjustments *a, const int32_t *tokens, int64_t n)
{
	token_counts_note(s->counts, a, tokens, n);
}

const char *sample_fault_text(int32_t fault)
{
	switch (fault) {
	case SAMPLE_GOOD: return "no fault";
	case SAMPLE_NAN: return "the model's logits hold a NaN";
	case SAMPLE_INFINITE: return "the model's logits are infinite";
	case SAMPLE_NONE_ALLOWED: return "no token may be chosen: all are masked, banned or out of range";
	default: return "an unknown fault";
	}
}

uint64_t sampler_random(uint64_t seed, uint32_t choice, uint64_t position, uint32_t token)
{
	uint32_t c[4] = { (uint32_t)position, (uint32_t)(position >> 32), token, choice };
	uint32_t k[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
		uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
				     (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a };
		for (int i = 0; i < 4; i++)
			c[i] = next[i];
		k[0] += 0x9e3779b9u;
		k[1] += 0xbb67ae85u;
	}
	return (uint64_t)c[1] << 32 | c[0];
}

static void fill_histogram_part(void *arg, int thread, int n_threads)
{
	const struct choice *c = arg;
	uint64_t *histogram = c->s->found[thread].histogram;
	int below = c->shift + DIGIT_BITS;
	int64_t begin, end;
	pool_part(c->n_local, 1, thread, n_threads, &begin, &end);
	for (int i = 0; i < 2 * DIGITS; i++)
		histogram[i] = 0;
	for (int64_t i = begin; i < end; i++) {
		uint64_t key = sampler_key(c->logits[i], c->first_id + i);
		if (key < c->floor || (below < KEY_BITS && key >> below != c->prefix))
			continue;
		uint64_t digit = key >> c->shift & (DIGITS - 1);
		histogram[digit]++;
		histogram[DIGITS + digit] += sampler_mass(c->s->share[i]);
	}
}

static void fill_histogram(struct choice *c)
{
	share_out(c, fill_histogram_part);
	for (int i = 0; i < 2 * DIGITS; i++) {
		c->s->histogram[i] = 0;
		for (int t = 0; t < c->s->n_threads; t++)
			c->s->histogram[i] += c->s->found[t].histogram[i];
	}
}

/* The smallest whole number that is at least part * total. */
static uint64_t part_of(float part, uint64_t total)
{
	double target = ceil((double)part * (double)total);
	return target < 1.0 ? 1 : (uint64_t)target;
}

/* COLLECTIVE. Keys from *cut on are the greatest ones, not below floor, whose count reaches `count` or, when count is 0,
 * whose mass reaches `part` of the mass of all keys from floor on. *cut is floor when all together do not reach it. */
static enum err find_cut(struct choice *c, uint64_t floor, uint64_t count, float part, uint64_t *cut)
{
	uint64_t prefix = 0, above = 0, target = count;
	const uint64_t *counts = c->s->histogram, *weight = counts + (count ? 0 : DIGITS);
	for (int shift = KEY_BITS - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
		c->floor = floor, c->prefix = prefix, c->shift = shift;
		fill_histogram(c);
		TRY(comm_allreduce(c->tp, c->s->histogram, 2 * DIGITS, COMM_U64, COMM_SUM));
		if (shift == KEY_BITS - DIGIT_BITS) {
			uint64_t total = 0;
			for (int i = 0; i < DIGITS; i++)
				total += weight[i];
			if (!count)
				target = part_of(part, total);
			if (total < target) {
				*cut = floor;
				return ERR_OK;
			}
		}
		int digit = DIGITS - 1;
		while (digit > 0 && above + weight[digit] < target)
			above += weight[digit--];
		prefix = prefix << DIGIT_BITS | (uint64_t)digit;
		*cut = prefix << shift;
		if (counts[digit] == 1 || (count && above + weight[digit] == target))
			break;   /* all keys with this prefix are in */
	}
	if (*cut < floor)
		*cut = floor;
	return ERR_OK;
}

/* -log(E) with E = -log(u), u in (0, 1). */
static double gumbel(double u) { return -exact_log(-exact_log(u)); }

/* This thread's best score and its token, of keys from cut on with a share of at least min_p; id -1: none. The
 * logarithms are taken only where the token could win: noise beyond `best - scaled` needs E < exp(scaled - best), and
 * E > 1 - u. */
static void best_draw_part(void *arg, int thread, int n_threads)
{
	const struct choice *c = arg;
	const struct sampler *s = c->s;
	struct sampler_found *found = &s->found[thread];
	float min_share = c->p->min_p < 1 ? c->p->min_p : 1;
	double limit = INFINITY;
	int64_t begin, end;
	pool_part(c->n_local, 1, thread, n_threads, &begin, &end);
	found->score = -INFINITY;
	found->id = -1;
	for (int64_t i = begin; i < end; i++) {
		int64_t token = c->first_id + i;
		if (!(s->share[i] > 0) || s->share[i] < min_share || sampler_key(c->logits[i], token) < c->cut)
			continue;
		uint64_t bits = sampler_random(c->p->seed, c->p->choice, (uint64_t)c->position, (uint32_t)token);
		double u = ((double)(bits >> 12) + 0.5) * 0x1p-52;
		if (1.0 - u > (double)s->share[i] * limit)
			continue;
		double mine = (double)s->scaled[i] + gumbel(u);
		if (mine > found->score) {
			found->score = mine;
			found->id = token;
			limit = exact_exp(-mine) * 1.001;   /* wider than the rounding of share */
		}
	}
}

/* This rank's best; equal scores go to the lower id, which is the earlier thread's. */
static void best_draw(struct choice *c, double *score, int64_t *id)
{
	const struct sampler *s = c->s;
	share_out(c, best_draw_part);
	*score = s->found[0].score;
	*id = s->found[0].id;
	for (int t = 1; t < s->n_threads; t++)
		if (s->found[t].score > *score) {
			*score = s->found[t].score;
			*id = s->found[t].id;
		}
}

/* COLLECTIVE. The token with the greatest score over all ranks; equal scores go to the lower id. */
static enum err agree_on_draw(const struct choice *c, double score, int64_t id, int32_t *token)
{
	union { double d; uint64_t u; } v = { score };
	uint64_t mine = id < 0 ? 0 : v.u >> 63 ? ~v.u : v.u | 1ull << 63, best = mine;
	TRY(comm_allreduce(c->tp, &best, 1, COMM_U64, COMM_MAX));
	uint64_t winner = id >= 0 && mine == best ? ~(uint64_t)id : 0;
	TRY(comm_allreduce(c->tp, &winner, 1, COMM_U64, COMM_MAX));
	if (!winner)
		return ERR(BUG, "no token is left to draw from at position %" PRId64, c->position);
	*token = (int32_t)~winner;
	return ERR_OK;
}

static void scale_part(void *arg, int thread, int n_threads)
{
	const struct choice *c = arg;
	float *scaled = c->s->scaled;
	int64_t begin, end;
	pool_part(c->n_local, 16, thread, n_threads, &begin, &end);
	for (int64_t i = begin; i < end; i++)
		scaled[i] = (c->logits[i] - c->top) / c->p->temperature;
	c->k->exp(scaled + begin, c->s->share + begin, end - begin);
}

/* Draws from adjusted logits. */
static enum err draw(struct choice *c, int32_t *token)
{
	double score;
	int64_t id;
	share_out(c, scale_part);
	if (c->p->top_k > 0)
		TRY(find_cut(c, 0, (uint64_t)c->p->top_k, 0, &c->cut));
	if (c->p->top_p < 1)
		TRY(find_cut(c, c->cut, 0, c->p->top_p, &c->cut));
	best_draw(c, &score, &id);
	return agree_on_draw(c, score, id, token);
}

enum err sampler_choose(struct sampler *s, struct comm *tp, const struct kernels *k, const struct sample_row *row, int32_t *token,
			enum sample_fault *fault)
{
	struct choice c = { .s = s, .tp = tp, .logits = row->logits, .n_local = s->n_local, .first_id = s->first_id,
			    .position = row->position, .p = row->p, .k = k };
	uint64_t best = row->best;
	*fault = SAMPLE_GOOD;
	if (best == 0)
		return ERR(BUG, "no rank holds logits for position %" PRId64, row->position);
	if (best == NAN_KEY || !isfinite(sampler_key_logit(best))) {
		*fault = best == NAN_KEY ? SAMPLE_NAN : SAMPLE_INFINITE;
		return ERR_OK;
	}
	if (row->adjust) {
		adjust_logits(row->adjust, s->counts, row->logits, s->adjusted);
		c.logits = s->adjusted;
		best = k->best_key(s->adjusted, s->n_local, s->first_id);
		TRY(comm_allreduce(tp, &best, 1, COMM_U64, COMM_MAX));
	}
	c.top = sampler_key_logit(best);
	if (best == NAN_KEY || !isfinite(c.top))
		*fault = SAMPLE_NONE_ALLOWED;
	else if (!(row->p->temperature > 0))
		*token = sampler_key_token(best);
	else
		return draw(&c, token);
	return ERR_OK;
}
