/* collectors_asked.h - where a pod's Envoy is to send what it saw, read once when it comes.  Pure.
 *
 * ProxyConfig's tracing, statsdUdpAddress, envoyMetricsService and envoyAccessLogService
 * (istio-agent.md 8.6, 10.3).  Envoy dials them, as the pod; names are Envoy's to resolve and never
 * agentd's (security-rules.md G1).
 */
#pragma once
#include <jansson.h>

struct err;

enum { COLLECTORS_SANS_MAX = 64, COLLECTORS_TEXT_MAX = 256, COLLECTORS_PATH_MAX = 4096 };

/* What is asked for, of: {"zipkin": SERVICE, "datadog": SERVICE, "metrics": SERVICE, "logs":
 * SERVICE, "statsd": {"host", "port"}}.  A SERVICE is {"host", "port", "tls": {"certificate",
 * "root": names of secrets, "sni", "sans": [..], "in_mesh": bool}, "keepalive": as Envoy has it};
 * no "tls": plain text.
 * `host_ip` is what $(HOST_IP) stands for; NULL: it stays as it is, as in Istio.
 * NULL: refused, with the key and what is allowed. */
json_t *collectors_asked_read(const json_t *proxy_config, const char *host_ip, struct err *e);
