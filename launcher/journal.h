/* The journal of a batch: what is finished is on disk before it counts, whatever ends the run, and the same command again
 * goes on where it was.
 *
 * The journal is the directory OUTPUT.journal:
 *
 *     claim-EPOCH     who owns the journal now (journal_claim.h: why there is one writer, and why a lost one does no harm)
 *     records-EPOCH   the results that each owner has finished (journal_records.h: the bytes, and what a kill can leave)
 *     part-EPOCH      the output as far as it is known, in order; made again by each owner, trusted by none
 *     done-EPOCH      there is nothing left to do: the output is in its place, and this was its input
 *
 * Results are put in with journal_append and count from the commit of their group on: written and fsynced in the owner's
 * own records file, after which its claim was still there. Groups are committed when they are large or old enough, and a slow
 * disk has had its rest. The next owner reads all records files of the chain, which gives it the lines that are done, and the output again from its
 * beginning. When every line has its result, the part is fsynced and renamed to OUTPUT: so OUTPUT is complete or not there.
 * Kills: before a commit ends, its results are computed again; after it, never. Before the rename, the part is made again;
 * between rename and done-EPOCH the same bytes are renamed again; after it, the next run finds that all is done, looks
 * whether the input is still the same, and ends well.
 *
 * How to drive it (one thread; now_us is any monotonic clock, such as clock_us):
 *
 *     journal_config_here(&config), journal_create(&config, &j)
 *     do journal_acquire(j, now, &state) while state is JOURNAL_WAITS: say journal_holder(j) once, sleep a second
 *     the input is a file and journal_known_lines(j) > 0:
 *             batch_input_skim(&input, journal_known_lines(j), &lines, &digest), journal_input(j, lines, digest)
 *     for each line of the input, as batch_input_next gives it:
 *             journal_input(j, lines read so far, batch_input_digest(in))
 *             state is JOURNAL_OURS and not journal_has(j, line): make its result, then journal_append(j, line, ..., fault, now)
 *     between steps: journal_tick(j, now)        (commits by time, renews the lease: at least every lease / 4)
 *     on TERM, when time is up: journal_commit(j, now), journal_destroy(j), exit 75
 *     at the input's end: journal_input_end(j)
 *     when journal_complete(j): journal_finish(j), journal_destroy(j), exit 0 (--strict: 1 when journal_faults(j))
 *
 * Any error ends the run: journal_destroy, print the sentence, exit by its code. A run that loses its claim gets ERR_WORK.
 * In state JOURNAL_DONE only journal_input, journal_input_end and journal_destroy are called: skim all of a file (UINT64_MAX
 * lines), or read standard input to its end.
 * Acquire after the model is loaded, or tick while it loads; else the lease may run out, which costs a takeover, no result. */
#ifndef SHARDRUN_LAUNCHER_JOURNAL_H
#define SHARDRUN_LAUNCHER_JOURNAL_H

#include "launcher/journal_file.h"

struct journal_config {
	const char *output;         /* a path; a regular file or nothing may be there. NULL: lines go to output_fd */
	int output_fd;              /* gets every line of the batch, from the first, in each run; done-EPOCH is not kept */
	const char *directory;      /* NULL: output + ".journal". Needed with output_fd */
	/* What the results depend on, as lines "name=value\n" (model, dtype, sampling defaults, template...): a run with another
	 * identity is refused, naming the first line that differs. */
	const char *identity;
	int64_t created;            /* seconds since 1970, used when the journal begins; later journal_created gives the first */
	int unordered;
	const char *host, *job;     /* of this run; job NULL: none (SLURM_JOB_ID, else PBS_JOBID...) */
	int64_t restart;            /* SLURM_RESTART_COUNT, 0 */
	int64_t lease_us;           /* 0: 60 s */
	int64_t group_us;           /* oldest result not on disk; 0: 2 s */
	size_t group_bytes;         /* 0: 1 MiB */
	/* A commit waits until so many times as long is over since the last began as that took, at most a minute and 16 groups: so a slow
	 * fsync takes a bounded share of the time. 0: it waits for nothing. */
	int commit_rest;
	const struct journal_io *io; /* NULL: the real calls */
};

/* Fills in host, job, restart (of Slurm, PBS, LSF or Grid Engine, from the environment) and created (now, or
 * SOURCE_DATE_EPOCH, which makes two batches the same byte for byte). Its strings live as long as the process. */
void journal_config_here(struct journal_config *c);

enum journal_state { JOURNAL_WAITS, JOURNAL_OURS, JOURNAL_DONE };

struct journal;

/* Makes the directory when it is not there. Strings are copied, io is borrowed. ERR_IO, ERR_USAGE. */
enum err journal_create(const struct journal_config *c, struct journal **out);
/* Tries once to own the journal. With JOURNAL_OURS all earlier results are read and the output as it was; with JOURNAL_DONE
 * the batch was finished before. */
enum err journal_acquire(struct journal *j, long long now_us, enum journal_state *state);
/* Who holds it, while it waits: "host n3, job 4711, process 12". */
const char *journal_holder(const struct journal *j);
int64_t journal_created(const struct journal *j);
/* Of identity; for ids that are the same in every run (batch_output.h). */
uint64_t journal_fingerprint(const struct journal *j);

/* How far an earlier run had read the input. Until journal_input has seen the same digest there, results are taken but not
 * committed, lest those of another input get into the journal; a file is skimmed first, so that it costs nothing. */
uint64_t journal_known_lines(const struct journal *j);
/* `lines` of the input were read, with this digest. ERR_WORK when the journal belongs to another input. */
enum err journal_input(struct journal *j, uint64_t lines, uint64_t digest);
/* There are no more. ERR_WORK when the journal's input had more. */
enum err journal_input_end(struct journal *j);

/* Is there a result of this line (from 0), counted or waiting for its commit? */
int journal_has(const struct journal *j, uint64_t line);
/* A result without its newline; bytes are copied. fault: it tells of an error. Commits when the group is large. */
enum err journal_append(struct journal *j, uint64_t line, const void *data, size_t bytes, int fault, long long now_us);
enum err journal_commit(struct journal *j, long long now_us);
enum err journal_tick(struct journal *j, long long now_us);
uint64_t journal_counted(const struct journal *j);   /* lines whose results are on disk */
uint64_t journal_faults(const struct journal *j);    /* of them, those that tell of an error; also when the batch is done */
/* Every line of the input, which has ended, has a result on disk. */
int journal_complete(const struct journal *j);
/* Puts the output in its place and marks the journal done. Calling it before journal_complete is ERR_BUG. */
enum err journal_finish(struct journal *j);
/* Releases the claim, so that the next run need not wait. What was not committed is dropped. Takes NULL. */
void journal_destroy(struct journal *j);

#endif
