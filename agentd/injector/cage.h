/* cage.h - what the process may still do, once it has its port and its files are followed: a list
 * of system calls (common/seccomp.h). */
#pragma once
struct err;

/* For good.  A kernel without filters is no error, and said. */
int cage_close(struct err *e);
