/* owners.c - a heap that knows who asked for each block; linked into a worker it takes the place of
 * base/heap.c.
 *
 * Each allocation notes the functions that led to it.  owners.py reads `owners_stacks` out of the
 * running process and tells what is alive, by owner.  Nothing here allocates.  Blocks are counted
 * with malloc's own word.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unwind.h>

enum { DEPTH = 30, STACKS = 1 << 16, BLOCKS = 1 << 20, WORD = 8 };

/* As owners.py reads it. */
struct owners_stack {
	int64_t blocks, bytes; /* alive */
	uint64_t frames[DEPTH];
};
struct owners_stack owners_stacks[STACKS];

struct block {
	uintptr_t at; /* 0: free */
	uint32_t size, stack;
};
static struct block blocks[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool busy;

/* glibc's, under the names that stay its own. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);

struct walk {
	size_t n;
	uint64_t frames[DEPTH];
};

static _Unwind_Reason_Code on_frame(struct _Unwind_Context *context, void *ctx)
{
	struct walk *w = ctx;

	if (w->n == DEPTH)
		return _URC_END_OF_STACK;
	w->frames[w->n++] = _Unwind_GetIP(context);
	return _URC_NO_REASON;
}

static bool is_same(const struct owners_stack *s, const struct walk *w)
{
	for (size_t i = 0; i < DEPTH; i++)
		if (s->frames[i] != w->frames[i])
			return false;
	return true;
}

static uint32_t find_stack(const struct walk *w)
{
	uint64_t h = 0;
	size_t at;

	for (size_t i = 0; i < DEPTH; i++)
		h = (h ^ w->frames[i]) * 0x100000001b3 + (h >> 29);
	for (size_t tries = 0; tries < STACKS; tries++) {
		at = (h + tries) % STACKS;
		if (!owners_stacks[at].frames[0])
			for (size_t i = 0; i < DEPTH; i++)
				owners_stacks[at].frames[i] = w->frames[i];
		if (is_same(&owners_stacks[at], w))
			return (uint32_t)at;
	}
	abort(); /* STACKS is too small */
}

static size_t home_of(uintptr_t at)
{
	return (at >> 4) * 0x9e3779b97f4a7c15 >> 44;
}
_Static_assert(BLOCKS == 1 << (64 - 44), "home_of() is in the table");

static void *note(void *p)
{
	struct walk w = {0};
	const size_t size = p && !busy ? malloc_usable_size(p) + WORD : 0;

	if (!size)
		return p;
	busy = true;
	_Unwind_Backtrace(on_frame, &w);
	pthread_mutex_lock(&lock);
	const uint32_t stack = find_stack(&w);
	size_t i = home_of((uintptr_t)p);

	while (blocks[i].at)
		i = (i + 1) % BLOCKS;
	blocks[i] = (struct block){(uintptr_t)p, (uint32_t)size, stack};
	owners_stacks[stack].blocks++;
	owners_stacks[stack].bytes += (int64_t)size;
	pthread_mutex_unlock(&lock);
	busy = false;
	return p;
}

/* What lies behind it moves up, unless its home is behind it, too. */
static void take_out(size_t hole)
{
	for (size_t i = (hole + 1) % BLOCKS; blocks[i].at; i = (i + 1) % BLOCKS) {
		const size_t home = home_of(blocks[i].at);

		if ((i - home) % BLOCKS >= (i - hole) % BLOCKS) {
			blocks[hole] = blocks[i];
			hole = i;
		}
	}
	blocks[hole].at = 0;
}

static void forget(const void *p)
{
	size_t i = home_of((uintptr_t)p);

	pthread_mutex_lock(&lock);
	while (blocks[i].at && blocks[i].at != (uintptr_t)p)
		i = (i + 1) % BLOCKS;
	if (blocks[i].at) {
		owners_stacks[blocks[i].stack].blocks--;
		owners_stacks[blocks[i].stack].bytes -= blocks[i].size;
		take_out(i);
	}
	pthread_mutex_unlock(&lock);
}

void *malloc(size_t size)
{
	return note(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
	return note(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
	if (p)
		forget(p);
	return note(__libc_realloc(p, size));
}

void *memalign(size_t align, size_t size)
{
	return note(__libc_memalign(align, size));
}

void *aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
	*out = memalign(align, size);
	return *out ? 0 : 12; /* ENOMEM */
}

void free(void *p)
{
	if (p)
		forget(p);
	__libc_free(p);
}
