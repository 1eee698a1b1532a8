/* The recipe: what a user asks for. YAML file, then --set and short options on top, every key a typed row of one table
 * that also makes --help and configs/reference.yaml's check. */
#ifndef SHARDRUN_LAUNCHER_RECIPE_H
#define SHARDRUN_LAUNCHER_RECIPE_H

#include "base/bytes.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { RECIPE_AUTO = 0, RECIPE_MAX_LIST = 512 };   /* counts and sizes: 0 stands for `auto` */

struct recipe_list { int n; int64_t items[RECIPE_MAX_LIST]; };
struct recipe_strings { int n; char *items[16]; };

struct recipe {
	struct { char *path; int dtype; } model;                                    /* dtype: index into its choices, 0 auto */
	struct {
		int64_t tp, pp, ep, dp, etp;
		struct recipe_list pp_layers;
		int tp_across_nodes;
		int wire;                      /* auto, exact */
	} parallel;
	struct {
		int backend;                   /* cpu, cuda, auto */
		int64_t threads;               /* per rank */
		int isa;                       /* auto, c, avx2, avx512, avx512vnni, avx512bf16, neon, neondot */
		int activations;               /* auto, f32, int8, bf16 */
		int64_t step_tokens;           /* most tokens in one step; a longer prompt is cut into chunks */
		int64_t context;               /* tokens per sequence; 0: the model's, at most 4096 */
		int kv_type;                   /* auto, f32, f16, bf16, int8 */
		int64_t kv_bytes;              /* per rank; 0: from context */
		int64_t sequences;             /* most sequences together in one replica */
		int load;                      /* auto, read */
		int log;                       /* error, warn, info, debug */
		int speculate;                 /* off, ngram */
		char *draft;
	} runtime;
	struct {
		int64_t max_tokens;
		double temperature;
		int64_t top_k;
		double top_p, min_p;
		int64_t seed;
		struct recipe_strings stop;
		int ignore_eos;
		double repetition_penalty, presence_penalty, frequency_penalty;
		char *logit_bias;              /* "TOKEN:BIAS TOKEN:BIAS" */
		int64_t n, logprobs, min_tokens;
		struct recipe_list stop_token_ids;
	} generation;
	struct {
		int with;                      /* auto, mpirun, srun */
		int64_t nodes, ranks_per_node;
		struct recipe_strings hosts;
		struct {
			char *partition, *account, *time, *qos, *constraint, *modules, *gpus_per_node, *extra;
			int64_t mem_bytes;
		} slurm;
	} launch;
	struct { char *host; int64_t port; char *api_key_file, *endpoint_file; } serve;
};

/* Every key at its default. A text that is not given is "", never NULL. */
enum err recipe_create(struct recipe **out);
void recipe_destroy(struct recipe *r);
/* YAML text; `name` is the file in sentences. Errors: ERR_RECIPE "name:line:column: key: found ..., allowed ...". On error
 * the recipe is as before. recipe_load takes relative paths (every key of type path) from the recipe's directory; --set does
 * not. */
enum err recipe_parse(struct recipe *r, const char *name, const char *text, size_t bytes);
enum err recipe_load(struct recipe *r, const char *path);
/* "a.b=value"; sentences name it "--set a.b". The value is text as it stands; a list is 1,2 or ["a", "b"]. */
enum err recipe_set(struct recipe *r, const char *assignment);
/* One key by name with a value in text, as --prompt style short forms use; `source` names it in sentences. */
enum err recipe_set_value(struct recipe *r, const char *source, const char *key, const char *value);
/* Every key, type, default, unit, allowed values and help, as lines for --help (width 100). */
void recipe_help(struct bytes *to);
/* configs/reference.yaml, made from the rows. */
void recipe_reference(struct bytes *to);
/* All keys as YAML that parses to the same recipe (also how rank 0 sends it). */
void recipe_write(const struct recipe *r, struct bytes *to);
int recipe_n_keys(void);
const char *recipe_key(int i);                                   /* "parallel.tp" */
const char *recipe_key_help(const char *key);                    /* its sentence; "" for an unknown key */
void recipe_key_allowed(const char *key, struct bytes *to);       /* "auto or 1 to 4096 ranks" */
/* A text in double quotes, as YAML and recipe_set's lists read it. */
void recipe_quote(const char *text, struct bytes *to);
/* Word of a choice key's current value: recipe_word(r, "runtime.isa") -> "avx2". */
const char *recipe_word(const struct recipe *r, const char *key);

#endif
