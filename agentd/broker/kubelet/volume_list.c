/* volume_list.c - a directory of pods, and of each pod its volumes. */
#include "volume_list.h"
#include "common/err.h"
#include "volume.h"
#include <errno.h>
#include <limits.h>

/* No such directory: the kubelet has no pods, or --check says what is wrong. */
int volume_list_list(struct volume_list *v, const struct link_request *r, struct err *e)
{
	char path[PATH_MAX];

	if (!v->options->kubelet_root)
		return err_set(e, EOPNOTSUPP, "agentd runs without --kubelet-root");
	snprintf(path, sizeof(path), "%s/pods", v->options->kubelet_root);
	v->pods = opendir(path);
	if (!v->pods && errno != ENOENT)
		return err_sys(e, "%s", path);
	v->id = r->id;
	return 0;
}

bool volume_list_listing(const struct volume_list *v)
{
	return v->id != 0;
}

static bool next_pod(struct volume_list *v)
{
	const struct dirent *entry;

	while (v->pods && (entry = readdir(v->pods)))
		if (uuid_parse(&v->pod, entry->d_name))
			return true;
	return false;
}

void volume_list_next(struct volume_list *v, struct link_packet *p, int *fd)
{
	char name[LINK_VOLUME_SIZE];

	while (v->volumes || next_pod(v)) {
		if (!kubelet_volume_next(v->options, &v->pod, &v->volumes, name))
			continue;
		*p = (struct link_packet){.id = v->id, .what = LINK_VOLUME};
		snprintf(p->name, sizeof(p->name), "%s", name);
		if (kubelet_volume_tell(v->options, &v->pod, p, fd))
			return;
	}
	*p = (struct link_packet){.id = v->id, .what = LINK_REPLY};
	*fd = -1;
	volume_list_end(v);
}

void volume_list_end(struct volume_list *v)
{
	if (v->volumes)
		closedir(v->volumes);
	if (v->pods)
		closedir(v->pods);
	v->volumes = v->pods = NULL;
	v->id = 0;
}
