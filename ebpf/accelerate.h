/* accelerate.h - what the programs of accelerate.bpf.c and the broker share.
 *
 * Fixed-size types without padding, as in redirect.h.
 */
#pragma once
#include "redirect.h"

enum {
	ACCELERATE_LANES_MAX = 16384, /* of a node, at a time; more go as without */
	ACCELERATE_ULP_SIZE = 4,
};

/* One connection between an app and its own Envoy: both ends make the same one of what they see. */
struct accelerate_lane_key {
	__u64 netns; /* its cookie */
	struct redirect_address client;
	__u32 server; /* the last word of either form (kernels.md 2) */
	__u16 client_port, server_port;
};

/* Of a socket, for its life. */
enum accelerate_role {
	ACCELERATE_GIVER = 1, /* the app's end */
	ACCELERATE_TAKER,     /* Envoy's end */
	ACCELERATE_NEVER,     /* it asked for something that does not go with it */
};
struct accelerate_lane {
	struct accelerate_lane_key key;
	__u64 place; /* of the socket's own struct */
	__u64 taker; /* a giver's: where the taker's is; 0: it was not needed yet */
	__u32 role, pad;
};

/* Fields of the kernel's structs, in bytes from the socket's beginning. */
struct accelerate_fields {
	__u32 write_seq, copied_seq, rmem_alloc, rcvbuf;
	__u32 is_mptcp; /* 0: there is no such field */
};

/* What all lanes of the node did, on one processor; kept by the map. */
struct accelerate_counts {
	__u64 lanes;  /* connections whose two ends met */
	__u64 given;  /* bytes that went socket to socket */
	__u64 passed; /* bytes of these connections that went by TCP */
};
