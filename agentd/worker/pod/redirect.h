/* redirect.h - one pod's redirection: requested from the broker, its state, its counters.
 *
 * mesh/traffic reads what the pod asks for; the broker does it.  The counters are the programs'
 * own, in memory that is mapped read-only.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct pod_redirects; /* what all pods share */
struct err;
struct pod_redirect; /* one pod's */
struct link;

struct pod_redirects *pod_redirects_new(struct link *p);
void pod_redirects_free(struct pod_redirects **a);
/* For people: which pods go by rules that the ceiling does not allow any more; NULL: none.  The
 * caller's. */
char *pod_redirects_above(const struct pod_redirects *a);

/* NULL: the rules are in force, or there are none.  Else the reason why not, or not yet. */
const struct err *pod_redirect_state(const struct pod_redirect *r);
/* Strict, and not in force yet: the pod must not start. */
bool pod_redirect_holds(const struct pod_redirect *r);
