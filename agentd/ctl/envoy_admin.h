/* envoy_admin.h - a page of the admin port of a pod's Envoy, for root on its node.
 *
 * Neither broker nor worker takes part: they get no way to that port (SECURITY.md).  An app may
 * listen there instead of Envoy: its answer is bounded (256 MiB, 20 s of silence), and its strings
 * are whatever it likes.  What reads one takes no more than four times its bytes: from then on this
 * process gets no more than four times 256 MiB, or it ends and says so.
 */
#pragma once
#include "command.h"
#include <jansson.h>

struct err;

/* Of this pod of /pods: has an Envoy of it ever connected, so that its network is known? */
bool ctl_envoy_is_known(const json_t *pod);
/* The text of an object (base/json_walk.h), NUL-terminated, the caller's.  NULL: `e` says why. */
char *ctl_envoy_page(
    const struct ctl *c, const json_t *pod, const char *page, size_t *len, struct err *e);
/* The same of the pod that is the command's first word.  NULL: it was said why, `*status` is the
 * exit status.
 */
char *ctl_envoy_admin(const struct ctl *c, const char *page, size_t *len, int *status);
