/* Who may write a journal: one run at a time, without locks (no flock and no fcntl, which a cluster's file systems may
 * lack, forward to a dead server, or keep to one node). What is needed of the file system is what POSIX, NFS and Lustre
 * all give: link, and open with O_EXCL, make a name once; a name that was removed cannot be opened any more, anywhere; a file
 * opened anew shows what was written and fsynced before.
 *
 * A claim is the file `claim-EPOCH` in the journal's directory. Its creator owns that epoch for ever, and is the owner of
 * the journal for as long as the file is there. Taking over:
 *
 *   1. list the directory; create `claim-(N+1)`, where N is the greatest epoch in any name there, by a link or with O_EXCL:
 *      who is second gets EEXIST and waits.
 *   2. list again (one's own new name makes a client drop a stale listing); a greater claim there, or another file of this
 *      epoch or a greater one: step back.
 *   3. remove every lesser claim. From here on claim_check of every older owner fails.
 *   4. only now read what older owners have written.
 *
 * An owner counts a result only after (a) it is fsynced in a file of its own epoch, then (b) claim_check has opened its
 * claim by name and found its own number in it. (b) passed, so the claim was removed later than (b), so step 4 reads later
 * than (a): everything counted is seen by every later owner. What a run that was frozen, or cut off, writes after it lost
 * its claim goes to files of its own epoch, behind the place where the new owner's reading ended (journal_records.h), and is
 * never looked at. None of this reads a clock: a wrong clock, a pause of any length at any instruction, or a kill can make a
 * takeover early or late, but never wrong.
 *
 * The lease is for politeness only: a second run waits while the first one lives. The owner renews a counter in its claim; the
 * one that waits measures with its own monotonic clock how long the counter has stood still, so clocks of two nodes are
 * never compared. It need not wait where the owner has released the claim, or is known to be gone: a process of this
 * machine (same boot, same space of process ids) that is no more, or an earlier start of the same Slurm job. */
#ifndef SHARDRUN_LAUNCHER_JOURNAL_CLAIM_H
#define SHARDRUN_LAUNCHER_JOURNAL_CLAIM_H

#include "launcher/journal_file.h"

struct claim_holder {
	uint64_t epoch, nonce, beat;
	int released;
	char host[65], job[65];
	int64_t restart;             /* of the job, SLURM_RESTART_COUNT */
	int64_t pid, started;        /* started: in clock ticks since boot, as the kernel says */
	char boot[40];               /* of the kernel; "": unknown */
	uint64_t pid_space;          /* number of the space of process ids; 0: unknown */
	int64_t lease_us;
};

struct claim {
	char directory[1024];        /* exists */
	struct claim_holder me;      /* epoch 0: nothing is held */
	struct claim_holder seen;    /* who held it when last looked */
	int has_seen;
	long long seen_us;           /* since when seen has stood still */
	long long beat_us;           /* of the last heartbeat */
};

/* job NULL or "": none. pid and the like are found here. */
enum err claim_init(struct claim *c, const char *directory, const char *host, const char *job, int64_t restart, int64_t lease_us);
/* Tries once; never sleeps. *held 0: another run holds it, c->seen says who. Steps 1 to 3 above. */
enum err claim_try(struct claim *c, long long now_us, int *held);
/* ERR_WORK when this run's claim is gone, naming who has it. */
enum err claim_check(const struct claim *c);
/* Renews the lease when a quarter of it is over. */
enum err claim_beat(struct claim *c, long long now_us);
/* Says that the next run need not wait. Errors do not matter: the lease would run out. */
void claim_release(struct claim *c);
/* Ends this run's claim where nothing is left to be claimed. */
void claim_remove(struct claim *c);
/* "host n3, job 4711, process 12" into room. */
void claim_describe(const struct claim_holder *h, char *room, size_t capacity);

#endif
