/* channel.h - the client side: a channel to one server, many streams on its connection. */
#pragma once
#include "rpc.h"

struct rpc_channel;

struct rpc_channel_options {
	const char *target;      /* "host:port" */
	const char *roots_pem;   /* NULL: the system's */
	const char *server_name; /* that the certificate must name */
	unsigned shard;          /* channels of different shards never share a connection */
	const char *owner;       /* nor do those of different owners; NULL: nobody's alone */
	/* What the client shows of itself: a secret and its chain, PEM; both NULL: nothing. */
	const char *key_pem, *chain_pem;
	bool plaintext; /* tests only: target is a unix path or loopback */
};
enum rpc_channel_state { RPC_IDLE, RPC_CONNECTING, RPC_READY, RPC_TRANSIENT_FAILURE };
const char *rpc_channel_state_name(enum rpc_channel_state s);

/* `changed` runs at every change of connectivity: READY -> IDLE is the only sign of a GOAWAY. */
typedef void (*rpc_channel_changed)(void *ctx, enum rpc_channel_state s);
struct rpc_channel *rpc_channel_new(
    struct rpc *r, const struct rpc_channel_options *o, rpc_channel_changed changed, void *ctx);
/* With roots that cannot be read it is TRANSIENT_FAILURE from the start and never changes. */
enum rpc_channel_state rpc_channel_state(const struct rpc_channel *c);
/* Connect, if it is IDLE; a channel that fails tries again by itself, with jitter. */
void rpc_channel_connect(struct rpc_channel *c);
/* No `changed` any more; its streams live on, the connection goes with the last of them. */
void rpc_channel_free(struct rpc_channel **c);

struct rpc_header {
	const char *key;   /* lower-case */
	const char *value; /* an illegal one fails the open, and is not logged */
	bool secret;       /* so is its copy: common/secret.h */
};
struct rpc_call {
	const char *method;               /* "/package.Service/Method" */
	const struct rpc_header *headers; /* copied */
	size_t nheaders;
	unsigned deadline_ms; /* 0: none */
	bool wait_for_ready;  /* wait for the connection instead of failing at once */
	bool in_turn;         /* messages are read when there is room for them: rpc_bound() */
};
/* *slot is set now, and NULL when `closed` runs. */
int rpc_open(struct rpc_channel *c, struct rpc_stream **slot, const struct rpc_call *call,
    const struct rpc_events *ev, void *ctx, struct err *e);
