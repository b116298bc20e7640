/* protocol.h - the packets between broker and worker, over one SOCK_SEQPACKET pair.
 *
 * Fixed-size structs, fds by SCM_RIGHTS.  No path, address, pid or netns name ever crosses: the
 * broker builds paths from its own command line.  Both ends are of one release, so there is one
 * version number and no negotiation.  The broker checks, before it looks at the content: the packet
 * has exactly the size of struct link_request, the operation exists, and as many fds came as it
 * takes; anything else is a protocol violation and kills the worker (process-split.md 4).
 */
#pragma once
#include "protocol_request.h"

enum {
	LINK_VERSION = 6 << 8 | LINK_OP_END, /* an operation more is another version */
	LINK_FD = 3,                         /* the worker's end of the pair */
	LINK_CONFIG_FD = 4,                  /* a copy of agentd.yaml; empty without one */
	LINK_FILE_SIZE_MAX = 1 << 20,
	LINK_NAME_SIZE = 256,
	LINK_WHY_SIZE = 200,
	LINK_SERVED_SIZE = 4096, /* with a NUL behind it */
	LINK_ADDRESSES_MAX = 16,
	LINK_FOLLOWS_PER_POD_MAX = 4,
	LINK_FOLLOWS_KUBELET_MAX = 256, /* directories of the kubelet's */
	LINK_PLANES_MAX = 16,
};

struct link_address {
	uint8_t family; /* AF_INET or AF_INET6 */
	uint8_t bytes[16];
};

/* Broker -> worker. */
enum link_what {
	LINK_HELLO =
	    1, /* first packet; arg = LINK_VERSION, kind = number of node listeners that follow */
	LINK_NODE_LISTENER, /* kind = link_node_listener, 1 fd */
	LINK_REPLY,         /* id of the request; code 0 or errno, `why`; 1 fd if its row says so */
	LINK_FILE, /* id of the LINK_FOLLOW; name; state; LINK_FILE_CONTENT carries a sealed memfd;
		      arg = link_running, of a manifest of the start */
	LINK_PING, /* arg: to be echoed; state: lines that the broker could not log so far; id: its
		      resident memory in KiB; kind: workers that it had before this one; `why`:
		      what is wrong on its side, or "" */
	LINK_LISTENER, /* uid, kind = link_listener, 1 fd: takes the place of one that was shut down
			*/
	LINK_REDIRECTED, /* id of the LINK_REDIRECT_SET; code 0, arg = row of the counters + 1, 1 fd
			    (its baseline, struct redirect_counters),
			    `why`: what of it the ceiling does not allow any more, or ""; or errno,
			    `why`, arg = 1: the pod is closed all the same (also of its refusal) */
	LINK_REDIRECT_NOTE, /* uid: arg = link_redirect_note; code, `why` something is wrong; uid of
			       zeroes: arg = how much was put back so far */
	LINK_STATE,         /* id of the LINK_STATE_LIST, kind, state_id, 1 fd */
	LINK_VOLUME,   /* id of the LINK_VOLUMES; uid, name, state = link_volume_state; 1 fd: its
			  vol_data.json, else `why` not */
	LINK_CSI_NOTE, /* arg = how often csi.sock or its entry had to be put back so far */
	LINK_POD_NOTE, /* uid: arg = bits, 1 << link_file, of files that are gone; state = how much
			  was put back so far, of all pods; code, `why`: what could not be */
	LINK_WHAT_END
};
enum link_node_listener {
	LINK_NODE_ADMIN,
	LINK_NODE_CSI,     /* with --kubelet-root only */
	LINK_NODE_METRICS, /* with --metrics only */
	LINK_NODE_LISTENER_END
};
enum link_redirect_note {          /* bits */
	LINK_REDIRECT_INBOUND = 1, /* its inbound traffic is redirected, too */
	LINK_REDIRECT_STEERED = 4, /* so it is, by what an earlier broker saw */
	LINK_REDIRECT_LEFT = 2,    /* no rules are in force for its processes */
};
enum link_volume_state {            /* bits */
	LINK_VOLUME_MOUNTED = 1,    /* our directory is on it */
	LINK_VOLUME_DIRECTORY = 2,  /* the kubelet's directory of the volume is there */
	LINK_VOLUME_REDIRECTED = 4, /* the pod's traffic is, by an earlier worker's word */
};
enum link_running {                  /* bits */
	LINK_RUNNING = 1,            /* the pod's directory was there */
	LINK_RUNNING_REDIRECTED = 2, /* and its traffic was redirected */
};
enum link_file_state {
	LINK_FILE_CONTENT, /* the fd holds the bytes */
	LINK_FILE_REMOVED, /* it is gone, or was never there */
	LINK_FILE_REFUSED, /* `why`: not regular, not root's, too large, ... */
	LINK_FILE_SYNCED,  /* directory only: everything there at the start was told */
};

struct link_packet {
	uint32_t id;
	uint16_t what, kind;
	uint32_t arg;
	int32_t code;
	uint32_t state; /* link_file_state, link_volume_state */
	uint32_t naddresses;
	uint64_t netns_cookie; /* 0: the kernel has none */
	uint64_t cgroup_id;    /* of the peer, the pod's or one below it; 0: not known */
	struct uuid uid;
	uint8_t state_id[LINK_STATE_ID_SIZE];
	struct link_address addresses[LINK_ADDRESSES_MAX];
	char name[LINK_NAME_SIZE]; /* of a file in a followed directory, a volume; NUL-terminated */
	char why[LINK_WHY_SIZE];
};
