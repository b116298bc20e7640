/* links.c - a link's pin is its last reference, but the kernel takes its time: so
 * it is detached, and then unpinned.
 *
 * What is there and attached where it should be gets the new program in one step; else a new link
 * is attached first, and the old one's pin goes after.  So nothing is ever without a program.
 */
#include "links.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "table.h"
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

static const char getsockopt_pin[] = "redirect_getsockopt", gate_pin[] = "redirect_gate",
		  create_pin[] = "redirect_sock_create", lookup_pin[] = "redirect_lookup",
		  names_pin[] = "redirect_names";

/* --- any link --- */

/* Cgroups are told apart by id, namespaces by inode; one that is gone shows as 0. */
static bool is_on(int link, const struct ebpf_link *l)
{
	struct bpf_link_info info = {0};
	uint32_t len = sizeof(info);
	struct stat st;

	if (link < 0 || fstat(l->target, &st) || bpf_obj_get_info_by_fd(link, &info, &len))
		return false;
	if (info.type == BPF_LINK_TYPE_NETNS)
		return info.netns.netns_ino == (uint32_t)st.st_ino;
	return info.cgroup.cgroup_id == st.st_ino;
}

static void let_go(int link, const char *path)
{
	bpf_link_detach(link);
	unlink(path);
}

uint32_t ebpf_program_id(int program)
{
	struct bpf_prog_info info = {0};
	uint32_t len = sizeof(info);

	return program >= 0 && !bpf_obj_get_info_by_fd(program, &info, &len) ? info.id : 0;
}

uint64_t ebpf_link_cgroup(const char *path)
{
	struct bpf_link_info info = {0};
	uint32_t len = sizeof(info);
	auto_close int link = bpf_obj_get(path);

	if (link < 0 || bpf_obj_get_info_by_fd(link, &info, &len))
		return 0;
	return info.type == BPF_LINK_TYPE_CGROUP ? info.cgroup.cgroup_id : 0;
}

bool ebpf_link_is_right(const struct ebpf_link *l, uint32_t program)
{
	struct bpf_link_info info = {0};
	uint32_t len = sizeof(info);
	auto_close int link = bpf_obj_get(l->path);

	return is_on(link, l) && !bpf_obj_get_info_by_fd(link, &info, &len) &&
	       info.prog_id == program;
}

/* By the whole of the kernel's struct: from 6.17 to 7.1 it writes past a shorter one
 * (ebpf-redirect.md 8). */
static bool is_running(const struct ebpf_link *l)
{
	uint32_t ids[64], id = ebpf_program_id(l->program);
	union bpf_attr a;

	memset(&a, 0, sizeof(a));
	a.query.target_fd = (uint32_t)l->target;
	a.query.attach_type = l->type;
	a.query.prog_ids = (uint64_t)(uintptr_t)ids;
	a.query.prog_cnt = sizeof(ids) / sizeof(*ids);
	if (syscall(SYS_bpf, BPF_PROG_QUERY, &a, sizeof(a)))
		return false;
	for (uint32_t i = 0; i < a.query.prog_cnt; i++)
		if (ids[i] == id)
			return true;
	return false;
}

int ebpf_link(const struct ebpf_link *l, struct err *e)
{
	auto_close int old = bpf_obj_get(l->path);

	if (old < 0 && errno != ENOENT)
		return err_sys(e, "%s", l->path);
	if (old < 0 && is_running(l))
		return err_set(e, EBUSY, "%s is gone, but somebody holds the link", l->path);
	if (is_on(old, l)) {
		if (bpf_link_update(old, l->program, NULL))
			return err_sys(e, "replace the program of %s", l->path);
		return 0;
	}
	auto_close int fresh = bpf_link_create(l->program, l->target, l->type, NULL);
	if (fresh < 0)
		return err_sys(e, "attach %s", l->path);
	if (old >= 0)
		let_go(old, l->path);
	if (bpf_obj_pin(fresh, l->path))
		return err_sys(e, "pin %s", l->path);
	return 0;
}

static bool is_probes(const struct redirect *r, const struct bpf_program *p)
{
	return p == r->bpf->progs.redirect_probe_connect4 ||
	       p == r->bpf->progs.redirect_probe_connect6 ||
	       p == r->bpf->progs.redirect_probe_sockops;
}

bool ebpf_link_of_node(const struct redirect *r, const struct bpf_program *p, struct ebpf_link *out)
{
	const bool probes = is_probes(r, p);

	*out = (struct ebpf_link){.program = bpf_program__fd(p),
	    .target = probes ? r->probes.fd : r->top.fd,
	    .type = bpf_program__expected_attach_type(p)};
	snprintf(out->path, sizeof(out->path), "%s/link_%s", r->pins, bpf_program__name(p));
	if (probes)
		return r->probes.fd >= 0;
	return p != r->bpf->progs.redirect_getsockopt && p != r->bpf->progs.redirect_lookup &&
	       p != r->bpf->progs.redirect_gate && p != r->bpf->progs.redirect_sock_create &&
	       p != r->bpf->progs.redirect_names && p != r->bpf->progs.redirect_seek &&
	       p != r->bpf->progs.redirect_collect;
}

int ebpf_links_attach(const struct redirect *r, struct err *e)
{
	struct ebpf_link l;
	struct bpf_program *p;

	bpf_object__for_each_program(p, r->bpf->obj)
	{
		if (ebpf_link_of_node(r, p, &l) && ebpf_link(&l, e))
			return -1;
	}
	return 0;
}

int ebpf_links_follow(struct redirect *r, struct err *e)
{
	int rc = ebpf_place_follow(&r->top, e);

	return rc > 0 ? ebpf_links_attach(r, e) : rc;
}

/* --- one pod's pins --- */

/* <pins>/pods/<uid>/<name>, or without a name the directory. */
static void pin_path(const struct redirect *r, const struct uuid *pod, const char *name,
    char out[REDIRECT_PATH_SIZE])
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(pod, uid);
	snprintf(out, REDIRECT_PATH_SIZE, "%s/pods/%s%s%s", r->pins, uid, *name ? "/" : "", name);
}

int ebpf_pins_make(const struct redirect *r, const struct uuid *pod, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];

	pin_path(r, pod, "", path);
	if (mkdir(path, 0700) && errno != EEXIST)
		return err_sys(e, "mkdir %s", path);
	return 0;
}

static void unlink_pin(const struct redirect *r, const struct uuid *pod, const char *name)
{
	char path[REDIRECT_PATH_SIZE];

	pin_path(r, pod, name, path);
	auto_close int link = bpf_obj_get(path);
	let_go(link, path);
}

/* The gate last: until then nothing comes in that was kept out.  And what a newer broker may have
 * pinned there. */
void ebpf_pins_remove(const struct redirect *r, const struct uuid *pod)
{
	char path[REDIRECT_PATH_SIZE];

	unlink_pin(r, pod, lookup_pin);
	unlink_pin(r, pod, getsockopt_pin);
	pin_path(r, pod, "", path);
	ebpf_pins_take_down(path);
}

/* A rename within bpffs: the programs run all the time. */
void ebpf_pins_move(const struct redirect *r, const struct uuid *from, const struct uuid *to)
{
	static const char *const names[] = {gate_pin, create_pin, getsockopt_pin, names_pin};
	char old[REDIRECT_PATH_SIZE], now[REDIRECT_PATH_SIZE];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		pin_path(r, from, names[i], old);
		pin_path(r, to, names[i], now);
		rename(old, now);
	}
}

static int take_down(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)at;
	if (type == FTW_DP)
		return rmdir(path);
	auto_close int fd = bpf_obj_get(path);
	if (fd >= 0)
		bpf_link_detach(fd); /* of a map: refused */
	return unlink(path);
}

int ebpf_pins_take_down(const char *path)
{
	return nftw(path, take_down, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static bool is_ours(const struct redirect *r, const char *name)
{
	if (!strncmp(name, "map_", 4))
		return bpf_object__find_map_by_name(r->bpf->obj, name + 4);
	return bpf_object__find_program_by_name(
	    r->bpf->obj, strncmp(name, "link_", 5) ? name : name + 5);
}

/* A connection that such programs hold goes on as it began: it refers to them, and they to their
 * maps. */
static void sweep_others(const struct redirect *r, const char *dir)
{
	char path[2 * REDIRECT_PATH_SIZE];
	struct dirent *entry;

	DIR *d = opendir(dir);
	while (d && (entry = readdir(d))) {
		if (entry->d_type == DT_DIR || is_ours(r, entry->d_name))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (!ebpf_pins_take_down(path))
			log_info(NULL, "eBPF of another release is taken away: %s", path);
	}
	if (d)
		closedir(d);
}

void ebpf_pins_sweep(const struct redirect *r)
{
	char path[REDIRECT_PATH_SIZE];
	struct dirent *entry;
	struct uuid uid;

	snprintf(path, sizeof(path), "%s/pods", r->pins);
	DIR *d = opendir(path);
	while (d && (entry = readdir(d))) {
		if (!uuid_parse(&uid, entry->d_name))
			continue;
		pin_path(r, &uid, "", path);
		if (ebpf_pod_find(r, &uid))
			sweep_others(r, path);
		else
			ebpf_pins_remove(r, &uid);
	}
	if (d)
		closedir(d);
	sweep_others(r, r->pins);
}

/* --- at its cgroup --- */

static bool needs_create(const struct redirect *r)
{
	return !r->bpf->rodata->gate_knows_netns;
}

static int link_at_cgroup(const struct redirect *r, const struct redirect_pod_state *p,
    const struct bpf_program *program, int cgroup, struct err *e)
{
	struct ebpf_link l = {.program = bpf_program__fd(program),
	    .target = cgroup,
	    .type = bpf_program__expected_attach_type(program)};

	pin_path(r, &p->uid, bpf_program__name(program), l.path);
	return ebpf_link(&l, e);
}

/* What the gate has to know of a socket is noted before there is one.  That is for who has no
 * business in the pod: no reason to leave the pod open. */
int ebpf_link_gate(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e)
{
	char uid[UUID_TEXT_SIZE];

	if (needs_create(r) &&
	    link_at_cgroup(r, p, r->bpf->progs.redirect_sock_create, cgroup, e)) {
		uuid_format(&p->uid, uid);
		log_warn(uid, "its gate is shut for processes with hostNetwork, too: %s", e->msg);
	}
	return link_at_cgroup(r, p, r->bpf->progs.redirect_gate, cgroup, e);
}

bool ebpf_link_has_gate(const struct redirect *r, const struct redirect_pod_state *p)
{
	char path[REDIRECT_PATH_SIZE];

	pin_path(r, &p->uid, gate_pin, path);
	return ebpf_link_cgroup(path) == p->cgroup;
}

void ebpf_unlink_gate(const struct redirect *r, const struct redirect_pod_state *p)
{
	unlink_pin(r, &p->uid, gate_pin);
	unlink_pin(r, &p->uid, create_pin);
}

int ebpf_link_getsockopt(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e)
{
	return link_at_cgroup(r, p, r->bpf->progs.redirect_getsockopt, cgroup, e);
}

static bool has_names(const struct redirect_pod_state *p)
{
	return p->rules && (p->rules->flags & REDIRECT_DNS);
}

int ebpf_link_names(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e)
{
	if (has_names(p))
		return link_at_cgroup(r, p, r->bpf->progs.redirect_names, cgroup, e);
	unlink_pin(r, &p->uid, names_pin);
	return 0;
}

/* --- sk_lookup, one for each pod --- */

static bool is_place(const struct bpf_insn *i)
{
	return i[0].code == (BPF_LD | BPF_IMM | BPF_DW) &&
	       (uint32_t)i[0].imm == (uint32_t)REDIRECT_INDEX_PLACE &&
	       (uint32_t)i[1].imm == REDIRECT_INDEX_PLACE >> 32;
}

/* The program as loaded, with the pod's index where the source has a placeholder. */
static int load_lookup(const struct redirect *r, uint32_t index, struct err *e)
{
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = BPF_SK_LOOKUP);
	const struct bpf_program *model = r->bpf->progs.redirect_lookup;
	size_t n = bpf_program__insn_cnt(model);
	auto_free struct bpf_insn *code = mem_zalloc(n * sizeof(*code));
	int fd;

	memcpy(code, bpf_program__insns(model), n * sizeof(*code));
	for (size_t i = 0; i + 1 < n; i++)
		if (is_place(&code[i])) {
			code[i].imm = (int32_t)index;
			code[i + 1].imm = 0;
		}
	fd = bpf_prog_load(BPF_PROG_TYPE_SK_LOOKUP, "redirect_lookup", "Dual BSD/GPL", code, n, &o);
	return fd < 0 ? err_sys(e, "the kernel refuses a pod's sk_lookup") : fd;
}

static struct ebpf_link lookup_of(
    const struct redirect *r, const struct redirect_pod_state *p, int netns)
{
	struct ebpf_link l = {.program = -1, .target = netns, .type = BPF_SK_LOOKUP};

	pin_path(r, &p->uid, lookup_pin, l.path);
	return l;
}

int ebpf_link_lookup(
    const struct redirect *r, struct redirect_pod_state *p, int netns, struct err *e)
{
	struct ebpf_link l = lookup_of(r, p, netns);

	if (ebpf_link_is_right(&l, p->lookup))
		return 0;
	auto_close int program = load_lookup(r, p->entry.index, e);
	l.program = program;
	if (program < 0 || ebpf_link(&l, e))
		return -1;
	p->lookup = ebpf_program_id(program);
	return 0;
}

void ebpf_unlink_lookup(const struct redirect *r, const struct redirect_pod_state *p)
{
	unlink_pin(r, &p->uid, lookup_pin);
}

/* -1: it could not be given the program. */
enum renewed { ABSENT, RENEWED, GONE /* with its cgroup or namespace */ };

static int renew(const struct redirect *r, const struct redirect_pod_state *p, const char *name,
    int program, struct err *e)
{
	char path[REDIRECT_PATH_SIZE];

	pin_path(r, &p->uid, name, path);
	auto_close int link = bpf_obj_get(path);
	if (link < 0)
		return ABSENT;
	if (bpf_link_update(link, program, NULL) == 0)
		return RENEWED;
	if (errno != ENOLINK)
		return err_sys(e, "replace the program of %s", path);
	unlink(path);
	return GONE;
}

int ebpf_links_renew(const struct redirect *r, struct redirect_pod_state *p, struct err *e)
{
	const struct redirect_bpf *bpf = r->bpf;
	auto_close int lookup = load_lookup(r, p->entry.index, e);
	struct err ignored;
	bool failed = lookup < 0;
	int live;

	failed |=
	    renew(r, p, getsockopt_pin, bpf_program__fd(bpf->progs.redirect_getsockopt), e) < 0;
	failed |= renew(r, p, create_pin, bpf_program__fd(bpf->progs.redirect_sock_create), e) < 0;
	failed |= renew(r, p, gate_pin, bpf_program__fd(bpf->progs.redirect_gate), e) < 0;
	failed |= renew(r, p, names_pin, bpf_program__fd(bpf->progs.redirect_names), e) < 0;
	live = renew(r, p, lookup_pin, lookup, lookup < 0 ? &ignored : e);
	p->steered = live == RENEWED || live < 0 ? REDIRECT_STEERED_LIVE
		     : live == GONE              ? REDIRECT_STEERED_GONE
						 : REDIRECT_STEERED_NONE;
	p->lookup = ebpf_program_id(lookup);
	return failed || live < 0 ? -1 : 0;
}

/* --- is it all there? --- */

static int mend_at_cgroup(const struct redirect *r, const struct redirect_pod_state *p,
    const struct bpf_program *program, int cgroup, struct err *e)
{
	struct ebpf_link l = {.program = bpf_program__fd(program),
	    .target = cgroup,
	    .type = bpf_program__expected_attach_type(program)};

	pin_path(r, &p->uid, bpf_program__name(program), l.path);
	if (ebpf_link_is_right(&l, ebpf_program_id(l.program)))
		return 0;
	return ebpf_link(&l, e) ? -1 : 1;
}

static int mend_lookup(
    const struct redirect *r, struct redirect_pod_state *p, int netns, struct err *e)
{
	const struct ebpf_link l = lookup_of(r, p, netns);

	if (ebpf_link_is_right(&l, p->lookup))
		return 0;
	return ebpf_link_lookup(r, p, netns, e) ? -1 : 1;
}

int ebpf_links_mend(
    const struct redirect *r, struct redirect_pod_state *p, int cgroup, int netns, struct err *e)
{
	bool gate = p->rules && p->rules->strict;
	int n[5] = {0}, sum = 0;

	if (cgroup >= 0 && ebpf_pins_make(r, &p->uid, e))
		return -1;
	if (cgroup >= 0 && gate) {
		if (needs_create(r))
			n[0] = mend_at_cgroup(r, p, r->bpf->progs.redirect_sock_create, cgroup, e);
		n[1] = mend_at_cgroup(r, p, r->bpf->progs.redirect_gate, cgroup, e);
	}
	if (cgroup >= 0)
		n[2] = mend_at_cgroup(r, p, r->bpf->progs.redirect_getsockopt, cgroup, e);
	if (cgroup >= 0 && has_names(p))
		n[4] = mend_at_cgroup(r, p, r->bpf->progs.redirect_names, cgroup, e);
	if (netns >= 0 && p->steered == REDIRECT_STEERED_LIVE)
		n[3] = mend_lookup(r, p, netns, e);
	for (int i = 0; i < 5; i++)
		sum = n[i] < 0 || sum < 0 ? -1 : sum + n[i];
	return sum;
}
