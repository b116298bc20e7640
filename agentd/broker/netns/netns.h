/* netns.h - the network namespace behind a connection, and what it looks like from inside.
 *
 * Single-threaded: to look at a namespace the broker enters it for some microseconds.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/fdstore.h"
#include "common/err.h"
#include <stdbool.h>
#include <sys/types.h>

struct netns_id {
	uint64_t cookie; /* never given again; 0: the kernel has none (before 5.14), or nothing is
			    known */
	dev_t dev;
	ino_t ino; /* not used again as long as somebody holds an fd of it */
};
/* By cookie, where both have one. */
bool netns_same(const struct netns_id *a, const struct netns_id *b);

/* Namespaces that never are a pod's: ours and that of pid 1.  The latter is hidden from a broker
 * with fewer capabilities, so the first one keeps it for those that follow. */
struct netns_home {
	int fd, init_fd; /* -1 */
	struct netns_id own, init;
};
int netns_home_open(struct netns_home *h, struct broker_fdstore *k, struct err *e);
void netns_home_close(struct netns_home *h); /* kept descriptors stay kept */

/* Is it one of these?  By its inode; `netns` is held, so that is nobody else's. */
bool netns_is_home(const struct netns_home *h, int netns);
bool netns_is_own(const struct netns_home *h, int netns); /* the first one */

uint64_t netns_cookie(void); /* of the one that we are in; 0: as above */

/* An fd of the namespace in which the peer of the accepted unix stream `conn` made its socket;
 * refused for anything else than such a connection and for a namespace of `h`. */
int netns_of(const struct netns_home *h, int conn, struct netns_id *id, struct err *e);
/* An fd of the namespace that ip(8) knows by that name, if it has this cookie (from 5.14 on); or
 * -1. */
int netns_named(const struct netns_home *h, const char *name, uint64_t cookie);
/* Runs `act` there; its result.  -1, with `e`, also if it cannot be entered. */
typedef int (*netns_act)(void *ctx, struct err *e);
int netns_visit(const struct netns_home *h, int netns, netns_act act, void *ctx, struct err *e);
/* Fills in the addresses of `out`, as istio-agent.md 8.2 lists them; a machine's as address.h
 * orders them. */
struct netns_looked_at {
	int netns;
	bool machine;
};
int netns_describe(
    const struct netns_home *h, struct netns_looked_at at, struct link_packet *out, struct err *e);
