/* The tokens that a step chooses, on the last stage. */
#include "runtime/stage.h"

/* The rows after which a token is chosen: picked, and their places in the batch moved to the front. Gives their number. */
static int64_t pick_rows(struct stage *s, const struct step *step)
{
	int64_t row = 0, n = 0;
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->replica != s->grid->me.dp)
			continue;
		row += sl->n_tokens;
		for (int64_t from = row - slice_choices(sl); from < row; from++) {
			if (n < s->logits_rows)
				s->picked[n] = from;
			s->rows[n++] = s->rows[from];
		}
	}
	return n;
}

/* The threads' and then the ranks' parts of n rows' digests and best keys. */
static enum err sum_up(struct stage *s, int64_t n)
{
	struct comm *tp = s->grid->axis[AXIS_TP];
	for (int64_t b = 0; b < n; b++) {
		s->digests[b] = s->best_keys[b] = 0;
		for (int t = 0; t < pool_threads(s->pool); t++) {
			const struct choosing *part = &s->choosing[t * s->logits_rows + b];
			s->digests[b] += part->digest;
			s->best_keys[b] = part->key > s->best_keys[b] ? part->key : s->best_keys[b];
		}
	}
	TRY(comm_allreduce(tp, s->best_keys, (size_t)n, COMM_U64, COMM_MAX));
	return comm_allreduce(tp, s->digests, (size_t)n, COMM_U64, COMM_SUM);
}

/* Chooses from row `at` of s->logits. */
static enum err choose(struct stage *s, const struct slice *sl, const struct adjustments *adjust, int64_t at, struct step_result *r,
		       struct sample_logprobs *logprobs)
{
	struct comm *tp = s->grid->axis[AXIS_TP];
	struct sample_row row = { .logits = s->logits + at * range_size(s->shard.vocab), .best = s->best_keys[at],
				  .position = s->rows[at].pos + 1, .p = &sl->sample, .adjust = adjust };
	enum sample_fault fault;
	r->digest = s->digests[at];
	TRY(sampler_choose(s->sampler, tp, s->k, &row, &r->token, &fault));
	r->fault = (int32_t)fault;
	return fault || !logprobs ? ERR_OK : sampler_logprobs(s->sampler, tp, s->k, &row, r->token, logprobs);
}

/* The choices of a slice that samples. Once one is not what was guessed, those behind it are of no use. */
static enum err choose_all(struct stage *s, const struct step *step, const struct slice *sl, struct step_results *out)
{
	const int32_t *drafts = step->tokens + slice_first_draft(sl);
	struct adjustments adjust;
	if (sl->n_extra) {
		TRY(adjust_unpack(step->extra + sl->first_extra, sl->n_extra, &adjust));
		sampler_note(s->sampler, &adjust, step->tokens + sl->first_token, sl->n_tokens);
	}
	for (int32_t i = 0, is_right = 1; i < slice_choices(sl); i++) {
		struct step_result *r = &out->of[out->n];
		struct sample_logprobs *logprobs = sl->sample.logprobs ? &out->logprobs[out->n_logprobs++] : NULL;
		*r = (struct step_result){ .sequence = sl->sequence, .token = -1 };
		if (logprobs)
			*logprobs = (struct sample_logprobs){ 0 };
		if (is_right)
			TRY(choose(s, sl, sl->n_extra ? &adjust : NULL, out->n, r, logprobs));
		is_right = is_right && !r->fault && i < sl->n_drafts && r->token == drafts[i];
		out->n++;
	}
	return ERR_OK;
}

enum err stage_sample(struct stage *s, const struct step *step, struct step_results *out)
{
	int64_t n = pick_rows(s, step);
	if (n == 0)
		return ERR_OK;
	if (n > s->logits_rows)
		return ERR(BUG, "%lld tokens to choose, room for %lld", (long long)n, (long long)s->logits_rows);
	TRY(stage_head(s, n, 1));
	TRY(sum_up(s, n));
	for (int32_t i = 0; i < step->n_slices; i++) {
		const struct slice *sl = &step->slices[i];
		if (sl->replica == s->grid->me.dp && sl->flags & SLICE_SAMPLE)
			TRY(choose_all(s, step, sl, out));
	}
	return ERR_OK;
}
