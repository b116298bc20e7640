/* rpc_rig.h - real grpc on both sides in one process: a loop, a server behind a unix socket, a
 * channel to it, and recorders that stand for the owners of streams.  For
 * tests/unit/base/rpc*_test.c.
 */
#pragma once
#include "base/loop.h"
#include "common/err.h"
#include "rpc/channel.h"
#include "rpc/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/buffer.h>

/* The owner of one stream: what happened to it, and what it does when something happens. */
struct side {
	struct rpc_stream *stream;
	struct rig *rig;
	char method[64];
	struct evbuffer *got; /* all messages, one after the other; NULL: only counted */
	unsigned messages, writables, half_closes, closes, crowds;
	size_t bytes;
	int status;
	char why[256];
	bool slot_was_set; /* in `closed`: must never be */
	void (*on_message)(struct side *s, const struct rpc_msg *m);
	void (*on_writable)(struct side *s);
	void (*on_half_closed)(struct side *s);
	void (*on_closed)(struct side *s);
	void *ctx; /* of these */
};

/* A server behind a unix socket of its own. */
struct served {
	struct rig *rig;
	struct rpc_server *server;
	struct rpc_server_options options;
	char path[64];
	int listen_fd;
	struct loop_fd watch;
	unsigned connections;
	int peek_fd; /* a copy of the last accepted fd, to see its end */
	struct side calls[64];
	unsigned ncalls;
	bool refuse;                     /* do not take calls */
	void (*prepare)(struct side *s); /* sets the hooks of a new call */
};

enum { CHANGES_MAX = 64 };

struct rig {
	struct loop *loop;
	struct rpc *rpc;
	struct served s;
	struct rpc_channel *channel;
	enum rpc_channel_state changes[CHANGES_MAX];
	unsigned nchanges;
	struct side client;
};

extern const struct rpc_events side_events;

void rig_begin(struct rig *r); /* runtime, server `s` with defaults, a plaintext channel to it */
void rig_end(struct rig *r);   /* frees what the test did not */
void side_reset(struct side *s);

void served_begin(struct served *s, struct rig *r, const struct rpc_server_options *o);
void served_listen(struct served *s);
void served_end(struct served *s);
/* A plain socket connected to it, for peers that do not speak properly. */
int served_dial(const struct served *s);
bool is_at_end(int fd); /* after what is still to be read */

struct rpc_channel *rig_channel(struct rig *r, const char *path, unsigned shard);
/* Opens "/test.Echo/Talk" for `c` on r->channel. */
void rig_open(struct rig *r, struct side *c);
void rig_open_call(struct rig *r, struct side *c, const struct rpc_call *call);

void rig_turn(struct rig *r);                 /* waits for something to do, does it */
void rig_spin(struct rig *r, unsigned turns); /* turns without waiting */
void rig_settle(struct rig *r, int ms); /* runs the loop for a while: to see that nothing comes */
void rig_guard(struct rig *r, const char *what);
void rig_unguard(void);
/* Until the server has so many: nothing tells the loop that one is closed. */
void rig_wait_connections(struct rig *r, struct rpc_server *s, unsigned n);

#define WAIT(rig_, cond)                                                                           \
	do {                                                                                       \
		rig_guard(rig_, #cond);                                                            \
		while (!(cond))                                                                    \
			rig_turn(rig_);                                                            \
		rig_unguard();                                                                     \
	} while (0)

unsigned open_fds(void);

/* Hooks of sides that many tests want. */
void echo(struct side *s, const struct rpc_msg *m);
void close_ok(struct side *s);
