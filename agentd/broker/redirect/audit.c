/* audit.c - pins of maps -> links of all pods -> each pod's links, its entry, its rows, its Envoy
 * if that is not known -> rows of nobody.  A thing that somebody took away or changed is put back,
 * and logged.
 */
#include "audit.h"
#include "broker/ebpf/kubelet_dials.h"
#include "broker/ebpf/links.h"
#include "broker/ebpf/listeners.h"
#include "broker/ebpf/rows.h"
#include "broker/ebpf/table.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

struct audit {
	struct redirect *r;
	const struct redirect_targets *at;
	struct redirect_audited out;
};

static void repaired(struct audit *a, const char *pod, unsigned n, const char *what)
{
	if (!n)
		return;
	a->out.repaired += n;
	log_warn(pod, "redirection: somebody took away or changed %s: put back", what);
}

static void failed(struct audit *a, const char *pod, const struct err *e)
{
	a->out.unsettled = true;
	if (e->code != EBUSY) /* which will be over soon, or is somebody's doing who can see it */
		log_error(pod, "redirection cannot be put back: %s", e->msg);
}

/* --- all pods' --- */

static bool is_pinned(const struct redirect *r, const struct bpf_map *m)
{
	struct bpf_map_info ours = {0}, there = {0};
	uint32_t size = sizeof(ours);
	char path[REDIRECT_PATH_SIZE];

	snprintf(path, sizeof(path), "%s/map_%s", r->pins, bpf_map__name(m));
	auto_close int fd = bpf_obj_get(path);
	if (fd >= 0 && !bpf_obj_get_info_by_fd(bpf_map__fd(m), &ours, &size) &&
	    !bpf_obj_get_info_by_fd(fd, &there, &size) && ours.id == there.id)
		return true;
	unlink(path);
	return false;
}

static void audit_maps(struct audit *a)
{
	struct err e;
	struct bpf_map *m;
	unsigned n = 0;

	bpf_object__for_each_map(m, a->r->bpf->obj)
	{
		n += !bpf_map__is_internal(m) && !is_pinned(a->r, m);
	}
	if (ebpf_load_pin(a->r, &e))
		failed(a, NULL, &e);
	else
		repaired(a, NULL, n, "pins of eBPF maps");
}

static void audit_link(struct audit *a, const struct ebpf_link *l)
{
	struct err e;

	if (ebpf_link_is_right(l, ebpf_program_id(l->program)))
		return;
	if (ebpf_link(l, &e))
		failed(a, NULL, &e);
	else
		repaired(a, NULL, 1, l->path);
}

static void audit_links(struct audit *a)
{
	struct ebpf_link l;
	struct bpf_program *p;
	struct err e;

	if (ebpf_links_follow(a->r, &e))
		failed(a, NULL, &e);
	bpf_object__for_each_program(p, a->r->bpf->obj)
	{
		if (ebpf_link_of_node(a->r, p, &l))
			audit_link(a, &l);
	}
}

static void audit_probes(struct audit *a)
{
	struct err e;
	int n = kubelet_dials_mend(a->r, &e);

	if (n < 0)
		failed(a, NULL, &e);
	else
		repaired(a, NULL, (unsigned)n, "the eBPF map of probe ports");
}

/* --- one pod's --- */

static int mend_value(const struct bpf_map *m, const void *key, const struct redirect_pod *entry)
{
	struct redirect_pod there;
	int fd = bpf_map__fd(m);

	if (!bpf_map_lookup_elem(fd, key, &there) && !memcmp(&there, entry, sizeof(there)))
		return 0;
	bpf_map_update_elem(fd, key, entry, BPF_ANY);
	return 1;
}

/* Of the cgroup that was written; -1: another one has its name, or none. */
static int open_cgroup(const struct audit *a, const struct redirect_pod_state *p)
{
	auto_close int dir = a->at->cgroup(a->at->ctx, &p->uid);
	struct stat st;

	if (dir < 0 || fstat(dir, &st) || st.st_ino != p->cgroup)
		return -1;
	return take_fd(dir);
}

static void audit_pod(struct audit *a, struct redirect_pod_state *p)
{
	auto_close int cgroup = open_cgroup(a, p);
	int netns = a->at->netns(a->at->ctx, &p->uid);
	unsigned before = ebpf_rows_changed();
	const struct redirect_bpf *bpf = a->r->bpf;
	char uid[UUID_TEXT_SIZE];
	struct err e;
	int links;

	uuid_format(&p->uid, uid);
	links = ebpf_links_mend(a->r, p, cgroup, netns, &e);
	if (links < 0)
		failed(a, uid, &e);
	else
		repaired(a, uid, (unsigned)links, "links of eBPF programs");
	repaired(a, uid,
	    (unsigned)((ebpf_pod_put_level(a->r, p) == 1) +
		       mend_value(bpf->maps.pods, &p->cgroup, &p->entry) +
		       mend_value(bpf->maps.pods_by_index, &p->entry.index, &p->entry)),
	    "its entry in an eBPF map");
	if (p->rules && ebpf_rows_put(a->r, p, &e))
		failed(a, uid, &e);
	repaired(a, uid, ebpf_rows_changed() - before, "rows of eBPF maps");
	if (netns >= 0)
		ebpf_listeners_look(a->r, p, netns);
}

/* An entry would make another cgroup's processes this pod's. */
static void sweep_entries(struct audit *a)
{
	int fd = bpf_map__fd(a->r->bpf->maps.pods);
	struct redirect_pod entry;
	uint64_t at, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;
	unsigned n = 0;

	while (more) {
		const struct redirect_pod_state *p;

		at = next;
		more = bpf_map_get_next_key(fd, &at, &next) == 0;
		if (bpf_map_lookup_elem(fd, &at, &entry))
			continue;
		p = ebpf_pod_at(a->r, entry.index);
		if (p && p->cgroup == at)
			continue;
		bpf_map_delete_elem(fd, &at);
		n++;
	}
	repaired(a, NULL, n, "the eBPF map of pods");
}

void redirect_audit_pod(
    const struct redirect *r, const struct uuid *pod, const struct redirect_targets *at)
{
	char path[REDIRECT_PATH_SIZE], uid[UUID_TEXT_SIZE];

	uuid_format(pod, uid);
	snprintf(path, sizeof(path), "%s/pods/%s", r->pins, uid);
	at->directory(at->ctx, path);
}

static void tell_directories(const struct audit *a)
{
	const struct redirect_pod_state *p;
	char path[REDIRECT_PATH_SIZE];

	a->at->directory(a->at->ctx, a->r->pins);
	snprintf(path, sizeof(path), "%s/pods", a->r->pins);
	a->at->directory(a->at->ctx, path);
	DL_FOREACH (a->r->pods, p)
		redirect_audit_pod(a->r, &p->uid, a->at);
}

struct redirect_audited redirect_audit(struct redirect *r, const struct redirect_targets *at)
{
	struct audit a = {.r = r, .at = at};
	struct redirect_pod_state *p;
	unsigned before;

	audit_maps(&a);
	audit_links(&a);
	audit_probes(&a);
	DL_FOREACH (r->pods, p)
		if (p->cgroup)
			audit_pod(&a, p);
	before = ebpf_rows_changed();
	ebpf_rows_sweep_all(r);
	repaired(&a, NULL, ebpf_rows_changed() - before, "rows of eBPF maps, by adding some");
	sweep_entries(&a);
	tell_directories(&a);
	return a.out;
}
