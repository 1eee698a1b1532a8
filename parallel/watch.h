/* The watchdog: a rank that dies is named, and the job ends, within seconds.
 *
 * MPI 3 says nothing about a rank that is gone: its peers wait. So every rank has one thread that watches the other ranks
 * of its node: their process ids, what they are doing and whether they have finished stand in a page of shared memory.
 * When one is gone without having finished, one of the others writes
 *
 *     shardrun: rank 3 on host n2 (pid 123) was lost during load; the job ends
 *
 * to stderr and ends the job with status 5. The launcher often notices first and sends SIGTERM to all: that signal is
 * blocked and goes to the watchdog, which looks for the lost before it ends this rank. A rank whose launcher is gone
 * ends, too. A node that is gone as a whole is named by the next one, which has had no sign of life from it:
 *
 *     shardrun: host n3 (ranks 4-5) sent no sign of life for 5 s during run and is taken for lost; the job ends
 *
 * Nothing here calls MPI but the abort, and nothing is called by or waits for the thread that does the work. */
#ifndef SHARDRUN_PARALLEL_WATCH_H
#define SHARDRUN_PARALLEL_WATCH_H

#include "parallel/comm.h"

/* First thing in main of a rank, before there is any other thread: from here on SIGTERM waits for the watchdog. Not in a
 * process that starts others (they would inherit this) or that never calls watch_start (nothing would end it). */
void watch_block_signals(void);
/* Starts watching the ranks of `node`, a communicator of exactly those on one node (which stays the caller's and may be
 * destroyed). world_rank and host name this rank in the sentence; host is copied. Once per process. COLLECTIVE */
enum err watch_start(struct comm *node, int world_rank, const char *host);
/* Lets the nodes of the world, whose nodes are known (comm_mpi_find_nodes), watch each other, too, when there are several:
 * see heartbeat.h. After watch_start. SHARDRUN_NODE_TIMEOUT in the environment of a rank is the seconds that a node may be
 * silent, 0 for ever (5 otherwise). COLLECTIVE */
enum err watch_nodes(struct comm *world, const char *host);
/* What this rank is doing now, as in "was lost during ...": "load", "step 17". Longer than 63 bytes is cut. May be called
 * at any time, by one thread; costs some stores. */
void watch_phase(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on the first SIGTERM calls told(), on the watchdog's thread, and this rank has `ms` to end by itself; then, at the next
 * SIGTERM, or when a rank of the node is lost, it is as before. For work that can be broken off well. Once, before any is sent. */
void watch_on_term(void (*told)(void), int ms);
/* This rank's work is done: its end is no loss. Call it before the last barrier. */
void watch_finish(void);
/* Ends the watchdog, when MPI has ended. */
void watch_stop(void);

#endif
