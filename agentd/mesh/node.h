/* node.h - a pod's environment, checked, as settings and as Envoy's node.
 *
 * The only reader of the environment: security-rules.md 3 is the closed list of keys and of where
 * each may point.  A value out of bounds refuses the pod with the key and the allowed values; keys
 * unknown here are ignored and listed.  The node's id and metadata follow istio-agent.md 8.2-8.3.
 */
#pragma once
#include "key.h"
#include "probe_asked.h"
#include <arpa/inet.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct node;
struct pod_spec;

/* One control plane of the node, as far as a pod may name it. */
struct node_plane {
	const char *address, *server_name, *trust_domain, *cluster_id, *mesh_id;
	/* What a pod may say in place of these, by commas; NULL or "": nothing else. */
	const char *former_trust_domains, *former_cluster_ids, *former_mesh_ids;
};
struct node_context {
	const struct node_plane *planes;
	size_t nplanes;
	const char *node_name;
	const char *host_ip;                          /* of the node; "" or NULL: not known */
	const char *istio_namespace, *cluster_domain; /* "istio-system", "cluster.local" */
	bool ipv6;           /* family of the placeholder address while none is known */
	bool both_families;  /* the kernel has IPv6: dual-stack has a placeholder of each */
	const char *version; /* agentd's, shown as AGENTD_VERSION; never ISTIO_VERSION */
	int64_t ttl_min_s, ttl_max_s; /* bounds of SECRET_TTL (1 h, 24 h) */
	bool scope_pod;               /* no pod shares its certificate */
};

struct node_settings {
	size_t plane; /* index */
	struct x509_key_params key;
	char cert_signer[64];
	int64_t ttl_s;
	double ratio, jitter;
	bool delta_xds, dual_stack, scope_pod;
	/* 15000, 15020, 15021, 15090, two with TLS; 0 (not the admin's): there is none */
	unsigned admin_port, agent_port, status_port, prometheus_port;
	unsigned secure_port, secure_merged_port;
	bool proxy_protocol;    /* on status_port, if the client wants it */
	int concurrency;        /* -1: unset; 0: all cores */
	int64_t drain_ms;       /* drainDuration */
	int64_t dns_timeout_ms; /* DNS_FORWARD_TIMEOUT */
	bool dns_parallel;      /* DNS_FORWARD_PARALLEL */
	/* terminationDrainDuration; MINIMUM_DRAIN_DURATION with EXIT_ON_ZERO_ACTIVE_CONNECTIONS */
	int64_t termination_drain_ms, minimum_drain_ms;
	bool exit_on_zero;
	char
	    address[INET6_ADDRSTRLEN]; /* of a machine, as its owner says; "": the first one seen */
	bool registers;                /* istiod shall make, or find, its WorkloadEntry */
	bool merge_envoy_stats, metrics_local_only, stats_compression;
	bool probe_loopback;       /* probers ask the loopback: the mesh is in mode LOCALHOST */
	json_t *probers, *scrapes; /* as targets.h says; NULL: none were declared */
	struct probe_asked probe;  /* one of `probers` */
	json_t *stats;             /* as stats_asked.h says */
	json_t *collectors;        /* as collectors_asked.h says */
	json_t *runtime_values;    /* as runtime_asked.h says */
	int64_t connections_max;
	json_t *load_stats; /* where Envoy reports its load; NULL: nowhere */
	json_t *override;   /* as override.h says; NULL: none */
	enum node_cluster { NODE_CLUSTER_APP, NODE_CLUSTER_NAME, NODE_CLUSTER_NAME_AND_NS } cluster;
};

enum { NODE_PORTS = 6 };
/* Envoy's own, 0: there is none. */
static inline void node_own_ports(const struct node_settings *s, unsigned ports[NODE_PORTS])
{
	ports[0] = s->admin_port;
	ports[1] = s->agent_port;
	ports[2] = s->status_port;
	ports[3] = s->prometheus_port;
	ports[4] = s->secure_port;
	ports[5] = s->secure_merged_port;
}

/* Copies what it keeps of `p`; the strings of `c` and its planes outlive the node. */
struct node *node_new(const struct pod_spec *p, const struct node_context *c, struct err *e);
void node_free(struct node **n);
const struct node_settings *node_settings(const struct node *n);
/* Keys that were not used: {"ignored": [...], "unsupported": [...]}. */
const json_t *node_leftovers(const struct node *n);

/* Does the pod's traffic reach Envoy by itself?  No by default; set it before the first rendering.
 */
void node_set_captured(struct node *n, bool captured);
void node_set_dns_captured(struct node *n, bool captured); /* likewise */
/* The pod's addresses, once they are known; literal, v4 or v6.  The one that a machine's owner says
 * comes first, whether it is among them or not.  False: nothing changed; else everything is
 * rendered again. */
bool node_set_addresses(struct node *n, const char *const *ips, size_t count);

/* For Envoy and istiod; valid until the next node_set_addresses(). */
const char *node_id(const struct node *n);
/* {id, cluster, locality?, metadata}: the bootstrap's.  Keys sorted: same pod, same bytes. */
const json_t *node_json(const struct node *n);
/* The same metadata as google.protobuf.Struct. */
const void *node_metadata_struct(const struct node *n, size_t *size);
/* Do Envoy's own listeners use IPv6: every address is, or the first with ISTIO_DUAL_STACK. */
bool node_is_ipv6(const struct node *n);
bool node_has_addresses(const struct node *n); /* false: there are placeholders in their place */
bool node_is_elsewhere(const struct node *n);  /* what the owner says is none of them (NAT) */
bool node_has_family(const struct node *n, bool ipv6); /* among the addresses or placeholders */
