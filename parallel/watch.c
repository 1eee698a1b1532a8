/* See watch.h. What must hold:
 *   - One rank of a node speaks: it claims that in the shared page first, and only then does anyone of the node end by
 *     itself. So a rank that ends because another was lost is never taken for the lost one.
 *   - A process is told from another with the same number by its start time.
 *   - The page holds numbers and text only; each rank writes its own slot. A rank that cannot see another's process (ranks
 *     in containers of their own) does not judge it. */
#include "parallel/watch.h"

#include "base/clock.h"
#include "base/mem.h"
#include "parallel/shared_memory.h"
#include "parallel/watch_nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PHASE_WORDS = 8, POLL_MS = 200, SETTLE_MS = 100, LAUNCHER_MS = 2500, ABORT_MS = 1000, STATUS_LOST = 5 };
enum { ENDS_NOW = 2 };
enum { STOP, SIGNALS, FIRST_PEER };   /* places in watch.polls; peer i is at FIRST_PEER + i */

struct slot {
	_Atomic uint64_t start_time;
	atomic_int pid, world_rank, finished;
	_Atomic uint64_t phase[PHASE_WORDS];   /* text, in words that are each written whole */
};

struct page {
	atomic_int claimed;                    /* 1: one rank of this node speaks and ends the job; ENDS_NOW: all end */
	struct slot slots[];
};

static struct {
	struct shared_memory memory;
	struct page *page;                     /* what lies there; NULL: not started */
	int n_local, mine;
	char host[64];
	pid_t launcher;
	pthread_t thread;
	int running;                           /* thread was started */
	struct pollfd *polls;                  /* (FIRST_PEER + n_local), fd -1: not waited for */
	unsigned char *watched;                /* (n_local) 1: its process can be seen from here, and it has not finished */
	void (*_Atomic on_term)(void);         /* see watch_on_term; NULL: SIGTERM ends this rank */
	atomic_int patience_ms;
	long long end_us;                      /* watchdog's own: when its patience with a rank that was told is over; 0: not told */
} watch;

/* --- processes --- */

/* State letter and start time of a process, from /proc; 0 when there is none. */
static int process_state(int pid, char *state, uint64_t *start_time)
{
	char path[32], text[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	const char *at = strrchr(text, ')');   /* the name before it may hold anything */
	if (!at || at[1] != ' ')
		return 0;
	*state = at[2];
	for (int field = 2; field < 22 && at; field++)   /* field 22 is the start time, see proc(5) */
		at = strchr(at + 1, ' ');
	if (!at)
		return 0;
	*start_time = strtoull(at + 1, NULL, 10);
	return 1;
}

/* Whether the process of a slot runs. */
static int runs(const struct slot *s)
{
	char state;
	uint64_t start_time;
	return process_state(atomic_load(&s->pid), &state, &start_time) && state != 'Z' && state != 'X' &&
	       start_time == atomic_load(&s->start_time);
}

/* A descriptor that becomes readable when the process ends; -1 on kernels before 5.3, where only asking helps. */
static int process_descriptor(int pid)
{
#ifdef SYS_pidfd_open
	return (int)syscall(SYS_pidfd_open, pid, 0);
#else
	(void)pid;
	return -1;
#endif
}

/* Whether to look closer at peer i: it is cheap to ask, and right unless the process is a zombie or its number is used
 * again, which `closely` finds. */
static int looks_gone(int i, int closely)
{
	const struct pollfd *p = &watch.polls[FIRST_PEER + i];
	if (closely || p->fd >= 0)
		return closely || p->revents;
	return kill(atomic_load(&watch.page->slots[i].pid), 0) && errno == ESRCH;
}

static void forget_peer(int i)
{
	struct pollfd *p = &watch.polls[FIRST_PEER + i];
	watch.watched[i] = 0;
	if (p->fd >= 0)
		close(p->fd);
	*p = (struct pollfd){ .fd = -1 };
}

/* Marks the lost ones in watch.watched with 2; returns how many there are. */
static int find_lost(int closely)
{
	int lost = 0;
	for (int i = 0; i < watch.n_local; i++) {
		struct slot *s = &watch.page->slots[i];
		if (!watch.watched[i] || !looks_gone(i, closely) || runs(s))
			continue;
		if (atomic_load(&s->finished)) {
			forget_peer(i);
			continue;
		}
		watch.watched[i] = 2;
		lost++;
	}
	return lost;
}

/* --- last words --- */

/* Straight to the descriptor: the working thread may hold the lock of stderr. */
static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	char line[400];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	size_t size = n < (int)sizeof line - 1 ? (size_t)n : sizeof line - 2;
	line[size++] = '\n';
	if (write(2, line, size) < 0)
		return;   /* nobody to tell */
}

static void phase_of(const struct slot *s, char text[PHASE_WORDS * 8 + 1])
{
	for (int i = 0; i < PHASE_WORDS; i++) {
		uint64_t word = atomic_load(&s->phase[i]);
		memcpy(text + 8 * i, &word, 8);
	}
	text[PHASE_WORDS * 8] = '\0';
}

static int claim(void) { return !atomic_exchange(&watch.page->claimed, 1); }

static void name_lost(void)
{
	for (int i = 0; i < watch.n_local; i++) {
		const struct slot *s = &watch.page->slots[i];
		char phase[PHASE_WORDS * 8 + 1];
		if (watch.watched[i] != 2)
			continue;
		phase_of(s, phase);
		say("shardrun: rank %d on host %s (pid %d) was lost during %s; the job ends", atomic_load(&s->world_rank),
		    watch.host, atomic_load(&s->pid), phase);
	}
}

/* Waits for the launcher's SIGTERM, which mpirun of Open MPI 4.1 sends a second after a loss; 0 when it did not come. */
static int launcher_ends_within(int ms)
{
	struct pollfd p = { .fd = watch.polls[SIGNALS].fd, .events = POLLIN };
	return poll(&p, 1, ms) > 0;
}

static void *exit_soon(void *unused)
{
	clock_sleep_us(ABORT_MS * 1000LL);
	_exit(STATUS_LOST);
	return unused;
}

/* MPI's abort ends all ranks of all nodes; should it not return, because the working thread is inside MPI, this rank ends
 * all the same, which the launcher takes for a reason to end the rest. */
static void abort_job(void)
{
	pthread_t timer;
	if (pthread_create(&timer, NULL, exit_soon, NULL))
		_exit(STATUS_LOST);
	comm_mpi_abort(STATUS_LOST);
}

/* A rank was lost and the launcher has not said so. */
static void end_job(int speaks)
{
	if (launcher_ends_within(speaks ? LAUNCHER_MS : 2 * LAUNCHER_MS))
		_exit(STATUS_LOST);
	abort_job();
}

/* No launcher learns that a node is gone in less than minutes, and one that ran there ends nobody: the nodes tell each other
 * around the ring. silent_s 0: this one was told. */
static void end_without_node(int silent_s)
{
	char phase[PHASE_WORDS * 8 + 1];
	if (!claim())
		return;   /* this node's end has begun */
	phase_of(&watch.page->slots[watch.mine], phase);
	if (silent_s)
		say("shardrun: %s sent no sign of life for %d s during %s and is taken for lost; the job ends",
		    watch_nodes_name(), silent_s, phase);
	watch_nodes_end();
	atomic_store(&watch.page->claimed, ENDS_NOW);
	abort_job();
}

/* The launcher ended the job: because a rank of this node was lost, or for a reason of its own or of another node's. */
static void end_as_told(void)
{
	struct slot *own = &watch.page->slots[watch.mine];
	char phase[PHASE_WORDS * 8 + 1];
	int lost = find_lost(1);
	if (claim()) {
		phase_of(own, phase);
		if (lost)
			name_lost();
		else if (!atomic_load(&own->finished))
			say("shardrun: rank %d on host %s was told to end during %s", atomic_load(&own->world_rank), watch.host,
			    phase);
	}
	_exit(STATUS_LOST);
}

/* Not by PR_SET_PDEATHSIG: that also fires when only the launcher's thread that made this process ends. */
static void end_without_launcher(void)
{
	if (claim())
		say("shardrun: what started rank %d on host %s (pid %d) is gone; its ranks on this host end",
		    atomic_load(&watch.page->slots[watch.mine].world_rank), watch.host, (int)watch.launcher);
	_exit(STATUS_LOST);
}

/* Whether SIGTERM is for the work to hear; it ends this rank when not, or when that took too long. */
static int is_for_work(void)
{
	struct signalfd_siginfo signal;
	void (*on_term)(void) = atomic_load(&watch.on_term);
	if (!on_term || watch.end_us || find_lost(1))
		return 0;
	if (read(watch.polls[SIGNALS].fd, &signal, sizeof signal) != (ssize_t)sizeof signal)
		return 0;
	watch.end_us = clock_us() + atomic_load(&watch.patience_ms) * 1000LL;
	on_term();
	return 1;
}

static void *watchdog(void *unused)
{
	for (;;) {
		int n = poll(watch.polls, (nfds_t)(FIRST_PEER + watch.n_local), POLL_MS);
		if (n < 0)
			continue;   /* interrupted: the answers are not valid */
		if (watch.polls[STOP].revents)
			return unused;
		if (watch.polls[SIGNALS].revents ? !is_for_work() : watch.end_us && clock_us() > watch.end_us)
			end_as_told();
		if (atomic_load(&watch.page->claimed) == ENDS_NOW)
			_exit(STATUS_LOST);
		if (find_lost(0)) {
			/* Slurm ends a job with SIGKILL for all: who is still there a moment later has seen a loss, not that */
			if (launcher_ends_within(SETTLE_MS))
				end_as_told();
			int speaks = claim();
			if (speaks)
				name_lost();
			end_job(speaks);
		}
		int silent_s = watch_nodes_turn();
		if ((silent_s || watch_nodes_told()) && !atomic_load(&watch.page->slots[watch.mine].finished))
			end_without_node(silent_s);
		if (getppid() != watch.launcher)
			end_without_launcher();
	}
}

/* --- the shared page --- */

static void fill_own_slot(int world_rank)
{
	struct slot *s = &watch.page->slots[watch.mine];
	char state;
	uint64_t start_time = 0;
	process_state(getpid(), &state, &start_time);
	atomic_store(&s->pid, getpid());
	atomic_store(&s->start_time, start_time);
	atomic_store(&s->world_rank, world_rank);
}

static void find_peers(void)
{
	for (int i = 0; i < watch.n_local; i++) {
		const struct slot *s = &watch.page->slots[i];
		watch.polls[FIRST_PEER + i] = (struct pollfd){ .fd = -1, .events = POLLIN };
		if (i == watch.mine)
			continue;
		int fd = process_descriptor(atomic_load(&s->pid));
		watch.watched[i] = runs(s) != 0;   /* asked after: so the descriptor is of that process */
		if (watch.watched[i])
			watch.polls[FIRST_PEER + i].fd = fd;
		else if (fd >= 0)
			close(fd);
	}
}

/* --- start and end --- */

static void sigterm_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
}

void watch_block_signals(void)
{
	sigset_t set;
	sigterm_set(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void release(void)
{
	uint64_t one = 1;
	if (watch.running && write(watch.polls[STOP].fd, &one, sizeof one) == (ssize_t)sizeof one)
		pthread_join(watch.thread, NULL);
	for (int i = 0; watch.polls && i < FIRST_PEER + watch.n_local; i++)
		if (watch.polls[i].fd >= 0)
			close(watch.polls[i].fd);
	watch_nodes_close();
	mem_free(watch.polls);
	mem_free(watch.watched);
	shared_memory_unmap(&watch.memory);
	memset(&watch, 0, sizeof watch);
}

/* Descriptors, room for the peers. */
static enum err prepare(void)
{
	sigset_t set;
	TRY(MEM_NEW((size_t)(FIRST_PEER + watch.n_local), struct pollfd, &watch.polls));
	for (int i = 0; i < FIRST_PEER + watch.n_local; i++)
		watch.polls[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
	TRY(MEM_NEW((size_t)watch.n_local, unsigned char, &watch.watched));
	sigterm_set(&set);
	watch.polls[STOP].fd = eventfd(0, EFD_CLOEXEC);
	watch.polls[SIGNALS].fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (watch.polls[STOP].fd < 0 || watch.polls[SIGNALS].fd < 0)
		return ERR(IO, "no descriptor for the watchdog: %s", strerror(errno));
	return ERR_OK;
}

static enum err start_thread(void)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);   /* the watchdog handles no signal but through its descriptor */
	int failed = pthread_create(&watch.thread, NULL, watchdog, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	watch.running = !failed;
	return failed ? ERR(WORK, "no thread for the watchdog: %s", strerror(failed)) : ERR_OK;
}

enum err watch_start(struct comm *node, int world_rank, const char *host)
{
	enum err e;
	if (watch.page)
		return ERR(BUG, "the watchdog runs already");
	watch.n_local = comm_size(node);
	watch.mine = comm_rank(node);
	watch.launcher = getppid();
	snprintf(watch.host, sizeof watch.host, "%s", host);
	TRY_OR(undo, e, comm_agree(node, prepare()));
	size_t bytes = sizeof *watch.page + (size_t)watch.n_local * sizeof(struct slot);
	TRY_OR(undo, e, shared_memory_map(node, bytes, "(ranks of a node watch each other through it)", &watch.memory));
	watch.page = watch.memory.at;
	fill_own_slot(world_rank);
	watch_phase("start");
	TRY_OR(undo, e, comm_barrier(node));   /* all slots are filled */
	find_peers();
	TRY_OR(undo, e, comm_agree(node, start_thread()));
	return ERR_OK;
undo:
	release();
	return e;
}

void watch_phase(const char *format, ...)
{
	char text[PHASE_WORDS * 8] = "";
	va_list args;
	if (!watch.page)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	for (int i = 0; i < PHASE_WORDS; i++) {
		uint64_t word;
		memcpy(&word, text + 8 * i, 8);
		atomic_store_explicit(&watch.page->slots[watch.mine].phase[i], word, memory_order_relaxed);
	}
}

void watch_on_term(void (*told)(void), int ms)
{
	atomic_store(&watch.patience_ms, ms);
	atomic_store(&watch.on_term, told);
}

void watch_finish(void)
{
	if (watch.page)
		atomic_store(&watch.page->slots[watch.mine].finished, 1);
}

void watch_stop(void)
{
	if (watch.page)
		release();
}
