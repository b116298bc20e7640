/* patch_rig.h - a patch of RFC 6902 applied: add, remove and replace, and nothing that fails
 * silently.  For unit tests and fuzz targets; the other implementations are in tests/e2e and
 * tests/helm. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* "a~1b/0": the first token, decoded, into `key`; what is behind it. */
static inline const char *patch_token(const char *path, char *key)
{
	for (; *path && *path != '/'; path++, key++)
		if (path[0] == '~' && (path[1] == '0' || path[1] == '1'))
			*key = *++path == '0' ? '~' : '/';
		else
			*key = *path;
	*key = '\0';
	return *path ? path + 1 : NULL;
}

static inline bool patch_object(json_t *o, const char *key, const char *op, json_t *value)
{
	bool there = json_object_get(o, key);

	if (!strcmp(op, "remove"))
		return there && !json_object_del(o, key);
	return !strcmp(op, "add") == !there && !json_object_set(o, key, value);
}

static inline bool patch_array(json_t *a, const char *key, const char *op, json_t *value)
{
	size_t at = strtoul(key, NULL, 10);

	if (!strcmp(op, "add"))
		return !json_array_insert(a, at, value);
	if (!strcmp(op, "remove"))
		return !json_array_remove(a, at);
	return !json_array_set(a, at, value);
}

/* The document is changed; an empty path is a new one. */
static inline bool patch_apply_one(json_t **document, const json_t *operation)
{
	const char *op = json_string_value(json_object_get(operation, "op"));
	const char *path = json_string_value(json_object_get(operation, "path"));
	json_t *value = json_object_get(operation, "value"), *at = *document, *copy;
	char *key = malloc(strlen(path) + 1);
	bool done = false;

	copy = json_deep_copy(value); /* one value may be in several places */
	if (!*path) {
		json_decref(*document);
		*document = json_incref(copy);
		done = !strcmp(op, "replace");
	}
	for (path += *path == '/'; at && path && !done;) {
		path = patch_token(path, key);
		if (!path)
			done = json_is_array(at) ? patch_array(at, key, op, copy)
						 : patch_object(at, key, op, copy);
		else
			at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10))
					       : json_object_get(at, key);
	}
	json_decref(copy);
	free(key);
	return done;
}

/* A new value; NULL: an operation does not fit. */
static inline json_t *patch_apply(const json_t *from, const json_t *patch)
{
	json_t *out = json_deep_copy(from), *operation;
	bool fine = true;
	size_t i;

	json_array_foreach (patch, i, operation)
		fine = fine && patch_apply_one(&out, operation);
	if (fine)
		return out;
	json_decref(out);
	return NULL;
}
