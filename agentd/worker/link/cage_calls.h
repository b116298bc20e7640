/* cage_calls.h - the system calls that the worker may make, and their arguments
 * (process-split.md 1.1).  A dangerous call ends the process with SIGSYS: it is an attack, or a
 * library that needs a look.  A call by which libraries only probe the kernel gets an error.
 */
#pragma once

struct err;

/* For this process and all its threads to come.  ERR_UNAVAILABLE: the kernel has no filters. */
int cage_calls_lock(struct err *e);
