/* Mixture of experts: two ways through a layer, with the same bits.
 *
 * Inside: every expert group lies in a tp group. Each rank applies the experts it holds to all tokens; one sum over tp
 * combines. When a tp group holds several expert groups (copies), they share the tokens out in turn.
 *
 * Dispatch: expert groups reach beyond a tp group. Each tp rank routes a run of rows (maybe none), sends every row to the ranks
 * that hold its experts, and they return fixed-point sums.
 *
 * Either way a rank has a list of items, (row, expert, gate), ordered by expert. One region gathers their rows, one does gate
 * and up of all experts, each thread its columns of every expert, one does down likewise: as many regions for sixteen
 * experts as for one, and each of them even. Long lists are done in pieces.
 *
 * Each (expert, run of columns) contribution is multiplied by its gate in float and then converted; all sums after that are
 * exact, so neither the way nor the grouping shows in the result. */
#include "runtime/pack.h"
#include "runtime/stage.h"

#include <string.h>

/* A row that goes to another rank: this header, then C floats. */
struct parcel {
	int32_t row;          /* of the sender's batch */
	int32_t n;            /* experts of the receiver that want it */
	/* then int32 expert[k], float gate[k] */
};

struct experts_room {
	int inside, n_used;
	int64_t n_experts, max_rows, max_own;   /* max_rows: that this rank's experts may see in a step,
						   and items that are worked on at once */
	size_t parcel_bytes;

	float *logits;         /* (threads, ROUTE_ROWS, E) */
	int32_t *chosen;       /* (B, k) experts of rows, best first */
	float *gates;          /* (B, k); both dealt (stage.h), or these: */
	int32_t *few_chosen;
	float *few_gates;

	int64_t *first;        /* (local experts + 1): where each one's part of the lists begins */
	int32_t *list_row;     /* (max_rows * k) */
	float *list_gate;
	float *gathered;       /* (max_rows, C) */
	struct act_block *gathered8, *gate8;    /* the same, and gate, as int8 */
	float *gate, *up;      /* (max_rows, F/etp) */
	int64_t *part;         /* (max_rows, C + 1): of one expert's items at a time */
	int64_t *bad;          /* (threads, max_rows): likewise */

	/* dispatch only */
	unsigned char *out_parcels, *in_parcels;
	int64_t *own_acc;      /* (max_own, C + 1) */
	int64_t *in_acc;       /* (max_rows, C + 1): what this rank's experts give for the rows it received */
	int64_t *in_bad;       /* (threads, max_rows) */
	int64_t *back;         /* (out parcels, C + 1): what came back for own rows */
	size_t *sizes;         /* 8 arrays of the group's size */
};

enum { ROUTE_ROWS = 8 };

struct experts_sizes {
	int64_t k, B, C, E, F, own, rows, out, group, local;
	size_t parcel;
	int inside, int8_rows;
};

static struct experts_sizes sizes_of(const struct model *m, const struct layout *l, const struct shard *s,
				     const struct stage_limits *limits)
{
	struct experts_sizes z = { .k = m->n_expert_used, .B = limits->step_tokens, .C = m->n_embd, .E = m->n_expert,
				   .F = range_size(s->expert_ffn), .group = l->ep * l->etp, .local = range_size(s->experts) };
	z.inside = layout_experts_inside_tp(l);
	z.int8_rows = limits->int8_rows;
	z.own = z.inside ? z.B : (z.B + l->tp - 1) / l->tp;
	z.rows = z.inside ? z.B : z.group * z.own;
	z.out = z.inside ? 0 : z.own * (z.k < l->ep ? z.k : l->ep) * l->etp;
	z.parcel = size_round_up(sizeof(struct parcel) + (size_t)z.k * 8, 64) + (size_t)z.C * sizeof(float);
	return z;
}

/* Bytes of rows of `columns` activations as int8. */
static int64_t act_room(const struct experts_sizes *z, int64_t columns)
{
	return z->int8_rows ? z->rows * act_blocks(columns) * (int64_t)sizeof(struct act_block) : 0;
}

#define ROOM(X, z, n_threads)                                               \
	X(logits, (n_threads) * ROUTE_ROWS * (z).E * 4)                     \
	X(few_chosen, DEALT_ROWS * (z).k * 4)                               \
	X(few_gates, DEALT_ROWS * (z).k * 4)                                \
	X(first, ((z).local + 1) * 8)                                       \
	X(list_row, (z).rows * (z).k * 4)                                   \
	X(list_gate, (z).rows * (z).k * 4)                                  \
	X(gathered, (z).rows * (z).C * 4)                                   \
	X(gathered8, act_room(&(z), (z).C))                                 \
	X(gate8, act_room(&(z), (z).F))                                     \
	X(gate, (z).rows * (z).F * 4)                                       \
	X(up, (z).rows * (z).F * 4)                                         \
	X(part, (z).rows * ((z).C + 1) * 8)                                 \
	X(bad, (z).rows * (n_threads) * 8)                                  \
	X(out_parcels, (z).out * (int64_t)(z).parcel)                       \
	X(in_parcels, ((z).inside ? 0 : (z).rows) * (int64_t)(z).parcel)    \
	X(own_acc, ((z).inside ? 0 : (z).own) * ((z).C + 1) * 8)            \
	X(in_acc, ((z).inside ? 0 : (z).rows) * ((z).C + 1) * 8)            \
	X(in_bad, ((z).inside ? 0 : (z).rows) * (n_threads) * 8)            \
	X(back, (z).out * ((z).C + 1) * 8)                                  \
	X(sizes, (z).group * 8 * (int64_t)sizeof(size_t))

uint64_t experts_room_bytes(const struct model *m, const struct layout *l, const struct shard *s, const struct stage_limits *limits,
			    int n_threads)
{
	struct experts_sizes z = sizes_of(m, l, s, limits);
	int64_t bytes = 0;
#define X(name, size) bytes += (size) + 63;
	ROOM(X, z, n_threads)
#undef X
	return (uint64_t)bytes;
}

enum err experts_create(struct stage *s)
{
	struct experts_sizes z = sizes_of(s->m, &s->grid->layout, &s->shard, &s->limits);
	struct experts_room *r;
	int n_threads = pool_threads(s->pool);
	TRY(ARENA_NEW(s->arena, 1, struct experts_room, &r));
	r->inside = z.inside;
	r->n_used = (int)z.k;
	r->n_experts = z.local;
	r->max_rows = z.rows;
	r->max_own = z.own;
	r->parcel_bytes = z.parcel;
#define X(name, size) TRY(arena_alloc(s->arena, (size_t)(size), 1, &r->name));
	ROOM(X, z, n_threads)
#undef X
	s->experts = r;
	return ERR_OK;
}

struct region {
	struct stage *s;
	const struct layer_weights *w;
	int64_t begin, end;                    /* rows of the batch */
	int64_t first_item, end_item;          /* a piece of the lists */
	const unsigned char *in;               /* dispatch: rows (., C) with this stride in bytes */
	size_t in_stride;
	int64_t *acc;                          /* (n_acc, C + 1) */
	int64_t n_acc;
	int64_t *bad, ldbad;                   /* (threads, ldbad) of acc's rows */
	const float *norm;                     /* of what comes next; NULL: nothing */
};

/* --- routing --- */

/* The router's choice for rows [b, b + n), which are normed. */
static void route_some(const struct region *r, int thread, int64_t b, int64_t n)
{
	struct stage *s = r->s;
	struct experts_room *room = s->experts;
	int64_t C = s->m->n_embd, E = s->m->n_expert, k = room->n_used;
	float *logits = room->logits + thread * ROUTE_ROWS * E;
	struct act_rows x = { s->h + b * C, C, s->h8 + b * act_blocks(C), act_blocks(C) };
	stage_product(s, thread, &r->w->w[SLOT_ROUTER], 0, E, NULL, &x, n, logits, E);
	for (int64_t i = 0; i < n; i++)
		s->k->route(logits + i * E, E, k, room->chosen + (b + i) * k, room->gates + (b + i) * k);
}

/* The attention's residual, norm, router and choice of experts. */
static void route_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end, C = s->m->n_embd;
	pool_part(r->end - r->begin, 1, thread, n_threads, &begin, &end);
	for (int64_t b = r->begin + begin, n; b < r->begin + end; b += n) {
		n = r->begin + end - b < ROUTE_ROWS ? r->begin + end - b : ROUTE_ROWS;
		for (int64_t i = b; i < b + n; i++) {
			stage_settle_row(s, thread, i, r->w->vector[SLOT_O_BIAS]);
			stage_norm_row(s, s->x + i * C, r->w->vector[SLOT_FFN_NORM], i);
		}
		route_some(r, thread, b, n);
	}
}

/* Of the rows that this rank works on. */
static enum err route_rows(struct stage *s, const struct layer_weights *w)
{
	int64_t row_values = s->m->n_embd * (1 + s->m->n_expert / 8);   /* a row of the router: an eighth of a norm */
	TRY(stage_bring_sums(s));
	struct range mine = stage_own_rows(s);
	s->experts->chosen = s->is_dealt ? dealt_shown(s->dealt, SHOWN_CHOSEN) : s->experts->few_chosen;
	s->experts->gates = s->is_dealt ? dealt_shown(s->dealt, SHOWN_GATES) : s->experts->few_gates;
	stage_run_rows(s, range_size(mine), row_values, route_part,
		       &(struct region){ .s = s, .w = w, .begin = mine.begin, .end = mine.end });
	return ERR_OK;
}

/* --- applying experts to rows --- */

static void count_item(struct experts_room *room, int64_t expert) { room->first[expert + 1]++; }

static void clear_lists(struct experts_room *room)
{
	memset(room->first, 0, (size_t)(room->n_experts + 1) * sizeof *room->first);
}

/* After counting: first[e + 1] becomes the begin of e's part, and moves to its end as items are put. */
static void lay_out_lists(struct experts_room *room)
{
	int64_t at = 0;
	for (int64_t e = 0; e < room->n_experts; e++) {
		int64_t n = room->first[e + 1];
		room->first[e + 1] = at;
		at += n;
	}
}

static void put_item(struct experts_room *room, int64_t expert, int32_t row, float gate)
{
	int64_t at = room->first[expert + 1]++;
	room->list_row[at] = row;
	room->list_gate[at] = gate;
}

static struct weight one_expert(const struct weight *stacked, int64_t n_experts, int64_t expert)
{
	struct weight w = *stacked;
	w.rows = stacked->rows / n_experts;
	w.data = stacked->data + expert * rank_weights_part_bytes(stacked, n_experts);
	return w;
}

/* Items of an expert that are in the region's piece: their number, and the first of them. */
static int64_t expert_items(const struct region *r, int64_t expert, int64_t *first)
{
	const int64_t *list = r->s->experts->first;
	int64_t begin = list[expert] > r->first_item ? list[expert] : r->first_item;
	int64_t end = list[expert + 1] < r->end_item ? list[expert + 1] : r->end_item;
	*first = begin;
	return end > begin ? end - begin : 0;
}

/* A row that is alone with its expert is read where it is. */
static int is_read_in_place(const struct experts_room *room, int64_t n) { return room->inside && n == 1; }

/* n items of one expert, `first` and those behind it. */
static struct act_rows items_input(const struct region *r, int64_t first, int64_t n)
{
	const struct stage *s = r->s;
	const struct experts_room *room = s->experts;
	int64_t C = s->m->n_embd, blocks = act_blocks(C), at = first - r->first_item;
	if (is_read_in_place(room, n))
		return (struct act_rows){ s->h + room->list_row[first] * C, C, s->h8 + room->list_row[first] * blocks, blocks };
	return (struct act_rows){ room->gathered + at * C, C, room->gathered8 + at * blocks, blocks };
}

static int reads_int8(const struct region *r, enum slot slot) { return stage_reads_int8(&r->w->w[slot]); }

static void gather_item(const struct region *r, int64_t item)
{
	struct stage *s = r->s;
	struct experts_room *room = s->experts;
	int64_t C = s->m->n_embd, blocks = act_blocks(C), row = room->list_row[item], at = item - r->first_item;
	const float *from = room->inside ? s->h + row * C : (const void *)(r->in + (size_t)row * r->in_stride);
	struct act_block *to = room->gathered8 + at * blocks;
	if (!reads_int8(r, SLOT_EXPERT_GATE) || !reads_int8(r, SLOT_EXPERT_UP))
		memcpy(room->gathered + at * C, from, (size_t)C * sizeof *from);
	if (!reads_int8(r, SLOT_EXPERT_GATE) && !reads_int8(r, SLOT_EXPERT_UP))
		return;
	if (room->inside)      /* a token is quantised once, not for each of its experts */
		memcpy(to, s->h8 + row * blocks, (size_t)blocks * sizeof *to);
	else
		s->k->quantize(from, C, to);
}

static void gather_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct experts_room *room = r->s->experts;
	int64_t begin, end, first;
	pool_part(r->end_item - r->first_item, 1, thread, n_threads, &begin, &end);
	begin += r->first_item, end += r->first_item;
	for (int64_t e = 0; e < room->n_experts; e++) {
		int64_t n = expert_items(r, e, &first);
		for (int64_t i = first > begin ? first : begin; !is_read_in_place(room, n) && i < first + n && i < end; i++)
			gather_item(r, i);
	}
}

static void expert_up_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	struct experts_room *room = s->experts;
	int64_t begin, end, first, n, F = range_size(s->shard.expert_ffn);
	pool_part(F, PACK_BLOCK, thread, n_threads, &begin, &end);
	for (int64_t e = 0; begin < end && e < room->n_experts; e++) {
		if ((n = expert_items(r, e, &first)) == 0)
			continue;
		int64_t at = first - r->first_item;
		float *out = room->gate + at * F, *up_out = room->up + at * F;
		struct act_rows x = items_input(r, first, n);
		struct weight gate = one_expert(&r->w->w[SLOT_EXPERT_GATE], room->n_experts, e);
		struct weight up = one_expert(&r->w->w[SLOT_EXPERT_UP], room->n_experts, e);
		stage_product(s, thread, &gate, begin, end, NULL, &x, n, out, F);
		stage_product(s, thread, &up, begin, end, NULL, &x, n, up_out, F);
		for (int64_t i = 0; i < n; i++) {
			s->k->silu_mul(out + i * F + begin, up_out + i * F + begin, end - begin);
			if (reads_int8(r, SLOT_EXPERT_DOWN))
				s->k->quantize(out + i * F + begin, end - begin,
					       room->gate8 + (at + i) * act_blocks(F) + begin / PACK_BLOCK);
		}
	}
}

/* acc += columns [begin, end) of one expert's n items from `first` on. */
static void expert_down(const struct region *r, int thread, int64_t expert, int64_t first, int64_t n, int64_t begin, int64_t end)
{
	struct stage *s = r->s;
	struct experts_room *room = s->experts;
	int64_t C = s->m->n_embd, F = range_size(s->shard.expert_ffn), at = first - r->first_item;
	int64_t *bad = r->bad + thread * r->ldbad, *items_bad = room->bad + thread * room->max_rows;
	const int32_t *rows = room->list_row + first;
	struct weight down = one_expert(&r->w->w[SLOT_EXPERT_DOWN], room->n_experts, expert);
	struct act_rows x = { room->gate + at * F, F, room->gate8 + at * act_blocks(F), act_blocks(F) };
	if (n == 1) {
		stage_product_fixed(s, thread, &down, begin, end, s->m->ffn_run, room->list_gate + first, &x, 1,
				    r->acc + rows[0] * (C + 1), bad + rows[0]);
		return;
	}
	memset(items_bad, 0, (size_t)n * sizeof *items_bad);
	for (int64_t i = 0; i < n; i++)
		memset(room->part + i * (C + 1) + begin, 0, (size_t)(end - begin) * sizeof *room->part);
	stage_product_fixed(s, thread, &down, begin, end, s->m->ffn_run, room->list_gate + first, &x, n, room->part, items_bad);
	for (int64_t i = 0; i < n; i++) {
		int64_t *restrict to = r->acc + rows[i] * (C + 1);
		const int64_t *restrict part = room->part + i * (C + 1);
		for (int64_t c = begin; c < end; c++)
			to[c] = (int64_t)((uint64_t)to[c] + (uint64_t)part[c]);
		bad[rows[i]] += items_bad[i];
	}
}

static void expert_down_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	struct experts_room *room = s->experts;
	int64_t begin, end, first, n, C = s->m->n_embd;
	pool_part(C, stage_unit(&r->w->w[SLOT_EXPERT_DOWN]), thread, n_threads, &begin, &end);
	if (r->first_item == 0)
		memset(r->bad + thread * r->ldbad, 0, (size_t)r->n_acc * sizeof *r->bad);
	if (begin >= end)
		return;
	for (int64_t b = 0; r->first_item == 0 && b < r->n_acc; b++)
		memset(r->acc + b * (C + 1) + begin, 0, (size_t)(end - begin) * sizeof *r->acc);
	for (int64_t e = 0; e < room->n_experts; e++)
		if ((n = expert_items(r, e, &first)) > 0)
			expert_down(r, thread, e, first, n, begin, end);
}

/* Where the piece of the lists that begins at `first` ends: behind a whole expert if one fits. */
static int64_t piece_end(const struct experts_room *room, int64_t first)
{
	int64_t most = first + room->max_rows, end = most;
	if (room->first[room->n_experts] <= most)
		return room->first[room->n_experts];
	for (int64_t e = 1; e < room->n_experts; e++)
		if (room->first[e] > first && room->first[e] <= most)
			end = room->first[e];
	return end;
}

static int needs_gather(const struct region *r)
{
	int64_t first, n;
	for (int64_t e = 0; e < r->s->experts->n_experts; e++)
		if ((n = expert_items(r, e, &first)) > 0 && !is_read_in_place(r->s->experts, n))
			return 1;
	return 0;
}

/* acc = what this rank's experts give for the rows that the lists name. */
static void apply_experts(struct region *r)
{
	struct stage *s = r->s;
	struct experts_room *room = s->experts;
	r->end_item = 0;
	do {
		r->first_item = r->end_item;
		r->end_item = piece_end(room, r->first_item);
		if (needs_gather(r))
			stage_run_rows(s, r->end_item - r->first_item, s->m->n_embd / 2, gather_part, r);
		if (r->end_item > r->first_item)
			pool_run(s->pool, expert_up_part, r);
		pool_run(s->pool, expert_down_part, r);
	} while (r->end_item < room->first[room->n_experts]);
}

/* --- inside the tp group --- */

static enum err forward_inside(struct stage *s, const struct layer_weights *w, const float *next_norm)
{
	struct experts_room *room = s->experts;
	const struct layout *l = &s->grid->layout;
	int copies = l->tp / (l->ep * l->etp), mine = s->grid->me.tp / (l->ep * l->etp);
	struct range held = s->shard.experts;
	TRY(route_rows(s, w));
	TRY(stage_show(s, s->shows | 1u << SHOWN_CHOSEN | 1u << SHOWN_GATES));
	clear_lists(room);
	for (int pass = 0; pass < 2; pass++) {
		for (int64_t i = 0; i < s->n_rows * room->n_used; i++) {
			int64_t row = i / room->n_used, e = room->chosen[i];
			if (row % copies != mine || e < held.begin || e >= held.end)
				continue;
			if (pass == 0)
				count_item(room, e - held.begin);
			else
				put_item(room, e - held.begin, (int32_t)row, room->gates[i]);
		}
		if (pass == 0)
			lay_out_lists(room);
	}
	apply_experts(&(struct region){ .s = s, .w = w, .acc = s->acc, .n_acc = s->n_rows, .bad = s->bad,
					.ldbad = s->limits.step_tokens });
	stage_count_bad(s);
	return stage_settle(s, NULL, next_norm);
}

/* --- dispatch --- */

/* What came back for rows [begin, end), and their next norm. */
static void add_own_part(void *arg, int thread, int n_threads)
{
	struct region *r = arg;
	struct stage *s = r->s;
	int64_t begin, end, C = s->m->n_embd;
	pool_part(r->end - r->begin, 1, thread, n_threads, &begin, &end);
	for (int64_t i = begin; i < end; i++) {
		const int64_t *acc = r->acc + i * (C + 1);
		float *x = s->x + (r->begin + i) * C;
		s->k->add_fixed(x, acc, acc[C], NULL, C);
		if (r->norm)
			stage_norm_row(s, x, r->norm, r->begin + i);
	}
}

/* Dealt rows are normed as they are added; few ones are gathered first, as each rank wants all of them. */
static enum err add_own(struct stage *s, struct range own, const float *next_norm)
{
	stage_run_rows(s, range_size(own), s->m->n_embd, add_own_part,
		       &(struct region){ .s = s, .begin = own.begin, .end = own.end, .acc = s->experts->own_acc,
					 .norm = s->is_dealt ? next_norm : NULL });
	TRY(stage_gather_x(s, s->m->n_embd));
	if (!next_norm)
		return ERR_OK;
	return s->is_dealt ? stage_show(s, s->shows) : stage_norm(s, next_norm);
}

static void fill_parcel(struct stage *s, unsigned char *to, int64_t row, int owner)
{
	struct experts_room *room = s->experts;
	struct shard_model sm;
	struct parcel head = { .row = (int32_t)row };
	int64_t k = room->n_used, C = s->m->n_embd;
	int32_t *experts = (int32_t *)(void *)(to + sizeof head);
	float *gates = (float *)(void *)(experts + k);
	model_shard_model(s->m, &sm);
	for (int64_t i = row * k; i < (row + 1) * k; i++) {
		if (shard_expert_owner(&sm, &s->grid->layout, room->chosen[i]) != owner)
			continue;
		experts[head.n] = room->chosen[i];
		gates[head.n++] = room->gates[i];
	}
	memcpy(to, &head, sizeof head);
	memcpy(to + room->parcel_bytes - (size_t)C * sizeof(float), s->h + row * C, (size_t)C * sizeof(float));
}

static int row_wants(const struct stage *s, const struct shard_model *sm, int64_t row, int owner)
{
	const int32_t *chosen = s->experts->chosen + row * s->experts->n_used;
	for (int i = 0; i < s->experts->n_used; i++)
		if (shard_expert_owner(sm, &s->grid->layout, chosen[i]) == owner)
			return 1;
	return 0;
}

/* Parcels of own rows, ordered by receiver, then row. counts[receiver]; gives the number of all. */
static int64_t pack_parcels(struct stage *s, struct range own, size_t *counts)
{
	struct experts_room *room = s->experts;
	const struct layout *l = &s->grid->layout;
	struct shard_model sm;
	int64_t n = 0;
	model_shard_model(s->m, &sm);
	for (int to = 0; to < l->ep * l->etp; to++) {
		int64_t before = n;
		for (int64_t row = own.begin; row < own.end; row++)
			if (row_wants(s, &sm, row, to / l->etp))
				fill_parcel(s, room->out_parcels + (size_t)n++ * room->parcel_bytes, row, to / l->etp);
		counts[to] = (size_t)(n - before);
	}
	return n;
}

/* The lists of what this rank's experts have to do for n received parcels. */
static enum err list_parcels(struct stage *s, int64_t n)
{
	struct experts_room *room = s->experts;
	struct range held = s->shard.experts;
	clear_lists(room);
	for (int pass = 0; pass < 2; pass++) {
		for (int64_t i = 0; i < n; i++) {
			const unsigned char *p = room->in_parcels + (size_t)i * room->parcel_bytes;
			struct parcel head;
			memcpy(&head, p, sizeof head);
			const int32_t *experts = (const int32_t *)(const void *)(p + sizeof head);
			const float *gates = (const float *)(const void *)(experts + room->n_used);
			for (int32_t j = 0; j < head.n; j++) {
				if (experts[j] < held.begin || experts[j] >= held.end)
					return ERR(BUG, "a row came for expert %d, but this rank holds %lld to %lld", experts[j],
						   (long long)held.begin, (long long)held.end - 1);
				if (pass == 0)
					count_item(room, experts[j] - held.begin);
				else
					put_item(room, experts[j] - held.begin, (int32_t)i, gates[j]);
			}
		}
		if (pass == 0)
			lay_out_lists(room);
	}
	return ERR_OK;
}

static void sizes_and_offsets(const size_t *counts, int n, size_t unit, size_t *bytes, size_t *offsets)
{
	size_t at = 0;
	for (int i = 0; i < n; i++) {
		bytes[i] = counts[i] * unit;
		offsets[i] = at;
		at += bytes[i];
	}
}

/* in_acc = what this rank's experts give for n received parcels, with their counts of bad blocks. */
static void apply_to_parcels(struct stage *s, const struct layer_weights *w, int64_t n)
{
	struct experts_room *room = s->experts;
	int64_t C = s->m->n_embd;
	int n_threads = pool_threads(s->pool);
	apply_experts(&(struct region){ .s = s, .w = w, .in = room->in_parcels + room->parcel_bytes - (size_t)C * sizeof(float),
					.in_stride = room->parcel_bytes, .acc = room->in_acc, .n_acc = n, .bad = room->in_bad,
					.ldbad = room->max_rows });
	for (int64_t i = 0; i < n; i++) {
		int64_t sum = 0;
		for (int t = 0; t < n_threads; t++)
			sum += room->in_bad[t * room->max_rows + i];
		room->in_acc[i * (C + 1) + C] = sum;
	}
}

static enum err forward_dispatch(struct stage *s, const struct layer_weights *w, const float *next_norm)
{
	struct experts_room *room = s->experts;
	const struct layout *l = &s->grid->layout;
	struct comm *group = s->grid->axis[AXIS_EP];
	int n_group = l->ep * l->etp;
	int64_t C = s->m->n_embd, n_in = 0;
	size_t acc_bytes = (size_t)(C + 1) * sizeof(int64_t);
	size_t *z = room->sizes, *out_counts = z, *in_counts = z + n_group;
	size_t *out_bytes = z + 2 * n_group, *out_offsets = z + 3 * n_group;
	size_t *in_bytes = z + 4 * n_group, *in_offsets = z + 5 * n_group;
	size_t *eights = z + 6 * n_group, *eight_offsets = z + 7 * n_group;
	struct range own = range_part(s->n_rows, 1, l->tp, s->grid->me.tp);

	TRY(route_rows(s, w));
	int64_t n_out = pack_parcels(s, own, out_counts);

	for (int i = 0; i < n_group; i++)
		eights[i] = sizeof(size_t), eight_offsets[i] = (size_t)i * sizeof(size_t);
	TRY(comm_alltoall(group, out_counts, eights, eight_offsets, in_counts, eights, eight_offsets));
	for (int i = 0; i < n_group; i++)
		n_in += (int64_t)in_counts[i];
	if (n_in > room->max_rows)
		return ERR(BUG, "%lld rows came for the experts of this rank, room for %lld", (long long)n_in,
			   (long long)room->max_rows);
	sizes_and_offsets(out_counts, n_group, room->parcel_bytes, out_bytes, out_offsets);
	sizes_and_offsets(in_counts, n_group, room->parcel_bytes, in_bytes, in_offsets);
	TRY(comm_alltoall(group, room->out_parcels, out_bytes, out_offsets, room->in_parcels, in_bytes, in_offsets));

	TRY(list_parcels(s, n_in));
	apply_to_parcels(s, w, n_in);

	sizes_and_offsets(out_counts, n_group, acc_bytes, out_bytes, out_offsets);
	sizes_and_offsets(in_counts, n_group, acc_bytes, in_bytes, in_offsets);
	TRY(comm_alltoall(group, room->in_acc, in_bytes, in_offsets, room->back, out_bytes, out_offsets));

	memset(room->own_acc, 0, (size_t)range_size(own) * acc_bytes);
	for (int64_t i = 0; i < n_out; i++) {
		struct parcel head;
		memcpy(&head, room->out_parcels + (size_t)i * room->parcel_bytes, sizeof head);
		int64_t *to = room->own_acc + (head.row - own.begin) * (C + 1);
		for (int64_t c = 0; c <= C; c++)
			to[c] += room->back[i * (C + 1) + c];
	}
	return add_own(s, own, next_norm);
}

enum err experts_forward(struct stage *s, const struct layer_weights *w, const float *next_norm)
{
	return s->experts->inside ? forward_inside(s, w, next_norm) : forward_dispatch(s, w, next_norm);
}
