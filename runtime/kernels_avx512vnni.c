/* The kernels with AVX-512 and its VNNI, which multiplies packed weights. Without the instruction set at compile time the
 * table is empty and never usable. */
#ifdef __AVX512VNNI__
#include "runtime/kernels_avx512.h"
#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_avx512vnni, "avx512vnni", kernels_avx512vnni_usable);
#else
#include "runtime/kernels_isa.h"

KERNELS_NONE(kernels_avx512vnni, "avx512vnni");
#endif
