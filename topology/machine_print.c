/* One machine as text for a terminal: a line that says what it is, a table of NUMA nodes with their cores, a table of
 * accelerators, and the links between them - one sentence when all are alike, a matrix otherwise. */
#include "topology/machine.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *plural(int n) { return n == 1 ? "" : "s"; }

/* "503 GiB", "1.5 GiB", "512 KiB" */
static const char *size_text(uint64_t bytes, char room[32])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double n = (double)bytes;
	int unit = 0;
	for (; unit < 4 && n >= (unit == 3 ? 10240 : 1024); unit++)
		n /= 1024;
	int whole = n >= 10 || n - (double)(uint64_t)n < 0.05;
	snprintf(room, 32, whole ? "%.0f %s" : "%.1f %s", n, units[unit]);
	return room;
}

/* The cores of NUMA node `numa` (-1: of all) as ranges "0-15,32"; allowed_only: those this process may use. */
static void print_ranges(const struct machine *m, int numa, int allowed_only, struct bytes *to)
{
	const char *comma = "";
	for (int i = 0; i < m->n_cores; i++) {
		int end = i;
		while (end < m->n_cores && (numa < 0 || m->cores[end].numa == numa) &&
		       (!allowed_only || m->cores[end].allowed))
			end++;
		if (end == i)
			continue;
		bytes_printf(to, end - i > 1 ? "%s%d-%d" : "%s%d", comma, i, end - 1);
		comma = ",";
		i = end;
	}
}

static int count_allowed(const struct machine *m)
{
	int n = 0;
	for (int i = 0; i < m->n_cores; i++)
		n += m->cores[i].allowed;
	return n;
}

static void print_head(const struct machine *m, struct bytes *to)
{
	char size[32];
	int threads = 0, allowed = count_allowed(m);
	for (int i = 0; i < m->n_cores; i++)
		threads += m->cores[i].n_pus;
	bytes_printf(to, "%s: %d package%s, %d NUMA node%s, %d core%s", m->host, m->n_packages, plural(m->n_packages),
		     m->n_numa, plural(m->n_numa), m->n_cores, plural(m->n_cores));
	if (threads != m->n_cores)
		bytes_printf(to, " (%d threads)", threads);
	bytes_printf(to, ", %s", size_text(m->memory_bytes, size));
	if (m->n_devices)
		bytes_printf(to, ", %d accelerator%s", m->n_devices, plural(m->n_devices));
	bytes_printf(to, "\n");
	if (m->cpu_model[0])
		bytes_printf(to, "  processor  %s\n", m->cpu_model);
	const struct { const char *name; uint64_t bytes; } caches[] = { { "L1d", m->l1d_bytes }, { "L2", m->l2_bytes },
									{ "L3", m->l3_bytes } };
	const char *before = "  caches     ";
	for (int i = 0; i < 3; i++)
		if (caches[i].bytes) {
			bytes_printf(to, "%s%s %s", before, caches[i].name, size_text(caches[i].bytes, size));
			before = ", ";
		}
	if (before[0] == ',')
		bytes_printf(to, "\n");
	if (m->memory_limit_bytes < m->memory_bytes)
		bytes_printf(to, "  limit      %s of memory (control group)\n", size_text(m->memory_limit_bytes, size));
	if (allowed < m->n_cores) {
		bytes_printf(to, "  allowed    %d of %d cores: ", allowed, m->n_cores);
		print_ranges(m, -1, 1, to);
		bytes_printf(to, "\n");
	}
}

static void print_numa(const struct machine *m, struct bytes *to)
{
	struct bytes ranges = { 0 };
	int width = 5;
	char size[32];
	for (int pass = 0; pass < 2; pass++)   /* the widest range first, then the table */
		for (int i = 0; i < m->n_numa; i++) {
			if (pass && !i)
				bytes_printf(to, "  numa  package  %-*s  %8s\n", width, "cores", "memory");
			bytes_clear(&ranges);
			print_ranges(m, i, 0, &ranges);
			if (pass)
				bytes_printf(to, "  %4d  %7d  %-*s  %8s\n", i, m->numa[i].package, width,
					     bytes_text(&ranges), size_text(m->numa[i].memory_bytes, size));
			else if ((int)ranges.size > width)
				width = (int)ranges.size;
		}
	bytes_free(&ranges);
}

static void print_devices(const struct machine *m, struct bytes *to)
{
	int width = 6;
	for (int i = 0; i < m->n_devices; i++)
		if ((int)strlen(m->devices[i].name) > width)
			width = (int)strlen(m->devices[i].name);
	bytes_printf(to, "  %-*s  numa  island  %8s  %-12s  model\n", width, "device", "memory", "pci");
	for (int i = 0; i < m->n_devices; i++) {
		const struct machine_device *d = &m->devices[i];
		char size[32], numa[16];
		snprintf(numa, sizeof numa, "%d", d->numa);
		bytes_printf(to, "  %-*s  %4s  %6d  %8s  %-12s  %s\n", width, d->name, d->numa < 0 ? "-" : numa, d->island,
			     d->memory_bytes ? size_text(d->memory_bytes, size) : "-", d->pci[0] ? d->pci : "-",
			     d->model[0] ? d->model : "-");
	}
}

/* All pairs within islands alike: their GB/s; 0 otherwise. */
static float common_link(const struct machine *m)
{
	float common = 0;
	for (int i = 0; i < m->n_devices; i++)
		for (int j = 0; j < m->n_devices; j++) {
			if (i == j || m->devices[i].island != m->devices[j].island)
				continue;
			float gbps = m->link_gbps[i * m->n_devices + j];
			if (gbps <= 0 || (common > 0 && gbps != common))
				return 0;
			common = gbps;
		}
	return common;
}

static void print_links(const struct machine *m, struct bytes *to)
{
	int any = 0;
	for (int i = 0; m->link_gbps && i < m->n_devices * m->n_devices; i++)
		any |= m->link_gbps[i] > 0;
	if (!any) {
		bytes_printf(to, "  links      %s\n", m->link_gbps ? "none" : "not known");
		return;
	}
	if (common_link(m) > 0) {
		bytes_printf(to, "  links      %g GB/s between any two of an island\n", (double)common_link(m));
		return;
	}
	bytes_printf(to, "  links in GB/s, row to column\n  %6s", "");
	for (int i = 0; i < m->n_devices; i++)
		bytes_printf(to, " %5d", i);
	for (int i = 0; i < m->n_devices; i++) {
		bytes_printf(to, "\n  %6d", i);
		for (int j = 0; j < m->n_devices; j++) {
			double gbps = (double)m->link_gbps[i * m->n_devices + j];
			if (gbps > 0)
				bytes_printf(to, " %5g", gbps);
			else
				bytes_printf(to, " %5s", "-");
		}
	}
	bytes_printf(to, "\n");
}

void machine_print(const struct machine *m, struct bytes *to)
{
	print_head(m, to);
	print_numa(m, to);
	if (!m->n_devices)
		return;
	print_devices(m, to);
	if (m->n_devices > 1)
		print_links(m, to);
}
