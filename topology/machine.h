/* What one machine is: packages, NUMA nodes, cores, caches, accelerators and links between them.
 *
 * A machine is plain data: three sources fill it (the live machine and an XML file through hwloc, and a synthetic
 * string), it is encoded to bytes so that every rank can learn every machine, and the planner reads it without
 * knowing where it came from. Cores are in hwloc's logical order, so neighbours in the array are neighbours on the chip,
 * and the cores of a package, and of a NUMA node, are contiguous. A NUMA node never spans packages here: one that does
 * (memory interleaved by the firmware) becomes one entry per package, with the same os_index and its share of the memory. */
#ifndef SHARDRUN_TOPOLOGY_MACHINE_H
#define SHARDRUN_TOPOLOGY_MACHINE_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdint.h>

enum { MACHINE_NAME_BYTES = 64, MACHINE_MODEL_BYTES = 128 };
enum { MACHINE_MAX_CORES = 1024, MACHINE_MAX_PUS = 8, MACHINE_MAX_DEVICES = 128, CLUSTER_MAX_NODES = 16384 };

struct machine_core {
	int os_cpu;            /* OS number of its first hardware thread, of those allowed if any is */
	int n_pus;             /* hardware threads */
	int pus[MACHINE_MAX_PUS];   /* OS numbers of the first of them, in order; -1 after n_pus */
	int package, numa;     /* indexes below n_packages, n_numa */
	int l3;                /* cores with the same number share a last-level cache; -1: none known */
	int allowed;           /* this process may run here (cgroup, binding); 1 in files */
};

struct machine_numa {
	int os_index, package;
	uint64_t memory_bytes;
};

struct machine_device {                 /* an accelerator */
	char name[MACHINE_NAME_BYTES];      /* "cuda0", "rsmi3", "opencl0d0", "gpu0" if the OS has no name for it */
	char model[MACHINE_MODEL_BYTES];    /* as the vendor writes it, "" if unknown */
	char pci[24];                       /* "0000:17:00.0", "" if none */
	int numa;                           /* nearest NUMA node, -1 unknown */
	int island;                         /* devices with the same number reach each other over NVLink/XGMI; else one each */
	uint64_t memory_bytes;              /* 0 unknown */
};

struct machine {
	char host[MACHINE_NAME_BYTES];
	char cpu_model[MACHINE_MODEL_BYTES];
	char source[MACHINE_MODEL_BYTES];   /* "live", the file's name, the synthetic string */
	uint64_t memory_bytes;              /* what is installed */
	uint64_t memory_limit_bytes;        /* least of cgroup and installed; equals memory_bytes in files */
	uint64_t l1d_bytes, l2_bytes, l3_bytes;   /* of one instance; 0: none */
	int n_packages;
	int n_numa, n_cores, n_devices;     /* a NUMA node without cores (GPU memory) is not counted */
	struct machine_numa *numa;          /* owned arrays */
	struct machine_core *cores;
	struct machine_device *devices;
	float *link_gbps;                   /* (n_devices, n_devices) between devices, 0: only PCIe; NULL if unknown */
};

/* A source reads `spec` into *out (zeroed by the caller's side before). The table has one row per source file. */
struct machine_source {
	const char *name;                   /* "live", "xml", "synthetic" */
	const char *spec;                   /* what spec looks like, for help */
	int (*accepts)(const char *spec);   /* would this source read that spec? tried in order of the table */
	enum err (*read)(const char *spec, struct machine *out);
};
extern const struct machine_source *const machine_sources[];   /* NULL-terminated */

/* spec: "" or "live"; a path to an hwloc XML file; an hwloc synthetic string ("pack:2 numa:2 core:8 pu:1").
 * A synthetic string may go on with words of ours, for what hwloc's have no word for:
 *   memory:512GiB    the node's memory, spread evenly (default: the string's own (memory=) sizes, else 4 GiB a core)
 *   gpu:8x80GiB      accelerators and the memory of each, spread over the NUMA nodes in order
 *   link:450         GB/s per direction between any two of them; makes them one island
 *   cpu:NAME gpumodel:NAME   what they are called; _ stands for a blank
 * ERR_USAGE or ERR_IO says what was wrong. *out is the caller's: machine_free. */
enum err machine_read(const char *spec, struct machine *out);
/* ERR_BUG with a sentence when an invariant is broken (indexes in range, every NUMA node has a core, ...). */
enum err machine_check(const struct machine *m);
void machine_encode(const struct machine *m, struct bytes *to);
enum err machine_decode(struct reader *from, struct machine *out);   /* hostile bytes give an error, never a crash */
void machine_free(struct machine *m);
enum err machine_copy(const struct machine *m, struct machine *out);
/* One machine as text, as `shardrun topo` prints it: cores as ranges per NUMA node, devices with islands, links. */
void machine_print(const struct machine *m, struct bytes *to);

/* A cluster: nodes in order; equal machines may be repeated. */
struct cluster {
	int n_nodes;
	struct machine *nodes;     /* owned */
};
/* "N x SPEC" or SPEC, several joined by " + "; hosts of repeated nodes get "-0", "-1", ... appended. SPEC may also be a
 * cluster file: text whose lines are such terms, with # comments; paths in it start at its own directory. */
enum err cluster_read(const char *spec, struct cluster *out);
void cluster_free(struct cluster *c);

/* The index of the core that this OS CPU is a hardware thread of; -1: none. */
int machine_core_of_cpu(const struct machine *m, int os_cpu);
/* Orders names as people do: runs of digits count as numbers, so node9 comes before node10. */
int machine_name_compare(const char *a, const char *b);

#endif
