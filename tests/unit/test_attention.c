/* labels: unit
 * Attention over the paged cache: against a softmax in double precision, equal bits in every table, and whatever pages
 * the positions lie in. */
#include "tests/kernel_data.h"
#include "tests/test.h"

#include <math.h>

/* A cache whose unwritten bytes are all ones: NaN in every type. */
struct cache { struct kv_layer layer; int32_t *pages; int64_t n_tokens; float *k, *v; };

static void cache_fill(struct cache *c, const struct kernels *k, int64_t spare_pages)
{
	int64_t n_pages = (c->n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS, all = n_pages + spare_pages;
	int64_t token = c->layer.n_kv * c->layer.n_head_dim;
	int64_t group = kv_group(c->layer.type, c->layer.n_head_dim);
	size_t bytes = (size_t)(all * KV_PAGE_TOKENS * c->layer.n_kv * kv_bytes(c->layer.type, c->layer.n_head_dim));
	c->layer.k = memset(room(bytes), 0xff, bytes);
	c->layer.v = memset(room(bytes), 0xff, bytes);
	c->pages = room((size_t)all * sizeof *c->pages);
	for (int64_t i = 0; i < all; i++)
		c->pages[i] = (int32_t)i;
	for (int64_t i = all - 1; spare_pages && i > 0; i--) {   /* shuffled */
		int64_t j = random_below(i + 1);
		int32_t page = c->pages[i];
		c->pages[i] = c->pages[j];
		c->pages[j] = page;
	}
	for (int64_t pos = 0; pos < c->n_tokens; pos++)
		for (int64_t at = 0, end; at < token; at = end) {   /* in pieces that end inside heads */
			end = at + (1 + random_below((token - at) / group)) * group;
			k->kv_store(&c->layer, c->layer.k, c->pages, pos, at, end, c->k + pos * token);
			k->kv_store(&c->layer, c->layer.v, c->pages, pos, at, end, c->v + pos * token);
		}
}

static void cache_free(struct cache *c) { free(c->layer.k), free(c->layer.v), free(c->pages); }

/* Number i of the head x (d) as it comes back. */
static double stored(enum kv_type type, const float *head, int64_t d, int64_t i)
{
	float x = head[i];
	if (type == KV_INT8) {
		int64_t group = d % 32 ? d : 32;
		float largest = 0;
		for (int64_t g = i / group * group; g < i / group * group + group; g++)
			largest = fmaxf(largest, fabsf(head[g]));
		float scale = largest / 127;
		return largest > 0 ? nearbyint((double)(x / scale)) * (double)scale : 0;
	}
	if (type == KV_F16)
		return (double)wtype_f16_to_f32(wtype_f32_to_f16(x));
	return type == KV_BF16 ? (double)wtype_bf16_to_f32(wtype_f32_to_bf16(x)) : (double)x;
}

static void reference(const struct cache *c, int64_t h, int64_t pos, int64_t window, double scale, const float *q,
		      double *out)
{
	int64_t d = c->layer.n_head_dim, first = window && pos - window + 1 > 0 ? pos - window + 1 : 0;
	double *score = room((size_t)(pos + 1) * sizeof *score), top = -INFINITY, sum = 0;
	for (int64_t i = 0; i < d; i++)
		out[i] = 0;
	for (int64_t j = first; j <= pos; j++) {
		const float *key = c->k + (j * c->layer.n_kv + h) * d;
		for (int64_t i = 0; i < d; i++)
			score[j] += scale * (double)q[i] * stored(c->layer.type, key, d, i);
		top = fmax(top, score[j]);
	}
	for (int64_t j = first; j <= pos; j++)
		sum += exp(score[j] - top);
	for (int64_t j = first; j <= pos; j++)
		for (int64_t i = 0; i < d; i++)
			out[i] += exp(score[j] - top) / sum * stored(c->layer.type, c->v + (j * c->layer.n_kv + h) * d, d, i);
	free(score);
}

static void check_attention(enum kv_type type, int64_t d, int64_t n_kv, int64_t n_tokens, int64_t window, float sharpness)
{
	struct cache c = { .layer = { type, n_kv, d, NULL, NULL }, .n_tokens = n_tokens }, straight;
	float *q = random_floats(d), *out = random_floats(d), *first = random_floats(d);
	double *want = room((size_t)d * sizeof *want);
	int64_t h = random_below(n_kv), pos = n_tokens - 1 - random_below(n_tokens < 3 ? n_tokens : 3);
	float scale = sharpness / sqrtf((float)d);
	c.k = random_floats(n_tokens * n_kv * d);
	c.v = random_floats(n_tokens * n_kv * d);
	straight = c;
	cache_fill(&c, kernel_tables[0], 5);
	cache_fill(&straight, kernels_best(), 0);
	reference(&c, h, pos, window, (double)scale, q, want);
	FOR_TABLES(k) {
		k->attention(&c.layer, c.pages, h, pos, window, scale, q, out);
		for (int64_t i = 0; i < d; i++)
			CU_ASSERT_DOUBLE_EQUAL(out[i], want[i], 2e-6 * (1 + (double)sharpness));
		if (k == kernel_tables[0])
			memcpy(first, out, (size_t)d * sizeof *out);
		CU_ASSERT(same_bits(first, out, d));
		k->attention(&straight.layer, straight.pages, h, pos, window, scale, q, out);
		CU_ASSERT(same_bits(first, out, d));
	}
	cache_free(&c), cache_free(&straight);
	free(c.k), free(c.v), free(q), free(out), free(first), free(want);
}

TEST(attention_matches_softmax_and_does_not_see_pages)
{
	static const int64_t dims[] = { 64, 80, 7, 24, 128, 1 }, windows[] = { 0, 1, 5, 31, 32, 33, 100 };
	for (int type = 0; type < KV_TYPE_COUNT; type++)
		for (int round = 0; round < 84; round++)
			check_attention((enum kv_type)type, dims[round % 6], 1 + random_below(3), 1 + random_below(200),
					windows[round % 7], round % 4 == 3 ? 40.0f : 1.0f);
	check_attention(KV_F16, KERNEL_MAX_HEAD_DIM, 2, 70, 0, 1.0f);
	check_attention(KV_INT8, KERNEL_MAX_HEAD_DIM, 2, 70, 0, 1.0f);
	check_attention(KV_INT8, KERNEL_MAX_HEAD_DIM - 1, 2, 70, 0, 1.0f);
}

/* Rows and heads together, whatever their number and whatever lies in the places behind each row. */
TEST(rows_and_heads_together_have_the_bits_of_each_alone)
{
	static const int64_t dims[] = { 64, 80, 7, 24, 128, 40 }, windows[] = { 0, 0, 1, 5, 31, 33, 100 };
	for (int round = 0; round < 126; round++) {
		int64_t d = dims[round % 6], window = windows[round % 7], heads = 1 + random_below(5), n_tokens = 1 + random_below(150);
		int64_t rows = 1 + random_below(n_tokens), pos = random_below(n_tokens - rows + 1), ld = heads * d + random_below(9);
		struct cache c = { .layer = { (enum kv_type)(round / 7 % KV_TYPE_COUNT), 2, d, NULL, NULL }, .n_tokens = n_tokens };
		float *q = random_floats(rows * ld), *out = random_floats(rows * ld), *alone = random_floats(rows * ld), *first;
		first = room((size_t)(rows * ld) * sizeof *first);
		c.k = random_floats(n_tokens * 2 * d);
		c.v = random_floats(n_tokens * 2 * d);
		if (round % 5 == 4)
			c.v[random_below(n_tokens * 2 * d)] = INFINITY;   /* 0 * inf is NaN: only rows that see it may */
		cache_fill(&c, kernel_tables[0], 3);
		memcpy(first, alone, (size_t)(rows * ld) * sizeof *first);
		for (int64_t b = 0; b < rows; b++)
			for (int64_t g = 0; g < heads; g++)
				kernel_tables[0]->attention(&c.layer, c.pages, 1, pos + b, window, 0.3f, q + b * ld + g * d,
							    first + b * ld + g * d);
		FOR_TABLES(k) {
			memcpy(out, alone, (size_t)(rows * ld) * sizeof *out);   /* what is between the rows stays */
			k->attention_rows(&c.layer, c.pages, 1, pos, rows, heads, window, 0.3f, q, ld, out, ld);
			for (int64_t i = 0; i < rows * ld; i++)
				CU_ASSERT(same_bits(out + i, first + i, 1) || (isnan(out[i]) && isnan(first[i])));
		}
		cache_free(&c);
		free(c.k), free(c.v), free(q), free(out), free(alone), free(first);
	}
}

/* Scores that rise with every block make each block rescale what came before; falling ones never. */
TEST(the_running_maximum_may_rise_in_every_block)
{
	enum { D = 16, N = 150 };
	for (int falling = 0; falling < 2; falling++) {
		struct cache c = { .layer = { KV_F32, 1, D, NULL, NULL }, .n_tokens = N };
		float q[D] = { 1.0f }, out[D];
		double want[D];
		c.k = random_floats(N * D);
		c.v = random_floats(N * D);
		for (int j = 0; j < N; j++)
			c.k[j * D] = (float)(falling ? N - j : j) * 0.05f;
		cache_fill(&c, kernel_tables[0], 3);
		reference(&c, 0, N - 1, 0, 1.0, q, want);
		FOR_TABLES(k) {
			k->attention(&c.layer, c.pages, 0, N - 1, 0, 1.0f, q, out);
			for (int i = 0; i < D; i++)
				CU_ASSERT_DOUBLE_EQUAL(out[i], want[i], 1e-6);
		}
		cache_free(&c);
		free(c.k), free(c.v);
	}
}

/* With one visible position the result is V itself: every f16 and bf16 there is. */
TEST(every_stored_number_is_widened_exactly)
{
	enum { D = KERNEL_MAX_HEAD_DIM };
	float q[D] = { 0 }, out[D];
	uint16_t key[D] = { 0 }, value[D];
	int32_t page = 0;
	FOR_TABLES(k)
		for (int type = KV_F16; type <= KV_BF16; type++)
			for (int start = 0; start < 65536; start += D) {
				struct kv_layer kv = { (enum kv_type)type, 1, D, (void *)key, (void *)value };
				for (int i = 0; i < D; i++)
					value[i] = (uint16_t)(start + i);
				k->attention(&kv, &page, 0, 0, 0, 1.0f, q, out);
				for (int i = 0; i < D; i++) {
					uint16_t h = value[i];
					float want = type == KV_F16 ? wtype_f16_to_f32(h) : wtype_bf16_to_f32(h);
					CU_ASSERT(isnan(want) ? isnan(out[i]) : out[i] == want);
				}
			}
}

/* In int8 too, with the scale of its group: of a constant, of the smallest numbers, and NaN for what is not finite. */
TEST(int8_keeps_whole_steps_and_does_not_hide_what_is_not_finite)
{
	enum { D = 96 };
	static const float scales[] = { 1.0f, 0x1p-149f, 0x1p-140f, 0x1p120f, 0.0f };
	float q[D] = { 0 }, out[D], value[D];
	int32_t page = 0;
	FOR_TABLES(k)
		for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
			struct kv_layer kv = { KV_INT8, 1, D, room((size_t)(KV_PAGE_TOKENS * kv_bytes(KV_INT8, D))),
					       room((size_t)(KV_PAGE_TOKENS * kv_bytes(KV_INT8, D))) };
			for (int i = 0; i < D; i++)
				value[i] = (float)(i % 32 == 31 ? 127 : i * 5 % 255 - 127) * scales[s];
			k->kv_store(&kv, kv.v, &page, 0, 0, D, value);
			k->attention(&kv, &page, 0, 0, 0, 1.0f, q, out);
			for (int i = 0; i < D; i++)
				CU_ASSERT(out[i] == value[i]);
			value[40] = s % 2 ? NAN : -INFINITY;
			k->kv_store(&kv, kv.v, &page, 0, 32, D, value);
			k->attention(&kv, &page, 0, 0, 0, 1.0f, q, out);
			for (int i = 0; i < D; i++)
				CU_ASSERT(i / 32 == 1 ? isnan(out[i]) : out[i] == value[i]);
			free(kv.k), free(kv.v);
		}
	CU_ASSERT_EQUAL(kv_bytes(KV_INT8, 64), 72);
	CU_ASSERT_EQUAL(kv_bytes(KV_INT8, 80), 84);
	CU_ASSERT_EQUAL(kv_bytes(KV_F16, 80), 160);
}

TEST(nan_in_a_key_reaches_the_output_but_not_past_the_mask)
{
	enum { D = 8, N = 70 };
	struct cache c = { .layer = { KV_F32, 1, D, NULL, NULL }, .n_tokens = N };
	float *q = random_floats(D), out[D];
	c.k = random_floats(N * D);
	c.v = random_floats(N * D);
	c.k[40 * D] = NAN;
	cache_fill(&c, kernel_tables[0], 0);
	FOR_TABLES(k) {
		k->attention(&c.layer, c.pages, 0, N - 1, 0, 1.0f, q, out);
		CU_ASSERT(isnan(out[0]));
		k->attention(&c.layer, c.pages, 0, 39, 0, 1.0f, q, out);
		CU_ASSERT(isfinite(out[0]));
		k->attention(&c.layer, c.pages, 0, N - 1, N - 41, 1.0f, q, out);   /* 41 is the first visible */
		CU_ASSERT(isfinite(out[0]));
	}
	cache_free(&c);
	free(c.k), free(c.v), free(q);
}

TEST_MAIN("attention", CASE(attention_matches_softmax_and_does_not_see_pages),
	  CASE(rows_and_heads_together_have_the_bits_of_each_alone),
	  CASE(the_running_maximum_may_rise_in_every_block), CASE(every_stored_number_is_widened_exactly),
	  CASE(int8_keeps_whole_steps_and_does_not_hide_what_is_not_finite),
	  CASE(nan_in_a_key_reaches_the_output_but_not_past_the_mask))
