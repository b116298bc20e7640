/* pod_source.c - see pod_source.h. */
#include "pod_source.h"
#include "volume.h"
#include <errno.h>
#include <limits.h>
#include <unistd.h>

bool pod_source_is_known(const struct broker_options *o)
{
	char pods[PATH_MAX];

	if (o->manifests && access(o->manifests, F_OK))
		return false;
	if (!o->kubelet_root)
		return true;
	snprintf(pods, sizeof(pods), "%s/pods", o->kubelet_root);
	return !access(pods, F_OK);
}

bool pod_source_is_manifest(const struct broker_options *o, const struct uuid *pod)
{
	char uid[UUID_TEXT_SIZE], path[PATH_MAX];

	if (!o->manifests)
		return false;
	uuid_format(pod, uid);
	snprintf(path, sizeof(path), "%s/%s.yaml", o->manifests, uid);
	return !access(path, F_OK) || errno != ENOENT;
}

const char *pod_source_of(const struct broker_options *o, const struct uuid *pod)
{
	if (pod_source_is_manifest(o, pod))
		return "a manifest";
	return o->kubelet_root && kubelet_volume_is_there(o, pod) ? "a volume" : NULL;
}
