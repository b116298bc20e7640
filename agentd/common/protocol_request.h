/* protocol_request.h - what the worker asks of the broker: protocol.h's other part. */
#pragma once
#include "uuid.h"
#include <stdint.h>

enum {
	PRIV_STATE_ID_SIZE = 32, /* SHA-256 of what names the entry */
	PRIV_VOLUME_SIZE = 64,   /* with its NUL */
};

/* Worker -> broker.  `fds`: how many the request carries. */
enum priv_op {
	PRIV_POD_ADD = 1, /* uid: make <run>/pods/<uid>/mount, or adopt it */
	PRIV_POD_REMOVE,  /* uid, added or not: close its listeners, end its follows, remove the
			     directory */
	PRIV_LISTEN,      /* uid, kind = priv_listener: reply carries the socket, a copy is kept */
	PRIV_PEER_OF,     /* uid, arg = priv_attest, 1 fd (accepted unix stream): is it this pod's?
			     Learns its netns; reply: cookie, cgroup id (0: `why` it is not known),
			     addresses */
	PRIV_WRITE,    /* uid, kind = priv_file, 1 fd (sealed memfd <= 1 MiB): rename into mount/ */
	PRIV_FOLLOW,   /* kind = priv_followed, uid or arg = plane index: PRIV_FILE now and at each
			  change */
	PRIV_UNFOLLOW, /* arg = id of the PRIV_FOLLOW */
	PRIV_READY,    /* every pod of the node was added and is served: what an earlier worker had
			  and nobody added again goes.  Once in a worker's life */
	PRIV_PONG,     /* arg of the PRIV_PING: the loop turns */
	PRIV_STATE_PUT,         /* kind = priv_state, state_id, 1 fd (sealed memfd <= 1 MiB) */
	PRIV_STATE_DEL,         /* kind, state_id; not there: fine */
	PRIV_STATE_LIST,        /* kind: one PRIV_STATE for each entry, then the reply */
	PRIV_REDIRECT_SET,      /* uid, 1 fd (redirect_rules): accepted; PRIV_REDIRECTED follows */
	PRIV_REDIRECT_DEL,      /* uid: its traffic is its own again; nothing there: fine */
	PRIV_REDIRECT_COUNTERS, /* reply carries the map of all counters */
	PRIV_REDIRECT_EXPLAIN,  /* uid, 1 fd (redirect_question): reply arg = redirect_verdict */
	PRIV_REDIRECT_TRACE, /* uid, or zeroes for all: reply carries a pipe of struct priv_trace;
				closing it ends the trace */
	PRIV_DIAL, /* uid, kind = priv_dial, arg = AF_INET*: reply carries a socket of the pod's */
	PRIV_CALLER,    /* 1 fd (accepted on csi.sock): is the node's kubelet at its other end? */
	PRIV_PUBLISH,   /* uid, volume: the pod's directory is mounted where the kubelet wants it */
	PRIV_UNPUBLISH, /* uid, volume: and is there no more; nothing there: fine */
	PRIV_VOLUMES,   /* one PRIV_VOLUME for each that the kubelet has, then the reply */
	PRIV_OP_END
};
enum priv_attest { PRIV_ATTEST_PREFER, PRIV_ATTEST_REQUIRE }; /* what cannot be known is refused */
enum priv_state {
	PRIV_STATE_CERT,           /* survives the broker */
	PRIV_STATE_CERT_IN_MEMORY, /* survives the worker and an upgrade, and never is a file */
	PRIV_STATE_CERTS_END,
	PRIV_STATE_POD = PRIV_STATE_CERTS_END, /* survives the broker; state_id: the 16 bytes of its
						  uid, then zeroes */
	PRIV_STATE_END
};
enum priv_listener {
	PRIV_LISTEN_SDS,
	PRIV_LISTEN_XDS,
	PRIV_LISTENER_END,   /* of those below mount/ */
	PRIV_LISTEN_DNS_UDP, /* at the DNS proxy's port in the pod's network namespace */
	PRIV_LISTEN_DNS_TCP,
	PRIV_LISTEN_KINDS
};
enum priv_dial { PRIV_DIAL_UDP, PRIV_DIAL_TCP, PRIV_DIAL_END };
enum priv_file { PRIV_FILE_BOOTSTRAP, PRIV_FILE_ROOT, PRIV_FILE_END };
enum priv_followed {
	PRIV_FOLLOW_ROOT,      /* arg = index of the control plane: a PEM file */
	PRIV_FOLLOW_TOKEN,     /* uid */
	PRIV_FOLLOW_CRL,       /* arg = index of the control plane: a PEM file */
	PRIV_FOLLOW_MANIFESTS, /* the directory: one PRIV_FILE for each *.yaml, then one `synced` */
	PRIV_FOLLOWED_END
};

struct priv_request {
	uint32_t id; /* chosen by the worker, not 0 */
	uint16_t op, kind;
	uint32_t arg;
	struct uuid uid;
	uint8_t state_id[PRIV_STATE_ID_SIZE];
	char volume[PRIV_VOLUME_SIZE]; /* its name in the pod: a DNS label */
};
