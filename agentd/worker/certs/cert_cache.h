/* cert_cache.h - one certificate per service account, shared by every pod that runs as it.
 *
 * Cached by everything that shaped it (security-rules.md 2).  The first subscriber starts the CSR,
 * renewal happens here and only here, subscribers are told and never ask.  A failed renewal keeps
 * the certificate that is still valid.  Back-off is per entry: 0.5 s doubling to 60 s, +-10 %, and
 * to 8 s without a valid certificate: its pods are cut off, and have it within 10 s of the last
 * refusal.  A renewal has half of its life left, and a CSR may cost istiod an object at the API
 * server.  csr_per_second bounds both.
 *
 * Two issued certificates of one entry are never closer than 5 minutes (a setting), or a third of
 * their life where that is shorter, by the monotonic clock.  Without a valid one the wall clock
 * counts once: after a suspend, or when the clock was put right.  A certificate ends, and is due
 * for renewal, by whichever clock says so first; at its end the subscribers are told.  A CA of its
 * chain that ends first counts for the renewal.  When the last subscriber goes the certificate
 * lingers (5 min) before its key is wiped.
 *
 * Each certificate is stored when it is issued, and deleted when it is forgotten, not when we end:
 * the next worker restores it.  A failed store is tried again every 8 s at most.
 */
#pragma once
#include "border/protocol.h"
#include "common/uuid.h"
#include "spec.h"
#include "worker/crypto/cert.h"
#include "worker/crypto/token.h"
#include <jansson.h>

struct ca_client;
struct cert_cache;
struct cert_stored;
struct cert_sub;
struct istiod;
struct loop;
struct link;

struct cert_cache_options {
	int64_t reissue_min_ms; /* default 5 min */
	int64_t linger_ms;      /* default 5 min; at least what is left of the pauses */
	struct link *link;    /* keeps certificates beyond this process; NULL: they are not kept */
	enum link_state keep; /* where */
	/* There is another certificate, of which nobody was told yet; NULL: one is forgotten. */
	void (*changed)(void *ctx, const struct cert *added);
	void *ctx;
};

/* `c` is the certificate that this subscriber may use now; NULL: none.  `why_not`: why there is no
 * (new) certificate; "" if the last attempt was good.  Both are valid during the callback. */
typedef void (*cert_changed)(void *ctx, struct cert *c, const char *why_not);
/* The subscriber's own token, or NULL if it has none that is valid now (then `e` says why). */
typedef const struct token *(*cert_token)(void *ctx, struct err *e);

struct cert_cache *cert_cache_new(
    struct loop *l, struct istiod *i, struct ca_client *ca, const struct cert_cache_options *o);
void cert_cache_free(struct cert_cache **c); /* all subscriptions must be gone */
/* `changed` runs soon with the current state, then at each change.  Nothing is delivered to a
 * subscriber whose own token is not valid. */
struct cert_subscriber {
	struct uuid pod;
	const char *subject; /* for the log; copied */
	cert_token token;
	cert_changed changed;
	void *ctx; /* of both */
};
struct cert_sub *cert_subscribe(
    struct cert_cache *c, const struct cert_spec *spec, const struct cert_subscriber *by);
void cert_unsubscribe(struct cert_sub **s);  /* allowed inside `changed` */
void cert_token_changed(struct cert_sub *s); /* look again: deliver, or try now what waited */
void cert_wanted(struct cert_sub *s); /* somebody waits for it: a restored one is looked at first */
void cert_renew(struct cert_sub *s);  /* now, though it is still valid; not before the floor */
json_t *cert_cache_dump(const struct cert_cache *c); /* no key in it */
/* Each that is valid now. */
void cert_cache_each(
    const struct cert_cache *c, void (*each)(void *ctx, const struct cert *cert), void *ctx);
/* How many that somebody uses are over, or a CA of their chain is; `why` of one of them. */
unsigned cert_cache_over(const struct cert_cache *c, struct err *why);
/* Strings: what is odd about them, but serves for now; at most 5. */
json_t *cert_cache_warnings(const struct cert_cache *c);
/* Why not all of them outlive this process; NULL: they do. */
const struct err *cert_cache_why_unstored(const struct cert_cache *c);

/* Before the first subscriber: takes back a certificate that an earlier worker stored in `from`,
 * and its texts.  It lingers, for a minute at least.  Before anybody has it, it must pass all
 * checks of an answer of istiod: one for each turn of the loop, cert_wanted() ones first.  The
 * pauses between two certificates go on whether or not it is still good. -1: refused: it is of
 * another configuration. */
int cert_cache_restore(
    struct cert_cache *c, struct cert_stored *s, enum link_state from, struct err *e);
