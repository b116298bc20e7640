/* istiod.h - a control plane whose turns the test controls.
 *
 * istiod_new() takes the same arguments as the real one; `p` is not used.  With a `struct rpc` (the
 * fake one or the real one) it has one channel, made by rpc_channel_new(); without, turns are
 * granted with a NULL channel.  A turn is granted soon, in order, one per round of the loop.
 */
#pragma once
#include "worker/istiod/istiod.h"
#include <stdbool.h>

/* While held no turn is granted: the root is not known yet. */
void fake_istiod_hold(struct istiod *i, bool held);
int fake_istiod_waiting(const struct istiod *i); /* turns that were not granted yet */
const struct uuid *fake_istiod_first_pod(const struct istiod *i); /* whose turn is next, or NULL */

/* How often istiod_open() was called, and the last token it got (NULL: none). */
int fake_istiod_opened(const struct istiod *i);
const char *fake_istiod_token(const struct istiod *i);
/* Fail every istiod_open() with this text; NULL: work again. */
void fake_istiod_refuse(struct istiod *i, const char *why);

/* Streams that hold a lease, and the end of the oldest one's: its connection goes. */
int fake_istiod_leases(const struct istiod *i);
void fake_istiod_move(struct istiod *i);
/* The pod's own connection: what it presents ("" nothing, NULL: it has none), and what istiod says.
 */
const char *fake_istiod_presented(const struct istiod *i);
unsigned fake_istiod_presents(const struct istiod *i); /* how often, ever */
void fake_istiod_refuse_certificate(struct istiod *i);
void fake_istiod_new_roots(struct istiod *i, const char *pem);
int fake_istiod_blamed(const struct istiod *i);              /* calls of istiod_blame() */
void fake_istiod_why_not(struct istiod *i, const char *why); /* what istiod_why_not() says */
