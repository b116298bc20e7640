/* keep.h - the certificates of a cache beyond this process; cert_cache.c's own. */
#pragma once
#include "border/protocol.h"
#include <stdint.h>

struct cert;
struct cert_cache;
struct cert_entry;
struct cert_origin;
struct cert_stored;
struct err;

/* Stores the entry's certificate. */
void cert_keep(struct cert_entry *e);
void cert_keep_forget(struct cert_entry *e); /* deletes it */
/* The same of one that was stored in `from` under another trust domain of the control plane. */
void cert_keep_drop(const struct cert_cache *c, const struct cert_stored *s, enum link_state from);
/* The cache's control plane as it is now. */
void cert_keep_origin(const struct cert_cache *c, struct cert_origin *o);
/* The stored certificate, if an answer with it would be accepted; NULL: `why`. */
struct cert *cert_keep_believe(
    const struct cert_entry *e, const struct cert_stored *s, struct err *why);
/* Milliseconds since it was issued, by the monotonic clock; after a reboot, by the other one. */
int64_t cert_keep_age(const struct cert_cache *c, const struct cert_stored *s);
/* What is left of the pause after it, at most: of its life it tells only when it was to be renewed.
 */
int64_t cert_keep_pause(const struct cert_cache *c, const struct cert_stored *s);
