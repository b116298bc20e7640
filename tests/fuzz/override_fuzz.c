/* override_fuzz.c - any text as ISTIO_BOOTSTRAP_OVERRIDE, and the bootstrap that comes of it.
 *
 * Whatever was accepted: the document is JSON; node, admin and dynamic_resources are those of a pod
 * without it; all clusters and listeners of such a pod are there, unchanged, in their places, and
 * no other one has a name of theirs.
 * LINK: tests/fuzz/node_rig.c
 */
#include "node_rig.h"
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* NULL: refused. */
static json_t *rendered(json_t *override)
{
	json_t *env = json_pack("{s:s}", "HOST_IP", "fd00::1"), *b = NULL;
	struct err e = {0};
	struct node *n;

	if (override)
		json_object_set(env, "ISTIO_BOOTSTRAP_OVERRIDE", override);
	n = rig_node(env, &e);
	if (n) {
		size_t len;
		char *text = bootstrap_render(n, &len);

		b = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
		must(b != NULL);
		free(text);
	} else {
		must(e.code == ERR_INVALID && *e.msg);
	}
	node_free(&n);
	json_decref(env);
	return b;
}

static void check_list(json_t *list, json_t *plain)
{
	json_t *v, *w;
	size_t i, k;

	must(json_array_size(list) >= json_array_size(plain));
	json_array_foreach (plain, i, v) {
		must(json_equal(v, json_array_get(list, i)));
		json_array_foreach (list, k, w)
			must(k == i || !at(w, "name") || !json_equal(at(v, "name"), at(w, "name")));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const ours[] = {"node", "admin", "dynamic_resources"};
	static json_t *plain;
	json_t *text = json_stringn((const char *)data, size);
	json_t *b = text ? rendered(text) : NULL;

	if (!plain)
		plain = rendered(NULL);
	for (unsigned i = 0; b && i < sizeof(ours) / sizeof(*ours); i++)
		must(json_equal(at(b, ours[i]), at(plain, ours[i])));
	if (b) {
		json_t *all = at(b, "static_resources"), *before = at(plain, "static_resources");

		check_list(at(all, "clusters"), at(before, "clusters"));
		check_list(at(all, "listeners"), at(before, "listeners"));
	}
	json_decref(text);
	json_decref(b);
	return 0;
}
