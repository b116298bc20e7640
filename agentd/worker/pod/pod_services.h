/* agent_pod.h - what one pod gets, in which order; agent.c's other half.
 *
 * directory -> bootstrap, SDS, XDS, server, token (-> certificate), sockets -> ready.
 */
#pragma once
#include "worker/envoy/node.h"
#include "worker/pods/limits.h"
#include <jansson.h>
#include <stddef.h>

struct ca_client;
struct cert_cache;
struct crl;
struct pod_redirects;
struct err;
struct istiod;
struct loop;
struct pod;
struct pod_dns;
struct pod_services;
struct link;
struct redirect_plan;
struct rpc;

struct plane {
	struct istiod *istiod;
	struct ca_client *ca;
	struct cert_cache *certs;
	struct crl *crl;
};

/* What all pods share; agent.c owns it. */
struct agent_shared {
	struct loop *loop;
	struct link *link;
	struct rpc *rpc;
	struct plane *planes; /* in the order of node.planes */
	struct node_context node;
	struct pod_redirects *redirect;
	struct limits_values limits; /* of each pod */
	const char *dns_upstream;    /* addresses, by commas: resolvers of pods that name none */
	bool pcds;                   /* trust anchors come with the ADS streams, too */
};

/* Starts everything for `p`, whose environment was accepted as `node` (taken).  Ends in
 * pod_set_ready(). */
struct pod_services *pod_services_start(const struct agent_shared *a, struct pod *p,
    struct node *node, const struct redirect_plan *plan);
/* Ends the services; the directory and its sockets stay for pod_services_start() or
 * link_pod_remove().
 */
void pod_services_stop(struct pod_services **s);
/* New connections wait for the next worker; what is here is still served. */
void pod_services_stop_accepting(struct pod_services *s);

/* The pod's source has another token. */
void pod_services_token_changed(struct pod_services *s);
/* The revocation list of a control plane changed. */
void pod_services_trust_changed(struct pod_services *s);

const struct pod_dns *pod_services_dns(const struct pod_services *s);
json_t *pod_services_dump(struct pod_services *s);                /* for /pods */
json_t *pod_services_dump_redirect(const struct pod_services *s); /* for /redirect */
json_t *pod_services_dump_xds(const struct pod_services *s);      /* for /xds */
/* Adds its live ones. */
void pod_services_streams(const struct pod_services *s, unsigned *sds, unsigned *xds);
/* The samples of this pod that are gauges; `labels` is the text of its labels. */
void pod_services_measure(struct pod_services *s, const char *labels);
