/* heap.h - the heap forgets: what is freed, by us or by a library, is wiped first.
 *
 * There is nothing to call: heap.c has the worker's free() and realloc(). */
#pragma once
#include <stdlib.h>

enum { HEAP_WIPED_MAX = 64 << 10 }; /* bytes of a block that is wiped */
