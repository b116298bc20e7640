/* pod.h - a pod as its source declares it: a volume of the kubelet, or a manifest.
 *
 * Identity is the source's word (security-rules.md G4). All else is its owner's, and hostile until
 * mesh/node has read it. Who makes one owns the objects and the token.
 */
#pragma once
#include "common/uuid.h"
#include <jansson.h>
#include <stdbool.h>

enum { POD_LABEL_SIZE = 64 + 254, POD_LOCALITY_SIZE = 254 };

struct pod_spec {
	struct uuid uid;
	char ns[64], name[254], sa[254];
	char label[POD_LABEL_SIZE];         /* "ns/name": how logs and agentctl call it */
	json_t *env, *labels, *annotations; /* objects of strings, never NULL in the registry */
	json_t *redirect;                   /* the same: what the source says of its traffic */
	unsigned proxy_uid, proxy_gid;      /* of Envoy, default 1337 */
	bool machine; /* root wrote its manifest: it may register, and is probed (security-rules.md
			 3) */
	char locality[POD_LOCALITY_SIZE]; /* "REGION/ZONE/SUBZONE"; "": its labels say */
	bool
	    by_certificate; /* to istiod it shows its certificate; its token is for the first one */
	/* An agentd before this one served it: settings of the node that are others than then bound
	 * it, and do not refuse it (security-rules.md G10). */
	bool running, redirected; /* redirected: by eBPF, and so it goes on if it names no mode */
	char *token;              /* secret, from the source; NULL: a file is followed */
};
