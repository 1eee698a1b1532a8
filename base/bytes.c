#include "base/bytes.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int reserve(struct bytes *b, size_t extra)
{
	size_t need;
	if (b->error)
		return 0;
	if (__builtin_add_overflow(b->size, extra, &need) || need == SIZE_MAX) {
		b->error = ERR(MEMORY, "a byte string overflows");
		return 0;
	}
	if (need + 1 <= b->capacity)
		return 1;
	size_t capacity = b->capacity ? b->capacity : 256;
	while (capacity < need + 1)
		capacity = capacity > SIZE_MAX / 2 ? need + 1 : capacity * 2;
	b->error = mem_grow(&b->data, capacity, 1, "byte string");
	if (b->error)
		return 0;
	b->capacity = capacity;
	return 1;
}

void bytes_put(struct bytes *b, const void *data, size_t size)
{
	if (!reserve(b, size))
		return;
	if (size)
		memcpy(b->data + b->size, data, size);
	b->size += size;
	b->data[b->size] = 0;
}

void bytes_put_u64(struct bytes *b, uint64_t v)
{
	unsigned char le[8];
	for (int i = 0; i < 8; i++)
		le[i] = (unsigned char)(v >> (8 * i));
	bytes_put(b, le, 8);
}

void bytes_put_u32(struct bytes *b, uint32_t v)
{
	unsigned char le[4];
	for (int i = 0; i < 4; i++)
		le[i] = (unsigned char)(v >> (8 * i));
	bytes_put(b, le, 4);
}

void bytes_put_f64(struct bytes *b, double v)
{
	uint64_t bits;
	memcpy(&bits, &v, 8);
	bytes_put_u64(b, bits);
}

void bytes_put_string(struct bytes *b, const char *text)
{
	size_t size = text ? strlen(text) : 0;
	if (size > UINT32_MAX && !b->error)
		b->error = ERR(MEMORY, "a string of %zu bytes is too long to send", size);
	bytes_put_u32(b, (uint32_t)size);
	bytes_put(b, text, size);
}

void bytes_printf(struct bytes *b, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int size = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (size < 0 || !reserve(b, (size_t)size))
		return;
	va_start(args, format);
	vsnprintf((char *)b->data + b->size, (size_t)size + 1, format, args);
	va_end(args);
	b->size += (size_t)size;
}

void bytes_clear(struct bytes *b)
{
	b->size = 0;
	b->error = ERR_OK;
	if (b->data)
		b->data[0] = 0;
}

void bytes_free(struct bytes *b)
{
	mem_free(b->data);
	*b = (struct bytes){ 0 };
}

void reader_init(struct reader *r, const char *name, const void *data, size_t size)
{
	*r = (struct reader){ .data = data, .size = size, .name = name };
}

const void *reader_get(struct reader *r, size_t size)
{
	if (r->error)
		return NULL;
	if (size > r->size - r->at) {
		r->error = ERR(WORK, "%s: ends at byte %zu of the %zu + %zu it should have", r->name, r->size, r->at, size);
		return NULL;
	}
	const void *data = r->data + r->at;
	r->at += size;
	return data;
}

uint64_t reader_u64(struct reader *r)
{
	const unsigned char *le = reader_get(r, 8);
	uint64_t v = 0;
	for (int i = 7; le && i >= 0; i--)
		v = v << 8 | le[i];
	return v;
}

uint32_t reader_u32(struct reader *r)
{
	const unsigned char *le = reader_get(r, 4);
	uint32_t v = 0;
	for (int i = 3; le && i >= 0; i--)
		v = v << 8 | le[i];
	return v;
}

double reader_f64(struct reader *r)
{
	uint64_t bits = reader_u64(r);
	double v;
	memcpy(&v, &bits, 8);
	return v;
}

void reader_string(struct reader *r, char *room, size_t capacity)
{
	size_t size = reader_u32(r);
	const char *text = reader_get(r, size);
	room[0] = '\0';
	if (!text)
		return;
	if (size >= capacity || memchr(text, 0, size)) {
		r->error = ERR(WORK, "%s: a string of %zu bytes does not fit or holds a zero byte", r->name, size);
		return;
	}
	memcpy(room, text, size);
	room[size] = '\0';
}
