/* follow.h - files that somebody else replaces: a ConfigMap's, a Secret's, a person's.
 *
 * The directories of files are watched by inotify, so that a file that is replaced by rename, the
 * kubelet's ..data included, is seen.  Nothing is polled.
 */
#pragma once
#include "base/loop.h"
#include <stddef.h>

struct err;
struct follow;

enum { FOLLOW_FILE_MAX = 4 << 20 }; /* a ConfigMap has 1 MiB at most */

/* `changed` runs after each burst of changes, at most every 100 ms; the files may be the same. */
struct follow *follow_new(struct loop *l, loop_cb changed, void *ctx, struct err *e);
/* The file need not be there yet, its directory must. */
int follow_add(struct follow *f, const char *path, struct err *e);
void follow_free(struct follow **f);

/* NUL-terminated, the caller frees it.  NULL: it cannot be read, is no regular file or too large.
 */
char *follow_read(const char *path, size_t *len, struct err *e);
