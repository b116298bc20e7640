/* world.h - a `struct link` on a virtual loop, and the broker's end of its pair in the test's
 * hand.
 *
 * The sockets are real: turn() takes what has arrived.
 */
#pragma once
#include "border/protocol.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/mem.h"
#include "tests/fake/loop.h"
#include "tests/unit/broker/rig.h"
#include "worker/link/link.h"

/* --- the peer in the test's hand --- */

struct world {
	struct loop *l;
	struct link *p;
	int peer; /* the broker's end */
	int lost;
	struct link_call *slot;
	struct link_follow *follow;
	/* what came */
	int done, changed, fd;
	unsigned wait_s;
	bool failed, synced, gone, again;
	struct err e;
	uint64_t cookie, cgroup_id;
	char unknown[64];
	size_t naddresses, size;
	uint8_t first_byte;
	char name[64], data[64];
};

void say(struct world *w, struct link_packet p, int fd);
void turn(struct world *w);
struct link_request heard(struct world *w, enum link_op op, int *fd);
void on_lost(void *ctx);

/* An fd to send; the receiver's copy keeps the write end of a pipe open until it is closed. */
struct probe {
	int read_end;
};

int probe_new(struct probe *p);

/* Has everybody closed what was sent? */
bool probe_is_closed(struct probe *p);
void send_probe(struct world *w, struct link_packet p, struct probe *probe);

extern const struct link_packet hello;
extern const struct link_packet admin;
void connect_peer(struct world *w, int *theirs);
int setup(void **state);
int teardown(void **state);

/* --- callbacks --- */

void note(struct world *w, const struct err *e);
void on_added(void *ctx, const struct err *e, unsigned wait_s);
void on_done(void *ctx, const struct err *e);
void on_listening(void *ctx, const struct err *e, int fd);
void on_netns(void *ctx, const struct err *e, const struct link_peer *n);
void on_changed(void *ctx, const struct link_content *c);
void on_changed_end(void *ctx, const struct link_content *c);
void on_changed_free(void *ctx, const struct link_content *c);
