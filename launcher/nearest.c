#include "launcher/nearest.h"

#include <string.h>

static int least(int a, int b) { return a < b ? a : b; }

int nearest_distance(const char *a, const char *b)
{
	int d[NEAREST_MAX_BYTES + 1][NEAREST_MAX_BYTES + 1];
	int n = (int)strnlen(a, NEAREST_MAX_BYTES), m = (int)strnlen(b, NEAREST_MAX_BYTES);
	for (int i = 0; i <= n; i++)
		d[i][0] = i;
	for (int j = 0; j <= m; j++)
		d[0][j] = j;
	for (int i = 1; i <= n; i++)
		for (int j = 1; j <= m; j++) {
			int same = a[i - 1] == b[j - 1];
			d[i][j] = least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + !same);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
		}
	return d[n][m];
}

void nearest_offer(struct nearest *n, const char *found, const char *known)
{
	int distance = nearest_distance(found, known);
	if (n->word && distance >= n->distance)
		return;
	n->word = known;
	n->distance = distance;
}

const char *nearest_word(const struct nearest *n, const char *found)
{
	int allowed = (int)strnlen(found, NEAREST_MAX_BYTES) / 3;
	return n->word && n->distance <= (allowed < 1 ? 1 : allowed) ? n->word : NULL;
}
