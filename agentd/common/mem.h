/* mem.h - ownership: scope clean-up, explicit transfer, and memory that is either there or fatal.
 *
 * Exhaustion is not an error we handle: mem_* abort.  Sizes that a peer can choose are bounded
 * before they get here.
 */
#pragma once
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* An owning local: freed or closed when it leaves scope.  Always initialise it. */
#define auto_free __attribute__((cleanup(mem_freep)))
#define auto_close __attribute__((cleanup(mem_closep)))

/* Move ownership out of a variable: `*out = take(p);` */
#define take(p)                                                                                    \
	({                                                                                         \
		__typeof__(p) taken_ = (p);                                                        \
		(p) = NULL;                                                                        \
		taken_;                                                                            \
	})
#define take_fd(fd)                                                                                \
	({                                                                                         \
		int taken_ = (fd);                                                                 \
		(fd) = -1;                                                                         \
		taken_;                                                                            \
	})

void *mem_zalloc(size_t size) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *mem_realloc(void *p, size_t size) __attribute__((returns_nonnull));
void *mem_dup(const void *data, size_t size) __attribute__((malloc, returns_nonnull));
char *mem_strdup(const char *s) __attribute__((malloc)); /* NULL stays NULL */
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2), malloc));

/* Overwrite and free a string that held a secret; NULL is allowed. */
void mem_wipe_free(char *secret);
/* The same for what malloc() gave, whatever it holds: for libraries that let others free. */
void mem_wipe_free_block(void *p);

static inline void mem_freep(void *p)
{
	free(*(void **)p);
}

/* -1: it is closed, or never was open. */
static inline void mem_closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
