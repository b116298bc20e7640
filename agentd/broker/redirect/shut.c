/* shut.c - see shut.h. */
#include "shut.h"
#include "border/rules.h"
#include "broker/ebpf/load.h"
#include "broker/ebpf/table.h"
#include "broker/kubelet/pod_source.h"
#include "common/err.h"
#include "common/mem.h"
#include "pod.h"
#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A list that cannot be read allows nothing. */
bool redirect_shut_is_due(
    const struct broker_options *o, const struct redirect_ceiling *node, const struct uuid *pod)
{
	struct redirect_ceiling c;
	struct err e;

	if (!pod_source_is_manifest(o, pod))
		return false;
	return redirect_ceiling_of(o, node, pod, &c, &e) || !c.permissive;
}

bool redirect_shut_read_name(const char *name, struct uuid *out)
{
	char uid[UUID_TEXT_SIZE];
	size_t n = strlen(name);

	if (n != UUID_TEXT_SIZE - 1 + strlen(".yaml") ||
	    strcmp(name + UUID_TEXT_SIZE - 1, ".yaml") != 0)
		return false;
	snprintf(uid, sizeof(uid), "%.*s", UUID_TEXT_SIZE - 1, name);
	return uuid_parse(out, uid);
}

void redirect_shut_each(const struct broker_options *o, const struct redirect_ceiling *node,
    void (*each)(void *ctx, const struct uuid *pod), void *ctx)
{
	const struct dirent *entry;
	struct uuid uid;
	DIR *dir = o->manifests ? opendir(o->manifests) : NULL;

	while (dir && (entry = readdir(dir)))
		if (redirect_shut_read_name(entry->d_name, &uid) &&
		    redirect_shut_is_due(o, node, &uid))
			each(ctx, &uid);
	if (dir)
		closedir(dir);
}

static void fill(struct redirect_rules *out, const struct redirect_ceiling *c)
{
	*out = (struct redirect_rules){.version = REDIRECT_RULES_VERSION,
	    .flags = REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL | REDIRECT_SHUT,
	    .proxy_uid = c->proxy_uid,
	    .proxy_gid = c->proxy_gid,
	    .outbound_port = (uint16_t)c->envoy_port,
	    .inbound_port = (uint16_t)c->inbound_capture_port,
	    .tunnel_port = (uint16_t)c->inbound_tunnel_port,
	    .strict = 1};
}

int redirect_shut(
    struct redirect *r, struct redirect_shut_at at, const struct redirect_ceiling *c, struct err *e)
{
	const struct redirect_pod_state *known = ebpf_pod_find(r, at.pod);
	auto_free struct redirect_rules *rules = mem_zalloc(sizeof(*rules));
	struct stat st;

	if (fstat(at.cgroup, &st))
		return err_sys(e, "the pod's cgroup");
	if (known && known->cgroup == st.st_ino)
		return 0;
	fill(rules, c);
	return redirect_set(r, at.pod, (struct redirect_where){at.cgroup, -1}, rules, e);
}

int redirect_shut_is_over(const char *bpffs, struct redirect_shut_at at, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];
	struct redirect_pod entry;
	struct stat st;
	uint64_t id;

	snprintf(path, sizeof(path), "%s/agentd/v%d/map_pods", bpffs, REDIRECT_LAYOUT);
	auto_close int map = bpf_obj_get(path);
	if (map < 0 || fstat(at.cgroup, &st))
		return err_sys(e, "%s", path);
	id = st.st_ino;
	return !bpf_map_lookup_elem(map, &id, &entry) && !(entry.flags & REDIRECT_SHUT) &&
	       !memcmp(entry.uid, at.pod, sizeof(entry.uid));
}
