/* times.c - all values are kept, and sorted when somebody asks. */
#include "times.h"

#include <stdio.h>
#include <stdlib.h>

void die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

int64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void times_note(struct times *t, int64_t ns)
{
	if (!(t->n & (t->n + 1)))
		t->ns = realloc(t->ns, (2 * t->n + 2) * sizeof(*t->ns));
	if (!t->ns)
		die("no memory");
	t->ns[t->n++] = ns;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

int64_t times_part(struct times *t, double part)
{
	if (!t->n)
		die("nothing was measured");
	qsort(t->ns, t->n, sizeof(*t->ns), compare);
	return t->ns[(size_t)((double)(t->n - 1) * part)];
}

void times_print(struct times *t, double seconds)
{
	printf("{\"n\": %zu, \"seconds\": %.3f, \"p50\": %.1f, \"p99\": %.1f", t->n, seconds,
	    (double)times_part(t, 0.50) / 1e3, (double)times_part(t, 0.99) / 1e3);
}
