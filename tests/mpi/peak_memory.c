/* peak_memory DIRECTORY PROGRAM ARGUMENT...: runs a program and writes the most memory that it held at once, in KiB, to a file
 * of its own in the directory. Under mpirun each rank has one: rank-N. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const char *rank = getenv("OMPI_COMM_WORLD_RANK");
	char path[4096];
	struct rusage used;
	int status = 0;
	if (argc < 3)
		return 2;
	pid_t child = fork();
	if (child == 0) {
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0 || getrusage(RUSAGE_CHILDREN, &used))
		return 1;
	snprintf(path, sizeof path, "%s/rank-%s", argv[1], rank ? rank : "0");
	FILE *f = fopen(path, "w");
	if (!f || fprintf(f, "%ld\n", used.ru_maxrss) < 0 || fclose(f))
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
