/* own.h - one pod's own connection to its control plane, with a certificate of its own.
 *
 * istiod knows a connection by its client's certificate, for all calls on it
 * (bare-metal-identity.md 3).  So it is never shared: while a pod has one, each turn of it is
 * granted there, and no other pod's is.  Turns wait in the plane's queue all the same
 * (turnstile.h).
 *
 * istiod says nothing when it refuses a certificate: the handshake fails.  So when a connection
 * with one fails, another is tried without; if that is ready, and the next one with the certificate
 * fails again, istiod refuses it.
 */
#pragma once
#include "common/uuid.h"
#include <jansson.h>
#include <stdbool.h>

struct istiod;
struct istiod_own;

struct istiod_own_events {
	void (*refused)(void *ctx); /* istiod is there, and does not take what is presented */
	void (*roots)(void *ctx);   /* istiod_roots() changed */
};

struct istiod_own *istiod_own_new(
    struct istiod *i, const struct uuid *pod, const struct istiod_own_events *ev, void *ctx);
void istiod_own_free(struct istiod_own **o); /* turns and leases of the pod are gone */
/* From now on this is presented; streams move when the new connection is ready.  NULL: nothing, and
 * nothing is connected before a turn is asked for.  Both copied. */
void istiod_own_present(struct istiod_own *o, const char *key_pem, const char *chain_pem);
bool istiod_own_is_ready(const struct istiod_own *o);
/* PEM, normalised; NULL: not read yet, or the system's. */
const char *istiod_roots(const struct istiod *i);
