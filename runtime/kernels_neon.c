/* The kernels with NEON, which every 64-bit Arm has. On another processor family the table is the plain one and never
 * usable. */
#include "runtime/kernels_neon.h"
#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_neon, "neon", kernels_neon_usable);
