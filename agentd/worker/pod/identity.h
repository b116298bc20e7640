/* identity.h - what a pod shows istiod: its token, or its certificate (bare-metal-identity.md 2,
 * 3).
 *
 * With `identity: certificate` it is the newest of those that are valid: the one that istiod issued
 * last, the one kept on disk, the one that root provisioned.  One that istiod refused comes after
 * the token, and again when nothing else is left.  Each issued one is kept.  The pod has a
 * connection of its own (istiod/own.h).
 */
#pragma once
#include <stdbool.h>

struct err;
struct pod_identity;
struct token;

/* Its files were read. */
bool pod_identity_is_known(const struct pod_identity *i);
/* istiod refused its certificate: it wants another one now. */
bool pod_identity_wants_new(const struct pod_identity *i);
/* What opens a stream now: the token, also beside a certificate, since somebody on the way to
 * istiod may not ask for one; without a jwt: the certificate alone.  NULL: nothing does, and `e`
 * says why.
 */
const struct token *pod_identity_credential(const struct pod_identity *i, struct err *e);
