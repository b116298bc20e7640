/* warming.h - listeners and clusters that the Envoy of one pod has, and does not use yet.
 *
 * Envoy accepts them, so istiod and agentd call them synced; but one that waits for a secret, a
 * route or endpoints that never come warms for good, and traffic goes on as before it, or nowhere.
 * Only Envoy knows: its admin page is asked (envoy_admin.h).
 */
#pragma once
#include "command.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* To `thing`, of the pod `pod` of /pods: "warming" [{type, name, for_s}], at most 100 of those that
 * warm for a minute or longer; or "warming_unknown", why Envoy could not be asked.  Nothing of a
 * pod whose Envoy never connected. */
void ctl_warming_add(const struct ctl *c, const json_t *pod, json_t *thing);
/* Of a /config_dump, which is JSON, at this time of Unix seconds; the caller's. */
json_t *ctl_warming_of(const char *dump, size_t len, int64_t now_s);
