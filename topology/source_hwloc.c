/* From an hwloc topology to a machine: what the live, XML and synthetic sources share.
 *
 * The rules that real machines taught:
 * - Newer machines show GPU memory as NUMA nodes without CPUs, and fast and slow memory as two nodes over the same CPUs.
 *   A core belongs to the smallest node that holds it, the first of equals; nodes left without cores are not counted.
 * - A GPU appears as several OS devices (CUDA, NVML, OpenCL): one device per PCI parent. On a machine whose hwloc has no
 *   plugin for its GPU there is only the PCI device: its class tells.
 * - Some topologies (and some virtual machines) know no cores or no packages: a hardware thread counts as a core then,
 *   the machine as one package. */
#include "topology/source_hwloc.h"

#include "base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void machine_set_text(char *room, size_t capacity, const char *text)
{
	size_t n = 0;
	while (text && isspace((unsigned char)*text))
		text++;
	for (; text && *text && n + 1 < capacity; text++, n++)
		room[n] = (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text;
	while (n && room[n - 1] == ' ')
		n--;
	room[n] = '\0';
}

enum err hwloc_open_topology(hwloc_topology_t *out)
{
	setenv("HWLOC_HIDE_ERRORS", "2", 0);   /* a faulty file or BIOS gets our sentence, not hwloc's banner */
	hwloc_topology_t t;
	if (hwloc_topology_init(&t))
		return ERR(MEMORY, "hwloc cannot start a topology");
	hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	*out = t;
	return ERR_OK;
}

static int parts_of(hwloc_const_bitmap_t set) { return hwloc_bitmap_weight(set); }

/* The smallest NUMA node that holds this core; when none does, the first (a topology always has one). */
static hwloc_obj_t numa_of(hwloc_topology_t t, hwloc_obj_t core)
{
	hwloc_obj_t best = NULL, node = NULL;
	while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node)))
		if (hwloc_bitmap_isincluded(core->cpuset, node->cpuset) &&
		    (!best || parts_of(node->cpuset) < parts_of(best->cpuset)))
			best = node;
	return best ? best : hwloc_get_obj_by_type(t, HWLOC_OBJ_NUMANODE, 0);
}

static hwloc_obj_t last_level_cache(hwloc_obj_t core)
{
	hwloc_obj_t cache = NULL;
	for (hwloc_obj_t o = core; o; o = o->parent)
		if (hwloc_obj_type_is_dcache(o->type) && o->attr->cache.depth >= 2)
			cache = o;
	return cache;
}

static void fill_threads(hwloc_topology_t t, hwloc_obj_t core, hwloc_const_bitmap_t usable, struct machine_core *c)
{
	hwloc_obj_t pu = NULL;
	c->n_pus = 0;
	c->allowed = 0;
	while ((pu = hwloc_get_next_obj_inside_cpuset_by_type(t, core->cpuset, HWLOC_OBJ_PU, pu))) {
		int cpu = (int)pu->os_index, may = !usable || hwloc_bitmap_isset(usable, pu->os_index);
		if (!c->n_pus || (may && !c->allowed))
			c->os_cpu = cpu;
		c->allowed |= may;
		if (c->n_pus < MACHINE_MAX_PUS)
			c->pus[c->n_pus] = cpu;
		c->n_pus++;
	}
	for (int k = c->n_pus; k < MACHINE_MAX_PUS; k++)
		c->pus[k] = -1;
}

/* Objects met so far, in order: what gives packages, NUMA nodes and caches their numbers. */
struct numbering { int n; hwloc_obj_t a[MACHINE_MAX_CORES], b[MACHINE_MAX_CORES]; };

static int number_of(struct numbering *seen, hwloc_obj_t a, hwloc_obj_t b)
{
	for (int i = seen->n - 1; i >= 0; i--)   /* cores come in order: it is nearly always the last */
		if (seen->a[i] == a && seen->b[i] == b)
			return i;
	seen->a[seen->n] = a;
	seen->b[seen->n] = b;
	return seen->n++;
}

static enum err fill_cores(hwloc_topology_t t, hwloc_const_bitmap_t usable, struct machine *m, struct numbering seen[3])
{
	struct numbering *packages = &seen[0], *nodes = &seen[1], *caches = &seen[2];
	hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
	for (int i = 0; i < m->n_cores; i++) {
		struct machine_core *c = &m->cores[i];
		hwloc_obj_t core = hwloc_get_obj_by_type(t, type, (unsigned)i);
		if (!core || !core->cpuset || hwloc_bitmap_iszero(core->cpuset))
			return ERR(USAGE, "core %d has no hardware threads", i);
		hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_PACKAGE, core);
		hwloc_obj_t cache = last_level_cache(core);
		fill_threads(t, core, usable, c);
		c->package = number_of(packages, package, NULL);
		c->numa = number_of(nodes, numa_of(t, core), package);
		c->l3 = cache ? number_of(caches, cache, NULL) : -1;
	}
	m->n_packages = packages->n;
	m->n_numa = nodes->n;
	return ERR_OK;
}

static uint64_t cache_bytes(hwloc_obj_t core, hwloc_obj_type_t type)
{
	for (hwloc_obj_t o = core; o; o = o->parent)
		if (o->type == type)
			return o->attr->cache.size;
	return 0;
}

static enum err fill_numa(struct machine *m, const struct numbering *nodes)
{
	TRY(MEM_NEW((size_t)m->n_numa, struct machine_numa, &m->numa));
	for (int i = 0; i < m->n_numa; i++) {
		int here = 0, all = 0;   /* cores of this entry, and of every entry of the same node */
		for (int k = 0; k < m->n_cores; k++) {
			here += m->cores[k].numa == i;
			all += nodes->a[m->cores[k].numa] == nodes->a[i];
			if (m->cores[k].numa == i)
				m->numa[i].package = m->cores[k].package;
		}
		uint64_t bytes = nodes->a[i] ? nodes->a[i]->attr->numanode.local_memory : 0;
		m->numa[i].os_index = nodes->a[i] ? (int)nodes->a[i]->os_index : 0;
		uint64_t each = bytes / (unsigned)all, rest = bytes % (unsigned)all;
		m->numa[i].memory_bytes = each * (unsigned)here + rest * (unsigned)here / (unsigned)all;
		if (__builtin_add_overflow(m->memory_bytes, m->numa[i].memory_bytes, &m->memory_bytes))
			return ERR(USAGE, "the memory of its NUMA nodes adds up to more than 64 bits hold");
	}
	return ERR_OK;
}

/* --- accelerators --- */

static const char *info(hwloc_obj_t o, const char *key) { return hwloc_obj_get_info_by_name(o, key); }

/* How good a name this OS device gives an accelerator: 0 is none (displays, OpenCL on the CPU, disks, networks). */
static int name_worth(hwloc_obj_t os)
{
	static const struct { const char *prefix; int worth; } names[] = {
		{ "cuda", 5 }, { "rsmi", 4 }, { "ze", 3 }, { "nvml", 2 }, { "opencl", 1 },
	};
	const char *type = info(os, "OpenCLDeviceType");
	if (os->attr->osdev.type != HWLOC_OBJ_OSDEV_COPROC && os->attr->osdev.type != HWLOC_OBJ_OSDEV_GPU)
		return 0;
	if (!os->name || (type && strcmp(type, "GPU") && strcmp(type, "Accelerator")))
		return 0;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (!strncmp(os->name, names[i].prefix, strlen(names[i].prefix)))
			return names[i].worth;
	return 0;
}

/* A PCI device that computes: 3D controllers and processing accelerators, and the displays of vendors who use that class
 * for their compute cards (NVIDIA 0300, AMD 0380). */
static int is_compute_class(hwloc_obj_t pci)
{
	unsigned class_id = pci->attr->pcidev.class_id, vendor = pci->attr->pcidev.vendor_id;
	return class_id == 0x0302 || class_id == 0x1200 || (class_id == 0x0300 && vendor == 0x10de) ||
	       (class_id == 0x0380 && vendor == 0x1002);
}

static uint64_t memory_of(hwloc_obj_t os)
{
	static const char *const keys[] = { "CUDAGlobalMemorySize", "RSMIVRAMSize", "LevelZeroHBMSize", "LevelZeroDDRSize",
					    "OpenCLGlobalMemorySize" };
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		const char *value = info(os, keys[i]);   /* KiB */
		unsigned long long kib = value ? strtoull(value, NULL, 10) : 0;
		if (kib && kib < 1ull << 50)
			return kib << 10;
	}
	return 0;
}

struct found {
	struct machine_device device;
	hwloc_obj_t object;   /* the PCI device, or the OS device if it has none */
};

static void add_os_device(struct found *f, hwloc_obj_t os, int *worth)
{
	int w = name_worth(os);
	if (!w)
		return;
	if (w > *worth) {
		*worth = w;
		machine_set_text(f->device.name, sizeof f->device.name, os->name);
	}
	if (!f->device.model[0])
		machine_set_text(f->device.model, sizeof f->device.model, info(os, "GPUModel"));
	if (!f->device.memory_bytes)
		f->device.memory_bytes = memory_of(os);
}

/* The NUMA node nearest to an object: the first one with cores below its nearest ancestor that has CPUs; -1 when that is
 * the whole of a machine of several. */
static int nearest_numa(hwloc_topology_t t, hwloc_obj_t object, const struct machine *m, const struct numbering *nodes)
{
	hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(t, object);
	if (m->n_numa == 1)
		return 0;
	if (!place || !place->parent || !place->nodeset)
		return -1;
	for (int i = 0; i < m->n_numa; i++)
		if (nodes->a[i] && hwloc_bitmap_isset(place->nodeset, nodes->a[i]->os_index) &&
		    (!place->cpuset || hwloc_bitmap_iszero(place->cpuset) ||
		     hwloc_bitmap_intersects(place->cpuset, nodes->a[i]->cpuset)))
			return i;
	return -1;
}

static int by_name(const void *a, const void *b)
{
	return machine_name_compare(((const struct found *)a)->device.name, ((const struct found *)b)->device.name);
}

static enum err find_devices(hwloc_topology_t t, struct found *found, int *n)
{
	hwloc_obj_t o = NULL;
	*n = 0;
	while ((o = hwloc_get_next_pcidev(t, o))) {
		struct found f = { .object = o };
		int worth = 0;
		for (hwloc_obj_t os = o->io_first_child; os; os = os->next_sibling)
			if (os->type == HWLOC_OBJ_OS_DEVICE)
				add_os_device(&f, os, &worth);
		if (!worth && !is_compute_class(o))
			continue;
		if (*n == MACHINE_MAX_DEVICES)
			return ERR(USAGE, "has more than %d accelerators", MACHINE_MAX_DEVICES);
		if (!worth)
			snprintf(f.device.name, sizeof f.device.name, "gpu%d", *n);
		if (!f.device.model[0])
			machine_set_text(f.device.model, sizeof f.device.model, info(o, "PCIDevice"));
		const struct hwloc_pcidev_attr_s *at = &o->attr->pcidev;
		snprintf(f.device.pci, sizeof f.device.pci, "%04x:%02x:%02x.%01x", (unsigned)at->domain & 0xffffffffu,
			 at->bus & 0xffu, at->dev & 0xffu, at->func & 0xfu);
		found[(*n)++] = f;
	}
	while ((o = hwloc_get_next_osdev(t, o))) {   /* those without a PCI device: on-chip accelerators */
		int worth = 1;                       /* OpenCL is not enough here: it may well be the CPU */
		struct found f = { .object = o };
		if (o->parent->type == HWLOC_OBJ_PCI_DEVICE)
			continue;
		add_os_device(&f, o, &worth);
		if (worth > 1 && *n < MACHINE_MAX_DEVICES)
			found[(*n)++] = f;
	}
	qsort(found, (size_t)*n, sizeof *found, by_name);
	return ERR_OK;
}

/* --- links --- */

static int device_of(const struct found *found, int n, hwloc_obj_t o)
{
	for (; o && (o->type == HWLOC_OBJ_OS_DEVICE || o->type == HWLOC_OBJ_PCI_DEVICE); o = o->parent)
		for (int i = 0; i < n; i++)
			if (found[i].object == o)
				return i;
	return -1;
}

static enum err fill_links(hwloc_topology_t t, const struct found *found, struct machine *m)
{
	static const char *const matrices[] = { "NVLinkBandwidth", "XGMIBandwidth", "XeLinkBandwidth" };   /* MB/s */
	size_t n = (size_t)m->n_devices;
	for (size_t k = 0; n && k < sizeof matrices / sizeof matrices[0]; k++) {
		struct hwloc_distances_s *d = NULL;
		unsigned one = 1;
		if (hwloc_distances_get_by_name(t, matrices[k], &one, &d, 0) || one < 1 || !d)
			continue;
		/* Traffic through switches becomes links between devices. Without switches merging fails, and closing the
		 * matrix all the same would lose the direct links. */
		if (!hwloc_distances_transform(t, d, HWLOC_DISTANCES_TRANSFORM_MERGE_SWITCH_PORTS, NULL, 0))
			hwloc_distances_transform(t, d, HWLOC_DISTANCES_TRANSFORM_TRANSITIVE_CLOSURE, NULL, 0);
		enum err e = m->link_gbps ? ERR_OK : MEM_NEW(n * n, float, &m->link_gbps);
		for (unsigned i = 0; !e && i < d->nbobjs; i++)
			for (unsigned j = 0; j < d->nbobjs; j++) {
				int a = device_of(found, m->n_devices, d->objs[i]),
				    b = device_of(found, m->n_devices, d->objs[j]);
				if (a >= 0 && b >= 0 && a != b && d->values[i * d->nbobjs + j] < 1000000000)
					m->link_gbps[(size_t)a * n + (size_t)b] = (float)d->values[i * d->nbobjs + j] / 1000;
			}
		hwloc_distances_release(t, d);
		TRY(e);
	}
	return ERR_OK;
}

void machine_find_islands(struct machine *m)
{
	int n = m->n_devices, next = 0, queue[MACHINE_MAX_DEVICES];
	for (int i = 0; i < n; i++)
		m->devices[i].island = -1;
	for (int start = 0; start < n; start++) {
		if (m->devices[start].island >= 0)
			continue;
		int head = 0, tail = 0;
		queue[tail++] = start;
		m->devices[start].island = next;
		while (head < tail)
			for (int a = queue[head++], b = 0; b < n; b++)
				if (m->link_gbps && m->devices[b].island < 0 &&
				    (m->link_gbps[a * n + b] > 0 || m->link_gbps[b * n + a] > 0)) {
					m->devices[b].island = next;
					queue[tail++] = b;
				}
		next++;
	}
}

static enum err fill_devices(hwloc_topology_t t, struct machine *m, const struct numbering *nodes)
{
	struct found *found;
	enum err e = MEM_NEW(MACHINE_MAX_DEVICES, struct found, &found);
	if (e)
		return e;
	TRY_OR(free_found, e, find_devices(t, found, &m->n_devices));
	TRY_OR(free_found, e, MEM_NEW((size_t)m->n_devices, struct machine_device, &m->devices));
	for (int i = 0; i < m->n_devices; i++) {
		m->devices[i] = found[i].device;
		m->devices[i].numa = nearest_numa(t, found[i].object, m, nodes);
	}
	TRY_OR(free_found, e, fill_links(t, found, m));
	machine_find_islands(m);
free_found:
	mem_free(found);
	return e;
}

static void fill_names(hwloc_topology_t t, struct machine *m)
{
	hwloc_obj_t root = hwloc_get_root_obj(t), package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
	const char *model = package ? info(package, "CPUModel") : NULL;
	if (!model)
		model = info(root, "CPUModel");
	if (!model)
		model = info(root, "Architecture");
	machine_set_text(m->cpu_model, sizeof m->cpu_model, model);
	machine_set_text(m->host, sizeof m->host, info(root, "HostName"));
}

enum err hwloc_to_machine(hwloc_topology_t t, hwloc_const_bitmap_t usable, const char *name, struct machine *m)
{
	int cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
	m->n_cores = cores > 0 ? cores : hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
	if (m->n_cores < 1 || m->n_cores > MACHINE_MAX_CORES)
		return ERR(USAGE, "%s: a machine with %d cores, but there can be 1 to %d", name, m->n_cores,
			   MACHINE_MAX_CORES);
	struct numbering *seen;
	TRY(MEM_NEW(3, struct numbering, &seen));
	enum err e = MEM_NEW((size_t)m->n_cores, struct machine_core, &m->cores);
	if (!e)
		e = fill_cores(t, usable, m, seen);
	if (!e)
		e = fill_numa(m, &seen[1]);
	if (!e)
		e = fill_devices(t, m, &seen[1]);
	mem_free(seen);
	if (e)
		return err_context(e, "%s", name);
	hwloc_obj_t core = hwloc_get_obj_by_type(t, HWLOC_OBJ_PU, 0);
	m->l1d_bytes = cache_bytes(core, HWLOC_OBJ_L1CACHE);
	m->l2_bytes = cache_bytes(core, HWLOC_OBJ_L2CACHE);
	m->l3_bytes = cache_bytes(core, HWLOC_OBJ_L3CACHE);
	m->memory_limit_bytes = m->memory_bytes;
	fill_names(t, m);
	return ERR_OK;
}
