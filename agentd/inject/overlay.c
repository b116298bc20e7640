/* overlay.c - the pod's own words over a container of ours, by Kubernetes' strategic merge: maps
 * are merged, three lists are merged by a key, all other lists are replaced.  null removes.
 */
#include "common/mem.h"
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

/* Where the first item of each key is; what has none, a text or a number, is like no other. */
static void note_place(json_t *places, const json_t *item, const char *key, size_t at)
{
	auto_free char *text = inject_scalar(json_object_get(item, key));

	if (text && !json_object_get(places, text))
		json_object_set_new(places, text, json_integer((json_int_t)at));
}

static void merge_item(json_t *out, json_t *item, const char *key, json_t *places)
{
	const json_t *own = json_object_get(item, key), *place;
	auto_free char *text = inject_scalar(own);
	size_t at;

	place = json_object_get(places, text ? text : "");
	at = (size_t)json_integer_value(place);
	if (place && json_equal(own, json_object_get(json_array_get(out, at), key))) {
		json_array_set_new(out, at, inject_overlay(json_array_get(out, at), item));
		return;
	}
	note_place(places, item, key, json_array_size(out));
	json_array_append(out, item);
}

/* Those of `over` that `under` has as well take their place; the others follow. */
static json_t *merge_lists(const json_t *under, const json_t *over, const char *key)
{
	json_t *out = json_copy((json_t *)under), *places = json_object(), *item;
	size_t i;

	json_array_foreach (under, i, item)
		note_place(places, item, key, i);
	json_array_foreach (over, i, item)
		merge_item(out, item, key, places);
	json_decref(places);
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
