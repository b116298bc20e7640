/* rules_types.h - what a decision is about: a dial, or an arrival. */
#pragma once
#include "redirect.h"

struct redirect_flow {
	struct redirect_address address;
	struct redirect_address source; /* which the socket is bound to; 0: the kernel picks one */
	__u32 uid, gid;
	__u16 port;
	__u8 protocol;
};

struct redirect_arrival {
	struct redirect_address source, address;
	__u32 ifindex; /* 0: not known */
	__u16 port;
};

/* Beside the verdict in the answer. */
enum { REDIRECT_ANSWER_INBOUND = 1 << 16 };
/* `agentctl redirect explain`, from the worker to the broker. */
struct redirect_question {
	__u32 inbound;
	__u32 probe; /* it is the kubelet's own */
	struct redirect_flow flow;
	struct redirect_arrival arrival;
};
