/* iptables.h - has istio put its own rules into this network namespace?
 *
 * Two that redirect the same pod obey neither's rules, so we do not redirect such a pod.  The check
 * looks by name for chains ISTIO_* of iptables (both kinds) and tables istio-proxy-* of nftables.
 */
#pragma once
#include "common/err.h"

/* In the namespace where the caller is.  -1, EEXIST: yes, and `e` names what was found.  A
 * subsystem that the kernel lacks has no rules. */
int netns_iptables_check(void *unused, struct err *e);
