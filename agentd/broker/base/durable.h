/* durable.h - a file that is there after a power cut, in the old version or in the new one. */
#pragma once
#include "file.h"

/* Writes `memfd` to dir/name (`sub` is NULL), 0600, of root.  The directory is made, 0700, with
 * those above it; one that others than root can write is refused.  Writers of one directory wait
 * for each other.  0: the new content is on disk.  -1: one of the two is there, in full. */
int broker_durable_write(const struct broker_place *at, int memfd, struct err *e);
