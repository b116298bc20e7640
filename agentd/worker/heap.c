/* heap.c - the heap forgets: what is freed is wiped first, whoever frees it.
 *
 * A token or key passes through grpc, protobuf, OpenSSL, jansson, libevent and libc.  Each of them
 * makes copies that it frees and does not wipe, and a freed block keeps its bytes until somebody
 * else writes there.  So the worker has a free() and a realloc() of its own.  The linker gives them
 * to all: a program's own symbols come before those of libraries.
 *
 * Large blocks are pushes on their way to Envoys; what holds a secret is small.
 *
 * realloc() of libc may move a block and leave the old one as it was; ours moves by hand.
 *
 * Not under a sanitizer, whose own heap keeps what was freed to find who uses it still.
 */
#include "heap.h"
#include "common/seccomp.h"
#include <malloc.h>
#include <string.h>

#ifndef SECCOMP_SANITIZED
void __libc_free(void *p); /* glibc's, under the name that stays its own */

__attribute__((visibility("default"))) void free(void *p)
{
	const size_t size = p ? malloc_usable_size(p) : 0;

	if (size && size <= HEAP_WIPED_MAX)
		explicit_bzero(p, size);
	__libc_free(p);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t size)
{
	size_t have = p ? malloc_usable_size(p) : 0;

	if (p && size <= have && size >= have / 2 && size)
		return p;
	if (p && !size) {
		free(p);
		return NULL;
	}
	void *moved = malloc(size);
	if (!moved || !p)
		return moved;
	memcpy(moved, p, size < have ? size : have);
	free(p);
	return moved;
}
#endif
