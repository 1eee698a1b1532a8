/* How much memory the control groups of this process leave it. */
#ifndef SHARDRUN_TOPOLOGY_CGROUP_H
#define SHARDRUN_TOPOLOGY_CGROUP_H

#include <stdint.h>

/* The least limit in bytes of this process's memory cgroup and all above it, v1 or v2; UINT64_MAX: none. Files are looked
 * up below `root` ("" is the real one; tests give a directory with proc/ and sys/ in it). */
uint64_t cgroup_memory_limit(const char *root);

#endif
