/* node.h - the node's own listeners: admin.sock always, csi.sock and the metrics port
 * where they are asked for.  Every worker is greeted with all of them.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "broker/netns/netns.h"
#include "common/err.h"

struct broker_fdstore;
struct requests_node;

struct requests_node_rig {
	int epoll;
	const struct broker_options *options;
	struct broker_fdstore *kept;
	const struct netns_home *home;
	bool inherited;                            /* kubelet/csi.h */
	void (*broke)(void *ctx, const char *why); /* the worker shut one down */
	void (*renewed)(void *ctx); /* its csi.sock is dead; it can only be greeted with one */
	void (*changed)(void *ctx); /* something is pending */
	void *ctx;
};
/* NULL: `e` says why. */
struct requests_node *requests_node_new(const struct requests_node_rig *rig, struct err *e);
void requests_node_free(struct requests_node **n);
/* Makes broken listeners again, then sends the whole greeting to the worker behind `fd`. */
int requests_node_greet(struct requests_node *n, int fd, struct err *e);
/* What the kubelet said of csi.sock to the worker.  -1: there is no kubelet. */
int requests_node_registered(struct requests_node *n, bool yes, struct err *e);
/* Must the worker be told something of them? */
bool requests_node_pending(const struct requests_node *n);
void requests_node_next(struct requests_node *n, struct link_packet *p);
