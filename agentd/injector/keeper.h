/* keeper.h - keeps the webhook's certificate: a CA in one Secret, a leaf of it in memory, and each
 * caBundle of one MutatingWebhookConfiguration such that API servers trust the leaf.
 *
 * Every 10 s it reads both objects, writes what ca/rotation.h says is to be written, and tells the
 * server the leaf, and whether it may be ready: when it has seen the leaf's CA in each caBundle.
 * It looks at once, but once a second at most, when a client does not trust the certificate.
 * While the API server cannot be asked, what was seen last holds, and the leaf is renewed.
 * A node whose clock is hours away from the API server's changes nothing, and says so.
 */
#pragma once
#include "base/loop.h"

struct err;
struct keeper;
struct server;

struct keeper_objects {
	const char *secret;      /* a name in the pod's namespace */
	const char *webhook;     /* the MutatingWebhookConfiguration's name */
	const char *server_name; /* SERVICE.NAMESPACE.svc: the leaf's */
	const char *kube_dir;    /* kube/client.h */
	const char *look_ms;     /* NULL: every 10 s */
};

/* `s` outlives it; texts are copied. */
struct keeper *keeper_new(
    struct loop *l, struct server *s, const struct keeper_objects *o, struct err *e);
void keeper_free(struct keeper **k);
