/* envoy_certs.h - the certificates that an Envoy has, out of its /certs page.  Pure.
 *
 * agentd opens no file that a pod names: Envoy reads it, and again when it is renamed over, its
 * link is repointed or `..data` is swapped.  All other ways it does not see, and goes on with what
 * it has.  Of what came by SDS the page does not say whether it is of a file, so all are looked at.
 * The answer may be an app's: of another shape it has no certificates.
 */
#pragma once
#include <jansson.h>
#include <time.h>

/* Of a page that is JSON: [{kind ("chain", "root"), name (the first of its SPIFFE ids), serial,
 * not_after, why_not}], all strings that can be printed, each once; the caller's.  `why_not`: it
 * has ended, or less than a fifth of its life is left; else "". */
json_t *envoy_certs_of(const char *page, size_t len, time_t now);
