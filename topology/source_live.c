/* The machine this process runs on. All its cores are read, also those the process may not use, so that the ranks of a
 * node see the same cores under the same numbers however each is bound; `allowed` tells them apart. */
#include "topology/cgroup.h"
#include "topology/source_hwloc.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int accepts(const char *spec) { return !spec[0] || !strcmp(spec, "live"); }

/* What the cgroup allows and the calling thread is bound to. */
static enum err usable_cpus(hwloc_topology_t t, hwloc_bitmap_t *out)
{
	hwloc_bitmap_t bound = hwloc_bitmap_alloc();
	if (!bound)
		return ERR(MEMORY, "no memory for a set of CPUs");
	if (hwloc_get_cpubind(t, bound, HWLOC_CPUBIND_THREAD))
		hwloc_bitmap_fill(bound);
	hwloc_bitmap_and(bound, bound, hwloc_topology_get_allowed_cpuset(t));
	*out = bound;
	return ERR_OK;
}

static enum err load(hwloc_topology_t t, struct machine *m)
{
	static const char *const no_display = "gl";   /* this plugin of hwloc asks X servers for their GPUs */
	char host[256] = "";
	hwloc_bitmap_t usable;
	hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, no_display);
	hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
	if (hwloc_topology_load(t))
		return ERR(WORK, "hwloc cannot read this machine: %s", strerror(errno));
	TRY(usable_cpus(t, &usable));
	enum err e = hwloc_to_machine(t, usable, "this machine", m);
	hwloc_bitmap_free(usable);
	TRY(e);
	if (gethostname(host, sizeof host - 1))
		return ERR(WORK, "this machine does not tell its host name: %s", strerror(errno));
	machine_set_text(m->host, sizeof m->host, host);
	machine_set_text(m->source, sizeof m->source, "live");
	uint64_t limit = cgroup_memory_limit("");
	if (limit < m->memory_limit_bytes)
		m->memory_limit_bytes = limit;
	return ERR_OK;
}

static enum err read_live(const char *spec, struct machine *out)
{
	hwloc_topology_t t;
	(void)spec;
	TRY(hwloc_open_topology(&t));
	enum err e = load(t, out);
	hwloc_topology_destroy(t);
	return e;
}

const struct machine_source machine_source_live = { "live", "live (or nothing): the machine this runs on", accepts, read_live };
