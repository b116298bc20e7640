/* bounds.h - what a JSON text would cost, before it is read: jansson takes 50 to 300 bytes for a
 * value of two, and what is done with a pod is so much for each of its values (security-rules.md
 * G9).  Pure. */
#pragma once
#include <stddef.h>

struct err;

/* Values and keys together.  A pod of 5 containers with 1,000 variables each has fewer. */
enum { BOUNDS_DEPTH_MAX = 64, BOUNDS_VALUES_MAX = 30000 };

/* -1: deeper, or more than these together with the `values` of earlier texts, which grow.  Whether
 * it is JSON at all is the reader's matter. */
int bounds_check(const char *text, size_t len, unsigned *values, struct err *e);
