/* Reading a machine in a process of its own, for input that may make a library fall over. */
#ifndef SHARDRUN_TOPOLOGY_ISOLATE_H
#define SHARDRUN_TOPOLOGY_ISOLATE_H

#include "topology/machine.h"

/* Calls read(spec, out) in a child process and takes its machine, or its error, over a pipe. A child that dies or takes
 * longer than 20 s gives ERR_USAGE that names spec. Nothing the child prints is seen. */
enum err machine_read_isolated(enum err (*read)(const char *spec, struct machine *out), const char *spec,
			       struct machine *out);

#endif
