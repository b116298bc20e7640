/* inject.c - the order of work (injection.md 4):
 *
 * shape -> an earlier injection of ours is taken back -> wishes, and refusals by name
 * -> the volume's attributes -> a node's own readers -> the result is written.
 */
#include "common/err.h"
#include "common/mem.h"
#include "inject_internal.h"

static int inject(struct inject_job *j, const json_t *before, json_t *warnings, struct err *e)
{
	json_t *labels, *attributes;
	int rc;

	if (inject_read_wishes(j, e))
		return -1;
	labels = inject_labels(j);
	attributes = inject_attributes(j, labels);
	inject_warn_annotations(j->annotations, warnings);
	rc = inject_check_node(j->config, attributes, warnings, e) ||
		     inject_check_variables(
			 j->config, inject_own_proxy(j->spec), attributes, warnings, e)
		 ? -1
		 : 0;
	if (!rc)
		inject_write(j, before, labels, attributes);
	json_decref(labels);
	json_decref(attributes);
	return rc;
}

static void clear(struct inject_job *j)
{
	json_decref(j->proxy_config);
	json_decref(j->own_proxy);
	json_decref(j->user_volumes);
	json_decref(j->user_mounts);
	json_decref(j->annotations);
	json_decref(j->labels);
	free(j->image);
	free(j->status_port);
	free(j->mesh_status_port);
}

static json_t *copy_of_map(const json_t *metadata, const char *key)
{
	json_t *map = json_object_get(metadata, key);

	return json_is_object(map) ? json_copy(map) : json_object();
}

json_t *inject_pod(const struct inject_config *c, const struct inject_owner *o, const json_t *pod,
    json_t *warnings, struct err *e)
{
	struct inject_job j = {.config = c, .owner = o};
	json_t *before;
	int rc;

	if (inject_check_shape(pod, e))
		return NULL;
	before = inject_is_injected(pod) ? inject_take_back(pod, e) : json_incref((json_t *)pod);
	if (!before)
		return NULL;
	if (inject_check_shape(before, e)) { /* its status was not ours */
		json_decref(before);
		return NULL;
	}
	j.pod = json_deep_copy(before);
	j.metadata = inject_part(j.pod, "metadata", json_object());
	j.spec = json_object_get(j.pod, "spec");
	j.annotations = copy_of_map(j.metadata, "annotations");
	j.labels = copy_of_map(j.metadata, "labels");
	rc = inject(&j, before, warnings, e);
	clear(&j);
	json_decref(before);
	if (rc)
		json_decref(take(j.pod));
	return j.pod;
}
