/* memory.h - a bound for this process, where somebody else says how much it reads. */
#pragma once
#include <stddef.h>

/* From now on it gets so many bytes more, and no more: it ends with CTL_PROBLEM, and `why`, a
 * literal, is on stderr.  The second call changes nothing. */
void ctl_memory_bound(size_t bytes, const char *why);
