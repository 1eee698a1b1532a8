/* The kernels with NEON and its dot product of bytes (SDOT), which multiplies packed weights. Without the instruction set at
 * compile time the table is the plain one and never usable. */
#ifdef __ARM_FEATURE_DOTPROD
#include "runtime/kernels_neon.h"
#endif
#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_neondot, "neondot", kernels_neondot_usable);
