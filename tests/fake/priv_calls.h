/* priv_calls.h - inside of fake/priv*.c: calls that wait for the test's answer. */
#pragma once
#include "priv.h"
#include "priv/priv_redirect.h"
#include "priv/priv_volume.h"

struct entry;
struct record;
struct relisten;

struct priv {
	struct priv_call *calls;
	struct relisten *relistens;
	int ready;
	bool attests;
	struct priv_follow *follows;
	struct record *records;
	struct entry *state;
	int listeners[PRIV_NODE_LISTENER_END];
	void (*lost)(void *ctx);
	void *lost_ctx;
};

struct priv_call {
	struct priv *p;
	struct priv_call **slot;
	enum priv_op op;
	enum priv_listener kind; /* or priv_dial */
	int family;
	struct uuid pod;
	union {
		priv_done done;
		priv_listening listening;
		priv_peer_known peer_known;
		priv_kept_found kept_found;
		priv_redirected redirected;
		priv_explained explained;
		priv_volume_found volume_found;
	};
	void *ctx;
	struct entry *entry; /* PRIV_STATE_PUT */
	char volume[PRIV_VOLUME_SIZE];
	struct priv_call *prev, *next;
};

struct priv_call *fake_priv_call(
    struct priv *p, struct priv_call **slot, enum priv_op op, const struct uuid *pod, void *ctx);
/* The oldest of that kind (-1: any), out of the list and its slot: the caller frees it. */
struct priv_call *fake_priv_answer(
    struct priv *p, enum priv_op op, const struct uuid *pod, int kind);
/* NULL without a reason. */
const struct err *fake_priv_refusal(struct err *e, const char *why);
