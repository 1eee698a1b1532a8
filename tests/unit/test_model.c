/* labels: unit
 * What a model is: every golden checkpoint is described with the numbers its maker script gave it, every fault has its
 * sentence, and the bytes of shards are those of a hand calculation. */
#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "runtime/gguf.h"
#include "runtime/model_impl.h"
#include "tests/test.h"

#include <unistd.h>

#define GOLDEN SOURCE_DIR "/tests/golden/models/"

static enum err describe(const char *path, struct weights **w, struct model *m)
{
	TRY(weights_open(path, w));
	enum err e = model_describe(*w, m);
	if (e)
		weights_close(*w);
	return e;
}

/* ---- what is right ---- */

/* From tests/golden/make_checkpoints.py and make_gguf.py. Runs by hand: head_run is the smallest r with r * D a multiple of
 * 32 (of 256 where the output projection is a K-quant), at most H; ffn_run is ceil(F / 8) (F < 2048) rounded up to 32
 * (256), at most F. */
static const struct expected {
	const char *dir, *arch;
	int l, c, h, k, d, f, v, experts, used, tied, window, interleaved, head_run, ffn_run;
	enum rope_type rope;
	double theta;
} expected[] = {
	{ "llama-tied", "llama", 2, 48, 6, 2, 8, 88, 131, 0, 0, 1, 0, 0, 4, 32, ROPE_DEFAULT, 1e4 },
	{ "llama-untied", "llama", 3, 48, 6, 2, 8, 88, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_DEFAULT, 1e4 },
	{ "llama-head-dim", "llama", 2, 48, 6, 2, 16, 88, 131, 0, 0, 0, 0, 0, 2, 32, ROPE_DEFAULT, 1e4 },
	{ "llama-no-head-dim", "llama", 2, 48, 3, 1, 16, 88, 131, 0, 0, 0, 0, 0, 2, 32, ROPE_DEFAULT, 1e4 },
	{ "llama-full-heads", "llama", 2, 48, 4, 4, 12, 88, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_DEFAULT, 1e4 },
	{ "llama-rope-llama3", "llama", 2, 48, 6, 2, 8, 88, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_LLAMA3, 1e4 },
	{ "llama-rope-llama3-v4", "llama", 2, 48, 6, 2, 8, 88, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_LLAMA3, 1e4 },
	{ "llama-rope-linear", "llama", 2, 48, 6, 2, 8, 88, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_LINEAR, 5e3 },
	{ "llama-rope-linear-v4", "llama", 2, 48, 6, 2, 8, 88, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_LINEAR, 5e3 },
	{ "llama-bias", "llama", 2, 48, 6, 2, 8, 88, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_DEFAULT, 1e4 },
	{ "llama-sharded", "llama", 3, 48, 6, 2, 8, 88, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_DEFAULT, 1e4 },
	{ "llama-bf16", "llama", 2, 48, 6, 2, 8, 96, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_DEFAULT, 1e4 },
	{ "llama-f16", "llama", 2, 48, 6, 2, 8, 96, 131, 0, 0, 0, 0, 0, 4, 32, ROPE_DEFAULT, 1e4 },
	{ "mistral-window", "llama", 2, 48, 6, 2, 8, 88, 131, 0, 0, 0, 16, 0, 4, 32, ROPE_DEFAULT, 1e4 },
	{ "mixtral-8x2", "mixtral", 2, 48, 6, 2, 8, 40, 131, 8, 2, 0, 0, 0, 4, 32, ROPE_DEFAULT, 1e6 },
	{ "mixtral-5x3", "mixtral", 2, 40, 5, 1, 8, 56, 131, 5, 3, 1, 0, 0, 4, 32, ROPE_DEFAULT, 1e6 },
	{ "gguf-llama-f32", "llama", 2, 64, 8, 2, 16, 96, 131, 0, 0, 1, 0, 1, 2, 32, ROPE_DEFAULT, 1e4 },
	{ "gguf-llama-mixed", "llama", 2, 64, 8, 2, 16, 96, 131, 0, 0, 0, 0, 1, 2, 32, ROPE_DEFAULT, 1e4 },
	{ "gguf-llama-k", "llama", 1, 256, 8, 2, 32, 512, 131, 0, 0, 1, 0, 1, 8, 256, ROPE_DEFAULT, 1e4 },
	{ "gguf-llama-linear", "llama", 2, 64, 8, 2, 16, 96, 131, 0, 0, 0, 0, 1, 2, 32, ROPE_LINEAR, 5e3 },
	{ "gguf-mixtral", "mixtral", 2, 64, 8, 2, 16, 32, 131, 8, 2, 0, 0, 1, 2, 32, ROPE_DEFAULT, 1e6 },
	{ "gguf-mixtral-split", "mixtral", 2, 32, 4, 1, 16, 64, 131, 5, 2, 1, 0, 1, 2, 32, ROPE_DEFAULT, 1e6 },
};

static void check_expected(const struct expected *x, const struct model *m)
{
	CU_ASSERT_STRING_EQUAL(m->arch->name, x->arch);
	CU_ASSERT_EQUAL(m->n_layers, x->l);
	CU_ASSERT_EQUAL(m->n_embd, x->c);
	CU_ASSERT_EQUAL(m->n_head, x->h);
	CU_ASSERT_EQUAL(m->n_kv_head, x->k);
	CU_ASSERT_EQUAL(m->n_head_dim, x->d);
	CU_ASSERT_EQUAL(m->n_ffn, x->f);
	CU_ASSERT_EQUAL(m->n_vocab, x->v);
	CU_ASSERT_EQUAL(m->n_context, 256);
	CU_ASSERT_EQUAL(m->n_expert, x->experts);
	CU_ASSERT_EQUAL(m->n_expert_used, x->used);
	CU_ASSERT_EQUAL(m->tied_embeddings, x->tied);
	CU_ASSERT_EQUAL(m->window, x->window);
	CU_ASSERT_EQUAL(m->rope_interleaved, x->interleaved);
	CU_ASSERT_EQUAL(m->head_run, x->head_run);
	CU_ASSERT_EQUAL(m->ffn_run, x->ffn_run);
	CU_ASSERT_EQUAL(m->rope, x->rope);
	CU_ASSERT_EQUAL(m->rope_theta, x->theta);
	CU_ASSERT_EQUAL(m->norm_eps, 1e-5f);
	CU_ASSERT_EQUAL(m->bos, 1);
	CU_ASSERT_EQUAL(m->eos[0], 2);
}

TEST(golden_models_have_the_numbers_of_their_makers)
{
	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
		char path[512];
		struct weights *w;
		struct model m = { 0 };
		snprintf(path, sizeof path, GOLDEN "%s", expected[i].dir);
		enum err e = describe(path, &w, &m);
		CHECK_OK(e);
		if (e)
			continue;
		unsigned failures = CU_get_number_of_failures();
		check_expected(&expected[i], &m);
		int has_bias = strcmp(expected[i].dir, "llama-bias") == 0;
		CU_ASSERT_EQUAL(m.attention_bias, has_bias);
		CU_ASSERT_EQUAL(m.attention_out_bias, has_bias);
		CU_ASSERT_EQUAL(m.mlp_bias, has_bias);
		CU_ASSERT_EQUAL(m.n_eos, strcmp(expected[i].dir, "llama-head-dim") == 0 ? 2 : 1);
		if (CU_get_number_of_failures() > failures)
			fprintf(stderr, "in %s\n", expected[i].dir);
		weights_close(w);
	}
}

TEST(rope_numbers_are_read_in_both_spellings)
{
	static const char *const llama3[] = { "llama-rope-llama3", "llama-rope-llama3-v4" };
	static const char *const linear[] = { "llama-rope-linear", "llama-rope-linear-v4" };
	for (int i = 0; i < 2; i++) {
		char path[512];
		struct weights *w;
		struct model m = { 0 };
		snprintf(path, sizeof path, GOLDEN "%s", llama3[i]);
		CHECK_OK(describe(path, &w, &m));
		CU_ASSERT_EQUAL(m.rope_factor, 4);
		CU_ASSERT_EQUAL(m.rope_low, 1);
		CU_ASSERT_EQUAL(m.rope_high, 4);
		CU_ASSERT_EQUAL(m.rope_original_context, 64);
		CU_ASSERT_PTR_NULL(m.rope_factors);
		weights_close(w);
		snprintf(path, sizeof path, GOLDEN "%s", linear[i]);
		CHECK_OK(describe(path, &w, &m));
		CU_ASSERT_EQUAL(m.rope_factor, 2.5);
		weights_close(w);
	}
	struct weights *w;
	struct model m = { 0 };
	CHECK_OK(describe(GOLDEN "gguf-llama-linear", &w, &m));
	CU_ASSERT_EQUAL(m.rope_factor, 2);
	weights_close(w);
	CHECK_OK(describe(GOLDEN "gguf-llama-mixed", &w, &m));   /* llama3 scaling as a tensor of D / 2 */
	CU_ASSERT_PTR_NOT_NULL_FATAL(m.rope_factors);
	CU_ASSERT_EQUAL(m.rope_factors->dims[0], 8);
	weights_close(w);
}

/* ---- config.json: faults ---- */

static const char good[] =
	"{\"model_type\": \"llama\", \"hidden_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 6,\n"
	" \"num_key_value_heads\": 2, \"intermediate_size\": 88, \"vocab_size\": 131, \"rms_norm_eps\": 1e-5,\n"
	" \"max_position_embeddings\": 256, \"rope_scaling\": null, \"sliding_window\": null, \"hidden_act\": \"silu\",\n"
	" \"eos_token_id\": 2, \"tie_word_embeddings\": false}";

/* `text` with its first `from` replaced; from "" adds `to` behind the brace. Freed by the caller (bytes_free). */
static struct bytes edit(const char *text, const char *from, const char *to)
{
	struct bytes b = { 0 };
	const char *at = from[0] ? strstr(text, from) : text + 1;
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	bytes_printf(&b, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	return b;
}

static enum err edited(const char *from, const char *to, struct model *m)
{
	struct bytes b = edit(good, from, to);
	enum err e = model_from_config("c.json", bytes_text(&b), b.size, m);
	bytes_free(&b);
	return e;
}

#define REFUSED(from, to, text) CHECK_ERR(edited((from), (to), &m), MODEL, text)

TEST(config_numbers_out_of_place_are_refused)
{
	struct model m;
	CHECK_OK(edited("", "", &m));
	CU_ASSERT_EQUAL(m.n_head_dim, 8);
	CU_ASSERT_EQUAL(m.bos, -1);
	REFUSED("\"hidden_size\": 48", "\"hidden_size\": null", "\"hidden_size\" is missing");
	REFUSED("\"hidden_size\": 48", "\"hidden_size\": \"48\"", "\"hidden_size\" must be an integer, found a string");
	REFUSED("\"hidden_size\": 48", "\"hidden_size\": 48.5", "found a real");
	REFUSED("\"hidden_size\": 48", "\"hidden_size\": [48]", "found a list");
	REFUSED("\"hidden_size\": 48", "\"hidden_size\": 0", "\"hidden_size\" is 0, but must be 1 to 1048576");
	REFUSED("\"hidden_size\": 48", "\"hidden_size\": 1048577", "is 1048577, but must be");
	REFUSED("\"hidden_size\": 48", "\"hidden_size\": 47", 
		"\"head_dim\" is missing, and \"hidden_size\" 47 is not a multiple");
	REFUSED("\"num_hidden_layers\": 2", "\"num_hidden_layers\": -2", "\"num_hidden_layers\" is -2");
	REFUSED("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 9223372036854775807", "36854775807, but must be");
	REFUSED("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 99999999999999999999", "c.json:1:");
	REFUSED("\"num_attention_heads\": 6", "\"num_attention_heads\": 0", "\"num_attention_heads\" is 0");
	REFUSED("\"num_attention_heads\": 6", "\"num_attention_heads\": 3", "3 attention heads must be a multiple of the 2");
	REFUSED("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 12", "heads must be a multiple of the 12");
	REFUSED("\"intermediate_size\": 88", "\"intermediate_size\": 0", "\"intermediate_size\" is 0");
	REFUSED("\"vocab_size\": 131", "\"vocab_size\": 1e9", "\"vocab_size\" must be an integer");
	REFUSED("\"rms_norm_eps\": 1e-5", "\"rms_norm_eps\": null", "\"rms_norm_eps\" is missing");
	REFUSED("\"rms_norm_eps\": 1e-5", "\"rms_norm_eps\": \"1e-5\"", "must be a number, found a string");
	REFUSED("\"rms_norm_eps\": 1e-5", "\"rms_norm_eps\": -1", "\"rms_norm_eps\" is -1");
	REFUSED("\"max_position_embeddings\": 256", "\"max_position_embeddings\": 0", "\"max_position_embeddings\" is 0");
	REFUSED("", "\"head_dim\": 7, ", "head size is 7, but must be even");
	REFUSED("", "\"rope_theta\": 0, ", "\"rope_theta\" is 0");
	REFUSED("\"eos_token_id\": 2", "\"eos_token_id\": 131", "\"eos_token_id\" holds 131, but must be 0 to 130");
	REFUSED("\"eos_token_id\": 2", "\"eos_token_id\": [2, \"3\"]", "item 1 of \"eos_token_id\"");
	REFUSED("\"eos_token_id\": 2", "\"eos_token_id\": [0,1,2,3,4,5,6,7,8]", "beyond the 8");
	REFUSED("", "\"bos_token_id\": -1, ", "\"bos_token_id\" is -1");
	REFUSED("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 0", "must be true or false");
	REFUSED("{", "[{", "c.json:");
	CHECK_ERR(model_from_config("c.json", "[1]", 3, &m), MODEL, "found a list");
	CHECK_ERR(model_from_config("c.json", "", 0, &m), MODEL, "not valid JSON");
}

TEST(config_features_beyond_us_are_refused)
{
	struct model m;
	REFUSED("\"model_type\": \"llama\"", "\"model_type\": \"gpt2\"",
		"model_type \"gpt2\" is not supported; supported are llama, mistral and mixtral");
	REFUSED("\"model_type\": \"llama\"", "\"model_type\": null", "\"model_type\" is missing");
	REFUSED("\"model_type\": \"llama\"", "\"model_type\": 7", "must be a string");
	REFUSED("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "\"hidden_act\" is \"gelu\"");
	REFUSED("", "\"quantization_config\": {\"bits\": 4}, ", "\"quantization_config\" is set");
	REFUSED("", "\"attn_logit_softcapping\": 50.0, ", "soft caps");
	REFUSED("", "\"final_logit_softcapping\": 30, ", "soft caps");
	REFUSED("", "\"partial_rotary_factor\": 0.5, ", "\"partial_rotary_factor\" is 0.5");
	REFUSED("", "\"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}, ",
		"\"partial_rotary_factor\" is 0.25");
	REFUSED("\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}", "rope type \"yarn\"");
	REFUSED("\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}", "type \"dynamic\"");
	REFUSED("", "\"rope_parameters\": {\"rope_type\": \"longrope\"}, ", "rope type \"longrope\"");
	REFUSED("\"rope_scaling\": null", "\"rope_scaling\": {\"factor\": 4}", "no \"rope_type\"");
	REFUSED("\"rope_scaling\": null", "\"rope_scaling\": 4", "expected an object");
	REFUSED("\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\"}", "\"factor\" is missing");
	REFUSED("\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}", "\"factor\" is 0");
	REFUSED("\"rope_scaling\": null",
		"\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4}",
		"\"low_freq_factor\" 4 must be below");
	REFUSED("", "\"layer_types\": [\"full_attention\", \"sliding_attention\"], ", "\"layer_types\" must be all");
	CHECK_OK(edited("", "\"quantization_config\": null, \"attn_logit_softcapping\": 0, ", &m));
}

TEST(config_of_mistral_and_mixtral)
{
	struct model m;
	CHECK_OK(edited("\"llama\", \"hidden_size\": 48", "\"mistral\", \"hidden_size\": 48", &m));
	CU_ASSERT_EQUAL(m.window, 0);      /* null */
	struct bytes b = edit(good, "\"sliding_window\": null,", "");
	struct bytes c = edit(bytes_text(&b), "\"llama\"", "\"mistral\"");
	CHECK_OK(model_from_config("c.json", bytes_text(&c), c.size, &m));
	CU_ASSERT_EQUAL(m.window, 4096);   /* absent: MistralConfig's default */
	bytes_free(&c);
	c = edit(good, "\"sliding_window\": null", "\"sliding_window\": 77");
	CHECK_OK(model_from_config("c.json", bytes_text(&c), c.size, &m));
	CU_ASSERT_EQUAL(m.window, 0);      /* LlamaForCausalLM does not look at it */
	bytes_free(&c);
	bytes_free(&b);

	b = edit(good, "\"llama\"", "\"mixtral\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2");
	CHECK_OK(model_from_config("c.json", bytes_text(&b), b.size, &m));
	CU_ASSERT_EQUAL(m.rope_theta, 1e6);
	c = edit(bytes_text(&b), "per_tok\": 2", "per_tok\": 9");
	CHECK_ERR(model_from_config("c.json", bytes_text(&c), c.size, &m), MODEL, "cannot use 9 of 8 experts");
	bytes_free(&c);
	c = edit(bytes_text(&b), "experts\": 8", "experts\": 0");
	CHECK_ERR(model_from_config("c.json", bytes_text(&c), c.size, &m), MODEL, "\"num_local_experts\" is 0");
	bytes_free(&c);
	c = edit(bytes_text(&b), "experts\": 8", "experts\": 1025");
	CHECK_ERR(model_from_config("c.json", bytes_text(&c), c.size, &m), MODEL, "must be 1 to 1024");
	bytes_free(&c);
	bytes_free(&b);
}

TEST(end_tokens_come_from_both_files_once)
{
	struct model m;
	static const char more[] = "{\"eos_token_id\": [2, 9, 5]}";
	CHECK_OK(edited("", "", &m));
	CHECK_OK(model_add_generation_config("g.json", more, strlen(more), &m));
	CU_ASSERT_EQUAL(m.n_eos, 3);
	CU_ASSERT(m.eos[0] == 2 && m.eos[1] == 9 && m.eos[2] == 5);
	CHECK_ERR(model_add_generation_config("g.json", "7", 1, &m), MODEL, "g.json:1:");
	CHECK_ERR(model_add_generation_config("g.json", "[7]", 3, &m), MODEL, "expected an object");
	CHECK_OK(edited("\"eos_token_id\": 2", "\"eos_token_id\": null", &m));
	CU_ASSERT_EQUAL(m.n_eos, 0);
}

/* ---- tensors against the numbers ---- */

/* A directory in /tmp with a golden model's weights (linked) and its config.json edited. */
static void make_variant(const char *golden, const char *from, const char *to, char dir[64])
{
	char source[512], target[512];
	struct bytes text = { 0 };
	strcpy(dir, "/tmp/shardrun-model-XXXXXX");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	snprintf(source, sizeof source, GOLDEN "%s/model.safetensors", golden);
	snprintf(target, sizeof target, "%s/model.safetensors", dir);
	CU_ASSERT_EQUAL_FATAL(symlink(source, target), 0);
	if (!from)
		return;
	snprintf(source, sizeof source, GOLDEN "%s/config.json", golden);
	CHECK_OK(file_read_all(source, 1 << 20, &text));
	struct bytes changed = edit(bytes_text(&text), from, to);
	snprintf(target, sizeof target, "%s/config.json", dir);
	FILE *f = fopen(target, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fwrite(changed.data, 1, changed.size, f);
	fclose(f);
	bytes_free(&changed);
	bytes_free(&text);
}

static void remove_variant(const char *dir)
{
	char path[512];
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	unlink(path);
	snprintf(path, sizeof path, "%s/config.json", dir);
	unlink(path);
	CU_ASSERT_EQUAL(rmdir(dir), 0);
}

static enum err describe_variant(const char *golden, const char *from, const char *to)
{
	char dir[64];
	struct weights *w;
	struct model m;
	make_variant(golden, from, to, dir);
	enum err e = describe(dir, &w, &m);
	if (!e)
		weights_close(w);
	remove_variant(dir);
	return e;
}

TEST(tensors_are_held_against_the_config)
{
	CHECK_OK(describe_variant("llama-untied", "\"vocab_size\": 131", "\"vocab_size\": 131"));
	CHECK_ERR(describe_variant("llama-untied", "\"vocab_size\": 131", "\"vocab_size\": 132"), MODEL,
		  "tensor model.embed_tokens.weight is 131 x 48, but by /tmp/shardrun-model");
	CHECK_ERR(describe_variant("llama-untied", "\"vocab_size\": 131", "\"vocab_size\": 132"), MODEL,
		  "must be 132 x 48 (vocabulary size x hidden size)");
	CHECK_ERR(describe_variant("llama-untied", "\"hidden_size\": 48", "\"hidden_size\": 64"), MODEL, "131 x 48");
	CHECK_ERR(describe_variant("llama-untied", "\"head_dim\": 8", "\"head_dim\": 16"), MODEL,
		  "model.layers.0.self_attn.q_proj.weight is 48 x 48, but by");
	CHECK_ERR(describe_variant("llama-untied", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"), MODEL,
		  "k_proj.weight is 16 x 48");
	CHECK_ERR(describe_variant("llama-untied", "\"intermediate_size\": 88", "\"intermediate_size\": 89"), MODEL,
		  "gate_proj.weight is 88 x 48");
	CHECK_ERR(describe_variant("llama-untied", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4"), MODEL,
		  "tensor model.layers.3.input_layernorm.weight is missing");
	CHECK_OK(describe_variant("llama-untied", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2"));
	CHECK_ERR(describe_variant("llama-tied", "embeddings\": true", "embeddings\": false"), MODEL,
		  "tensor lm_head.weight is missing");
	CHECK_OK(describe_variant("llama-untied", "embeddings\": false", "embeddings\": true"));   /* lm_head is ignored */
	CHECK_ERR(describe_variant("llama-untied", "\"attention_bias\": false", "\"attention_bias\": true"), MODEL,
		  "self_attn.q_proj.bias is missing");
	CHECK_ERR(describe_variant("mixtral-8x2", "\"num_local_experts\": 8", "\"num_local_experts\": 9"), MODEL,
		  "block_sparse_moe.gate.weight is 8 x 48");
	CHECK_ERR(describe_variant("mixtral-8x2", "\"model_type\": \"mixtral\"", "\"model_type\": \"llama\""), MODEL,
		  "mlp.gate_proj.weight is missing");
	CHECK_ERR(describe_variant("llama-untied", NULL, NULL), MODEL, "no config.json beside the weights");
}

/* ---- GGUF metadata ---- */

enum { U32 = 4, F32 = 6, BOOL = 7, STRING = 8, STRINGS = 9 };   /* STRINGS: an array of u "t" */
struct key { const char *key; int type; uint32_t u; float f; const char *text; };

static const struct key base_keys[] = {
	{ "general.architecture", STRING, 0, 0, "llama" }, { "llama.block_count", U32, 2, 0, NULL },
	{ "llama.context_length", U32, 256, 0, NULL }, { "llama.embedding_length", U32, 64, 0, NULL },
	{ "llama.feed_forward_length", U32, 96, 0, NULL }, { "llama.attention.head_count", U32, 8, 0, NULL },
	{ "llama.attention.head_count_kv", U32, 2, 0, NULL },
	{ "llama.attention.layer_norm_rms_epsilon", F32, 0, 1e-5f, NULL }, { "llama.vocab_size", U32, 131, 0, NULL },
};

static void put_text(struct bytes *b, const char *text)
{
	bytes_put_u64(b, strlen(text));
	bytes_put(b, text, strlen(text));
}

static void put_key(struct bytes *b, const struct key *k)
{
	put_text(b, k->key);
	bytes_put_u32(b, (uint32_t)k->type);
	switch (k->type) {
	case U32: bytes_put_u32(b, k->u); break;
	case F32: bytes_put(b, &k->f, sizeof k->f); break;
	case BOOL: bytes_put(b, &(char){ (char)k->u }, 1); break;
	case STRING: put_text(b, k->text); break;
	case STRINGS:
		bytes_put_u32(b, STRING);
		bytes_put_u64(b, k->u);
		for (uint32_t i = 0; i < k->u; i++)
			put_text(b, "t");
	}
}

/* The base keys, with those of `changes` replaced (type 0: left out) or added, as a file without tensors. */
static enum err from_keys(const struct key *changes, int n_changes, struct model *m)
{
	struct bytes b = { 0 }, body = { 0 };
	char path[] = "/tmp/shardrun-model-XXXXXX";
	uint64_t n = 0;
	int n_base = (int)(sizeof base_keys / sizeof base_keys[0]);
	for (int i = 0; i < n_base; i++) {
		int replaced = 0;
		for (int c = 0; c < n_changes; c++)
			replaced |= strcmp(changes[c].key, base_keys[i].key) == 0;
		if (!replaced) {
			put_key(&body, &base_keys[i]);
			n++;
		}
	}
	for (int c = 0; c < n_changes; c++)
		if (changes[c].type) {
			put_key(&body, &changes[c]);
			n++;
		}
	bytes_put(&b, "GGUF", 4);
	bytes_put_u32(&b, 3);
	bytes_put_u64(&b, 0);
	bytes_put_u64(&b, n);
	bytes_put(&b, body.data, body.size);
	int fd = mkstemp(path);
	CU_ASSERT_EQUAL(write(fd, b.data, b.size), (ssize_t)b.size);
	close(fd);
	struct gguf *g;
	enum err e = gguf_open(path, &g);
	CHECK_OK(e);
	if (!e) {
		e = model_from_gguf(g, m);
		gguf_close(g);
	}
	unlink(path);
	bytes_free(&b);
	bytes_free(&body);
	return e;
}

#define KEYS(...) \
	(const struct key[]){ __VA_ARGS__ }, (int)(sizeof((const struct key[]){ __VA_ARGS__ }) / sizeof(struct key))
#define FAULT(text, ...) CHECK_ERR(from_keys(KEYS(__VA_ARGS__), &m), MODEL, text)

TEST(gguf_numbers_out_of_place_are_refused)
{
	struct model m;
	CHECK_OK(from_keys(NULL, 0, &m));
	CU_ASSERT_EQUAL(m.n_head_dim, 8);
	CU_ASSERT_EQUAL(m.rope_theta, 10000);
	CU_ASSERT_EQUAL(m.bos, -1);
	CU_ASSERT_EQUAL(m.n_eos, 0);
	FAULT("llama.block_count", { "llama.block_count", 0, 0, 0, NULL });
	FAULT("llama.block_count", { "llama.block_count", STRING, 0, 0, "2" });
	FAULT("llama.block_count", { "llama.block_count", U32, 0, 0, NULL });
	FAULT("llama.block_count", { "llama.block_count", U32, 0xffffffff, 0, NULL });
	FAULT("llama.embedding_length", { "llama.embedding_length", F32, 0, 64, NULL });
	FAULT("attention.key_length is missing", { "llama.embedding_length", U32, 63, 0, NULL });
	FAULT("8 attention heads must be a multiple of the 3", { "llama.attention.head_count_kv", U32, 3, 0, NULL });
	FAULT("head size is 9", { "llama.attention.key_length", U32, 9, 0, NULL });
	FAULT("value_length is 4, but must be the key's length 8", { "llama.attention.value_length", U32, 4, 0, NULL });
	FAULT("rope.dimension_count is 4", { "llama.rope.dimension_count", U32, 4, 0, NULL });
	FAULT("rms_epsilon is nan", { "llama.attention.layer_norm_rms_epsilon", F32, 0, __builtin_nanf(""), NULL });
	FAULT("rope.freq_base is inf", { "llama.rope.freq_base", F32, 0, __builtin_inff(), NULL });
	FAULT("vocab_size", { "llama.vocab_size", 0, 0, 0, NULL });
	FAULT("llama.vocab_size is 131, but tokenizer.ggml.tokens holds 130",
	      { "tokenizer.ggml.tokens", STRINGS, 130, 0, NULL });
	FAULT("bos_token_id", { "tokenizer.ggml.bos_token_id", U32, 131, 0, NULL });
	FAULT("eos_token_id", { "tokenizer.ggml.eos_token_id", U32, 4000, 0, NULL });
}

TEST(gguf_features_beyond_us_are_refused)
{
	struct model m;
	FAULT("general.architecture \"falcon\" is not supported", { "general.architecture", STRING, 0, 0, "falcon" });
	FAULT("\"a?b\"", { "general.architecture", STRING, 0, 0, "a\nb" });
	FAULT("general.architecture", { "general.architecture", U32, 1, 0, NULL });
	FAULT("rope.scaling.type \"yarn\"", { "llama.rope.scaling.type", STRING, 0, 0, "yarn" });
	FAULT("attn_factor is 2", { "llama.rope.scaling.attn_factor", F32, 0, 2, NULL });
	FAULT("softcapping is 30", { "llama.final_logit_softcapping", F32, 0, 30, NULL });
	FAULT("llama.expert_used_count", { "llama.expert_count", U32, 8, 0, NULL });
	FAULT("cannot use 9 of 8", { "llama.expert_count", U32, 8, 0, NULL },
	      { "llama.expert_used_count", U32, 9, 0, NULL });
	FAULT("only softmax (1)", { "llama.expert_count", U32, 8, 0, NULL }, { "llama.expert_used_count", U32, 2, 0, NULL },
	      { "llama.expert_gating_func", U32, 2, 0, NULL });
	FAULT("shared experts", { "llama.expert_count", U32, 8, 0, NULL }, { "llama.expert_used_count", U32, 2, 0, NULL },
	      { "llama.expert_shared_count", U32, 1, 0, NULL });
	FAULT("expert_weights_norm is false", { "llama.expert_count", U32, 8, 0, NULL },
	      { "llama.expert_used_count", U32, 2, 0, NULL }, { "llama.expert_weights_norm", BOOL, 0, 0, NULL });
}

TEST(gguf_optional_keys_are_read)
{
	struct model m;
	CHECK_OK(from_keys(KEYS({ "llama.vocab_size", 0, 0, 0, NULL }, { "tokenizer.ggml.tokens", STRINGS, 77, 0, NULL },
				{ "tokenizer.ggml.eos_token_id", U32, 5, 0, NULL },
				{ "tokenizer.ggml.eot_token_id", U32, 6, 0, NULL },
				{ "tokenizer.ggml.bos_token_id", U32, 4, 0, NULL },
				{ "general.name", STRING, 0, 0, "a name" }),
			   &m));
	CU_ASSERT_EQUAL(m.n_vocab, 77);
	CU_ASSERT_EQUAL(m.bos, 4);
	CU_ASSERT(m.n_eos == 2 && m.eos[0] == 5 && m.eos[1] == 6);
	CU_ASSERT_STRING_EQUAL(m.name, "a name");
	CHECK_OK(from_keys(KEYS({ "llama.rope.scale_linear", F32, 0, 4, NULL }), &m));
	CU_ASSERT(m.rope == ROPE_LINEAR && m.rope_factor == 4);
	CHECK_OK(from_keys(KEYS({ "llama.rope.scaling.factor", F32, 0, 4, NULL },
				{ "llama.rope.scaling.type", STRING, 0, 0, "none" }), &m));
	CU_ASSERT_EQUAL(m.rope, ROPE_DEFAULT);
	CHECK_OK(from_keys(KEYS({ "llama.expert_count", U32, 8, 0, NULL },
				{ "llama.expert_used_count", U32, 2, 0, NULL }), &m));
	CU_ASSERT_STRING_EQUAL(m.arch->name, "mixtral");
}

/* A golden GGUF with the numbers (U32) of some keys changed, described. */
static enum err patched(const char *golden, const struct key *changes, int n_changes)
{
	char source[512], path[] = "/tmp/shardrun-model-XXXXXX.gguf";
	struct bytes b = { 0 };
	struct weights *w;
	struct model m;
	snprintf(source, sizeof source, GOLDEN "%s/model.gguf", golden);
	CHECK_OK(file_read_all(source, 1 << 20, &b));
	for (int c = 0; c < n_changes; c++) {
		size_t n = strlen(changes[c].key);
		unsigned char *at = memmem(b.data, b.size, changes[c].key, n);
		CU_ASSERT_PTR_NOT_NULL_FATAL(at);
		memcpy(at + n + 4, &changes[c].u, 4);
	}
	int fd = mkstemps(path, 5);
	CU_ASSERT_EQUAL(write(fd, b.data, b.size), (ssize_t)b.size);
	close(fd);
	enum err e = describe(path, &w, &m);
	if (!e)
		weights_close(w);
	unlink(path);
	bytes_free(&b);
	return e;
}

#define PATCHED(golden, text, ...) CHECK_ERR(patched(golden, KEYS(__VA_ARGS__)), MODEL, text)

TEST(gguf_tensors_are_held_against_the_numbers)
{
	CHECK_OK(patched("gguf-llama-mixed", KEYS({ "llama.context_length", U32, 64, 0, NULL })));
	PATCHED("gguf-llama-f32", "token_embd.weight is 131 x 64, but by", { "llama.vocab_size", U32, 130, 0, NULL });
	PATCHED("gguf-llama-f32", "must be 130 x 64 (vocabulary size x hidden size)",
		{ "llama.vocab_size", U32, 130, 0, NULL });
	PATCHED("gguf-llama-f32", "blk.0.ffn_gate.weight is 96 x 64", { "llama.feed_forward_length", U32, 95, 0, NULL });
	PATCHED("gguf-llama-f32", "blk.2.attn_norm.weight is missing", { "llama.block_count", U32, 3, 0, NULL });
	PATCHED("gguf-mixtral", "must be 8 x 31 x 64 (experts x FFN columns x hidden size)",
		{ "llama.feed_forward_length", U32, 31, 0, NULL });
	PATCHED("gguf-mixtral", "ffn_gate_inp.weight is 8 x 64", { "llama.expert_count", U32, 7, 0, NULL });
	PATCHED("gguf-mixtral-split", "blk.0.ffn_gate.0.weight is 64 x 32",
		{ "llama.feed_forward_length", U32, 63, 0, NULL });
	PATCHED("gguf-llama-mixed", "rope_freqs.weight is 8 F32 in 1 dimensions, but must be a vector of 12",
		{ "llama.attention.key_length", U32, 24, 0, NULL }, { "llama.attention.value_length", U32, 24, 0, NULL },
		{ "llama.rope.dimension_count", U32, 24, 0, NULL });
}

/* ---- shards ---- */

static struct shard shard_for(const struct model *m, int tp, int pp, int ep, int etp, struct member at)
{
	struct layout l = { .tp = tp, .pp = pp, .ep = ep, .dp = 1, .etp = etp };
	struct shard_model sm;
	struct shard s;
	model_shard_model(m, &sm);
	shard_of(&sm, &l, &at, &s);
	return s;
}

static uint64_t all_bytes(const struct weights *w, const char *part)
{
	uint64_t bytes = 0;
	for (int64_t i = 0; i < weights_count(w); i++)
		if (strstr(weights_at(w, i)->name, part))
			bytes += weights_at(w, i)->bytes;
	return bytes;
}

TEST(shard_bytes_are_those_of_a_hand_calculation)
{
	struct weights *w;
	struct model m = { 0 };
	CHECK_OK(describe(GOLDEN "llama-untied", &w, &m));
	struct shard s = shard_for(&m, 1, 1, 1, 1, (struct member){ 0 });
	/* Floats of a layer: norms 48 + 48, q and o 48*48, k and v 16*48, gate, up, down 88*48: 18912. Three layers,
	 * embedding and head 131*48, last norm 48; 4 bytes each. */
	CU_ASSERT_EQUAL(model_shard_bytes(&m, w, &s), 4 * (3 * 18912 + 2 * 131 * 48 + 48));
	CU_ASSERT_EQUAL(model_shard_bytes(&m, w, &s), all_bytes(w, ""));
	/* tp 2: six heads in runs of 4 are 4 + 2; kv heads of heads 0..3 are both, of 4..5 the second; 88 columns in runs of
	 * 32 are 64 + 24; 131 ids are 66 + 65. */
	s = shard_for(&m, 2, 1, 1, 1, (struct member){ .tp = 0 });
	CU_ASSERT_EQUAL(model_shard_bytes(&m, w, &s),
			4 * (3 * (96 + 2 * 32 * 48 + 2 * 16 * 48 + 3 * 64 * 48) + 2 * 66 * 48 + 48));
	s = shard_for(&m, 2, 1, 1, 1, (struct member){ .tp = 1 });
	CU_ASSERT_EQUAL(model_shard_bytes(&m, w, &s),
			4 * (3 * (96 + 2 * 16 * 48 + 2 * 8 * 48 + 3 * 24 * 48) + 2 * 65 * 48 + 48));
	weights_close(w);
	/* Tied: both stages hold the embedding, one stage holds it once. */
	CHECK_OK(describe(GOLDEN "llama-tied", &w, &m));
	s = shard_for(&m, 1, 1, 1, 1, (struct member){ 0 });
	CU_ASSERT_EQUAL(model_shard_bytes(&m, w, &s), 4 * (2 * 18912 + 131 * 48 + 48));
	s = shard_for(&m, 1, 2, 1, 1, (struct member){ .pp = 0 });
	CU_ASSERT_EQUAL(model_shard_bytes(&m, w, &s), 4 * (18912 + 131 * 48));
	s = shard_for(&m, 1, 2, 1, 1, (struct member){ .pp = 1 });
	CU_ASSERT_EQUAL(model_shard_bytes(&m, w, &s), 4 * (18912 + 131 * 48 + 48));
	weights_close(w);
}

TEST(expert_shards_add_up)
{
	static const char *const dirs[] = { "mixtral-8x2", "mixtral-5x3", "gguf-mixtral", "gguf-mixtral-split" };
	for (int d = 0; d < 4; d++)
		for (int ep = 1; ep <= 5; ep++) {
			char path[512];
			struct weights *w;
			struct model m = { 0 };
			snprintf(path, sizeof path, GOLDEN "%s", dirs[d]);
			CHECK_OK(describe(path, &w, &m));
			uint64_t experts = all_bytes(w, ".experts.") + all_bytes(w, "_exps.");
			for (int e = 0; e < 5 && d == 3; e++) {
				static const char *const parts[] = { "gate", "up", "down" };
				for (int i = 0; i < 3; i++) {
					char part[24];
					snprintf(part, sizeof part, ".ffn_%s.%d.", parts[i], e);
					experts += all_bytes(w, part);
				}
			}
			uint64_t rest = all_bytes(w, "") - experts, sum = 0;
			for (int i = 0; i < ep; i++) {
				struct shard s = shard_for(&m, 1, 1, ep, 1, (struct member){ .ep = i });
				sum += model_shard_bytes(&m, w, &s) - rest;
			}
			CU_ASSERT_EQUAL(sum, experts);
			weights_close(w);
		}
}

TEST(quantised_columns_are_cut_on_blocks)
{
	struct weights *w;
	struct model m = { 0 };
	CHECK_OK(describe(GOLDEN "gguf-llama-mixed", &w, &m));
	uint64_t sum = 0;
	for (int tp = 0; tp < 3; tp++) {
		struct shard s = shard_for(&m, 3, 1, 1, 1, (struct member){ .tp = tp });
		for (const struct arch_tensor *row = m.arch->tensors; row->slot != SLOT_COUNT; row++) {
			struct range rows, cols;
			if (!model_row_wanted(&m, row, &s) || (row->slot != SLOT_O && row->slot != SLOT_DOWN))
				continue;
			for (int64_t l = 0; l < 2; l++) {
				CHECK_OK(model_slice(&m, w, row, &s, l, &rows, &cols));
				CU_ASSERT(rows.begin == 0 && rows.end == 64);
				CU_ASSERT(cols.begin % 32 == 0 && cols.end % 32 == 0 && range_size(cols) > 0);
				sum += (uint64_t)range_size(cols);
			}
		}
		s.heads.end--;   /* what shard_of never gives: half a block */
		struct range rows, cols;
		const struct arch_tensor *o = m.arch->tensors;
		while (o->slot != SLOT_O)
			o++;
		CHECK_ERR(model_slice(&m, w, o, &s, 0, &rows, &cols), BUG, "blk.0.attn_output.weight is cut at columns");
	}
	CU_ASSERT_EQUAL(sum, 2 * (128 + 96));
	weights_close(w);
}

TEST(describing_survives_every_failed_allocation)
{
	static const char *const dirs[] = { GOLDEN "llama-sharded", GOLDEN "gguf-mixtral-split" };
	for (int d = 0; d < 2; d++) {
		enum err e = ERR_MEMORY;
		for (int64_t nth = 1; e == ERR_MEMORY && nth < 5000; nth++) {
			struct weights *w;
			struct model m;
			mem_fail_at(nth);
			e = describe(dirs[d], &w, &m);
			mem_fail_at(0);
			if (!e)
				weights_close(w);
		}
		CU_ASSERT_EQUAL(e, ERR_OK);
	}
}

TEST_MAIN("model", CASE(golden_models_have_the_numbers_of_their_makers), CASE(rope_numbers_are_read_in_both_spellings),
	  CASE(config_numbers_out_of_place_are_refused), CASE(config_features_beyond_us_are_refused),
	  CASE(config_of_mistral_and_mixtral), CASE(end_tokens_come_from_both_files_once),
	  CASE(tensors_are_held_against_the_config), CASE(gguf_numbers_out_of_place_are_refused),
	  CASE(gguf_features_beyond_us_are_refused), CASE(gguf_optional_keys_are_read),
	  CASE(gguf_tensors_are_held_against_the_numbers),
	  CASE(shard_bytes_are_those_of_a_hand_calculation), CASE(expert_shards_add_up),
	  CASE(quantised_columns_are_cut_on_blocks), CASE(describing_survives_every_failed_allocation))
