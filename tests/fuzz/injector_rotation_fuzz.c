/* injector_rotation_fuzz.c - a hostile Secret and hostile caBundles: texts with a NUL between them.
 *
 * What a look wants to write must make sense to the next look, and what it wants in a caBundle must
 * be there when that is done.
 */
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "injector/ca/rotation.h"
#include <openssl/err.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BUNDLES = 2, TEXTS = ROTATION_KEYS + BUNDLES };
static const int64_t NOW = 1800000000;

static void check_bundles(const struct rotation_plan *plan, const char *const *bundles)
{
	for (unsigned i = 0; i < BUNDLES; i++) {
		auto_free char *mended = bundle_mend(bundles[i], &plan->want);
		auto_free char *again = mended ? bundle_mend(mended, &plan->want) : NULL;

		if (again)
			abort();
		for (unsigned k = 0; k < BUNDLE_MUST_MAX; k++)
			if (plan->want.must[k] &&
			    !bundle_holds(mended ? mended : bundles[i], plan->want.must[k]))
				abort();
	}
}

static void look(struct rotation *r, struct rotation_seen *seen, struct rotation_plan *plan)
{
	rotation_look(r, seen, plan);
	check_bundles(plan, seen->bundles);
	if (ERR_peek_error())
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	auto_free char *text = mem_zalloc(size + 1);
	const char *texts[TEXTS] = {NULL};
	struct rotation *r = rotation_new("agentd-injector.agentd-system.svc");
	struct rotation_data data = {{NULL}};
	struct rotation_plan plan, next;
	struct rotation_seen seen = {.data = &data, .n_bundles = BUNDLES, .now_s = NOW};
	unsigned n = 0;

	memcpy(text, bytes, size);
	for (char *at = text; at < text + size && n < TEXTS; at += strlen(at) + 1)
		texts[n++] = at;
	for (unsigned i = 0; i < ROTATION_KEYS; i++)
		if (texts[i] && *texts[i])
			data.text[i] = secret_new(texts[i], strlen(texts[i]));
	for (; n < TEXTS; n++)
		texts[n] = "";
	seen.bundles = texts + ROTATION_KEYS;
	look(r, &seen, &plan);
	for (unsigned steps = 0; plan.put; steps++) {
		seen.data = &plan.data;
		look(r, &seen, &next);
		if (*next.wrong || next.state == ROTATION_NONE || steps > 4)
			abort();
		rotation_plan_clear(&plan);
		plan = next;
	}
	rotation_plan_clear(&plan);
	rotation_data_clear(&data);
	rotation_free(&r);
	return 0;
}
