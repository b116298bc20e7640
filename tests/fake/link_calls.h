/* link_calls.h - inside of fake/priv*.c: calls that wait for the test's answer. */
#pragma once
#include "link.h"
#include "worker/link/redirect.h"
#include "worker/link/volume.h"

struct entry;
struct record;
struct relisten;
struct pod_watch;

struct link {
	struct link_call *calls;
	struct relisten *relistens;
	struct pod_watch *pods;
	int ready, logs, served;
	unsigned lost_pods;
	bool asks_served;
	char lost_why[LINK_SERVED_SIZE];
	int refusal; /* the code of pods' refusals; 0: EPERM */
	bool attests;
	char identity[1024]; /* of link_identity_put() */
	struct link_follow *follows;
	struct record *records;
	struct entry *state;
	int listeners[LINK_NODE_LISTENER_END];
	void (*lost)(void *ctx);
	void *lost_ctx;
	link_pinged pinged;
	void *ping_ctx;
	uint32_t pong;
};

struct link_call {
	struct link *p;
	struct link_call **slot;
	enum link_op op;
	enum link_listener kind; /* or link_dial */
	int family;
	uint16_t port; /* of LINK_DIAL_LOOPBACK */
	struct uuid pod;
	union {
		link_done done;
		link_added added;
		link_listening listening;
		link_peer_known peer_known;
		link_kept_found kept_found;
		link_redirected redirected;
		link_explained explained;
		link_volume_found volume_found;
	};
	void *ctx;
	struct entry *entry; /* LINK_STATE_PUT */
	char volume[LINK_VOLUME_SIZE];
	struct link_call *prev, *next;
};

struct link_call *fake_link_call(
    struct link *p, struct link_call **slot, enum link_op op, const struct uuid *pod, void *ctx);
/* The oldest of that kind (-1: any), out of the list and its slot: the caller frees it. */
struct link_call *fake_link_answer(
    struct link *p, enum link_op op, const struct uuid *pod, int kind);
/* NULL without a reason. */
const struct err *fake_link_refusal(struct err *e, const char *why);
