/* limits.h - what one pod may take of the node, what it takes, and how often it hit a limit.
 *
 * decisions.md 11; threats-and-faults.md T8, T9, T37.  The values are the node's
 * (`pod_*`).  Requests are a bucket: a request that finds it empty is served all the same, but then
 * reading stops until the bucket is filled again; a call that finds it empty is refused.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct limits;
struct loop;

enum limit {
	LIMIT_CONNECTIONS,   /* at a time */
	LIMIT_STREAMS,       /* at a time */
	LIMIT_MESSAGE,       /* bytes, from Envoy */
	LIMIT_MEMORY,        /* bytes that grpc has received and nobody has taken; uncounted */
	LIMIT_NODE_MEMORY,   /* bytes that all pods' connections may hold beyond their shares; hits
			      * are connections of the pod that held most */
	LIMIT_HEADERS,       /* bytes of a block of them; hits are connections that were ended */
	LIMIT_QUEUED,        /* bytes that Envoy has not read */
	LIMIT_REQUESTS,      /* a second: messages, calls and connections */
	LIMIT_NODE_REQUESTS, /* a second of all pods, beyond their shares (base/share.h); hits are
			      * those that this one could not pay for */
	LIMIT_BURST,         /* of these at once; hits are calls that were refused */
	LIMIT_FRAMES,        /* of HTTP/2, a second: hits are connections that were ended for it */
	LIMIT_SILENT,        /* seconds that a connection may make no call */
	LIMIT_FDS,           /* of the node: per cent of RLIMIT_NOFILE */
	LIMIT_END,
};

/* What the connections of a pod may hold, whatever the others hold. */
enum { LIMITS_SHARE = 256 << 10 };

struct limits_values {
	int64_t of[LIMIT_END];
};

/* The state of the pod's bucket. */
enum limits_verdict {
	LIMITS_FINE,
	LIMITS_WAIT,  /* read nothing more until `refilled` */
	LIMITS_FLOOD, /* it ignores that: end its connections */
};

/* `refilled` runs after each LIMITS_WAIT or LIMITS_FLOOD, when there is room again. */
struct limits *limits_new(
    struct loop *l, const struct limits_values *v, void (*refilled)(void *ctx), void *ctx);
void limits_free(struct limits **l);

int64_t limits_value(const struct limits *l, enum limit what);
void limits_hit(struct limits *l, enum limit what); /* counts it, for the node, too */
/* Is `in_use` below the limit?  If not, that is a hit. */
bool limits_admit(struct limits *l, enum limit what, int64_t in_use);
bool limits_admit_fd(struct limits *l, int fd);
/* A message, which is there already; or a call or a connection, to be refused unless FINE. */
enum limits_verdict limits_request(struct limits *l);
enum limits_verdict limits_attempt(struct limits *l);
/* The same for a connection, which costs the node's share of the pod as much as four calls. */
enum limits_verdict limits_connect(struct limits *l);
/* [{name, unit, limit, in_use (where it is a level), hits}]; `in_use` has LIMIT_END, -1: none. */
json_t *limits_dump(const struct limits *l, const int64_t *in_use);
