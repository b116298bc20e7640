/* agent_dns.c
 *
 * start: asked for, and a resolver is known -> live: the broker is asked for both sockets -> the
 * proxy serves; it forwards everything until istiod's first name table.  Another network namespace:
 * the same again.  Not live: the proxy rests.  A socket that cannot be had (somebody in the pod has
 * the port) is asked for again every 10 seconds; meanwhile the pod has its own resolver.
 */
#include "dns.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "pod_services.h"
#include "worker/ads/discovery.h"
#include "worker/ads/xds_proxy.h"
#include "worker/base/loop.h"
#include "worker/base/metrics.h"
#include "worker/pods/pod.h"
#include "worker/redirect/redirect.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

LOG_SCOPE("dns");

enum { AGAIN_MS = 10000, ADDRESS_BITS = 128 };

struct pod_dns {
	const struct agent_shared *shared;
	const struct pod *pod;
	bool captured, serving;
	struct dns_server servers[DNS_SERVERS_MAX];
	struct dns_upstream_options upstream;
	struct dns_proxy *proxy;
	struct link_call *listening;
	int udp; /* the first of the two; -1 */
	struct loop_timer again;
	struct err why; /* code 0: none */
};

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

/* --- which resolvers --- */

static struct dns_server server_of(const struct redirect_address *a)
{
	struct dns_server s = {.family = AF_INET6};

	memcpy(s.address.bytes, a->word, sizeof(s.address.bytes));
	if (memcmp(s.address.bytes, mapped, sizeof(mapped)) != 0)
		return s;
	s = (struct dns_server){.family = AF_INET};
	memcpy(s.address.bytes, &a->word[3], sizeof(a->word[3]));
	return s;
}

static void read_list(const char *list, struct dns_server *out, size_t *n)
{
	char text[INET6_ADDRSTRLEN];

	for (const char *at = list; *at && *n < DNS_SERVERS_MAX;) {
		size_t length = strcspn(at, ",");
		struct dns_server s = {.family = memchr(at, ':', length) ? AF_INET6 : AF_INET};

		snprintf(text, sizeof(text), "%.*s", (int)length, at);
		if (length < sizeof(text) && inet_pton(s.family, text, s.address.bytes) == 1)
			out[(*n)++] = s;
		at += length + (at[length] == ',');
	}
}

bool pod_dns_servers(
    const struct redirect_plan *plan, const char *node_upstream, struct dns_server *out, size_t *n)
{
	const struct redirect_rules *r = &plan->rules;

	*n = 0;
	if (plan->mode != REDIRECT_MODE_EBPF || !(r->flags & REDIRECT_DNS))
		return false;
	for (uint32_t i = 0; i < r->ncidrs && *n < DNS_SERVERS_MAX; i++)
		if ((r->cidrs[i].flags & REDIRECT_CIDR_DNS) && r->cidrs[i].bits == ADDRESS_BITS)
			out[(*n)++] = server_of(&r->cidrs[i].address);
	if (*n == 0)
		read_list(node_upstream, out, n);
	return *n > 0;
}

/* --- the sockets --- */

static void ask_for_sockets(void *ctx);

static void rest(struct pod_dns *d)
{
	link_call_cancel(&d->listening);
	mem_closep(&d->udp);
	d->udp = -1;
	loop_timer_stop(&d->again);
	dns_proxy_rest(d->proxy);
	d->serving = false;
}

/* Said once: it is tried for as long as the pod lives. */
static void not_yet(struct pod_dns *d, const struct err *e)
{
	if (strcmp(d->why.msg, e->msg) != 0)
		log_warn(d->pod->label, "DNS is left to the pod's own resolver: %s", e->msg);
	rest(d);
	d->why = *e;
	loop_timer_in(d->shared->loop, &d->again, AGAIN_MS, ask_for_sockets, d);
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
	link_listen(d->shared->link, &d->listening, &d->pod->uid, LINK_LISTEN_DNS_TCP, on_tcp, d);
}

static void ask_for_sockets(void *ctx)
{
	struct pod_dns *d = ctx;

	link_listen(d->shared->link, &d->listening, &d->pod->uid, LINK_LISTEN_DNS_UDP, on_udp, d);
}

void pod_dns_live(struct pod_dns *d, bool live)
{
	if (!d->captured)
		return;
	rest(d);
	if (live)
		ask_for_sockets(d);
	else
		err_set(&d->why, ERR_UNAVAILABLE, "the pod's network namespace is not known");
}

/* --- the names --- */

static int on_names(void *ctx, const struct rpc_msg *response, struct err *e)
{
	struct pod_dns *d = ctx;
	const struct dns_zone zone = {d->pod->ns, d->shared->node.cluster_domain};
	struct pbwire names;
	struct dns_table *t;

	if (discovery_first_resource(discovery_reader(response), TYPE_NAME_TABLE, &names) < 0)
		return err_set(e, ERR_PROTOCOL, "no NameTable in it");
	t = dns_table_new(names, &zone, e);
	if (!t)
		return -1;
	if (!dns_proxy_table(d->proxy))
		log_info(d->pod->label, "istiod told %zu names", dns_table_names(t));
	dns_proxy_set_table(d->proxy, t);
	return 0;
}

void pod_dns_subscribe(struct pod_dns *d, struct xds_proxy *x)
{
	if (d->captured)
		xds_proxy_take(x, TYPE_NAME_TABLE, on_names, d);
}

/* --- life --- */

struct pod_dns *pod_dns_start(const struct agent_shared *a, const struct pod *p,
    const struct redirect_plan *plan, int64_t timeout_ms)
{
	struct pod_dns *d = mem_zalloc(sizeof(*d));

	d->shared = a;
	d->pod = p;
	d->udp = -1;
	d->upstream = (struct dns_upstream_options){.loop = a->loop,
	    .link = a->link,
	    .pod = &p->uid,
	    .servers = d->servers,
	    .timeout_ms = timeout_ms};
	d->captured = pod_dns_servers(plan, a->dns_upstream, d->servers, &d->upstream.nservers);
	if (!d->captured && (plan->rules.flags & REDIRECT_DNS)) {
		err_set(&d->why, ERR_INVALID,
		    "no resolver is known that is asked for names which are not istiod's: "
		    "dns_upstream of the node, or dns_servers of the pod");
		log_warn(p->label, "DNS is not captured: %s", d->why.msg);
	} else if (d->captured) {
		err_set(&d->why, ERR_UNAVAILABLE, "the pod's network namespace is not known");
	}
	d->proxy = dns_proxy_new(&d->upstream, p->label);
	return d;
}

bool pod_dns_captured(const struct pod_dns *d)
{
	return d->captured;
}

void pod_dns_stop(struct pod_dns **dp)
{
	struct pod_dns *d = take(*dp);

	if (!d)
		return;
	rest(d);
	dns_proxy_free(&d->proxy);
	free(d);
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

json_t *pod_dns_dump(const struct pod_dns *d)
{
	const struct dns_proxy_counts n = dns_proxy_counts(d->proxy);
	const struct dns_table *t = dns_proxy_table(d->proxy);

	return json_pack("{s:b, s:b, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
			 " s:I}",
	    "captured", d->captured, "answers", d->serving, "why_not",
	    d->why.code ? d->why.msg : "", "servers", dump_servers(d), "names",
	    (json_int_t)(t ? (json_int_t)dns_table_names(t) : -1), "requests",
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

json_t *pod_dns_resolve(const struct pod_dns *d, const char *name)
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

void pod_dns_measure(const struct pod_dns *d, const char *labels)
{
	static struct metric *requests, *forwarded, *failures, *seconds;
	const struct dns_proxy_counts n = dns_proxy_counts(d->proxy);

	if (!d->captured)
		return;
	if (!requests) {
		requests =
		    metric_counter("istio_agent_dns_requests_total", "DNS queries of the pod.");
		forwarded = metric_counter("istio_agent_dns_upstream_requests_total",
		    "DNS queries that went on to the pod's resolvers.");
		failures = metric_counter(
		    "istio_agent_dns_upstream_failures_total", "Those that no resolver answered.");
		seconds = metric_counter("istio_agent_dns_upstream_request_duration_seconds_sum",
		    "Time until resolvers answered.");
	}
	metric_set(requests, labels, (double)n.requests);
	metric_set(forwarded, labels, (double)n.forwarded);
	metric_set(failures, labels, (double)n.upstream.failed);
	metric_set(seconds, labels, n.upstream.seconds);
}
