/* times.h - how long each of many things took, and how the programs of this folder end badly. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <time.h>

_Noreturn void die(const char *what);
int64_t now_ns(clockid_t clock);

/* Zeroed: none yet. */
struct times {
	int64_t *ns;
	size_t n;
};
void times_note(struct times *t, int64_t ns);
/* Sorts; `part` of them, 0 to 1, took no longer. */
int64_t times_part(struct times *t, double part);
/* {"n": ..., "seconds": ..., "p50": ..., "p99": ... in microseconds; the end is the caller's. */
void times_print(struct times *t, double seconds);
