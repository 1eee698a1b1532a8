#include "runtime/load.h"

#include "base/mem.h"
#include "runtime/pack.h"

#include <string.h>

enum { ALIGN = 64, STAGING_BYTES = 8 << 20 };

struct loader {
	const struct model *m;
	struct weights *w;
	const struct shard *s;
	enum arithmetic arithmetic;
	struct pool *pool;
	struct rank_weights *out;
	uint64_t placed_bytes;         /* of out->block */
	unsigned char *staging;
	void (*progress)(void *arg, uint64_t done_bytes);
	void *progress_arg;
	uint64_t read_before;
};

/* The router decides who works, not how much: it stays in float. An embedding is looked up, and packed only when it is the
 * head as well. */
static enum pack_form form_of(const struct model *m, const struct shard *s, const struct arch_tensor *row, enum wtype type,
			      enum arithmetic a)
{
	if (a == ARITHMETIC_F32 || row->slot == SLOT_ROUTER)
		return PACK_ROWS;
	if (row->slot == SLOT_EMBED && !(m->tied_embeddings && s->last_stage))
		return PACK_ROWS;
	return pack_form_of(type);
}

int64_t rank_weights_part_bytes(const struct weight *w, int64_t parts)
{
	int64_t rows = parts ? w->rows / parts : 0;
	return w->form == PACK_ROWS ? rows * w->row_bytes : pack_bytes(w->type, rows, w->cols);
}

/* A row of the table at a layer: the slice of it that this rank holds, as a matrix without data. */
static enum err plan_matrix(const struct model *m, const struct weights *w, const struct shard *s,
			    const struct arch_tensor *row, int64_t layer, enum arithmetic a, struct weight *out, int64_t *n_parts)
{
	struct range rows, cols;
	int stacked;
	TRY(model_slice(m, w, row, s, layer, &rows, &cols));
	const struct tensor_info *t = model_tensor(m, w, row, layer, row->per_expert ? s->experts.begin : -1, &stacked);
	if (!t)
		return ERR(BUG, "layer %lld has no tensor %s", (long long)layer, row->hf);
	*n_parts = row->per_expert ? range_size(s->experts) : 1;
	*out = (struct weight){ .type = t->type, .rows = *n_parts * range_size(rows), .cols = range_size(cols),
				.row_bytes = wtype_row_bytes(t->type, range_size(cols)),
				.form = form_of(m, s, row, t->type, a) };
	return ERR_OK;
}

static int is_vector(const struct arch_tensor *row) { return row->rows == SIZE_1; }

/* Calls each(arg, row, layer) for everything that the shard holds; layer -1 for the model's own tensors. */
static enum err for_each(const struct model *m, const struct shard *s,
			 enum err (*each)(void *arg, const struct arch_tensor *row, int64_t layer), void *arg)
{
	for (const struct arch_tensor *row = m->arch->tensors; row->slot != SLOT_COUNT; row++) {
		if (!model_row_wanted(m, row, s))
			continue;
		int64_t begin = row->per_layer ? s->layers.begin : -1, end = row->per_layer ? s->layers.end : 0;
		for (int64_t layer = begin; layer < end; layer++)
			TRY(each(arg, row, layer));
	}
	return ERR_OK;
}

struct sizing { const struct model *m; const struct weights *w; const struct shard *s; enum arithmetic a; uint64_t bytes; };

static enum err add_size(void *arg, const struct arch_tensor *row, int64_t layer)
{
	struct sizing *z = arg;
	struct weight shape;
	int64_t parts;
	if (is_vector(row))
		return ERR_OK;
	TRY(plan_matrix(z->m, z->w, z->s, row, layer, z->a, &shape, &parts));
	z->bytes += size_round_up((uint64_t)(parts * rank_weights_part_bytes(&shape, parts)), ALIGN);
	return ERR_OK;
}

uint64_t rank_weights_bytes(const struct model *m, const struct weights *w, const struct shard *s, enum arithmetic a)
{
	struct sizing z = { m, w, s, a, 0 };
	return for_each(m, s, add_size, &z) ? 0 : z.bytes;
}

/* --- reading --- */

struct placing { const struct weight *to; const unsigned char *from; int64_t first, n; };

/* Thread t places those of rows first .. first+n-1 that it owns among all of the matrix. */
static void place_rows(void *arg, int thread, int n_threads)
{
	struct placing *p = arg;
	int64_t begin, end;
	pool_part(p->to->rows, p->to->form == PACK_ROWS ? 1 : PANEL_ROWS, thread, n_threads, &begin, &end);
	if (begin < p->first)
		begin = p->first;
	if (end > p->first + p->n)
		end = p->first + p->n;
	if (begin >= end)
		return;
	const unsigned char *from = p->from + (begin - p->first) * p->to->row_bytes;
	if (p->to->form == PACK_ROWS)
		memcpy(p->to->data + begin * p->to->row_bytes, from, (size_t)((end - begin) * p->to->row_bytes));
	else
		pack_rows(p->to, begin, end - begin, from);
}

/* Rows [rows) x columns [cols) of a tensor, whose row 0 is at byte `base`, to all rows of `to`. */
static enum err read_rows(struct loader *l, const struct tensor_info *t, uint64_t base, int64_t file_cols,
			  struct range rows, struct range cols, const struct weight *to)
{
	int64_t file_row = wtype_row_bytes(t->type, file_cols), skip = wtype_row_bytes(t->type, cols.begin);
	int64_t at_once = STAGING_BYTES / (to->row_bytes > 0 ? to->row_bytes : 1);
	if (at_once < 1)
		return ERR(MODEL, "tensor %s: a row of %lld bytes is longer than %d", t->name, (long long)to->row_bytes, STAGING_BYTES);
	for (int64_t r = rows.begin; r < rows.end; r += at_once) {
		int64_t n = rows.end - r < at_once ? rows.end - r : at_once;
		if (to->row_bytes == file_row) {
			TRY(weights_read(l->w, t, base + (uint64_t)(r * file_row), l->staging, (uint64_t)(n * file_row)));
		} else {
			for (int64_t i = 0; i < n; i++)
				TRY(weights_read(l->w, t, base + (uint64_t)((r + i) * file_row + skip),
						 l->staging + i * to->row_bytes, (uint64_t)to->row_bytes));
		}
		struct placing p = { to, l->staging, r - rows.begin, n };
		pool_run(l->pool, place_rows, &p);
		if (l->progress)
			l->progress(l->progress_arg, weights_read_bytes(l->w) - l->read_before);
	}
	return ERR_OK;
}

static enum err read_matrix(struct loader *l, const struct arch_tensor *row, int64_t layer, struct weight *out)
{
	struct range rows, cols;
	int64_t parts;
	TRY(plan_matrix(l->m, l->w, l->s, row, layer, l->arithmetic, out, &parts));
	TRY(model_slice(l->m, l->w, row, l->s, layer, &rows, &cols));
	out->data = l->out->block + l->placed_bytes;
	int64_t part_bytes = rank_weights_part_bytes(out, parts);
	l->placed_bytes += size_round_up((uint64_t)(parts * part_bytes), ALIGN);
	for (int64_t p = 0; p < parts; p++) {
		int stacked = 0;
		int64_t expert = row->per_expert ? l->s->experts.begin + p : -1;
		const struct tensor_info *t = model_tensor(l->m, l->w, row, layer, expert, &stacked);
		if (!t || t->type != out->type)
			return ERR(BUG, "%s: layer %lld, expert %lld is not as described", row->hf, (long long)layer, (long long)expert);
		int64_t file_cols = model_size(l->m, row->cols), file_rows = model_size(l->m, row->rows);
		uint64_t base = stacked ? (uint64_t)expert * (uint64_t)(file_rows * wtype_row_bytes(t->type, file_cols)) : 0;
		struct weight part = *out;
		part.rows = range_size(rows);
		part.data = out->data + p * part_bytes;
		TRY(read_rows(l, t, base, file_cols, rows, cols, &part));
	}
	return ERR_OK;
}

/* A vector, widened to float. The slice is of its columns. */
static enum err read_vector(struct loader *l, const struct arch_tensor *row, int64_t layer, float **out)
{
	struct range rows, cols;
	int stacked;
	TRY(model_slice(l->m, l->w, row, l->s, layer, &rows, &cols));
	const struct tensor_info *t = model_tensor(l->m, l->w, row, layer, -1, &stacked);
	const struct wtype_info *type = &wtypes[t->type];
	int64_t n = range_size(cols);
	if (type->block != 1)
		return ERR(MODEL, "tensor %s: a vector must be F32, F16 or BF16, found %s", t->name, type->name);
	if (n * type->block_bytes > STAGING_BYTES)
		return ERR(MODEL, "tensor %s: a vector of %lld items is too long", t->name, (long long)n);
	TRY(ARENA_NEW(l->out->arena, (size_t)n, float, out));
	TRY(weights_read(l->w, t, (uint64_t)(cols.begin * type->block_bytes), l->staging, (uint64_t)(n * type->block_bytes)));
	type->widen(l->staging, *out, n);
	return ERR_OK;
}

static enum err read_one(void *arg, const struct arch_tensor *row, int64_t layer)
{
	struct loader *l = arg;
	struct rank_weights *o = l->out;
	if (row->slot == SLOT_EMBED)
		return read_matrix(l, row, layer, &o->embed);
	if (row->slot == SLOT_HEAD)
		return read_matrix(l, row, layer, &o->head);
	if (row->slot == SLOT_FINAL_NORM)
		return read_vector(l, row, layer, &o->final_norm);
	struct layer_weights *to = &o->layers[layer - l->s->layers.begin];
	if (is_vector(row))
		return read_vector(l, row, layer, &to->vector[row->slot]);
	return read_matrix(l, row, layer, &to->w[row->slot]);
}

static enum err read_rope_factors(struct loader *l)
{
	const struct tensor_info *t = l->m->rope_factors;
	int64_t n = l->m->n_head_dim / 2;
	if (!t)
		return ERR_OK;
	TRY(ARENA_NEW(l->out->arena, (size_t)n, float, &l->out->rope_factors));
	return weights_read(l->w, t, 0, l->out->rope_factors, (uint64_t)n * sizeof(float));
}

enum err rank_weights_load(const struct model *m, struct weights *w, const struct shard *s, enum arithmetic a, struct pool *pool,
			   void (*progress)(void *arg, uint64_t done_bytes), void *arg, struct rank_weights **out)
{
	struct loader l = { .m = m, .w = w, .s = s, .arithmetic = a, .pool = pool, .progress = progress, .progress_arg = arg,
			    .read_before = weights_read_bytes(w) };
	enum err e;
	TRY(MEM_NEW(1, struct rank_weights, &l.out));
	l.out->block_bytes = rank_weights_bytes(m, w, s, a);
	TRY_OR(destroy, e, arena_create("vectors", 1 << 16, &l.out->arena));
	TRY_OR(destroy, e, ARENA_NEW(l.out->arena, (size_t)range_size(s->layers), struct layer_weights, &l.out->layers));
	TRY_OR(destroy, e, mem_alloc_aligned(l.out->block_bytes, 4096, "weights", &l.out->block));
	TRY_OR(destroy, e, mem_alloc_aligned(STAGING_BYTES, 4096, "staging", &l.staging));
	TRY_OR(destroy, e, for_each(m, s, read_one, &l));
	TRY_OR(destroy, e, read_rope_factors(&l));
	if (s->last_stage && m->tied_embeddings)
		l.out->head = l.out->embed;
	l.out->read_bytes = weights_read_bytes(w) - l.read_before;
	mem_free_aligned(l.staging);
	*out = l.out;
	return ERR_OK;
destroy:
	mem_free_aligned(l.staging);
	rank_weights_destroy(l.out);
	return e;
}

void rank_weights_destroy(struct rank_weights *r)
{
	if (!r)
		return;
	mem_free_aligned(r->block);
	arena_destroy(r->arena);
	mem_free(r);
}
