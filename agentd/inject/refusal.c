/* refusal.c - pods that cannot be injected, whatever a node says (injection.md 6). */
#include "mesh/refusal.h"
#include "common/err.h"
#include "inject_internal.h"
#include <string.h>

static int refuse_sandbox(const struct inject_job *j, struct err *e)
{
	const char *class = json_string_value(inject_at(j->spec, "runtimeClassName"));
	json_t *v;
	size_t i;

	json_array_foreach (j->config->sandboxes, i, v)
		if (class && !strcmp(class, json_string_value(v)))
			return err_set(e, ERR_INVALID,
			    "runtimeClassName %s is a sandbox: sockets and cgroups of the node end "
			    "at it",
			    class);
	return 0;
}

static int refuse_template(const struct inject_job *j, struct err *e)
{
	const char *wanted = inject_annotation(j, "inject.istio.io/templates");
	char shown[64];

	if (!wanted || !*wanted || !strcmp(wanted, j->config->template_name))
		return 0;
	return err_set(e, ERR_INVALID, "requested template \"%s\" not found; have %s",
	    err_printable(shown, sizeof(shown), wanted, (unsigned)strlen(wanted)),
	    j->config->template_name);
}

/* Of agentd, and of an annotation. */
static int refuse_volumes(const struct inject_job *j, struct err *e)
{
	json_t *ours = json_object(), *v;
	const char *name = NULL;
	size_t i;

	json_object_set_new(ours, INJECT_VOLUME, json_true());
	json_array_foreach (j->user_volumes, i, v) {
		if (json_object_get(ours, inject_name_of(v)))
			name = inject_name_of(v);
		json_object_set_new(ours, inject_name_of(v), json_true());
	}
	json_array_foreach (json_object_get(j->spec, "volumes"), i, v)
		if (!name && json_object_get(ours, inject_name_of(v)))
			name = inject_name_of(v);
	json_decref(ours);
	if (!name)
		return 0;
	return err_set(e, ERR_INVALID, "the pod has a volume \"%.64s\" already: rename it", name);
}

/* By hand, the node would refuse it; SPIRE's, no node sees. */
int inject_check_volumes(const json_t *spec, struct err *e)
{
	json_t *v;
	size_t i;

	json_array_foreach (json_object_get(spec, "volumes"), i, v) {
		const char *driver = json_string_value(inject_at(v, "csi.driver"));

		if (driver && !strcmp(driver, INJECT_DRIVER) && !inject_true(v, "csi.readOnly"))
			return err_set(e, ERR_INVALID, "%s", REFUSAL_WRITABLE);
		if (driver && !strcmp(driver, "csi.spiffe.io"))
			return err_set(e, ERR_INVALID, "%s", REFUSAL_SPIRE);
	}
	return 0;
}

/* A label that is there is never changed: a ReplicaSet would lose its pods. */
static int refuse_wish(const struct inject_job *j, struct err *e)
{
	if (!j->config->hide_from_istiod || !json_object_get(j->labels, INJECT_WISH))
		return 0;
	return err_set(e, ERR_INVALID,
	    "label %s: istiod's injector would inject this pod, too: remove the label",
	    INJECT_WISH);
}

int inject_check_names(const struct inject_job *j, struct err *e)
{
	if (inject_true(j->spec, "hostNetwork"))
		return err_set(e, ERR_INVALID,
		    "a pod with hostNetwork has no network of its own to be meshed");
	if (inject_check_volumes(j->spec, e) || refuse_sandbox(j, e) || refuse_template(j, e) ||
	    refuse_volumes(j, e) || refuse_wish(j, e))
		return -1;
	return inject_check_annotations(j->annotations, e);
}
