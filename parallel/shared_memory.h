/* Memory that the ranks of a node share: a file in /dev/shm that has no name any more once all have mapped it, so nothing
 * is left of it whoever dies when. Not MPI_Win_allocate_shared: that does not tell that /dev/shm is full, a rank learns
 * it by SIGBUS, and its end is a collective call, which a rank that gives up alone could not make. */
#ifndef SHARDRUN_PARALLEL_SHARED_MEMORY_H
#define SHARDRUN_PARALLEL_SHARED_MEMORY_H

#include "parallel/comm.h"

struct shared_memory {
	void *at;          /* NULL: none */
	size_t bytes;
};

/* Maps `bytes`, zeroed, in all ranks of `node`, or in none. `why` stands in an error's sentence: "(ranks ... through it)".
 * COLLECTIVE */
enum err shared_memory_map(struct comm *node, size_t bytes, const char *why, struct shared_memory *out);
void shared_memory_unmap(struct shared_memory *m);   /* not collective; none is fine */

#endif
