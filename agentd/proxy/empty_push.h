/* empty_push.h - what takes everything away right after a reconnect waits a while.
 *
 * An istiod that has just been started may answer before it knows anything; pods then lost all
 * their routes (threats-and-faults.md pain 28).  So the first response for clusters or listeners on
 * a stream to istiod is held, if it leaves nothing to an Envoy whose first request said that it has
 * some.  If istiod sends some within the time, Envoy never hears of it; if not, istiod meant it,
 * and what was held is passed on.  No message is changed, none is repeated.
 */
#pragma once
#include "discovery.h"
#include <stddef.h>

struct empty_push;
struct log_budget;
struct loop;

/* The time is over: this goes to Envoy.  May be called several times in a row. */
typedef void (*empty_push_pass)(void *ctx, const void *bytes, size_t len);

struct empty_push_options {
	struct loop *loop;
	unsigned hold_s;        /* 0: nothing is held */
	const char *label;      /* whose, for the log; borrowed */
	struct log_budget *log; /* the pod's; borrowed */
	empty_push_pass pass;
	void *ctx;
};

struct empty_push *empty_push_new(const struct empty_push_options *o);
void empty_push_free(struct empty_push **p);
/* Envoy asks; only the first request of a type on a stream counts. */
void empty_push_request(struct empty_push *p, const struct discovery_request *q);
/* istiod answers: what is to be done with it? */
enum empty_push_verdict {
	EMPTY_PUSH_PASS, /* on to Envoy */
	EMPTY_PUSH_HELD, /* nothing: a copy is here */
	EMPTY_PUSH_ANEW, /* end the stream: only so can istiod learn what Envoy still has (delta) */
};
enum empty_push_verdict empty_push_response(struct empty_push *p, enum discovery_flavour f,
    const struct discovery_response *r, const struct rpc_msg *m);
/* The stream to istiod is over, and so is what was held of it. */
void empty_push_stream_ended(struct empty_push *p);
/* For people: what is held; "" if nothing is. */
const char *empty_push_why(const struct empty_push *p);
