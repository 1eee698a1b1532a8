#include "launcher/journal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "launcher/journal_claim.h"
#include "launcher/journal_lines.h"
#include "launcher/journal_records.h"
#include "launcher/words.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { MAX_IDENTITY_BYTES = 32768,
       MOST_REST_US = 60000000, MOST_REST_GROUPS = 16 };   /* however slow commits are */

/* A result that waits for its group's commit. */
struct pending { uint64_t record_line; struct records_place place; };

struct journal {
	char output[1024];                /* "": lines go to fd */
	char directory[1024], part[JOURNAL_PATH_BYTES], holder[256];
	int fd, own_fd;
	struct bytes identity;
	int64_t created;
	long long group_us;
	size_t group_bytes;
	const struct journal_io *io;
	int failed, done, ended, holds;
	uint64_t n_faults;                /* among the results that count */
	int verified;                     /* the input is the one that earlier runs have read */
	struct claim claim;
	struct records_writer writer;
	struct lines lines;
	struct records_input known;       /* of the journal, as earlier runs left it */
	struct records_input input;       /* read so far */
	struct pending *pending;          /* in the group, in the order of its records */
	size_t n_pending, pending_capacity;
	long long oldest_us;              /* when the first of them came */
	int commit_rest;
	long long committed_us, took_us;  /* the last commit: when it began */
};

static const unsigned char done_magic[8] = { 0x89, 'S', 'R', 'D', '1', '\r', '\n', 0x1a };

void journal_config_here(struct journal_config *c)
{
	static const char *const jobs[] = { "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID" };
	static char host[256];
	const char *restart = getenv("SLURM_RESTART_COUNT"), *epoch = getenv("SOURCE_DATE_EPOCH");
	if (gethostname(host, sizeof host - 1))
		host[0] = '\0';
	c->host = host;
	c->job = NULL;
	for (size_t i = 0; !c->job && i < sizeof jobs / sizeof jobs[0]; i++)
		c->job = getenv(jobs[i]);
	c->restart = restart ? strtoll(restart, NULL, 10) : 0;
	c->created = epoch && *epoch ? strtoll(epoch, NULL, 10) : (int64_t)time(NULL);
}

static enum err foreign(const char *output)
{
	return ERR(WORK, "%s: is there already and has no journal, so it is not this batch's: move it away, or give another output",
		   output);
}

static enum err set_up(struct journal *j, const struct journal_config *c)
{
	struct stat st;
	int empty;
	if (c->output) {
		TRY(journal_find_output(c->output, j->output, sizeof j->output, &empty));
		int n = snprintf(j->directory, sizeof j->directory, "%s.journal", j->output);
		if (n < 0 || (size_t)n >= sizeof j->directory)
			return ERR(USAGE, "the path of the output, %.200s..., is too long", j->output);
		if (!empty && stat(j->directory, &st))
			return foreign(j->output);
	} else {
		if (!c->directory || strlen(c->directory) >= sizeof j->directory)
			return ERR(BUG, "a journal without an output file needs a directory with a name of at most %zu bytes",
				   sizeof j->directory - 1);
		memcpy(j->directory, c->directory, strlen(c->directory) + 1);
	}
	if (strlen(c->identity) > MAX_IDENTITY_BYTES)
		return ERR(BUG, "a batch's identity has %zu bytes", strlen(c->identity));
	bytes_put(&j->identity, c->identity, strlen(c->identity));
	TRY(j->identity.error);
	TRY(journal_make_directory(j->directory));
	return claim_init(&j->claim, j->directory, c->host, c->job, c->restart, c->lease_us ? c->lease_us : 60000000);
}

enum err journal_create(const struct journal_config *c, struct journal **out)
{
	struct journal *j;
	TRY(MEM_NEW(1, struct journal, &j));
	j->fd = c->output ? -1 : c->output_fd;
	j->created = c->created;
	j->group_us = c->group_us ? c->group_us : 2000000;
	j->group_bytes = c->group_bytes ? c->group_bytes : 1 << 20;
	j->commit_rest = c->commit_rest;
	j->io = c->io;
	j->writer.fd = -1;
	lines_init(&j->lines, j->directory, c->io, c->unordered);
	enum err e = set_up(j, c);
	if (e)
		journal_destroy(j);
	else
		*out = j;
	return e;
}

void journal_destroy(struct journal *j)
{
	if (!j)
		return;
	claim_release(&j->claim);
	records_close(&j->writer);
	lines_free(&j->lines);
	if (j->own_fd)
		close(j->fd);
	mem_free(j->pending);
	bytes_free(&j->identity);
	mem_free(j);
}

/* Removes what this and earlier owners have left, of one kind or (kind NULL) of all. Files of later owners stay. */
static enum err remove_files(const struct journal *j, const char *kind, const char *but)
{
	char path[JOURNAL_PATH_BYTES];
	DIR *dir = opendir(j->directory);
	if (!dir)
		return ERR(IO, "%s: cannot be read: %s", j->directory, strerror(errno));
	enum err e = ERR_OK;
	for (struct dirent *entry; !e && (entry = readdir(dir));) {
		uint64_t epoch = journal_name_epoch(entry->d_name, kind);
		if (!epoch || epoch > j->claim.me.epoch || (but && journal_name_epoch(entry->d_name, but)) ||
		    journal_name_epoch(entry->d_name, "claim") == j->claim.me.epoch)
			continue;
		snprintf(path, sizeof path, "%s/%.100s", j->directory, entry->d_name);
		if (unlink(path) && errno != ENOENT)
			e = ERR(IO, "%s: cannot be removed: %s", path, strerror(errno));
	}
	closedir(dir);
	return e ? e : journal_sync_directory(j->directory);
}

/* The first line of two identities that is not the same. */
static enum err check_identity(const struct journal *j, const struct bytes *theirs)
{
	const char *a = bytes_text(theirs), *b = bytes_text(&j->identity);
	if (theirs->size == j->identity.size && !memcmp(a, b, theirs->size))
		return ERR_OK;
	while (*a && *b) {
		size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
		if (n != m || memcmp(a, b, n))
			break;
		a += n + (a[n] == '\n');
		b += m + (b[m] == '\n');
	}
	struct shown was = text_shown(a, strcspn(a, "\n")), is = text_shown(b, strcspn(b, "\n"));
	return ERR(WORK, "%s: belongs to a batch with other options: there \"%s\", here \"%s\"; use the same options, or give another output",
		   j->directory, was.text, is.text);
}

/* done-EPOCH */

static enum err put_done(const struct journal *j)
{
	char path[JOURNAL_PATH_BYTES], made[JOURNAL_PATH_BYTES];
	struct bytes b = { 0 };
	TRY(journal_path(j->directory, "done", j->claim.me.epoch, path, sizeof path));
	TRY(journal_path(j->directory, "new", j->claim.me.epoch, made, sizeof made));
	bytes_put(&b, done_magic, sizeof done_magic);
	bytes_put_u64(&b, j->input.lines);
	bytes_put_u64(&b, j->input.digest);
	bytes_put_u64(&b, j->n_faults);
	bytes_put(&b, j->identity.data, j->identity.size);
	bytes_put_u64(&b, XXH3_64bits(bytes_text(&b), b.size));
	enum err e = b.error;
	int fd = e ? -1 : open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (!e && fd < 0)
		e = ERR(IO, "%s: cannot be made: %s", made, strerror(errno));
	if (!e)
		e = journal_write(j->io, fd, made, b.data, b.size, 0);
	if (!e)
		e = journal_sync(j->io, fd, made);
	if (fd >= 0)
		close(fd);
	if (!e && rename(made, path))
		e = ERR(IO, "%s: cannot be renamed: %s", made, strerror(errno));
	bytes_free(&b);
	return e ? e : journal_sync_directory(j->directory);
}

static enum err newest_done(const struct journal *j, uint64_t *epoch)
{
	DIR *dir = opendir(j->directory);
	if (!dir)
		return ERR(IO, "%s: cannot be read: %s", j->directory, strerror(errno));
	*epoch = 0;
	for (struct dirent *entry; (entry = readdir(dir));) {
		uint64_t n = journal_name_epoch(entry->d_name, "done");
		*epoch = n > *epoch ? n : *epoch;
	}
	closedir(dir);
	return ERR_OK;
}

static enum err read_done(struct journal *j, uint64_t epoch)
{
	enum { FIXED = 32 };
	char path[JOURNAL_PATH_BYTES];
	unsigned char text[65536];
	struct bytes theirs = { 0 };
	struct reader r, end;
	size_t n = 0;
	TRY(journal_path(j->directory, "done", epoch, path, sizeof path));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return ERR(IO, "%s: cannot be opened: %s", path, strerror(errno));
	enum err e = journal_read(fd, path, 0, text, sizeof text, &n);
	close(fd);
	TRY(e);
	reader_init(&end, path, text + (n < FIXED + 8 ? 0 : n - 8), 8);
	if (n < FIXED + 8 || memcmp(text, done_magic, sizeof done_magic) || reader_u64(&end) != XXH3_64bits(text, n - 8))
		return ERR(IO, "%s: damaged; if %s is good, remove %s, or move both away to begin again", path,
			   *j->output ? j->output : "the output", j->directory);
	reader_init(&r, path, text + sizeof done_magic, FIXED - sizeof done_magic);
	j->known.lines = reader_u64(&r);
	j->known.digest = reader_u64(&r);
	j->n_faults = reader_u64(&r);
	bytes_put(&theirs, text + FIXED, n - FIXED - 8);
	e = theirs.error ? theirs.error : check_identity(j, &theirs);
	bytes_free(&theirs);
	return e;
}

/* *done 1: the batch was finished, and its output is there. If that is gone, the batch begins again. */
static enum err look_for_done(struct journal *j, int *done)
{
	uint64_t epoch;
	struct stat st;
	*done = 0;
	TRY(newest_done(j, &epoch));
	if (!epoch)
		return ERR_OK;
	if (!stat(j->output, &st)) {
		TRY(read_done(j, epoch));
		*done = 1;
		return remove_files(j, NULL, "done");
	}
	TRY(remove_files(j, NULL, "done"));   /* first the rest: a kill between them ends here again */
	return remove_files(j, "done", NULL);
}

/* Becoming the owner */

static enum err count_one(struct journal *j, uint64_t record_line, const struct records_place *place, const void *data)
{
	j->n_faults += (record_line & RECORDS_FAULT) != 0;
	return lines_place(&j->lines, record_line & ~RECORDS_FAULT, place, data);
}

static enum err recover_one(void *context, uint64_t record_line, const struct records_place *place, const void *data)
{
	struct journal *j = context;
	uint64_t line = record_line & ~RECORDS_FAULT;
	if (lines_have(&j->lines, line))
		return ERR_OK;
	TRY(lines_take(&j->lines, line));
	return count_one(j, record_line, place, data);
}

static enum err open_part(struct journal *j)
{
	if (!*j->output) {
		j->lines.fd = j->fd;
		return ERR_OK;
	}
	TRY(journal_path(j->directory, "part", j->claim.me.epoch, j->part, sizeof j->part));
	j->fd = open(j->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (j->fd < 0)
		return ERR(IO, "%s: cannot be made: %s", j->part, strerror(errno));
	j->own_fd = 1;
	j->lines.fd = j->fd;
	j->lines.name = j->part;
	j->lines.positioned = 1;
	return ERR_OK;
}

static enum err begin_records(struct journal *j, const struct records_chain *chain, uint64_t end)
{
	struct records_header h = { .epoch = j->claim.me.epoch, .previous = chain->newest.epoch, .cut = end,
				    .created = j->created, .identity = j->identity };
	return records_create(j->directory, j->io, &h, &j->writer);
}

static enum err recover(struct journal *j)
{
	struct records_chain chain;
	uint64_t end = 0;
	int empty;
	TRY(records_chain_open(j->directory, j->claim.me.epoch, &chain));
	enum err e = ERR_OK;
	if (chain.newest.epoch) {
		e = check_identity(j, &chain.newest.identity);
		j->created = chain.newest.created;
	} else if (*j->output) {
		char room[sizeof j->output];
		e = journal_find_output(j->output, room, sizeof room, &empty);
		if (!e && !empty)
			e = foreign(j->output);
	}
	if (!e)
		e = open_part(j);
	if (!e)
		e = records_chain_read(j->directory, &chain, recover_one, j, &end, &j->known);
	if (!e)
		e = begin_records(j, &chain, end);
	records_chain_free(&chain);
	TRY(e);
	TRY(lines_flush(&j->lines));
	return claim_check(&j->claim);
}

enum err journal_acquire(struct journal *j, long long now_us, enum journal_state *state)
{
	int held;
	TRY(claim_try(&j->claim, now_us, &held));
	if (!held) {
		claim_describe(&j->claim.seen, j->holder, sizeof j->holder);
		*state = JOURNAL_WAITS;
		return ERR_OK;
	}
	TRY(look_for_done(j, &j->done));
	if (j->done) {
		claim_remove(&j->claim);
	} else {
		TRY(remove_files(j, "part", NULL));
		TRY(recover(j));
		j->holds = 1;
	}
	*state = j->done ? JOURNAL_DONE : JOURNAL_OURS;
	return ERR_OK;
}

const char *journal_holder(const struct journal *j) { return j->holder; }
int64_t journal_created(const struct journal *j) { return j->created; }
uint64_t journal_fingerprint(const struct journal *j) { return XXH3_64bits(bytes_text(&j->identity), j->identity.size); }

/* The input */

static enum err other_input(const struct journal *j)
{
	return ERR(WORK, "%s: belongs to another input: the first %" PRIu64 " lines were different; bring that input back, or give another output",
		   j->directory, j->known.lines);
}

uint64_t journal_known_lines(const struct journal *j) { return j->known.lines; }

enum err journal_input(struct journal *j, uint64_t lines, uint64_t digest)
{
	j->input = (struct records_input){ lines, digest };
	if (lines == j->known.lines && lines && digest != j->known.digest)
		return other_input(j);
	j->verified |= lines == j->known.lines;
	return ERR_OK;
}

enum err journal_input_end(struct journal *j)
{
	if (j->input.lines < j->known.lines || (j->done && j->input.lines > j->known.lines))
		return ERR(WORK, "%s: belongs to another input: that one %s %" PRIu64 " lines, this one has %" PRIu64 "; bring that input back, or give another output",
			   j->directory, j->done ? "had" : "had at least", j->known.lines, j->input.lines);
	j->ended = 1;
	return ERR_OK;
}

/* Results */

int journal_has(const struct journal *j, uint64_t line) { return lines_have(&j->lines, line); }
uint64_t journal_counted(const struct journal *j) { return j->lines.n_placed; }
uint64_t journal_faults(const struct journal *j) { return j->n_faults; }
int journal_complete(const struct journal *j) { return j->holds && j->ended && journal_counted(j) == j->input.lines; }

static enum err usable(const struct journal *j)
{
	if (!j->holds || j->done)
		return ERR(BUG, "%s: is not owned by this run", j->directory);
	return j->failed ? ERR(WORK, "%s: failed before", j->directory) : ERR_OK;
}

/* Everything counted goes through here: on disk, still ours, then placed. */
static enum err commit(struct journal *j)
{
	uint64_t begin = j->writer.end;
	if (!j->n_pending || !(j->verified || !j->known.lines))
		return ERR_OK;
	TRY(records_commit(&j->writer, j->input.lines > j->known.lines ? &j->input : &j->known));
	TRY(claim_check(&j->claim));
	for (size_t i = 0; i < j->n_pending; i++) {
		const struct pending *p = &j->pending[i];
		TRY(count_one(j, p->record_line, &p->place, j->writer.group.data + (p->place.offset - begin)));
	}
	j->n_pending = 0;
	return lines_flush(&j->lines);
}

enum err journal_commit(struct journal *j, long long now_us)
{
	TRY(usable(j));
	long long begin = clock_us();
	enum err e = commit(j);
	j->took_us = clock_us() - begin;
	j->committed_us = now_us;
	if (!e)
		e = claim_beat(&j->claim, now_us);
	j->failed = e != ERR_OK;
	return e;
}

static int has_rested(const struct journal *j, long long now_us)
{
	return now_us - j->committed_us >= j->commit_rest * j->took_us || now_us - j->oldest_us >= MOST_REST_US ||
	       j->writer.group.size / MOST_REST_GROUPS >= j->group_bytes;
}

static enum err append(struct journal *j, uint64_t line, const void *data, size_t bytes, int fault)
{
	struct pending p = { .record_line = fault ? line | RECORDS_FAULT : line,
			     .place = { .epoch = j->writer.epoch, .bytes = (uint32_t)bytes,
					.hash = (uint32_t)XXH3_64bits(data, bytes) } };
	if (j->n_pending == j->pending_capacity) {
		size_t capacity = j->pending_capacity ? 2 * j->pending_capacity : 64;
		TRY(mem_grow(&j->pending, capacity, sizeof *j->pending, "results to be written"));
		j->pending_capacity = capacity;
	}
	TRY(records_put(&j->writer, p.record_line, data, bytes, &p.place.offset));
	TRY(lines_take(&j->lines, line));
	j->pending[j->n_pending++] = p;
	return ERR_OK;
}

enum err journal_append(struct journal *j, uint64_t line, const void *data, size_t bytes, int fault, long long now_us)
{
	TRY(usable(j));
	if (lines_have(&j->lines, line))
		return ERR(BUG, "%s: line %" PRIu64 " has a result already", j->directory, line + 1);
	if (memchr(data, '\n', bytes))
		return ERR(BUG, "%s: the result of line %" PRIu64 " has a newline in it", j->directory, line + 1);
	if (!j->n_pending)
		j->oldest_us = now_us;
	enum err e = append(j, line, data, bytes, fault);
	j->failed = e != ERR_OK;
	TRY(e);
	return j->writer.group.size >= j->group_bytes && has_rested(j, now_us) ? journal_commit(j, now_us) : ERR_OK;
}

enum err journal_tick(struct journal *j, long long now_us)
{
	TRY(usable(j));
	if (j->n_pending && now_us - j->oldest_us >= j->group_us && has_rested(j, now_us))
		return journal_commit(j, now_us);
	enum err e = claim_beat(&j->claim, now_us);
	j->failed = e != ERR_OK;
	return e;
}

/* The end */

/* What a kill after the rename left is our own, and of the same size; else someone put it there meanwhile. */
static enum err publish(struct journal *j)
{
	char parent[1024];
	struct stat st;
	TRY(journal_sync(j->io, j->fd, j->part));
	TRY(claim_check(&j->claim));
	if (!stat(j->output, &st) && st.st_size && (uint64_t)st.st_size != j->lines.written)
		return ERR(WORK, "%s: appeared while the batch ran, and is not its output: move it away and run the same command again",
			   j->output);
	if (rename(j->part, j->output))
		return ERR(IO, "%s: cannot be renamed to %s: %s", j->part, j->output, strerror(errno));
	TRY(journal_parent(j->output, parent, sizeof parent));
	TRY(journal_sync_directory(parent));
	return put_done(j);
}

static enum err finish(struct journal *j)
{
	TRY(lines_flush(&j->lines));
	if (*j->output)
		TRY(publish(j));
	TRY(claim_check(&j->claim));   /* a run that took over meanwhile needs the files still */
	TRY(remove_files(j, NULL, "done"));
	claim_remove(&j->claim);
	if (!*j->output && rmdir(j->directory) && errno != ENOTEMPTY && errno != EEXIST)
		return ERR(IO, "%s: cannot be removed: %s", j->directory, strerror(errno));
	j->holds = 0;
	return ERR_OK;
}

enum err journal_finish(struct journal *j)
{
	TRY(usable(j));
	if (!journal_complete(j))
		return ERR(BUG, "%s: is finished before every line has a result", j->directory);
	enum err e = finish(j);
	j->failed = e != ERR_OK;
	return e;
}
