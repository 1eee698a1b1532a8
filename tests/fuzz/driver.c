/* Runs a fuzz target without libFuzzer: every corpus file as it is, then mutations of them, always the same ones.
 *
 *   fuzz_X [-runs=N] [-max_total_time=SECONDS] FILE|DIRECTORY...      libFuzzer's own option names
 *
 * The target runs in a child process on an input in shared memory, so whatever kills the child, the parent still has the
 * input: it writes it to crash-fuzz_X in the current directory and fails. An input that takes over 10 s is a hang. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { INPUT_BYTES_MAX = 1 << 18, CORPUS_MAX = 4096, HANG_SECONDS = 10 };

struct input { size_t bytes; uint8_t data[INPUT_BYTES_MAX]; };
static struct { uint8_t *data; size_t bytes; } corpus[CORPUS_MAX];
static int corpus_files;

static void add_file(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &st) || st.st_size > INPUT_BYTES_MAX || corpus_files == CORPUS_MAX) {
		fprintf(stderr, "%s: cannot be used as an input (at most %d bytes)\n", path, INPUT_BYTES_MAX);
		exit(1);
	}
	corpus[corpus_files].data = malloc((size_t)st.st_size + 1);
	ssize_t n = corpus[corpus_files].data ? read(fd, corpus[corpus_files].data, (size_t)st.st_size) : -1;
	if (n != st.st_size)
		exit(1);
	corpus[corpus_files++].bytes = (size_t)n;
	close(fd);
}

static int not_hidden(const struct dirent *e) { return e->d_name[0] != '.'; }

static void add_path(const char *path)
{
	struct dirent **entries;
	struct stat st;
	char inside[4096];
	if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
		add_file(path);
		return;
	}
	int n = scandir(path, &entries, not_hidden, alphasort);   /* sorted: the same mutations everywhere */
	for (int i = 0; i < n; i++) {
		snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name);
		add_file(inside);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

static uint64_t state = 1;

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t random_bits(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static size_t below(size_t n) { return n ? (size_t)(random_bits() % n) : 0; }

/* Makes [at, at + remove) become insert bytes of data (or of zeros). */
static void replace(struct input *in, size_t at, size_t remove, const uint8_t *data, size_t insert)
{
	if (remove > in->bytes - at)
		remove = in->bytes - at;
	if (in->bytes - remove + insert > INPUT_BYTES_MAX)
		return;
	memmove(in->data + at + insert, in->data + at + remove, in->bytes - at - remove);
	if (data)
		memmove(in->data + at, data, insert);
	in->bytes += insert - remove;
}

static void put_number(struct input *in)
{
	static const uint64_t numbers[] = { 0, 1, 2, 3, 4, 7, 8, 9, 16, 31, 32, 64, 127, 128, 255, 256, 4096, 65535, 65536,
		INT32_MAX, (uint64_t)INT32_MAX + 1, UINT32_MAX, (uint64_t)UINT32_MAX + 1, INT64_MAX, 1ull << 63, UINT64_MAX,
		UINT64_MAX - 7, 1ull << 61, 1ull << 62, 1ull << 40 };
	uint64_t v = numbers[below(sizeof numbers / sizeof numbers[0])];
	size_t width = (size_t)1 << below(4);
	uint8_t le[8];
	for (int i = 0; i < 8; i++)
		le[i] = (uint8_t)(v >> (8 * i));
	replace(in, below(in->bytes + 1), width, le, width);
}

static void put_word(struct input *in)
{
	static const char *const words[] = { "null", "true", "-1", "0", "1e999", "0.5", "18446744073709551616", "\"\"", "{}",
		"[]", "[", "{", "]", "}", ",", ":", "\"", "\\", "\\u0000", "\\ud800", "\n", "\t", "#", "&a", "*a", "---",
		"- ", "\xff", "\xc3", "\xed\xa0\x80", "\xf0\x9f\x98\x80" };
	const char *word = words[below(sizeof words / sizeof words[0])];
	replace(in, below(in->bytes + 1), below(2) ? strlen(word) : below(4), (const uint8_t *)word, strlen(word));
}

static void mutate(struct input *in)
{
	size_t at = below(in->bytes), n = 1 + below(below(8) ? 8 : 256);
	int other = (int)below((size_t)corpus_files);
	if (!in->bytes)
		at = 0;
	switch (below(9)) {
	case 0:
		if (in->bytes)
			in->data[at] ^= (uint8_t)(1 << below(8));
		break;
	case 1:
		if (in->bytes)
			in->data[at] = (uint8_t)random_bits();
		break;
	case 2:
	case 3:
		put_number(in);
		break;
	case 4:
		put_word(in);
		break;
	case 5:
		replace(in, at, n, NULL, 0);
		break;
	case 6:   /* a piece of the input once more, elsewhere */
		if (n <= in->bytes - at)
			replace(in, below(in->bytes), below(2) ? n : 0, in->data + at, n);
		break;
	case 7:   /* a piece of another file */
		if (n <= corpus[other].bytes)
			replace(in, at, below(2) ? n : 0, corpus[other].data + below(corpus[other].bytes - n + 1), n);
		break;
	default:
		in->bytes = at;
	}
}

static void run_one(const struct input *in)
{
	uint8_t *copy = malloc(in->bytes ? in->bytes : 1);   /* exactly as large, so that a sanitizer sees a read past it */
	if (!copy)
		abort();
	memcpy(copy, in->data, in->bytes);
	alarm(HANG_SECONDS);
	LLVMFuzzerTestOneInput(copy, in->bytes);
	alarm(0);
	free(copy);
}

static void run_all(struct input *in, long runs, long seconds)
{
	time_t start = time(NULL);
	long done = 0;
	for (int i = 0; i < corpus_files; i++) {
		in->bytes = corpus[i].bytes;
		memcpy(in->data, corpus[i].data, in->bytes);
		run_one(in);
	}
	for (; done < runs && time(NULL) - start < seconds; done++) {
		int base = (int)below((size_t)corpus_files);
		in->bytes = corpus[base].bytes;
		memcpy(in->data, corpus[base].data, in->bytes);
		for (size_t n = 1 + below(below(2) ? 2 : 8); n; n--)
			mutate(in);
		run_one(in);
	}
	printf("%d corpus files and %ld mutations\n", corpus_files, done);
}

static void limit_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)   /* those reserve terabytes of address space */
	struct rlimit limit = { 1u << 30, 1u << 30 };
	setrlimit(RLIMIT_AS, &limit);
#endif
	struct rlimit no_core = { 0, 0 };
	setrlimit(RLIMIT_CORE, &no_core);
}

static int report(const char *program, const struct input *in, int status)
{
	char path[256];
	const char *slash = strrchr(program, '/');
	snprintf(path, sizeof path, "crash-%s", slash ? slash + 1 : program);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int written = fd >= 0 && write(fd, in->data, in->bytes) == (ssize_t)in->bytes;
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s after signal %d; ", WTERMSIG(status) == SIGALRM ? "hangs: stopped" : "crashes: ended",
			WTERMSIG(status));
	else
		fprintf(stderr, "ended with status %d; ", WEXITSTATUS(status));
	fprintf(stderr, "the input of %zu bytes is %s %s\n", in->bytes, written ? "in" : "lost: cannot write", path);
	return 1;
}

int main(int argc, char **argv)
{
	long runs = 100000, seconds = 3600;
	int status;
	for (int i = 1; i < argc; i++) {
		if (sscanf(argv[i], "-runs=%ld", &runs) == 1 || sscanf(argv[i], "-max_total_time=%ld", &seconds) == 1)
			continue;
		add_path(argv[i]);
	}
	if (!corpus_files) {
		fprintf(stderr, "usage: %s [-runs=N] [-max_total_time=SECONDS] FILE|DIRECTORY...\n", argv[0]);
		return 2;
	}
	struct input *in = mmap(NULL, sizeof *in, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (in == MAP_FAILED)
		return 1;
	pid_t child = fork();
	if (child < 0)
		return 1;
	if (!child) {
		limit_memory();
		run_all(in, runs, seconds);
		exit(0);   /* through exit, so that a leak is seen */
	}
	if (waitpid(child, &status, 0) != child)
		return 1;
	if (status)
		return report(argv[0], in, status);
	for (int i = 0; i < corpus_files; i++)
		free(corpus[i].data);
	return 0;
}
