/* probes.c - trees: their ids and levels -> ports: of all rows that are written -> told, if that is
 * anything new -> attached, with the first port.
 *
 * The trees are read before a pod's ports are in force, and by each audit: so a tree that was made
 * again is known before there is a pod in it that somebody could be let in to.
 */
#include "kubelet_dials.h"
#include "common/log.h"
#include "common/mem.h"
#include "links.h"
#include "place.h"
#include "table.h"
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

enum { WORD_BITS = 64 };

/* --- attached --- */

static int open_root(struct redirect *r, struct err *e)
{
	const char *path = r->probes.root ? r->probes.root : r->top.path;

	if (r->probes.fd < 0)
		r->probes.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return r->probes.fd < 0 ? err_sys(e, "cgroup %s", path) : 0;
}

int kubelet_dials_begin(struct redirect *r, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];
	const uint32_t zero = 0;

	if (bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.probing), &zero, &r->probes.said))
		return err_sys(e, "eBPF map probing");
	snprintf(path, sizeof(path), "%s/link_redirect_probe_sockops", r->pins);
	return access(path, F_OK) ? 0 : open_root(r, e);
}

void kubelet_dials_end(struct redirect *r)
{
	mem_closep(&r->probes.fd);
}

static int attach(struct redirect *r, struct err *e)
{
	if (r->probes.fd >= 0)
		return 0;
	if (open_root(r, e))
		return -1;
	if (ebpf_links_attach(r, e)) {
		mem_closep(&r->probes.fd);
		return -1;
	}
	log_info(NULL, "the kubelet is let in to probe ports: eBPF programs are attached at %s",
	    r->probes.root ? r->probes.root : r->top.path);
	return 0;
}

/* --- told --- */

static void read_tree(const struct redirect *r, const char *path, struct redirect_tree *out)
{
	auto_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int level = fd < 0 ? -1 : ebpf_place_level(&r->top, fd);
	struct stat st;

	if (level >= 0 && !fstat(fd, &st))
		*out = (struct redirect_tree){.id = st.st_ino, .level = (uint32_t)level};
}

/* Without holes: the first one is there, or none is. */
static void read_trees(const struct redirect *r, struct redirect_tree out[REDIRECT_TREES_MAX])
{
	int n = 0;

	for (const char *at = r->probes.trees; at && *at && n < REDIRECT_TREES_MAX;
	     at += strlen(at) + 1) {
		read_tree(r, at, &out[n]);
		n += out[n].id != 0;
	}
}

/* True: there is one. */
static bool read_ports(const struct redirect *r, __u64 bits[])
{
	const struct redirect_pod_state *p = NULL;
	bool any = false;

	DL_FOREACH (r->pods, p) {
		for (uint32_t i = 0; i < p->written.n; i++) {
			const struct redirect_written_row *row = &p->written.rows[i];
			if (row->is_cidr || row->port.kind != REDIRECT_PORT_PROBE)
				continue;
			bits[(uint16_t)row->port.number / WORD_BITS] |=
			    1ull << row->port.number % WORD_BITS;
			any = true;
		}
	}
	return any;
}

static void warn_lost(struct redirect_probes *p, bool lost)
{
	if (lost && !p->lost)
		log_warn(NULL,
		    "nobody is let in to probe ports: there is no kubepods tree, so the kubelet "
		    "cannot be told from a pod: name it with --kubepods");
	p->lost = lost;
}

int kubelet_dials_tell(struct redirect *r, struct err *e)
{
	auto_free struct redirect_probing *now = mem_zalloc(sizeof(*now));
	const uint32_t zero = 0;
	bool any = read_ports(r, now->ports);

	read_trees(r, now->trees);
	warn_lost(&r->probes, any && !now->trees[0].id);
	if (memcmp(now, &r->probes.said, sizeof(*now)) != 0) {
		if (bpf_map_update_elem(bpf_map__fd(r->bpf->maps.probing), &zero, now, BPF_ANY))
			return err_sys(e, "eBPF map probing");
		r->probes.said = *now;
	}
	return any ? attach(r, e) : 0;
}

int kubelet_dials_mend(struct redirect *r, struct err *e)
{
	auto_free struct redirect_probing *there = mem_zalloc(sizeof(*there));
	const uint32_t zero = 0;
	int fd = bpf_map__fd(r->bpf->maps.probing), changed;

	changed = !bpf_map_lookup_elem(fd, &zero, there) &&
		  memcmp(there, &r->probes.said, sizeof(*there)) != 0;
	if (changed)
		bpf_map_update_elem(fd, &zero, &r->probes.said, BPF_ANY);
	return kubelet_dials_tell(r, e) ? -1 : changed;
}
