/* labels.c - what telemetry and istiod read of an injected pod (injection.md 4). */
#include "inject_internal.h"
#include <string.h>

static const char *label_of(const struct inject_job *j, const char *const *names)
{
	for (; *names; names++) {
		const char *v = json_string_value(json_object_get(j->labels, *names));

		if (v && *v)
			return v;
	}
	return NULL;
}

/* A pod without an owner that the API server has yet to name is known by what its name begins with;
 * Istio's label is empty then. */
static const char *name_of(const struct inject_job *j)
{
	const char *begin = json_string_value(json_object_get(j->metadata, "generateName"));

	return *j->owner->name || !begin ? j->owner->name : begin;
}

static bool is_end(char c)
{
	return c && strchr("-_.", c);
}

/* A label holds 63 characters, and begins and ends with a letter or digit. */
static json_t *canonical_name(const char *name)
{
	size_t n = strnlen(name, 63);

	for (; n && is_end(name[0]); n--)
		name++;
	while (n && is_end(name[n - 1]))
		n--;
	return json_stringn(name, n);
}

json_t *inject_labels(const struct inject_job *j)
{
	static const char *const modes[] = {"security.istio.io/tlsMode", NULL};
	static const char *const names[] = {
	    "service.istio.io/canonical-name", "app.kubernetes.io/name", "app", NULL};
	static const char *const revisions[] = {
	    "service.istio.io/canonical-revision", "app.kubernetes.io/version", "version", NULL};
	const char *mode = label_of(j, modes), *name = label_of(j, names);
	const char *revision = label_of(j, revisions);

	return json_pack("{s:s, s:o, s:s}", modes[0], mode ? mode : "istio", names[0],
	    canonical_name(name ? name : name_of(j)), revisions[0], revision ? revision : "latest");
}
