/* redirect.c - load, attach, pin; or find the pins and put new programs into them.
 *
 * start: bpffs -> pins of an earlier broker are opened, maps first, so that the programs are loaded
 * onto the maps that are in use -> each link that is pinned gets its program anew, each that is not
 * is made and pinned.  The same for each pod's links (redirect_pod.c).  A start that fails
 * half way leaves what was attached as it was: every step replaces one whole thing by another.
 */
#include "redirect.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "links.h"
#include "place.h"
#include "probe.h"
#include "supersede.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

LOG_SCOPE("broker");

/* --- where --- */

static int find_place(struct redirect *r, struct err *e)
{
	uint64_t ids[REDIRECT_TREE_DEPTH];

	r->cgroup = open(r->at.cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->cgroup < 0)
		return err_sys(e, "cgroup %s", r->at.cgroup);
	r->level = redirect_place_above(r->cgroup, ids);
	if (r->level < 0)
		return err_set(e, EINVAL,
		    "cgroup %s is not in the host's cgroup v2 tree: mount that (not the one of a "
		    "cgroup namespace) and name it with --cgroup-root",
		    r->at.cgroup);
	redirect_place_own(r);
	return 0;
}

/* Two of each program, one above the other, would redirect twice while the one follows the other:
 * what is right already stays. */
static int stay(struct redirect *r, struct err *e)
{
	uint64_t ids[REDIRECT_TREE_DEPTH], there;
	char path[REDIRECT_PATH_SIZE], *cgroup = (char *)r->at.cgroup;
	int n = 0;

	snprintf(path, sizeof(path), "%s/link_redirect_connect4", r->pins);
	there = redirect_link_cgroup(path);
	redirect_place_above(r->cgroup, ids);
	while (n <= r->level && ids[n] != there)
		n++;
	if (!r->at.stays || !there || n > r->level)
		return 0;
	r->level -= n;
	for (; n > 0; n--)
		*strrchr(cgroup, '/') = '\0';
	mem_closep(&r->cgroup);
	r->cgroup = open(cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return r->cgroup < 0 ? err_sys(e, "cgroup %s", cgroup) : 0;
}

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

static int make_pin_directories(struct redirect *r, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];

	if (mount_bpffs(r->at.bpffs, e))
		return -1;
	snprintf(path, sizeof(path), "%s/agentd", r->at.bpffs);
	if (make_directory(path, e))
		return -1;
	snprintf(r->pins, sizeof(r->pins), "%s/agentd/v%d", r->at.bpffs, REDIRECT_LAYOUT);
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
		if (is_kept(m) && act(r, m, e))
			return -1;
	}
	return 0;
}

/* --- programs --- */

/* 5.10 counts maps against it; later kernels do not look. */
static void raise_memlock(void)
{
	const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};

	setrlimit(RLIMIT_MEMLOCK, &all);
}

static int open_programs(struct redirect *r, struct err *e)
{
	libbpf_set_print(NULL); /* its words would go past the log */
	raise_memlock();
	if (redirect_probe(e))
		return -1;
	r->bpf = redirect_bpf__open();
	if (!r->bpf)
		return err_sys(e, "eBPF object");
	r->can.interfaces = redirect_probe_interfaces();
	r->bpf->rodata->has_ingress_ifindex = r->can.interfaces;
	r->bpf->rodata->gate_knows_netns = redirect_probe_gate_netns();
	r->bpf->rodata->node_cookie = r->at.home ? r->at.home->own.cookie : 0;
	r->bpf->rodata->has_tc_listeners = redirect_probe_listeners();
	r->collects = !r->bpf->rodata->has_tc_listeners && redirect_probe_collecting();
	r->can.late = r->bpf->rodata->has_tc_listeners || r->collects;
	bpf_program__set_autoload(r->bpf->progs.redirect_collect, r->collects);
	r->bpf->rodata->pod_level_first = (uint32_t)r->level + 1;
	return 0;
}

static int load_programs(struct redirect *r, struct err *e)
{
	if (redirect_bpf__load(r->bpf))
		return err_sys(e, "the kernel refuses an eBPF program");
	return redirect_probe_storage(bpf_map__fd(r->bpf->maps.sockets), e);
}

static int load(struct redirect *r, struct err *e)
{
	if (open_programs(r, e) || each_map(r, adopt_map, e) || load_programs(r, e))
		return -1;
	return each_map(r, pin_map, e);
}

/* The worker maps it, and for that its descriptor must allow writing: so the map does not.  One
 * that an earlier broker froze cannot be frozen again (EPERM: it is not ours to write). */
static int freeze_counters(const struct redirect *r, struct err *e)
{
	if (bpf_map_freeze(bpf_map__fd(r->bpf->maps.counters)) && errno != EBUSY && errno != EPERM)
		return err_sys(e, "freeze the counters");
	return 0;
}

/* --- links --- */

static int attach(struct redirect *r, struct err *e)
{
	struct redirect_link l;
	struct bpf_program *p;

	bpf_object__for_each_program(p, r->bpf->obj)
	{
		if (redirect_link_of_node(r, p, &l) && redirect_link(&l, e))
			return -1;
	}
	return 0;
}

int redirect_follow_top(struct redirect *r, struct err *e)
{
	struct stat was, now;
	int fd;

	if (fstat(r->cgroup, &was) || stat(r->at.cgroup, &now) || was.st_ino == now.st_ino)
		return 0;
	fd = open(r->at.cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "cgroup %s", r->at.cgroup);
	close(r->cgroup);
	r->cgroup = fd;
	log_warn(NULL, "cgroup %s was made anew: the eBPF programs go there", r->at.cgroup);
	return attach(r, e);
}

int redirect_pin_all(struct redirect *r, struct err *e)
{
	return make_pin_directories(r, e) || each_map(r, pin_map, e) ? -1 : 0;
}

/* --- life --- */

static char *copy(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(mem_zalloc(size), text, size);
}

struct redirect *redirect_new(const struct redirect_place *at, struct err *e)
{
	struct redirect *r = mem_zalloc(sizeof(*r));

	if (getrandom(&r->looks, sizeof(r->looks), 0) != sizeof(r->looks))
		abort();
	r->at = *at;
	r->at.root = copy(at->root);
	r->at.cgroup = copy(at->cgroup);
	r->cgroup = -1;
	if (find_place(r, e) || make_pin_directories(r, e) || stay(r, e) || load(r, e) ||
	    freeze_counters(r, e) || attach(r, e))
		redirect_free(&r);
	else
		redirect_pods_adopt(r);
	if (r)
		redirect_supersede(r);
	if (r && !r->can.late)
		log_warn(NULL,
		    "an Envoy that listened before its pod's redirection began has to be started "
		    "again: this kernel shows no types (CONFIG_DEBUG_INFO_BTF)");
	return r;
}

int redirect_try(struct redirect_can *can, struct err *e)
{
	struct redirect *r = mem_zalloc(sizeof(*r));
	int rc;

	r->cgroup = -1;
	rc = open_programs(r, e) || load_programs(r, e) ? -1 : 0;
	*can = r->can;
	redirect_free(&r);
	return rc;
}

void redirect_free(struct redirect **r)
{
	if (!*r)
		return;
	redirect_pods_free(*r);
	redirect_bpf__destroy((*r)->bpf);
	mem_closep(&(*r)->cgroup);
	free((char *)(*r)->at.root);
	free((char *)(*r)->at.cgroup);
	free(*r);
	*r = NULL;
}

int redirect_counters(const struct redirect *r)
{
	return bpf_map__fd(r->bpf->maps.counters);
}
