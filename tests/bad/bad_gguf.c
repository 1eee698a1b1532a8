/* Faults of GGUF files: a golden file is taken apart into keys, tensor list and data, one number of it is changed, and it is
 * put together again. */
#include "tests/bad/bad_models.h"

/* Numbers lie where the format says (ggml/docs/gguf.md): key = text, type u32, value; tensor = text, n_dims u32, dims u64
 * each, type u32, offset u64; text = length u64, bytes; array = item type u32, count u64, items. */
struct parts {
	uint32_t version;
	uint64_t n_tensors, n_keys;
	struct bytes keys, tensors, data;
};

static uint64_t peek(const struct bytes *b, size_t at, int n)
{
	uint64_t v = 0;
	if (at + (size_t)n > b->size)
		abort();
	for (int i = n - 1; i >= 0; i--)
		v = v << 8 | b->data[at + (size_t)i];
	return v;
}

static void poke(struct bytes *b, size_t at, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		b->data[at + (size_t)i] = (unsigned char)(v >> (8 * i));
}

static size_t text_end(const struct bytes *b, size_t at) { return at + 8 + (size_t)peek(b, at, 8); }

static size_t value_end(const struct bytes *b, size_t at, uint64_t type)
{
	static const size_t bytes[] = { [T_U8] = 1, [T_I8] = 1, [T_U16] = 2, [T_I16] = 2, [T_U32] = 4, [T_I32] = 4, [T_F32] = 4,
					[T_BOOL] = 1, [T_U64] = 8, [T_I64] = 8, [T_F64] = 8 };
	if (type == T_STRING)
		return text_end(b, at);
	if (type != T_ARRAY)
		return at + bytes[type];
	uint64_t item = peek(b, at, 4), n = peek(b, at + 4, 8);
	for (at += 12; n; n--)
		at = value_end(b, at, item);
	return at;
}

static size_t key_end(const struct bytes *b, size_t at)
{
	size_t type = text_end(b, at);
	return value_end(b, type + 4, peek(b, type, 4));
}

static size_t tensor_end(const struct bytes *b, size_t at)
{
	size_t dims = text_end(b, at);
	return dims + 4 + 8 * (size_t)peek(b, dims, 4) + 4 + 8;
}

/* Where the entry of this name begins. */
static size_t find(const struct bytes *b, const char *name, size_t (*end)(const struct bytes *, size_t))
{
	for (size_t at = 0; at < b->size; at = end(b, at))
		if (peek(b, at, 8) == strlen(name) && !memcmp(b->data + at + 8, name, strlen(name)))
			return at;
	fprintf(stderr, "there is no \"%s\" in the file\n", name);
	abort();
}

static void take_apart(const char *golden, struct parts *p)
{
	struct bytes file = { 0 };
	size_t at = 24, tensors;
	read_golden(golden, &file);
	p->version = (uint32_t)peek(&file, 4, 4);
	p->n_tensors = peek(&file, 8, 8);
	p->n_keys = peek(&file, 16, 8);
	for (uint64_t i = 0; i < p->n_keys; i++)
		at = key_end(&file, at);
	tensors = at;
	for (uint64_t i = 0; i < p->n_tensors; i++)
		at = tensor_end(&file, at);
	bytes_put(&p->keys, file.data + 24, tensors - 24);
	bytes_put(&p->tensors, file.data + tensors, at - tensors);
	at = (at + 31) / 32 * 32;
	bytes_put(&p->data, file.data + at, file.size - at);
	bytes_free(&file);
}

/* A byte-level vocabulary of n tokens and one merge. */
static void add_tokenizer(struct parts *p, int n)
{
	put_text(&p->keys, "tokenizer.ggml.model");
	put_le(&p->keys, T_STRING, 4);
	put_text(&p->keys, "gpt2");
	put_text(&p->keys, "tokenizer.ggml.pre");
	put_le(&p->keys, T_STRING, 4);
	put_text(&p->keys, "gpt-2");
	put_array(&p->keys, "tokenizer.ggml.tokens", T_STRING, (uint64_t)n);
	for (int i = 0; i < n; i++) {
		char token[16];
		snprintf(token, sizeof token, "t%d", i);
		put_text(&p->keys, i < 3 ? (const char *const[]){ "a", "b", "ab" }[i] : token);
	}
	put_array(&p->keys, "tokenizer.ggml.merges", T_STRING, 1);
	put_text(&p->keys, "a b");
	p->n_keys += 4;
}

static void put_together(const struct parts *p, struct bytes *file)
{
	put_gguf(file, p->version, p->n_tensors, p->n_keys);
	bytes_put(file, p->keys.data, p->keys.size);
	bytes_put(file, p->tensors.data, p->tensors.size);
	put_padding(file, 32);
	bytes_put(file, p->data.data, p->data.size);
}

enum place {
	NOWHERE, VERSION, N_TENSORS, N_KEYS, KEY_LENGTH, KEY_TYPE, KEY_VALUE, KEY_TEXT, STRING_LENGTH, ARRAY_TYPE, ARRAY_COUNT,
	ITEM_LENGTH, TENSOR_LENGTH, N_DIMS, DIM_0, DIM_1, TENSOR_TYPE, TENSOR_OFFSET, TENSOR_NAME, ADD_U32, ADD_U64, KEY_NAME,
	N_TOKENS, BYTES_LEFT, MAGIC
};

struct bad {
	const char *what;
	enum place place;
	const char *name, *text;       /* of the key or tensor; a text of the same length instead */
	uint64_t number;
	const char *want;
	const char *golden;            /* NULL: gguf-llama-f32 */
};

static void spoil_key(const struct bad *b, struct parts *p)
{
	size_t at = find(&p->keys, b->name, key_end), type = text_end(&p->keys, at), value = type + 4;
	switch (b->place) {
	case KEY_LENGTH: poke(&p->keys, at, b->number, 8); break;
	case KEY_NAME: memcpy(p->keys.data + at + 8, b->text, strlen(b->text)); break;
	case KEY_TYPE: poke(&p->keys, type, b->number, 4); break;
	case KEY_VALUE: poke(&p->keys, value, b->number, 4); break;
	case STRING_LENGTH: poke(&p->keys, value, b->number, 8); break;
	case KEY_TEXT: memcpy(p->keys.data + value + 8, b->text, strlen(b->text)); break;
	case ARRAY_TYPE: poke(&p->keys, value, b->number, 4); break;
	case ARRAY_COUNT: poke(&p->keys, value + 4, b->number, 8); break;
	case ITEM_LENGTH: poke(&p->keys, value + 12, b->number, 8); break;
	default: abort();
	}
}

static void spoil_tensor(const struct bad *b, struct parts *p)
{
	size_t at = find(&p->tensors, b->name, tensor_end), dims = text_end(&p->tensors, at);
	size_t type = dims + 4 + 8 * (size_t)peek(&p->tensors, dims, 4);
	switch (b->place) {
	case TENSOR_LENGTH: poke(&p->tensors, at, b->number, 8); break;
	case TENSOR_NAME: memcpy(p->tensors.data + at + 8, b->text, strlen(b->text)); break;
	case N_DIMS: poke(&p->tensors, dims, b->number, 4); break;
	case DIM_0: poke(&p->tensors, dims + 4, b->number, 8); break;
	case DIM_1: poke(&p->tensors, dims + 12, b->number, 8); break;
	case TENSOR_TYPE: poke(&p->tensors, type, b->number, 4); break;
	case TENSOR_OFFSET: poke(&p->tensors, type + 4, b->number, 8); break;
	default: abort();
	}
}

static void spoil(const struct bad *b, struct parts *p)
{
	switch (b->place) {
	case NOWHERE: case N_TOKENS: case BYTES_LEFT: case MAGIC: break;
	case VERSION: p->version = (uint32_t)b->number; break;
	case N_TENSORS: p->n_tensors = b->number; break;
	case N_KEYS: p->n_keys = b->number; break;
	case ADD_U32: case ADD_U64:
		put_key(&p->keys, b->name, b->place == ADD_U32 ? T_U32 : T_U64, b->number, b->place == ADD_U32 ? 4 : 8);
		p->n_keys++;
		break;
	case TENSOR_LENGTH: case TENSOR_NAME: case N_DIMS: case DIM_0: case DIM_1: case TENSOR_TYPE: case TENSOR_OFFSET:
		spoil_tensor(b, p);
		break;
	default: spoil_key(b, p);
	}
}

static const char *make(const struct test_dir *d, const struct bad *b)
{
	struct parts p = { 0 };
	struct bytes file = { 0 };
	take_apart(b->golden ? b->golden : "gguf-llama-f32/model.gguf", &p);
	add_tokenizer(&p, b->place == N_TOKENS ? (int)b->number : 131);
	spoil(b, &p);
	put_together(&p, &file);
	if (b->place == BYTES_LEFT)
		file.size = (size_t)b->number;
	if (b->place == MAGIC)
		memcpy(file.data, b->text, 4);
	const char *path = test_write(d, "model.gguf", file.data, file.size);
	bytes_free(&p.keys);
	bytes_free(&p.tensors);
	bytes_free(&p.data);
	bytes_free(&file);
	return path;
}

static void check_all(const struct bad *cases, size_t n)
{
	struct test_dir d;
	char errors[16384];
	test_dir_make(&d);
	int status = run_program(make(&d, &(struct bad){ 0 }), errors, sizeof errors);
	if (status)
		fprintf(stderr, "the good file: %s\n", errors);
	CU_ASSERT_EQUAL_FATAL(status, 0);
	for (size_t i = 0; i < n; i++) {
		const char *path = make(&d, &cases[i]);
		check_refused(cases[i].what, path, d.path, cases[i].want);
	}
	test_dir_remove(&d);
}

#define NAME "blk.0.attn_q.weight"     /* 64 x 128, F32 */
#define MAX64 0xffffffffffffffffu

TEST(gguf_header_faults)
{
	static const struct bad cases[] = {
		{ "truncated data", BYTES_LEFT, .number = 300000, .want = "pass the end of the file" },
		{ "truncated tensor list", BYTES_LEFT, .number = 3000, .want = "truncated" },
		{ "truncated keys", BYTES_LEFT, .number = 200, .want = "more than its 200 bytes have room for" },
		{ "truncated header", BYTES_LEFT, .number = 20, .want = "too few for a GGUF file" },
		{ "empty", BYTES_LEFT, .number = 0, .want = "model.gguf" },
		{ "magic", MAGIC, .text = "GGML", .want = "does not begin with \"GGUF\"" },
		{ "version", VERSION, .number = 7, .want = "version 7" },
		{ "big endian", VERSION, .number = 0x03000000, .want = "big endian" },
		{ "huge count of tensors", N_TENSORS, .number = (uint64_t)1 << 60, .want = "tensors, more than" },
		{ "negative count of tensors", N_TENSORS, .number = MAX64, .want = "18446744073709551615 tensors" },
		{ "no tensors", N_TENSORS, .number = 0, .want = "token_embd.weight" },
		{ "huge count of keys", N_KEYS, .number = (uint64_t)1 << 40, .want = "keys, more than" },
		{ "negative count of keys", N_KEYS, .number = MAX64, .want = "18446744073709551615 keys" },
		{ "no keys", N_KEYS, .number = 0, .want = "model.gguf" },
		{ "key length near 2^64", KEY_LENGTH, "general.name", .number = MAX64 - 7, .want = "18446744073709551608 bytes" },
		{ "key length 0", KEY_LENGTH, "general.name", .number = 0, .want = "must have 1 to" },
		{ "string length near 2^64", STRING_LENGTH, "general.name", .number = MAX64, .want = "model.gguf" },
		{ "string length past the end", STRING_LENGTH, "general.architecture", .number = 1 << 20, .want = "truncated" },
		{ "item length near 2^64", ITEM_LENGTH, "tokenizer.ggml.tokens", .number = MAX64 - 15, .want = "model.gguf" },
		{ "huge array", ARRAY_COUNT, "tokenizer.ggml.tokens", .number = (uint64_t)1 << 61, .want = "more than the file" },
		{ "array of arrays", ARRAY_TYPE, "tokenizer.ggml.tokens", .number = T_ARRAY, .want = "array of arrays" },
		{ "array of an unknown type", ARRAY_TYPE, "tokenizer.ggml.tokens", .number = 99, .want = "unknown value type" },
		{ "unknown value type", KEY_TYPE, "llama.block_count", .number = 13, .want = "unknown value type" },
		{ "key twice", KEY_NAME, "llama.attention.key_length", "llama.embedding_length", .want = "model.gguf" },
		{ "alignment 0", ADD_U32, "general.alignment", .number = 0, .want = "general.alignment is 0" },
		{ "alignment 24", ADD_U32, "general.alignment", .number = 24, .want = "general.alignment is 24" },
		{ "alignment 2^31", ADD_U32, "general.alignment", .number = 1u << 31, .want = "general.alignment is 2147483648" },
		{ "alignment of a wrong type", ADD_U64, "general.alignment", .number = 32, .want = "general.alignment is UINT64" },
	};
	check_all(cases, sizeof cases / sizeof cases[0]);
}

TEST(gguf_tensor_faults)
{
	static const struct bad cases[] = {
		{ "name length near 2^64", TENSOR_LENGTH, NAME, .number = MAX64, .want = "model.gguf" },
		{ "name length 0", TENSOR_LENGTH, NAME, .number = 0, .want = "model.gguf" },
		{ "no dimensions", N_DIMS, NAME, .number = 0, .want = "0 dimensions" },
		{ "five dimensions", N_DIMS, NAME, .number = 5, .want = "5 dimensions" },
		{ "huge count of dimensions", N_DIMS, NAME, .number = 0xffffffffu, .want = "4294967295 dimensions" },
		{ "zero dimension", DIM_1, NAME, .number = 0, .want = "dimension 0 is 0" },
		{ "negative dimension", DIM_0, NAME, .number = MAX64 - 63, .want = "dimension is 18446744073709551552" },
		{ "overflow", DIM_0, NAME, .number = (uint64_t)1 << 60, .want = NAME },
		{ "larger than the file", DIM_1, NAME, .number = 1 << 20, .want = "pass the end of the file" },
		{ "wrong shape", DIM_1, NAME, .number = 120, .want = NAME " is 120 x 64, but by" },
		{ "unknown type", TENSOR_TYPE, NAME, .number = 77, .want = "type 77" },
		{ "unsupported type", TENSOR_TYPE, NAME, .number = 16, .want = NAME },      /* IQ2_XXS */
		{ "vector of blocks", TENSOR_TYPE, "output_norm.weight", .number = 8, .want = "output_norm.weight" },     /* Q8_0 */
		{ "overlap", TENSOR_OFFSET, NAME, .number = 0, .want = "overlap" },
		{ "unaligned", TENSOR_OFFSET, NAME, .number = 33, .want = "multiple of the alignment 32" },
		{ "past the end", TENSOR_OFFSET, NAME, .number = (uint64_t)1 << 40, .want = "pass the end of the file" },
		{ "offset near 2^64", TENSOR_OFFSET, NAME, .number = MAX64 - 31, .want = NAME },
		{ "twice", TENSOR_NAME, "blk.1.attn_q.weight", NAME, .want = "there twice" },
		{ "experts of two types", TENSOR_TYPE, "blk.1.ffn_up.3.weight", .number = 30, .want = "must be F16 as that of expert 0",
		  .golden = "gguf-mixtral-split/model.gguf" },      /* BF16, as large as F16 */
		{ "missing", TENSOR_NAME, NAME, "blk.0.attn_x.weight", .want = NAME " is missing" },
	};
	check_all(cases, sizeof cases / sizeof cases[0]);
}

TEST(gguf_model_faults)
{
	static const struct bad cases[] = {
		{ "unknown architecture", KEY_TEXT, "general.architecture", "lambs", .want = "\"lambs\" is not supported" },
		{ "architecture of a wrong type", KEY_TYPE, "general.architecture", .number = T_U64, .want = "model.gguf" },
		{ "number of a wrong type", KEY_TYPE, "llama.block_count", .number = T_F32, .want = "llama.block_count is FLOAT32" },
		{ "float of a wrong type", KEY_TYPE, "llama.attention.layer_norm_rms_epsilon", .number = T_U32,
		  .want = "llama.attention.layer_norm_rms_epsilon" },
		{ "no layers", KEY_VALUE, "llama.block_count", .number = 0, .want = "llama.block_count is 0" },
		{ "huge count of layers", KEY_VALUE, "llama.block_count", .number = 0xffffffffu,
		  .want = "llama.block_count is 4294967295" },
		{ "one layer too many", KEY_VALUE, "llama.block_count", .number = 3, .want = "blk.2." },
		{ "no heads", KEY_VALUE, "llama.attention.head_count", .number = 0, .want = "head_count is 0" },
		{ "kv heads", KEY_VALUE, "llama.attention.head_count_kv", .number = 3, .want = "multiple" },
		{ "wrong width", KEY_VALUE, "llama.embedding_length", .number = 96, .want = "131 x 64, but by" },
		{ "missing number", KEY_NAME, "llama.block_count", "llama.blick_count", .want = "llama.block_count is missing" },
		{ "epsilon", KEY_VALUE, "llama.attention.layer_norm_rms_epsilon", .number = 0x7fc00000, .want = "epsilon" },    /* NaN */
		{ "theta", KEY_VALUE, "llama.rope.freq_base", .number = 0x7f800000, .want = "freq_base" },                     /* inf */
		{ "vocabulary", KEY_VALUE, "llama.vocab_size", .number = 132, .want = "131" },
		{ "vocabulary larger than the model's", N_TOKENS, .number = 140, .want = "140" },
		{ "tokens of a wrong type", KEY_NAME, "tokenizer.ggml.tokens", "tokenizer.ggml.tikens", .want = "tokenizer.ggml.tokens" },
		{ "no tokenizer", KEY_NAME, "tokenizer.ggml.model", "tokenizer.ggml.modal", .want = "tokenizer.ggml.model is missing" },
		{ "unknown tokenizer", KEY_TEXT, "tokenizer.ggml.model", "gpt3", .want = "gpt3" },
		{ "unknown pre-tokenizer", KEY_TEXT, "tokenizer.ggml.pre", "gpt-7", .want = "gpt-7" },
		{ "end token", KEY_VALUE, "tokenizer.ggml.eos_token_id", .number = 131, .want = "eos_token_id" },
	};
	check_all(cases, sizeof cases / sizeof cases[0]);
}

void gguf_tests(void (*add)(const char *name, void (*run)(void)))
{
	add("GGUF header", gguf_header_faults);
	add("GGUF tensors", gguf_tensor_faults);
	add("GGUF model", gguf_model_faults);
}
