/* ask.h - one question to a machine's Envoy: is it ready, and what does the app say?
 *
 * Two requests to Envoy's status port, on the pod's loopback: the broker connects, for the worker
 * may not.  Envoy asks the app (mesh/probe_asked.h).  Of each answer the status alone is
 * read, at most 8 KiB.
 */
#pragma once
#include "common/uuid.h"
#include <stdbool.h>
#include <stdint.h>

struct health_ask;
struct link;
struct loop;

struct health_ask_options {
	struct loop *loop;
	struct link *link;
	const struct uuid *pod; /* outlives the question */
	bool ipv6;              /* of the loopback on which Envoy listens */
	uint16_t port;
	const char *route;   /* of the prober; outlives the question */
	const char *headers; /* of the request to it; likewise */
	unsigned timeout_s;  /* of the app; Envoy has as long for itself */
};

/* `why` NULL: Envoy is ready and the app is well. */
typedef void (*health_answered)(void *ctx, const char *why);
void health_ask(
    struct health_ask **slot, const struct health_ask_options *o, health_answered done, void *ctx);
void health_ask_cancel(struct health_ask **slot);
