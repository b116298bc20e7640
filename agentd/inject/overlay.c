/* overlay.c - the pod's own words over a container of ours, by Kubernetes' strategic merge: maps
 * are merged, three lists are merged by a key, all other lists are replaced.  null removes.
 */
#include "inject_internal.h"
#include <string.h>

static const struct {
	const char *list, *key;
} merged[] = {{"env", "name"}, {"volumeMounts", "mountPath"}, {"ports", "containerPort"}};

static const char *key_of(const char *list)
{
	for (unsigned i = 0; i < sizeof(merged) / sizeof(*merged); i++)
		if (!strcmp(merged[i].list, list))
			return merged[i].key;
	return NULL;
}

/* Those of `over` that `under` has as well take their place; the others follow. */
static json_t *merge_lists(const json_t *under, const json_t *over, const char *key)
{
	json_t *out = json_copy((json_t *)under), *item, *other;
	size_t i, k;

	json_array_foreach (over, i, item) {
		bool found = false;

		json_array_foreach (out, k, other)
			if (!found &&
			    json_equal(json_object_get(item, key), json_object_get(other, key))) {
				json_array_set_new(out, k, inject_overlay(other, item));
				found = true;
			}
		if (!found)
			json_array_append(out, item);
	}
	return out;
}

/* The depth is bounded where the pod was read. */
json_t *inject_overlay(const json_t *under, const json_t *over)
{
	json_t *out = json_copy((json_t *)under), *v;
	const char *key;

	json_object_foreach ((json_t *)over, key, v) {
		json_t *old = json_object_get(out, key);
		const char *by = key_of(key);

		if (json_is_null(v))
			json_object_del(out, key);
		else if (json_is_array(v) && !json_array_size(v))
			continue; /* the API knows no empty list */
		else if (json_is_object(v) && json_is_object(old))
			json_object_set_new(out, key, inject_overlay(old, v));
		else if (by && json_is_array(v) && json_is_array(old))
			json_object_set_new(out, key, merge_lists(old, v, by));
		else
			json_object_set(out, key, v);
	}
	return out;
}
