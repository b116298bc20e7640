/* accelerate.c - the kernel is tried -> maps of an earlier broker take the places of new ones ->
 * the programs are loaded -> the maps are pinned -> the map of givers gets its program -> for each
 * pod that asks: two links at its cgroup.
 *
 * The maps hold connections.  They are never emptied by us: a socket that is taken out loses what
 * waits for it.  So a pod that does not ask any more loses its links only.
 */
#include "accelerate.h"
#include "accelerate.skel.h"
#include "common/mem.h"
#include "links.h"
#include "sockmap.h"
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct redirect_accelerate {
	struct accelerate_bpf *bpf;
};

/* --- maps --- */

static void path_of(const struct redirect *r, const struct bpf_map *m, char out[REDIRECT_PATH_SIZE])
{
	snprintf(out, REDIRECT_PATH_SIZE, "%s/map_%s", r->pins, bpf_map__name(m));
}

static int adopt(
    const struct redirect *r, const struct redirect_accelerate *a, struct bpf_map *m, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];

	if (m == a->bpf->maps.sockets && r->bpf)
		return bpf_map__reuse_fd(m, bpf_map__fd(r->bpf->maps.sockets))
			   ? err_sys(e, "eBPF map of sockets")
			   : 0;
	path_of(r, m, path);
	auto_close int fd = *r->pins ? bpf_obj_get(path) : -1;
	if (fd < 0 && (!*r->pins || errno == ENOENT))
		return 0;
	if (fd < 0 || bpf_map__reuse_fd(m, fd))
		return err_sys(e, "map %s", path);
	return 0;
}

static bool is_pinned(const struct redirect *r, const struct bpf_map *m)
{
	struct bpf_map_info ours = {0}, there = {0};
	uint32_t size = sizeof(ours);
	char path[REDIRECT_PATH_SIZE];

	path_of(r, m, path);
	auto_close int fd = bpf_obj_get(path);
	return fd >= 0 && !bpf_obj_get_info_by_fd(bpf_map__fd(m), &ours, &size) &&
	       !bpf_obj_get_info_by_fd(fd, &there, &size) && ours.id == there.id;
}

/* How many were not. */
static int pin_maps(const struct redirect *r, const struct redirect_accelerate *a, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];
	struct bpf_map *m;
	int n = 0;

	bpf_object__for_each_map(m, a->bpf->obj)
	{
		if (bpf_map__is_internal(m) || m == a->bpf->maps.sockets || is_pinned(r, m))
			continue;
		path_of(r, m, path);
		unlink(path);
		if (bpf_obj_pin(bpf_map__fd(m), path))
			return err_sys(e, "pin %s", path);
		n++;
	}
	return n;
}

/* Of connections that ended while no program of ours hung there. */
static void sweep_places(const struct redirect_accelerate *a)
{
	int places = bpf_map__fd(a->bpf->maps.taker_places),
	    takers = bpf_map__fd(a->bpf->maps.takers);
	struct accelerate_lane_key at, next;
	bool more = bpf_map_get_next_key(places, NULL, &next) == 0;
	uint64_t cookie;

	while (more) {
		at = next;
		more = bpf_map_get_next_key(places, &at, &next) == 0;
		if (bpf_map_lookup_elem(takers, &at, &cookie))
			bpf_map_delete_elem(places, &at);
	}
}

/* --- life --- */

static int load(const struct redirect *r, struct redirect_accelerate *a, struct err *e)
{
	struct accelerate_fields fields = {0};
	struct bpf_map *m;

	if (redirect_sockmap_fields(&fields, e))
		return -1;
	a->bpf = accelerate_bpf__open();
	if (!a->bpf)
		return err_sys(e, "eBPF object");
	memcpy((void *)&a->bpf->rodata->fields, &fields, sizeof(fields));
	bpf_object__for_each_map(m, a->bpf->obj)
	{
		if (!bpf_map__is_internal(m) && adopt(r, a, m, e))
			return -1;
	}
	if (accelerate_bpf__load(a->bpf))
		return err_sys(e, "the kernel refuses an eBPF program for acceleration");
	return redirect_load_freeze(a->bpf->maps.lane_rows, e);
}

/* The map's program is that of connections to come; those that are there keep theirs. */
static int begin(const struct redirect *r, struct redirect_accelerate *a, bool blind, struct err *e)
{
	if (redirect_sockmap_try(blind, e) || load(r, a, e) || (*r->pins && pin_maps(r, a, e) < 0))
		return -1;
	if (bpf_prog_attach(bpf_program__fd(a->bpf->progs.redirect_give),
		bpf_map__fd(a->bpf->maps.givers), BPF_SK_MSG_VERDICT, 0))
		return err_sys(e, "the program between two sockets");
	sweep_places(a);
	return 0;
}

struct redirect_accelerate *redirect_accelerate_new(struct redirect *r, bool blind, struct err *e)
{
	struct redirect_accelerate *a = mem_zalloc(sizeof(*a));

	if (begin(r, a, blind, e))
		redirect_accelerate_free(&a);
	return a;
}

void redirect_accelerate_free(struct redirect_accelerate **ap)
{
	struct redirect_accelerate *a = take(*ap);

	if (a)
		accelerate_bpf__destroy(a->bpf);
	free(a);
}

int redirect_accelerate_try(bool blind, struct err *e)
{
	struct redirect none = {.pins = ""};
	struct redirect_accelerate *a = redirect_accelerate_new(&none, blind, e);
	int rc = a ? 0 : -1;

	redirect_accelerate_free(&a);
	return rc;
}

int redirect_accelerate_homes(const struct redirect *r)
{
	return r->accelerate ? bpf_map__fd(r->accelerate->bpf->maps.homes) : -1;
}

int redirect_accelerate_lanes(const struct redirect *r, struct err *e)
{
	if (!r->accelerate)
		return err_set(e, EOPNOTSUPP, "no pod's traffic is accelerated");
	return bpf_map__fd(r->accelerate->bpf->maps.lane_rows);
}

/* --- one pod --- */

/* Where refusals are first: no connection begins before them. */
static const struct bpf_program *program_of(const struct redirect_accelerate *a, int i)
{
	return i ? a->bpf->progs.redirect_meet : a->bpf->progs.redirect_setsockopt;
}
static const char *const pins[] = {"redirect_setsockopt", "redirect_meet"};
enum { NPINS = sizeof(pins) / sizeof(pins[0]) };

static bool is_wanted(const struct redirect *r, const struct redirect_pod_state *p)
{
	return r->accelerate && p->entry.flags & REDIRECT_ACCELERATE;
}

/* In the other order. */
static void unlink_pod(const struct redirect *r, const struct redirect_pod_state *p)
{
	for (int i = NPINS; i-- > 0;)
		redirect_unlink_pin(r, &p->uid, pins[i]);
}

int redirect_accelerate_pod(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e)
{
	if (!is_wanted(r, p)) {
		unlink_pod(r, p);
		return 0;
	}
	for (int i = 0; i < NPINS; i++)
		if (redirect_link_at_cgroup(r, p, program_of(r->accelerate, i), cgroup, e))
			return -1;
	return 0;
}

int redirect_accelerate_renew(
    const struct redirect *r, const struct redirect_pod_state *p, struct err *e)
{
	int rc = 0;

	if (!is_wanted(r, p))
		unlink_pod(r, p);
	for (int i = 0; is_wanted(r, p) && i < NPINS; i++)
		rc |= redirect_link_renew(
		    r, p, pins[i], bpf_program__fd(program_of(r->accelerate, i)), e);
	return rc;
}

int redirect_accelerate_mend(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e)
{
	int sum = 0;

	for (int i = 0; is_wanted(r, p) && i < NPINS && sum >= 0; i++) {
		int n = redirect_mend_at_cgroup(r, p, program_of(r->accelerate, i), cgroup, e);
		sum = n < 0 ? n : sum + n;
	}
	return sum;
}

int redirect_accelerate_mend_maps(const struct redirect *r, struct err *e)
{
	if (!r->accelerate)
		return 0;
	sweep_places(r->accelerate);
	return pin_maps(r, r->accelerate, e);
}
