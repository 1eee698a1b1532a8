/* NumPy files (format 1.0): float32 matrices. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#ifndef SHARDRUN_LAUNCHER_NPY_H
#define SHARDRUN_LAUNCHER_NPY_H

#include "base/err.h"

#include <stdint.h>

/* data (rows, cols), row-major; may be NULL for no rows. ERR_IO names the path and the reason. */
enum err npy_write(const char *path, const float *data, int64_t rows, int64_t cols);

#endif
