/* Rows of a batch, dealt to the ranks of a communicator. Every rank brings its part of every row's sums; each row has an owner,
 * which adds the parts, finishes the row, and shows what became of it to all:
 *
 *     fill dealt_sums -> dealt_bring -> of own rows: dealt_sum, and fill dealt_shown -> dealt_show -> read dealt_shown
 *
 * Ranks that share memory (comm_share_memory) read one another's sums, and what is shown, where it lies: two meetings and no
 * copies. Others move them: a reduce-scatter, and an all-gather. Results and bytes counted are the same. Every rank may fill
 * its sums again once dealt_show has returned, and what it shows once the next dealt_bring has. Between the meetings the
 * functions that are not COLLECTIVE may be called by any thread. */
#ifndef SHARDRUN_PARALLEL_DEALT_ROWS_H
#define SHARDRUN_PARALLEL_DEALT_ROWS_H

#include "parallel/comm.h"
#include "parallel/shard.h"

enum { DEALT_MOST_SHOWN = 4 };

struct dealt_sizes {
	int64_t max_rows;
	int64_t n_sums;                          /* of one row */
	size_t shown_bytes[DEALT_MOST_SHOWN];    /* of one row in each array that is shown; 0: there is none */
};

struct dealt_rows;
/* Memory of one rank, whether it is shared or not. */
uint64_t dealt_bytes(const struct dealt_sizes *sizes, int n_ranks);
/* COLLECTIVE. Where there is too little shared memory one line warns, and rows are moved. */
enum err dealt_create(struct comm *c, const struct dealt_sizes *sizes, struct dealt_rows **out);
void dealt_destroy(struct dealt_rows *d);   /* before its communicator; takes NULL */

int64_t *dealt_sums(const struct dealt_rows *d);            /* (max_rows, n_sums), this rank's */
void *dealt_shown(const struct dealt_rows *d, int array);   /* (max_rows, shown_bytes), aligned to 64 */
/* Which of n rows are this rank's. */
struct range dealt_own(const struct dealt_rows *d, int64_t n);

/* COLLECTIVE: the sums of n rows are filled. */
enum err dealt_bring(struct dealt_rows *d, int64_t n);
/* The sums (n_sums) of a row of its own over all ranks; they wrap. Where they are, or in `room` (n_sums). */
const int64_t *dealt_sum(const struct dealt_rows *d, int64_t row, int64_t *restrict room);
/* COLLECTIVE: rank r has filled rows parts[r] of the arrays of the set `arrays` (1 << array); the parts follow each other. */
enum err dealt_show(struct dealt_rows *d, unsigned arrays, const struct range *parts);

#endif
