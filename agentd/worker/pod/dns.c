/* dns.c - the pod's DNS: when the proxy is asked, and what istiod tells it.
 *
 * start: asked for, and a resolver is known -> the network namespace is known: the broker is asked
 * for both sockets -> the proxy serves.  It begins with the table that the pod had under an earlier
 * worker, which is stale until istiod sends one; without any it forwards everything.
 * Another namespace: the same again.  None: the proxy rests.  A socket that cannot be had (somebody
 * in the pod has the port) is asked for again every 10 seconds; meanwhile the pod has its own
 * resolver.
 */
#include "base/loop.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "dns_servers.h"
#include "mesh/traffic.h"
#include "rows.h"
#include "worker/ads/discovery.h"
#include "worker/ads/xds_proxy.h"
#include "worker/dns/keep.h"
#include "worker/dns/proxy.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

LOG_SCOPE("dns");

enum { AGAIN_MS = 10000 };

struct pod_dns {
	struct pod_context *context;
	bool captured, serving;
	bool stale; /* the names: istiod sent them to an earlier worker */
	struct dns_server servers[DNS_SERVERS_MAX];
	struct dns_upstream_options upstream;
	struct dns_proxy *proxy;
	struct link_call *listening;
	int udp; /* the first of the two; -1 */
	struct loop_timer again;
	struct err why; /* code 0: none */
};

/* --- the sockets --- */

static void ask_for_sockets(void *ctx);

static void listen_at(struct pod_dns *d, enum link_listener kind, link_listening done)
{
	const struct pod_context *c = d->context;

	link_listen(c->shared->link, &d->listening, &c->pod->spec.uid, kind, done, d);
}

static void rest(struct pod_dns *d)
{
	link_call_cancel(&d->listening);
	mem_closep(&d->udp);
	loop_timer_stop(&d->again);
	dns_proxy_rest(d->proxy);
	d->serving = false;
}

/* Logged once; the attempts go on for as long as the pod lives. */
static void not_yet(struct pod_dns *d, const struct err *e)
{
	if (strcmp(d->why.msg, e->msg) != 0)
		log_warn(d->context->pod->spec.label,
		    "the pod's own resolver answers DNS for now: %s", e->msg);
	rest(d);
	d->why = *e;
	loop_timer_in(d->context->shared->loop, &d->again, AGAIN_MS, ask_for_sockets, d);
}

static void on_tcp(void *ctx, const struct err *e, int fd)
{
	struct pod_dns *d = ctx;

	if (e) {
		not_yet(d, e);
		return;
	}
	d->why = (struct err){.code = 0};
	d->serving = true;
	dns_proxy_serve(d->proxy, take_fd(d->udp), fd);
}

static void on_udp(void *ctx, const struct err *e, int fd)
{
	struct pod_dns *d = ctx;

	if (e) {
		not_yet(d, e);
		return;
	}
	d->udp = fd;
	listen_at(d, LINK_LISTEN_DNS_TCP, on_tcp);
}

static void ask_for_sockets(void *ctx)
{
	listen_at(ctx, LINK_LISTEN_DNS_UDP, on_udp);
}

static void on_netns(void *s, bool known)
{
	struct pod_dns *d = s;

	if (!d->captured)
		return;
	rest(d);
	if (known)
		ask_for_sockets(d);
	else
		err_set(&d->why, ERR_UNAVAILABLE, "the pod's network namespace is not known");
}

/* --- the names --- */

static struct dns_zone zone_of(const struct pod_dns *d)
{
	const struct pod_context *c = d->context;

	return (struct dns_zone){c->pod->spec.ns, c->shared->node.cluster_domain};
}

static int on_names(void *ctx, const struct rpc_msg *response, struct err *e)
{
	struct pod_dns *d = ctx;
	const struct dns_zone zone = zone_of(d);
	struct pbwire names;
	struct dns_table *t;

	if (discovery_first_resource(discovery_reader(response), TYPE_NAME_TABLE, &names) < 0)
		return err_set(e, ERR_PROTOCOL, "no NameTable in it");
	t = dns_keep_put(d->context->shared->names, &d->context->pod->spec.uid, &zone, names, e);
	if (!t)
		return -1;
	if (!dns_proxy_table(d->proxy) || d->stale)
		log_info(d->context->pod->spec.label, "istiod sent %zu names", dns_table_names(t));
	dns_proxy_set_table(d->proxy, t);
	d->stale = false;
	return 0;
}

static void on_directory(void *s)
{
	struct pod_dns *d = s;

	if (d->captured)
		xds_proxy_take(d->context->ads, TYPE_NAME_TABLE, on_names, d);
}

/* --- life --- */

static void remember(struct pod_dns *d)
{
	const struct dns_zone zone = zone_of(d);
	const struct pod_context *c = d->context;
	struct dns_table *t = dns_keep_get(c->shared->names, &c->pod->spec.uid, &zone);

	d->stale = t != NULL;
	dns_proxy_set_table(d->proxy, t);
}

static int start(void *s, struct err *e)
{
	struct pod_dns *d = s;
	const struct pod_context *c = d->context;

	(void)e;
	d->udp = -1;
	d->upstream = (struct dns_upstream_options){.loop = c->shared->loop,
	    .link = c->shared->link,
	    .pod = &c->pod->spec.uid,
	    .servers = d->servers,
	    .timeout_ms = node_settings(c->node)->dns_timeout_ms,
	    .parallel = node_settings(c->node)->dns_parallel};
	d->captured =
	    pod_dns_servers(c->plan, c->shared->dns_upstream, d->servers, &d->upstream.nservers);
	if (!d->captured && (c->plan->rules.flags & REDIRECT_DNS)) {
		err_set(&d->why, ERR_INVALID,
		    "no resolver is known for names that istiod does not know: set dns_upstream of "
		    "the node, or dns_servers of the pod");
		log_warn(c->pod->spec.label, "DNS is not captured: %s", d->why.msg);
	} else if (d->captured) {
		err_set(&d->why, ERR_UNAVAILABLE, "the pod's network namespace is not known");
	}
	d->proxy = dns_proxy_new(&d->upstream, c->pod->spec.label);
	if (d->captured)
		remember(d);
	node_set_dns_captured(c->node, d->captured);
	return 0;
}

static void stop(void *s)
{
	struct pod_dns *d = s;

	rest(d);
	dns_proxy_free(&d->proxy);
}

/* --- looking at it --- */

static json_t *dump_servers(const struct pod_dns *d)
{
	char text[INET6_ADDRSTRLEN];
	json_t *all = json_array();

	for (size_t i = 0; i < d->upstream.nservers; i++)
		json_array_append_new(all, json_string(inet_ntop(d->servers[i].family,
					       d->servers[i].address.bytes, text, sizeof(text))));
	return all;
}

/* captured, answers, why_not, servers, names (-1: not told yet), stale, and the counts */
static json_t *dump_dns(const struct pod_dns *d)
{
	const struct dns_proxy_counts n = dns_proxy_counts(d->proxy);
	const struct dns_table *t = dns_proxy_table(d->proxy);

	return json_pack("{s:b, s:b, s:s, s:o, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I,"
			 " s:I}",
	    "captured", d->captured, "answers", d->serving, "why_not",
	    d->why.code ? d->why.msg : "", "servers", dump_servers(d), "names",
	    (json_int_t)(t ? (json_int_t)dns_table_names(t) : -1), "stale", d->stale, "requests",
	    (json_int_t)n.requests, "local", (json_int_t)n.local, "forwarded",
	    (json_int_t)n.forwarded, "failed", (json_int_t)n.upstream.failed, "malformed",
	    (json_int_t)n.malformed, "dropped", (json_int_t)n.dropped, "delayed",
	    (json_int_t)n.delayed);
}

static void add_addresses(json_t *to, int family, const struct dns_address *a, size_t n)
{
	char text[INET6_ADDRSTRLEN];

	for (size_t i = 0; i < n; i++)
		json_array_append_new(
		    to, json_string(inet_ntop(family, a[i].bytes, text, sizeof(text))));
}

/* {name, found, alias, addresses} */
static json_t *resolve(const struct pod_dns *d, const char *name)
{
	const struct dns_table *t = dns_proxy_table(d->proxy);
	struct dns_found f = {.alias = ""};
	json_t *addresses = json_array();
	char asked[DNS_NAME_SIZE];
	size_t n = strlen(name);
	bool found;

	snprintf(asked, sizeof(asked), "%s%s", name, n && name[n - 1] == '.' ? "" : ".");
	for (char *c = asked; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	found = t && dns_table_find(t, asked, &f);
	add_addresses(addresses, AF_INET, f.v4, f.n4);
	add_addresses(addresses, AF_INET6, f.v6, f.n6);
	return json_pack("{s:s, s:b, s:s, s:o}", "name", asked, "found", found, "alias", f.alias,
	    "addresses", addresses);
}

static void dump(void *s, json_t *o)
{
	json_object_set_new(o, "dns", dump_dns(s));
}

/* A name is looked up where it would be: a pod that is not captured has no table. */
static void show(void *s, json_t *o, const char *name)
{
	json_t *all = dump_dns(s);

	json_object_update(o, all);
	json_decref(all);
	if (name)
		json_object_set_new(o, "resolved", resolve(s, name));
}

static void measure(void *s, const char *labels)
{
	const struct pod_dns *d = s;
	const struct dns_proxy_counts n = dns_proxy_counts(d->proxy);

	if (!d->captured)
		return;
	metric_set(metric_counter("istio_agent_dns_requests_total", "DNS queries of the pod."),
	    labels, (double)n.requests);
	metric_set(metric_counter("istio_agent_dns_upstream_requests_total",
		       "DNS queries that were forwarded to the pod's resolvers."),
	    labels, (double)n.forwarded);
	metric_set(metric_counter("istio_agent_dns_upstream_failures_total",
		       "DNS queries that no resolver answered."),
	    labels, (double)n.upstream.failed);
	metric_set(metric_counter("istio_agent_dns_upstream_request_duration_seconds_sum",
		       "Time until resolvers answered."),
	    labels, n.upstream.seconds);
}

static unsigned count_stale(void *s)
{
	const struct pod_dns *d = s;

	return d->stale;
}

static void forget(const struct agent_shared *a, const struct pod *gone)
{
	dns_keep_forget(a->names, &gone->spec.uid);
}

const struct pod_service pod_dns_service = {
    .name = "dns",
    .size = sizeof(struct pod_dns),
    .start = start,
    .stop = stop,
    .forget = forget,
    .directory = on_directory,
    .netns = on_netns,
    .dump = dump,
    .page = "dns",
    .show = show,
    .measure = measure,
    .gauge = "agentd_dns_stale_pods",
    .gauge_help = "Pods whose names are those that istiod sent to an earlier worker.",
    .count = count_stale,
};
