/* hwloc 2.9 trusts its input: one damaged attribute name in an XML file, or the word memcache:1 in a synthetic string,
 * make hwloc_topology_load (and lstopo) fall over. Input must not bring this program down, so it is read in a child. What
 * comes back over the pipe is
 *
 *   u32 error   string sentence            of a failed read, or
 *   u32 0       the machine, encoded
 *
 * and is decoded like bytes from anywhere. */
#include "topology/isolate.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_SECONDS = 20, MAX_ANSWER_BYTES = 1 << 22 };

/* No core file, no crash handler of MPI or a sanitizer, no words on stderr, no endless run. */
static void become_quiet(void)
{
	static const int fatal[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM, SIGTERM, SIGINT };
	const struct rlimit no_core = { 0, 0 };
	for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
		signal(fatal[i], SIG_DFL);
	setrlimit(RLIMIT_CORE, &no_core);
	int null = open("/dev/null", O_RDWR);
	if (null >= 0) {
		dup2(null, 1);
		dup2(null, 2);
	}
	alarm(MAX_SECONDS);
}

static void write_all(int fd, const unsigned char *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, data, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			_exit(1);   /* an answer that is cut short is refused */
		data += n;
		bytes -= (size_t)n;
	}
}

/* The answer when there is no memory for an answer. */
static const unsigned char no_memory[] = { ERR_MEMORY, 0, 0, 0, 9, 0, 0, 0, 'n', 'o', ' ', 'm', 'e', 'm', 'o', 'r', 'y', 0 };

static void answer(enum err (*read_machine)(const char *, struct machine *), const char *spec, int fd)
{
	struct bytes to = { 0 };
	struct machine m = { 0 };
	enum err e = read_machine(spec, &m);
	bytes_put_u32(&to, e);
	if (e)
		bytes_put_string(&to, err_sentence());
	else
		machine_encode(&m, &to);
	if (to.error)
		write_all(fd, no_memory, sizeof no_memory - 1);
	else
		write_all(fd, to.data, to.size);
	_exit(0);
}

static enum err read_to_end(int fd, struct bytes *to)
{
	unsigned char part[4096];
	ssize_t n;
	while ((n = read(fd, part, sizeof part)) != 0 && to->size < MAX_ANSWER_BYTES) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ERR(IO, "a pipe cannot be read: %s", strerror(errno));
		bytes_put(to, part, (size_t)n);
	}
	return to->error;
}

static enum err take_answer(const struct bytes *from, const char *spec, struct machine *out)
{
	struct reader r;
	char sentence[ERR_SENTENCE_BYTES];
	reader_init(&r, spec, from->data, from->size);
	uint32_t code = reader_u32(&r);
	if (!r.error && !code && machine_decode(&r, out) == ERR_OK)
		return ERR_OK;
	if (!r.error && code && code < ERR_COUNT) {
		reader_string(&r, sentence, sizeof sentence);
		if (!r.error)
			return (void)err_raise((enum err)code, __FILE__, __LINE__, "%s", sentence), (enum err)code;
	}
	if (r.error == ERR_MEMORY)
		return ERR_MEMORY;
	return ERR(USAGE, "%s: hwloc falls over when it reads this: it is damaged or makes no sense", spec);
}

enum err machine_read_isolated(enum err (*read_machine)(const char *spec, struct machine *out), const char *spec,
			       struct machine *out)
{
	int ends[2];
	struct bytes from = { 0 };
	if (pipe2(ends, O_CLOEXEC))
		return ERR(WORK, "%s: no pipe to read it over: %s", spec, strerror(errno));
	pid_t child = fork();
	if (child == 0) {
		become_quiet();
		answer(read_machine, spec, ends[1]);
	}
	close(ends[1]);
	enum err e = ERR_OK;
	if (child < 0)
		e = ERR(WORK, "%s: no process to read it in: %s", spec, strerror(errno));
	else
		e = read_to_end(ends[0], &from);
	close(ends[0]);
	/* The answer alone counts, not how the child ended: someone else may have collected its status. */
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (!e)
		e = take_answer(&from, spec, out);
	bytes_free(&from);
	return e;
}
