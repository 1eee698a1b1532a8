/* Log-probabilities: log(softmax(l))_t = (l_t - l_best) - log(sum over v of exp(l_v - l_best)). The sum is of whole numbers, so it
 * has the same bits on any layout; each is rounded to 2^-40, which leaves an error of 1e-6 at most with a million tokens. Ranks exchange their
 * sums and their best keys in one gathering. */
#include "runtime/sampler_impl.h"

/* This rank's n greatest keys. */
static void find_best(const struct sampler *s, const float *logits, int n, uint64_t *best)
{
	float least = 0;
	int found = 0;
	for (int64_t i = 0; n > 0 && i < s->n_local; i++) {
		if (found == n && !(logits[i] > least))      /* an equal one has a higher id */
			continue;
		uint64_t key = sampler_key(logits[i], s->first_id + i);
		int at = found < n ? found++ : n - 1;
		for (; at > 0 && best[at - 1] < key; at--)
			best[at] = best[at - 1];
		best[at] = key;
		least = sampler_key_logit(best[found - 1]);
	}
	for (; found < SAMPLE_MAX_BEST; found++)
		best[found] = 0;
}

/* The greatest of what is left of the ranks' lists; 0: nothing. */
static uint64_t next_best(const struct sampler *s, uint64_t below)
{
	uint64_t best = 0;
	for (int r = 0; r < s->n_ranks; r++)
		for (int i = 0; i < SAMPLE_MAX_BEST; i++)
			if (s->parts[r].best[i] < below) {
				best = s->parts[r].best[i] > best ? s->parts[r].best[i] : best;
				break;
			}
	return best;
}

static float logprob(uint64_t key, float top, double log_sum)
{
	return (float)((double)sampler_key_logit(key) - (double)top - log_sum);
}

enum err sampler_logprobs(struct sampler *s, struct comm *tp, const struct kernels *k, const struct sample_row *row, int32_t token,
			  struct sample_logprobs *out)
{
	float top = sampler_key_logit(row->best);
	int n = row->p->logprobs - 1 < SAMPLE_MAX_BEST ? row->p->logprobs - 1 : SAMPLE_MAX_BEST;
	int64_t at = token - s->first_id;
	struct best_part mine = { 0 };
	uint64_t sum = 0, chosen = 0, key = UINT64_MAX;
	for (int64_t i = 0; i < s->n_local; i++)
		s->scaled[i] = row->logits[i] - top;
	k->exp(s->scaled, s->share, s->n_local);
	for (int64_t i = 0; i < s->n_local; i++)
		mine.mass += sampler_mass(s->share[i]);
	if (at >= 0 && at < s->n_local)
		mine.chosen = sampler_key(row->logits[at], token);
	find_best(s, row->logits, n, mine.best);
	TRY(comm_allgather(tp, &mine, s->parts, s->part_bytes, s->part_offsets));
	for (int r = 0; r < s->n_ranks; r++) {
		sum += s->parts[r].mass;
		chosen |= s->parts[r].chosen;
	}
	double log_sum = exact_log((double)sum / SAMPLER_ONE_MASS);
	*out = (struct sample_logprobs){ .chosen = logprob(chosen, top, log_sum) };
	for (; out->n < n && (key = next_best(s, key)) != 0; out->n++)
		out->best[out->n] = (struct token_logprob){ sampler_key_token(key), logprob(key, top, log_sum) };
	return ERR_OK;
}
