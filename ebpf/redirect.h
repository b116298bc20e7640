/* redirect.h - the maps' keys and values, shared by the eBPF programs and the broker.
 *
 * Included by both sides, so only fixed-size types; every struct is free of padding, because a hash
 * map compares the bytes.  Addresses are 128 bits in network order, IPv4 as ::ffff:a.b.c.d; ports
 * are in host order.  A pod is its cgroup (decisions.md 9); inside the maps it is a small
 * number, its index, which sockets inherit (kernels.md 3.2, 3.3).
 */
#pragma once
#include <linux/types.h>

enum {
	/* Of the maps; part of the pins' path.  The first release has this one, so there is no way
	   from another: who changes it brings one, or pods are redirected twice. */
	REDIRECT_LAYOUT = 3,
	REDIRECT_PODS_MAX = 1024,
	REDIRECT_DEPTH = 8, /* cgroups between the attach point and a process that are looked at */
	REDIRECT_TREE_DEPTH = 32, /* known levels below the host's root: bits of pod_levels */
	REDIRECT_SPREAD = 64,     /* addresses that outbound connections are spread over */
	REDIRECT_DNS_SLOTS = 4,   /* resolvers one unconnected socket can ask and tell apart */
	REDIRECT_TREES_MAX = 4,   /* cgroups that the kubelet has all pods in */
	REDIRECT_ROW_BITS = 16,   /* of an index: its row among the counters, from 1 on */
	REDIRECT_ROW_MASK = (1 << REDIRECT_ROW_BITS) - 1,
};

/* A pod's copy of sk_lookup has its index here: the broker writes it into the instructions. */
#define REDIRECT_INDEX_PLACE 0x7265646972656374

/* The first of them, 127.15.1.1; of IPv6 ::127.15.1.1.  Linux knows those of IPv4 as the
 * loopback's, and those of IPv6 by a route that the broker puts there (netns/watch.h). */
#define REDIRECT_SPREAD_FIRST 0x7f0f0101
#define REDIRECT_SPREAD_BITS 121

/* 128 bits in network order. */
struct redirect_address {
	__u32 word[4];
};

/* What a pod's processes may do, and where they are sent (istio-agent.md 11.1). */
enum redirect_flag {
	REDIRECT_OUTBOUND_ALL = 1 << 0,      /* include `*`; else the CIDRs marked INCLUDE */
	REDIRECT_INBOUND_ALL = 1 << 1,       /* include `*`; else ports of kind INBOUND_INCLUDE */
	REDIRECT_LOOPBACK_INCLUDED = 1 << 2, /* an included CIDR lies in 127.0.0.0/8 or is ::1 */
	REDIRECT_DNS = 1 << 3,               /* port 53 goes to the DNS proxy while that listens */
	REDIRECT_DNS_ALL = 1 << 4,           /* whatever the server; else those marked DNS */
	REDIRECT_GROUPS_INCLUDE = 1 << 5, /* only listed groups are captured; else all but these */
	REDIRECT_TRACE = 1 << 6,          /* decisions go to the trace ring */
	REDIRECT_DNS_KNOWN = 1 << 7,      /* the DNS proxy has answered: istiod's names are known */
	REDIRECT_SHUT = 1 << 30, /* by the broker alone: nobody's rules (redirect/shut.h) */
};

struct redirect_pod {
	__u32 index; /* a row, and above it a number that an earlier pod of that row had not:
			sockets of a pod that is gone speak for nobody; 0 is nobody */
	__u32 flags;
	__u32 proxy_uid,
	    proxy_gid; /* as the pod's own user namespace counts; compared modulo 65536 */
	__u16 outbound_port, inbound_port, tunnel_port, dns_port;
	struct redirect_address source4,
	    source6;  /* the pod's addresses to dial from; zero: not known */
	__u8 uid[16]; /* of the pod: for a broker that finds the maps */
	__u64 home;   /* cookie of the network namespace that its Envoy came from; 0: not known */
};

enum redirect_port_kind {
	REDIRECT_PORT_OUTBOUND_EXCLUDE = 1,
	REDIRECT_PORT_OUTBOUND_INCLUDE,
	REDIRECT_PORT_INBOUND_EXCLUDE,
	REDIRECT_PORT_INBOUND_INCLUDE,
	REDIRECT_PORT_GROUP,     /* `number` is a gid */
	REDIRECT_PORT_INTERFACE, /* `number` is an ifindex: what arrives there is not touched */
	REDIRECT_PORT_PROBE,     /* inbound: the kubelet is let in */
};
struct redirect_port_key {
	__u32 index, kind, number;
};

/* What is known of a destination; the longest prefix has all that its wider ones have, but for what
 * it overrules (redirect/ flattens, since the trie returns one answer only). */
enum redirect_cidr_flag {
	REDIRECT_CIDR_EXCLUDE = 1 << 0,
	REDIRECT_CIDR_INCLUDE = 1 << 1,
	REDIRECT_CIDR_LOCAL = 1 << 2, /* an address of the pod itself: packets to it stay on lo */
	REDIRECT_CIDR_INTERFACE = 1 << 4, /* leaves by an excluded interface */
	REDIRECT_CIDR_DNS = 1 << 3,       /* a server of the pod's resolv.conf */
};
struct redirect_cidr_key {
	__u32 prefix; /* bits of all that follows: 32 + those of the address */
	__u32 index;
	struct redirect_address address;
};
enum {
	REDIRECT_CIDR_BITS = 32,
	/* Above its flags a row repeats its own prefix: a look-up answers with a wider row where
	   the one asked for is not there, and whoever writes has to tell. */
	REDIRECT_CIDR_PREFIX = 16,
};

/* Of a socket, for its life; accepted sockets inherit their listener's. */
enum redirect_socket_kind {
	REDIRECT_SOCKET_NOTHING,
	REDIRECT_SOCKET_DIALLED,  /* sent to a capture port: address and port are the real ones */
	REDIRECT_SOCKET_DIRECT,   /* dialled a capture port itself */
	REDIRECT_SOCKET_PROXY,    /* Envoy's own connection: may be a call of the pod to itself */
	REDIRECT_SOCKET_ACCEPTED, /* by Envoy: address and port are what the client dialled */
	REDIRECT_SOCKET_LISTENS_OUT, /* Envoy's listener on the outbound port */
	REDIRECT_SOCKET_LISTENS_IN,  /* and on the inbound one */
	REDIRECT_SOCKET_LISTENS_DNS, /* the broker's mark: somebody answers here */
	REDIRECT_SOCKET_DNS,         /* connected to the DNS proxy in place of address and port */
	REDIRECT_SOCKET_OF_NODE,     /* made in the node's own network namespace */
	REDIRECT_SOCKET_MADE,        /* by a pod, in a namespace that was not known as its own */
	REDIRECT_SOCKET_ASKS,        /* a name, of the pod's own resolver: nobody else answers */
};
struct redirect_socket {
	__u32 index;
	__u16 kind, port;
	union {
		struct redirect_address address;
		struct {                 /* of one that listens, or may */
			__u64 netns;     /* cookie of its network namespace; 0: not known */
			__u32 look, pad; /* the last one that found it */
		} made;
	};
};

/* From the dialler's SYN until Envoy's accepted socket has it: microseconds. */
struct redirect_tuple_key {
	__u32 index, target; /* the loopback address dialled: the last word of either form */
	struct redirect_address client;
	__u32 client_port, pad;
};
struct redirect_tuple {
	struct redirect_address address;
	__u32 port, pad;
};

/* A connection of Envoy to its own pod, from its SYN to its close: to be steered to Envoy again.
 * And one of the kubelet to any pod, to be let in: index 0. */
struct redirect_self_key {
	__u32 index;
	__u16 source_port, port;
	struct redirect_address source, address;
};

/* Whose dials may be the kubelet's, and where to (probes.bpf.h); the broker writes it.  All zero:
 * nobody's. */
struct redirect_tree {
	__u64 id; /* of a cgroup above pods; 0: none */
	__u32 level, pad;
};
struct redirect_probing {
	struct redirect_tree trees[REDIRECT_TREES_MAX];
	__u64 ports[65536 / 64]; /* bits: some pod has it among its probe ports */
};

struct redirect_listener_key {
	__u32 index, family;
};

/* Who listens there, as a connection from that port of the loopback address would find it?  It gets
 * the mark of an Envoy's listener. */
struct redirect_sought {
	struct redirect_address address; /* which it is bound to; 0.0.0.0 or ::: any */
	__u32 index, family;             /* index 0: nobody looks */
	__u16 kind, port, from, publish; /* publish: into `listeners` */
	__u32 look;  /* each has a number of its own: a socket is counted once */
	__u64 netns; /* cookie of the network namespace that is looked at; 0: not known */
};
enum redirect_found {
	REDIRECT_FOUND_NONE,
	REDIRECT_FOUND_AGAIN, /* in this look */
	REDIRECT_FOUND_KNOWN, /* known earlier */
	REDIRECT_FOUND_NEW,
};

/* Why a decision was what it was: the rules of istio-agent.md 11.3 by name, in their order. */
enum redirect_verdict {
	REDIRECT_PASS_INTERFACE, /* either way */
	REDIRECT_PASS_NOT_TCP,
	REDIRECT_PASS_PORT_EXCLUDED,
	REDIRECT_PASS_PROXY_PASSTHROUGH, /* from 127.0.0.6 or ::6 */
	REDIRECT_TO_SELF,                /* the proxy calls its own pod: inbound port */
	REDIRECT_PASS_LOCAL,             /* the app calls its own pod */
	REDIRECT_PASS_PROXY_UID,
	REDIRECT_PASS_PROXY_GID,
	REDIRECT_PASS_GROUP,
	REDIRECT_TO_DNS,
	REDIRECT_PASS_NO_DNS, /* it would go there, but nobody answers */
	REDIRECT_PASS_LOOPBACK,
	REDIRECT_PASS_CIDR_EXCLUDED,
	REDIRECT_TO_OUTBOUND_PORT, /* an included port */
	REDIRECT_TO_OUTBOUND,
	REDIRECT_PASS_NOT_INCLUDED,
	REDIRECT_PASS_TUNNEL, /* HBONE's port; inbound from here on */
	REDIRECT_PASS_INBOUND_EXCLUDED,
	REDIRECT_PASS_INBOUND_NOT_INCLUDED,
	REDIRECT_PASS_INBOUND_LOCAL,
	REDIRECT_TO_INBOUND,
	REDIRECT_DROP_NO_LISTENER, /* inbound, Envoy is not there: reset, as without eBPF */
	REDIRECT_DROP_GATE,        /* inbound, where nothing steers: the pod is not live */
	REDIRECT_LOST_DESTINATION, /* Envoy's accepted socket found no tuple: it will refuse it */
	REDIRECT_DROP_NO_MEMORY,   /* no storage for a socket: the connect fails */
	REDIRECT_PASS_PROBE,       /* inbound: the kubelet, at a probe port */
	REDIRECT_VERDICTS
};

/* Row 1 and on of an array that only the programs can write (it is frozen): a pod that gets a row
 * begins with what an earlier one left there, its baseline. */
struct redirect_counters {
	__u64 n[REDIRECT_VERDICTS];
};

/* What the broker hears at once, whoever looks on. */
enum redirect_news_kind {
	REDIRECT_NEWS_LISTENS = 1, /* an Envoy's inbound listener is known */
	REDIRECT_NEWS_REFUSED,     /* a connection found none; once a second */
};
struct redirect_news {
	__u32 index, kind;
};

/* One decision, while somebody looks on.  An arrival has no uid and gid, and what the gate drops no
 * addresses. */
struct redirect_trace {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 index, verdict, uid, gid;
	__u16 port, protocol;
	__u32 inbound;
	struct redirect_address source, address; /* of a dial: where to */
};
