#include "parallel/dealt_rows.h"

#include "base/log.h"
#include "base/mem.h"
#include "parallel/shared_memory.h"

#include <string.h>

enum { LINE = 64, PAGE = 4096 };

struct dealt_rows {
	struct comm *c;              /* borrowed */
	struct dealt_sizes sizes;
	struct shared_memory all_sums, all_shown;   /* of all ranks; none: `block` is this rank's */
	unsigned char *block;
	size_t rank_bytes;           /* from one rank's sums to the next one's */
	int64_t *sums, *own;         /* own: (rows of this rank, n_sums), only when rows are moved */
	int64_t own_begin;
	unsigned char *shown[DEALT_MOST_SHOWN];
	size_t *counts, *bytes, *offsets;   /* (ranks) room, so that a step allocates nothing */
};

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

static size_t sums_bytes(const struct dealt_sizes *z, int64_t rows)
{
	return round_up((size_t)(rows * z->n_sums) * sizeof(int64_t), LINE);
}

static size_t shown_bytes(const struct dealt_sizes *z)
{
	size_t bytes = 0;
	for (int i = 0; i < DEALT_MOST_SHOWN; i++)
		bytes += round_up((size_t)z->max_rows * z->shown_bytes[i], LINE);
	return bytes;
}

static int64_t most_own(const struct dealt_sizes *z, int n_ranks) { return (z->max_rows + n_ranks - 1) / n_ranks; }

uint64_t dealt_bytes(const struct dealt_sizes *z, int n_ranks)
{
	size_t shared = round_up(sums_bytes(z, z->max_rows), PAGE) + round_up(shown_bytes(z) / (size_t)n_ranks + PAGE, PAGE);
	size_t moved = sums_bytes(z, z->max_rows) + shown_bytes(z) + (n_ranks > 1 ? sums_bytes(z, most_own(z, n_ranks)) : 0);
	return (shared > moved ? shared : moved) + 3 * (size_t)n_ranks * sizeof(size_t) + sizeof(struct dealt_rows);
}

static void place_shown(struct dealt_rows *d, unsigned char *at)
{
	for (int i = 0; i < DEALT_MOST_SHOWN; i++) {
		d->shown[i] = at;
		at += round_up((size_t)d->sizes.max_rows * d->sizes.shown_bytes[i], LINE);
	}
}

static int is_shared(const struct dealt_rows *d) { return d->all_shown.at != NULL; }

/* Two files, so that each rank's sums and about the rows it will show are of its own memory. */
static enum err share(struct dealt_rows *d)
{
	static const char why[] = "(rows of a step go through it)";
	size_t own = round_up(sums_bytes(&d->sizes, d->sizes.max_rows), PAGE);
	TRY(shared_memory_map(d->c, own * (size_t)comm_size(d->c), why, &d->all_sums));
	TRY(shared_memory_map(d->c, shown_bytes(&d->sizes) + LINE, why, &d->all_shown));
	d->rank_bytes = own;
	d->sums = (int64_t *)(void *)((unsigned char *)d->all_sums.at + own * (size_t)comm_rank(d->c));
	place_shown(d, d->all_shown.at);
	return ERR_OK;
}

static enum err keep_apart(struct dealt_rows *d)
{
	size_t sums = sums_bytes(&d->sizes, d->sizes.max_rows), shown = shown_bytes(&d->sizes);
	size_t own = comm_size(d->c) > 1 ? sums_bytes(&d->sizes, most_own(&d->sizes, comm_size(d->c))) : 0;
	TRY(mem_alloc_aligned(sums + shown + own, LINE, "rows of a step", &d->block));
	d->sums = (int64_t *)(void *)d->block;
	place_shown(d, d->block + sums);
	d->own = (int64_t *)(void *)(d->block + sums + shown);
	return ERR_OK;
}

enum err dealt_create(struct comm *c, const struct dealt_sizes *sizes, struct dealt_rows **out)
{
	struct dealt_rows *d = NULL;
	size_t n = (size_t)comm_size(c);
	enum err e = MEM_NEW(1, struct dealt_rows, &d);
	if (!e)
		e = MEM_NEW(3 * n, size_t, &d->counts);
	TRY_OR(destroy, e, comm_agree(c, e));
	d->c = c;
	d->sizes = *sizes;
	d->bytes = d->counts + n;
	d->offsets = d->bytes + n;
	if (comm_shares_memory(c)) {
		e = share(d);
		if (e == ERR_LOST)
			goto destroy;
		if (e && comm_rank(c) == 0)
			LOG_RANK(WARN, "communicator %s: rows are copied, which is slower: %s", comm_name(c), err_sentence());
		if (e)
			err_clear();
	}
	if (!is_shared(d))
		TRY_OR(destroy, e, comm_agree(c, keep_apart(d)));
	*out = d;
	return ERR_OK;
destroy:
	dealt_destroy(d);
	return e;
}

void dealt_destroy(struct dealt_rows *d)
{
	if (!d)
		return;
	shared_memory_unmap(&d->all_sums);
	shared_memory_unmap(&d->all_shown);
	mem_free_aligned(d->block);
	mem_free(d->counts);
	mem_free(d);
}

int64_t *dealt_sums(const struct dealt_rows *d) { return d->sums; }

void *dealt_shown(const struct dealt_rows *d, int array) { return d->shown[array]; }

struct range dealt_own(const struct dealt_rows *d, int64_t n) { return range_part(n, 1, comm_size(d->c), comm_rank(d->c)); }

enum err dealt_bring(struct dealt_rows *d, int64_t n)
{
	int n_ranks = comm_size(d->c);
	for (int r = 0; r < n_ranks; r++)
		d->counts[r] = (size_t)(range_size(range_part(n, 1, n_ranks, r)) * d->sizes.n_sums);
	d->own_begin = dealt_own(d, n).begin;
	if (is_shared(d))
		return comm_meet_scatter_i64(d->c, d->counts);
	return n_ranks == 1 ? ERR_OK : comm_reduce_scatter_i64(d->c, d->sums, d->own, d->counts);
}

static const int64_t *sums_of(const struct dealt_rows *d, int rank, int64_t row)
{
	const unsigned char *all = d->all_sums.at;
	return (const int64_t *)(const void *)(all + d->rank_bytes * (size_t)rank) + row * d->sizes.n_sums;
}

const int64_t *dealt_sum(const struct dealt_rows *d, int64_t row, int64_t *restrict room)
{
	int64_t n = d->sizes.n_sums;
	int n_ranks = comm_size(d->c), me = comm_rank(d->c);
	if (!is_shared(d))
		return n_ranks == 1 ? d->sums + row * n : d->own + (row - d->own_begin) * n;
	memcpy(room, sums_of(d, me, row), (size_t)n * sizeof *room);
	for (int k = 1; k < n_ranks; k++) {   /* ranks begin with different ones */
		const int64_t *restrict other = sums_of(d, (me + k) % n_ranks, row);
		for (int64_t i = 0; i < n; i++)
			room[i] = (int64_t)((uint64_t)room[i] + (uint64_t)other[i]);
	}
	return room;
}

enum err dealt_show(struct dealt_rows *d, unsigned arrays, const struct range *parts)
{
	int n_ranks = comm_size(d->c);
	size_t mine = 0, all = 0;
	if (n_ranks == 1)
		return ERR_OK;
	for (int i = 0; i < DEALT_MOST_SHOWN; i++) {
		size_t row = d->sizes.shown_bytes[i];
		if (!(arrays >> i & 1))
			continue;
		mine += (size_t)range_size(parts[comm_rank(d->c)]) * row;
		for (int r = 0; r < n_ranks; r++) {
			d->bytes[r] = (size_t)range_size(parts[r]) * row;
			d->offsets[r] = (size_t)parts[r].begin * row;
			all += d->bytes[r];
		}
		if (!is_shared(d))
			TRY(comm_allgather(d->c, d->shown[i] + d->offsets[comm_rank(d->c)], d->shown[i], d->bytes, d->offsets));
	}
	return is_shared(d) ? comm_meet_gather(d->c, mine, all) : ERR_OK;
}
