/* broker_core.h - the request table: what the worker may ask, checked before it is looked at. */
#pragma once
#include "broker_options.h"

struct broker;

enum broker_state {
	BROKER_SERVING,
	BROKER_WORKER_LEFT,  /* its end of the pair is closed */
	BROKER_WORKER_BROKE, /* the protocol: kill it; the reason is logged */
};

/* Takes over the run directory: makes it, locks it, listens on admin.sock. */
struct broker *broker_new(const struct broker_options *o, struct broker_why *w);
void broker_free(struct broker **b);
int broker_epoll(const struct broker *b); /* for further watches */

/* Greets the worker behind `fd` (taken) and serves it from then on. */
int broker_attach(struct broker *b, int fd, struct broker_why *w);
enum broker_state broker_turn(struct broker *b, int timeout_ms); /* handles one event at most */
