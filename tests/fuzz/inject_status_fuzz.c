/* inject_status_fuzz.c - any text as the status of an injected pod, and any as what it overrides:
 * the way back is refused, or touches nothing but what injection writes.
 */
#include "inject_rig.h"
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char pod_text[] =
    "{\"metadata\":{\"name\":\"p\",\"labels\":{\"app\":\"a\"},\"annotations\":{\"n\":\"1\"}},"
    "\"spec\":{\"serviceAccountName\":\"sa\",\"containers\":[{\"name\":\"app\",\"image\":\"i\","
    "\"livenessProbe\":{\"httpGet\":{\"port\":1}}},{\"name\":\"istio-proxy\",\"image\":\"auto\"}],"
    "\"volumes\":[{\"name\":\"v\",\"emptyDir\":{}}]}}";

static json_t *annotations_of(json_t *pod)
{
	return json_object_get(json_object_get(pod, "metadata"), "annotations");
}

/* What no injection writes. */
static void check_rest(const json_t *pod, const json_t *back)
{
	const json_t *spec = json_object_get(back, "spec"), *c;
	size_t i;

	must(json_equal(json_object_get(spec, "serviceAccountName"),
	    json_object_get(json_object_get(pod, "spec"), "serviceAccountName")));
	json_array_foreach (json_object_get(spec, "containers"), i, c)
		must(strcmp(json_string_value(json_object_get(c, "name")), "app") != 0 ||
		     !strcmp(json_string_value(json_object_get(c, "image")), "i"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = memchr(data, 0, size);
	size_t n = nul ? (size_t)(nul - data) : size;
	json_t *pod = json_loads(pod_text, 0, NULL), *back;
	struct err e;

	json_object_set_new(
	    annotations_of(pod), "sidecar.istio.io/status", json_stringn((const char *)data, n));
	if (nul)
		json_object_set_new(annotations_of(pod), "proxy.istio.io/overrides",
		    json_stringn((const char *)nul + 1, size - n - 1));
	back = inject_take_back(pod, &e);
	if (back && inject_is_injected(pod))
		check_rest(pod, back);
	json_decref(back);
	for (int native = 0; native < 2; native++)
		rig_check(rig_config(native), pod);
	json_decref(pod);
	return 0;
}
