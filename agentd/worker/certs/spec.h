/* spec.h - everything that shapes a certificate (security-rules.md 2). */
#pragma once
#include "common/uuid.h"
#include "worker/crypto/x509.h"

/* The cache key; memcmp-comparable: zero it, then set fields. */
struct cert_spec {
	char trust_domain[256], ns[64], sa[254];
	struct x509_key_params key;
	char cert_signer[64];
	int64_t ttl_s;
	double ratio,
	    jitter;      /* renewed when ratio +- jitter of the life is left (istio-agent.md 3.3) */
	struct uuid pod; /* all zero: scope service-account */
};
