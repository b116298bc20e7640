/* bound.c - see bound.h. */
#include "bound.h"
#include "broker/kubelet/pod_source.h"
#include "broker/kubelet/volume.h"
#include "cgroup.h"
#include "common/mem.h"

const char *pod_bound_by(const struct broker_options *o, const struct uuid *pod)
{
	char uid[UUID_TEXT_SIZE];
	struct err e;

	if (pod_source_is_manifest(o, pod))
		return "its manifest is there";
	if (!o->kubelet_root || !kubelet_volume_is_there(o, pod))
		return NULL;
	if (kubelet_volume_is_published(o, pod))
		return "its volume is mounted: unpublish it first";
	uuid_format(pod, uid);
	auto_close int cgroup = pod_cgroup_open(o, uid, &e);
	return cgroup >= 0 && pod_cgroup_is_populated(cgroup)
		   ? "its volume is there, and so are its processes"
		   : NULL;
}
