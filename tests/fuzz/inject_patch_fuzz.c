/* inject_patch_fuzz.c - two JSON values, a NUL between them: the patch makes the second of the
 * first, and equal ones have none. */
#include "inject/patch.h"
#include "inject_rig.h"
#include "patch_rig.h"
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *half = size ? memchr(data, '\0', size) : NULL;
	json_t *from, *to, *patch, *done;

	if (!half)
		return 0;
	from = json_loadb(text, (size_t)(half - text), JSON_DECODE_ANY, NULL);
	to = json_loadb(half + 1, size - (size_t)(half - text) - 1, JSON_DECODE_ANY, NULL);
	if (from && to) {
		patch = inject_patch(from, to);
		done = patch_apply(from, patch);
		must(done && json_equal(done, to));
		must(json_equal(from, to) == !json_array_size(patch));
		json_decref(done);
		json_decref(patch);
	}
	json_decref(from);
	json_decref(to);
	return 0;
}
