/* volume_rig.c - see volume_rig.h. */
#include "volume_rig.h"

const char rig_other_text[] = "09080700-0000-0000-0000-000000000000";

const char *volume_at(const struct rig *r, const char *uid, const char *volume, const char *name)
{
	return rig_at(r, "kubelet/pods/%s/volumes/kubernetes.io~csi/%s/%s", uid, volume, name);
}

const char *target_at(const struct rig *r)
{
	return volume_at(r, rig_pod_text, "mesh", "mount");
}

void volume_make(const struct rig *r, const char *uid, const char *volume)
{
	const char *dir = volume_at(r, uid, volume, "");

	rig_shell("mkdir -p -m 0750 %s", dir);
	rig_file(
	    volume_at(r, uid, volume, "vol_data.json"), "{\"driverName\":\"agentd.node.mesh\"}");
}

int mounts_with(const char *text)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[8192];
	int n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

int volume_setup(void **state)
{
	struct rig *r;
	static char kubelet[RIG_PATH];

	rig_setup(state);
	r = *state;
	rig_stop(r);
	snprintf(kubelet, sizeof(kubelet), "%s/kubelet", r->top);
	rig_shell("mkdir -p %s && mount -t tmpfs kubelet %s && mkdir -m 0750 %s/pods "
		  "%s/plugins_registry",
	    kubelet, kubelet, kubelet, kubelet);
	r->o.kubelet_root = kubelet;
	r->o.manifests = NULL;
	rig_start(r);
	return 0;
}

int volume_teardown(void **state)
{
	struct rig *r = *state;

	umount2(rig_at(r, "kubelet"), MNT_DETACH);
	return rig_teardown(state);
}

struct rig_ask publish(const struct uuid *pod)
{
	return (struct rig_ask){.op = LINK_PUBLISH, .pod = pod};
}

struct rig_ask unpublish(const struct uuid *pod)
{
	return (struct rig_ask){.op = LINK_UNPUBLISH, .pod = pod};
}
