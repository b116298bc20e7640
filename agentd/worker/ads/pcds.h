/* pcds.h - istiod's further trust anchors: ProxyConfig by xDS, of which one field counts
 * (istio-agent.md 1.5).
 */
#pragma once
#include "worker/crypto/roots.h"

struct err;
struct rpc_msg;

enum { PCDS_CERTIFICATES_MAX = 64, PCDS_SIZE_MAX = 256 * 1024 };

/* `ca_certificates_pem` of the first resource of a response of either flavour, each checked and
 * normalised, one after the other; "" if there are none.  `note`: those that are left out, by
 * number.  NULL: the response is not usable, or all of them are no certificates; `e` says why. */
char *pcds_read(const struct rpc_msg *response, char note[ROOTS_NOTE_SIZE], struct err *e);
