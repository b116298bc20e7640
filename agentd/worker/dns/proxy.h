/* proxy.h - the pod's DNS proxy: names of istiod's are answered here, all others by the pod's
 * own resolvers, which are asked as they were asked (istio-agent.md 7.4).
 *
 * The sockets are the broker's; what did not come to a loopback address is dropped.  A pod has
 * 2,000 questions a second (more are read later), 1,024 under way, 32 connections.  Before the
 * first table everything is the resolvers' business, which is what an app sees while no worker
 * lives.
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
/* Nothing is asked any more: sockets, connections and questions under way go. */
void dns_proxy_rest(struct dns_proxy *p);
void dns_proxy_set_table(struct dns_proxy *p, struct dns_table *t); /* takes it */
const struct dns_table *dns_proxy_table(const struct dns_proxy *p); /* NULL: not told yet */

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
