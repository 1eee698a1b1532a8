#include "runtime/printable.h"

#include <string.h>

const char *printable(char room[PRINTABLE_BYTES], const char *text, uint64_t bytes)
{
	uint64_t n = bytes < PRINTABLE_BYTES ? bytes : PRINTABLE_BYTES - 1;
	for (uint64_t i = 0; i < n; i++)
		room[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	if (n < bytes)
		memcpy(room + n - 3, "...", 3);
	room[n] = '\0';
	return room;
}
