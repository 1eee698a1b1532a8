/* The kernels with AVX-512 and its VNNI, which multiplies packed weights. Without the instruction set at compile time the
 * table is the plain one and never usable. */
#include "runtime/kernels_avx512.h"
#include "runtime/kernels_impl.h"

KERNELS_TABLE(kernels_avx512vnni, "avx512vnni", kernels_avx512vnni_usable);
