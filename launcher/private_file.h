/* Files that only their owner may read: what is said of a run may name files and requests. */
#ifndef SHARDRUN_LAUNCHER_PRIVATE_FILE_H
#define SHARDRUN_LAUNCHER_PRIVATE_FILE_H

#include "base/err.h"

#include <stdio.h>

/* Can it be written? Makes it when it is not there, and changes nothing else. */
enum err private_file_try(const char *path);
/* Emptied, or new with mode 0600. */
enum err private_file_open(const char *path, FILE **out);
/* Everything that was written has gone there, else ERR_IO; the file is closed in any case. */
enum err private_file_close(const char *path, FILE *file);

#endif
