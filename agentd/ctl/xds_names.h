/* xds_names.h - the resources that an Envoy was pushed, by name, out of its /config_dump.  Pure.
 *
 * agentd decodes no push and keeps none: Envoy itself is asked.  What it has of its bootstrap is
 * left out.  The answer may be an app's: of another shape it has no names.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct err;

/* Of a dump, which is JSON: [{type, name, state, version, why}], all strings that can be printed,
 * the caller's.  `state`: "active", "warming" and "draining" as Envoy has it, or "refused", with
 * the reason in `why`: the last update of it was, what was there before is in use.  NULL: there are
 * more of them than an Envoy has in a dump of this size (ERR_PROTOCOL).
 */
json_t *xds_names_of(const char *dump, size_t len, struct err *e);
bool xds_names_refused(const json_t *names); /* one of them */
void xds_names_print(const json_t *names);   /* as a table */
