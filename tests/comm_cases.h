/* What every communicator must do, whatever fills its table: run by unit/test_comm.c over threads and by
 * mpi/collectives.c over processes. A case is a body that all ranks of `c` run; it gives ERR_BUG with its line when
 * something is not as expected. Expected values are plain loops over what every rank is known to hold. */
#ifndef SHARDRUN_TESTS_COMM_CASES_H
#define SHARDRUN_TESTS_COMM_CASES_H

#include "base/mem.h"
#include "parallel/comm.h"
#include "parallel/dealt_rows.h"

#include <stdio.h>
#include <string.h>

#define WANT(condition)                                                                         \
	do {                                                                                    \
		if (!(condition))                                                               \
			return ERR(BUG, "%s:%d, rank %d of %d: %s is false", __func__, __LINE__, comm_rank(c),  \
				   comm_size(c), #condition);                                   \
	} while (0)

enum { CASE_MOST_RANKS = 64, CASE_ITEMS = 200000 };

/* Item i of rank r; so large that sums of a few wrap. */
static inline uint64_t case_value(int r, size_t i) { return UINT64_C(0x1d0f3a5b7c9e2468) * (uint64_t)(r + 1) + i * 977; }
static inline unsigned char case_byte(int from, int to, size_t i)
{
	return (unsigned char)(from * 31 + to * 7 + (int)(i % 251));
}

static enum err case_sums_of_64_bit_integers_wrap(struct comm *c)
{
	static const size_t counts[] = { 0, 1, 5, 513, 4099, CASE_ITEMS };
	uint64_t *data;
	TRY(MEM_NEW(CASE_ITEMS, uint64_t, &data));
	for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
		for (size_t i = 0; i < counts[k]; i++)
			data[i] = case_value(comm_rank(c), i);
		TRY(comm_allreduce(c, data, counts[k], COMM_I64, COMM_SUM));
		for (size_t i = 0; i < counts[k]; i++) {
			uint64_t want = 0;
			for (int r = 0; r < comm_size(c); r++)
				want += case_value(r, i);
			WANT(data[i] == want);
		}
	}
	mem_free(data);
	return ERR_OK;
}

/* Rank r holds r + 1 in the first item and -r (or its complement) in the second. */
static enum err case_every_type_and_operation_reduces(struct comm *c)
{
	int n = comm_size(c), r = comm_rank(c), sum = n * (n + 1) / 2;
	uint8_t u8[2] = { (uint8_t)(r + 1), (uint8_t)(200 - r) };
	TRY(comm_allreduce(c, u8, 2, COMM_U8, COMM_MAX));
	WANT(u8[0] == n && u8[1] == 200);
	int32_t i32[2] = { r + 1, -r };
	TRY(comm_allreduce(c, i32, 2, COMM_I32, COMM_MIN));
	WANT(i32[0] == 1 && i32[1] == 1 - n);
	int32_t top[2] = { r == n - 1 ? INT32_MAX : 1, -r };
	TRY(comm_allreduce(c, top, 2, COMM_I32, COMM_SUM));
	WANT((uint32_t)top[0] == (uint32_t)INT32_MAX + (uint32_t)(n - 1) && top[1] == n - sum);
	uint32_t u32[2] = { (uint32_t)(r + 1), UINT32_MAX - (uint32_t)r };
	TRY(comm_allreduce(c, u32, 2, COMM_U32, COMM_MAX));
	WANT(u32[0] == (uint32_t)n && u32[1] == UINT32_MAX);
	uint64_t u64[2] = { (uint64_t)r + 1, UINT64_MAX - (uint64_t)r };
	TRY(comm_allreduce(c, u64, 2, COMM_U64, COMM_MIN));
	WANT(u64[0] == 1 && u64[1] == UINT64_MAX - (uint64_t)(n - 1));
	int64_t i64[2] = { r + 1, -r };
	TRY(comm_allreduce(c, i64, 2, COMM_I64, COMM_MAX));
	WANT(i64[0] == n && i64[1] == 0);
	float f32[2] = { (float)(r + 1), 0.5f * (float)-r };   /* small halves: exact in any order */
	TRY(comm_allreduce(c, f32, 2, COMM_F32, COMM_SUM));
	WANT(f32[0] == (float)sum && f32[1] == 0.5f * (float)(n - sum));
	float most[1] = { -(float)r };
	TRY(comm_allreduce(c, most, 1, COMM_F32, COMM_MAX));
	WANT(most[0] == 0.0f);
	return ERR_OK;
}

/* Rank r's part has r % 3 * 1000 bytes: ranks 0, 3, ... have none. */
static enum err case_uneven_and_empty_parts_are_gathered(struct comm *c)
{
	size_t bytes[CASE_MOST_RANKS], offsets[CASE_MOST_RANKS], at = 5;
	unsigned char *to, mine[2000];
	for (int r = 0; r < comm_size(c); r++, at += bytes[r - 1] + 3) {
		bytes[r] = (size_t)(r % 3) * 1000;
		offsets[r] = at;
	}
	TRY(mem_alloc(at, 1, "gathered", &to));
	for (int in_place = 0; in_place < 2; in_place++) {
		unsigned char *from = in_place ? to + offsets[comm_rank(c)] : mine;
		memset(to, 0xee, at);
		for (size_t i = 0; i < bytes[comm_rank(c)]; i++)
			from[i] = case_byte(comm_rank(c), in_place, i);
		TRY(comm_allgather(c, from, to, bytes, offsets));
		for (int r = 0; r < comm_size(c); r++) {
			for (size_t i = 0; i < bytes[r]; i++)
				WANT(to[offsets[r] + i] == case_byte(r, in_place, i));
			WANT(to[offsets[r] - 1] == 0xee && to[offsets[r] + bytes[r]] == 0xee);   /* gaps stay */
		}
	}
	mem_free(to);
	return ERR_OK;
}

/* Rank r gets r % 3 * 700 items. */
static enum err case_sums_are_scattered_unevenly(struct comm *c)
{
	size_t counts[CASE_MOST_RANKS], total = 0, begin = 0;
	int64_t *data, to[1401];
	for (int r = 0; r < comm_size(c); r++) {
		counts[r] = (size_t)(r % 3) * 700;
		begin += r < comm_rank(c) ? counts[r] : 0;
		total += counts[r];
	}
	TRY(MEM_NEW(total, int64_t, &data));
	for (size_t i = 0; i < total; i++)
		data[i] = (int64_t)case_value(comm_rank(c), i);
	size_t mine = counts[comm_rank(c)];
	to[mine] = -77;
	TRY(comm_reduce_scatter_i64(c, data, to, counts));
	for (size_t i = 0; i < mine; i++) {
		uint64_t want = 0;
		for (int r = 0; r < comm_size(c); r++)
			want += case_value(r, begin + i);
		WANT((uint64_t)to[i] == want);
	}
	WANT(to[mine] == -77);
	mem_free(data);
	return ERR_OK;
}

/* Rank a sends rank b (a * 5 + b * 3) % 4 * 300 bytes: some pairs exchange nothing. */
static size_t case_pair_bytes(int from, int to) { return (size_t)((from * 5 + to * 3) % 4) * 300; }

static enum err case_all_exchange_uneven_and_empty_parts(struct comm *c)
{
	size_t out[CASE_MOST_RANKS], out_at[CASE_MOST_RANKS], in[CASE_MOST_RANKS], in_at[CASE_MOST_RANKS];
	unsigned char *from, *to;
	int n = comm_size(c), me = comm_rank(c);
	TRY(mem_alloc((size_t)n, 901, "from", &from));
	TRY(mem_alloc((size_t)n, 901, "to", &to));
	memset(to, 0xee, (size_t)n * 901);
	for (int r = 0; r < n; r++) {
		out[r] = case_pair_bytes(me, r);
		in[r] = case_pair_bytes(r, me);
		out_at[r] = in_at[r] = (size_t)r * 901;
		for (size_t i = 0; i < out[r]; i++)
			from[out_at[r] + i] = case_byte(me, r, i);
	}
	TRY(comm_alltoall(c, from, out, out_at, to, in, in_at));
	for (int r = 0; r < n; r++) {
		for (size_t i = 0; i < in[r]; i++)
			WANT(to[in_at[r] + i] == case_byte(r, me, i));
		WANT(to[in_at[r] + in[r]] == 0xee);
	}
	mem_free(from);
	mem_free(to);
	return ERR_OK;
}

static enum err case_every_root_broadcasts(struct comm *c)
{
	static const size_t sizes[] = { 0, 1, 5000, 300000 };
	unsigned char *data;
	TRY(mem_alloc(300001, 1, "data", &data));
	for (int root = 0; root < comm_size(c); root++) {
		for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
			memset(data, 0xee, 300001);
			for (size_t i = 0; comm_rank(c) == root && i < sizes[k]; i++)
				data[i] = case_byte(root, 0, i);
			TRY(comm_bcast(c, data, sizes[k], root));
			for (size_t i = 0; i < sizes[k]; i++)
				WANT(data[i] == case_byte(root, 0, i));
			WANT(data[sizes[k]] == 0xee);
		}
	}
	mem_free(data);
	return ERR_OK;
}

/* Even ranks send first, to the next rank; large messages wait for their receiver. */
static enum err case_messages_go_round_a_ring(struct comm *c)
{
	static const size_t sizes[] = { 0, 1, 4096, 4097, 300000 };
	int n = comm_size(c), me = comm_rank(c), next = (me + 1) % n, before = (me + n - 1) % n;
	unsigned char *out, *in;
	if (n == 1)
		return ERR_OK;
	TRY(mem_alloc(300001, 1, "out", &out));
	TRY(mem_alloc(300001, 1, "in", &in));
	for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
		memset(in, 0xee, 300001);
		for (size_t i = 0; i < sizes[k]; i++)
			out[i] = case_byte(me, next, i);
		if (me % 2 == 0)
			TRY(comm_send(c, next, 3, out, sizes[k]));
		TRY(comm_recv(c, before, 3, in, sizes[k]));
		if (me % 2)
			TRY(comm_send(c, next, 3, out, sizes[k]));
		for (size_t i = 0; i < sizes[k]; i++)
			WANT(in[i] == case_byte(before, me, i));
		WANT(in[sizes[k]] == 0xee);
	}
	mem_free(out);
	mem_free(in);
	return ERR_OK;
}

/* Small messages need no waiting receiver; a tag picks among them and keeps its own order. */
/* Every rank sends to every other while it receives from all: short and long ones, in the order of their tags' messages, and
 * completes them from the last to the first. Then a receiver that has too little room. */
static enum err case_transfers_overlap(struct comm *c)
{
	enum { EACH = 3, MOST = 40000 };
	static const size_t sizes[EACH] = { 0, 700, MOST };
	int n = comm_size(c), me = comm_rank(c), k = 0;
	struct comm_transfer *t;
	unsigned char *in, *out;
	TRY(MEM_NEW((size_t)(2 * n * EACH), struct comm_transfer, &t));
	TRY(MEM_NEW((size_t)(n * EACH) * MOST, unsigned char, &in));
	TRY(MEM_NEW((size_t)(n * EACH) * MOST, unsigned char, &out));
	for (int r = 0; r < n; r++)
		for (int i = 0; r != me && i < EACH; i++)
			TRY(comm_irecv(c, r, 5, in + (r * EACH + i) * MOST, MOST, &t[k++]));
	for (int r = 0; r < n; r++) {
		for (int i = 0; r != me && i < EACH; i++) {
			unsigned char *data = out + (r * EACH + i) * MOST;
			for (size_t b = 0; b < sizes[i]; b++)
				data[b] = case_byte(me, r, b + (size_t)i);
			TRY(comm_isend(c, r, 5, data, sizes[i], &t[k++]));
		}
	}
	int n_transfers = k;
	for (int i = 0; i < n_transfers / 2; i++)      /* receives; over threads they are matched as they are asked for */
		TRY(comm_complete(&t[i]));
	while (k-- > n_transfers / 2)
		TRY(comm_complete(&t[k]));
	for (int i = 0; i < n_transfers / 2; i++) {
		WANT(t[i].bytes == sizes[i % EACH]);
		for (size_t b = 0; b < t[i].bytes; b++)
			WANT(((unsigned char *)t[i].data)[b] == case_byte(t[i].peer, me, b + (size_t)(i % EACH)));
	}
	mem_free(t);
	mem_free(in);
	mem_free(out);
	return ERR_OK;
}

static enum err case_tags_choose_and_keep_order(struct comm *c)
{
	int sent[4] = { 10, 11, 20, 21 }, got[4], last = comm_size(c) - 1;
	if (last == 0)
		return ERR_OK;
	if (comm_rank(c) == 0)
		for (int i = 0; i < 4; i++)
			TRY(comm_send(c, last, sent[i] / 10, &sent[i], sizeof sent[i]));
	TRY(comm_barrier(c));
	if (comm_rank(c) == last) {
		for (int i = 0; i < 4; i++)   /* the second tag first */
			TRY(comm_recv(c, 0, i < 2 ? 2 : 1, &got[i], sizeof got[i]));
		WANT(got[0] == 20 && got[1] == 21 && got[2] == 10 && got[3] == 11);
	}
	return ERR_OK;
}

/* Colours are rank % 3, the order within one is turned round by the key; then each part is split by pairs again. */
static enum err case_splits_order_by_key_and_nest(struct comm *c)
{
	struct comm *part, *pair;
	int n = comm_size(c), me = comm_rank(c), size = (n - me % 3 + 2) / 3, place = size - 1 - me / 3;
	TRY(comm_split(c, me % 3, -me, "third", &part));
	WANT(comm_size(part) == size && comm_rank(part) == place && !strcmp(comm_name(part), "third"));
	for (int k = 0; k < size; k++)
		WANT(comm_node_of(part, k) == comm_node_of(c, me % 3 + 3 * (size - 1 - k)));
	int64_t sum = me;
	TRY(comm_allreduce(part, &sum, 1, COMM_I64, COMM_SUM));
	WANT(sum == (int64_t)size * (me % 3) + 3 * (int64_t)size * (size - 1) / 2);
	TRY(comm_split(part, place / 2, 0, "pair", &pair));   /* equal keys: order of rank */
	WANT(comm_rank(pair) == place % 2 && comm_size(pair) == (place / 2 * 2 + 1 < size ? 2 : 1));
	TRY(comm_barrier(pair));
	comm_destroy(pair);
	comm_destroy(part);
	return ERR_OK;
}

static enum err case_the_lowest_failing_rank_is_heard(struct comm *c)
{
	int n = comm_size(c), me = comm_rank(c);
	err_clear();
	WANT(comm_agree(c, ERR_OK) == ERR_OK);
	for (int first = 0; first < n; first++) {
		char want[64];
		enum err mine = me >= first ? ERR(MODEL, "rank %d found tensor %d short", me, first) : ERR_OK;
		if (me > first)
			mine = ERR(FIT, "rank %d does not fit", me);
		snprintf(want, sizeof want, "rank %d found tensor %d short", first, first);
		WANT(comm_agree(c, mine) == ERR_MODEL);
		WANT(!strcmp(err_sentence(), want) && err_last()->rank == first);
	}
	err_clear();
	WANT(comm_agree(c, ERR_OK) == ERR_OK);
	return ERR_OK;
}

static enum err case_byte_strings_of_any_size_are_gathered(struct comm *c)
{
	unsigned char mine[300], *all;
	size_t bytes = (size_t)(comm_rank(c) % 3) * 100, *offsets, at = 0;
	for (size_t i = 0; i < bytes; i++)
		mine[i] = case_byte(comm_rank(c), 1, i);
	TRY(comm_gather_bytes(c, mine, bytes, &all, &offsets));
	for (int r = 0; r < comm_size(c); r++) {
		WANT(offsets[r] == at);
		for (size_t i = 0; i < (size_t)(r % 3) * 100; i++)
			WANT(all[at + i] == case_byte(r, 1, i));
		at += (size_t)(r % 3) * 100;
	}
	WANT(offsets[comm_size(c)] == at);
	mem_free(all);
	mem_free(offsets);
	return ERR_OK;
}

static enum err case_byte_strings_of_any_size_are_broadcast(struct comm *c)
{
	int root = comm_size(c) - 1, is_root = comm_rank(c) == root;
	char text[] = "model: {path: here}";
	for (int k = 0; k < 2; k++) {
		size_t bytes = is_root ? (k ? 0 : sizeof text) : 99;
		void *data = is_root ? text : NULL;
		TRY(comm_bcast_bytes(c, &data, &bytes, root));
		WANT(bytes == (k ? 0 : sizeof text) && data && (k || !memcmp(data, text, sizeof text)));
		if (!is_root)
			mem_free(data);
	}
	return ERR_OK;
}

/* Rank r brings case_value(r, ...) for every sum; the owner of a row shows two arrays of what it has made of it. Call after call,
 * with other numbers of rows, so that one that is overwritten too early shows. */
enum { DEALT_MOST = 37, DEALT_SUMS = 67, DEALT_CALLS = 60 };

static inline uint64_t dealt_value(int rank, int call, int64_t row, int64_t i)
{
	return case_value(rank, (size_t)(call * 100003 + row * DEALT_SUMS + i));
}

static enum err case_rows_bring(struct comm *c, struct dealt_rows *d, int call, int64_t n)
{
	int64_t *sums = dealt_sums(d), room[DEALT_SUMS];
	for (int64_t i = 0; i < n * DEALT_SUMS; i++)
		sums[i] = (int64_t)dealt_value(comm_rank(c), call, i / DEALT_SUMS, i % DEALT_SUMS);
	TRY(dealt_bring(d, n));
	struct range own = dealt_own(d, n);
	for (int64_t row = own.begin; row < own.end; row++) {
		const int64_t *sum = dealt_sum(d, row, room);
		for (int64_t i = 0; i < DEALT_SUMS; i++) {
			uint64_t want = 0;
			for (int r = 0; r < comm_size(c); r++)
				want += dealt_value(r, call, row, i);
			WANT((uint64_t)sum[i] == want);
		}
		memcpy((char *)dealt_shown(d, 0) + row * DEALT_SUMS * 8, sum, DEALT_SUMS * 8);
		((int32_t *)dealt_shown(d, 2))[row] = (int32_t)(call * 1000 + row);
	}
	return ERR_OK;
}

static enum err case_rows_are_seen(struct comm *c, struct dealt_rows *d, int call, int64_t n)
{
	const uint64_t *shown = dealt_shown(d, 0);
	const int32_t *numbers = dealt_shown(d, 2);
	for (int64_t i = 0; i < n * DEALT_SUMS; i++) {
		uint64_t want = 0;
		for (int r = 0; r < comm_size(c); r++)
			want += dealt_value(r, call, i / DEALT_SUMS, i % DEALT_SUMS);
		WANT(shown[i] == want);
	}
	for (int64_t row = 0; row < n; row++)
		WANT(numbers[row] == call * 1000 + row);
	return ERR_OK;
}

static enum err case_rows_are_dealt_and_shown(struct comm *c)
{
	struct dealt_sizes sizes = { .max_rows = DEALT_MOST, .n_sums = DEALT_SUMS,
				     .shown_bytes = { [0] = DEALT_SUMS * 8, [2] = sizeof(int32_t) } };
	struct range parts[CASE_MOST_RANKS];
	struct dealt_rows *d;
	int64_t at = 0;
	TRY(dealt_create(c, &sizes, &d));
	for (int call = 0; call < DEALT_CALLS; call++) {
		int64_t n = call * 29 % (DEALT_MOST + 1);
		at = 0;
		for (int r = 0; r < comm_size(c); r++) {
			parts[r] = range_part(n, 1, comm_size(c), r);
			WANT(parts[r].begin == at);
			at = parts[r].end;
		}
		WANT(at == n && dealt_own(d, n).begin == parts[comm_rank(c)].begin);
		TRY(case_rows_bring(c, d, call, n));
		TRY(dealt_show(d, 1u << 0 | 1u << 2, parts));
		TRY(case_rows_are_seen(c, d, call, n));
	}
	comm_reset_stats(c);   /* what a rank hands in: the rows of others, then what it shows of its own */
	TRY(case_rows_bring(c, d, 0, DEALT_MOST));
	TRY(dealt_show(d, 1u << 2, parts));
	int64_t own = range_size(dealt_own(d, DEALT_MOST)), shown = range_size(parts[comm_rank(c)]);
	WANT(comm_stats(c)->bytes == (uint64_t)(comm_size(c) == 1 ? 0 : (DEALT_MOST - own) * DEALT_SUMS * 8 + shown * 4));
	dealt_destroy(d);
	return ERR_OK;
}

struct comm_case { const char *name; enum err (*run)(struct comm *c); };
#define COMM_CASE(name) { #name, case_##name }
static const struct comm_case comm_cases[] = {
	COMM_CASE(sums_of_64_bit_integers_wrap),
	COMM_CASE(every_type_and_operation_reduces),
	COMM_CASE(uneven_and_empty_parts_are_gathered),
	COMM_CASE(sums_are_scattered_unevenly),
	COMM_CASE(all_exchange_uneven_and_empty_parts),
	COMM_CASE(every_root_broadcasts),
	COMM_CASE(messages_go_round_a_ring),
	COMM_CASE(transfers_overlap),
	COMM_CASE(tags_choose_and_keep_order),
	COMM_CASE(splits_order_by_key_and_nest),
	COMM_CASE(the_lowest_failing_rank_is_heard),
	COMM_CASE(byte_strings_of_any_size_are_gathered),
	COMM_CASE(byte_strings_of_any_size_are_broadcast),
	COMM_CASE(rows_are_dealt_and_shown),
};
enum { N_COMM_CASES = sizeof comm_cases / sizeof comm_cases[0] };

#endif
