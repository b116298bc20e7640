/* broker_internal.h - the broker's parts: what requests.c acts on. */
#pragma once
#include "broker.h"
#include "broker/base/loop.h"
#include "broker/base/rundir.h"
#include "broker/kubelet/volume_list.h"
#include "broker/netns/netns.h"
#include "identity.h"
#include "kept.h"
#include <time.h>

struct broker {
	const struct broker_options *options;
	int epoll;
	struct broker_rundir rundir;
	struct netns_home home;
	struct broker_fdstore *kept;
	struct requests_node *node;
	struct volume_list volumes;
	struct requests_identity *identities;
	struct requests_kept *certificates;
	struct pods *pods;
	struct follows *follows;
	struct broker_states *states;
	struct redirect_traffic *traffic;
	struct broker_watch worker;
	bool attached, ready; /* the worker */
	bool served;          /* and nothing is lost */
	bool holds_back;
	bool pings; /* it is to be sent `ping` */
	uint32_t ping;
	unsigned attachments, earlier; /* workers so far; before this one */
	enum broker_turned state;
	struct broker_events ev;
	void *ctx;
	unsigned renewed; /* listeners, since `renewed_since` */
	time_t renewed_since;
};

/* The worker broke the protocol: it must be killed. */
void broker_broke(struct broker *b, const char *why);
/* A worker that broke the protocol meanwhile gets none. */
void broker_reply(struct broker *b, const struct link_packet *reply, int fd);
