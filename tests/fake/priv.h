/* fake/priv.h - the broker as a test sees it: calls wait until the test answers them.
 *
 * `pod` may be NULL where a function looks for a call or a follow: then the oldest one counts.
 * Nothing is answered by itself.  Looking for a call or a follow that is not there fails the test.
 */
#pragma once
#include "priv/priv.h"

/* One for modules that are given a `struct priv`; priv_new() makes one as well.  Free with
 * priv_free(); calls and follows that are still there then fail the test. */
struct priv *fake_priv(void);
struct priv *fake_priv_last(void);        /* what priv_new() made last; NULL: none is alive */
void fake_priv_fail_new(const char *why); /* the next priv_new() fails */
void fake_priv_node_listener(enum priv_node_listener kind, int fd); /* for the next priv_new() */
void fake_priv_lose(struct priv *p); /* the broker is gone: runs `lost` of priv_new() */

/* Waiting calls: `op` is PRIV_POD_ADD, PRIV_LISTEN or PRIV_PEER_OF.  why NULL: success. */
int fake_priv_waiting(const struct priv *p, enum priv_op op);
void fake_priv_added(struct priv *p, const struct uuid *pod, const char *why);
void fake_priv_listening(
    struct priv *p, const struct uuid *pod, enum priv_listener kind, int fd, const char *why);
/* The family of the oldest call for such a socket; 0: there is none. */
int fake_priv_dials(const struct priv *p, enum priv_dial kind);
void fake_priv_dialled(
    struct priv *p, enum priv_dial kind, int fd, const char *why); /* the oldest */
void fake_priv_peer(
    struct priv *p, const struct uuid *pod, const struct priv_peer *n, const char *why);
void fake_priv_stranger(struct priv *p, const struct uuid *pod, int code, const char *why);
bool fake_priv_attests(const struct priv *p); /* priv_require_attestation() was called */

/* State.  A put is PRIV_STATE_PUT, a list PRIV_STATE_LIST, of waiting calls; what was put and
 * answered is kept until it is deleted or the priv is freed. */
void fake_priv_put(struct priv *p, const char *why); /* answers the oldest */
void fake_priv_listed(struct priv *p, enum priv_state kind, const char *why); /* tells all, ends */
void fake_priv_keep(struct priv *p, const struct priv_kept *k); /* it was there before */
int fake_priv_kept(const struct priv *p, enum priv_state kind);
struct priv_kept fake_priv_kept_at(const struct priv *p, enum priv_state kind, int at);
void fake_priv_forget(struct priv *p); /* all of it */

/* What nobody waits for. */
int fake_priv_removals(const struct priv *p, const struct uuid *pod);
int fake_priv_writes(const struct priv *p, const struct uuid *pod, enum priv_file file);
/* The last content, NUL-terminated; NULL: never written. */
const char *fake_priv_written(
    const struct priv *p, const struct uuid *pod, enum priv_file file, size_t *size);

/* Follows.  `pod` and `plane` as given to priv_follow(); both unused for the manifests. */
bool fake_priv_follows(
    const struct priv *p, enum priv_followed what, const struct uuid *pod, unsigned plane);
void fake_priv_push(struct priv *p, enum priv_followed what, const struct uuid *pod, unsigned plane,
    const struct priv_content *c);
void fake_priv_root(struct priv *p, unsigned plane, const char *pem); /* NULL: it is gone */
void fake_priv_crl(struct priv *p, unsigned plane, const char *pem);  /* NULL: it is gone */
void fake_priv_token(struct priv *p, const struct uuid *pod, const char *jwt);
void fake_priv_manifest(struct priv *p, const char *name, const char *yaml);
void fake_priv_synced(struct priv *p);

int fake_priv_ready(const struct priv *p); /* how often it was said */
void fake_priv_relisten(
    struct priv *p, const struct uuid *pod, enum priv_listener kind, int fd); /* takes fd */

int fake_priv_live(const struct priv *p); /* waiting calls + follows: 0 when all was given back */
