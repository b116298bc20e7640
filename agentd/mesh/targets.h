/* targets.h - which ports of its own pod Envoy asks for others: the app's probes and its metrics.
 * Pure.
 *
 * ISTIO_KUBE_APP_PROBERS and ISTIO_PROMETHEUS_ANNOTATIONS as Istio's injector writes them
 * (istio-agent.md 6.3, 6.4), within the bounds of security-rules.md 3.  Only ports and paths are
 * taken: where they are asked is never the pod's choice.  All text that comes out is printable
 * ASCII.  `key` is where the document came from; it is in the error, with what is allowed.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct err;

enum { TARGETS_PROBERS_MAX = 64, TARGETS_SCRAPES_MAX = 8, TARGETS_TIMEOUT_MAX_S = 60 };

/* [{"route": "/app-health/web/readyz", "kind": "http" | "https" | "grpc" | "tcp", "port": 8080,
 * "path": "/", "service": "", "timeout_s": 1}]; `path` of http and https, `service` of grpc,
 * timeout_s 0: none was given.  NULL: refused. */
json_t *targets_probers(const char *key, const json_t *document, struct err *e);

/* [{"port": 9090, "path": "/metrics"}], empty where the app wants no scrape.  NULL: refused. */
json_t *targets_scrapes(const char *key, const json_t *document, struct err *e);

/* Ports that are Envoy's or agentd's in every pod. */
bool targets_port_is_reserved(unsigned port);
