#include "parallel/comm_items.h"

size_t comm_type_bytes(enum comm_type type)
{
	static const size_t bytes[] = {
		[COMM_U8] = 1, [COMM_I32] = 4, [COMM_U32] = 4, [COMM_I64] = 8, [COMM_U64] = 8, [COMM_F32] = 4,
	};
	return bytes[type];
}

#define ADD(a, b) ((a) + (b))
#define GREATER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define COMBINE_ALL(type, combine)                                              \
	do {                                                                    \
		type *into = to;                                                \
		const type *in = from;                                          \
		for (size_t i = 0; i < n; i++)                                  \
			into[i] = (type)combine(into[i], in[i]);                \
	} while (0)
#define COMBINE_BY(type, unsigned_type)                                         \
	do {                                                                    \
		if (op == COMM_SUM)                                             \
			COMBINE_ALL(unsigned_type, ADD);                        \
		else if (op == COMM_MAX)                                        \
			COMBINE_ALL(type, GREATER);                             \
		else                                                            \
			COMBINE_ALL(type, SMALLER);                             \
	} while (0)

/* Sums of signed integers wrap: they are added as unsigned ones. */
void comm_combine(void *to, const void *from, size_t n, enum comm_type type, enum comm_op op)
{
	switch (type) {
	case COMM_U8: COMBINE_BY(uint8_t, uint8_t); break;
	case COMM_I32: COMBINE_BY(int32_t, uint32_t); break;
	case COMM_U32: COMBINE_BY(uint32_t, uint32_t); break;
	case COMM_I64: COMBINE_BY(int64_t, uint64_t); break;
	case COMM_U64: COMBINE_BY(uint64_t, uint64_t); break;
	case COMM_F32: COMBINE_BY(float, float); break;
	}
}
