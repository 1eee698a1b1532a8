/* What a model is, checked against the tensors that are there.
 *
 * model_describe reads the numbers (model_config.c or model_gguf.c), then walks the architecture's table: every tensor of
 * it must be present, with the shape that the numbers give. After that the loader, the shard rules and the memory
 * estimates walk the same table and need no checks of their own. Tensors that the table does not name are ignored.
 *
 * The runs of the fixed-point sums (head_run, ffn_run) follow from the numbers and from the blocks of the tensors that are
 * cut along K, never from a layout. */
#include "runtime/model.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/gguf.h"
#include "runtime/model_impl.h"
#include "runtime/printable.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 160, CONFIG_MAX_BYTES = 4 << 20,
       ACTIVATION_BLOCK = 32,   /* of activations as int8: a run ends on it in every arithmetic */
       FFN_RUNS = 16,           /* about so many per layer; half of them where they would be narrower than this, */
       FFN_NARROW_RUN = 128 };  /* since each costs as much as 48 columns do */

/* ---- numbers ---- */

int64_t model_size(const struct model *m, enum size_name s)
{
	switch (s) {
	case SIZE_1: return 1;
	case SIZE_EMBD: return m->n_embd;
	case SIZE_HEADS: return m->n_head * m->n_head_dim;
	case SIZE_KV_HEADS: return m->n_kv_head * m->n_head_dim;
	case SIZE_FFN: return m->n_ffn;
	case SIZE_EXPERTS: return m->n_expert;
	case SIZE_VOCAB: return m->n_vocab;
	}
	return 0;
}

static const char *size_text(enum size_name s)
{
	static const char *const texts[] = {
		[SIZE_1] = "1", [SIZE_EMBD] = "hidden size", [SIZE_HEADS] = "heads x head size",
		[SIZE_KV_HEADS] = "kv heads x head size", [SIZE_FFN] = "FFN columns", [SIZE_EXPERTS] = "experts",
		[SIZE_VOCAB] = "vocabulary size",
	};
	return texts[s];
}

void model_shard_model(const struct model *m, struct shard_model *out)
{
	*out = (struct shard_model){
		.n_layers = m->n_layers, .n_embd = m->n_embd, .n_head = m->n_head, .n_kv_head = m->n_kv_head, .n_ffn = m->n_ffn,
		.n_expert = m->n_expert, .n_vocab = m->n_vocab, .head_run = m->head_run, .ffn_run = m->ffn_run,
	};
}

int model_arch_has_experts(const struct arch *a)
{
	for (const struct arch_tensor *row = a->tensors; row->slot != SLOT_COUNT; row++)
		if (row->per_expert)
			return 1;
	return 0;
}

enum err model_check_numbers(const char *name, const struct model *m)
{
	if (m->n_kv_head > m->n_head || m->n_head % m->n_kv_head)
		return ERR(MODEL, "%s: the %" PRId64 " attention heads must be a multiple of the %" PRId64
			   " key/value heads", name, m->n_head, m->n_kv_head);
	if (m->n_head_dim % 2 || m->n_head_dim > MODEL_MAX_HEAD_DIM)
		return ERR(MODEL, "%s: the head size is %" PRId64 ", but must be even and at most %" PRId64, name,
			   m->n_head_dim, MODEL_MAX_HEAD_DIM);
	if (m->n_expert_used > m->n_expert)
		return ERR(MODEL, "%s: a token cannot use %" PRId64 " of %" PRId64 " experts", name, m->n_expert_used,
			   m->n_expert);
	return ERR_OK;
}

enum err model_add_eos(const char *name, const char *key, int64_t id, struct model *m)
{
	int room = (int)(sizeof m->eos / sizeof m->eos[0]);
	if (id < 0 || id >= m->n_vocab)
		return ERR(MODEL, "%s: \"%s\" holds %" PRId64 ", but must be 0 to %" PRId64, name, key, id, m->n_vocab - 1);
	for (int i = 0; i < m->n_eos; i++)
		if (m->eos[i] == id)
			return ERR_OK;
	if (m->n_eos == room)
		return ERR(MODEL, "%s: \"%s\" adds a token beyond the %d that may end a text", name, key, room);
	m->eos[m->n_eos++] = (int32_t)id;
	return ERR_OK;
}

/* ---- tensors ---- */

/* {l} and {e} in a pattern become numbers. False when it does not fit. */
static int fill_name(const char *pattern, int64_t layer, int64_t expert, char room[NAME_BYTES])
{
	size_t used = 0;
	for (const char *p = pattern; *p; ) {
		int is_layer = strncmp(p, "{l}", 3) == 0, is_expert = strncmp(p, "{e}", 3) == 0, n = 1;
		if (is_layer || is_expert)
			n = snprintf(room + used, NAME_BYTES - used, "%" PRId64, is_layer ? layer : expert);
		else
			room[used] = *p;
		if (n < 0 || used + (size_t)n + 1 > NAME_BYTES)
			return 0;
		used += (size_t)n;
		p += is_layer || is_expert ? 3 : 1;
	}
	room[used] = '\0';
	return 1;
}

static const struct tensor_info *find(const struct weights *w, const char *pattern, int64_t layer, int64_t expert)
{
	char name[NAME_BYTES];
	return pattern && fill_name(pattern, layer, expert, name) ? weights_find(w, name) : NULL;
}

static int is_gguf(const struct weights *w) { return strcmp(weights_format_name(w), "gguf") == 0; }

const struct tensor_info *model_tensor(const struct model *m, const struct weights *w, const struct arch_tensor *row,
				       int64_t layer, int64_t expert, int *stacked)
{
	(void)m;
	*stacked = 0;
	if (expert < 0)
		expert = 0;
	if (!is_gguf(w))
		return find(w, row->hf, layer, expert);
	const struct tensor_info *t = find(w, row->gguf, layer, expert);
	*stacked = t && row->per_expert && !strstr(row->gguf, "{e}");
	return t ? t : find(w, row->gguf_split, layer, expert);
}

/* Where the numbers came from, for sentences. */
static const char *source_of(const struct weights *w)
{
	return is_gguf(w) ? weights_directory(w) : weights_config_path(w);
}

static enum err missing(const struct model *m, const struct weights *w, const struct arch_tensor *row, int64_t layer,
			int64_t expert)
{
	char name[NAME_BYTES] = "";
	fill_name(is_gguf(w) ? row->gguf : row->hf, layer, expert, name);
	return ERR(MODEL, "%s: tensor %s is missing, which a %s model of %" PRId64 " layers%s must have",
		   weights_directory(w), name, m->arch->name, m->n_layers,
		   row->slot == SLOT_HEAD ? " with tie_word_embeddings false" : "");
}

static void shape_text(const struct tensor_info *t, char *room, size_t capacity)
{
	size_t used = 0;
	room[0] = '\0';
	for (int i = 0; i < t->n_dims && used < capacity; i++) {
		int n = snprintf(room + used, capacity - used, "%s%" PRId64, i ? " x " : "", t->dims[i]);
		used += n > 0 ? (size_t)n : 0;
	}
}

static enum err check_shape(const struct model *m, const struct weights *w, const struct arch_tensor *row,
			    const struct tensor_info *t, int stacked)
{
	char found[100];
	const char *name = t->name;   /* one that the table asked for, so fit to be printed */
	const int64_t want[3] = { m->n_expert, model_size(m, row->rows), model_size(m, row->cols) };
	int first = stacked ? 0 : row->rows == SIZE_1 ? 2 : 1;
	if (t->n_dims == 3 - first && memcmp(t->dims, want + first, (size_t)t->n_dims * sizeof want[0]) == 0) {
		if (row->rows == SIZE_1 && wtypes[t->type].block != 1)
			return ERR(MODEL, "%s: tensor %s is %s, but a vector must be F32, F16 or BF16", weights_directory(w), name,
				   wtypes[t->type].name);
		return ERR_OK;
	}
	shape_text(t, found, sizeof found);
	if (first == 2)
		return ERR(MODEL, "tensor %s is %s, but by %s must be %" PRId64 " (%s)", name, found, source_of(w), want[2],
			   size_text(row->cols));
	if (first == 1)
		return ERR(MODEL, "tensor %s is %s, but by %s must be %" PRId64 " x %" PRId64 " (%s x %s)", name, found,
			   source_of(w), want[1], want[2], size_text(row->rows), size_text(row->cols));
	return ERR(MODEL, "tensor %s is %s, but by %s must be %" PRId64 " x %" PRId64 " x %" PRId64 " (experts x %s x %s)",
		   name, found, source_of(w), want[0], want[1], want[2], size_text(row->rows), size_text(row->cols));
}

static int present(const struct model *m, const struct arch_tensor *row) { return !row->present || row->present(m); }

static int64_t gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/* The blocks that the two tensors cut along K must end on: the least common multiple over layers and experts. */
struct blocks { int64_t heads, ffn; };

static enum err check_row(const struct model *m, const struct weights *w, const struct arch_tensor *row, struct blocks *b)
{
	int64_t n_layers = row->per_layer ? m->n_layers : 1;
	int64_t *block = row->cut_cols == SHARD_HEADS ? &b->heads :
			 row->cut_cols == SHARD_FFN || row->cut_cols == SHARD_EXPERT_FFN ? &b->ffn : NULL;
	for (int64_t l = 0; l < n_layers; l++) {
		int64_t n_experts = row->per_expert ? m->n_expert : 1;
		enum wtype type = WTYPE_F32;     /* of the layer's first expert */
		for (int64_t e = 0; e < n_experts; e++) {
			int stacked;
			const struct tensor_info *t = model_tensor(m, w, row, l, e, &stacked);
			if (!t)
				return missing(m, w, row, l, e);
			TRY(check_shape(m, w, row, t, stacked));
			if (e > 0 && t->type != type)
				return ERR(MODEL, "%s: tensor %s is %s, but must be %s as that of expert 0", weights_directory(w),
					   t->name, wtypes[t->type].name, wtypes[type].name);
			type = t->type;
			if (block && row->rows != SIZE_1)
				*block = *block / gcd(*block, wtypes[t->type].block) * wtypes[t->type].block;
			if (stacked)
				break;
		}
	}
	return ERR_OK;
}

static enum err check_tensors(const struct weights *w, struct model *m)
{
	struct blocks b = { ACTIVATION_BLOCK, ACTIVATION_BLOCK };
	for (const struct arch_tensor *row = m->arch->tensors; row->slot != SLOT_COUNT; row++)
		if (present(m, row))
			TRY(check_row(m, w, row, &b));
	m->head_run = b.heads / gcd(b.heads, m->n_head_dim);
	if (m->head_run > m->n_head)
		m->head_run = m->n_head;
	int64_t n_runs = m->n_ffn < FFN_RUNS * FFN_NARROW_RUN ? FFN_RUNS / 2 : FFN_RUNS;
	m->ffn_run = (int64_t)size_round_up((uint64_t)((m->n_ffn + n_runs - 1) / n_runs), (uint64_t)b.ffn);
	if (m->ffn_run > m->n_ffn)
		m->ffn_run = m->n_ffn;
	return ERR_OK;
}

/* ---- where the numbers come from ---- */

static enum err read_text(const char *path, struct bytes *text)
{
	enum err e = file_read_all(path, CONFIG_MAX_BYTES, text);
	if (e == ERR_IO)
		return ERR(MODEL, "%s", err_sentence());
	return e;
}

static enum err describe_config(struct weights *w, struct model *m)
{
	const char *path = weights_config_path(w);
	char generation[sizeof ((struct file *)0)->path];
	struct bytes text = { 0 };
	enum err e;
	if (!path[0] || !file_exists(path))
		return ERR(MODEL, "%s: there is no config.json beside the weights", weights_directory(w));
	TRY_OR(free_text, e, read_text(path, &text));
	TRY_OR(free_text, e, model_from_config(path, bytes_text(&text), text.size, m));
	TRY_OR(free_text, e, file_join(weights_directory(w), "generation_config.json", generation, sizeof generation));
	if (file_exists(generation)) {
		TRY_OR(free_text, e, read_text(generation, &text));
		TRY_OR(free_text, e, model_add_generation_config(generation, bytes_text(&text), text.size, m));
	}
free_text:
	bytes_free(&text);
	return e;
}

/* GGUF does not say what the tensors tell: a head of its own, biases, divided rope frequencies. */
static enum err describe_gguf(struct weights *w, struct model *m)
{
	TRY(model_from_gguf(weights_gguf(w), m));
	m->tied_embeddings = 1;
	for (const struct arch_tensor *row = m->arch->tensors; row->slot != SLOT_COUNT; row++) {
		int stacked;
		if (!row->present || !model_tensor(m, w, row, 0, 0, &stacked))
			continue;
		switch (row->slot) {
		case SLOT_HEAD: m->tied_embeddings = 0; break;
		case SLOT_Q_BIAS: case SLOT_K_BIAS: case SLOT_V_BIAS: m->attention_bias = 1; break;
		case SLOT_O_BIAS: m->attention_out_bias = 1; break;
		case SLOT_GATE_BIAS: case SLOT_UP_BIAS: case SLOT_DOWN_BIAS: m->mlp_bias = 1; break;
		default: break;
		}
	}
	const struct tensor_info *t = weights_find(w, "rope_freqs.weight");
	if (t && (t->type != WTYPE_F32 || t->n_dims != 1 || t->dims[0] != m->n_head_dim / 2))
		return ERR(MODEL, "%s: tensor rope_freqs.weight is %" PRId64 " %s in %d dimensions, but must be a vector of %"
			   PRId64 " F32, half a head", weights_directory(w), t->dims[0], wtypes[t->type].name, t->n_dims, m->n_head_dim / 2);
	m->rope_factors = t;
	return ERR_OK;
}

/* The last part of a path, without slashes at its end. */
static void name_by_path(const char *path, struct model *m)
{
	size_t end = strlen(path), begin;
	while (end > 1 && path[end - 1] == '/')
		end--;
	for (begin = end; begin > 0 && path[begin - 1] != '/'; )
		begin--;
	printable(m->name, path + begin, end - begin);
}

enum err model_describe(struct weights *w, struct model *out)
{
	struct model m;
	TRY(weights_gguf(w) ? describe_gguf(w, &m) : describe_config(w, &m));
	TRY(check_tensors(w, &m));
	if (!m.name[0])
		name_by_path(weights_directory(w), &m);
	*out = m;
	return ERR_OK;
}

/* ---- parts ---- */

int model_row_wanted(const struct model *m, const struct arch_tensor *row, const struct shard *s)
{
	if (!present(m, row))
		return 0;
	if (row->per_layer)
		return range_size(s->layers) > 0;
	if (row->slot == SLOT_EMBED)
		return s->first_stage || (m->tied_embeddings && s->last_stage);
	return s->last_stage;
}

/* Heads are counted in heads, all else in items. */
static int64_t scale_of(const struct model *m, enum shard_dim cut)
{
	return cut == SHARD_HEADS || cut == SHARD_KV_HEADS ? m->n_head_dim : 1;
}

enum err model_slice(const struct model *m, const struct weights *w, const struct arch_tensor *row, const struct shard *s,
		     int64_t layer, struct range *rows, struct range *cols)
{
	int stacked;
	int64_t expert = range_size(s->experts) > 0 ? s->experts.begin : 0;
	const struct tensor_info *t = model_tensor(m, w, row, layer, expert, &stacked);
	if (!t)
		return missing(m, w, row, layer, expert);
	int64_t size = model_size(m, row->cols), block = wtypes[t->type].block;
	struct range r = shard_dim_range(s, row->cut_rows, model_size(m, row->rows), scale_of(m, row->cut_rows));
	struct range c = shard_dim_range(s, row->cut_cols, size, scale_of(m, row->cut_cols));
	if (row->cut_cols == SHARD_HEADS && row->rows != SIZE_1 && s->gather_attn)
		r = s->attn_out, c = (struct range){ 0, size };
	if (row->cut_cols == SHARD_FFN && row->rows != SIZE_1 && s->gather_ffn)
		r = s->ffn_out, c = (struct range){ 0, size };
	if (c.begin % block || c.end % block)
		return ERR(BUG, "tensor %s is cut at columns %" PRId64 " to %" PRId64 ", not on blocks of %" PRId64, t->name,
			   c.begin, c.end, block);
	*rows = r;
	*cols = c;
	return ERR_OK;
}

uint64_t model_shard_bytes(const struct model *m, const struct weights *w, const struct shard *s)
{
	uint64_t bytes = m->rope_factors ? m->rope_factors->bytes : 0;   /* every rank rotates its heads */
	for (const struct arch_tensor *row = m->arch->tensors; row->slot != SLOT_COUNT; row++) {
		if (!model_row_wanted(m, row, s))
			continue;
		int64_t first = row->per_layer ? s->layers.begin : 0, last = row->per_layer ? s->layers.end : 1;
		struct range experts = row->per_expert ? s->experts : (struct range){ 0, 1 };
		for (int64_t l = first; l < last; l++)
			for (int64_t e = experts.begin; e < experts.end; e++) {
				int stacked;
				struct range rows, cols;
				const struct tensor_info *t = model_tensor(m, w, row, l, e, &stacked);
				if (t && !model_slice(m, w, row, s, l, &rows, &cols))
					bytes += (uint64_t)range_size(rows) *
						 (uint64_t)wtype_row_bytes(t->type, range_size(cols));
			}
	}
	return bytes;
}
