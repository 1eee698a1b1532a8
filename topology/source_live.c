/* The machine this process runs on. All its cores are read, also those the process may not use, so that the ranks of a
 * node see the same cores under the same numbers however each is bound; `allowed` tells them apart.
 *
 * Every rank of a job does this at its start, so hwloc's plugins that wake something up stay out: gl asks X servers for
 * their GPUs, opencl starts every driver, pci (libpciaccess) leaks; Linux' own files tell hwloc of PCI devices as well. What
 * is lost with them, the models of GPUs, comes from the drivers' files. */
#include "topology/cgroup.h"
#include "topology/source_hwloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

/* What follows `key` in the first line of a driver's file that has it; "" as key: the whole first line. 0: none. */
static int read_driver_file(const char *directory, const char *pci, const char *file, const char *key, char *room,
			    size_t capacity)
{
	char path[128], line[256];
	int found = 0;
	snprintf(path, sizeof path, "%s/%s/%s", directory, pci, file);
	FILE *f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof line, f))
		if (!strncmp(line, key, strlen(key))) {
			line[strcspn(line, "\n")] = '\0';
			machine_set_text(room, capacity, line + strlen(key));
			found = 1;
		}
	if (f)
		fclose(f);
	return found;
}

static void describe_device(struct machine_device *d)
{
	static const char *const pci_devices = "/sys/bus/pci/devices";
	char memory[32];
	if (!d->pci[0])
		return;
	if (!d->model[0] &&
	    !read_driver_file("/proc/driver/nvidia/gpus", d->pci, "information", "Model:", d->model, sizeof d->model))
		read_driver_file(pci_devices, d->pci, "product_name", "", d->model, sizeof d->model);
	if (!d->memory_bytes &&
	    read_driver_file(pci_devices, d->pci, "mem_info_vram_total", "", memory, sizeof memory))
		d->memory_bytes = strtoull(memory, NULL, 10);
}

static enum err load(hwloc_topology_t t, struct machine *m)
{
	static const char *const plugins[] = { "gl", "opencl", "pci" };
	char host[256] = "";
	hwloc_bitmap_t usable;
	for (size_t i = 0; i < sizeof plugins / sizeof plugins[0]; i++)
		hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugins[i]);
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
	for (int i = 0; i < m->n_devices; i++)
		describe_device(&m->devices[i]);
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

const struct machine_source machine_source_live = {
	"live", "live (or nothing): the machine this runs on", accepts, read_live,
};
