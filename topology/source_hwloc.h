/* What the sources that use hwloc share. Only topology/source_*.c include this. */
#ifndef SHARDRUN_TOPOLOGY_SOURCE_HWLOC_H
#define SHARDRUN_TOPOLOGY_SOURCE_HWLOC_H

#include "topology/machine.h"

#include <hwloc.h>

/* A topology that is not loaded yet, with I/O devices kept and hwloc's own messages switched off. */
enum err hwloc_open_topology(hwloc_topology_t *out);
/* Fills cores, NUMA nodes, caches, memory, devices, links and the names that the topology knows. usable: the OS CPUs this
 * process may run on, NULL: all. `name` is for sentences. On error *m may hold arrays: machine_free. */
enum err hwloc_to_machine(hwloc_topology_t t, hwloc_const_bitmap_t usable, const char *name, struct machine *m);
/* A text from outside into room[capacity]: cut to fit, without blanks around it, control characters as '?'. */
void machine_set_text(char *room, size_t capacity, const char *text);
/* Islands: devices that are linked, directly or over others; each other device is its own. */
void machine_find_islands(struct machine *m);

#endif
