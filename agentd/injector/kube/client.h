/* client.h - one question after another to the API server of the cluster this pod is in.
 *
 * HTTPS, TLS 1.2 or newer; the server must have a certificate of ca.crt for the name or address
 * that it is dialled by.  Token and ca.crt are read again for each connection: the kubelet changes
 * both. An answer has at most 4 MiB and comes within 8 s, or it is a failure.
 */
#pragma once
#include "base/loop.h"
#include <stddef.h>
#include <stdint.h>

struct err;
struct kube_client;

#define KUBE_DIR "/var/run/secrets/kubernetes.io/serviceaccount"

/* Where it is: KUBERNETES_SERVICE_HOST and _PORT of the environment; in `dir` are token and ca.crt,
 * and the pod's namespace. */
struct kube_client *kube_client_new(struct loop *l, const char *dir, struct err *e);
void kube_client_free(struct kube_client **c);
const char *kube_namespace(const struct kube_client *c);

struct kube_answer {
	int status;       /* 200 to 999; 0: there was none, and `why` is all */
	const char *body; /* `len` bytes; until `done` returns */
	size_t len;
	int64_t date_s;  /* the server's clock, Unix seconds; 0: it does not say */
	const char *why; /* of any status but 200: one line for a person */
};
typedef void (*kube_done)(void *ctx, const struct kube_answer *a);

struct kube_ask {
	const char *method; /* GET, PUT or PATCH (a JSON patch) */
	const char *path;
	const char *body; /* NULL: none */
};
/* One at a time: not while another one is under way.  All are copied. */
void kube_ask(struct kube_client *c, const struct kube_ask *ask, kube_done done, void *ctx);
void kube_hang_up(struct kube_client *c); /* the next question makes a new connection */
