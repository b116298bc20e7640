/* metrics_listener.h - the TCP port at which metrics are scraped: --metrics ADDR:PORT.
 *
 * It is in the broker's own network namespace, and made before the worker exists.  The socket
 * outlives the worker, and the broker as kept "metrics": a scrape waits in its backlog meanwhile.
 */
#pragma once
#include "broker/base/fdstore.h"
#include "broker/base/loop.h"
#include "common/err.h"
#include "netns.h"
#include <stdbool.h>
#include <sys/socket.h>

/* For --check: could it be bound?  -1: `e` says why not; EADDRINUSE if somebody listens there. */
int metrics_listener_try(const char *text, struct err *e);

/* Its description; it stays where it is while the port is open. */
struct metrics_listener_spec {
	int epoll;
	struct broker_fdstore *kept;
	const struct netns_home *home;
	const char *address;     /* as it was parsed */
	void (*shut)(void *ctx); /* the worker did that: its copy is dead, and so is ours */
	void *ctx;
};

/* Embed it zeroed; it stays where it is while it is open. */
struct metrics_listener {
	const struct metrics_listener_spec *spec;
	struct broker_watch watch;
};

/* The socket if it still listens, else the one an earlier broker left, if it is such a listener,
 * else a new one.  It stays ours.  One that was shut down unseen may cost 2 s: another agentd
 * failed to take over, and its own socket may be at the same port until it is gone.  -1: `e` says
 * why. */
int metrics_listener_open(
    struct metrics_listener *m, const struct metrics_listener_spec *spec, struct err *e);
/* At this broker's end: holders of a copy keep it. */
void metrics_listener_release(struct metrics_listener *m);
