/* cage_files.h - the files that libraries of the worker read, and the ports it connects to, by
 * Landlock (process-split.md 1.2, 7.10).  Open descriptors are not touched, so those that the
 * broker passes work. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct err;

/* Threads made before are not locked in.  Returns the kernel's ABI level, 0: it has no Landlock;
 * -1: failed. */
int cage_files_lock(const uint16_t *tcp_ports, size_t nports, struct err *e);
