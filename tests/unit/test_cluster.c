/* labels: unit
 * Clusters from the command line and from files, and the descriptions that come with the program. */
#include "base/file.h"
#include "base/mem.h"
#include "tests/test.h"
#include "topology/machine.h"

#include <dirent.h>
#include <unistd.h>

#define SHIPPED SOURCE_DIR "/configs/clusters"

static char directory[] = "/tmp/shardrun-cluster-XXXXXX";

static const char *write_file(const char *name, const char *text)
{
	static char path[256];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	FILE *f = fopen(path, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	fclose(f);
	return path;
}

TEST(terms_repeat_and_join)
{
	struct cluster c;
	CHECK_OK(cluster_read("2 x pack:2 core:4 + core:3 gpu:1x8GiB", &c));
	CU_ASSERT_EQUAL_FATAL(c.n_nodes, 3);
	CU_ASSERT(c.nodes[0].n_cores == 8 && c.nodes[1].n_cores == 8 && c.nodes[2].n_cores == 3 && c.nodes[2].n_devices == 1);
	CU_ASSERT_STRING_EQUAL(c.nodes[0].host, "node-0");
	CU_ASSERT_STRING_EQUAL(c.nodes[2].host, "node-2");
	CU_ASSERT_PTR_NOT_EQUAL(c.nodes[0].cores, c.nodes[1].cores);
	cluster_free(&c);
	CHECK_OK(cluster_read("", &c));
	CU_ASSERT(c.n_nodes == 1 && !strcmp(c.nodes[0].source, "live"));
	cluster_free(&c);
	CHECK_OK(cluster_read("16384 x core:1", &c));
	CU_ASSERT_STRING_EQUAL(c.nodes[16383].host, "node-16383");
	cluster_free(&c);
}

TEST(wrong_terms_are_refused)
{
	static const struct { const char *spec, *says; } bad[] = {
		{ "0 x core:1", "number of nodes must be 1 to 16384" },
		{ "-3 x core:1", "number of nodes must be 1 to 16384" },
		{ "99999999999999999999 x core:1", "number of nodes must be 1 to 16384" },
		{ "16384 x core:1 + core:1", "more than 16384 nodes" },
		{ "2 x nothing", "\"nothing\" is no machine" },
		{ "core:1 + ", "nothing stands beside" },
		{ " + core:1", "nothing stands beside" },
		{ SHIPPED, "is a directory" },
	};
	struct cluster c;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		CHECK_ERR(cluster_read(bad[i].spec, &c), USAGE, bad[i].says);
}

TEST(files_hold_terms_comments_and_other_files)
{
	struct cluster c;
	write_file("node.txt", "# one node\n\n  pack:2 core:2 memory:8GiB  # with a remark\r\n");
	const char *path = write_file("all.txt", "3 x node.txt\n2 x core:1 + core:2\n");
	CHECK_OK(cluster_read(path, &c));
	CU_ASSERT_EQUAL_FATAL(c.n_nodes, 6);
	CU_ASSERT(c.nodes[2].n_cores == 4 && c.nodes[3].n_cores == 1 && c.nodes[5].n_cores == 2);
	CU_ASSERT_EQUAL(c.nodes[0].memory_bytes, 8ull << 30);
	cluster_free(&c);
	char twice[300];
	snprintf(twice, sizeof twice, "2 x %s", path);
	CHECK_OK(cluster_read(twice, &c));
	CU_ASSERT_EQUAL(c.n_nodes, 12);
	CU_ASSERT_EQUAL(c.nodes[11].n_cores, 2);
	CU_ASSERT_STRING_EQUAL(c.nodes[11].host, "node-11");
	cluster_free(&c);
}

TEST(wrong_files_are_refused_with_their_line)
{
	struct cluster c;
	CHECK_ERR(cluster_read(write_file("a.txt", "core:1\n# x\npack:2 horse:1\n"), &c), USAGE, "a.txt:3: \"pack:2 horse:1");
	CHECK_ERR(cluster_read(write_file("a.txt", "# nothing\n\n"), &c), USAGE, "describes no machine");
	CHECK_ERR(cluster_read(write_file("a.txt", ""), &c), USAGE, "describes no machine");
	CHECK_ERR(cluster_read(write_file("a.txt", "2 x a.txt\n"), &c), USAGE, "name each other more than 4 deep");
	CHECK_ERR(cluster_read(write_file("a.txt", "9000 x core:1\n9000 x core:1\n"), &c), USAGE, "more than 16384 nodes");
	CHECK_ERR(cluster_read(write_file("a.txt", "<topology version=\"3.0\">"), &c), USAGE, "was written by hwloc 3");
	CHECK_ERR(cluster_read(write_file("a.txt", "absent.xml"), &c), IO, "absent.xml");
}

/* Cores and devices of one node are in the figures that each file names; nodes as its name says. */
TEST(the_shipped_clusters_are_what_they_say)
{
	static const struct { const char *file; int nodes, packages, numa, cores, devices; uint64_t memory_gib; float link; } shipped[] = {
		{ "laptop.txt", 1, 1, 1, 8, 0, 32, 0 }, { "workstation.txt", 1, 1, 1, 32, 1, 256, 0 },
		{ "two-nodes.txt", 2, 2, 2, 40, 0, 178, 0 }, { "epyc-node.txt", 1, 2, 8, 128, 0, 256, 0 },
		{ "epyc-16.txt", 16, 2, 8, 128, 0, 256, 0 }, { "a100-node.txt", 1, 1, 4, 64, 4, 238, 100 },
		{ "h100-node.txt", 1, 2, 2, 112, 8, 1862, 450 }, { "h100-16.txt", 16, 2, 2, 112, 8, 1862, 450 },
	};
	int n = sizeof shipped / sizeof shipped[0], files = 0;
	for (int i = 0; i < n; i++) {
		char path[1100];
		struct cluster c;
		snprintf(path, sizeof path, "%s/%s", SHIPPED, shipped[i].file);
		CHECK_OK(cluster_read(path, &c));
		CU_ASSERT_EQUAL(c.n_nodes, shipped[i].nodes);
		const struct machine *m = &c.nodes[c.n_nodes - 1];
		CU_ASSERT(m->n_packages == shipped[i].packages && m->n_numa == shipped[i].numa && m->n_cores == shipped[i].cores);
		CU_ASSERT_EQUAL(m->n_devices, shipped[i].devices);
		CU_ASSERT_EQUAL(m->memory_bytes >> 30, shipped[i].memory_gib);
		CU_ASSERT_EQUAL(m->link_gbps ? m->link_gbps[1] : 0, shipped[i].link);
		CU_ASSERT(m->cpu_model[0] != 0);
		cluster_free(&c);
	}
	DIR *dir = opendir(SHIPPED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		files += strstr(entry->d_name, ".txt") != NULL;
	closedir(dir);
	CU_ASSERT_EQUAL(files, n);   /* each has a row above */
}

TEST(every_allocation_may_fail)
{
	struct cluster c;
	int failed = 0, done = 0;
	const char *path = write_file("a.txt", "2 x core:1 gpu:1\n2 x core:2\n");
	for (int at = 1; at < 300 && !done; at++) {
		mem_fail_at(at);
		enum err e = cluster_read(path, &c);
		mem_fail_at(0);
		CU_ASSERT(e == ERR_OK || e == ERR_MEMORY);
		done = e == ERR_OK;
		failed += !done;
		if (done)
			cluster_free(&c);
	}
	CU_ASSERT(done && failed >= 10);
}

TEST(nothing_is_left_over)
{
	char command[128];
	snprintf(command, sizeof command, "rm -r '%s'", directory);
	CU_ASSERT_EQUAL(system(command), 0);
}

TEST(a_directory_is_there) { CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory)); }

TEST_MAIN("cluster", CASE(a_directory_is_there), CASE(terms_repeat_and_join), CASE(wrong_terms_are_refused),
	  CASE(files_hold_terms_comments_and_other_files), CASE(wrong_files_are_refused_with_their_line),
	  CASE(the_shipped_clusters_are_what_they_say), CASE(every_allocation_may_fail), CASE(nothing_is_left_over))
