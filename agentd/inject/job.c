/* job.c - what the files of this room ask of a pod on its way (inject_internal.h). */
#include "common/mem.h"
#include "inject_internal.h"
#include <string.h>

const char *inject_name_of(const json_t *thing)
{
	const char *name = json_string_value(json_object_get(thing, "name"));

	return name ? name : "";
}

json_t *inject_own_proxy(const json_t *spec)
{
	json_t *c = inject_named(json_object_get(spec, "containers"), INJECT_PROXY);

	return c ? c : inject_named(json_object_get(spec, "initContainers"), INJECT_PROXY);
}

json_t *inject_named(const json_t *list, const char *name)
{
	json_t *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (*name && !strcmp(inject_name_of(v), name))
			return v;
	return NULL;
}

char *inject_joined(const json_t *set)
{
	size_t n = 1;
	const char *key;
	json_t *v;
	char *all, *end;

	json_object_foreach ((json_t *)set, key, v)
		n += strlen(key) + 1;
	end = all = mem_zalloc(n);
	json_object_foreach ((json_t *)set, key, v)
		end = stpcpy(end == all ? end : stpcpy(end, ","), key);
	return all;
}

bool inject_is_false(const char *text)
{
	static const char *const words[] = {"false", "False", "FALSE", "f", "F", "0"};

	for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(words[i], text))
			return true;
	return false;
}

const char *inject_annotation(const struct inject_job *j, const char *name)
{
	return json_string_value(json_object_get(j->annotations, name));
}

char *inject_annotation_or(
    const struct inject_job *j, const char *name, const char *value_path, const char *otherwise)
{
	const char *own = inject_annotation(j, name);
	char *text = own ? mem_strdup(own) : inject_text(j->config->values, value_path);

	return text ? text : mem_strdup(otherwise);
}

char *inject_proxy_field(const struct inject_job *j, const char *path, const char *otherwise)
{
	char *text = inject_text(j->proxy_config, path);

	return text ? text : mem_strdup(otherwise);
}

json_t *inject_part(json_t *o, const char *key, json_t *empty)
{
	json_t *v = json_object_get(o, key);

	if (v && !json_is_null(v)) {
		json_decref(empty);
		return v;
	}
	json_object_set_new(o, key, empty);
	return empty;
}
