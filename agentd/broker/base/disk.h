/* disk.h - a file written (durable.h) or read (file.h) by a child, for a disk may take its time
 * (security-rules.md G5).
 *
 * The child has no descriptor of ours but what it writes and what it answers by.  So a disk that
 * never answers keeps neither the lock of the run directory nor a peer's connection.  It is waited
 * for with all other children.  `at` is copied; each descriptor is non-blocking and the caller's.
 */
#pragma once
#include "file.h"

/* One that is well takes milliseconds; from then on it is named. */
enum { DISK_SLOW_S = 3, DISK_SLOW_MS = DISK_SLOW_S * 1000 };

/* One struct err can be read from it, in one piece; its code 0: all of it is on disk.  An end
 * without it: the child was killed.  The child outlives us: what was begun is finished.  -1: there
 * is no child. */
int disk_write(const struct broker_place *at, int memfd, struct err *e);

/* When it is readable, disk_take() has the file.  The child goes with us.  -1: there is no child.
 */
int disk_read(const struct broker_place *at, struct err *e);
/* What broker_file_read() said there; a child that was killed: REFUSED. */
void disk_take(int fd, struct broker_content *out);
