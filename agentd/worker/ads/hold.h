/* hold.h - what takes everything away right after a reconnect waits a while.
 *
 * An istiod that has just been started may answer before it knows anything; pods then lost all
 * their routes (threats-and-faults.md 1.28).  So the first response for clusters or listeners on
 * a stream to istiod is held, if it leaves nothing to an Envoy whose first request said that it has
 * some.  If istiod sends some within the time, Envoy never hears of it; if not, istiod meant it,
 * and what was held is passed on.  No message is changed, none is repeated.
 */
#pragma once
#include "discovery.h"
#include <stddef.h>

struct ads_hold;
struct log_budget;
struct loop;

/* The time is over: this goes to Envoy.  May be called several times in a row. */
typedef void (*ads_hold_pass)(void *ctx, const void *bytes, size_t len);

struct ads_hold_options {
	struct loop *loop;
	unsigned hold_s;        /* 0: nothing is held */
	const char *label;      /* whose, for the log; borrowed */
	struct log_budget *log; /* the pod's; borrowed */
	ads_hold_pass pass;
	void *ctx;
};

struct ads_hold *ads_hold_new(const struct ads_hold_options *o);
void ads_hold_free(struct ads_hold **p);
/* Envoy asks; only the first request of a type on a stream counts. */
void ads_hold_request(struct ads_hold *p, const struct discovery_request *q);
/* istiod answers: what is to be done with it? */
enum ads_hold_verdict {
	ADS_HOLD_PASS, /* on to Envoy */
	ADS_HOLD_HELD, /* nothing: a copy is here */
	ADS_HOLD_ANEW, /* end the stream: only so can istiod learn what Envoy still has (delta) */
};
enum ads_hold_verdict ads_hold_response(struct ads_hold *p, enum discovery_flavour f,
    const struct discovery_response *r, const struct rpc_msg *m);
/* The stream to istiod is over, and so is what was held of it. */
void ads_hold_stream_ended(struct ads_hold *p);
/* For people: what is held; "" if nothing is. */
const char *ads_hold_why(const struct ads_hold *p);
