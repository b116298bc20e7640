/* hold.h - holds back a push that removes much right after a reconnect.
 *
 * An istiod that has just started may answer before it knows everything, or anything; pods would
 * then lose their routes (threats-and-faults.md 1.28).  So the first response for clusters or
 * listeners on a stream to istiod may be held.  It is held if it removes a tenth or more of what an
 * Envoy has that said in its first request that it has some.  If istiod sends them within the time,
 * Envoy never sees the held response.  Otherwise istiod meant it, and Envoy gets it.  No message is
 * changed or repeated.
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
/* istiod answers; the verdict says what to do with it. */
enum ads_hold_verdict {
	ADS_HOLD_PASS, /* on to Envoy */
	ADS_HOLD_HELD, /* nothing: a copy is here */
	ADS_HOLD_ANEW, /* end the stream: a new one tells istiod what Envoy still has (delta) */
};
enum ads_hold_verdict ads_hold_response(struct ads_hold *p, enum discovery_flavour f,
    const struct discovery_response *r, const struct rpc_msg *m);
/* The stream to istiod is over; its held responses are dropped. */
void ads_hold_stream_ended(struct ads_hold *p);
size_t ads_hold_size(const struct ads_hold *p); /* bytes of all held responses */
/* For agentctl: the held responses; "" if there are none. */
const char *ads_hold_why(const struct ads_hold *p);
