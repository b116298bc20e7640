/* server_internal.h - a server, for server.c and served.c. */
#pragma once
#include "guard.h"
#include "rpc_internal.h"

struct socket {
	struct rpc_connection c;
	int64_t silent_until_ms; /* uptime; 0: it made a call */
};

struct rpc_server {
	struct rpc *rpc;
	struct rpc_server_options options;
	grpc_server *grpc;
	rpc_incoming incoming;
	void *ctx;
	struct rpc_tag request, shutdown;
	bool freed, requesting, shut_down;
	/* The call that `request` will bring. */
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array metadata;
	struct socket *sockets; /* that were adopted, the last of each fd */
	size_t nsockets;
	struct loop_timer silent; /* the next one's end */
	struct loop_timer calm;   /* armed while the guard waits for it */
	uint64_t announced, announced_then;
	struct rpc_guard *guard;
	unsigned nstreams;
	bool held;
	struct rpc_server *prev, *next;
};

/* served.c */
void rpc_server_charge(struct rpc_server *s, int64_t more); /* bytes held for its pod */
void rpc_server_push(struct rpc_server *s, int64_t more);   /* bytes on their way to it */
void rpc_server_took(struct rpc_stream *s, int64_t bytes);
bool rpc_server_is_held(const struct rpc_server *s);
void rpc_server_request(struct rpc_server *s);
void rpc_server_breach(struct rpc_server *s, enum rpc_breach what);

/* server.c */
void rpc_server_tell_news(struct rpc *r);
void rpc_server_drop_all(struct rpc *r); /* what the owners did not free themselves */
