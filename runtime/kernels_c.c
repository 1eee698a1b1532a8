/* The plain kernels, compiled for any processor: the reference of the others. fmaf is the C library's, which is exact (and
 * uses the instruction where there is one). */
#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_c, "c", kernels_c_usable);
