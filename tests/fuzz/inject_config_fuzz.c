/* inject_config_fuzz.c - any YAML as what injection is told of the mesh (--config, a webhook's):
 * refused with a reason, or a pod is injected by it as by any other, by the laws of inject_rig.h.
 */
#include "inject/stream.h"
#include "inject_rig.h"
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char pod_text[] =
    "{\"metadata\":{\"name\":\"p\",\"labels\":{\"app\":\"a\"}},\"spec\":{\"serviceAccountName\":"
    "\"sa\",\"containers\":[{\"name\":\"app\",\"image\":\"i\",\"ports\":[{\"containerPort\":80}],"
    "\"livenessProbe\":{\"httpGet\":{\"port\":80}}}]}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static json_t *pod;
	struct err e = {0};
	json_t *all = inject_read((const char *)data, size, &e);
	struct inject_config *c;

	if (!pod)
		pod = json_loads(pod_text, 0, NULL);
	must(all || *e.msg);
	if (!all)
		return 0;
	c = inject_config_of(all, &e);
	must(c || *e.msg);
	if (c)
		rig_check(c, pod);
	inject_config_free(&c);
	json_decref(all);
	return 0;
}
