/* shape.c - has a pod the types that the other files count on?
 *
 * null is as good as nothing in the API.
 */
#include "bounds.h"
#include "common/err.h"
#include "inject_internal.h"
#include <string.h>

static int check_size(const char *where, const char *key, size_t n, struct err *e)
{
	return n <= INJECT_ITEMS_MAX
		   ? 0
		   : err_set(e, ERR_INVALID, "%s%s: more than %d", where, key, INJECT_ITEMS_MAX);
}

static int check_map(const json_t *metadata, const char *key, struct err *e)
{
	json_t *map = json_object_get(metadata, key), *v;
	char shown[64];
	const char *name;

	if (map && !json_is_null(map) && !json_is_object(map))
		return err_set(e, ERR_INVALID, "metadata.%s: must be a map", key);
	if (check_size("metadata.", key, json_object_size(map), e))
		return -1;
	json_object_foreach (map, name, v)
		if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
			return err_set(e, ERR_INVALID, "metadata.%s: %s must be text: quote it",
			    key, err_printable(shown, sizeof(shown), name, (unsigned)strlen(name)));
	return 0;
}

/* What is JSON or YAML in annotations and is read here; a status is as long as injection makes it.
 */
static int check_texts(const json_t *annotations, struct err *e)
{
	static const char *const read[] = {INJECT_STATUS, INJECT_OVERRIDES, INJECT_CONFIG,
	    INJECT_USER_VOLUME, INJECT_USER_MOUNT, INJECT_TARGETS};
	unsigned values = 0;

	for (unsigned i = 0; i < sizeof(read) / sizeof(*read); i++) {
		const json_t *v = json_object_get(annotations, read[i]);
		size_t len = json_string_length(v);

		if (i && len > INJECT_TEXT_MAX)
			return err_set(e, ERR_INVALID, "annotation %s: more than %d KiB", read[i],
			    INJECT_TEXT_MAX >> 10);
		if (v && bounds_check(json_string_value(v), len, &values, e))
			return err_wrap(e, "annotation %s", read[i]);
	}
	return 0;
}

/* Of an app the ports are read, of the pod's own Envoy all. */
static int check_container(const json_t *c, struct err *e)
{
	bool own = !strcmp(inject_name_of(c), INJECT_PROXY);
	const char *key;
	json_t *v;

	if (own && json_dumpb(c, NULL, 0, JSON_COMPACT) > INJECT_TEXT_MAX - 64)
		return err_set(e, ERR_INVALID, "the pod's own " INJECT_PROXY ": more than %d KiB",
		    INJECT_TEXT_MAX >> 10);
	json_object_foreach ((json_t *)c, key, v)
		if ((own || !strcmp(key, "ports")) &&
		    check_size("a container's ", key, json_array_size(v), e))
			return -1;
	return 0;
}

/* `names`: those that were met. */
static int check_named(json_t *names, const char *key, const json_t *thing, struct err *e)
{
	const char *name = inject_name_of(thing);
	char shown[64];

	if (!*name)
		return err_set(e, ERR_INVALID, "spec.%s: each must have a name", key);
	if (json_object_get(names, name))
		return err_set(e, ERR_INVALID, "spec.%s: two are named \"%s\"", key,
		    err_printable(shown, sizeof(shown), name, (unsigned)strlen(name)));
	json_object_set_new(names, name, json_true());
	return 0;
}

static int check_list(const json_t *spec, const char *key, json_t *names, struct err *e)
{
	json_t *list = json_object_get(spec, key), *v;
	size_t i;

	if (list && !json_is_null(list) && !json_is_array(list))
		return err_set(e, ERR_INVALID, "spec.%s: must be a list", key);
	if (check_size("spec.", key, json_array_size(list), e))
		return -1;
	json_array_foreach (list, i, v)
		if (check_named(names, key, v, e) || check_container(v, e))
			return -1;
	return 0;
}

/* Names of containers are unique in both lists together. */
static int check_lists(const json_t *spec, struct err *e)
{
	json_t *containers = json_object(), *volumes = json_object(), *secrets = json_object();
	int rc = check_list(spec, "containers", containers, e) ||
		 check_list(spec, "initContainers", containers, e) ||
		 check_list(spec, "volumes", volumes, e) ||
		 check_list(spec, "imagePullSecrets", secrets, e);

	json_decref(containers);
	json_decref(volumes);
	json_decref(secrets);
	if (!rc && !json_array_size(json_object_get(spec, "containers")))
		return err_set(e, ERR_INVALID, "spec.containers: must have a container");
	return rc ? -1 : 0;
}

int inject_check_shape(const json_t *pod, struct err *e)
{
	const json_t *metadata = json_object_get(pod, "metadata");
	const json_t *spec = json_object_get(pod, "spec");

	if (metadata && !json_is_null(metadata) && !json_is_object(metadata))
		return err_set(e, ERR_INVALID, "metadata: must be a map");
	if (!json_is_object(spec))
		return err_set(e, ERR_INVALID, "spec: must be a map");
	if (check_map(metadata, "labels", e) || check_map(metadata, "annotations", e) ||
	    check_texts(json_object_get(metadata, "annotations"), e))
		return -1;
	return check_lists(spec, e);
}
