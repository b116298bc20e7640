/* protocol_request.h - the worker's requests to the broker: protocol.h's other part. */
#pragma once
#include "common/uuid.h"
#include "ops.h"
#include <stdint.h>

enum {
	LINK_STATE_ID_SIZE = 32, /* SHA-256 of what names the entry */
	LINK_VOLUME_SIZE = 64,   /* with its NUL */
};

enum link_log { LINK_LOG_LOGFMT, LINK_LOG_JSON, LINK_LOG_END };
enum link_attest { LINK_ATTEST_PREFER, LINK_ATTEST_REQUIRE }; /* what cannot be known is refused */
enum link_state {
	LINK_STATE_CERT,           /* survives the broker */
	LINK_STATE_CERT_IN_MEMORY, /* survives the worker and an upgrade, and never is a file */
	LINK_STATE_CERTS_END,
	LINK_STATE_POD = LINK_STATE_CERTS_END, /* survives the broker; state_id: the 16 bytes of its
						  uid, then zeroes */
	LINK_STATE_NAMES, /* survives the broker; name tables as istiod sent them, by their SHA-256;
			     zeroes: which pod has which */
	LINK_STATE_SERVED, /* survives the broker; which services served a pod, by its uid */
	LINK_STATE_END
};
enum link_listener {
	LINK_LISTEN_SDS,
	LINK_LISTEN_XDS,
	LINK_LISTENER_END,   /* of those below mount/ */
	LINK_LISTEN_DNS_UDP, /* at the DNS proxy's port in the pod's network namespace */
	LINK_LISTEN_DNS_TCP,
	LINK_LISTEN_KINDS
};
enum link_dial {
	LINK_DIAL_UDP,
	LINK_DIAL_TCP,
	LINK_DIAL_LOOPBACK, /* by TCP, and on its way there: arg has the port, too */
	LINK_DIAL_END
};
enum { LINK_DIAL_PORT_SHIFT = 16 }; /* of the port in arg, above the family */
enum link_file { LINK_FILE_BOOTSTRAP, LINK_FILE_ROOT, LINK_FILE_END };
enum link_followed {
	LINK_FOLLOW_ROOT,      /* arg = index of the control plane: a PEM file */
	LINK_FOLLOW_TOKEN,     /* uid */
	LINK_FOLLOW_CRL,       /* arg = index of the control plane: a PEM file */
	LINK_FOLLOW_MANIFESTS, /* the directory: one LINK_FILE for each *.yaml, then one `synced` */
	/* uid: the kubelet's directory of a pod, added or not.  It is refused for no regular file
	 * while it is there, and removed when the kubelet has removed it. */
	LINK_FOLLOW_KUBELET_POD,
	/* uid: a key and its certificates, beside the token: what root provisioned. */
	LINK_FOLLOW_KEY,
	LINK_FOLLOW_CHAIN,
	LINK_FOLLOW_KEPT, /* uid: what LINK_IDENTITY_PUT wrote */
	LINK_FOLLOWED_END
};

/* Worker -> broker: a field that an operation (ops.h) does not use is zero. */
struct link_request {
	uint32_t id; /* chosen by the worker, not 0 */
	uint16_t op, kind;
	uint32_t arg;
	struct uuid uid;
	uint8_t state_id[LINK_STATE_ID_SIZE];
	char volume[LINK_VOLUME_SIZE]; /* its name in the pod: a DNS label */
};
