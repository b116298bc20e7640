/* agent_redirect.h - a pod's traffic: asked of the broker, in force or not, and what was counted.
 *
 * What it asks for is redirect/'s to read; who does it is the broker.  The counters are the
 * programs' own, in memory that is mapped read-only.
 */
#pragma once
#include "worker/redirect/redirect.h"
#include <jansson.h>

struct pod_redirects; /* what all pods share */
struct err;
struct pod;
struct pod_redirect; /* one pod's */
struct link;

struct pod_redirects *pod_redirects_new(struct link *p);
void pod_redirects_free(struct pod_redirects **a);

/* `settled` runs later, once, if there is something to wait for: see pod_redirect_state(). */
struct pod_redirect *pod_redirect_start(struct pod_redirects *a, const struct pod *p,
    const struct redirect_plan *plan, void (*settled)(void *ctx), void *ctx);
/* `inbound` runs whenever the broker has looked into the pod's network namespace: it is known and
 * redirected, too, or it is not.  The same again: it may be another one. */
void pod_redirect_watch(
    struct pod_redirect *r, void (*inbound)(void *ctx, bool redirected), void *ctx);
/* Redirection itself stays as it is: a restart of services is not its end. */
void pod_redirect_stop(struct pod_redirect **r);

/* NULL: the rules are in force, or there are none to be.  Else why not, or not yet. */
const struct err *pod_redirect_state(const struct pod_redirect *r);
bool pod_redirect_holds(
    const struct pod_redirect *r); /* strict, and not in force yet: do not start */

/* mode, policy, in_force (the rules), inbound (redirected, too), why_not, redirected, passed,
 * dropped, counters{rule: n} without those that are 0 */
json_t *pod_redirect_dump(const struct pod_redirect *r);
/* agentd_redirect_connections_total{verdict,rule} of this pod. */
void pod_redirect_measure(const struct pod_redirect *r, const char *labels);
