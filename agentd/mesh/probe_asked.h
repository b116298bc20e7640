/* probe_asked.h - ProxyConfig's readinessProbe: how istiod shall hear whether a machine's app is
 * well.  Pure.
 *
 * Fields and defaults: bare-metal-identity.md 5; bounds here.  Envoy asks the app, by one more
 * prober of its status port (targets.h); agentd asks Envoy.  `exec` is refused: agentd runs no
 * program.  So is a host: the app is asked in its own network only (security-rules.md G1).
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct err;

#define PROBE_ASKED_ROUTE "/app-health/machine/readyz"

enum { PROBE_ASKED_HEADERS_SIZE = 2048 };

struct probe_asked {
	bool given;
	unsigned delay_s, timeout_s, period_s; /* 0..3600, 1..60, 1..3600 */
	unsigned successes, failures;          /* in a row, 1..100 */
	char *headers; /* lines for Envoy's status port, each with CRLF; of its owner, once read */
};

/* A list of one prober, as targets_probers() makes it.  NULL: refused. */
json_t *probe_asked_read(
    const char *key, const json_t *probe, struct probe_asked *out, struct err *e);
