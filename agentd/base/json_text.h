/* json_text.h - JSON as text, with each number in its shortest form.
 *
 * jansson writes 0.1 as 0.10000000000000001. Kubernetes reads a quantity digit by digit, and takes
 * that for more than 0.1. */
#pragma once
#include <jansson.h>

/* As json_dumps(): the caller frees it; NULL: `v` cannot be written. A real number has the fewest
 * digits that read as the same double. */
char *json_text(const json_t *v, size_t flags);
