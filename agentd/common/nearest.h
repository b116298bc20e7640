/* nearest.h - the known name that a misspelt one is nearest to, for messages. */
#pragma once

struct nearest {
	const char *wanted, *name; /* `name` NULL: none was considered yet */
	unsigned distance;
};
void nearest_consider(struct nearest *n, const char *name); /* which must live as long */
unsigned nearest_distance(const char *a, const char *b);    /* Levenshtein's */
