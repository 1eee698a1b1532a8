/* The default arithmetic of quantised weights: panels of 16 rows (pack.h) times activations as int8, included by
 * kernels_impl.h and compiled for an instruction set.
 *
 * A lane is a row of the panel: no sum crosses lanes. Of one output, for its blocks of 32 columns in order of k:
 *
 *   i    = start + the sum of code * q                          int32, exact in any order; start = -offset * sum of q
 *   acc  = fma((float)i, scale * d, acc)                        Q6_K: first 16 columns, then the same for the last 16
 *   acc  = fma(minimum, ds, acc)                                types that have a minimum
 *
 * from acc = +0; d and ds are the activations' (struct act_block). So the bits depend neither on the tile nor on the
 * instruction set, and a block that is not finite (d is NaN) makes every output that uses it NaN.
 *
 * Few tokens read the panel as it is packed. Many tokens share one whose codes are first spread to a byte each, with
 * scales as floats: the same integers and floats, so the same bits. Where there are registers for it they take two spread
 * panels at a time, which halves the loads of activations. */

#ifndef PACKED_TILE_TOKENS
#define PACKED_TILE_TOKENS 1
typedef struct { uint8_t v[PLANE_BYTES]; } codes;
typedef struct { int32_t v[LANES]; } int_sums;

INLINE codes codes_load(const unsigned char *from)
{
	codes c;
	memcpy(c.v, from, sizeof c.v);
	return c;
}

INLINE void codes_store(unsigned char *to, codes c) { memcpy(to, c.v, sizeof c.v); }

/* Every byte shifted left (right when negative), and masked. */
INLINE codes codes_bits(codes c, int left, int mask)
{
	for (int i = 0; i < PLANE_BYTES; i++)
		c.v[i] = (uint8_t)((left < 0 ? c.v[i] >> -left : c.v[i] << left) & mask);
	return c;
}

INLINE codes codes_or(codes a, codes b)
{
	for (int i = 0; i < PLANE_BYTES; i++)
		a.v[i] |= b.v[i];
	return a;
}

INLINE int_sums sums_start(int bits, int32_t start)
{
	int_sums s;
	(void)bits;
	for (int l = 0; l < LANES; l++)
		s.v[l] = start;
	return s;
}

/* Each lane's four codes times the four activations. Codes have `bits` bits; groups counts those of this sum so far. */
INLINE int_sums sums_add(int bits, int groups, int_sums s, codes c, const int8_t *x)
{
	(void)bits, (void)groups;
	for (int l = 0; l < LANES; l++)
		for (int j = 0; j < 4; j++)
			s.v[l] += c.v[4 * l + j] * x[j];
	return s;
}

INLINE part part_of_sums(int bits, int_sums s)
{
	part p;
	(void)bits;
	for (int l = 0; l < LANES; l++)
		p.v[l] = (float)s.v[l];
	return p;
}

INLINE part part_set1(float x)
{
	part p;
	for (int l = 0; l < LANES; l++)
		p.v[l] = x;
	return p;
}

INLINE part part_mul(part a, part b)
{
	for (int l = 0; l < LANES; l++)
		a.v[l] *= b.v[l];
	return a;
}

INLINE part part_add(part a, part b)
{
	for (int l = 0; l < LANES; l++)
		a.v[l] += b.v[l];
	return a;
}

/* b when one is NaN. */
INLINE part part_max(part a, part b)
{
	for (int l = 0; l < LANES; l++)
		a.v[l] = a.v[l] > b.v[l] ? a.v[l] : b.v[l];
	return a;
}

INLINE void part_store(float *to, part p) { memcpy(to, p.v, sizeof p.v); }

INLINE part part_of_halves(const unsigned char *from)
{
	part p;
	for (int l = 0; l < LANES; l++)
		p.v[l] = wtype_f16_to_f32((uint16_t)(from[2 * l] | from[2 * l + 1] << 8));
	return p;
}

INLINE part part_of_bytes(const unsigned char *from)
{
	part p;
	for (int l = 0; l < LANES; l++)
		p.v[l] = (float)from[l];
	return p;
}

INLINE part part_of_int8(const unsigned char *from)
{
	part p;
	for (int l = 0; l < LANES; l++)
		p.v[l] = (float)(int8_t)from[l];
	return p;
}
#endif

enum { WIDE_BLOCK_BYTES = PACK_GROUPS * PLANE_BYTES + 2 * LANES * (int)sizeof(float),   /* codes, scale, minimum or second */
       WIDE_TOKENS = 2 * PACKED_TILE_TOKENS + 1,  /* from here on spreading a panel pays */
       TILE_SIZES = PACKED_TILE_TOKENS + 1,
       PREFETCH_BYTES = 4096,          /* ahead in a panel, and past its end in the one that follows those at hand */
       CHUNK_BLOCKS = 8192,            /* of activations that stay in the second cache, 64 bytes each */
       CHUNK_UNIT = 24,                /* whole tiles of 6 and of 8 */
       CHUNK_MIN_TOKENS = 48,
       GROUP_PANELS = 4,               /* for a token or two memory sets the pace: four panels are four streams from
					  it, and two for a few more tokens */
       GROUP_TOKENS = PACKED_TILE_TOKENS == 8 ? 2 : PACKED_TILE_TOKENS == 4 ? 1 : 0,
       MAX_PANELS = 4,
       FIXED_TOO_LARGE = 0x5b800000 };   /* the bits of 2^56 */

/* ---- activations ---- */

#ifndef PART_QUANTIZE
/* The largest magnitude of 32 numbers, as bits: those of infinity or more when one is not finite. */
INLINE uint32_t largest32(const float *v)
{
	uint32_t top = 0;
	for (int i = 0; i < PACK_BLOCK; i++) {
		uint32_t size = to_bits(v[i]) & 0x7fffffffu;
		top = size > top ? size : top;
	}
	return top;
}

/* q = nearest even of v * inverse; sum: of the first 16, of the last. */
INLINE void round32(const float *v, float inverse, int8_t *q, int32_t *sum)
{
	const float magic = 0x1.8p23f;
	sum[0] = sum[1] = 0;
	for (int i = 0; i < PACK_BLOCK; i++) {
		int32_t nearest = (int32_t)(to_bits(v[i] * inverse + magic) - to_bits(magic));
		q[i] = (int8_t)nearest;
		sum[i / LANES] += nearest;
	}
}
#endif

/* Everything of a block but q. */
INLINE void finish_block(float d, const int32_t *sum, struct act_block *to)
{
	int32_t all = sum[0] + sum[1];
	to->d = d;
	to->ds = d * (float)all;
	to->start8 = -8 * all;
	to->start16 = -16 * all;
	to->start128 = -128 * all;
	to->start32[0] = -32 * sum[0];
	to->start32[1] = -32 * sum[1];
	to->unused = 0;
}

/* Gives the bits of the largest magnitude; 0 when the block is done: zeros, or not finite. */
INLINE uint32_t quantize_block(const float *v, struct act_block *to)
{
	uint32_t top = largest32(v);
	float largest = from_bits(top);
	int32_t sum[2];
	if (top >= 0x7f800000u || largest < 0x1p-100f) {
		memset(to, 0, sizeof *to);
		if (top >= 0x7f800000u)
			to->d = to->ds = NAN;
		return 0;
	}
	round32(v, 127.0f / largest, to->q, sum);
	finish_block(largest / 127.0f, sum, to);
	return top;
}

/* The scale d that fits integers q best, sum of v * q / sum of q * q, leaves an error of (sum of v * v) - fit. */
INLINE double best_scale(const float *v, const int8_t *q, float *d)
{
	float lane[LANES];
	int32_t squares = 0;
	for (int l = 0; l < LANES; l++)
		lane[l] = fmaf(v[LANES + l], (float)q[LANES + l], v[l] * (float)q[l]);
	for (int i = 0; i < PACK_BLOCK; i++)
		squares += q[i] * q[i];
	float dot = tree16(lane);
	*d = dot / (float)squares;
	return (double)dot * (double)dot / (double)squares;
}

/* Of eight ways to round, the one that fits best. */
INLINE void quantize_block_finely(const float *v, struct act_block *to)
{
	float largest = from_bits(quantize_block(v, to)), d;
	double best = 0;
	if (largest == 0.0f || largest > 0x1p100f)
		return;
	for (int steps = 127; steps >= 120; steps--) {
		int8_t q[PACK_BLOCK];
		int32_t sum[2];
		round32(v, (float)steps / largest, q, sum);
		double fit = best_scale(v, q, &d);
		if (fit > best) {
			best = fit;
			memcpy(to->q, q, sizeof q);
			finish_block(d, sum, to);
		}
	}
}

INLINE void quantize_row(int finely, const float *x, int64_t n, struct act_block *to)
{
	for (int64_t k = 0; k < n; k += PACK_BLOCK, to++) {
		float rest[PACK_BLOCK] = { 0 };
		const float *v = x + k;
		if (k + PACK_BLOCK > n) {
			memcpy(rest, v, (size_t)(n - k) * sizeof *v);
			v = rest;
		}
		if (finely)
			quantize_block_finely(v, to);
		else
			quantize_block(v, to);
	}
}

/* A block with something that is not finite has d and ds NaN. One of numbers below 2^-100 counts as zeros. */
static void quantize(const float *x, int64_t n, struct act_block *to) { quantize_row(0, x, n, to); }
static void quantize_finely(const float *x, int64_t n, struct act_block *to) { quantize_row(1, x, n, to); }

/* ---- a tile: a panel times a few tokens ---- */

/* Lanes of part p of group g; `at`: the block's first plane. */
INLINE codes group_codes(int bits, int wide, int p, int g, const unsigned char *at)
{
	enum { PART_BYTES = PART_LANES * 4 };
	if (wide || bits == 8)
		return codes_load(at + g * PLANE_BYTES + p * PART_BYTES);
	codes low = codes_bits(codes_load(at + g / 2 * PLANE_BYTES + p * PART_BYTES), g % 2 * -4, 15);
	if (bits == 4)
		return low;
	int high = bits - 4, plane = g / (PACK_GROUPS / high), shift = g % (PACK_GROUPS / high) * high;
	codes top = codes_load(at + (4 + plane) * PLANE_BYTES + p * PART_BYTES);
	return codes_or(low, codes_bits(top, 4 - shift, ((1 << high) - 1) << 4));
}

/* Block b's first plane. panel: as pack.h tells, or spread. */
INLINE const unsigned char *block_codes(enum wtype type, int wide, const unsigned char *panel, int64_t b)
{
	return panel + (wide ? b * WIDE_BLOCK_BYTES : pack_codes_at(type, b));
}

/* Scales of block b, and its minimums or second scales, lanes of part p. */
INLINE void block_head(enum wtype type, int wide, int p, const unsigned char *panel, int64_t b, part *scale, part *second)
{
	if (wide) {
		const unsigned char *at = block_codes(type, wide, panel, b) + PACK_GROUPS * PLANE_BYTES;
		const float *from = (const float *)(const void *)at + p * PART_LANES;
		*scale = part_load(from);
		*second = part_load(from + LANES);
		return;
	}
	const unsigned char *head = panel + pack_head_at(type, b) + p * PART_LANES * 2;
	const unsigned char *scales = panel + pack_scales_at(type, b) + p * PART_LANES;
	*scale = part_of_halves(head);
	if (type == WTYPE_Q6_K) {
		*second = part_mul(*scale, part_of_int8(scales + LANES));
		*scale = part_mul(*scale, part_of_int8(scales));
	} else if (pack_has_minimum(type)) {
		*second = part_of_halves(head + LANES * 2);
		if (pack_is_super(type)) {
			*scale = part_mul(*scale, part_of_bytes(scales));
			*second = part_mul(*second, part_of_bytes(scales + LANES));
		}
	} else {
		*second = *scale;
	}
}

INLINE int32_t start_of(enum wtype type, int half, const struct act_block *x)
{
	switch (pack_offset(type)) {
	case 8: return x->start8;
	case 16: return x->start16;
	case 128: return x->start128;
	case 32: return x->start32[half];
	default: return 0;
	}
}

typedef part run_sums[MAX_PANELS][PACKED_TILE_TOKENS];

/* acc[panel][token], lanes of part p: one run of blocks [from, to) of n_panels panels, panel_bytes apart. All arguments from
 * `type` to `p` are constants at every call. Two panels at a time load each activation once for both. */
INLINE void packed_run(run_sums acc, enum wtype type, int wide, int n_panels, int n_tokens, int p, const unsigned char *panel,
		       int64_t panel_bytes, int64_t from, int64_t to, const struct act_block *x, int64_t ldx)
{
	const int bits = pack_bits(type), n_halves = type == WTYPE_Q6_K ? 2 : 1, n_groups = PACK_GROUPS / n_halves;
	const int64_t block_bytes = pack_unit_at(type, pack_unit_blocks(type)) / pack_unit_blocks(type);   /* at most bits + 1 lines */
	for (int q = 0; q < n_panels; q++)
		for (int t = 0; t < n_tokens; t++)
			acc[q][t] = part_zero();
	for (int64_t b = from; b < to; b++) {
		const unsigned char *at = block_codes(type, wide, panel, b);
		const struct act_block *xs = x + b;
		part scale[MAX_PANELS][2];
		if (!wide) {
			const unsigned char *ahead = panel + b * block_bytes + PREFETCH_BYTES;   /* of heads too: every line once */
			if (n_panels > 1 && ahead - panel >= panel_bytes)
				ahead += (n_panels - 1) * panel_bytes;
			for (int q = 0; q < n_panels; q++)
				for (int i = 0; i <= bits; i++)
					__builtin_prefetch(ahead + q * panel_bytes + i * PLANE_BYTES);
		}
		for (int q = 0; q < n_panels; q++)
			block_head(type, wide, p, panel + q * panel_bytes, b, &scale[q][0], &scale[q][1]);
		for (int half = 0; half < n_halves; half++) {
			int_sums s[MAX_PANELS][PACKED_TILE_TOKENS];
			for (int t = 0; t < n_tokens; t++)
				for (int q = 0; q < n_panels; q++)
					s[q][t] = sums_start(bits, start_of(type, half, xs + t * ldx));
			for (int i = 0; i < n_groups; i++) {
				int g = half * n_groups + i;
				codes c[MAX_PANELS];
				for (int q = 0; q < n_panels; q++)
					c[q] = group_codes(bits, wide, p, g, at + q * panel_bytes);
				for (int t = 0; t < n_tokens; t++)
					for (int q = 0; q < n_panels; q++)
						s[q][t] = sums_add(bits, i + 1, s[q][t], c[q], xs[t * ldx].q + 4 * g);
			}
			for (int t = 0; t < n_tokens; t++)
				for (int q = 0; q < n_panels; q++)
					acc[q][t] = part_fma(part_of_sums(bits, s[q][t]),
							     part_mul(scale[q][half], part_set1(xs[t * ldx].d)), acc[q][t]);
		}
		for (int t = 0; t < n_tokens && pack_has_minimum(type); t++)
			for (int q = 0; q < n_panels; q++)
				acc[q][t] = part_fma(scale[q][1], part_set1(xs[t * ldx].ds), acc[q][t]);
	}
}

/* A tile of a product, whose sums are one run: out[q * n_tokens + t][r] of panel q. */
INLINE void packed_sums(enum wtype type, int wide, int n_panels, int n_tokens, const unsigned char *panel, int64_t panel_bytes,
			int64_t n_blocks, const struct act_block *x, int64_t ldx, float (*out)[PANEL_ROWS])
{
	for (int p = 0; p < PARTS; p++) {
		run_sums acc;
		packed_run(acc, type, wide, n_panels, n_tokens, p, panel, panel_bytes, 0, n_blocks, x, ldx);
		for (int q = 0; q < n_panels; q++)
			for (int t = 0; t < n_tokens; t++)
				part_store(out[q * n_tokens + t] + p * PART_LANES, acc[q][t]);
	}
}

/* What a tile of a fixed-point sum adds to. */
struct fixed_sums {
	int64_t run;                    /* blocks in one run, the last may have fewer */
	const float *gate;              /* (tokens), or NULL */
	int64_t (*total)[PANEL_ROWS];   /* (panels, tokens) */
	int64_t *bad;                   /* (tokens) */
	int n_rows;                     /* of all panels: those past them are not looked at */
};

/* ---- runs as integers ---- */

typedef void packed_careful(const unsigned char *panel, int64_t n_blocks, const struct act_block *x, float gate, int64_t run,
			    int n_rows, int64_t *total, int64_t *bad);

#ifndef PART_FIXED
/* total[i] += v[i], a run's sum times 2^32, to nearest even. Adds nothing and returns 0 when a lane is not finite or of
 * magnitude >= 2^56. */
INLINE int part_fixed(part v, int64_t *total)
{
	float x[PART_LANES];
	uint32_t top = 0;
	part_store(x, v);
	for (int i = 0; i < PART_LANES; i++) {
		uint32_t size = to_bits(x[i]) & 0x7fffffffu;
		top = size > top ? size : top;
	}
	if (top >= FIXED_TOO_LARGE)
		return 0;
	for (int i = 0; i < PART_LANES; i++)
		total[i] = (int64_t)((uint64_t)total[i] + (uint64_t)to_fixed(x[i] * 0x1p-32f));
	return 1;
}
#endif

/* The same of those lanes that can be added; counts the others among the first n_rows. */
static __attribute__((noinline)) void part_fixed_some(const float *v, int n_rows, int64_t *total, int64_t *bad)
{
	for (int i = 0; i < PART_LANES && i < n_rows; i++)
		if ((to_bits(v[i]) & 0x7fffffffu) >= FIXED_TOO_LARGE)
			*bad += 1;
		else
			total[i] = (int64_t)((uint64_t)total[i] + (uint64_t)to_fixed(v[i] * 0x1p-32f));
}

/* Of one panel and token, run by run as they come, any magnitude. */
INLINE void packed_careful_sums(enum wtype type, int wide, const unsigned char *panel, int64_t n_blocks, const struct act_block *x,
				float gate, int64_t run, int n_rows, int64_t *total, int64_t *bad)
{
	for (int p = 0; p < PARTS; p++)
		for (int64_t b = 0; b < n_blocks; b += run) {
			run_sums acc;
			packed_run(acc, type, wide, 1, 1, p, panel, 0, b, n_blocks - b < run ? n_blocks : b + run, x, 0);
			part v = part_mul(part_mul(acc[0][0], part_set1(gate)), part_set1(0x1p32f));
			if (!part_fixed(v, total + p * PART_LANES)) {
				float lanes[PART_LANES];
				part_store(lanes, v);
				part_fixed_some(lanes, n_rows - p * PART_LANES, total + p * PART_LANES, bad);
			}
		}
}

#define SPLIT_COARSE 0x1.8p13f    /* what is added to numbers: its last bit is 2^-10 */
#define SPLIT_FINE 0x1.8p-9f      /* 2^-32 */
enum { SPLIT_MOST_RUNS = 256 };   /* of magnitude 2^22 in 32 bits */

#ifndef PART_SPLIT
typedef uint32_t unfit_lanes;
#define unfit_none() 0u
#define unfit_any(unfit) ((unfit) >> 23 != 0)

/* See below. */
INLINE void part_split(part v, float first, float second, uint32_t *coarse, uint32_t *fine, unfit_lanes *unfit)
{
	float x[PART_LANES];
	part_store(x, v);
	for (int i = 0; i < PART_LANES; i++) {
		float t = x[i] + first, u = x[i] - (t - (first + second));
		coarse[i] += to_bits(t);
		fine[i] += to_bits(u);
		*unfit |= to_bits(t) ^ to_bits(first);
	}
}
#endif

/* A tile of a fixed-point sum: every run's sums become integers while they are in registers. With no conversion: v is rounded to a
 * multiple of 2^-10 by adding a number of which that is the last bit, and the rest to one of 2^-32 likewise, and the bits are summed
 * as integers: v's are their difference to those of the number added. So the sum rounds v to the nearest multiple of 2^-32, to even
 * (the coarse part is an even number of these). Anything of 2^12 and more changes an exponent: then the tile is done again,
 * carefully. */
INLINE void packed_fixed_sums(enum wtype type, int wide, int n_panels, int n_tokens, const unsigned char *panel,
			      int64_t panel_bytes, int64_t n_blocks, const struct act_block *x, int64_t ldx,
			      const struct fixed_sums *f, packed_careful *careful)
{
	uint32_t coarse[MAX_PANELS * PACKED_TILE_TOKENS][PANEL_ROWS], fine[MAX_PANELS * PACKED_TILE_TOKENS][PANEL_ROWS], n_runs = 0;
	unfit_lanes unfit = unfit_none();
	memset(coarse, 0, sizeof coarse[0] * (size_t)(n_panels * n_tokens));
	memset(fine, 0, sizeof fine[0] * (size_t)(n_panels * n_tokens));
	for (int p = 0; p < PARTS; p++)
		for (int64_t b = 0; b < n_blocks; b += f->run) {
			run_sums acc;
			packed_run(acc, type, wide, n_panels, n_tokens, p, panel, panel_bytes, b,
				   n_blocks - b < f->run ? n_blocks : b + f->run, x, ldx);
			n_runs += p == 0;
			for (int q = 0; q < n_panels; q++)
				for (int t = 0; t < n_tokens; t++) {
					int i = q * n_tokens + t;
					part v = f->gate ? part_mul(acc[q][t], part_set1(f->gate[t])) : acc[q][t];
					part_split(v, SPLIT_COARSE, SPLIT_FINE, coarse[i] + p * PART_LANES, fine[i] + p * PART_LANES, &unfit);
				}
		}
	if (__builtin_expect(unfit_any(unfit) || n_runs > SPLIT_MOST_RUNS, 0)) {
		for (int q = 0; q < n_panels; q++)
			for (int t = 0; t < n_tokens; t++)
				careful(panel + q * panel_bytes, n_blocks, x + t * ldx, f->gate ? f->gate[t] : 1.0f, f->run,
					f->n_rows - q * PANEL_ROWS, f->total[q * n_tokens + t], &f->bad[t]);
		return;
	}
	for (int i = 0; i < n_panels * n_tokens; i++)
		for (int r = 0; r < PANEL_ROWS; r++)
			f->total[i][r] = ((int64_t)(int32_t)(coarse[i][r] - n_runs * to_bits(SPLIT_COARSE)) * (1 << 22)) +
					 (int32_t)(fine[i][r] - n_runs * to_bits(SPLIT_FINE));
}

/* A panel's codes a byte each, its scales floats. */
INLINE void spread(enum wtype type, const unsigned char *panel, int64_t n_blocks, unsigned char *to)
{
	const int bits = pack_bits(type);
	for (int64_t b = 0; b < n_blocks; b++, to += WIDE_BLOCK_BYTES)
		for (int p = 0; p < PARTS; p++) {
			const unsigned char *at = block_codes(type, 0, panel, b);
			float *head = (float *)(void *)(to + PACK_GROUPS * PLANE_BYTES) + p * PART_LANES;
			part scale, second;
			block_head(type, 0, p, panel, b, &scale, &second);
			for (int g = 0; g < PACK_GROUPS; g++)
				codes_store(to + g * PLANE_BYTES + p * PART_LANES * 4, group_codes(bits, 0, p, g, at));
			part_store(head, scale);
			part_store(head + LANES, second);
		}
}

typedef void packed_tile(const unsigned char *panel, int64_t panel_bytes, int64_t n_blocks, const struct act_block *x,
			 int64_t ldx, float (*out)[PANEL_ROWS]);
typedef void packed_fixed_tile(const unsigned char *panel, int64_t panel_bytes, int64_t n_blocks, const struct act_block *x,
			       int64_t ldx, const struct fixed_sums *to);
enum panel_kind { PACKED_PANEL, PACKED_PAIR, PACKED_GROUP, WIDE_PANEL, WIDE_PAIR, PANEL_KINDS };

#define IS_WIDE(kind) (kind == WIDE_PANEL || kind == WIDE_PAIR)
#define PANELS_OF(kind) (kind == PACKED_GROUP ? GROUP_PANELS : kind == WIDE_PAIR || kind == PACKED_PAIR ? 2 : 1)

struct packed_kind {
	packed_tile *tile[PANEL_KINDS][TILE_SIZES];      /* [][tokens] */
	packed_fixed_tile *fixed_tile[PANEL_KINDS][TILE_SIZES];
	void (*spread)(const unsigned char *panel, int64_t n_blocks, unsigned char *to);
};

#define PACKED_TILE(type, kind, n)                                                                                        \
	static void tile_##type##_##kind##_##n(const unsigned char *panel, int64_t panel_bytes, int64_t n_blocks,         \
					       const struct act_block *x, int64_t ldx, float (*out)[PANEL_ROWS])          \
	{                                                                                                                 \
		packed_sums(WTYPE_##type, IS_WIDE(kind), PANELS_OF(kind), n, panel, panel_bytes, n_blocks, x, \
			    ldx, out);                                                                                    \
	}                                                                                                                 \
	static void fixed_##type##_##kind##_##n(const unsigned char *panel, int64_t panel_bytes, int64_t n_blocks,        \
						const struct act_block *x, int64_t ldx, const struct fixed_sums *to)      \
	{                                                                                                                 \
		packed_fixed_sums(WTYPE_##type, IS_WIDE(kind), PANELS_OF(kind), n, panel, panel_bytes, n_blocks, \
				  x, ldx, to, IS_WIDE(kind) ? careful_wide_##type : careful_##type);                      \
	}
#if PACKED_TILE_TOKENS == 8
#define PACKED_SIZES_ONE(X, type)                                                                                       \
	X(type, PACKED_GROUP, 1) X(type, PACKED_GROUP, 2)                                                               \
	X(type, PACKED_PANEL, 1) X(type, PACKED_PANEL, 2) X(type, PACKED_PANEL, 3) X(type, PACKED_PANEL, 4)             \
	X(type, PACKED_PANEL, 5) X(type, PACKED_PANEL, 6) X(type, PACKED_PANEL, 7) X(type, PACKED_PANEL, 8)             \
	X(type, WIDE_PANEL, 5) X(type, WIDE_PANEL, 6) X(type, WIDE_PANEL, 7) X(type, WIDE_PANEL, 8)
#elif PACKED_TILE_TOKENS == 4
#define PACKED_SIZES_ONE(X, type)                                                                                       \
	X(type, PACKED_GROUP, 1)                                                                                        \
	X(type, PACKED_PANEL, 1) X(type, PACKED_PANEL, 2) X(type, PACKED_PANEL, 3) X(type, PACKED_PANEL, 4)             \
	X(type, WIDE_PANEL, 3) X(type, WIDE_PANEL, 4)
#else
#define PACKED_SIZES_ONE(X, type) X(type, PACKED_PANEL, 1) X(type, WIDE_PANEL, 1)
#endif
#ifdef PACKED_PAIR_TOKENS   /* 6 */
#define PACKED_SIZES(X, type)                                                                                           \
	PACKED_SIZES_ONE(X, type) X(type, WIDE_PAIR, 4) X(type, WIDE_PAIR, 5) X(type, WIDE_PAIR, 6)                     \
	X(type, PACKED_PAIR, 3) X(type, PACKED_PAIR, 4) X(type, PACKED_PAIR, 5) X(type, PACKED_PAIR, 6)
#else
#define PACKED_PAIR_TOKENS 0
#define PACKED_SIZES(X, type) PACKED_SIZES_ONE(X, type)
#endif
#define PACKED_TYPES(X) X(Q4_0) X(Q4_1) X(Q4_K) X(Q5_0) X(Q5_1) X(Q5_K) X(Q6_K) X(Q8_0)
#define PACKED_CAREFUL(name, type, wide)                                                                                    \
	static void name(const unsigned char *panel, int64_t n_blocks, const struct act_block *x, float gate, int64_t run, \
			 int n_rows, int64_t *total, int64_t *bad)                                                        \
	{                                                                                                                 \
		packed_careful_sums(WTYPE_##type, wide, panel, n_blocks, x, gate, run, n_rows, total, bad);               \
	}
#define PACKED_FUNCTIONS(type)                                                                            \
	PACKED_CAREFUL(careful_##type, type, 0)                                                           \
	PACKED_CAREFUL(careful_wide_##type, type, 1)                                                      \
	PACKED_SIZES(PACKED_TILE, type)                                                                   \
	static void spread_##type(const unsigned char *panel, int64_t n_blocks, unsigned char *to)        \
	{                                                                                                 \
		spread(WTYPE_##type, panel, n_blocks, to);                                                \
	}
PACKED_TYPES(PACKED_FUNCTIONS)

#define PACKED_ENTRY(type, kind, n) \
	.tile[kind][n] = tile_##type##_##kind##_##n, .fixed_tile[kind][n] = fixed_##type##_##kind##_##n,
#define PACKED_KIND(type) [WTYPE_##type] = { PACKED_SIZES(PACKED_ENTRY, type) .spread = spread_##type },
static const struct packed_kind packed_kinds[WTYPE_COUNT] = { PACKED_TYPES(PACKED_KIND) };

/* ---- a matrix ---- */

/* A panel, or two, and the tokens that are multiplied with it before the next one. */
struct packed_work {
	const struct packed_kind *kind;
	enum panel_kind panels;
	const unsigned char *panel;
	int64_t panel_bytes;
	int n_panels, n_rows, max_tokens;
	const struct act_block *x;
	int64_t ldx, n, n_blocks;
};

static int64_t chunk_tokens(const struct weight *w)
{
	int64_t tokens = CHUNK_BLOCKS / (w->cols / PACK_BLOCK + 1) / CHUNK_UNIT * CHUNK_UNIT;
	return tokens > CHUNK_MIN_TOKENS ? tokens : CHUNK_MIN_TOKENS;
}

/* What n tokens take at a time of n_rows rows that are left. With 5 and 6 bits a block of several panels as they are packed needs
 * too many registers for more than one token. */
static enum panel_kind panels_for(enum pack_form form, int64_t n, int64_t n_rows)
{
	int is_plain = form == PACK_U4 || form == PACK_U8;
	if (n >= WIDE_TOKENS)
		return PACKED_PAIR_TOKENS && n_rows > PANEL_ROWS ? WIDE_PAIR : WIDE_PANEL;
	if ((is_plain ? n <= GROUP_TOKENS : n == 1 && GROUP_TOKENS > 1) && n_rows > (GROUP_PANELS - 1) * PANEL_ROWS)
		return PACKED_GROUP;
	if (is_plain && n > GROUP_TOKENS && n <= PACKED_PAIR_TOKENS && n_rows > PANEL_ROWS)
		return PACKED_PAIR;
	return PACKED_PANEL;
}

/* The panels from row r on, of rows up to `end`. */
static struct packed_work packed_work(const struct weight *w, int64_t r, int64_t end, const struct act_block *x, int64_t ldx,
				      int64_t n, float *scratch)
{
	const struct packed_kind *kind = &packed_kinds[w->type];
	int64_t bytes = pack_panel_bytes(w->type, w->cols), blocks = w->cols / PACK_BLOCK;
	const unsigned char *panel = w->data + r / PANEL_ROWS * bytes;
	enum panel_kind panels = panels_for(w->form, n, end - r);
	struct packed_work work = { .panel = panel, .panel_bytes = bytes, .x = x, .ldx = ldx, .n = n, .n_blocks = blocks, .kind = kind,
				    .panels = panels, .max_tokens = panels == WIDE_PAIR ? PACKED_PAIR_TOKENS : PACKED_TILE_TOKENS };
	work.n_panels = PANELS_OF(work.panels);
	work.n_rows = (int)(end - r < work.n_panels * PANEL_ROWS ? end - r : work.n_panels * PANEL_ROWS);
	if (IS_WIDE(panels)) {
		work.panel_bytes = blocks * WIDE_BLOCK_BYTES;
		work.panel = (unsigned char *)scratch;
		for (int q = 0; q < work.n_panels; q++)
			kind->spread(panel + q * bytes, blocks, (unsigned char *)scratch + q * work.panel_bytes);
	}
	return work;
}

/* Tokens of the next tile: as few tiles as there can be, of nearly the same size. */
static int64_t tile_tokens(const struct packed_work *work, int64_t n_left)
{
	int64_t tiles = (n_left + work->max_tokens - 1) / work->max_tokens;
	return (n_left + tiles - 1) / tiles;
}

/* Rows of panel q that are wanted. */
static int panel_rows(const struct packed_work *work, int q)
{
	return work->n_rows - q * PANEL_ROWS < PANEL_ROWS ? work->n_rows - q * PANEL_ROWS : PANEL_ROWS;
}

/* y and bias of the first row and token of the work. */
static void packed_panel(const struct packed_work *work, const float *bias, float *y, int64_t ldy)
{
	float out[MAX_PANELS * PACKED_TILE_TOKENS][PANEL_ROWS];
	for (int64_t b = 0, n; b < work->n; b += n) {
		n = tile_tokens(work, work->n - b);
		work->kind->tile[work->panels][n](work->panel, work->panel_bytes, work->n_blocks, work->x + b * work->ldx, work->ldx,
						  out);
		for (int q = 0; q < work->n_panels; q++)
			for (int64_t t = 0; t < n; t++)
				for (int i = 0, r = q * PANEL_ROWS; i < panel_rows(work, q); i++, r++)
					y[(b + t) * ldy + r] = bias ? out[q * n + t][i] + bias[r] : out[q * n + t][i];
	}
}

static void packed_matmul(const struct weight *w, int64_t begin, int64_t end, const float *bias, const struct act_block *x,
			  int64_t ldx, int64_t n, float *y, int64_t ldy, float *scratch)
{
	int64_t chunk = chunk_tokens(w);
	for (int64_t b = 0; b < n; b += chunk)
		for (int64_t r = begin, rows; r < end; r += rows) {
			struct packed_work work = packed_work(w, r, end, x + b * ldx, ldx, n - b < chunk ? n - b : chunk, scratch);
			packed_panel(&work, bias ? bias + r : NULL, y + b * ldy + r, ldy);
			rows = work.n_rows;
		}
}

/* acc += the runs of n tokens from b on; bad likewise. */
static void packed_tile_fixed(const struct packed_work *work, int64_t b, int64_t n, int64_t run, const float *gate,
			      int64_t *acc, int64_t lda, int64_t *bad)
{
	int64_t total[MAX_PANELS * PACKED_TILE_TOKENS][PANEL_ROWS];
	struct fixed_sums sums = { .run = run, .gate = gate ? gate + b : NULL, .total = total, .bad = bad + b, .n_rows = work->n_rows };
	memset(total, 0, sizeof total[0] * (size_t)(work->n_panels * n));
	work->kind->fixed_tile[work->panels][n](work->panel, work->panel_bytes, work->n_blocks, work->x + b * work->ldx, work->ldx,
						&sums);
	for (int q = 0; q < work->n_panels; q++)
		for (int64_t t = 0; t < n; t++)
			for (int i = 0, r = q * PANEL_ROWS; i < panel_rows(work, q); i++, r++) {
				int64_t *to = &acc[(b + t) * lda + r];
				*to = (int64_t)((uint64_t)*to + (uint64_t)total[q * n + t][i]);
			}
}

static void packed_fixed(const struct weight *w, int64_t begin, int64_t end, int64_t run, const float *gate,
			 const struct act_block *x, int64_t ldx, int64_t n, int64_t *acc, int64_t lda, int64_t *bad,
			 float *scratch)
{
	int64_t chunk = chunk_tokens(w), run_blocks = (run + PACK_BLOCK - 1) / PACK_BLOCK;
	for (int64_t b = 0; b < n; b += chunk)
		for (int64_t r = begin, rows; r < end; r += rows) {
			struct packed_work work = packed_work(w, r, end, x + b * ldx, ldx, n - b < chunk ? n - b : chunk, scratch);
			rows = work.n_rows;
			for (int64_t t = 0, n_tile; t < work.n; t += n_tile) {
				n_tile = tile_tokens(&work, work.n - t);
				packed_tile_fixed(&work, t, n_tile, run_blocks, gate ? gate + b : NULL, acc + b * lda + r, lda, bad + b);
			}
		}
}
