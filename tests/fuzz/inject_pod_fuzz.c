/* inject_pod_fuzz.c - any JSON as a pod: refused, or injected by the laws of inject_rig.h. */
#include "inject_rig.h"
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *pod = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);

	if (pod)
		for (int native = 0; native < 2; native++)
			rig_check(rig_config(native), pod);
	json_decref(pod);
	return 0;
}
