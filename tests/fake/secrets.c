/* secrets.c - see secrets.h. */
#include "secrets.h"
#include <stddef.h>
#include <string.h>

int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
    void (*on_free)(const volatile void *)) __attribute__((weak));
size_t __sanitizer_get_allocated_size(const volatile void *p) __attribute__((weak));

static bool installed;
static unsigned freed;

static void on_malloc(const volatile void *p, size_t size)
{
	(void)p;
	(void)size;
}

/* Runs before the memory is handed back. */
static void on_free(const volatile void *p)
{
	if (p && memmem((const void *)p, __sanitizer_get_allocated_size(p), "SECRET", 6))
		freed++;
}

bool secrets_watched(void)
{
	return __sanitizer_install_malloc_and_free_hooks && __sanitizer_get_allocated_size;
}

void secrets_watch(void)
{
	if (!installed && secrets_watched())
		__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
	installed = true;
	freed = 0;
}

unsigned secrets_freed(void)
{
	return freed;
}
