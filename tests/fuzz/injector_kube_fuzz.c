/* injector_kube_fuzz.c - an API server's answer of any bytes: what is taken of it, and what is made
 * of that for it, is JSON again and no more than was meant.
 */
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "injector/kube/objects.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check_secret(const json_t *secret)
{
	static const char *const keys[] = {"ca.crt", "gone"};
	char *texts[] = {secret_new("x", 1), NULL}, *body, *back;
	auto_free char *was = NULL;
	json_t *object;

	body = kube_secret_text(secret, "ca.crt");
	secret_free(body);
	body = kube_secret_with(secret, keys, texts, 2);
	object = json_loads(body, 0, NULL);
	back = kube_secret_text(object, "ca.crt");
	if (!back || strcmp(back, "x") != 0 || kube_secret_text(object, "gone"))
		abort();
	json_object_set_new(object, "data", json_null());
	was = json_dumps(json_object_get(object, "metadata"), JSON_SORT_KEYS);
	secret_free(body);
	body = json_dumps(json_object_get(secret, "metadata"), JSON_SORT_KEYS);
	if (strcmp(was, body) != 0)
		abort();
	free(body);
	secret_free(back);
	secret_free(texts[0]);
	json_decref(object);
}

static void check_bundles(const json_t *configuration)
{
	char *bundles[KUBE_WEBHOOKS_MAX], *body;
	struct err e;
	int n = kube_bundles_read(configuration, bundles, &e);
	json_t *patch;

	if (n < 0)
		return;
	body = kube_bundles_patch(configuration, bundles, (unsigned)n);
	patch = json_loads(body, 0, NULL);
	if (json_array_size(patch) != (size_t)n + 1)
		abort();
	json_decref(patch);
	secret_free(body);
	while (n > 0)
		secret_free(bundles[--n]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct err e;
	json_t *secret = kube_object_read((const char *)bytes, size, "Secret", &e);
	json_t *configuration =
	    kube_object_read((const char *)bytes, size, "MutatingWebhookConfiguration", &e);

	if (secret)
		check_secret(secret);
	if (configuration)
		check_bundles(configuration);
	json_decref(secret);
	json_decref(configuration);
	return 0;
}
