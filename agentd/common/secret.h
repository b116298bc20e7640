/* secret.h - text that stays secret for as long as it lives: a token, a private key.
 *
 * Each has pages of its own: locked (never in swap), in no core dump, empty in a forked child, and
 * given back to the kernel when freed, which wipes them.  That is 4 KiB for each.  If the kernel
 * lets us lock no more (RLIMIT_MEMLOCK) it is said once, and the rest stays.  Copies on the way,
 * which live for a moment, are on the heap: that one forgets, too (base/heap.h).
 */
#pragma once
#include <stddef.h>

/* A copy, with a NUL behind it.  On any thread. */
char *secret_new(const char *bytes, size_t len) __attribute__((returns_nonnull));
char *secret_dup(const char *s); /* NULL stays NULL */
void secret_free(char *s);       /* NULL is allowed */
