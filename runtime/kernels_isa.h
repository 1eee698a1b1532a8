/* The tables behind kernels.h, and what decides whether this processor has them. The questions are asked in kernels.c,
 * which is compiled for the oldest processor. */
#ifndef SHARDRUN_RUNTIME_KERNELS_ISA_H
#define SHARDRUN_RUNTIME_KERNELS_ISA_H

#include "runtime/kernels.h"

int kernels_c_usable(void);
int kernels_avx2_usable(void);
int kernels_avx512_usable(void);
int kernels_avx512vnni_usable(void);
int kernels_neon_usable(void);
int kernels_neondot_usable(void);

extern const struct kernels kernels_c, kernels_avx2, kernels_avx512, kernels_avx512vnni;
extern const struct kernels kernels_neon, kernels_neondot;

#endif
