/* The items of a reduction: how large they are, and how two become one. */
#ifndef SHARDRUN_PARALLEL_COMM_ITEMS_H
#define SHARDRUN_PARALLEL_COMM_ITEMS_H

#include "parallel/comm.h"

size_t comm_type_bytes(enum comm_type type);
/* to[i] = to[i] op from[i]. SUM of integers wraps. */
void comm_combine(void *to, const void *from, size_t n, enum comm_type type, enum comm_op op);

#endif
