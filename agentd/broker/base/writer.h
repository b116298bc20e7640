/* writer.h - a durable write (durable.h) by a child, for a disk may take its time
 * (security-rules.md G5).
 *
 * The child has no descriptor of ours but what it writes.  So a disk that never answers keeps
 * neither the lock of the run directory nor a peer's connection.  It outlives us: what was begun is
 * finished.  It is waited for with all other children.
 */
#pragma once
#include "file.h"

/* The end of a pipe, non-blocking, the caller's: one struct err comes in one piece; its code 0: all
 * of it is on disk.  An end without it: the child was killed.  -1: there is no child. */
int writer_start(const struct broker_place *at, int memfd, struct err *e);
