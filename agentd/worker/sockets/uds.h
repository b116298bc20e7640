/* uds.h - a pod's two sockets: listened on, peers looked at, connections handed to its rpc_server.
 *
 * The broker makes the sockets and keeps a copy.  It says of the first connection whether its
 * network namespace and its cgroup are the pod's (security-rules.md 4), and reads the addresses
 * there; later ones that show the same of both are served without it.  The addresses are read again
 * for each connection to XDS, and for each to SDS as long as there were none.
 */
#pragma once
#include "common/uuid.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct err;
struct loop;
struct link;
struct rpc_server;
struct uds;

struct uds_events {
	/* One more of the pod's, besides those that are open or waiting?  NULL: yes; else why not.
	 * A peer from elsewhere is not counted, so that it cannot use up the pod's share. */
	const char *(*admit)(void *ctx, int fd, unsigned connections);
	/* Once: both sockets are there, or why not.  The owner may free the uds here. */
	void (*listening)(void *ctx, const struct err *e);
	/* The addresses in the pod's netns, at least one, whenever they were read; before the
	 * connection is served. */
	void (*addresses)(void *ctx, const char *const *ips, size_t n);
	/* A connection is served (`why` NULL); or it is the pod's, and never will be: its processes
	 * are in the node's own network namespace. */
	void (*came)(void *ctx, const struct err *why);
};

/* Whose sockets they are, and where their connections go. */
struct uds_rig {
	struct link *link;
	struct uuid pod;
	const char *subject; /* for the log; copied */
	struct rpc_server *to;
	bool wait; /* connections stay in the backlog until uds_accept() */
};
struct uds *uds_new(
    struct loop *l, const struct uds_rig *rig, const struct uds_events *ev, void *ctx);
void uds_accept(struct uds *u); /* those that waited, and all others */
/* No new connections; those that came are still let in or refused. */
void uds_stop(struct uds *u);
void uds_free(struct uds **u); /* the broker's copies go on listening */
/* accepted, refused, waiting; attested: netns_cookie ("" while unknown), cgroup_ids (what was
 * proven), unproven (why not, "" if it was), watched; refused_by: counts by reason; refusals: the
 * last ones */
json_t *uds_dump(const struct uds *u);
