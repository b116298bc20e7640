/* protocol.h - what broker and worker say to each other over one SOCK_SEQPACKET pair.
 *
 * Fixed-size structs, fds by SCM_RIGHTS.  No path, address, pid or netns name ever crosses: the
 * broker builds paths from its own command line.  Both ends are of one release, so there is one
 * version number and no negotiation.  The broker checks, before it looks at the content: the packet
 * has exactly the size of struct priv_request, the operation exists, and as many fds came as it
 * takes; anything else is a protocol violation and kills the worker (process-split.md 4).
 */
#pragma once
#include "../base/uuid.h"
#include <stdint.h>

enum {
	PRIV_VERSION = 2,
	PRIV_FD = 3,        /* the worker's end of the pair */
	PRIV_CONFIG_FD = 4, /* a copy of agentd.yaml; empty without one */
	PRIV_FILE_SIZE_MAX = 1 << 20,
	PRIV_NAME_SIZE = 256,
	PRIV_WHY_SIZE = 200,
	PRIV_ADDRESSES_MAX = 16,
	PRIV_FOLLOWS_PER_POD_MAX = 4,
	PRIV_PLANES_MAX = 16,
	PRIV_STATE_ID_SIZE = 32, /* SHA-256 of what names the entry */
};

/* Worker -> broker.  `fds`: how many the request carries. */
enum priv_op {
	PRIV_POD_ADD = 1, /* uid: make <run>/pods/<uid>/mount, or adopt it */
	PRIV_POD_REMOVE,  /* uid: close its listeners, end its follows, remove the directory */
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
	PRIV_OP_END
};
enum priv_attest { PRIV_ATTEST_PREFER, PRIV_ATTEST_REQUIRE }; /* what cannot be known is refused */
enum priv_state {
	PRIV_STATE_CERT,           /* survives the broker */
	PRIV_STATE_CERT_IN_MEMORY, /* survives the worker and an upgrade, and never is a file */
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
};

struct priv_address {
	uint8_t family; /* AF_INET or AF_INET6 */
	uint8_t bytes[16];
};

/* Broker -> worker. */
enum priv_what {
	PRIV_HELLO =
	    1, /* first packet; arg = PRIV_VERSION, kind = number of node listeners that follow */
	PRIV_NODE_LISTENER, /* kind = priv_node_listener, 1 fd */
	PRIV_REPLY, /* id of the request; code 0 or errno, `why`; PRIV_LISTEN carries 1 fd */
	PRIV_FILE,  /* id of the PRIV_FOLLOW; name; state; PRIV_FILE_CONTENT carries a sealed memfd
		     */
	PRIV_PING,  /* arg: to be echoed */
	PRIV_LISTENER, /* uid, kind = priv_listener, 1 fd: takes the place of one that was shut down
			*/
	PRIV_REDIRECTED, /* id of the PRIV_REDIRECT_SET; code 0, arg = row of the counters + 1, 1 fd
			    (its baseline, struct redirect_counters); or errno, `why` */
	PRIV_REDIRECT_NOTE, /* uid: arg = its inbound traffic is redirected, too; code, `why` not;
			       uid of zeroes: arg = how much was put back so far */
	PRIV_STATE,         /* id of the PRIV_STATE_LIST, kind, state_id, 1 fd */
};
enum priv_node_listener { PRIV_NODE_ADMIN, PRIV_NODE_LISTENER_END };
enum priv_file_state {
	PRIV_FILE_CONTENT, /* the fd holds the bytes */
	PRIV_FILE_REMOVED, /* it is gone, or was never there */
	PRIV_FILE_REFUSED, /* `why`: not regular, not root's, too large, ... */
	PRIV_FILE_SYNCED,  /* directory only: everything there at the start was told */
};

struct priv_packet {
	uint32_t id;
	uint16_t what, kind;
	uint32_t arg;
	int32_t code;
	uint32_t state; /* priv_file_state */
	uint32_t naddresses;
	uint64_t netns_cookie; /* 0: the kernel has none */
	uint64_t cgroup_id;    /* of the peer, the pod's or one below it; 0: not known */
	struct uuid uid;
	uint8_t state_id[PRIV_STATE_ID_SIZE];
	struct priv_address addresses[PRIV_ADDRESSES_MAX];
	char name[PRIV_NAME_SIZE]; /* of a file in a followed directory; NUL-terminated */
	char why[PRIV_WHY_SIZE];
};
