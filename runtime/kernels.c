/* Which kernels there are and which this processor can run. */
#include "runtime/kernels_isa.h"

#include <string.h>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

const char *const kv_type_names[KV_TYPE_COUNT] = { "f32", "f16", "bf16", "int8" };

enum { INT8_GROUP = 32 };

int64_t kv_group(enum kv_type type, int64_t n_head_dim)
{
	if (type != KV_INT8)
		return 1;
	return n_head_dim % INT8_GROUP ? n_head_dim : INT8_GROUP;
}

int64_t kv_bytes(enum kv_type type, int64_t n_head_dim)
{
	static const int number[KV_TYPE_COUNT] = { 4, 2, 2, 1 };
	int64_t scales = type == KV_INT8 ? n_head_dim / kv_group(type, n_head_dim) : 0;
	return n_head_dim * number[type] + scales * (int64_t)sizeof(float);
}

const struct kernels *const kernel_tables[] = {
	&kernels_c, &kernels_avx2, &kernels_avx512, &kernels_avx512vnni, &kernels_avx512bf16, &kernels_neon, &kernels_neondot, NULL
};

int kernels_c_usable(void) { return 1; }

#ifdef __x86_64__
/* The builtin also asks whether the operating system saves the registers. */
int kernels_avx2_usable(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

int kernels_avx512_usable(void)
{
	return kernels_avx2_usable() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

int kernels_avx512vnni_usable(void) { return kernels_avx512_usable() && __builtin_cpu_supports("avx512vnni"); }

/* Neither Intel nor AMD promise how the products of VDPBF16PS are rounded in every corner: the instruction is asked. */
int kernels_avx512bf16_usable(void)
{
	return kernels_avx512vnni_usable() && __builtin_cpu_supports("avx512bf16") && kernels_avx512bf16_agrees();
}

/* Intel's cores take VDPBF16PS to pieces: on Sapphire Rapids one takes as long as four of the fused multiply-adds of which
 * two do the same. There the table serves who asks for it by name. */
static int is_slow(const struct kernels *k) { return k == &kernels_avx512bf16 && __builtin_cpu_is("intel"); }
#else
static int is_slow(const struct kernels *k)
{
	(void)k;
	return 0;
}

int kernels_avx2_usable(void) { return 0; }
int kernels_avx512_usable(void) { return 0; }
int kernels_avx512vnni_usable(void) { return 0; }
int kernels_avx512bf16_usable(void) { return 0; }
#endif

#if defined(__aarch64__) && defined(__linux__)
enum { HAS_DOT_PRODUCT = 1 << 20 };   /* the kernel's HWCAP_ASIMDDP */

int kernels_neon_usable(void) { return 1; }
int kernels_neondot_usable(void) { return (getauxval(AT_HWCAP) & HAS_DOT_PRODUCT) != 0; }
#else
int kernels_neon_usable(void) { return 0; }
int kernels_neondot_usable(void) { return 0; }
#endif

const struct kernels *kernels_best(void)
{
	const struct kernels *best = kernel_tables[0];
	for (int i = 0; kernel_tables[i]; i++)
		if (kernel_tables[i]->usable() && !is_slow(kernel_tables[i]))
			best = kernel_tables[i];
	return best;
}

const struct kernels *kernels_named(const char *name)
{
	for (int i = 0; kernel_tables[i]; i++)
		if (!strcmp(kernel_tables[i]->name, name))
			return kernel_tables[i]->usable() ? kernel_tables[i] : NULL;
	return NULL;
}
