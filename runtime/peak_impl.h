/* What a core can do at best with the operations that products are made of: loops on data in registers and the first cache.
 * Included by kernels_impl.h and compiled for an instruction set; the measure of `bench` (limits.h).
 *
 * Signs alternate from round to round, so that sums stay small, and no product is the same in two rounds running, so that
 * none can be taken out of the loop. */

#if PACKED_PAIR_TOKENS
enum { PEAK_PLANES = 2, PEAK_TOKENS = PACKED_PAIR_TOKENS };
#else
enum { PEAK_PLANES = 1, PEAK_TOKENS = PACKED_TILE_TOKENS };
#endif
enum { READ_STREAMS = 8, READ_AT_ONCE = KERNEL_READ_UNIT / READ_STREAMS, READ_AHEAD = 4096 };

static int64_t peak_int8(int64_t rounds)
{
	int8_t x[2][PEAK_TOKENS][PACK_BLOCK];
	unsigned char bytes[sizeof(codes)];
	float out[LANES];
	codes plane[PEAK_PLANES];
	int_sums sum[PEAK_PLANES][PEAK_TOKENS];
	for (int t = 0; t < PEAK_TOKENS; t++)
		for (int i = 0; i < PACK_BLOCK; i++) {
			x[0][t][i] = (int8_t)(i + t - 16);
			x[1][t][i] = (int8_t)(16 - i - t);
		}
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = i % 16;
	for (int p = 0; p < PEAK_PLANES; p++) {
		plane[p] = codes_load(bytes);
		for (int t = 0; t < PEAK_TOKENS; t++)
			sum[p][t] = sums_start(4, 0);
	}
	for (int64_t round = 0; round < rounds; round++)
		for (int g = 0; g < PACK_GROUPS; g++)
			for (int t = 0; t < PEAK_TOKENS; t++)
				for (int p = 0; p < PEAK_PLANES; p++)
					sum[p][t] = sums_add(4, g + 1, sum[p][t], plane[p], x[round % 2][t] + 4 * g);
	for (int p = 0; p < PEAK_PLANES; p++)
		for (int t = 0; t < PEAK_TOKENS; t++) {
			part_store(out, part_of_sums(4, sum[p][t]));
			volatile float used = out[0];
			(void)used;
		}
	return rounds * PACK_GROUPS * PEAK_TOKENS * PEAK_PLANES * 2 * (int64_t)sizeof bytes;
}

/* As in a tile, a pair of activations is loaded for two registers of weights. */
static int64_t peak_bf16(int64_t rounds)
{
	enum { STRIPS = 2, SUMS = BF16_MAX_1 };
	bf16_pair x[2][SUMS][8];
	float lanes[2][LANES];
	unsigned char bytes[PAIR_BYTES];
	bf16_weights w[STRIPS];
	bf16_sums sum[STRIPS][SUMS];
	for (int i = 0; i < PAIR_BYTES; i++)       /* 1 or a little less */
		bytes[i] = i % 2 ? 0x3f : (unsigned char)(0x80 - i / 32);
	for (int l = 0; l < LANES; l++) {
		lanes[0][l] = 1.0f;
		lanes[1][l] = -1.0f;
	}
	for (int i = 0; i < 2; i++)
		for (int t = 0; t < SUMS; t++)
			bf16_round16(lanes[i], x[i][t]);
	for (int q = 0; q < STRIPS; q++) {
		w[q] = bf16_weights_load(bytes + q * (PAIR_BYTES - BF16_LANES * 4));
		for (int t = 0; t < SUMS; t++)
			sum[q][t] = bf16_sums_load(lanes[q]);
	}
	for (int64_t round = 0; round < rounds; round++)
		for (int t = 0; t < SUMS; t++) {
			bf16_spread xs = bf16_pair_load(x[round % 2][t]);
			for (int q = 0; q < STRIPS; q++)
				sum[q][t] = bf16_add(sum[q][t], w[q], xs);
		}
	for (int q = 0; q < STRIPS; q++)
		for (int t = 0; t < SUMS; t++) {
			bf16_sums_store(lanes[0], sum[q][t]);
			volatile float used = lanes[0][0];
			(void)used;
		}
	return rounds * STRIPS * SUMS * BF16_LANES * 4;
}

static uint64_t read_all(const unsigned char *from, int64_t bytes)
{
	enum { LOADS = READ_AT_ONCE / sizeof(codes) };
	int64_t stream = bytes / READ_STREAMS;
	uint64_t words[sizeof(codes) / 8], all = 0;
	codes sum[LOADS];
	for (size_t i = 0; i < LOADS; i++)
		sum[i] = codes_load(from);
	for (int64_t at = 0; at < stream; at += READ_AT_ONCE)
		for (int s = 0; s < READ_STREAMS; s++) {
			const unsigned char *p = from + s * stream + at;
			for (int line = 0; line < READ_AT_ONCE; line += 64)
				__builtin_prefetch(p + line + READ_AHEAD);
			for (size_t i = 0; i < LOADS; i++)
				sum[i] = codes_or(sum[i], codes_load(p + i * sizeof(codes)));
		}
	for (size_t i = 0; i < LOADS; i++) {
		codes_store((unsigned char *)words, sum[i]);
		for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)
			all |= words[w];
	}
	return all;
}
