/* protocol.h - what broker and worker say to each other over one SOCK_SEQPACKET pair.
 *
 * Fixed-size structs, fds by SCM_RIGHTS.  No path, address, pid or netns name ever crosses: the
 * broker builds paths from its own command line.  Both ends are of one release, so there is one
 * version number and no negotiation.  The broker checks, before it looks at the content: the packet
 * has exactly the size of struct priv_request, the operation exists, and as many fds came as it
 * takes; anything else is a protocol violation and kills the worker (process-split.md 4).
 */
#pragma once
#include "protocol_request.h"

enum {
	PRIV_VERSION = 3,
	PRIV_FD = 3,        /* the worker's end of the pair */
	PRIV_CONFIG_FD = 4, /* a copy of agentd.yaml; empty without one */
	PRIV_FILE_SIZE_MAX = 1 << 20,
	PRIV_NAME_SIZE = 256,
	PRIV_WHY_SIZE = 200,
	PRIV_ADDRESSES_MAX = 16,
	PRIV_FOLLOWS_PER_POD_MAX = 4,
	PRIV_PLANES_MAX = 16,
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
	PRIV_VOLUME,   /* id of the PRIV_VOLUMES; uid, name, state = priv_volume_state; 1 fd: its
			  vol_data.json, else `why` not */
	PRIV_CSI_NOTE, /* arg = how often csi.sock or its entry had to be put back so far */
};
enum priv_node_listener {
	PRIV_NODE_ADMIN,
	PRIV_NODE_CSI,     /* with --kubelet-root only */
	PRIV_NODE_METRICS, /* with --metrics only */
	PRIV_NODE_LISTENER_END
};
enum priv_volume_state {           /* bits */
	PRIV_VOLUME_MOUNTED = 1,   /* our directory is on it */
	PRIV_VOLUME_DIRECTORY = 2, /* the kubelet's directory of the volume is there */
};
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
	uint32_t state; /* priv_file_state, priv_volume_state */
	uint32_t naddresses;
	uint64_t netns_cookie; /* 0: the kernel has none */
	uint64_t cgroup_id;    /* of the peer, the pod's or one below it; 0: not known */
	struct uuid uid;
	uint8_t state_id[PRIV_STATE_ID_SIZE];
	struct priv_address addresses[PRIV_ADDRESSES_MAX];
	char name[PRIV_NAME_SIZE]; /* of a file in a followed directory, a volume; NUL-terminated */
	char why[PRIV_WHY_SIZE];
};
