/* load.c - the programs are opened, told what this kernel can -> maps that an earlier broker pinned
 * take the places of new ones -> loaded -> what is new among the maps is pinned.
 */
#include "load.h"
#include "common/err.h"
#include "common/mem.h"
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* --- pins --- */

static int make_directory(const char *path, struct err *e)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		return err_sys(e, "mkdir %s", path);
	return 0;
}

static int mount_bpffs(const char *path, struct err *e)
{
	struct statfs fs;

	if (statfs(path, &fs))
		return err_sys(e, "%s", path);
	if (fs.f_type == BPF_FS_MAGIC)
		return 0;
	if (mount("bpf", path, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RELATIME, "mode=0700"))
		return err_sys(e, "mount bpffs on %s", path);
	return 0;
}

int ebpf_load_directories(struct redirect *r, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];

	if (mount_bpffs(r->bpffs, e))
		return -1;
	snprintf(path, sizeof(path), "%s/agentd", r->bpffs);
	if (make_directory(path, e))
		return -1;
	snprintf(r->pins, sizeof(r->pins), "%s/agentd/v%d", r->bpffs, REDIRECT_LAYOUT);
	if (make_directory(r->pins, e))
		return -1;
	snprintf(path, sizeof(path), "%s/pods", r->pins);
	return make_directory(path, e);
}

/* --- maps --- */

static bool is_kept(const struct bpf_map *m)
{
	return !bpf_map__is_internal(m); /* .rodata is each program's own */
}

/* One that an earlier broker pinned is used again, with all that is in it. */
static int adopt_map(struct redirect *r, struct bpf_map *m, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];

	snprintf(path, sizeof(path), "%s/map_%s", r->pins, bpf_map__name(m));
	auto_close int fd = bpf_obj_get(path);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || bpf_map__reuse_fd(m, fd))
		return err_sys(e, "map %s", path);
	return 0;
}

static int pin_map(struct redirect *r, struct bpf_map *m, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];

	snprintf(path, sizeof(path), "%s/map_%s", r->pins, bpf_map__name(m));
	if (bpf_obj_pin(bpf_map__fd(m), path) && errno != EEXIST)
		return err_sys(e, "pin %s", path);
	return 0;
}

static int each_map(struct redirect *r,
    int (*act)(struct redirect *r, struct bpf_map *m, struct err *e), struct err *e)
{
	struct bpf_map *m;

	bpf_object__for_each_map(m, r->bpf->obj)
	{
		if (*r->pins && is_kept(m) && act(r, m, e))
			return -1;
	}
	return 0;
}

/* --- programs --- */

static int open_programs(struct redirect *r, struct err *e)
{
	r->bpf = redirect_bpf__open();
	if (!r->bpf)
		return err_sys(e, "eBPF object");
	r->can.interfaces = kernel_can_interfaces();
	r->bpf->rodata->has_ingress_ifindex = r->can.interfaces;
	r->bpf->rodata->gate_knows_netns = kernel_can_gate_netns();
	r->bpf->rodata->node_cookie = r->home ? r->home->own.cookie : 0;
	r->bpf->rodata->has_tc_listeners = kernel_can_listeners();
	r->collects = !r->bpf->rodata->has_tc_listeners && kernel_can_collecting();
	r->can.late = r->bpf->rodata->has_tc_listeners || r->collects;
	bpf_program__set_autoload(r->bpf->progs.redirect_collect, r->collects);
	r->bpf->rodata->pod_level_first = (uint32_t)r->top.level + 1;
	return 0;
}

static int load_programs(struct redirect *r, struct err *e)
{
	if (redirect_bpf__load(r->bpf))
		return err_sys(e, "the kernel refuses an eBPF program");
	return kernel_can_storage(bpf_map__fd(r->bpf->maps.sockets), e);
}

/* The worker maps it, and for that its descriptor must allow writing: so the map does not.  An
 * earlier broker froze it: EBUSY, or EPERM, since it is not ours to write. */
static int freeze_map(const struct bpf_map *m, struct err *e)
{
	if (bpf_map_freeze(bpf_map__fd(m)) && errno != EBUSY && errno != EPERM)
		return err_sys(e, "freeze the map %s", bpf_map__name(m));
	return 0;
}

int ebpf_load(struct redirect *r, struct err *e)
{
	if (open_programs(r, e) || each_map(r, adopt_map, e) || load_programs(r, e) ||
	    each_map(r, pin_map, e))
		return -1;
	return freeze_map(r->bpf->maps.counters, e);
}

int ebpf_load_pin(struct redirect *r, struct err *e)
{
	return ebpf_load_directories(r, e) || each_map(r, pin_map, e) ? -1 : 0;
}
