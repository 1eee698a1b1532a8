/* config.json and generation_config.json from anywhere: either one sentence, or numbers that the rest can stand on. */
#include "runtime/model_impl.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
	if (!holds)
		abort();
}

static void check(const struct model *m)
{
	require(m->arch && m->n_layers >= 1 && m->n_embd >= 1 && m->n_ffn >= 1 && m->n_vocab >= 1 && m->n_context >= 1);
	require(m->n_head >= 1 && m->n_kv_head >= 1 && m->n_head % m->n_kv_head == 0);
	require(m->n_head_dim >= 2 && m->n_head_dim % 2 == 0);
	require(m->n_expert_used <= m->n_expert && (m->n_expert > 0) == model_arch_has_experts(m->arch));
	require(m->rope_theta >= 1 && m->window >= 0 && m->norm_eps >= 0);
	require(m->rope != ROPE_LINEAR || m->rope_factor > 0);
	require(m->rope != ROPE_LLAMA3 || (m->rope_low < m->rope_high && m->rope_original_context >= 1));
	require(m->bos >= -1 && m->bos < m->n_vocab);
	require(m->n_eos >= 0 && m->n_eos <= (int)(sizeof m->eos / sizeof m->eos[0]));
	for (int i = 0; i < m->n_eos; i++)
		require(m->eos[i] >= 0 && m->eos[i] < m->n_vocab);
	for (enum size_name s = SIZE_1; s <= SIZE_VOCAB; s++)
		require(model_size(m, s) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct model m;
	enum err e = model_from_config("config.json", (const char *)data, size, &m);
	if (!e) {
		check(&m);
		if (!model_add_generation_config("generation_config.json", (const char *)data, size, &m))
			check(&m);
	} else {
		require(err_sentence()[0] != '\0');
	}
	return 0;
}
