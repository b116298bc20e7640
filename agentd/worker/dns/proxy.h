/* proxy.h - the pod's DNS proxy: it answers istiod's names itself, and forwards all other questions
 * unchanged to the pod's own resolvers (istio-agent.md 7.4).
 *
 * The broker makes the sockets.  A question to an address that is not loopback is dropped.  A pod
 * has 2,000 questions a second (more are read later), 1,024 under way, 32 connections.  Before the
 * first table all questions go to the resolvers.
 */
#pragma once
#include "table.h"
#include "upstream.h"
#include <jansson.h>

struct dns_proxy;

enum { DNS_PER_SECOND = 2000, DNS_CONNECTIONS_MAX = 32, DNS_IDLE_MS = 10000 };

/* `o` and what it points to outlive the proxy; `label` is the pod's. */
struct dns_proxy *dns_proxy_new(const struct dns_upstream_options *o, const char *label);
void dns_proxy_free(struct dns_proxy **p);
/* Takes both sockets: from now on their queries are answered. */
void dns_proxy_serve(struct dns_proxy *p, int udp, int tcp);
/* Closes the sockets and connections; questions under way end with "server failure". */
void dns_proxy_rest(struct dns_proxy *p);
void dns_proxy_set_table(struct dns_proxy *p, struct dns_table *t); /* takes it */
const struct dns_table *dns_proxy_table(const struct dns_proxy *p); /* NULL: none came yet */

struct dns_proxy_counts {
	uint64_t requests;  /* all */
	uint64_t local;     /* answered from the table */
	uint64_t forwarded; /* to the resolvers */
	uint64_t malformed; /* answered with an error, or not at all */
	uint64_t dropped;   /* too many under way, or not from the pod itself */
	uint64_t delayed;   /* times that it asked more than it may in a second */
	struct dns_upstream_counts upstream;
};
struct dns_proxy_counts dns_proxy_counts(const struct dns_proxy *p);
