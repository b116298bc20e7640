/* envoy_admin.h - a page of the admin port of a pod's Envoy, for root on its node.
 *
 * Neither broker nor worker takes part: they get no way to that port (SECURITY.md).  An app may
 * listen there instead of Envoy: its answer is bounded (256 MiB, 20 s of silence), and its strings
 * are whatever it likes.
 */
#pragma once
#include "command.h"
#include <jansson.h>

/* An object, the caller's; the pod is the command's first word.  NULL: it was said why, `*status`
 * is the exit status.  The process is in the pod's network afterwards.
 */
json_t *ctl_envoy_admin(const struct ctl *c, const char *page, int *status);
