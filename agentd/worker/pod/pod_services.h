/* pod_services.h - what every pod gets: a table of services, each of them one file and one row.
 *
 * The life of a pod:
 *   start            each row's start(), from the first to the last.  One that fails refuses the
 *                    pod: those before it are stopped.
 *   directory        the broker has made the pod's directory.  Now files are written and the token
 *                    is read; the last row listens.
 *   progress         a row's progress() changed.  All rows are asked; when none is at its beginning
 *                    the pod is ready, or it is not, for the first reason of the gravest kind.
 *   other events     see struct pod_service.  They come at any time, also before the directory and
 *                    inside another event.  A service that has not begun ignores them.
 *   stop accepting   maybe: connections wait for the next worker; open ones are still served.
 *   stop             each row's stop(), from the last to the first.  The directory and its sockets
 *                    stay for the next start or for link_pod_remove().
 *
 * The order of the rows (rows.h) is that of dependency.  A row uses what those above it offer in
 * struct pod_context, and tells those below by events, which all rows hear, in order.
 */
#pragma once
#include "progress.h"
#include "shared.h"
#include "worker/pods/served.h"
#include <jansson.h>
#include <stddef.h>

struct cert;
struct err;
struct pod;
struct pod_services;
struct rpc_stream;

/* One pod, as its services see it; outlives them. */
struct pod_context {
	const struct agent_shared *shared;
	const struct plane *plane; /* its control plane */
	struct pod *pod;
	struct node *node;
	const struct redirect_plan *plan; /* in start() only */
	/* Offered by a row to the rows below. */
	const struct pod_redirect *redirect; /* redirect.h */
	struct pod_token *token;             /* token.h */
	struct pod_identity *identity;       /* identity.h */
	struct pod_server *server;           /* server.h */
	struct xds_proxy *ads;               /* from the directory on */
	unsigned wait_s;   /* directory.c: so long its connections wait; 0 before */
	const char *roots; /* cert.c: the trusted roots; NULL: the certificate's own */
};

/* A row; what a service does not need is NULL.  `s` is its own struct, zeroed at first, which
 * pod_services.c makes and frees.  It begins with `struct pod_context *context`. */
struct pod_service {
	const char *name;
	size_t size;                          /* of the struct */
	int (*start)(void *s, struct err *e); /* -1: failed, and nothing is left to stop */
	void (*stop)(void *s);
	void (*stop_accepting)(void *s);
	void (*forget)(const struct agent_shared *a, const struct pod *gone); /* for good */

	/* Events, and which row tells them. */
	void (*directory)(void *s);            /* directory: it is there */
	void (*lost)(void *s, unsigned files); /* directory: bits, 1 << link_file, are gone */
	void (*redirected)(void *s);           /* redirect: pod_redirect_state() changed */
	void (*netns)(void *s, bool known);    /* redirect: the broker looked; maybe another one */
	void (*addresses)(void *s, const char *const *ips, size_t n); /* sockets: the pod's */
	void (*token_given)(void *s);         /* agent.c: the pod's source has another token */
	void (*token)(void *s, bool expired); /* token: read or not, expired; identity: another */
	void (*trust)(void *s);               /* cert: roots; agent.c: a revocation list */
	void (*certificate)(void *s, struct cert *cert, const char *why_not); /* cert */

	/* Questions.  `why` with DEGRADED and HELD only; it is the service's. */
	enum pod_progress (*progress)(void *s, const struct err **why);
	enum served (*served)(void *s, struct err *why); /* what it gives now (pods/served.h) */
	enum pod_has (*has)(void *s, const char **why);  /* beyond progress() */
	bool (*troubles)(void *s, struct err *why);      /* the node, though the pod is served */
	/* The first row that takes a call (rpc_accept()) has it. */
	bool (*call)(void *s, struct rpc_stream *st, const char *method);
	void (*uses)(void *s, int64_t in_use[LIMIT_END]);   /* sets what it knows */
	void (*dump)(void *s, json_t *o);                   /* adds to the pod's object of /pods */
	const char *page;                                   /* on which it is shown besides */
	void (*show)(void *s, json_t *o, const char *name); /* `name` was asked for; may be NULL */
	void (*measure)(void *s, const char *labels);       /* the pod's gauges */
	const char *gauge, *gauge_help;                     /* of the node: count() of all pods */
	unsigned (*count)(void *s);
};

void pod_tell_directory(struct pod_context *c);
void pod_tell_lost(struct pod_context *c, unsigned files);
void pod_tell_progress(struct pod_context *c);
void pod_tell_redirected(struct pod_context *c);
void pod_tell_netns(struct pod_context *c, bool known);
void pod_tell_addresses(struct pod_context *c, const char *const *ips, size_t n);
void pod_tell_token(struct pod_context *c, bool expired);
void pod_tell_trust(struct pod_context *c);
void pod_tell_certificate(struct pod_context *c, struct cert *cert, const char *why_not);
bool pod_ask_call(struct pod_context *c, struct rpc_stream *st, const char *method);
void pod_ask_uses(struct pod_context *c, int64_t in_use[LIMIT_END]);

/* Starts all `rows`, up to NULL; takes `node`.  Ends in pod_set_ready().  NULL: the pod is out. */
struct pod_services *pod_services_start(const struct agent_shared *a,
    const struct pod_service *const *rows, struct pod *p, struct node *node,
    const struct redirect_plan *plan);
void pod_services_stop(struct pod_services **s);
void pod_services_stop_accepting(struct pod_services *s);
void pod_services_token_changed(struct pod_services *s); /* the source's */
void pod_services_trust_changed(struct pod_services *s); /* a revocation list */

/* What has() and progress() of a row say; `why` may be "". */
enum pod_has pod_services_has(const struct pod_services *s, size_t row, const char **why);

/* For pages and metrics. */
/* What it gets now, whether or not it has services: the gravest of all rows, and its reason. */
enum served pod_services_served(const struct pod *p, struct err *why);
bool pod_services_trouble(const struct pod_services *s, struct err *why); /* the first row's word */
void pod_services_dump(struct pod_services *s, json_t *o);
void pod_services_show(struct pod_services *s, const char *page, json_t *o, const char *name);
void pod_services_measure(struct pod_services *s, const char *labels);
unsigned pod_services_count(struct pod_services *s, size_t row); /* of its rows */
