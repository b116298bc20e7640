/* heap_test.c - a freed block holds nothing of what it held.  Under a sanitizer there is nothing to
 * see: `make test` runs the release build, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/seccomp.h"
#include "worker/heap.h"
#include <malloc.h>
#include <stdbool.h>

#ifndef SECCOMP_SANITIZED
/* Behind the two words that libc keeps in a freed block. */
enum { LIST = 2 * sizeof(void *) };

/* What libc gives out again, without a look at it by the compiler. */
static bool is_clean(void *(*again)(size_t), size_t size)
{
	volatile char *p = again(size);
	bool clean = true;

	for (size_t i = LIST; i < size; i++)
		clean = clean && p[i] != 's';
	free((void *)p);
	return clean;
}

static void *(*volatile more)(size_t) = malloc;

static void what_is_freed_is_wiped(void **state)
{
	(void)state;
	for (size_t size = 32; size < HEAP_WIPED_MAX; size = size * 3 / 2) {
		char *p = more(size);
		memset(p, 's', size);
		__asm__ volatile("" : : "r"(p) : "memory");
		free(p);
		assert_true(is_clean(more, size));
	}
}

static void what_moves_is_wiped_where_it_was(void **state)
{
	(void)state;
	for (size_t size = 32; 4 * size < HEAP_WIPED_MAX; size = size * 3 / 2) {
		char *p = more(size);
		memset(p, 's', size);
		char *moved = realloc(p, 4 * size);
		assert_int_equal(moved[0], 's');
		assert_int_equal(moved[size - 1], 's');
		assert_true(is_clean(more, size));
		char *less = realloc(moved, 16);
		assert_memory_equal(less, "ssssssssssssssss", 16);
		assert_true(is_clean(more, 4 * size));
		free(less);
	}
}

#endif

static void the_ends_of_the_contract(void **state)
{
	char *p;

	(void)state;
	free(NULL);
	p = realloc(NULL, 10);
	assert_non_null(p);
	p = realloc(p, 11);
	assert_true(malloc_usable_size(p) >= 11);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifndef SECCOMP_SANITIZED
	    cmocka_unit_test(what_is_freed_is_wiped),
	    cmocka_unit_test(what_moves_is_wiped_where_it_was),
#endif
	    cmocka_unit_test(the_ends_of_the_contract),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
