/* seccomp.h - a table of system calls, as a filter of the kernel's (process-split.md 1.1).
 *
 * A call of `calls` is allowed if all its conditions hold, one of `allowed` always; one of `killed`
 * ends the process, any other gets `otherwise`.  A call of another architecture gets `foreign`: its
 * number means something else.  One that is newer than this code is ENOSYS: for libraries the
 * kernel does not have it.
 */
#pragma once
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

struct err;

#ifndef __has_feature /* clang's */
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SECCOMP_SANITIZED 1 /* LeakSanitizer stops all threads by ptrace, and looks at them */
#endif

/* All that Linux 6.1 has.  From 424 on numbers are the same on all machines. */
enum { SECCOMP_NEWEST = 450 };

enum { SECCOMP_VALUES_MAX = 8, SECCOMP_CONDITIONS_MAX = 3 };

enum seccomp_test { SECCOMP_END, SECCOMP_ONE_OF, SECCOMP_WITHOUT };

/* Only the low 32 bits of an argument are looked at: an int, or flags of which the kernel itself
 * looks at no more. */
struct seccomp_condition {
	enum seccomp_test test;
	unsigned arg;
	uint32_t values[SECCOMP_VALUES_MAX]; /* WITHOUT: none of the bits of the first one */
	unsigned nvalues;
	uint32_t ignored; /* bits */
};

struct seccomp_call {
	int nr;
	uint32_t otherwise; /* the answer when a condition does not hold */
	struct seccomp_condition conditions[SECCOMP_CONDITIONS_MAX];
};

#define SECCOMP_KILL SECCOMP_RET_KILL_PROCESS
#define SECCOMP_ERRNO(code) (SECCOMP_RET_ERRNO | (code))
#define SECCOMP_NEXT 0 /* the following row is about the same call, and decides */

#define SECCOMP_COUNT(...) (sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define SECCOMP_IS_ONE_OF(arg_, ...)                                                               \
	{                                                                                          \
		SECCOMP_ONE_OF, (arg_), {__VA_ARGS__}, SECCOMP_COUNT(__VA_ARGS__), 0               \
	}
#define SECCOMP_IS_WITHOUT(arg_, bits)                                                             \
	{                                                                                          \
		SECCOMP_WITHOUT, (arg_), {(bits)}, 1, 0                                            \
	}
#define SECCOMP_NEVER                                                                              \
	{                                                                                          \
		SECCOMP_ONE_OF, 0, {0}, 0, 0                                                       \
	}

struct seccomp_rules {
	const struct seccomp_call *calls;
	size_t ncalls;
	const int *allowed; /* negative: this architecture has none of that name */
	size_t nallowed;
	const int *killed; /* the same */
	size_t nkilled;
	uint32_t otherwise, foreign;
};

/* For this process, all its threads, and all that it executes; needs no_new_privs or SYS_ADMIN.
 * ERR_UNAVAILABLE: the kernel has no filters. */
int seccomp_install(const struct seccomp_rules *r, struct err *e);
