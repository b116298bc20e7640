/* broker_node.h - the node's own listeners: admin.sock always, csi.sock and the metrics port where
 * they are asked for.  Every worker is greeted with all of them.
 */
#pragma once
#include "broker/base/options.h"
#include "broker/netns/netns.h"

struct broker_fdstore;
struct broker_node;

struct broker_node_rig {
	int epoll;
	const struct broker_options *options;
	struct broker_fdstore *kept;
	const struct netns_home *home;
	void (*broke)(void *ctx, const char *why); /* the worker shut one down */
	void (*renewed)(void *ctx); /* its csi.sock is dead; it can only be greeted with one */
	void (*changed)(void *ctx); /* something is pending */
	void *ctx;
};
/* NULL: `w` says why. */
struct broker_node *broker_node_new(const struct broker_node_rig *rig, struct broker_why *w);
void broker_node_free(struct broker_node **n);
/* Makes anew what is not healthy, then says all of the greeting to the worker behind `fd`. */
int broker_node_greet(struct broker_node *n, int fd, struct broker_why *w);
/* Has the worker to be told something of them? */
bool broker_node_pending(const struct broker_node *n);
void broker_node_next(struct broker_node *n, struct priv_packet *p);
