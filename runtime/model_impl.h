/* What the files of the model description share: the two readers (config.json, GGUF metadata) fill the same numbers, and
 * model.c checks them together, so that nothing behind model_describe meets a number it cannot use. */
#ifndef SHARDRUN_RUNTIME_MODEL_IMPL_H
#define SHARDRUN_RUNTIME_MODEL_IMPL_H

#include "runtime/model.h"

#include <stddef.h>

/* The largest numbers that are believed. Products of two of them fit 63 bits. */
#define MODEL_MAX_LAYERS INT64_C(4096)
#define MODEL_MAX_EMBD (INT64_C(1) << 20)
#define MODEL_MAX_HEADS (INT64_C(1) << 16)
#define MODEL_MAX_HEAD_DIM INT64_C(512)          /* what kernels.h, attention, takes */
#define MODEL_MAX_FFN (INT64_C(1) << 24)
#define MODEL_MAX_VOCAB (INT64_C(1) << 24)
#define MODEL_MAX_EXPERTS INT64_C(1024)          /* what kernels.h, route, takes */
#define MODEL_MAX_EXPERTS_USED INT64_C(64)
#define MODEL_MAX_CONTEXT (INT64_C(1) << 30)
#define MODEL_MAX_THETA 1e15

/* config.json as text, without any weights; `name` appears in sentences. Numbers are checked (model_check_numbers). */
enum err model_from_config(const char *name, const char *text, size_t bytes, struct model *m);
/* Adds the end tokens of a generation_config.json to m. */
enum err model_add_generation_config(const char *name, const char *text, size_t bytes, struct model *m);
/* GGUF metadata; the vocabulary's size too. Numbers are checked. */
enum err model_from_gguf(const struct gguf *g, struct model *m);

/* What must hold between the numbers, wherever they came from. */
enum err model_check_numbers(const char *name, const struct model *m);
/* Adds a token that ends a text, once. `key` is where it was found. */
enum err model_add_eos(const char *name, const char *key, int64_t id, struct model *m);
/* True when the architecture has tensors per expert. */
int model_arch_has_experts(const struct arch *a);

#endif
