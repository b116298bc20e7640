/* secret.h - text that stays secret for as long as it lives: a token, a private key.
 *
 * It lies in pages where nothing but secrets are: locked (never in swap), in no core dump, empty in
 * a forked child.  What is freed is wiped at once.  Secrets of up to 4 KiB share 32 KiB of such
 * pages, in steps of 64 bytes; a longer one has pages of its own.  If the kernel lets us lock no
 * more (RLIMIT_MEMLOCK) it is said once, and the rest stays.  Copies on the way, which live for a
 * moment, are on the heap: that one forgets, too (base/heap.h).
 */
#pragma once
#include <stddef.h>

/* A copy, with a NUL behind it.  On any thread. */
char *secret_new(const char *bytes, size_t len) __attribute__((returns_nonnull));
char *secret_dup(const char *s); /* NULL stays NULL */
void secret_free(char *s);       /* NULL is allowed; on any thread */
