/* Choosing and checking the axes.
 *
 * There is one rule for what works (fault_of) and one order of preference (search): the widest tp that stays inside a
 * node, then as many stages as there are layers for, then replicas. A value that the user fixed only narrows the search,
 * so the others follow from it; when nothing is left, the sentence says what stands in the way, and the layouts nearest
 * to the wish come from the same search without the fixed values. One replica per rank always works, so there is always
 * something to offer. */
#include "parallel/layout.h"

#include <stdio.h>

enum { MAX_NEAREST = 3, SENTENCE_BYTES = 400 };

struct question {
	const struct layout *wish;              /* 0 where free */
	const struct layout_limits *limits;
	int n_ranks, ranks_per_node;
};

static int smaller(int a, int b) { return a < b ? a : b; }

/* The largest divisor of n that is <= most; 1 at least. */
static int divisor_up_to(int n, int most)
{
	for (int d = smaller(n, most); d > 1; d--)
		if (n % d == 0)
			return d;
	return 1;
}

/* Chooses ep and etp where they are free; tp and dp are set. */
static void choose_experts(struct layout *l, const struct layout_limits *limits)
{
	int ranks = l->dp * l->tp;
	if (!limits->n_experts) {
		l->ep = l->ep ? l->ep : 1;
		l->etp = l->etp ? l->etp : 1;
		return;
	}
	if (!l->ep)
		l->ep = divisor_up_to(l->etp && ranks % l->etp == 0 ? ranks / l->etp : ranks, limits->n_experts);
	if (!l->etp)
		l->etp = ranks % l->ep ? 1 : divisor_up_to(ranks / l->ep, smaller(l->tp, limits->ffn_blocks));
}

/* Why a complete layout cannot be, as a sentence without its end; NULL when it can. */
static const char *fault_of(const struct question *q, const struct layout *l, char text[SENTENCE_BYTES])
{
	const struct layout_limits *m = q->limits;
#define FAULT(...) return snprintf(text, SENTENCE_BYTES, __VA_ARGS__), text
	if (l->tp > m->heads)
		FAULT("tp %d is more than the %d heads of the model", l->tp, m->heads);
	if (l->tp > LAYOUT_MAX_TP)
		FAULT("tp %d is more than %d ranks", l->tp, LAYOUT_MAX_TP);
	if (!m->n_experts && l->tp > m->ffn_blocks)
		FAULT("tp %d is more than the %d blocks of FFN columns that the model can be cut into", l->tp, m->ffn_blocks);
	if (l->pp > m->n_layers)
		FAULT("pp %d is more than the model's %d layers", l->pp, m->n_layers);
	if (l->pp > LAYOUT_MAX_STAGES)
		FAULT("pp %d is more than %d stages", l->pp, LAYOUT_MAX_STAGES);
	if (l->n_stage_layers && l->n_stage_layers != l->pp)
		FAULT("pp is %d, but pp_layers lists %d stages", l->pp, l->n_stage_layers);
	if (!m->n_experts && (l->ep > 1 || l->etp > 1))
		FAULT("ep %d and etp %d split experts, but the model has none: both must be 1", l->ep, l->etp);
	if (m->n_experts && l->ep > m->n_experts)
		FAULT("ep %d is more than the model's %d experts", l->ep, m->n_experts);
	if (m->n_experts && l->etp > m->ffn_blocks)
		FAULT("etp %d is more than the %d blocks that an expert's columns can be cut into", l->etp, m->ffn_blocks);
	if (!l->tp_across_nodes && q->ranks_per_node % l->tp)
		FAULT("tp %d does not fit whole into a node with %d rank%s, and parallel.tp_across_nodes is not set", l->tp,
		      q->ranks_per_node, q->ranks_per_node == 1 ? "" : "s");
	if ((long long)l->tp * l->pp * l->dp != q->n_ranks)
		FAULT("tp %d x pp %d x dp %d needs %lld ranks, but there are %d", l->tp, l->pp, l->dp,
		      (long long)l->tp * l->pp * l->dp, q->n_ranks);
	if ((long long)l->dp * l->tp % ((long long)l->ep * l->etp))
		FAULT("ep %d x etp %d does not divide the dp %d x tp %d = %d ranks of a stage", l->ep, l->etp, l->dp, l->tp,
		      l->dp * l->tp);
#undef FAULT
	return NULL;
}

/* Complete layouts for n_ranks in order of preference, starting after the one in *l (tp 0: from the start); fixed values
 * of the wish are kept. 0 when there are no more. */
static int search(const struct question *q, struct layout *l)
{
	const struct layout *wish = q->wish;
	char text[SENTENCE_BYTES];
	int tp = l->tp ? l->tp : q->n_ranks, pp = l->tp ? l->pp - 1 : q->n_ranks;
	for (; tp > 0; tp--, pp = q->n_ranks) {
		if (q->n_ranks % tp || (wish->tp && wish->tp != tp))
			continue;
		if (!wish->tp && q->ranks_per_node % tp)   /* across nodes only when asked for by number */
			continue;
		for (pp = smaller(pp, q->n_ranks / tp); pp > 0; pp--) {
			if (q->n_ranks / tp % pp || (wish->pp && wish->pp != pp))
				continue;
			*l = *wish;
			l->tp = tp;
			l->pp = pp;
			l->dp = q->n_ranks / tp / pp;
			if (wish->dp && wish->dp != l->dp)
				continue;
			choose_experts(l, q->limits);
			if (!fault_of(q, l, text))
				return 1;
		}
	}
	return 0;
}

/* How far a layout is from what was fixed, as a product of ratios; ties go to the order of preference. */
static double distance(const struct layout *wish, const struct layout *l)
{
	const int wanted[] = { wish->tp, wish->pp, wish->dp, wish->ep, wish->etp };
	const int got[] = { l->tp, l->pp, l->dp, l->ep, l->etp };
	double product = 1;
	for (int i = 0; i < 5; i++)
		if (wanted[i])
			product *= got[i] > wanted[i] ? (double)got[i] / wanted[i] : (double)wanted[i] / got[i];
	return product;
}

struct ranking {
	int n;
	struct layout best[MAX_NEAREST];
	double far[MAX_NEAREST];
};

static void rank_layout(struct ranking *r, const struct layout *l, double far)
{
	int at = r->n;
	while (at > 0 && r->far[at - 1] > far)
		at--;
	if (at == MAX_NEAREST)
		return;
	if (r->n < MAX_NEAREST)
		r->n++;
	for (int i = r->n - 1; i > at; i--) {
		r->best[i] = r->best[i - 1];
		r->far[i] = r->far[i - 1];
	}
	r->best[at] = *l;
	r->far[at] = far;
}

/* All layouts of these ranks with this ep and etp (0: chosen). */
static void rank_layouts(const struct question *q, int ep, int etp, struct ranking *r)
{
	struct layout free_wish = { .tp_across_nodes = q->wish->tp_across_nodes, .ep = ep, .etp = etp }, l = { 0 };
	const struct question open = { &free_wish, q->limits, q->n_ranks, q->ranks_per_node };
	while (search(&open, &l))
		rank_layout(r, &l, distance(q->wish, &l));
}

/* "tp 3 x pp 2 x dp 1, ..." into text. */
static void nearest(const struct question *q, char *text, size_t room)
{
	struct ranking r = { 0 };
	int experts = q->limits->n_experts;
	int most_ep = experts && q->wish->ep ? smaller(experts, q->n_ranks) : 0;
	int most_etp = experts && q->wish->etp ? smaller(q->limits->ffn_blocks, q->n_ranks) : 0;
	for (int ep = most_ep ? 1 : 0; ep <= most_ep; ep++)
		for (int etp = most_etp ? 1 : 0; etp <= most_etp; etp++)
			if ((!ep || q->n_ranks % ep == 0) && (!etp || q->n_ranks % etp == 0))
				rank_layouts(q, ep, etp, &r);
	size_t used = 0;
	for (int i = 0; i < r.n && used < room; i++) {
		const struct layout *l = &r.best[i];
		used += (size_t)snprintf(text + used, room - used, "%stp %d x pp %d x dp %d", i ? ", " : "", l->tp, l->pp,
					 l->dp);
		if (experts && used < room)
			used += (size_t)snprintf(text + used, room - used, " with ep %d x etp %d", l->ep, l->etp);
	}
}

/* What stands in the way of the wish when no layout has it: the fault of the fixed values, each free one at the value
 * that comes closest to making it work. */
static void explain(const struct question *q, char text[SENTENCE_BYTES])
{
	struct layout l = *q->wish;
	long long fixed = (long long)(l.tp ? l.tp : 1) * (l.pp ? l.pp : 1) * (l.dp ? l.dp : 1);
	if (l.tp && l.pp && l.dp ? fixed != q->n_ranks : q->n_ranks % fixed) {
		size_t at = 0;
		const struct { const char *name; int value; } axes[] = { { "tp", l.tp }, { "pp", l.pp }, { "dp", l.dp } };
		for (int i = 0; i < 3; i++)
			if (axes[i].value)
				at += (size_t)snprintf(text + at, SENTENCE_BYTES - at, "%s%s %d", at ? " x " : "",
						       axes[i].name, axes[i].value);
		snprintf(text + at, SENTENCE_BYTES - at, " needs %s%lld ranks, but there are %d",
			 l.tp && l.pp && l.dp ? "" : "a multiple of ", fixed, q->n_ranks);
		return;
	}
	long long group = (long long)(l.ep ? l.ep : 1) * (l.etp ? l.etp : 1);
	if (q->limits->n_experts && q->n_ranks % group) {
		snprintf(text, SENTENCE_BYTES, "ep %d x etp %d needs a multiple of %lld ranks, but there are %d",
			 l.ep ? l.ep : 1, l.etp ? l.etp : 1, group, q->n_ranks);
		return;
	}
	int left = (int)(q->n_ranks / fixed);
	if (!l.tp) {
		int most = smaller(q->ranks_per_node, q->limits->heads);
		l.tp = l.pp && l.dp ? left
				    : divisor_up_to(left, q->limits->n_experts ? most : smaller(most, q->limits->ffn_blocks));
		left /= l.tp;
	}
	if (!l.pp) {
		l.pp = l.dp ? left : divisor_up_to(left, q->limits->n_layers);
		left /= l.pp;
	}
	if (!l.dp)
		l.dp = left;
	choose_experts(&l, q->limits);
	if (!fault_of(q, &l, text))   /* this one works, so the search would have found it or one before it */
		snprintf(text, SENTENCE_BYTES, "no layout of %d ranks has these values", q->n_ranks);
}

static enum err check_stage_layers(const struct layout *l, const struct layout_limits *limits)
{
	long long sum = 0;
	if (l->n_stage_layers < 0 || l->n_stage_layers > LAYOUT_MAX_STAGES)
		return ERR(FIT, "pp_layers lists %d stages, but must list at most %d", l->n_stage_layers, LAYOUT_MAX_STAGES);
	for (int i = 0; i < l->n_stage_layers; i++) {
		if (l->stage_layers[i] < 1)
			return ERR(FIT, "pp_layers gives stage %d %d layers, but a stage has at least 1", i,
				   l->stage_layers[i]);
		sum += l->stage_layers[i];
	}
	if (l->n_stage_layers && sum != limits->n_layers)
		return ERR(FIT, "pp_layers adds up to %lld layers, but the model has %d", sum, limits->n_layers);
	return ERR_OK;
}

enum err layout_complete(struct layout *l, const struct layout_limits *limits, int n_ranks, int ranks_per_node)
{
	struct layout wish = *l, found = { 0 };
	const struct question q = { &wish, limits, n_ranks, ranks_per_node };
	if (n_ranks < 1 || ranks_per_node < 1 || limits->n_layers < 1 || limits->heads < 1 || limits->ffn_blocks < 1)
		return ERR(BUG, "a layout of %d ranks, %d a node, for %d layers, %d heads and %d FFN blocks", n_ranks,
			   ranks_per_node, limits->n_layers, limits->heads, limits->ffn_blocks);
	if (wish.tp < 0 || wish.pp < 0 || wish.dp < 0 || wish.ep < 0 || wish.etp < 0)
		return ERR(FIT, "tp %d, pp %d, dp %d, ep %d, etp %d: each must be at least 1, or auto", wish.tp, wish.pp,
			   wish.dp, wish.ep, wish.etp);
	TRY(check_stage_layers(&wish, limits));
	if (wish.n_stage_layers && !wish.pp)
		wish.pp = wish.n_stage_layers;
	if (search(&q, &found)) {
		*l = found;
		return ERR_OK;
	}
	char why[SENTENCE_BYTES], others[SENTENCE_BYTES] = "";
	explain(&q, why);
	nearest(&q, others, sizeof others);
	return ERR(FIT, "%s; the nearest layouts of %d rank%s that work are %s", why, n_ranks, n_ranks == 1 ? "" : "s",
		   others);
}
