/* files.h - have the files of a secret's name changed?  However they were rotated: written in
 * place, renamed over, behind a link that leads elsewhere now.
 *
 * Nothing is opened: what the names lead to is told apart by inode, size and times.  A name comes
 * from the mesh, and a look at a file system that hangs would stop this process; so only
 * directories that root lists are looked into, and what they link to (security-rules.md G2, G5).
 */
#pragma once
#include "names.h"
#include <stdint.h>

/* `directories`: absolute, by commas; NULL: none.  0: not in these, or not to be seen; equal when
 * nothing changed, also for the next agentd. */
uint64_t sds_files_look(const char *directories, const struct sds_name *n);
