/* Starting MPI, finding which ranks share a node, ending.
 *
 * The environment decides who started us; MPI is only asked once that makes sense, because Open MPI 4.1 aborts in
 * MPI_Init under an srun without PMIx, and 5 starts N worlds of one rank. Nothing is set that the environment or the
 * site's own files set. */
#include "parallel/comm_mpi.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* --- who started us --- */

static int has(const char *name)
{
	const char *value = getenv(name);
	return value && *value;
}

/* A number from the environment, 0 when it is absent or no number. */
static int number(const char *name)
{
	const char *value = getenv(name);
	return value ? atoi(value) : 0;
}

/* The tasks of srun's step. SLURM_NTASKS may mean the whole allocation, so it counts only where nothing else is said. */
static int tasks_of_step(void)
{
	int tasks = number("SLURM_STEP_NUM_TASKS");
	if (tasks <= 1 && has("PMI_SIZE"))
		tasks = number("PMI_SIZE");
	return tasks || has("SLURM_STEP_NUM_TASKS") ? tasks : number("SLURM_NTASKS");
}

/* srun started several tasks; under mpirun inside such a step (the daemon's) the Open MPI variables are there, too. */
static int is_step_of_many(void)
{
	return has("SLURM_PROCID") && has("SLURM_STEP_ID") && !has("OMPI_COMM_WORLD_SIZE") && tasks_of_step() > 1;
}

int comm_mpi_is_started_by_launcher(void)
{
	return has("OMPI_COMM_WORLD_SIZE") || has("PMIX_RANK") || is_step_of_many() ||
	       (has("SLURM_PROCID") && has("SLURM_STEP_ID") && (has("PMI_RANK") || has("PMI_FD")));
}

static enum err refuse_singletons(int ranks)
{
	return ERR(FIT, "srun started %d tasks but MPI sees %d rank%s in each: start with srun --mpi=pmix (srun --mpi=list "
		   "shows what this Slurm can do), or with mpirun", tasks_of_step(), ranks, ranks == 1 ? "" : "s");
}

/* --- yielding --- */

/* The tasks of this node, from a Slurm list such as "2(x3),1"; 0 when it is not there. */
static int tasks_of_slurm_node(void)
{
	const char *text = getenv("SLURM_STEP_TASKS_PER_NODE");
	int node = number("SLURM_NODEID");
	while (text && isdigit((unsigned char)*text)) {
		char *end;
		long tasks = strtol(text, &end, 10), times = 1;
		if (end[0] == '(' && end[1] == 'x') {
			times = strtol(end + 2, &end, 10);
			end += *end == ')';
		}
		if (node < times)
			return (int)tasks;
		node -= (int)times;
		text = *end == ',' ? end + 1 : NULL;
	}
	return 0;
}

static int ranks_of_this_node(void)
{
	int ranks = number("OMPI_COMM_WORLD_LOCAL_SIZE");
	return ranks > 0 ? ranks : tasks_of_slurm_node();
}

static int cores_of(pid_t process)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	return sched_getaffinity(process, sizeof set, &set) ? 1 << 20 : CPU_COUNT(&set);   /* more than 1024: enough for all */
}

/* What the ranks of this node share. mpirun, or its daemon, is the parent and has that; Open MPI 5 gives each rank a part
 * of it, and tells nobody. */
static int shared_cores(void)
{
	int own = cores_of(0), parents = has("OMPI_COMM_WORLD_SIZE") ? cores_of(getppid()) : 0;
	return own > parents ? own : parents;
}

/* Whether a parameter file says "key = ..." outside comments. */
static int file_sets(const char *directory, const char *below, const char *key)
{
	char path[1024];
	struct bytes text = { 0 };
	int found = 0;
	if (snprintf(path, sizeof path, "%s%s", directory, below) >= (int)sizeof path || !file_exists(path))
		return 0;
	if (file_read_all(path, 1 << 20, &text) == ERR_OK) {
		for (const char *line = bytes_text(&text); line && !found; line = strchr(line, '\n')) {
			line += strspn(line, " \t\r\n");
			size_t n = strlen(key);
			found = !strncmp(line, key, n) && strchr(" \t=", line[n]) && line[n];
		}
	}
	bytes_free(&text);
	return found;
}

/* The site's file lies in etc/ below Open MPI's prefix, in Debian in /etc/openmpi; a user's in the home directory. */
static int site_sets(const char *key)
{
	static const char name[] = "/etc/openmpi-mca-params.conf";
	const char *home = getenv("HOME"), *prefix = getenv("OPAL_PREFIX");
	Dl_info library;
	if (home && file_sets(home, "/.openmpi/mca-params.conf", key))
		return 1;
	if (prefix && file_sets(prefix, name, key))
		return 1;
	if (file_sets("/etc/openmpi", name + strlen("/etc"), key))
		return 1;
	if (!dladdr((void *)(intptr_t)MPI_Init, &library) || !library.dli_fname)
		return 0;
	char directory[1024];
	snprintf(directory, sizeof directory, "%s", library.dli_fname);
	for (int up = 0; up < 2; up++) {   /* PREFIX/lib/libmpi.so */
		char *slash = strrchr(directory, '/');
		if (!slash)
			return 0;
		*slash = '\0';
	}
	return file_sets(directory, name, key);
}

static int cores_are_short;
int comm_mpi_cores_are_short(void) { return cores_are_short; }

/* MPI spins while it waits, which is ruinous when ranks share cores. True when this was set here. */
static int yield_when_cores_are_short(void)
{
	static const char variable[] = "OMPI_MCA_mpi_yield_when_idle";
	cores_are_short = ranks_of_this_node() > shared_cores();
	if (number("OMPI_MCA_mpi_oversubscribe") || number("OMPI_MCA_orte_bound_at_launch"))
		return 0;   /* mpirun saw to it, or gave every rank cores of its own */
	if (!cores_are_short || has(variable) || site_sets("mpi_yield_when_idle"))
		return 0;
	setenv(variable, "1", 1);
	return 1;
}

/* --- start and end --- */

enum err comm_mpi_start(int *argc, char ***argv, struct comm **world)
{
	int provided, size;
	MPI_Comm all;
	if (is_step_of_many() && !has("PMIX_RANK") && !has("PMI_RANK") && !has("PMI_FD"))
		return refuse_singletons(1);
	int yields = yield_when_cores_are_short();
	TRY(comm_mpi_check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "world", "start"));
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	TRY(comm_mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size), "world", "size"));
	if (size == 1 && is_step_of_many())
		return refuse_singletons(size);
	if (provided < MPI_THREAD_FUNNELED)
		return ERR(FIT, "this MPI allows no threads beside the one that calls it: one with MPI_THREAD_FUNNELED is needed");
	TRY(comm_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &all), "world", "dup"));
	TRY(comm_mpi_wrap(all, "world", world));
	err_set_rank(comm_rank(*world));
	if (yields && comm_rank(*world) == 0)
		LOG_RANK(INFO, "%d ranks share %d cores here: OMPI_MCA_mpi_yield_when_idle=1 was set, so that waiting ranks "
			 "give way", ranks_of_this_node(), shared_cores());
	return ERR_OK;
}

void comm_mpi_finish(struct comm *world)
{
	comm_destroy(world);
	MPI_Finalize();
}

void comm_mpi_abort(int status)
{
	int started = 0, over = 0;
	MPI_Initialized(&started);
	MPI_Finalized(&over);
	if (started && !over)
		MPI_Abort(MPI_COMM_WORLD, status);
	_exit(status);
}

const char *comm_mpi_version(void)
{
	static char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length = 0;
	if (version[0] || MPI_Get_library_version(version, &length) != MPI_SUCCESS)
		return version;
	version[strcspn(version, ",\n")] = '\0';
	char *v = strstr(version, " v");   /* "Open MPI v4.1.4" */
	if (v && isdigit((unsigned char)v[2]))
		memmove(v + 1, v + 2, strlen(v + 2) + 1);
	return version;
}

/* --- nodes --- */

enum { NONCE_BYTES = 16 };
struct probe { unsigned char name[NONCE_BYTES], nonce[NONCE_BYTES]; };

static void probe_path(const struct probe *p, char *room, size_t capacity)
{
	int n = snprintf(room, capacity, "/dev/shm/shardrun-");
	for (int i = 0; i < NONCE_BYTES; i++)
		n += snprintf(room + n, capacity - (size_t)n, "%02x", p->name[i]);
}

static enum err leave_probe(struct probe *p)
{
	char path[80];
	if (getrandom(p, sizeof *p, 0) != (ssize_t)sizeof *p)
		return ERR(IO, "no random bytes: %s", strerror(errno));
	probe_path(p, path, sizeof path);
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return ERR(IO, "%s cannot be made (ranks of a node find each other by it): %s", path, strerror(errno));
	ssize_t written = write(fd, p->nonce, sizeof p->nonce);
	int reason = errno;
	close(fd);
	if (written == (ssize_t)sizeof p->nonce)
		return ERR_OK;
	unlink(path);
	return ERR(IO, "%s cannot be written (ranks of a node find each other by it): %s", path, strerror(reason));
}

static int sees_probe(const struct probe *p)
{
	char path[80];
	unsigned char nonce[NONCE_BYTES];
	probe_path(p, path, sizeof path);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	int same = read(fd, nonce, sizeof nonce) == (ssize_t)sizeof nonce && !memcmp(nonce, p->nonce, sizeof nonce);
	close(fd);
	return same;
}

/* The first rank leaves a file, the others look for it; *seen is what this rank found. COLLECTIVE */
static enum err look_for_probe(struct comm *c, int *seen)
{
	struct probe p = { { 0 }, { 0 } };
	char path[80];
	TRY(comm_agree(c, comm_rank(c) == 0 ? leave_probe(&p) : ERR_OK));
	enum err e = comm_bcast(c, &p, sizeof p, 0);
	*seen = comm_rank(c) == 0 || (!e && sees_probe(&p));
	if (!e)
		e = comm_barrier(c);
	if (comm_rank(c) == 0) {
		probe_path(&p, path, sizeof path);
		unlink(path);
	}
	return e;
}

/* Splits `c` until everyone in it sees the same /dev/shm. Replaces *c. COLLECTIVE */
static enum err confirm_node(struct comm **c)
{
	for (;;) {
		int seen, all_seen;
		struct comm *part;
		TRY(look_for_probe(*c, &seen));
		all_seen = seen;
		TRY(comm_allreduce(*c, &all_seen, 1, COMM_I32, COMM_MIN));
		if (all_seen)
			return ERR_OK;
		TRY(comm_split(*c, seen, comm_rank(*c), "node", &part));
		comm_destroy(*c);
		*c = part;
		if (seen)   /* the first rank and those with it; the rest looks on */
			return ERR_OK;
	}
}

static enum err find_shared(struct comm *world, struct comm **node)
{
	MPI_Comm shared;
	TRY(comm_mpi_check(MPI_Comm_split_type(comm_mpi_handle(world), MPI_COMM_TYPE_SHARED, comm_rank(world), MPI_INFO_NULL,
					       &shared), "world", "split by node"));
	enum err e = comm_mpi_wrap(shared, "node", node);
	if (e)
		MPI_Comm_free(&shared);
	return e;
}

/* lowest_of[r]: the lowest rank on r's node. Becomes the node's number: nodes are numbered in that order. */
static void number_nodes(int *lowest_of, int n)
{
	int next = 0;
	for (int r = 0; r < n; r++) {   /* a node's lowest rank comes before its others, and is numbered by then */
		int lowest = lowest_of[r];
		lowest_of[r] = lowest == r ? next++ : lowest_of[lowest];
	}
}

enum err comm_mpi_find_nodes(struct comm *world)
{
	struct comm *node = NULL;
	int *lowest_of = NULL, lowest = comm_rank(world), n = comm_size(world);
	enum err e = MEM_NEW((size_t)n, int, &lowest_of);
	TRY_OR(free_all, e, comm_agree(world, e));
	e = find_shared(world, &node);
	TRY_OR(free_all, e, comm_agree(world, e));
	e = confirm_node(&node);
	if (!e)
		e = comm_allreduce(node, &lowest, 1, COMM_I32, COMM_MIN);
	TRY_OR(free_all, e, comm_agree(world, e));
	lowest_of[comm_rank(world)] = lowest;
	TRY_OR(free_all, e, comm_allreduce(world, lowest_of, (size_t)n, COMM_I32, COMM_SUM));
	number_nodes(lowest_of, n);
	e = comm_set_nodes(world, lowest_of);
free_all:
	comm_destroy(node);
	mem_free(lowest_of);
	return e;
}
