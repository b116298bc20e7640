/* config.h - every setting of the worker, one table, read once.
 *
 * A YAML file of one level of snake_case keys plus the list `control_planes:`; each flat key is
 * also a flag --key with '-' for '_', and the flag wins.  Unknown keys are errors that name the
 * nearest known one; errors name file and line.
 */
#pragma once
#include "worker/istiod/istiod.h"
#include <stdbool.h>
#include <stdint.h>

struct err;

struct config {
	/* flat keys; strings owned */
	char *log_level, *node_name, *host_ip, *istio_namespace, *cluster_domain, *ip_family,
	    *certificate_scope, *attest, *state_keys, *redirect, *redirect_policy,
	    *redirect_accelerate, *dns_upstream, *certificate_directories;
	bool log_json, pcds, ready_anyway;
	int64_t secret_ttl_min_s, secret_ttl_max_s, certificate_reissue_min_s, certificate_linger_s,
	    csr_per_second, publish_wait_ms;
	int64_t pod_connections, pod_streams, pod_message_mib, pod_queued_mib,
	    pod_requests_per_second, pod_requests_burst, pods_requests_per_second, pod_silent_s,
	    pod_header_kib, pod_memory_mib, pods_memory_mib; /* worker/pods/limits.h */
	int64_t push_memory_mib;                             /* rpc/ledger.h */
	struct istiod_options *planes;                       /* at least one, names unique */
	size_t nplanes;
	bool check;       /* --check: read everything, try everything, say so, end */
	bool connect;     /* the same, the control planes included */
	bool check_state; /* a trial: can this program live here; roots and control planes no matter
			   */
};

struct config_file {
	const char *name, *text; /* the name is for messages; the content may be empty */
	size_t size;
};
int config_load(
    struct config *c, const struct config_file *file, int argc, char **argv, struct err *e);
void config_clear(struct config *c);
