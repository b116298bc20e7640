/* objects.h - the two objects of Kubernetes' API that the injector reads and writes: a Secret and a
 * MutatingWebhookConfiguration, as JSON.  Pure.
 *
 * What is not changed goes back as it came.  Each write names the resourceVersion that was read: an
 * update by its metadata (409 if it is not that one any more), a patch by a `test` (422;
 * injection.md 7).
 */
#pragma once
#include <jansson.h>
#include <stddef.h>

struct err;

enum { KUBE_OBJECT_MAX = 4 << 20, KUBE_WEBHOOKS_MAX = 16 };

/* An answer that is this object, with a resourceVersion. */
json_t *kube_object_read(const char *body, size_t len, const char *kind, struct err *e);

/* The value of a key of its data, a secret (common/secret.h).  NULL: no such key.  What is no text
 * without a NUL is "". */
char *kube_secret_text(const json_t *secret, const char *key);
/* The object, its keys as `texts` says: NULL removes one; others stay.  A secret. */
char *kube_secret_with(
    const json_t *secret, const char *const *keys, char *const *texts, unsigned n);

/* Each webhook's caBundle as PEM, "" if it has none; to be freed, each.  The number of webhooks, at
 * least 1; -1: not to be worked with. */
int kube_bundles_read(const json_t *configuration, char *bundles[KUBE_WEBHOOKS_MAX], struct err *e);
/* A JSON patch that gives them those that are not NULL. */
char *kube_bundles_patch(const json_t *configuration, char *const *bundles, unsigned n);
