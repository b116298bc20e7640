/* cage_calls.h - the system calls of the worker, and which of their arguments (process-split.md
 * 1.1).  Anything else ends the process with SIGSYS: what is not on the list is an attack, or a
 * library that has to be looked at.  Calls that libraries make to find out whether they may get an
 * error instead. */
#pragma once

struct err;

/* For this process and all its threads to come.  ERR_UNAVAILABLE: the kernel has no filters. */
int cage_calls_lock(struct err *e);
