/* shared.h - what all pods share; agent.c owns it, and it outlives every pod. */
#pragma once
#include "mesh/node.h"
#include "worker/pods/limits.h"
#include <stdbool.h>

struct accounts;
struct ca_client;
struct cert_cache;
struct crl;
struct dns_keep;
struct istiod;
struct link;
struct loop;
struct pod_redirects;
struct pod_served;
struct rpc;

struct plane {
	struct istiod *istiod;
	struct ca_client *ca;
	struct cert_cache *certs;
	struct crl *crl;
};

struct agent_shared {
	struct loop *loop;
	struct link *link;
	struct rpc *rpc;
	struct plane *planes; /* in the order of node.planes */
	struct node_context node;
	struct pod_redirects *redirect;
	struct accounts *accounts;
	struct pod_served *served;
	struct dns_keep *names;      /* of pods whose DNS is captured */
	struct limits_values limits; /* of each pod */
	const char *dns_upstream;    /* addresses, by commas: resolvers of pods that name none */
	const char *certificate_directories; /* by commas: files there are followed (sds/files.h) */
	bool pcds;                           /* trust anchors come with the ADS streams, too */
};
