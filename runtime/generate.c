/* An array of requests as a source of the engine. */
#include "runtime/engine.h"

#include "base/mem.h"

struct array {
	struct generation *g;
	int64_t next, next_answer;
	enum err error;               /* of an answer that was refused after all */
	struct err_record record;
};

static int64_t answers_of(const struct request *r) { return r->n > 1 ? r->n : 1; }

/* The tag of a request is its first answer's place. */
static int64_t index_of(const struct array *x, const struct answer *a)
{
	const struct answer *first = a->tag;
	return first - x->g->answers + (int64_t)(a->choice - first->choice);
}

static enum engine_next next(void *arg, struct request *r)
{
	struct array *x = arg;
	if (x->next == x->g->n_requests)
		return ENGINE_NO_MORE;
	*r = x->g->requests[x->next++];
	r->ignore_eos |= x->g->ignore_eos;
	r->tag = &x->g->answers[x->next_answer];
	x->g->answers[x->next_answer].choice = r->sample.choice;
	x->next_answer += answers_of(r);
	return ENGINE_REQUEST;
}

static int token(void *arg, const struct answer *a, int32_t id)
{
	struct array *x = arg;
	return x->g->token && x->g->token(x->g->arg, index_of(x, a), a, id);
}

static void done(void *arg, struct answer *a)
{
	struct array *x = arg;
	if (a->finish == FINISH_REFUSED && !x->error) {     /* no memory: all else was checked before */
		x->record = *err_last();
		x->error = a->code;
	}
	x->g->answers[index_of(x, a)] = *a;
	a->tokens = NULL;
	a->logprobs = NULL;
	a->error = NULL;
}

static enum err prepare(const struct session *s, struct generation *g)
{
	for (int64_t i = 0; i < g->n_requests; i++) {
		enum err e = engine_check(s, &g->requests[i]);
		if (e)
			return err_context(e, "prompt %lld", (long long)i + 1);
		g->n_answers += answers_of(&g->requests[i]);
	}
	return MEM_NEW((size_t)g->n_answers, struct answer, &g->answers);
}

enum err session_generate(struct session *s, struct generation *g)
{
	struct array x = { .g = g };
	struct engine_calls calls = { .next = next, .token = token, .done = done, .arg = &x, .all_logits = g->all_logits };
	struct engine_counts counts = { 0 };
	int head = comm_rank(s->world) == 0;
	TRY(comm_agree(s->world, head ? prepare(s, g) : ERR_OK));
	TRY(engine_run(s, head ? &calls : NULL, head ? &counts : NULL));
	g->prefill_s = counts.prefill_s, g->prefill_tokens = counts.prefill_tokens;
	g->decode_s = counts.decode_s, g->decode_tokens = counts.decode_tokens;
	g->counts = counts.schedule;
	g->steps = counts.steps;
	if (x.error)
		err_restore(&x.record);
	return comm_agree(s->world, x.error);
}

void answer_free(struct answer *a)
{
	mem_free(a->tokens);
	mem_free(a->logprobs);
	mem_free(a->error);
	a->tokens = NULL;
	a->logprobs = NULL;
	a->error = NULL;
}

void answers_free(struct answer *a, int64_t n)
{
	for (int64_t i = 0; a && i < n; i++)
		answer_free(&a[i]);
	mem_free(a);
}
