/* inject_mix_fuzz.c - several of a pod's wishes at once: the first line is its spec, each further
 * one an annotation or a label by its first letter, and its value.  Refused, or injected by the
 * laws of inject_rig.h, and the patch makes the one of the other. SOAK: 10000000 runs
 */
#include "inject/patch.h"
#include "inject_rig.h"
#include "patch_rig.h"
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"sidecar.istio.io/status", "proxy.istio.io/overrides",
    "proxy.istio.io/config", "sidecar.istio.io/userVolume", "sidecar.istio.io/userVolumeMount",
    "prometheus.istio.io/scrape-targets", "agentd.node.mesh/redirect",
    "sidecar.istio.io/rewriteAppHTTPProbers", "sidecar.istio.io/nativeSidecar",
    "status.sidecar.istio.io/port", "prometheus.io/port", "prometheus_io_path",
    "sidecar.istio.io/interceptionMode", "traffic.sidecar.istio.io/excludeOutboundPorts",
    "traffic.sidecar.istio.io/includeInboundPorts", "sidecar.istio.io/proxyCPULimit",
    "sidecar.istio.io/proxyImage", "topology.istio.io/network", "service.istio.io/canonical-name",
    "sidecar.istio.io/inject"};
enum { NAMES = sizeof(names) / sizeof(*names) };

static void check(const struct inject_config *c, json_t *pod)
{
	json_t *done = rig_inject(c, pod), *patch, *again;

	if (!done)
		return;
	patch = inject_patch(pod, done);
	again = patch_apply(pod, patch);
	must(again && json_equal(again, done));
	json_decref(again);
	json_decref(patch);
	json_decref(done);
	rig_check(c, pod);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *all_end = text + size, *end;
	json_t *maps[2] = {json_object(), json_object()}, *pod;

	end = size ? memchr(text, '\n', size) : NULL;
	pod = json_pack("{s:{s:o, s:o}, s:o*}", "metadata", "annotations", maps[0], "labels",
	    maps[1], "spec", json_loadb(text, end ? (size_t)(end - text) : size, 0, NULL));
	for (text = end ? end + 1 : all_end; text < all_end; text = end + 1) {
		unsigned which = (unsigned char)*text - 'a';

		end = memchr(text, '\n', (size_t)(all_end - text));
		end = end ? end : all_end;
		if (which < NAMES && !memchr(text, '\0', (size_t)(end - text)))
			json_object_set_new(maps[which >= 17], names[which],
			    json_stringn(text + 1, (size_t)(end - text) - 1));
	}
	for (int native = 0; native < 2; native++)
		check(rig_config(native), pod);
	json_decref(pod);
	return 0;
}
