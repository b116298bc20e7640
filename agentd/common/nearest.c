/* nearest.c - Levenshtein's distance, of words no longer than our names. */
#include "nearest.h"
#include <string.h>

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

unsigned nearest_distance(const char *a, const char *b)
{
	unsigned row[64], n = (unsigned)strnlen(b, 63);

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; i < 64 && a[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= n; j++) {
			unsigned above = row[j];

			row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[n];
}

void nearest_consider(struct nearest *n, const char *name)
{
	unsigned d = nearest_distance(n->wanted, name);

	if (!n->name || d < n->distance) {
		n->name = name;
		n->distance = d;
	}
}
