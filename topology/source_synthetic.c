/* A machine from a description: hwloc's synthetic string for packages, NUMA nodes, caches and cores, then words of ours for
 * what hwloc has none for (see machine.h). The words are taken off first, the rest goes to hwloc. */
#include "base/mem.h"
#include "topology/isolate.h"
#include "topology/source_hwloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SPEC_BYTES = 1024, MAX_THREADS = 16 * MACHINE_MAX_CORES };
static const uint64_t default_core_bytes = 4ull << 30;

struct extras {
	uint64_t memory_bytes, gpu_bytes;
	int n_gpus;
	double link_gbps;
	char cpu[MACHINE_MODEL_BYTES], gpu_model[MACHINE_MODEL_BYTES];
};

static int accepts(const char *spec)
{
	size_t word = strspn(spec, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789[");
	return word && (spec[word] == ':' || spec[word] == '(' || spec[0] == '[');
}

/* "80GiB", "1.5TiB", "96GB"; 0 when it is no size. */
static uint64_t size_of(const char *text)
{
	static const struct { const char *unit; double bytes; } units[] = {
		{ "MiB", 0x1p20 }, { "GiB", 0x1p30 }, { "TiB", 0x1p40 }, { "MB", 1e6 }, { "GB", 1e9 }, { "TB", 1e12 },
	};
	char *end;
	double n = strtod(text, &end);
	if (end == text || !(n > 0) || n > 1e6)
		return 0;
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
		if (!strcmp(end, units[i].unit))
			return (uint64_t)(n * units[i].bytes);
	return 0;
}

static enum err parse_gpus(const char *value, struct extras *x)
{
	char *end;
	long n = strtol(value, &end, 10);
	if (end == value || n < 1 || n > MACHINE_MAX_DEVICES || (*end && *end != 'x'))
		return ERR(USAGE, "gpu:%s must be a number of 1 to %d and a size, like gpu:8x80GiB", value,
			   MACHINE_MAX_DEVICES);
	x->n_gpus = (int)n;
	x->gpu_bytes = *end ? size_of(end + 1) : 0;
	if (*end && !x->gpu_bytes)
		return ERR(USAGE, "gpu:%s: \"%s\" must be a size with its unit, like 80GiB", value, end + 1);
	return ERR_OK;
}

static void copy_name(char *room, size_t capacity, const char *value)
{
	machine_set_text(room, capacity, value);
	for (; *room; room++)
		if (*room == '_')
			*room = ' ';
}

static int starts(const char *word, const char *prefix) { return !strncmp(word, prefix, strlen(prefix)); }

/* A word of ours: *taken is 1. */
static enum err parse_word(const char *word, struct extras *x, int *taken)
{
	char *end;
	*taken = 1;
	if (starts(word, "memory:")) {
		x->memory_bytes = size_of(word + 7);
		if (!x->memory_bytes)
			return ERR(USAGE, "%s must be a size with its unit, like memory:512GiB", word);
	} else if (starts(word, "gpu:")) {
		return parse_gpus(word + 4, x);
	} else if (starts(word, "link:")) {
		x->link_gbps = strtod(word + 5, &end);
		if (end == word + 5 || *end || !(x->link_gbps > 0) || x->link_gbps > 1e6)
			return ERR(USAGE, "%s must be GB/s per direction, like link:450", word);
	} else if (starts(word, "cpu:")) {
		copy_name(x->cpu, sizeof x->cpu, word + 4);
	} else if (starts(word, "gpumodel:")) {
		copy_name(x->gpu_model, sizeof x->gpu_model, word + 9);
	} else {
		*taken = 0;
	}
	return ERR_OK;
}

/* Splits spec into hwloc's part, joined with blanks, and ours. */
static enum err split(const char *spec, char hwloc_part[MAX_SPEC_BYTES], struct extras *x)
{
	char copy[MAX_SPEC_BYTES], *rest = copy, *word;
	int taken;
	size_t n = 0;
	if (strlen(spec) >= sizeof copy)
		return ERR(USAGE, "a machine's description has %zu characters, but at most %d", strlen(spec),
			   MAX_SPEC_BYTES - 1);
	strcpy(copy, spec);
	hwloc_part[0] = '\0';
	while ((word = strsep(&rest, " \t"))) {
		if (!*word)
			continue;
		TRY(parse_word(word, x, &taken));
		if (!taken)
			n += (size_t)snprintf(hwloc_part + n, MAX_SPEC_BYTES - n, "%s%s", n ? " " : "", word);
	}
	/* hwloc wants the hardware threads named; one per core goes without saying. */
	if (!strstr(hwloc_part, "pu:") && strchr(hwloc_part, ':') && n + 5 < MAX_SPEC_BYTES)
		strcat(hwloc_part, " pu:1");
	if (x->link_gbps > 0 && !x->n_gpus)
		return ERR(USAGE, "link: is there without gpu:");
	return ERR_OK;
}

/* hwloc would build whatever is asked for, so the hardware threads are counted before: the product of all counts outside
 * of parentheses (sizes) and brackets (NUMA nodes attached to the side). */
static enum err check_size(const char *text)
{
	unsigned long long product = 1;
	int depth = 0, in_word = 0;
	for (const char *at = text; *at; at++) {
		depth += (*at == '(' || *at == '[') - (*at == ')' || *at == ']');
		if (!depth && *at >= '0' && *at <= '9' && (!in_word || at[-1] == ':')) {
			char *end;
			unsigned long long n = strtoull(at, &end, 0);
			if (n > MAX_THREADS || (product *= n ? n : 1) > MAX_THREADS)
				return ERR(USAGE, "\"%s\" describes more than %d hardware threads", text, MAX_THREADS);
			at = end - 1;
		}
		in_word = *at != ' ' && depth == 0 && *at != ')' && *at != ']';
	}
	return ERR_OK;
}

static enum err add_gpus(const struct extras *x, struct machine *m)
{
	int n = x->n_gpus;
	mem_free(m->devices);   /* hwloc's, of none */
	m->devices = NULL;
	m->n_devices = n;
	TRY(MEM_NEW((size_t)n, struct machine_device, &m->devices));
	if (x->link_gbps > 0)
		TRY(MEM_NEW((size_t)n * (size_t)n, float, &m->link_gbps));
	for (int i = 0; i < n; i++) {
		struct machine_device *d = &m->devices[i];
		snprintf(d->name, sizeof d->name, "gpu%d", i);
		machine_set_text(d->model, sizeof d->model, x->gpu_model);
		d->numa = n >= m->n_numa ? i * m->n_numa / n : i * (m->n_numa / n);
		d->memory_bytes = x->gpu_bytes;
		for (int j = 0; m->link_gbps && j < n; j++)
			m->link_gbps[i * n + j] = i == j ? 0 : (float)x->link_gbps;
	}
	machine_find_islands(m);
	return ERR_OK;
}

static void set_memory(struct machine *m, uint64_t bytes)
{
	uint64_t each = bytes / (unsigned)m->n_numa;
	for (int i = 0; i < m->n_numa; i++)
		m->numa[i].memory_bytes = each;
	m->memory_bytes = m->memory_limit_bytes = each * (unsigned)m->n_numa;
}

static enum err load(hwloc_topology_t t, const char *text, const struct extras *x, struct machine *m)
{
	if (hwloc_topology_set_synthetic(t, text) || hwloc_topology_load(t))
		return ERR(USAGE, "\"%s\" is no description of a machine; one looks like \"pack:2 numa:2 core:8 pu:1\"",
			   text);
	TRY(hwloc_to_machine(t, NULL, text, m));
	if (x->memory_bytes)
		set_memory(m, x->memory_bytes);
	else if (!strstr(text, "memory="))
		set_memory(m, default_core_bytes * (unsigned)m->n_cores);
	if (!x->n_gpus)
		return ERR_OK;
	return add_gpus(x, m);
}

static enum err read_here(const char *spec, struct machine *out)
{
	struct extras x = { 0 };
	char text[MAX_SPEC_BYTES];
	hwloc_topology_t t;
	TRY(split(spec, text, &x));
	TRY(check_size(text));
	TRY(hwloc_open_topology(&t));
	enum err e = load(t, text, &x, out);
	hwloc_topology_destroy(t);
	TRY(e);
	machine_set_text(out->host, sizeof out->host, "node");
	machine_set_text(out->source, sizeof out->source, spec);
	machine_set_text(out->cpu_model, sizeof out->cpu_model, x.cpu);
	return ERR_OK;
}

static enum err read_synthetic(const char *spec, struct machine *out) { return machine_read_isolated(read_here, spec, out); }

const struct machine_source machine_source_synthetic = {
	"synthetic", "\"pack:2 numa:2 core:8 pu:1 memory:512GiB gpu:8x80GiB link:450\": a machine in words", accepts,
	read_synthetic,
};
