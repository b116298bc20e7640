/* iptables.h - has istio put its own rules into this network namespace?
 *
 * Two that redirect the same pod make neither's rules: such a pod is not redirected by us.  Looked
 * for are chains ISTIO_* of iptables (both kinds) and tables istio-proxy-* of nftables, by name.
 */
#pragma once
#include "common/err.h"

/* In the namespace where the caller is.  -1, EEXIST: yes, and `e` names what was found.  What
 * cannot be asked (a kernel without it) is not there. */
int netns_iptables_check(void *unused, struct err *e);
