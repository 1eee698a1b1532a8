/* Machines as data: reading one from whichever source takes the description, checking, copying, freeing.
 *
 * machine_check is the one list of what holds of every machine, wherever it came from: sources end with it and so does
 * the decoder, so nothing else in the program looks for a core without a package or a device on a missing node. */
#include "topology/machine.h"

#include "base/mem.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

extern const struct machine_source machine_source_live, machine_source_xml, machine_source_synthetic;
const struct machine_source *const machine_sources[] = {
	&machine_source_live, &machine_source_xml, &machine_source_synthetic, NULL,
};

enum err machine_read(const char *spec, struct machine *out)
{
	for (int i = 0; machine_sources[i]; i++) {
		if (!machine_sources[i]->accepts(spec))
			continue;
		struct machine m = { 0 };
		enum err e = machine_sources[i]->read(spec, &m);
		if (!e)
			e = machine_check(&m);
		if (e) {
			machine_free(&m);
			return e;
		}
		*out = m;
		return ERR_OK;
	}
	return ERR(USAGE,
		   "\"%s\" is no machine: neither a file that exists nor a description like \"pack:2 numa:2 core:8 pu:1\"",
		   spec);
}

static enum err check_threads(const struct machine *m, int core)
{
	const struct machine_core *c = &m->cores[core];
	int found = 0;
	for (int k = 0; k < MACHINE_MAX_PUS; k++) {
		if ((k < c->n_pus) != (c->pus[k] >= 0) || c->pus[k] < -1)
			return ERR(BUG, "%s: core %d has %d threads, but thread %d is CPU %d", m->host, core, c->n_pus, k, c->pus[k]);
		found |= c->pus[k] == c->os_cpu;
	}
	if (!found && c->n_pus <= MACHINE_MAX_PUS)
		return ERR(BUG, "%s: core %d is CPU %d, which is none of its threads", m->host, core, c->os_cpu);
	return ERR_OK;
}

static enum err check_cores(const struct machine *m)
{
	int package = 0, numa = 0;
	for (int i = 0; i < m->n_cores; i++) {
		const struct machine_core *c = &m->cores[i];
		/* Numbered in the order of the cores: each is the last one's or the next. So all are met, and contiguous. */
		if (c->package < 0 || c->package >= m->n_packages || (c->package != package && c->package != package + 1))
			return ERR(BUG, "%s: core %d is in package %d after package %d of %d", m->host, i, c->package,
				   package, m->n_packages);
		if (c->numa < 0 || c->numa >= m->n_numa || (c->numa != numa && c->numa != numa + 1))
			return ERR(BUG, "%s: core %d is in NUMA node %d after node %d of %d", m->host, i, c->numa, numa,
				   m->n_numa);
		if ((i == 0 && (c->package || c->numa)) || m->numa[c->numa].package != c->package)
			return ERR(BUG, "%s: core %d of NUMA node %d is in package %d, its node in %d", m->host, i, c->numa,
				   c->package, m->numa[c->numa].package);
		if (c->l3 < -1 || c->l3 >= m->n_cores || c->n_pus < 1 || c->os_cpu < 0 ||
		    (c->allowed != 0 && c->allowed != 1))
			return ERR(BUG, "%s: core %d has cache %d, %d threads, OS number %d, allowed %d", m->host, i, c->l3,
				   c->n_pus, c->os_cpu, c->allowed);
		TRY(check_threads(m, i));
		package = c->package;
		numa = c->numa;
	}
	if (package != m->n_packages - 1 || numa != m->n_numa - 1)
		return ERR(BUG, "%s: cores are in %d of %d packages and %d of %d NUMA nodes", m->host, package + 1,
			   m->n_packages, numa + 1, m->n_numa);
	return ERR_OK;
}

static enum err check_devices(const struct machine *m)
{
	for (int i = 0; i < m->n_devices; i++) {
		const struct machine_device *d = &m->devices[i];
		if (d->numa < -1 || d->numa >= m->n_numa || d->island < 0 || d->island >= m->n_devices)
			return ERR(BUG, "%s: device %d is on NUMA node %d, island %d", m->host, i, d->numa, d->island);
		for (int j = 0; m->link_gbps && j < m->n_devices; j++) {
			float gbps = m->link_gbps[i * m->n_devices + j];
			if (!isfinite(gbps) || gbps < 0 || (i == j && gbps > 0))
				return ERR(BUG, "%s: devices %d and %d are linked with %g GB/s", m->host, i, j,
					   (double)gbps);
			if (gbps > 0 && d->island != m->devices[j].island)
				return ERR(BUG, "%s: devices %d and %d are linked, but in islands %d and %d", m->host, i, j,
					   d->island, m->devices[j].island);
		}
	}
	return ERR_OK;
}

enum err machine_check(const struct machine *m)
{
	if (!memchr(m->host, 0, sizeof m->host) || !memchr(m->cpu_model, 0, sizeof m->cpu_model) ||
	    !memchr(m->source, 0, sizeof m->source))
		return ERR(BUG, "a machine's name is not terminated");
	if (m->n_cores < 1 || m->n_cores > MACHINE_MAX_CORES)
		return ERR(BUG, "%s: has %d cores, but must have 1 to %d", m->host, m->n_cores, MACHINE_MAX_CORES);
	if (m->n_packages < 1 || m->n_packages > m->n_numa || m->n_numa > m->n_cores)
		return ERR(BUG, "%s: has %d packages, %d NUMA nodes and %d cores", m->host, m->n_packages, m->n_numa,
			   m->n_cores);
	if (m->n_devices < 0 || m->n_devices > MACHINE_MAX_DEVICES)
		return ERR(BUG, "%s: has %d devices, but must have 0 to %d", m->host, m->n_devices, MACHINE_MAX_DEVICES);
	if (!m->cores || !m->numa || (m->n_devices && !m->devices))
		return ERR(BUG, "%s: lacks its arrays", m->host);
	if (m->memory_limit_bytes > m->memory_bytes)
		return ERR(BUG, "%s: may use more memory than it has", m->host);
	TRY(check_cores(m));
	return check_devices(m);
}

void machine_free(struct machine *m)
{
	if (!m)
		return;
	mem_free(m->numa);
	mem_free(m->cores);
	mem_free(m->devices);
	mem_free(m->link_gbps);
	*m = (struct machine){ 0 };
}

static enum err copy_array(const void *from, size_t n, size_t size, const char *what, void *out)
{
	void *copy;
	TRY(mem_alloc(n, size, what, &copy));
	if (n)
		memcpy(copy, from, n * size);
	memcpy(out, &copy, sizeof copy);
	return ERR_OK;
}

enum err machine_copy(const struct machine *m, struct machine *out)
{
	struct machine c = *m;
	size_t n_devices = (size_t)m->n_devices;
	enum err e = ERR_OK;
	c.numa = NULL;
	c.cores = NULL;
	c.devices = NULL;
	c.link_gbps = NULL;
	TRY_OR(free_copy, e, copy_array(m->numa, (size_t)m->n_numa, sizeof *m->numa, "NUMA nodes", &c.numa));
	TRY_OR(free_copy, e, copy_array(m->cores, (size_t)m->n_cores, sizeof *m->cores, "cores", &c.cores));
	TRY_OR(free_copy, e, copy_array(m->devices, n_devices, sizeof *m->devices, "devices", &c.devices));
	if (m->link_gbps)
		TRY_OR(free_copy, e, copy_array(m->link_gbps, n_devices * n_devices, sizeof(float), "links", &c.link_gbps));
	*out = c;
	return ERR_OK;
free_copy:
	machine_free(&c);
	return e;
}

int machine_core_of_cpu(const struct machine *m, int os_cpu)
{
	for (int i = 0; os_cpu >= 0 && i < m->n_cores; i++)
		for (int k = 0; k < MACHINE_MAX_PUS; k++)
			if (m->cores[i].pus[k] == os_cpu)
				return i;
	return -1;
}

/* Compares the numbers that both strings begin with, of any length, and moves past them. */
static int compare_numbers(const char **a, const char **b)
{
	while (**a == '0')
		++*a;
	while (**b == '0')
		++*b;
	size_t n_a = strspn(*a, "0123456789"), n_b = strspn(*b, "0123456789");
	int order = n_a != n_b ? (n_a > n_b ? 1 : -1) : memcmp(*a, *b, n_a);
	*a += n_a;
	*b += n_b;
	return order;
}

int machine_name_compare(const char *a, const char *b)
{
	const char *whole_a = a, *whole_b = b;
	while (*a && *b) {
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			int order = compare_numbers(&a, &b);
			if (order)
				return order;
		} else if (*a != *b) {
			return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
		} else {
			a++;
			b++;
		}
	}
	if (*a || *b)
		return *a ? 1 : -1;
	return strcmp(whole_a, whole_b);   /* node07 and node7 */
}
