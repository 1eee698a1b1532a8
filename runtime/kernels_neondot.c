/* The kernels with NEON and its dot product of bytes (SDOT), which multiplies packed weights. Without the instruction set at
 * compile time the table is empty and never usable. */
#ifdef __ARM_FEATURE_DOTPROD
#include "runtime/kernels_neon.h"
#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_neondot, "neondot", kernels_neondot_usable);
#else
#include "runtime/kernels_isa.h"

KERNELS_NONE(kernels_neondot, "neondot");
#endif
