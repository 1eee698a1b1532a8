#include "tests/bad/bad_models.h"

#include "base/file.h"

#include <sys/resource.h>
#include <sys/wait.h>

#define MODELS SOURCE_DIR "/tests/golden/models/"

/* Megabytes that a refusal may take at most; sanitizers come on top of the program's own few. */
enum { MAX_RSS_MB = 400 };

static const char *program;
static struct test_dir dir;

/* ---- running ---- */

static void become_program(const char *model, int out)
{
	/* alone, wherever the test itself may run */
	static const char *const launchers[] = { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMIX_NAMESPACE",
						 "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS" };
	for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
		unsetenv(launchers[i]);
	int null = open("/dev/null", O_RDWR);
	dup2(null, 0);
	dup2(null, 1);
	dup2(out, 2);
	execl(program, program, "run", "--model", model, "--prompt-ids", "1,2", "--max-tokens", "1", (char *)NULL);
	_exit(127);
}

int run_program(const char *model, char *errors, size_t room)
{
	int ends[2], status;
	size_t n = 0;
	ssize_t got;
	struct rusage usage;
	if (pipe(ends))
		abort();
	pid_t child = fork();
	if (child == 0)
		become_program(model, ends[1]);
	close(ends[1]);
	while ((got = read(ends[0], errors + n, room - 1 - n)) > 0)
		n += (size_t)got;
	errors[n] = '\0';
	close(ends[0]);
	if (child < 0 || wait4(child, &status, 0, &usage) != child)
		abort();
	CU_ASSERT(usage.ru_maxrss < MAX_RSS_MB * 1024L);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void check_refused(const char *what, const char *model, const char *place, const char *want)
{
	char errors[16384];
	int status = run_program(model, errors, sizeof errors);
	char *newline = strchr(errors, '\n');
	int good = status == 4 && !strncmp(errors, "shardrun: ", 10) && newline && !newline[1] && strstr(errors, place) &&
		   strstr(errors, want);
	for (const char *c = errors; *c && good; c++)
		good = (unsigned char)*c >= ' ' || c == newline;
	if (!good)
		fprintf(stderr, "%s: want status 4 and \"%s\" of %s, got %d and:\n%s\n", what, want, place, status, errors);
	CU_ASSERT(good);
}

/* ---- making ---- */

void read_golden(const char *name, struct bytes *out)
{
	char path[512];
	snprintf(path, sizeof path, MODELS "%s", name);
	if (file_read_all(path, 1 << 24, out))
		abort();
}

void replace_text(struct bytes *text, const char *find, const char *put)
{
	size_t n = strlen(find);
	struct bytes made = { 0 };
	for (size_t at = 0; at + n <= text->size; at++) {
		if (memcmp(text->data + at, find, n))
			continue;
		bytes_put(&made, text->data, at);
		bytes_put(&made, put, strlen(put));
		bytes_put(&made, text->data + at + n, text->size - at - n);
		bytes_free(text);
		*text = made;
		return;
	}
	fprintf(stderr, "there is no \"%s\" to replace\n", find);
	abort();
}

/* The header of a safetensors file alone is edited, and its length put right. */
static void replace_in_header(struct bytes *file, const char *find, const char *put)
{
	struct bytes header = { 0 }, made = { 0 };
	uint64_t n = 0;
	for (int i = 7; i >= 0; i--)
		n = n << 8 | file->data[i];
	bytes_put(&header, file->data + 8, (size_t)n);
	replace_text(&header, find, put);
	put_le(&made, header.size, 8);
	bytes_put(&made, header.data, header.size);
	bytes_put(&made, file->data + 8 + n, file->size - 8 - (size_t)n);
	bytes_free(&header);
	bytes_free(file);
	*file = made;
}

static const char *const tied[] = { "config.json", "generation_config.json", "model.safetensors", NULL };
static const char *const sharded[] = { "config.json", "model.safetensors.index.json", "model-00001-of-00005.safetensors",
	"model-00002-of-00005.safetensors", "model-00003-of-00005.safetensors", "model-00004-of-00005.safetensors",
	"model-00005-of-00005.safetensors", NULL };

/* A byte-level tokenizer of three tokens. */
static const char tokenizer[] =
	"{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
	"\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}, \"post_processor\": null, "
	"\"decoder\": {\"type\": \"ByteLevel\"}, "
	"\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}}";

enum fault { NONE, EDIT, CUT, LENGTH, REMOVE, APPEND, EMPTY };

struct bad {
	const char *what, *file;
	enum fault fault;
	const char *find, *put;        /* EDIT: in text, or in the header of a safetensors file */
	long long number;              /* CUT: bytes to leave, or below 0 to drop; LENGTH: the header's */
	const char *want;
};

static void spoil(const struct bad *b, struct bytes *file)
{
	size_t n = strlen(b->file);
	if (b->fault == EDIT && n > 12 && !strcmp(b->file + n - 12, ".safetensors"))
		replace_in_header(file, b->find, b->put);
	else if (b->fault == EDIT)
		replace_text(file, b->find, b->put);
	else if (b->fault == CUT)
		file->size = (size_t)(b->number < 0 ? (long long)file->size + b->number : b->number);
	else if (b->fault == APPEND)
		bytes_put(file, b->put, strlen(b->put));
	else if (b->fault == EMPTY)
		file->size = 0;
	for (int i = 0; b->fault == LENGTH && i < 8; i++)
		file->data[i] = (unsigned char)((unsigned long long)b->number >> (8 * i));
}

/* The files of a golden model and a tokenizer, one of them spoilt, in `dir`. */
static void make(const char *golden, const char *const *files, const struct bad *b)
{
	test_dir_empty(&dir);
	for (int i = 0; i == 0 || files[i - 1]; i++) {
		struct bytes file = { 0 };
		const char *name = files[i] ? files[i] : "tokenizer.json";
		char from[256];
		snprintf(from, sizeof from, "%s/%s", golden, name);
		if (files[i])
			read_golden(from, &file);
		else
			bytes_put(&file, tokenizer, sizeof tokenizer - 1);
		if (!strcmp(name, b->file))
			spoil(b, &file);
		if (b->fault != REMOVE || strcmp(name, b->file))
			test_write(&dir, name, file.data, file.size);
		bytes_free(&file);
	}
}

static void check_all(const char *golden, const char *const *files, const struct bad *cases, size_t n)
{
	char errors[16384];
	make(golden, files, &(struct bad){ .file = "" });
	int status = run_program(dir.path, errors, sizeof errors);
	if (status)
		fprintf(stderr, "the good model: %s\n", errors);
	CU_ASSERT_EQUAL_FATAL(status, 0);
	for (size_t i = 0; i < n; i++) {
		make(golden, files, &cases[i]);
		check_refused(cases[i].what, dir.path, dir.path, cases[i].want);
	}
}

/* ---- faults ---- */

#define NORM "\"model.layers.0.input_layernorm.weight\":{\"dtype\":\"F32\",\"shape\":[48],\"data_offsets\":[25152,25344]}"
#define NORM_WITH(dtype, shape, offsets) \
	"\"model.layers.0.input_layernorm.weight\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define HEADER(what_, put_, want_) \
	{ .what = what_, .file = "model.safetensors", .fault = EDIT, .find = NORM, .put = put_, .want = want_ }

TEST(safetensors_faults)
{
	static const struct bad cases[] = {
		{ "truncated data", "model.safetensors", CUT, .number = -4, .want = "pass the end of the file" },
		{ "truncated header", "model.safetensors", CUT, .number = 500, .want = "is longer than the file" },
		{ "five bytes", "model.safetensors", CUT, .number = 5, .want = "too few for a safetensors file" },
		{ "empty", "model.safetensors", EMPTY, .want = "too few for a safetensors file" },
		{ "header longer than file", "model.safetensors", LENGTH, .number = 1 << 24, .want = "is longer than the file" },
		{ "header of 2^64 - 1", "model.safetensors", LENGTH, .number = -1, .want = "claims a header of 18446744073709551615" },
		{ "header of 2^63", "model.safetensors", LENGTH, .number = (-0x7fffffffffffffffLL - 1), .want = "claims a header" },
		{ "header of 0", "model.safetensors", LENGTH, .number = 0, .want = "model.safetensors" },
		{ "header cut short", "model.safetensors", LENGTH, .number = 100, .want = "model.safetensors" },
		HEADER("overlap", NORM_WITH("\"F32\"", "[48]", "[25148,25340]"), "overlap"),
		HEADER("past the end", NORM_WITH("\"F32\"", "[48]", "[99925152,99925344]"), "pass the end of the file"),
		HEADER("near 2^63", NORM_WITH("\"F32\"", "[48]", "[9223372036854775600,9223372036854775792]"), "pass the end"),
		HEADER("above 2^64", NORM_WITH("\"F32\"", "[48]", "[36893488147419103232,36893488147419103424]"), "model.safetensors"),
		HEADER("end before begin", NORM_WITH("\"F32\"", "[48]", "[25344,25152]"), "before it begins"),
		HEADER("negative offset", NORM_WITH("\"F32\"", "[48]", "[-192,0]"), "data_offsets"),
		HEADER("wrong byte count", NORM_WITH("\"F32\"", "[48]", "[25152,25340]"), "type and dimensions need 192"),
		HEADER("overflow", NORM_WITH("\"F32\"", "[4294967296,4294967296,4294967296]", "[25152,25344]"), "overflow"),
		HEADER("overflow in bytes", NORM_WITH("\"F32\"", "[4611686018427387904]", "[25152,25344]"), "input_layernorm"),
		HEADER("zero dimension", NORM_WITH("\"F32\"", "[0,48]", "[25152,25152]"), "must be at least 1"),
		HEADER("negative dimension", NORM_WITH("\"F32\"", "[-48]", "[25152,25344]"), "shape"),
		HEADER("too many dimensions", NORM_WITH("\"F32\"", "[1,1,1,1,1,1,1,48]", "[25152,25344]"), "8 dimensions"),
		HEADER("fraction", NORM_WITH("\"F32\"", "[48.5]", "[25152,25344]"), "shape"),
		HEADER("no dimension", NORM_WITH("\"F32\"", "48", "[25152,25344]"), "shape"),
		HEADER("unknown type", NORM_WITH("\"F77\"", "[48]", "[25152,25344]"), "F77"),
		HEADER("type not a string", NORM_WITH("32", "[48]", "[25152,25344]"), "dtype"),
		HEADER("twice", NORM "," NORM, "duplicate object key"),
		HEADER("wrong shape", NORM_WITH("\"F32\"", "[6,8]", "[25152,25344]"), "is 6 x 8, but by"),
		HEADER("not an object", "\"model.layers.0.input_layernorm.weight\":7", "not an object"),
		HEADER("not JSON", NORM "]", "not valid JSON"),
		HEADER("missing tensor", "\"other\":{\"dtype\":\"F32\",\"shape\":[48],\"data_offsets\":[25152,25344]}", "is missing"),
		{ "missing file", "model.safetensors", REMOVE, .want = "model.safetensors" },
	};
	check_all("llama-tied", tied, cases, sizeof cases / sizeof cases[0]);
}

#define CONFIG(what_, find_, put_, want_) \
	{ .what = what_, .file = "config.json", .fault = EDIT, .find = find_, .put = put_, .want = want_ }

TEST(config_faults)
{
	static const struct bad cases[] = {
		CONFIG("null number", "\"hidden_size\": 48", "\"hidden_size\": null", "hidden_size"),
		CONFIG("string number", "\"hidden_size\": 48", "\"hidden_size\": \"48\"", "hidden_size"),
		CONFIG("string layers", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": \"2\"", "num_hidden_layers"),
		CONFIG("fraction", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2.5", "num_hidden_layers"),
		CONFIG("negative", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": -2", "num_hidden_layers"),
		CONFIG("zero", "\"num_attention_heads\": 6", "\"num_attention_heads\": 0", "num_attention_heads"),
		CONFIG("huge", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 9223372036854775807", "num_hidden_layers"),
		CONFIG("beyond 64 bits", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 99999999999999999999", "config.json"),
		CONFIG("one layer too many", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "model.layers.2"),
		CONFIG("a million layers", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000000", "num_hidden_layers"),
		CONFIG("kv heads", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4", "multiple"),
		CONFIG("wrong heads", "\"num_attention_heads\": 6", "\"num_attention_heads\": 4", "q_proj"),
		CONFIG("odd heads", "\"head_dim\": 8", "\"head_dim\": 7", "head size"),
		CONFIG("wide heads", "\"head_dim\": 8", "\"head_dim\": 514", "1 to 512"),
		CONFIG("wide heads by division", "\"head_dim\": 8,\n  \"hidden_act\": \"silu\",\n  \"hidden_size\": 48",
		       "\"hidden_size\": 6000", "head size is 1000"),
		CONFIG("wrong width", "\"hidden_size\": 48", "\"hidden_size\": 64", "131 x 48"),
		CONFIG("wrong vocabulary", "\"vocab_size\": 131", "\"vocab_size\": 132", "132 x 48"),
		CONFIG("not tied, and no head", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", "lm_head.weight"),
		CONFIG("tied by a string", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": \"yes\"", "tie_word_embeddings"),
		CONFIG("null epsilon", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": null", "rms_norm_eps"),
		CONFIG("string theta", "\"rope_theta\": 10000.0", "\"rope_theta\": \"10000\"", "rope_theta"),
		CONFIG("rope type", "\"rope_type\": \"default\"", "\"rope_type\": \"spiral\"", "spiral"),
		CONFIG("rope is a list", "\"rope_parameters\": {", "\"rope_parameters\": [], \"x\": {", "an object that holds"),
		CONFIG("unknown architecture", "\"model_type\": \"llama\"", "\"model_type\": \"lama\"", "model_type \"lama\""),
		CONFIG("architecture is null", "\"model_type\": \"llama\"", "\"model_type\": null", "model_type"),
		CONFIG("activation", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"", "relu"),
		CONFIG("twice", "\"hidden_size\": 48", "\"hidden_size\": 48, \"hidden_size\": 48", "hidden_size"),
		CONFIG("end token", "\"eos_token_id\": 2", "\"eos_token_id\": 500", "eos_token_id"),
		{ "truncated", "config.json", CUT, .number = 300, .want = "config.json" },
		{ "empty", "config.json", EMPTY, .want = "config.json" },
		{ "something behind it", "config.json", APPEND, .put = "{}", .want = "config.json" },
		{ "missing", "config.json", REMOVE, .want = "no config.json" },
		{ "generation config", "generation_config.json", CUT, .number = 20, .want = "generation_config.json" },
	};
	check_all("llama-tied", tied, cases, sizeof cases / sizeof cases[0]);
}

#define INDEX "model.safetensors.index.json"
#define INDEXED(what_, find_, put_, want_) \
	{ .what = what_, .file = INDEX, .fault = EDIT, .find = find_, .put = put_, .want = want_ }

TEST(index_faults)
{
	static const struct bad cases[] = {
		{ "missing shard", "model-00003-of-00005.safetensors", REMOVE, .want = "00003-of-00005.safetensors, which is missing" },
		{ "truncated shard", "model-00003-of-00005.safetensors", CUT, .number = -1, .want = "model-00003-of-00005.safetensors" },
		INDEXED("absent file", "model-00005-of-00005", "model-00006-of-00005", "00006-of-00005.safetensors, which is missing"),
		INDEXED("another shard", "\"lm_head.weight\": \"model-00005", "\"lm_head.weight\": \"model-00001", "lm_head.weight"),
		INDEXED("unknown tensor", "\"lm_head.weight\"", "\"lm_tail.weight\"", "lm_tail.weight"),
		INDEXED("elsewhere", "\"model-00005-of-00005.safetensors\"", "\"../model-00005-of-00005.safetensors\"", "own directory"),
		INDEXED("absolute", "\"model-00005-of-00005.safetensors\"", "\"/etc/passwd\"", "own directory"),
		INDEXED("not a string", "\"model-00005-of-00005.safetensors\"", "5", "not a string"),
		INDEXED("no map", "\"weight_map\"", "\"weight_mop\"", "weight_map"),
		{ "truncated", INDEX, CUT, .number = 1000, .want = INDEX },
		{ "no index", INDEX, REMOVE, .want = INDEX },
	};
	check_all("llama-sharded", sharded, cases, sizeof cases / sizeof cases[0]);
}

#define TOKENIZER(what_, find_, put_, want_) \
	{ .what = what_, .file = "tokenizer.json", .fault = EDIT, .find = find_, .put = put_, .want = want_ }

TEST(tokenizer_faults)
{
	static const struct bad cases[] = {
		{ "missing", "tokenizer.json", REMOVE, .want = "no tokenizer.json" },
		{ "truncated", "tokenizer.json", CUT, .number = 100, .want = "tokenizer.json" },
		{ "empty", "tokenizer.json", EMPTY, .want = "tokenizer.json" },
		TOKENIZER("larger than the model's", "\"ab\": 2", "\"ab\": 131", "132 tokens, the model's vocabulary only 131"),
		TOKENIZER("huge id", "\"ab\": 2", "\"ab\": 4000000000", "token id 4000000000"),
		TOKENIZER("negative id", "\"ab\": 2", "\"ab\": -1", "token id -1"),
		TOKENIZER("id twice", "\"ab\": 2", "\"ab\": 1", "\"ab\""),
		TOKENIZER("string id", "\"ab\": 2", "\"ab\": \"2\"", "\"ab\""),
		TOKENIZER("merge of nothing", "\"a b\"", "\"a c\"", "merge 0"),
		TOKENIZER("not a merge", "\"a b\"", "\"ab\"", "merge 0"),
		TOKENIZER("another model", "\"type\": \"BPE\"", "\"type\": \"Unigram\"", "Unigram"),
		TOKENIZER("no model", "\"model\": {", "\"mode\": {", "has no \"model\""),
		TOKENIZER("unknown step", "\"pre_tokenizer\": {\"type\": \"ByteLevel\"", "\"pre_tokenizer\": {\"type\": \"BiteLevel\"",
			  "BiteLevel"),
		TOKENIZER("bad expression", "\"pre_tokenizer\": {\"type\": \"ByteLevel\"",
			  "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": \"Isolated\", "
			  "\"invert\": false",
			  "tokenizer.json"),
	};
	check_all("llama-tied", tied, cases, sizeof cases / sizeof cases[0]);
}

TEST(paths_without_a_model)
{
	test_dir_empty(&dir);
	check_refused("empty directory", dir.path, dir.path, "holds no model");
	check_refused("no such path", "/nonexistent/model", "/nonexistent/model", "no such model");
	const char *path = test_write(&dir, "model.bin", "PK\x03\x04", 4);
	check_refused("another kind of file", path, path, "neither a .safetensors nor a .gguf");
}

static void add(const char *name, void (*run)(void)) { CU_add_test(CU_get_suite("bad models"), name, run); }

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: bad_models SHARDRUN\n");
		return 2;
	}
	program = argv[1];
	test_dir_make(&dir);
	CU_initialize_registry();
	CU_add_suite("bad models", NULL, NULL);
	add("safetensors", safetensors_faults);
	add("config.json", config_faults);
	add("index", index_faults);
	add("tokenizer.json", tokenizer_faults);
	add("paths", paths_without_a_model);
	gguf_tests(add);
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	int failed = CU_get_number_of_failures() != 0;
	CU_cleanup_registry();
	test_dir_remove(&dir);
	return failed;
}
