#include "launcher/recipe_rows.h"

#include <string.h>

#define AT(field) offsetof(struct recipe, field)
#define NUMBER(key, field, initial, min, max, has_auto, unit, help) \
	{ key, ROW_COUNT, AT(field), initial, min, max, has_auto, unit, NULL, help, 0 }
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define CHOICE(key, field, initial, words, help) { key, ROW_CHOICE, AT(field), initial, 0, 0, 0, NULL, words, help, 0 }
#define FLAG(key, field, initial, help) { key, ROW_BOOL, AT(field), initial, 0, 0, 0, NULL, NULL, help, 0 }
#define SIZE(key, field, help) { key, ROW_SIZE, AT(field), "auto", 1, 0x1p50, 1, NULL, NULL, help, 0 }
#define REAL(key, field, initial, min, max, help) { key, ROW_REAL, AT(field), initial, min, max, 0, NULL, NULL, help, 0 }
#define STRING(key, field, initial, help) { key, ROW_STRING, AT(field), initial, 0, 1000, 0, NULL, NULL, help, 0 }
#define FILE_PATH(key, field, help) { key, ROW_PATH, AT(field), "", 0, 1000, 0, NULL, NULL, help, 0 }

const struct row rows[] = {
	FILE_PATH("model.path", model.path,
	       "The model: a directory with config.json and *.safetensors, or a .gguf file."),
	CHOICE("model.dtype", model.dtype, "auto", WORDS("auto", "f32", "bf16"),
	       "Type of the weights in memory. auto keeps what the file holds."),

	NUMBER("parallel.tp", parallel.tp, "auto", 1, 4096, 1, "ranks",
	       "Tensor parallelism: ranks that share every layer. auto stays inside a node."),
	NUMBER("parallel.pp", parallel.pp, "auto", 1, 512, 1, "stages",
	       "Pipeline parallelism: stages of consecutive layers, which may span nodes."),
	NUMBER("parallel.ep", parallel.ep, "auto", 1, 4096, 1, "ranks",
	       "Expert parallelism: parts the experts of a layer are spread over, out of the dp x tp ranks of a stage."),
	NUMBER("parallel.dp", parallel.dp, "auto", 1, 4096, 1, "replicas",
	       "Data parallelism: copies of the model that take different sequences."),
	NUMBER("parallel.etp", parallel.etp, "auto", 1, 4096, 1, "ranks",
	       "Ranks that share the columns of one expert. auto: the largest divisor of dp x tp / ep that fits inside tp."),
	{ "parallel.pp_layers", ROW_COUNTS, AT(parallel.pp_layers), "[]", 1, 4096, 0, "layers", NULL,
	  "Layers of each stage, first stage first, as [2, 2, 1, 1]. Empty: as even as can be.", 0 },
	FLAG("parallel.tp_across_nodes", parallel.tp_across_nodes, "false",
	     "Allows a tp group to cross nodes, which makes every layer wait for the network."),
	CHOICE("parallel.wire", parallel.wire, "auto", WORDS("auto", "exact"),
	       "How sums travel between ranks. exact: the same bits on any layout."),

	CHOICE("runtime.backend", runtime.backend, "auto", WORDS("cpu", "cuda", "auto"), "What computes."),
	NUMBER("runtime.threads", runtime.threads, "auto", 1, 1024, 1, "threads",
	       "Compute threads per rank. auto: one per core that the rank may use."),
	CHOICE("runtime.isa", runtime.isa, "auto", WORDS("auto", "c", "avx2", "avx512", "avx512vnni", "avx512bf16", "neon", "neondot"),
	       "Instruction set of the kernels; results are the same bits in all. auto: the best that every rank has."),
	CHOICE("runtime.activations", runtime.activations, "auto", WORDS("auto", "f32", "int8", "bf16"),
	       "Arithmetic of the matrix products. f32 is the most exact. auto: the default of each weight type, int8 with quantised "
	       "weights and bf16 with BF16; naming one asks that the model has such weights."),
	NUMBER("runtime.step_tokens", runtime.step_tokens, "512", 1, 65536, 0, "tokens",
	       "Most tokens in one step of one replica; longer prompts are cut into chunks. Costs memory, never changes a result."),
	NUMBER("runtime.context", runtime.context, "auto", 1, 16777216, 1, "tokens",
	       "Most tokens of one sequence, prompt and answer together. auto: the model's own, at most 4096."),
	CHOICE("runtime.kv_type", runtime.kv_type, "auto", WORDS("auto", "f32", "f16", "bf16", "int8"),
	       "Type of the KV cache. int8: whole numbers with a scale for every 32, about 9/32 of the bytes of f32. auto: f32."),
	SIZE("runtime.kv_bytes", runtime.kv_bytes,
	     "Memory for the KV cache of one rank. auto: what `context` and `sequences` need."),
	NUMBER("runtime.sequences", runtime.sequences, "16", 1, 4096, 0, "sequences",
	       "Most sequences that one replica works on together."),
	CHOICE("runtime.load", runtime.load, "auto", WORDS("auto", "read"),
	       "How weights are read. read: large reads of just what each rank needs."),
	CHOICE("runtime.log", runtime.log, "info", WORDS("error", "warn", "info", "debug"), "How much is said on stderr."),
	CHOICE("runtime.speculate", runtime.speculate, "off", WORDS("off", "ngram"),
	       "Guess several tokens at once and check them together; the same tokens come out. ngram: from what the text has said "
	       "before, while few sequences run."),
	FILE_PATH("runtime.draft", runtime.draft, "A small model that guesses ahead for the large one. Empty: none."),

	NUMBER("generation.max_tokens", generation.max_tokens, "128", 1, 16777216, 0, "tokens",
	       "Most tokens to generate for one prompt."),
	REAL("generation.temperature", generation.temperature, "0", 0, 100,
	     "0 always takes the most likely token; 1 draws by the model's own probabilities."),
	NUMBER("generation.top_k", generation.top_k, "0", 0, 1048576, 0, "tokens",
	       "Draw from this many most likely tokens only. 0: from all."),
	REAL("generation.top_p", generation.top_p, "1", 0, 1,
	     "Draw from the smallest set of most likely tokens whose probability reaches this. 1: from all."),
	REAL("generation.min_p", generation.min_p, "0", 0, 1,
	     "Drop tokens less likely than this share of the most likely one. 0: none."),
	NUMBER("generation.seed", generation.seed, "0", 0, 0x1p53, 0, NULL,
	       "Start of the random numbers: the same seed gives the same text on any layout."),
	{ "generation.stop", ROW_STRINGS, AT(generation.stop), "[]", 1, 1000, 0, NULL, NULL,
	  "Texts that end an answer, at most 16, as [\"\\n\\n\", \"END\"].", 1 },
	FLAG("generation.ignore_eos", generation.ignore_eos, "false",
	     "Goes on after the model's end-of-text token, up to max_tokens; for measurements."),
	{ "generation.stop_token_ids", ROW_COUNTS, AT(generation.stop_token_ids), "[]", 0, 16777216, 0, NULL, NULL,
	  "Tokens that end an answer, beside the model's own.", 0 },
	NUMBER("generation.min_tokens", generation.min_tokens, "0", 0, 16777216, 0, "tokens",
	       "No token that ends an answer is chosen before it has this many. Stop texts end it all the same."),
	NUMBER("generation.n", generation.n, "1", 1, 128, 0, "answers",
	       "Answers to each prompt; they differ when temperature is above 0. The prompt is computed once."),
	REAL("generation.repetition_penalty", generation.repetition_penalty, "1", 0.01, 100,
	     "Divides the logits of tokens of the prompt or the answer that are above 0, and multiplies those below. 1: off."),
	REAL("generation.frequency_penalty", generation.frequency_penalty, "0", -2, 2,
	     "Taken off a token's logit as many times as the answer has it."),
	REAL("generation.presence_penalty", generation.presence_penalty, "0", -2, 2,
	     "Taken off a token's logit once the answer has it."),
	{ "generation.logit_bias", ROW_STRING, AT(generation.logit_bias), "", 0, 32000, 0, NULL, NULL,
	  "Added to the logits of tokens, each from -100 to 100, as \"1563:-100 42:2.5\". Empty: none.", 0 },
	NUMBER("generation.logprobs", generation.logprobs, "0", 0, 20, 0, "tokens",
	       "With --json: the log-probability of each token of the answer, and of this many most likely ones. 0: none."),

	CHOICE("launch.with", launch.with, "auto", WORDS("auto", "mpirun", "srun"),
	       "What starts the ranks when shardrun starts itself."),
	NUMBER("launch.nodes", launch.nodes, "auto", 1, 65536, 1, "nodes", "Nodes to run on. auto: all there are."),
	NUMBER("launch.ranks_per_node", launch.ranks_per_node, "auto", 1, 4096, 1, "ranks",
	       "Ranks on each node. auto: one per accelerator, or one per NUMA node."),
	{ "launch.hosts", ROW_STRINGS, AT(launch.hosts), "[]", 1, 255, 0, NULL, NULL,
	  "Hosts to run on when no batch system gives them, at most 16 entries, as [node1, \"node[2-64]\"].", 0 },
	STRING("launch.slurm.partition", launch.slurm.partition, "", "Slurm partition. Empty: the site's default."),
	STRING("launch.slurm.account", launch.slurm.account, "", "Slurm account to charge. Empty: your default."),
	STRING("launch.slurm.time", launch.slurm.time, "01:00:00",
	       "Time limit as Slurm writes it: [days-]hours:minutes:seconds."),
	STRING("launch.slurm.qos", launch.slurm.qos, "", "Slurm quality of service. Empty: your default."),
	STRING("launch.slurm.constraint", launch.slurm.constraint, "", "Node features to ask for. Empty: none."),
	STRING("launch.slurm.modules", launch.slurm.modules, "",
	       "Environment modules to load in the batch script, with blanks between. Empty: none."),
	STRING("launch.slurm.gpus_per_node", launch.slurm.gpus_per_node, "",
	       "Accelerators per node as Slurm writes them: \"8\" or \"h100:8\". Empty: none."),
	STRING("launch.slurm.extra", launch.slurm.extra, "",
	       "More sbatch options, with blanks between, as \"--exclusive\"."),
	SIZE("launch.slurm.mem_bytes", launch.slurm.mem_bytes,
	     "Memory per node to ask Slurm for. auto: the site's default."),

	STRING("serve.host", serve.host, "127.0.0.1",
	       "Address to listen on. Anything but 127.0.0.1 is reachable by others."),
	NUMBER("serve.port", serve.port, "8080", 1, 65535, 1, NULL, "TCP port. auto: any free one, which is printed."),
	FILE_PATH("serve.api_key_file", serve.api_key_file,
	       "File whose first line is the key that clients must send; only you should be able to read it."),
	FILE_PATH("serve.endpoint_file", serve.endpoint_file,
	       "File to write the server's address to once it answers. Empty: none."),
};
const int n_rows = (int)(sizeof rows / sizeof rows[0]);

const struct section sections[] = {
	{ "model", "What to run." },
	{ "parallel", "How the model is laid on the ranks: ranks = tp x pp x dp; ep x etp divides dp x tp." },
	{ "runtime", "How each rank computes." },
	{ "generation", "How text is made, unless a request says otherwise." },
	{ "launch", "How shardrun starts itself on the nodes when neither mpirun nor srun started it." },
	{ "launch.slurm", "For the batch script that `shardrun script` writes." },
	{ "serve", "The HTTP server of `shardrun serve`." },
};
const int n_sections = (int)(sizeof sections / sizeof sections[0]);

const struct row *row_find(const char *key)
{
	for (int i = 0; i < n_rows; i++)
		if (!strcmp(rows[i].key, key))
			return &rows[i];
	return NULL;
}

int row_is_list(const struct row *row) { return row->type == ROW_COUNTS || row->type == ROW_STRINGS; }

int recipe_n_keys(void) { return n_rows; }
const char *recipe_key_help(const char *key) { return row_find(key) ? row_find(key)->help : ""; }
void recipe_key_allowed(const char *key, struct bytes *to)
{
	if (row_find(key))
		value_allowed(row_find(key), to);
}
const char *recipe_key(int i) { return i >= 0 && i < n_rows ? rows[i].key : NULL; }
