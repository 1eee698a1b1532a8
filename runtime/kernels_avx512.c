/* The kernels with AVX-512 (F, BW, VL, DQ). Without the instruction set at compile time the table is the plain one and
 * never usable. */
#ifdef __AVX512F__
#include "runtime/kernels_avx512.h"
#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_avx512, "avx512", kernels_avx512_usable);
#else
#include "runtime/kernels_isa.h"

KERNELS_NONE(kernels_avx512, "avx512");
#endif
