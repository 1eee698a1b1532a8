/* labels: unit
 * Machines from every source, as bytes, as text; and whatever a file may hold, one sentence and no crash. */
#include "base/file.h"
#include "base/mem.h"
#include "tests/test.h"
#include "topology/cgroup.h"
#include "topology/machine.h"

#include <dirent.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#define MACHINES SOURCE_DIR "/../shared/topologies/hwloc"

static char scratch[64];

static const char *in_scratch(const char *name)
{
	static char path[256];
	if (!scratch[0]) {
		strcpy(scratch, "/tmp/shardrun-machine-XXXXXX");
		CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(scratch));
	}
	snprintf(path, sizeof path, "%s/%s", scratch, name);
	return path;
}

static const char *write_file(const char *name, const void *data, size_t bytes)
{
	const char *path = in_scratch(name);
	FILE *f = fopen(path, "wb");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fwrite(data, 1, bytes, f), bytes);
	fclose(f);
	return path;
}

static uint32_t random_state = 1;
static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 1664525u + 1013904223u;   /* Numerical Recipes, section 7.1 */
	return (random_state >> 8) % n;
}

TEST(a_description_gives_its_numbers)
{
	struct machine m;
	CHECK_OK(machine_read("pack:2 numa:2 l3:2(size=16MiB) l2:2(size=1MiB) core:2 pu:2", &m));
	CHECK_OK(machine_check(&m));
	CU_ASSERT(m.n_packages == 2 && m.n_numa == 4 && m.n_cores == 32 && m.n_devices == 0);
	CU_ASSERT(m.l3_bytes == 16 << 20 && m.l2_bytes == 1 << 20);
	CU_ASSERT_EQUAL(m.memory_bytes, 32 * (4ull << 30));   /* 4 GiB a core when nothing is said */
	CU_ASSERT_EQUAL(m.memory_limit_bytes, m.memory_bytes);
	for (int i = 0; i < 32; i++)
		CU_ASSERT(m.cores[i].package == i / 16 && m.cores[i].numa == i / 8 && m.cores[i].l3 == i / 4 &&
			  m.cores[i].n_pus == 2 && m.cores[i].os_cpu == 2 * i && m.cores[i].allowed == 1 &&
			  m.cores[i].pus[0] == 2 * i && m.cores[i].pus[1] == 2 * i + 1 && m.cores[i].pus[2] == -1 &&
			  machine_core_of_cpu(&m, 2 * i + 1) == i);
	CU_ASSERT(machine_core_of_cpu(&m, 64) == -1 && machine_core_of_cpu(&m, -1) == -1);
	for (int i = 0; i < 4; i++)
		CU_ASSERT(m.numa[i].package == i / 2 && m.numa[i].memory_bytes == 32ull << 30);
	machine_free(&m);
	CHECK_OK(machine_read("pack:2 numa:1(memory=64GiB) core:4", &m));
	CU_ASSERT_EQUAL(m.memory_bytes, 128ull << 30);
	machine_free(&m);
	CHECK_OK(machine_read("numa:1 pack:2 core:4 memory:64GiB", &m));   /* one NUMA node over two packages: one part each */
	CU_ASSERT(m.n_numa == 2 && m.n_packages == 2 && m.numa[0].os_index == m.numa[1].os_index);
	CU_ASSERT(m.numa[0].memory_bytes == 32ull << 30 && m.numa[1].package == 1);
	machine_free(&m);
}

TEST(a_description_can_have_accelerators)
{
	struct machine m;
	CHECK_OK(machine_read("pack:2 core:4 memory:512GiB gpu:8x80GiB link:450 gpumodel:NVIDIA_H100 cpu:Some_CPU", &m));
	CU_ASSERT(m.n_devices == 8 && m.memory_bytes == 512ull << 30);
	CU_ASSERT_STRING_EQUAL(m.cpu_model, "Some CPU");
	for (int i = 0; i < 8; i++) {
		CU_ASSERT(m.devices[i].numa == i / 4 && m.devices[i].island == 0 && m.devices[i].memory_bytes == 80ull << 30);
		CU_ASSERT_STRING_EQUAL(m.devices[i].model, "NVIDIA H100");
		for (int j = 0; j < 8; j++)
			CU_ASSERT_EQUAL(m.link_gbps[i * 8 + j], i == j ? 0 : 450);
	}
	machine_free(&m);
	CHECK_OK(machine_read("pack:2 core:4 gpu:2", &m));
	CU_ASSERT(m.devices[0].island == 0 && m.devices[1].island == 1 && m.devices[1].numa == 1 && !m.link_gbps);
	machine_free(&m);
}

TEST(descriptions_that_make_no_sense_are_refused)
{
	static const struct { const char *spec, *says; } bad[] = {
		{ "nonsense", "is no machine" },
		{ "pack:2 core", "no description of a machine" },
		{ "pack:2 horse:4", "no description of a machine" },
		{ "pack:0 core:4", "no description of a machine" },
		{ "pack:2 core:4 gpu:0", "gpu:0 must be a number of 1 to 128" },
		{ "pack:2 core:4 gpu:8x80", "\"80\" must be a size with its unit" },
		{ "pack:2 core:4 gpu:8y80GiB", "gpu:8y80GiB must be a number" },
		{ "pack:2 core:4 gpu:2x80GiB link:-4", "link:-4 must be GB/s" },
		{ "pack:2 core:4 link:4", "link: is there without gpu:" },
		{ "pack:2 core:4 memory:12", "memory:12 must be a size with its unit" },
		{ "pack:2 core:1000", "2000 cores, but there can be 1 to 1024" },
		{ "pack:1000 core:1000", "more than 16384 hardware threads" },
		{ "pack:4000000000 core:4000000000 pu:4000000000", "more than 16384 hardware threads" },
		{ "1000 1000 1000", "is no machine" },
		{ "memcache:1 core:2", "memcache:1 core:2: hwloc falls over" },   /* an assertion of hwloc 2.9.0 */
	};
	struct machine m;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		CHECK_ERR(machine_read(bad[i].spec, &m), USAGE, bad[i].says);
	char longer[3000] = "pack:2";
	memset(longer + 6, ' ', sizeof longer - 7);
	CHECK_ERR(machine_read(longer, &m), USAGE, "has 2999 characters");
}

/* Counts by `hwloc-calc -i FILE --number-of package|numa|core|pu all` of hwloc 2.9; accelerators and links from the list of
 * machines that comes with the files and, for the DGX-2, from NVIDIA's 300 GB/s a GPU in both directions together. */
static const struct {
	const char *file;
	int packages, numa, cores, pus, devices, islands;
	float link;      /* between the first two; -1: not known */
} real[] = {
	{ "aws-g4dn-8xT4", 2, 2, 48, 96, 8, 8, -1 },
	{ "hpe-tioga-8xMI250X", 1, 4, 64, 128, 8, 1, 100 },
	{ "ibm-power8-4xP100", 2, 2, 8, 16, 4, 2, 40 },
	{ "llnl-corona-4xMI60", 2, 8, 48, 96, 4, 4, -1 },
	{ "llnl-lassen-4xV100", 2, 2, 40, 160, 4, 4, -1 },
	{ "llnl-pascal-2xP100", 2, 2, 36, 72, 2, 2, -1 },
	{ "nvidia-dgx2-16xV100", 2, 2, 4, 4, 16, 1, 150 },
	{ "nvidia-gb10", 1, 1, 20, 20, 0, 0, -1 },
};

static int have_machines(void)
{
	if (file_is_directory(MACHINES))
		return 1;
	printf("skipped: %s is not there ... ", MACHINES);
	return 0;
}

TEST(real_machines_read_as_they_are)
{
	if (!have_machines())
		return;
	for (size_t i = 0; i < sizeof real / sizeof real[0]; i++) {
		char path[1100];
		struct machine m;
		int pus = 0, islands = 0;
		snprintf(path, sizeof path, "%s/%s.xml", MACHINES, real[i].file);
		CHECK_OK(machine_read(path, &m));
		for (int k = 0; k < m.n_cores; k++)
			pus += m.cores[k].n_pus;
		for (int k = 0; k < m.n_devices; k++)
			islands = m.devices[k].island >= islands ? m.devices[k].island + 1 : islands;
		CU_ASSERT_EQUAL(m.n_packages, real[i].packages);
		CU_ASSERT_EQUAL(m.n_numa, real[i].numa);
		CU_ASSERT_EQUAL(m.n_cores, real[i].cores);
		CU_ASSERT_EQUAL(pus, real[i].pus);
		CU_ASSERT_EQUAL(m.n_devices, real[i].devices);
		CU_ASSERT_EQUAL(islands, real[i].islands);
		CU_ASSERT_EQUAL(m.link_gbps ? m.link_gbps[1] : -1, real[i].link);
		CU_ASSERT(m.host[0] && m.cpu_model[0]);
		machine_free(&m);
	}
}

TEST(the_power8_has_its_gpus_in_pairs_on_the_right_processors)
{
	struct machine m;
	if (!have_machines())
		return;
	CHECK_OK(machine_read(MACHINES "/ibm-power8-4xP100.xml", &m));
	for (int i = 0; i < 4; i++) {
		char name[8];
		snprintf(name, sizeof name, "cuda%d", i);
		CU_ASSERT_STRING_EQUAL(m.devices[i].name, name);
		CU_ASSERT_STRING_EQUAL(m.devices[i].model, "Tesla P100-SXM2-16GB");
		CU_ASSERT(m.devices[i].numa == i / 2 && m.devices[i].island == i / 2);
		CU_ASSERT_EQUAL(m.devices[i].memory_bytes >> 30, 15);   /* 16671616 KiB in the file */
	}
	CU_ASSERT_STRING_EQUAL(m.devices[2].pci, "000a:01:00.0");
	CU_ASSERT_EQUAL(m.link_gbps[1 * 4 + 2], 0);
	machine_free(&m);
}

TEST(this_machine_reads_and_allows_what_the_scheduler_allows)
{
	struct machine m;
	cpu_set_t mine;
	char host[256] = "";
	CHECK_OK(machine_read("", &m));
	CU_ASSERT_EQUAL_FATAL(sched_getaffinity(0, sizeof mine, &mine), 0);
	gethostname(host, sizeof host - 1);
	CU_ASSERT_EQUAL(strncmp(m.host, host, sizeof m.host - 1), 0);
	CU_ASSERT_STRING_EQUAL(m.source, "live");
	CU_ASSERT(m.memory_bytes > 0 && m.memory_limit_bytes <= m.memory_bytes);
	int allowed = 0;
	for (int i = 0; i < m.n_cores; i++) {
		if (m.cores[i].allowed)
			CU_ASSERT(CPU_ISSET((size_t)m.cores[i].os_cpu, &mine));
		allowed += m.cores[i].allowed;
	}
	CU_ASSERT(allowed >= 1 && allowed <= CPU_COUNT(&mine));
	machine_free(&m);
	cpu_set_t one;   /* bound to the last allowed CPU: one core is left, and the others are still there */
	CPU_ZERO(&one);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &mine)) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
		}
	int n_cores = m.n_cores;
	CU_ASSERT_EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
	CHECK_OK(machine_read("live", &m));
	sched_setaffinity(0, sizeof mine, &mine);
	for (int i = n_cores = 0; i < m.n_cores; i++) {
		CU_ASSERT(!m.cores[i].allowed || CPU_ISSET((size_t)m.cores[i].os_cpu, &one));
		n_cores += m.cores[i].allowed;
	}
	CU_ASSERT_EQUAL(n_cores, 1);
	machine_free(&m);
}

static int same(const struct machine *a, const struct machine *b)
{
	struct bytes x = { 0 }, y = { 0 };
	machine_encode(a, &x);
	machine_encode(b, &y);
	int equal = x.size == y.size && !memcmp(x.data, y.data, x.size);
	bytes_free(&x);
	bytes_free(&y);
	return equal;
}

static const char rich[] = "pack:2 numa:2 core:3 pu:2 gpu:3x80GiB link:12.5 cpu:X gpumodel:Y";

TEST(bytes_bring_the_same_machine_back)
{
	struct machine m, back, copy;
	struct bytes b = { 0 };
	struct reader r;
	CHECK_OK(machine_read(rich, &m));
	machine_encode(&m, &b);
	reader_init(&r, "test", b.data, b.size);
	CHECK_OK(machine_decode(&r, &back));
	CU_ASSERT_EQUAL(r.at, b.size);
	CU_ASSERT(same(&m, &back));
	CU_ASSERT(back.link_gbps[1] == 12.5f && back.devices[2].memory_bytes == 80ull << 30 && back.cores[11].numa == 3);
	CU_ASSERT_STRING_EQUAL(back.source, rich);
	CHECK_OK(machine_copy(&m, &copy));
	CU_ASSERT(same(&m, &copy) && copy.cores != m.cores);
	for (size_t cut = 0; cut < b.size; cut++) {
		struct machine none;
		unsigned char *part = malloc(cut ? cut : 1);   /* of its own, so that a sanitizer sees a read past the end */
		memcpy(part, b.data, cut);
		reader_init(&r, "test", part, cut);
		CU_ASSERT_EQUAL(machine_decode(&r, &none), ERR_WORK);
		free(part);
	}
	machine_free(&m);
	machine_free(&back);
	machine_free(&copy);
	bytes_free(&b);
}

TEST(damaged_bytes_give_an_error_or_a_machine_that_holds)
{
	struct machine m, back;
	struct bytes b = { 0 };
	struct reader r;
	int refused = 0, taken = 0;
	CHECK_OK(machine_read(rich, &m));
	machine_encode(&m, &b);
	for (int round = 0; round < 20000; round++) {
		size_t at[3];
		unsigned char before[3];
		int n = 1 + (int)random_below(3);
		for (int k = 0; k < n; k++) {
			at[k] = random_below((uint32_t)b.size);
			before[k] = b.data[at[k]];
			b.data[at[k]] = round % 2 ? (unsigned char)random_below(256) : (unsigned char)(before[k] ^ 1u << random_below(8));
		}
		reader_init(&r, "test", b.data, b.size);
		if (machine_decode(&r, &back) == ERR_OK) {
			CU_ASSERT_EQUAL(machine_check(&back), ERR_OK);
			machine_free(&back);
			taken++;
		} else {
			refused++;
		}
		for (int k = n - 1; k >= 0; k--)
			b.data[at[k]] = before[k];
	}
	CU_ASSERT(refused > 1000 && taken > 1000);
	machine_free(&m);
	bytes_free(&b);
}

TEST(the_check_finds_what_is_broken)
{
	struct machine m;
	CHECK_OK(machine_read(rich, &m));
#define BREAK(type, field, value, text)                         \
	do {                                                    \
		type before_ = field;                           \
		field = value;                                  \
		CHECK_ERR(machine_check(&m), BUG, text);        \
		field = before_;                                \
	} while (0)
	BREAK(int, m.n_packages, 3, "in 2 of 3 packages");
	BREAK(int, m.n_numa, 5, "4 of 5 NUMA nodes");
	BREAK(int, m.n_cores, 0, "has 0 cores");
	BREAK(int, m.cores[3].package, 1, "core 3");
	BREAK(int, m.cores[3].numa, 2, "core 3 is in NUMA node 2 after node 0");
	BREAK(int, m.cores[0].allowed, 2, "allowed 2");
	BREAK(int, m.cores[5].l3, 12, "cache 12");
	BREAK(int, m.cores[5].pus[1], -1, "core 5 has 2 threads, but thread 1 is CPU -1");
	BREAK(int, m.cores[5].pus[2], 3, "core 5 has 2 threads, but thread 2 is CPU 3");
	BREAK(int, m.cores[5].os_cpu, 0, "core 5 is CPU 0, which is none of its threads");
	BREAK(int, m.numa[1].package, 1, "its node in 1");
	BREAK(int, m.devices[1].numa, 4, "device 1 is on NUMA node 4");
	BREAK(int, m.devices[1].island, 2, "are linked, but in islands 0 and 2");
	BREAK(float, m.link_gbps[0], 1, "devices 0 and 0 are linked");
	BREAK(float, m.link_gbps[2], -1, "linked with -1 GB/s");
	BREAK(uint64_t, m.memory_limit_bytes, m.memory_bytes + 1, "more memory than it has");
	CHECK_OK(machine_check(&m));
	machine_free(&m);
}

/* Runs body with stderr in a file and gives that file's size: libraries must not talk. */
static long long stderr_bytes(void (*body)(void))
{
	struct stat st = { 0 };
	fflush(stderr);
	int saved = dup(2);
	FILE *f = fopen(in_scratch("stderr"), "w");
	dup2(fileno(f), 2);
	body();
	fflush(stderr);
	fstat(2, &st);
	dup2(saved, 2);
	close(saved);
	fclose(f);
	return (long long)st.st_size;
}

static int hostile_taken, hostile_refused;

static void try_xml(const void *data, size_t bytes)
{
	struct machine m;
	const char *path = write_file("hostile.xml", data, bytes);
	enum err e = machine_read(path, &m);
	if (e) {
		hostile_refused++;
		CU_ASSERT(e == ERR_USAGE && strstr(err_sentence(), "hostile.xml: ") && !strchr(err_sentence(), '\n'));
		return;
	}
	hostile_taken++;
	CU_ASSERT_EQUAL(machine_check(&m), ERR_OK);
	machine_free(&m);
}

static void damaged_files(void)
{
	struct bytes b = { 0 };
	if (file_read_all(MACHINES "/nvidia-dgx2-16xV100.xml", 1 << 20, &b))
		return;
	for (size_t cut = 0; cut < b.size; cut += b.size / 40)
		try_xml(b.data, cut);
	for (int round = 0; round < 300; round++) {
		size_t at = random_below((uint32_t)b.size), n = 1 + random_below(3);
		unsigned char before[4] = { 0 };
		for (size_t k = 0; k < n && at + k < b.size; k++) {
			before[k] = b.data[at + k];
			b.data[at + k] = (unsigned char)(round % 2 ? '0' + random_below(10) : random_below(256));
		}
		try_xml(b.data, b.size);
		for (size_t k = 0; k < n && at + k < b.size; k++)
			b.data[at + k] = before[k];
	}
	bytes_free(&b);
}

TEST(damaged_xml_gives_one_sentence_and_no_noise)
{
	if (!have_machines())
		return;
	CU_ASSERT_EQUAL(stderr_bytes(damaged_files), 0);
	CU_ASSERT(hostile_refused > 40 && hostile_taken > 40);
}

/* hwloc 2.9.0 itself falls over when a package has lost its complete_cpuset. */
TEST(a_file_that_hwloc_falls_over_is_refused)
{
	struct bytes b = { 0 };
	struct machine m;
	if (!have_machines())
		return;
	CHECK_OK(file_read_all(MACHINES "/nvidia-dgx2-16xV100.xml", 1 << 20, &b));
	char *package = strstr((char *)b.data, "type=\"Package\""), *name = package ? strstr(package, "complete_cpuset") : NULL;
	CU_ASSERT_PTR_NOT_NULL_FATAL(name);
	name[7] = '-';
	const char *path = write_file("falls.xml", b.data, b.size);
	CHECK_ERR(machine_read(path, &m), USAGE, "falls.xml: ");
	CU_ASSERT_PTR_NOT_NULL(strstr(err_sentence(), "damaged"));
	bytes_free(&b);
}

TEST(files_that_are_no_machine_are_named)
{
	static const struct { const char *text, *says; } bad[] = {
		{ "", "has no <topology> element" },
		{ "hello", "has no <topology> element" },
		{ "<topology version=\"3.0\"><object/></topology>", "was written by hwloc 3" },
		{ "<!DOCTYPE x [<!ENTITY a \"b\">]><topology/>", "defines XML entities" },
		{ "<topology version=\"2.0\"></topology>", "cannot read this XML file" },
		{ "<topology", "cannot read this XML file" },
		{ "<system version=\"1\"><cpu numaid=\"0\"/></system>", "has no <topology> element" },   /* NCCL's */
	};
	struct machine m;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		CHECK_ERR(machine_read(write_file("bad.xml", bad[i].text, strlen(bad[i].text)), &m), USAGE, bad[i].says);
	CHECK_ERR(machine_read(in_scratch("absent.xml"), &m), IO, "absent.xml");
	const char *path = write_file("large.xml", "<", 1);
	CU_ASSERT_EQUAL(truncate(path, 17 << 20), 0);   /* over 16 MiB */
	CHECK_ERR(machine_read(path, &m), IO, "large.xml");
}

TEST(every_allocation_may_fail)
{
	static const char *const specs[] = { rich, MACHINES "/ibm-power8-4xP100.xml" };
	for (int s = 0; s < (have_machines() ? 2 : 1); s++) {
		int failed = 0, done = 0;
		for (int at = 1; at < 200 && !done; at++) {
			struct machine m;
			mem_fail_at(at);
			enum err e = machine_read(specs[s], &m);
			mem_fail_at(0);
			CU_ASSERT(e == ERR_OK || e == ERR_MEMORY);
			failed += e != ERR_OK;
			done = e == ERR_OK;
			if (!e)
				machine_free(&m);
		}
		CU_ASSERT(failed >= 4 && done);
	}
	struct machine m, copy;
	CHECK_OK(machine_read(rich, &m));
	for (int at = 1; at <= 4; at++) {
		mem_fail_at(at);
		CHECK_ERR(machine_copy(&m, &copy), MEMORY, "no memory");
	}
	mem_fail_at(0);
	machine_free(&m);
}

static void put_limit(const char *path, const char *text)
{
	char whole[512];
	snprintf(whole, sizeof whole, "%s%s", in_scratch("cg"), path);
	for (char *slash = strchr(whole + strlen(scratch) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(whole, 0700);
		*slash = '/';
	}
	FILE *f = fopen(whole, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	fclose(f);
}

TEST(the_least_limit_of_all_control_groups_counts)
{
	char root[256];
	strcpy(root, in_scratch("cg"));
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), UINT64_MAX);
	put_limit("/proc/self/cgroup", "0::/job/step\n");
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), UINT64_MAX);
	put_limit("/sys/fs/cgroup/job/step/memory.max", "max\n");
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), UINT64_MAX);
	put_limit("/sys/fs/cgroup/job/memory.max", "5000\n");
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), 5000);
	put_limit("/sys/fs/cgroup/job/step/memory.max", "7000\n");
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), 5000);
	put_limit("/sys/fs/cgroup/job/step/memory.max", "300\n");
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), 300);
	/* v1, in a container: the path is the host's, only the mount's own file is there */
	put_limit("/proc/self/cgroup", "9:cpu:/x\n4:blkio,memory:/docker/abc\n0::/\n");
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), UINT64_MAX);
	put_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), UINT64_MAX);
	put_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), 4096);
	put_limit("/proc/self/cgroup", "garbage\n:::\n\n7:memory:/../../etc\n");
	CU_ASSERT_EQUAL(cgroup_memory_limit(root), 4096);
}

static const char *const want_text =
	"node: 2 packages, 2 NUMA nodes, 8 cores (16 threads), 64 GiB, 2 accelerators\n"
	"  processor  A CPU\n"
	"  caches     L2 1 MiB\n"
	"  limit      1.5 GiB of memory (control group)\n"
	"  allowed    5 of 8 cores: 0-2,4,7\n"
	"  numa  package  cores    memory\n"
	"     0        0  0-3      32 GiB\n"
	"     1        1  4-7      32 GiB\n"
	"  device  numa  island    memory  pci           model\n"
	"  gpu0       0       0    80 GiB  -             -\n"
	"  gpu1       1       0    80 GiB  -             -\n"
	"  links      450 GB/s between any two of an island\n";

static const char *const want_links =
	"  links in GB/s, row to column\n"
	"             0     1\n"
	"       0     -    25\n"
	"       1   450     -\n";

TEST(a_machine_prints_as_the_manual_shows)
{
	struct machine m;
	struct bytes b = { 0 };
	CHECK_OK(machine_read("pack:2 l2:1(size=1MiB) core:4 pu:2 memory:64GiB gpu:2x80GiB link:450 cpu:A_CPU", &m));
	m.memory_limit_bytes = 3ull << 29;
	m.cores[3].allowed = m.cores[5].allowed = m.cores[6].allowed = 0;
	machine_print(&m, &b);
	CU_ASSERT_STRING_EQUAL(bytes_text(&b), want_text);
	if (strcmp(bytes_text(&b), want_text))
		fprintf(stderr, "%s", bytes_text(&b));
	m.link_gbps[1] = 25;   /* not alike: a matrix */
	bytes_clear(&b);
	machine_print(&m, &b);
	CU_ASSERT_PTR_NOT_NULL(strstr(bytes_text(&b), want_links));
	bytes_free(&b);
	machine_free(&m);
}

TEST(names_are_ordered_as_people_do)
{
	static const char *const sorted[] = { "", "a", "n", "n2", "n9", "n10", "n10a", "n010b", "n99999999999999999999",
					      "n100000000000000000000", "na" };
	int n = sizeof sorted / sizeof sorted[0];
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			int order = machine_name_compare(sorted[i], sorted[j]);
			CU_ASSERT_EQUAL((order > 0) - (order < 0), (i > j) - (i < j));
		}
	CU_ASSERT(machine_name_compare("n07", "n7") && machine_name_compare("n07", "n7") == -machine_name_compare("n7", "n07"));
}

static void remove_scratch(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -r '%s'", scratch);
	if (scratch[0] && system(command))
		fprintf(stderr, "%s is left over\n", scratch);
}

TEST(nothing_is_left_over) { remove_scratch(); }

TEST_MAIN("machine", CASE(a_description_gives_its_numbers), CASE(a_description_can_have_accelerators),
	  CASE(descriptions_that_make_no_sense_are_refused), CASE(real_machines_read_as_they_are),
	  CASE(the_power8_has_its_gpus_in_pairs_on_the_right_processors),
	  CASE(this_machine_reads_and_allows_what_the_scheduler_allows), CASE(bytes_bring_the_same_machine_back),
	  CASE(damaged_bytes_give_an_error_or_a_machine_that_holds), CASE(the_check_finds_what_is_broken),
	  CASE(damaged_xml_gives_one_sentence_and_no_noise), CASE(a_file_that_hwloc_falls_over_is_refused),
	  CASE(files_that_are_no_machine_are_named), CASE(every_allocation_may_fail),
	  CASE(the_least_limit_of_all_control_groups_counts), CASE(a_machine_prints_as_the_manual_shows),
	  CASE(names_are_ordered_as_people_do), CASE(nothing_is_left_over))
