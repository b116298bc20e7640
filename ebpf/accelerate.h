/* accelerate.h - what the programs of accelerate.bpf.c and the broker share.
 *
 * Fixed-size types without padding, as in redirect.h.
 */
#pragma once
#include "redirect.h"

enum {
	ACCELERATE_LANES_MAX = 16384, /* of a node, at a time; more go as without */
	ACCELERATE_HOMES_MAX = 2 * REDIRECT_PODS_MAX,
	ACCELERATE_ROWS = 256, /* of counts: a processor's, and that of others 256 further on */
};

/* One connection, as both of its ends see it: of an app and its own Envoy, or of two Envoys.  Each
 * Envoy of two has a key of its own, which differs in ACCELERATE_DIALLED. */
struct accelerate_lane_key {
	__u64 netns; /* its cookie; of two Envoys: the index of the pod that accepted, and marks */
	struct redirect_address client;
	__u32 server; /* the last word of either form (kernels.md 2) */
	__u16 client_port, server_port;
};

/* Marks of `netns`, which no cookie has: cookies are counted from 1 on. */
#define ACCELERATE_BETWEEN (1ULL << 63)
#define ACCELERATE_DIALLED (1ULL << 62)

/* Of a socket, for its life. */
enum accelerate_role {
	ACCELERATE_GIVER = 1, /* the app's end */
	ACCELERATE_TAKER,     /* Envoy's end */
	ACCELERATE_NEVER,     /* it asked for something that does not go with it */
	ACCELERATE_EITHER,    /* one of two Envoys: it gives, and it takes */
};
struct accelerate_lane {
	struct accelerate_lane_key key;
	__u64 place; /* of the socket's own struct */
	__u64 taker; /* a giver's: where the taker's is; 0: it was not needed yet */
	__u32 role;
	__u32 sends; /* a giver's, short ones */
};

/* Fields of the kernel's structs, in bytes from the socket's beginning. */
struct accelerate_fields {
	__u32 write_seq, copied_seq, rmem_alloc, rcvbuf;
	__u32 is_mptcp; /* 0: there is no such field */
};

/* What all lanes of the node did, of one kind; it only grows. */
struct accelerate_counts {
	__u64 lanes;  /* connections whose two ends met; of two Envoys: and the dialler wrote */
	__u64 given;  /* bytes that went socket to socket */
	__u64 passed; /* bytes of these connections that went by TCP */
};
/* A cache line of an array that only the programs can write (it is frozen). */
struct accelerate_row {
	struct accelerate_counts loopback, between; /* of an app and its Envoy, of two Envoys */
	__u64 pad[2];
};
