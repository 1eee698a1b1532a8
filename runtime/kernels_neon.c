/* The kernels with NEON, which every 64-bit Arm has. On another processor family the table is empty and never
 * usable. */
#ifdef __aarch64__
#include "runtime/kernels_neon.h"
#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_neon, "neon", kernels_neon_usable);
#else
#include "runtime/kernels_isa.h"

KERNELS_NONE(kernels_neon, "neon");
#endif
