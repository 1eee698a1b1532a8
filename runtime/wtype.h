/* Weight types: how numbers are stored in files and in memory. One row per type. */
#ifndef SHARDRUN_RUNTIME_WTYPE_H
#define SHARDRUN_RUNTIME_WTYPE_H

#include <stdint.h>

enum wtype {
	WTYPE_F32, WTYPE_F16, WTYPE_BF16,
	WTYPE_Q8_0, WTYPE_Q4_0, WTYPE_Q4_1, WTYPE_Q5_0, WTYPE_Q5_1,
	WTYPE_Q4_K, WTYPE_Q5_K, WTYPE_Q6_K,
	WTYPE_COUNT
};

struct wtype_info {
	const char *name;            /* "Q4_0" */
	const char *safetensors;     /* dtype there, NULL: none */
	int gguf;                    /* ggml type number */
	int block;                   /* items in a block: 1, 32, 256 */
	int block_bytes;
	/* n items (a multiple of block) to float, exactly as the format defines; the plain reference. */
	void (*widen)(const void *from, float *to, int64_t n);
};
extern const struct wtype_info wtypes[WTYPE_COUNT];

static inline int64_t wtype_row_bytes(enum wtype t, int64_t cols)
{
	return cols / wtypes[t].block * wtypes[t].block_bytes;
}
float wtype_f16_to_f32(uint16_t h);
uint16_t wtype_f32_to_f16(float f);      /* nearest even */
uint16_t wtype_f32_to_bf16(float f);     /* nearest even, NaN stays NaN */
static inline float wtype_bf16_to_f32(uint16_t h)
{
	union { uint32_t u; float f; } v = { (uint32_t)h << 16 };
	return v.f;
}

/* How a matrix lies in memory: rows as in the file, or panels of interleaved rows with codes of that many bits, or with pairs
 * of BF16 (pack.h). */
enum pack_form { PACK_ROWS, PACK_U4, PACK_U5, PACK_U6, PACK_U8, PACK_BF16 };

/* A matrix in memory: rows of `cols` items, outputs x inputs (R, C). Vectors have rows 1. */
struct weight {
	enum wtype type;
	int64_t rows, cols, row_bytes;   /* of a row as in the file */
	unsigned char *data;             /* not owned */
	enum pack_form form;             /* PACK_ROWS unless pack_rows made it */
};

#endif
