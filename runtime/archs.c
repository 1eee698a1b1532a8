/* The list of architectures, and what their tables share. docs/HOWTO-add-an-architecture.md tells how to add one. */
#include "runtime/arch_rows.h"

extern const struct arch arch_llama, arch_mixtral;

const struct arch *const archs[] = { &arch_llama, &arch_mixtral, NULL };

int arch_has_own_head(const struct model *m) { return !m->tied_embeddings; }
int arch_has_attention_bias(const struct model *m) { return m->attention_bias; }
int arch_has_attention_out_bias(const struct model *m) { return m->attention_out_bias; }
int arch_has_mlp_bias(const struct model *m) { return m->mlp_bias; }
