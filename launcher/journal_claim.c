#include "launcher/journal_claim.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char format[] = "shardrun claim 1\nnonce %016" PRIx64 "\nbeat %016" PRIx64 "\nreleased %d\nhost %s\njob %s\n"
			     "restart %" PRId64 "\npid %" PRId64 "\nstarted %" PRId64 "\nboot %s\npid_space %" PRIu64
			     "\nlease_us %" PRId64 "\n";
#define CLAIM_TO_BE "new."   /* and a number: a claim that has not got its name yet */
enum { CLAIM_BYTES = 600 };   /* padded, so that a renewal overwrites in place with one write */

/* State and start time of a process; 0 when there is none to be seen. */
static int process_stat(int64_t pid, char *state, int64_t *started)
{
	char path[64], text[1024];
	size_t n = 0;
	snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	enum err e = journal_read(fd, path, 0, text, sizeof text - 1, &n);
	close(fd);
	text[e ? 0 : n] = '\0';
	char *at = strrchr(text, ')');   /* the name before it may hold anything */
	if (!at || at[1] != ' ')
		return 0;
	*state = at[2];
	for (int field = 2; field < 22 && at; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return 0;
	*started = strtoll(at + 1, NULL, 10);
	return 1;
}

static void read_boot(char *room, size_t capacity)
{
	size_t n = 0;
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (journal_read(fd, "boot_id", 0, room, capacity - 1, &n))
			n = 0;
		close(fd);
	}
	room[n] = '\0';
	room[strcspn(room, "\n")] = '\0';
}

/* One word of a claim: nothing in it may end the line. */
static void put_word(char *room, size_t capacity, const char *word)
{
	snprintf(room, capacity, "%s", word && *word ? word : "-");
	for (char *at = room; *at; at++)
		if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f)
			*at = '_';
}

enum err claim_init(struct claim *c, const char *directory, const char *host, const char *job, int64_t restart, int64_t lease_us)
{
	struct stat space;
	char state, boot[40];
	memset(c, 0, sizeof *c);
	if (strlen(directory) >= sizeof c->directory)
		return ERR(IO, "the path %.200s... is too long (at most %zu bytes)", directory, sizeof c->directory - 1);
	memcpy(c->directory, directory, strlen(directory) + 1);
	put_word(c->me.host, sizeof c->me.host, host);
	put_word(c->me.job, sizeof c->me.job, job);
	c->me.restart = restart;
	c->me.lease_us = lease_us;
	c->me.pid = getpid();
	if (!process_stat(c->me.pid, &state, &c->me.started))
		c->me.started = 0;
	read_boot(boot, sizeof boot);
	put_word(c->me.boot, sizeof c->me.boot, boot);
	c->me.pid_space = stat("/proc/self/ns/pid", &space) ? 0 : (uint64_t)space.st_ino;
	return ERR_OK;
}

void claim_describe(const struct claim_holder *h, char *room, size_t capacity)
{
	if (!h->nonce)
		snprintf(room, capacity, "a run that has not yet said who it is");
	else if (strcmp(h->job, "-"))
		snprintf(room, capacity, "host %s, job %s, process %" PRId64, h->host, h->job, h->pid);
	else
		snprintf(room, capacity, "host %s, process %" PRId64 " (no job)", h->host, h->pid);
}

/* The greatest epochs in the names of claims and of other files; 0: none. remove_below: claims of lesser epochs, and what kills
 * left of others, are removed. */
static enum err look(const struct claim *c, uint64_t remove_below, uint64_t *top_claim, uint64_t *top_other)
{
	char path[JOURNAL_PATH_BYTES];
	DIR *dir = opendir(c->directory);
	if (!dir)
		return ERR(IO, "%s: cannot be read: %s", c->directory, strerror(errno));
	*top_claim = *top_other = 0;
	for (struct dirent *entry; (entry = readdir(dir));) {
		uint64_t any = journal_name_epoch(entry->d_name, NULL), claim = journal_name_epoch(entry->d_name, "claim");
		*top_claim = claim > *top_claim ? claim : *top_claim;
		*top_other = !claim && any > *top_other ? any : *top_other;
		if (remove_below && ((claim && claim < remove_below) || !strncmp(entry->d_name, CLAIM_TO_BE, strlen(CLAIM_TO_BE)))) {
			snprintf(path, sizeof path, "%s/%.100s", c->directory, entry->d_name);
			unlink(path);
		}
	}
	closedir(dir);
	return ERR_OK;
}

static int parse(const char *text, struct claim_holder *h)
{
	return sscanf(text, "shardrun claim 1\nnonce %16" SCNx64 "\nbeat %16" SCNx64 "\nreleased %d\nhost %64s\njob %64s\n"
			    "restart %" SCNd64 "\npid %" SCNd64 "\nstarted %" SCNd64 "\nboot %39s\npid_space %" SCNu64
			    "\nlease_us %" SCNd64 "\n",
		      &h->nonce, &h->beat, &h->released, h->host, h->job, &h->restart, &h->pid, &h->started, h->boot,
		      &h->pid_space, &h->lease_us) == 11;
}

/* Opens by name, so that the answer is the file system's and not one of this client's memory. *found 0: no such claim. What
 * cannot be understood is a holder with nonce 0: its creator may be about to write. */
static enum err read_claim(const struct claim *c, uint64_t epoch, int flags, struct claim_holder *h, int *found, int *out_fd)
{
	char path[JOURNAL_PATH_BYTES], text[CLAIM_BYTES + 1];
	size_t n = 0;
	TRY(journal_path(c->directory, "claim", epoch, path, sizeof path));
	int fd = open(path, flags | O_CLOEXEC);
	*found = fd >= 0;
	if (fd < 0)
		return errno == ENOENT || errno == ESTALE || errno == ENOTDIR ? ERR_OK
			: ERR(IO, "%s: cannot be opened: %s", path, strerror(errno));
	enum err e = journal_read(fd, path, 0, text, CLAIM_BYTES, &n);
	text[e ? 0 : n] = '\0';
	memset(h, 0, sizeof *h);
	if (!parse(text, h))
		memset(h, 0, sizeof *h);
	h->epoch = epoch;
	if (out_fd && !e)
		*out_fd = fd;
	else
		close(fd);
	return e;
}

static enum err write_claim(const struct claim *c, int fd, const char *name)
{
	const struct claim_holder *h = &c->me;
	char text[CLAIM_BYTES];
	memset(text, ' ', sizeof text);
	int n = snprintf(text, sizeof text, format, h->nonce, h->beat, h->released, h->host, h->job, h->restart, h->pid,
			 h->started, h->boot, h->pid_space, h->lease_us);
	if (n > 0 && n < CLAIM_BYTES)
		text[n] = ' ';
	return journal_write(NULL, fd, name, text, sizeof text, 0);
}

/* Is the holder certainly gone? */
static int is_gone(const struct claim_holder *h, const struct claim_holder *me)
{
	char state = 0;
	int64_t started = 0;
	if (!h->nonce)
		return 0;
	if (strcmp(h->job, "-") && !strcmp(h->job, me->job) && h->restart < me->restart)
		return 1;
	if (!strcmp(h->boot, "-") || strcmp(h->boot, me->boot) || !h->pid_space || h->pid_space != me->pid_space || h->pid <= 0)
		return 0;
	if (kill((pid_t)h->pid, 0) && errno == ESRCH)
		return 1;
	return process_stat(h->pid, &state, &started) && (state == 'Z' || state == 'X' || (h->started && started != h->started));
}

/* May the journal be taken from whom the newest claim names? */
static int may_take(struct claim *c, const struct claim_holder *h, long long now_us)
{
	int still = c->has_seen && c->seen.epoch == h->epoch && c->seen.nonce == h->nonce && c->seen.beat == h->beat;
	int64_t lease_us = h->lease_us > c->me.lease_us && h->nonce ? h->lease_us : c->me.lease_us;
	c->seen = *h;
	c->has_seen = 1;
	if (!still)
		c->seen_us = now_us;
	return (h->nonce && h->released) || is_gone(h, &c->me) || now_us - c->seen_us >= lease_us;
}

static void choose_nonce(struct claim *c)
{
	do {
		if (getrandom(&c->me.nonce, sizeof c->me.nonce, 0) != sizeof c->me.nonce)
			c->me.nonce = (uint64_t)c->me.pid << 32 ^ (uint64_t)c->me.started ^ (uint64_t)clock_us();
	} while (!c->me.nonce);
}

/* A file that is not there yet, with this run's words in it. *made 0: it is there. */
static enum err make_file(const struct claim *c, const char *path, int *made)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	*made = fd >= 0;
	if (fd < 0)
		return errno == EEXIST ? ERR_OK : ERR(IO, "%s: cannot be made: %s", path, strerror(errno));
	enum err e = write_claim(c, fd, path);
	if (!e)
		e = journal_sync(NULL, fd, path);
	close(fd);
	if (e)
		unlink(path);
	return e;
}

/* A claim gets its name by a link, with all its words in it: a kill leaves none that does not say whose it is, which would
 * have to be waited for. Like O_EXCL, link succeeds once; NFS may say that it failed when only the answer was lost, so the
 * count of names decides. File systems without links get the claim by O_EXCL alone. */
static enum err create_claim(struct claim *c, uint64_t epoch, int *created)
{
	char path[JOURNAL_PATH_BYTES], made_as[JOURNAL_PATH_BYTES];
	struct stat st;
	int made;
	TRY(journal_path(c->directory, "claim", epoch, path, sizeof path));
	choose_nonce(c);
	c->me.beat = 0;
	c->me.released = 0;
	snprintf(made_as, sizeof made_as, "%s/" CLAIM_TO_BE "%016" PRIx64, c->directory, c->me.nonce);
	TRY(make_file(c, made_as, &made));
	*created = 0;
	if (!made)
		return ERR_OK;
	int reason = link(made_as, path) ? errno : 0;
	*created = !reason || (!stat(made_as, &st) && st.st_nlink == 2);
	unlink(made_as);
	if (*created || reason == EEXIST || reason == ENOENT)   /* ENOENT: another run has tidied up */
		return ERR_OK;
	if (reason == EPERM || reason == EOPNOTSUPP || reason == ENOSYS || reason == EMLINK)
		return make_file(c, path, created);
	return ERR(IO, "%s: cannot be made: %s", path, strerror(reason));
}

static void remove_claim(const struct claim *c, uint64_t epoch)
{
	char path[JOURNAL_PATH_BYTES];
	if (!journal_path(c->directory, "claim", epoch, path, sizeof path))
		unlink(path);
}

enum err claim_try(struct claim *c, long long now_us, int *held)
{
	struct claim_holder h;
	uint64_t claim, other;
	int found = 0, created;
	*held = 0;
	TRY(look(c, 0, &claim, &other));
	if (claim) {
		TRY(read_claim(c, claim, O_RDONLY, &h, &found, NULL));
		if (!found || !may_take(c, &h, now_us))
			return ERR_OK;   /* not found: it is being taken at this moment */
	}
	uint64_t mine = (claim > other ? claim : other) + 1;
	TRY(create_claim(c, mine, &created));
	if (!created)
		return ERR_OK;
	enum err e = look(c, 0, &claim, &other);
	if (e || claim > mine || other >= mine) {   /* the first look was too old */
		remove_claim(c, mine);
		return e;
	}
	TRY(look(c, mine, &claim, &other));
	TRY(journal_sync_directory(c->directory));
	c->me.epoch = mine;
	c->beat_us = now_us;
	*held = 1;
	return ERR_OK;
}

static enum err fenced(const struct claim *c)
{
	struct claim_holder h = { 0 };
	char who[256] = "nobody now";
	uint64_t claim = 0, other;
	int found = 0;
	if (!look(c, 0, &claim, &other) && claim && !read_claim(c, claim, O_RDONLY, &h, &found, NULL) && found)
		claim_describe(&h, who, sizeof who);
	return ERR(WORK, "%s: this run no longer owns the journal, which is held by %s: another run took it over while this one did not renew its lease of %" PRId64
			 " s; results not yet counted are left to it", c->directory, who, c->me.lease_us / 1000000);
}

enum err claim_check(const struct claim *c)
{
	struct claim_holder h;
	int found;
	TRY(read_claim(c, c->me.epoch, O_RDONLY, &h, &found, NULL));
	return found && h.nonce == c->me.nonce ? ERR_OK : fenced(c);
}

/* A renewal that comes after the claim's removal goes to a file without a name: it does no harm. */
static enum err renew(struct claim *c)
{
	struct claim_holder h;
	int found, fd = -1;
	TRY(read_claim(c, c->me.epoch, O_RDWR, &h, &found, &fd));
	if (!found || h.nonce != c->me.nonce) {
		if (fd >= 0)
			close(fd);
		return fenced(c);
	}
	c->me.beat++;
	enum err e = write_claim(c, fd, c->directory);
	if (close(fd) && !e)   /* NFS tells of a failed write here */
		e = ERR(IO, "%s: renewing the claim: %s", c->directory, strerror(errno));
	return e;
}

enum err claim_beat(struct claim *c, long long now_us)
{
	if (now_us - c->beat_us < c->me.lease_us / 4)
		return ERR_OK;
	c->beat_us = now_us;
	enum err e = renew(c);
	return e == ERR_WORK ? e : ERR_OK;   /* a disk that fails for a moment costs the lease at worst */
}

void claim_release(struct claim *c)
{
	if (!c->me.epoch)
		return;
	struct err_record why = *err_last();   /* of what ended the run: its sentence is still to be printed */
	c->me.released = 1;
	(void)renew(c);
	c->me.epoch = 0;
	err_restore(&why);
}

void claim_remove(struct claim *c)
{
	if (c->me.epoch)
		remove_claim(c, c->me.epoch);
	c->me.epoch = 0;
}
