/* ways.h - the symbolic links on the way to a directory, watched: one that is repointed leads to
 * another directory, and the old one says nothing.
 */
#pragma once
#include "common/err.h"
#include <stdbool.h>

enum { WAYS_MAX = 8 }; /* links; a way with more is not watched further */

struct ways { /* embed it zeroed */
	unsigned n;
	struct way {
		int wd;     /* of the directory that has the link */
		char *name; /* of the link there */
	} at[WAYS_MAX];
};

/* Watches each link on the way to the absolute `path`, its last part too.  What does not exist, or
 * cannot be watched, ends the way. */
void ways_watch(struct ways *w, int inotify, const char *path);
bool ways_has(const struct ways *w, int wd);
bool ways_lead_through(const struct ways *w, int wd, const char *name);
/* The watches stay, for others may share them. */
void ways_clear(struct ways *w);
