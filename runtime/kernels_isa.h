/* The tables behind kernels.h, and what decides whether this processor has them. The questions are asked in kernels.c,
 * which is compiled for the oldest processor. */
#ifndef SHARDRUN_RUNTIME_KERNELS_ISA_H
#define SHARDRUN_RUNTIME_KERNELS_ISA_H

#include "runtime/kernels.h"

int kernels_c_usable(void);
int kernels_avx2_usable(void);
int kernels_avx512_usable(void);
int kernels_avx512vnni_usable(void);
int kernels_avx512bf16_usable(void);
int kernels_neon_usable(void);
int kernels_neondot_usable(void);

/* Does this processor's VDPBF16PS give the bits that bf16_impl.h defines? Only for processors that have it; 0 in a program that
 * was built without it. */
int kernels_avx512bf16_agrees(void);

extern const struct kernels kernels_c, kernels_avx2, kernels_avx512, kernels_avx512vnni, kernels_avx512bf16;
extern const struct kernels kernels_neon, kernels_neondot;

/* A table that was built without its instruction set. */
static inline int kernels_never_usable(void) { return 0; }
#define KERNELS_NONE(symbol, text) const struct kernels symbol = { .name = text, .usable = kernels_never_usable }

#endif
