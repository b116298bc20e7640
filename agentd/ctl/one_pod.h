/* one_pod.h - the one pod that a word names, and the file that its Envoy is started with. */
#pragma once
#include "command.h"
#include <jansson.h>

struct err;

bool ctl_is_uid(const char *word);
/* Its entry of the page of pods, the caller's.  NULL: it was said why, `*status` is the exit
 * status.
 */
json_t *ctl_one_pod(const struct ctl *c, const char *name, int *status);
/* The bootstrap in its directory, the caller's, whether agentd runs or not.  NULL: `e` says why. */
json_t *ctl_bootstrap_of(const struct ctl *c, const char *uid, struct err *e);
