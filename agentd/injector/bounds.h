/* bounds.h - what a JSON text would cost, before it is read: jansson takes 50 to 300 bytes for a
 * value of two.  Pure. */
#pragma once
#include <stddef.h>

struct err;

/* Values and keys together.  A pod of 15 containers with 1,000 variables each has fewer. */
enum { BOUNDS_DEPTH_MAX = 64, BOUNDS_VALUES_MAX = 100000 };

/* -1: deeper, or more.  Whether it is JSON at all is the reader's matter. */
int bounds_check(const char *text, size_t len, struct err *e);
