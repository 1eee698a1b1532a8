/* A machine as bytes, so that every rank can learn every machine. Little-endian; strings are a u32 length and the bytes:
 *
 *   u32 magic "SRMC"   u32 version
 *   host   cpu_model   source
 *   u64 memory   u64 limit   u64 l1d   u64 l2   u64 l3
 *   u32 packages   u32 numa   u32 cores   u32 devices   u32 has links
 *   numa:    u32 os_index   u32 package   u64 memory
 *   cores:   u32 os_cpu   u32 pus   u32 package   u32 numa   u32 l3   u32 allowed   8 x u32 CPU of a thread
 *   devices: name   model   pci   u32 numa   u32 island   u64 memory
 *   links:   f64 (devices, devices)
 *
 * Negative numbers travel as their 32 bits. The decoder bounds every count by what can follow in the bytes before it
 * allocates, and passes nothing that machine_check would not. */
#include "topology/machine.h"

#include "base/mem.h"

#include <string.h>

enum { MAGIC = 0x434d5253, VERSION = 2 };
enum { NUMA_BYTES = 16, CORE_BYTES = 24 + 4 * MACHINE_MAX_PUS, DEVICE_BYTES = 28, LINK_BYTES = 8 };   /* least that one takes */

void machine_encode(const struct machine *m, struct bytes *to)
{
	bytes_put_u32(to, MAGIC);
	bytes_put_u32(to, VERSION);
	bytes_put_string(to, m->host);
	bytes_put_string(to, m->cpu_model);
	bytes_put_string(to, m->source);
	const uint64_t sizes[] = { m->memory_bytes, m->memory_limit_bytes, m->l1d_bytes, m->l2_bytes, m->l3_bytes };
	for (int i = 0; i < 5; i++)
		bytes_put_u64(to, sizes[i]);
	const int counts[] = { m->n_packages, m->n_numa, m->n_cores, m->n_devices, m->link_gbps != NULL };
	for (int i = 0; i < 5; i++)
		bytes_put_u32(to, (uint32_t)counts[i]);
	for (int i = 0; i < m->n_numa; i++) {
		bytes_put_u32(to, (uint32_t)m->numa[i].os_index);
		bytes_put_u32(to, (uint32_t)m->numa[i].package);
		bytes_put_u64(to, m->numa[i].memory_bytes);
	}
	for (int i = 0; i < m->n_cores; i++) {
		const struct machine_core *c = &m->cores[i];
		const int fields[] = { c->os_cpu, c->n_pus, c->package, c->numa, c->l3, c->allowed };
		for (int k = 0; k < 6; k++)
			bytes_put_u32(to, (uint32_t)fields[k]);
		for (int k = 0; k < MACHINE_MAX_PUS; k++)
			bytes_put_u32(to, (uint32_t)c->pus[k]);
	}
	for (int i = 0; i < m->n_devices; i++) {
		const struct machine_device *d = &m->devices[i];
		bytes_put_string(to, d->name);
		bytes_put_string(to, d->model);
		bytes_put_string(to, d->pci);
		bytes_put_u32(to, (uint32_t)d->numa);
		bytes_put_u32(to, (uint32_t)d->island);
		bytes_put_u64(to, d->memory_bytes);
	}
	for (int i = 0; m->link_gbps && i < m->n_devices * m->n_devices; i++)
		bytes_put_f64(to, (double)m->link_gbps[i]);
}

static int get_int(struct reader *from) { return (int)(int32_t)reader_u32(from); }

static enum err decode_counts(struct reader *from, struct machine *m, int *has_links)
{
	const struct { int *to; int least, most; size_t bytes; const char *what; } counts[] = {
		{ &m->n_packages, 1, MACHINE_MAX_CORES, 0, "packages" },
		{ &m->n_numa, 1, MACHINE_MAX_CORES, NUMA_BYTES, "NUMA nodes" },
		{ &m->n_cores, 1, MACHINE_MAX_CORES, CORE_BYTES, "cores" },
		{ &m->n_devices, 0, MACHINE_MAX_DEVICES, DEVICE_BYTES, "devices" },
		{ has_links, 0, 1, 0, "link tables" },
	};
	size_t need = 0;
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		int n = get_int(from);
		if (!from->error && (n < counts[i].least || n > counts[i].most))
			return ERR(WORK, "%s: a machine with %d %s, but there can be %d to %d", from->name, n,
				   counts[i].what, counts[i].least, counts[i].most);
		*counts[i].to = n;
		need += (size_t)n * counts[i].bytes;
	}
	TRY(from->error);
	if (*has_links)
		need += (size_t)m->n_devices * (size_t)m->n_devices * LINK_BYTES;
	if (need > from->size - from->at)
		return ERR(WORK, "%s: ends after %zu of the %zu bytes that a machine needs", from->name,
			   from->size - from->at, need);
	return ERR_OK;
}

static void decode_arrays(struct reader *from, struct machine *m)
{
	for (int i = 0; i < m->n_numa; i++) {
		m->numa[i].os_index = get_int(from);
		m->numa[i].package = get_int(from);
		m->numa[i].memory_bytes = reader_u64(from);
	}
	for (int i = 0; i < m->n_cores; i++) {
		struct machine_core *c = &m->cores[i];
		int *const fields[] = { &c->os_cpu, &c->n_pus, &c->package, &c->numa, &c->l3, &c->allowed };
		for (int k = 0; k < 6; k++)
			*fields[k] = get_int(from);
		for (int k = 0; k < MACHINE_MAX_PUS; k++)
			c->pus[k] = get_int(from);
	}
	for (int i = 0; i < m->n_devices; i++) {
		struct machine_device *d = &m->devices[i];
		reader_string(from, d->name, sizeof d->name);
		reader_string(from, d->model, sizeof d->model);
		reader_string(from, d->pci, sizeof d->pci);
		d->numa = get_int(from);
		d->island = get_int(from);
		d->memory_bytes = reader_u64(from);
	}
	for (int i = 0; m->link_gbps && i < m->n_devices * m->n_devices; i++) {
		double gbps = reader_f64(from);
		m->link_gbps[i] = gbps >= 0 && gbps <= 1e9 ? (float)gbps : -1;   /* -1 is refused by the check */
	}
}

static enum err decode(struct reader *from, struct machine *m)
{
	int has_links = 0;
	uint32_t magic = reader_u32(from), version = reader_u32(from);
	TRY(from->error);
	if (magic != MAGIC || version != VERSION)
		return ERR(WORK, "%s: is no machine of version %d (it starts with %08x, %u)", from->name, VERSION, magic,
			   version);
	reader_string(from, m->host, sizeof m->host);
	reader_string(from, m->cpu_model, sizeof m->cpu_model);
	reader_string(from, m->source, sizeof m->source);
	uint64_t *const sizes[] = { &m->memory_bytes, &m->memory_limit_bytes, &m->l1d_bytes, &m->l2_bytes, &m->l3_bytes };
	for (int i = 0; i < 5; i++)
		*sizes[i] = reader_u64(from);
	TRY(decode_counts(from, m, &has_links));
	TRY(MEM_NEW((size_t)m->n_numa, struct machine_numa, &m->numa));
	TRY(MEM_NEW((size_t)m->n_cores, struct machine_core, &m->cores));
	TRY(MEM_NEW((size_t)m->n_devices, struct machine_device, &m->devices));
	if (has_links)
		TRY(MEM_NEW((size_t)m->n_devices * (size_t)m->n_devices, float, &m->link_gbps));
	decode_arrays(from, m);
	TRY(from->error);
	if (machine_check(m) != ERR_OK) {
		char why[ERR_SENTENCE_BYTES];
		strcpy(why, err_sentence());
		return ERR(WORK, "%s: %s", from->name, why);   /* bad bytes, no bug of ours */
	}
	return ERR_OK;
}

enum err machine_decode(struct reader *from, struct machine *out)
{
	struct machine m = { 0 };
	enum err e = decode(from, &m);
	if (e) {
		if (!from->error)
			from->error = e;
		machine_free(&m);
		return e;
	}
	*out = m;
	return ERR_OK;
}
