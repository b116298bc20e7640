/* turnstile.h - decides which pod may open a stream at a control plane next, and when.
 *
 * One token bucket for all pods, one for each pod (security-rules.md 8).
 * Pods are served round robin, whatever the order in which they asked; requests for certificates
 * come before streams, because a pod without a certificate has no use for a configuration.  Time is
 * counted by relative timers only, so that a step of the wall clock changes nothing.
 */
#pragma once
#include "common/uuid.h"
#include <stdbool.h>

struct loop;
struct turn_pod;
struct turnstile;

enum turn_kind { TURN_CSR, TURN_STREAM, TURN_KINDS };

struct turn { /* embed it zeroed; the turnstile's own */
	struct turn_pod *pod;
	enum turn_kind kind;
	struct turn *prev, *next;
};

struct turnstile_options {
	unsigned per_second, burst;         /* of all pods, 1..1000 */
	unsigned pod_per_second, pod_burst; /* of each, 1..1000 */
};

struct turnstile_events {
	/* Could this pod open a stream now?  Asked again after turnstile_kick(). */
	bool (*ready)(void *ctx, const struct uuid *pod);
	/* It is `t`'s turn; it waits no longer.  Never inside a call of the turnstile. */
	void (*granted)(void *ctx, struct turn *t);
	/* This pod asks more often than it may, again and again.  Inside turnstile_ask(). */
	void (*hasty)(void *ctx, const struct uuid *pod);
};

struct turnstile *turnstile_new(struct loop *l, const struct turnstile_options *o,
    const struct turnstile_events *ev, void *ctx);
void turnstile_free(struct turnstile **t); /* nobody waits any more */
void turnstile_ask(
    struct turnstile *t, struct turn *turn, const struct uuid *pod, enum turn_kind kind);
void turnstile_leave(struct turnstile *t, struct turn *turn); /* waits no longer */
void turnstile_kick(struct turnstile *t);                     /* `ready` may have changed */
unsigned turnstile_waiting(const struct turnstile *t);
