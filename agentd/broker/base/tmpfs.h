/* tmpfs.h - a tmpfs of our own, for data that must never reach a disk (security-rules.md 7).
 *
 * Mode 0700, not swapped out where the kernel can promise that (6.4).  It stays mounted at our end:
 * the next broker finds it, with its content.
 */
#pragma once
#include "common/err.h"
#include <stdbool.h>

enum { BROKER_TMPFS_MIB = 64 };

enum broker_tmpfs_is {
	BROKER_TMPFS_FOUND,   /* it was mounted there before */
	BROKER_TMPFS_MOUNTED, /* now */
	BROKER_TMPFS_DENIED,  /* there is none, and it cannot be mounted: `why` */
	BROKER_TMPFS_WRONG,   /* what is there may be read or written by others: `why` */
};

struct broker_tmpfs {
	enum broker_tmpfs_is is;
	bool noswap; /* FOUND, MOUNTED */
	struct err why;
};

struct broker_tmpfs_spec {
	const char *path;   /* a directory */
	const char *source; /* its name in mountinfo */
	unsigned kib, inodes;
};
/* A new one on the directory, whose label (SELinux) it takes. */
int broker_tmpfs_mount(const struct broker_tmpfs_spec *s, struct err *e);
/* Is the directory the root of a mounted tmpfs? */
bool broker_tmpfs_is_on(const char *path);

/* The state's: makes the directory, looks for a mount on it, mounts one of BROKER_TMPFS_MIB if
 * there is none. */
void broker_tmpfs_open(const char *path, struct broker_tmpfs *t);
/* The same without changing anything: MOUNTED then means that it could be. */
void broker_tmpfs_look(const char *path, struct broker_tmpfs *t);
bool broker_tmpfs_swap_is_on(void);
