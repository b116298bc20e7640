/* env_meta.h - what of a pod's environment istiod is told: ISTIO_META_NAME and ISTIO_METAJSON_*,
 * but for what node.c writes itself (security-rules.md 3).
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct err;

struct env_meta {
	json_t *metadata; /* an object, where it is put */
	json_t *ignored;  /* texts: what is not told */
	size_t keys, bytes;
};

/* 128 keys and 128 KiB in all; -1: this one is too much. */
int env_meta_count(struct env_meta *m, const char *key, const char *value, struct err *e);
/* Of ISTIO_METAJSON_*, an object, which comes first in the order of the alphabet, and wins. */
void env_meta_add_all(struct env_meta *m, const char *key, json_t *values);
/* Of ISTIO_META_*; false: nobody may say that name. */
bool env_meta_add(struct env_meta *m, const char *name, const char *value);
