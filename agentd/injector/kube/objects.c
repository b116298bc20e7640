/* objects.c - see objects.h. */
#include "objects.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>

#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"

enum { VERSION_MAX = 128 };

/* --- base64 --- */

/* `out` has room for len; the size, or -1. */
static int decode(const char *text, size_t len, unsigned char *out)
{
	size_t padding = 0;
	int n;

	if (len % 4 || len > KUBE_OBJECT_MAX)
		return -1;
	while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
		padding++;
	n = EVP_DecodeBlock(out, (const unsigned char *)text, (int)len);
	return n < (int)padding ? -1 : n - (int)padding;
}

/* Of base64; what is none, or has a NUL, is "". */
static char *decode_text(const char *text)
{
	size_t len = strlen(text);
	unsigned char *out = mem_zalloc(len + 1);
	int n = decode(text, len, out);
	bool good = n > 0 && !memchr(out, '\0', (size_t)n);
	char *plain = secret_new(good ? (char *)out : "", good ? (size_t)n : 0);

	explicit_bzero(out, len);
	free(out);
	return plain;
}

static json_t *encode(const char *text)
{
	size_t len = strlen(text);
	char *out = mem_zalloc(len / 3 * 4 + 5);
	json_t *v;

	EVP_EncodeBlock((unsigned char *)out, (const unsigned char *)text, (int)len);
	v = json_string(out);
	mem_wipe_free(out);
	return v;
}

/* --- objects --- */

static const char *version_of(const json_t *object)
{
	return json_string_value(
	    json_object_get(json_object_get(object, "metadata"), "resourceVersion"));
}

json_t *kube_object_read(const char *body, size_t len, const char *kind, struct err *e)
{
	json_error_t why;
	json_t *object = json_loadb(body, len, JSON_REJECT_DUPLICATES, &why);
	const char *said = json_string_value(json_object_get(object, "kind"));
	const char *version = version_of(object);

	if (said && !strcmp(said, kind) && version && *version && strlen(version) <= VERSION_MAX)
		return object;
	err_set(e, ERR_PROTOCOL, "the answer is no %s", kind);
	json_decref(object);
	return NULL;
}

char *kube_secret_text(const json_t *secret, const char *key)
{
	const json_t *v = json_object_get(json_object_get(secret, "data"), key);

	if (!v)
		return NULL;
	return decode_text(json_is_string(v) ? json_string_value(v) : "");
}

static char *dump(json_t *v)
{
	char *text = json_dumps(v, JSON_COMPACT), *kept;

	if (!text)
		abort();
	kept = secret_dup(text);
	mem_wipe_free(text);
	json_decref(v);
	return kept;
}

char *kube_secret_with(
    const json_t *secret, const char *const *keys, char *const *texts, unsigned n)
{
	json_t *object = json_copy((json_t *)secret), *data = json_object_get(object, "data");

	data = json_is_object(data) ? json_copy(data) : json_object();
	for (unsigned i = 0; i < n; i++)
		if (texts[i])
			json_object_set_new(data, keys[i], encode(texts[i]));
		else
			json_object_del(data, keys[i]);
	json_object_set_new(object, "data", data);
	return dump(object);
}

/* --- caBundles --- */

int kube_bundles_read(const json_t *configuration, char *bundles[KUBE_WEBHOOKS_MAX], struct err *e)
{
	const json_t *webhooks = json_object_get(configuration, "webhooks"), *v;
	size_t n = json_array_size(webhooks), i;

	if (n == 0 || n > KUBE_WEBHOOKS_MAX)
		return err_set(e, ERR_INVALID, "it has %zu webhooks; 1 to %d are worked with", n,
		    KUBE_WEBHOOKS_MAX);
	json_array_foreach (webhooks, i, v) {
		const char *text = json_string_value(
		    json_object_get(json_object_get(v, "clientConfig"), "caBundle"));

		bundles[i] = decode_text(text ? text : "");
	}
	return (int)n;
}

char *kube_bundles_patch(const json_t *configuration, char *const *bundles, unsigned n)
{
	json_t *patch = json_pack("[{s:s, s:s, s:s}]", "op", "test", "path",
	    "/metadata/resourceVersion", "value", version_of(configuration));

	for (unsigned i = 0; i < n; i++) {
		auto_free char *path = mem_printf("/webhooks/%u/clientConfig/caBundle", i);

		if (bundles[i])
			json_array_append_new(
			    patch, json_pack("{s:s, s:s, s:o}", "op", "add", "path", path, "value",
				       encode(bundles[i])));
	}
	return dump(patch);
}
