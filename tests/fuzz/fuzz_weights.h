/* What holds of any weight file that was accepted, in every format. */
#ifndef SHARDRUN_TESTS_FUZZ_FUZZ_WEIGHTS_H
#define SHARDRUN_TESTS_FUZZ_FUZZ_WEIGHTS_H

#include "runtime/weights.h"
#include "tests/fuzz/fuzz.h"

static inline void fuzz_check_tensors(struct weights *w)
{
	static unsigned char raw[1 << 16];
	static float wide[4 * sizeof raw];
	for (int64_t i = 0; i < weights_count(w); i++) {
		const struct tensor_info *t = weights_at(w, i);
		const struct wtype_info *type = &wtypes[t->type];
		int64_t items = 1;
		FUZZ_CHECK(weights_find(w, t->name) == t);
		FUZZ_CHECK(t->n_dims >= 1 && t->n_dims <= WEIGHTS_MAX_DIMS);
		for (int d = 0; d < t->n_dims; d++) {
			FUZZ_CHECK(t->dims[d] >= 1 && items <= INT64_MAX / t->dims[d]);
			items *= t->dims[d];
		}
		FUZZ_CHECK(t->dims[t->n_dims - 1] % type->block == 0);
		FUZZ_CHECK(t->bytes == (uint64_t)wtype_row_bytes(t->type, items));
		FUZZ_CHECK(t->bytes <= weights_file(w, t->file)->size);
		uint64_t part = sizeof raw / (uint64_t)type->block_bytes * (uint64_t)type->block_bytes;
		if (part > t->bytes)
			part = t->bytes;
		FUZZ_CHECK(weights_read(w, t, t->bytes - part, raw, part) == ERR_OK);
		type->widen(raw, wide, (int64_t)part / type->block_bytes * type->block);
	}
}

static inline void fuzz_weights(const struct weights_format *format, const uint8_t *data, size_t size)
{
	struct weights *w;
	enum err e = weights_open_as(format, fuzz_file(data, size), &w);
	FUZZ_CHECK_ERROR(e);
	if (e)
		return;
	fuzz_check_tensors(w);
	weights_close(w);
}

#endif
