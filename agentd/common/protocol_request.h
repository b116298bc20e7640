/* protocol_request.h - what the worker asks of the broker: protocol.h's other part. */
#pragma once
#include "uuid.h"
#include <stdint.h>

enum {
	LINK_STATE_ID_SIZE = 32, /* SHA-256 of what names the entry */
	LINK_VOLUME_SIZE = 64,   /* with its NUL */
};

/* Worker -> broker.  `fds`: how many the request carries. */
enum link_op {
	LINK_POD_ADD = 1, /* uid: make <run>/pods/<uid>/mount, or adopt it */
	LINK_POD_REMOVE,  /* uid, added or not: close its listeners, end its follows, remove the
			     directory */
	LINK_LISTEN,      /* uid, kind = link_listener: reply carries the socket, a copy is kept */
	LINK_PEER_OF,     /* uid, arg = link_attest, 1 fd (accepted unix stream): is it this pod's?
			     Learns its netns; reply: cookie, cgroup id (0: `why` it is not known),
			     addresses */
	LINK_WRITE,    /* uid, kind = link_file, 1 fd (sealed memfd <= 1 MiB): rename into mount/ */
	LINK_FOLLOW,   /* kind = link_followed, uid or arg = plane index: LINK_FILE now and at each
			  change */
	LINK_UNFOLLOW, /* arg = id of the LINK_FOLLOW */
	LINK_READY,    /* every pod of the node was added and is served: what an earlier worker had
			  and nobody added again goes.  Once in a worker's life */
	LINK_PONG,     /* arg of the LINK_PING: the loop turns */
	LINK_STATE_PUT,         /* kind = link_state, state_id, 1 fd (sealed memfd <= 1 MiB) */
	LINK_STATE_DEL,         /* kind, state_id; not there: fine */
	LINK_STATE_LIST,        /* kind: one LINK_STATE for each entry, then the reply */
	LINK_REDIRECT_SET,      /* uid, 1 fd (redirect_rules): accepted; LINK_REDIRECTED follows */
	LINK_REDIRECT_DEL,      /* uid: its traffic is its own again; nothing there: fine */
	LINK_REDIRECT_COUNTERS, /* reply carries the map of all counters */
	LINK_REDIRECT_EXPLAIN,  /* uid, 1 fd (redirect_question): reply arg = redirect_verdict */
	LINK_REDIRECT_TRACE, /* uid, or zeroes for all: reply carries a pipe of struct link_trace;
				closing it ends the trace */
	LINK_DIAL, /* uid, kind = link_dial, arg = AF_INET*: reply carries a socket of the pod's */
	LINK_CALLER,    /* 1 fd (accepted on csi.sock): is the node's kubelet at its other end? */
	LINK_PUBLISH,   /* uid, volume: the pod's directory is mounted where the kubelet wants it */
	LINK_UNPUBLISH, /* uid, volume: and is there no more; nothing there: fine */
	LINK_VOLUMES,   /* one LINK_VOLUME for each that the kubelet has, then the reply */
	LINK_LOG,       /* kind = link_log, arg = log_level: how the broker logs from now on */
	LINK_OP_END
};
enum link_log { LINK_LOG_LOGFMT, LINK_LOG_JSON, LINK_LOG_END };
enum link_attest { LINK_ATTEST_PREFER, LINK_ATTEST_REQUIRE }; /* what cannot be known is refused */
enum link_state {
	LINK_STATE_CERT,           /* survives the broker */
	LINK_STATE_CERT_IN_MEMORY, /* survives the worker and an upgrade, and never is a file */
	LINK_STATE_CERTS_END,
	LINK_STATE_POD = LINK_STATE_CERTS_END, /* survives the broker; state_id: the 16 bytes of its
						  uid, then zeroes */
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
enum link_dial { LINK_DIAL_UDP, LINK_DIAL_TCP, LINK_DIAL_END };
enum link_file { LINK_FILE_BOOTSTRAP, LINK_FILE_ROOT, LINK_FILE_END };
enum link_followed {
	LINK_FOLLOW_ROOT,      /* arg = index of the control plane: a PEM file */
	LINK_FOLLOW_TOKEN,     /* uid */
	LINK_FOLLOW_CRL,       /* arg = index of the control plane: a PEM file */
	LINK_FOLLOW_MANIFESTS, /* the directory: one LINK_FILE for each *.yaml, then one `synced` */
	LINK_FOLLOWED_END
};

struct link_request {
	uint32_t id; /* chosen by the worker, not 0 */
	uint16_t op, kind;
	uint32_t arg;
	struct uuid uid;
	uint8_t state_id[LINK_STATE_ID_SIZE];
	char volume[LINK_VOLUME_SIZE]; /* its name in the pod: a DNS label */
};
