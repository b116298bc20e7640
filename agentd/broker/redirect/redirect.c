/* redirect.c - load, attach, pin; or find the pins and put new programs into them.
 *
 * start: how deep the cgroup is -> bpffs -> pins of an earlier broker are opened, maps first, so
 * that the programs are loaded onto the maps that are in use -> each pinned link gets the new
 * program, each missing link is made and pinned.  The same for each pod's links (pod.c).  A start
 * that fails half way leaves what was attached as it was: every step replaces one whole thing by
 * another.
 */
#include "redirect.h"
#include "broker/ebpf/kubelet_dials.h"
#include "broker/ebpf/links.h"
#include "broker/ebpf/load.h"
#include "broker/ebpf/table.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <unistd.h>

LOG_SCOPE("broker");

/* Two of each program, one above the other, would redirect twice while the one follows the other:
 * what is right already stays. */
static int stay(struct redirect *r, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];

	snprintf(path, sizeof(path), "%s/link_redirect_connect4", r->pins);
	return ebpf_place_climb(&r->top, ebpf_link_cgroup(path), e);
}

static int start(struct redirect *r, const struct redirect_place *at, struct err *e)
{
	if (kernel_can(e) || ebpf_place_open(&r->top, at->cgroup, e) ||
	    ebpf_load_directories(r, e) || (at->stays && stay(r, e)) || ebpf_load(r, e) ||
	    kubelet_dials_begin(r, e))
		return -1;
	return ebpf_links_attach(r, e);
}

struct redirect *redirect_new(const struct redirect_place *at, struct err *e)
{
	struct redirect *r = mem_zalloc(sizeof(*r));

	if (getrandom(&r->looks, sizeof(r->looks), 0) != sizeof(r->looks))
		abort();
	r->bpffs = at->bpffs;
	r->home = at->home;
	r->top.fd = -1;
	r->probes = (struct redirect_probes){.root = at->root, .trees = at->trees, .fd = -1};
	if (start(r, at, e)) {
		redirect_free(&r);
		return NULL;
	}
	redirect_pods_adopt(r);
	if (kubelet_dials_tell(r, e))
		log_error(NULL, "the kubelet is let in as before: %s", e->msg);
	if (!r->can.late)
		log_warn(NULL, "restart an Envoy that listened before its pod's redirection began: "
			       "this kernel shows no types (CONFIG_DEBUG_INFO_BTF)");
	return r;
}

int redirect_try(struct redirect_can *can, struct err *e)
{
	struct redirect *r = mem_zalloc(sizeof(*r));
	int rc;

	r->top.fd = r->probes.fd = -1;
	rc = kernel_can(e) || ebpf_load(r, e) ? -1 : 0;
	*can = r->can;
	redirect_free(&r);
	return rc;
}

int redirect_level(const char *cgroup, struct err *e)
{
	struct redirect_top top = {.fd = -1};
	int level = kernel_can(e) || ebpf_place_open(&top, cgroup, e) ? -1 : top.level;

	ebpf_place_close(&top);
	return level;
}

void redirect_free(struct redirect **r)
{
	if (!*r)
		return;
	ebpf_pods_free(*r);
	kubelet_dials_end(*r);
	redirect_bpf__destroy((*r)->bpf);
	ebpf_place_close(&(*r)->top);
	free(*r);
	*r = NULL;
}

int redirect_uninstall(const char *bpffs, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];
	struct statfs fs;

	if (statfs(bpffs, &fs))
		return err_sys(e, "%s", bpffs);
	snprintf(path, sizeof(path), "%s/agentd", bpffs);
	if (fs.f_type != BPF_FS_MAGIC || (access(path, F_OK) && errno == ENOENT))
		return 0; /* nothing was ever pinned here */
	if (ebpf_pins_take_down(path))
		return err_sys(e, "remove %s", path);
	return 0;
}

int redirect_counters(const struct redirect *r)
{
	return bpf_map__fd(r->bpf->maps.counters);
}
