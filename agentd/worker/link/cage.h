/* cage.h - the worker locks itself in before its first thread (process-split.md 1).
 *
 * The broker has already taken every capability, the groups and the way back (no_new_privs); here
 * the system calls (cage_calls.h), files and ports (cage_files.h) go, and the memory becomes
 * private.  A protection that the kernel does not have is named in one warning, and by
 * cage_describe().  A step that the broker left out is an error.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

/* First thing in main(): no core, no debugger of the same user (an exec resets both).  A sanitizer
 * build stays traceable, because its leak checker is such a debugger. */
void cage_hide_memory(void);

/* `tcp_ports`: the ports that this process may connect to.  There is no way out. */
int cage_enter(const uint16_t *tcp_ports, size_t nports, struct err *e);
/* --no-privsep: does nothing but warn. */
void cage_stay_out(void);

struct cage_state {
	bool entered, seccomp;
	int landlock; /* ABI level; 0: none */
};
struct cage_state cage_state(void);
const char *cage_describe(void); /* "seccomp, landlock 7"; static */
