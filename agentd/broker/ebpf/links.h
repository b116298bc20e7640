/* links.h - pinned links: they attach the programs, and outlive every broker.
 */
#pragma once
#include "border/protocol.h"
#include "common/err.h"
#include "table.h"

/* A pinned link: made, or given this program in place of the one it has. */
struct ebpf_link {
	char path[REDIRECT_PATH_SIZE];
	int program, target;
	enum bpf_attach_type type;
};
/* EBUSY: nothing is pinned there, and the program runs all the same: somebody holds the link.  A
 * second one would redirect the traffic twice. */
int ebpf_link(const struct ebpf_link *l, struct err *e);
/* One of all pods' links; false: the program has its place at a pod. */
bool ebpf_link_of_node(
    const struct redirect *r, const struct bpf_program *p, struct ebpf_link *out);
/* All pods' links: each gets the current program. */
int ebpf_links_attach(const struct redirect *r, struct err *e);
/* The same where the cgroup above all pods was made again. */
int ebpf_links_follow(struct redirect *r, struct err *e);
uint32_t ebpf_program_id(int program);       /* 0: none */
uint64_t ebpf_link_cgroup(const char *path); /* where it is attached; 0: nowhere */
/* Where it should be, with that program. */
bool ebpf_link_is_right(const struct ebpf_link *l, uint32_t program);

/* One pod's: getsockopt, sock_create, the gate and names at its cgroup, sk_lookup in its network
 * namespace. */
int ebpf_pins_make(const struct redirect *r, const struct uuid *pod, struct err *e);
void ebpf_pins_remove(const struct redirect *r, const struct uuid *pod);
/* Gives the pins at a cgroup to the pod that has it now. */
void ebpf_pins_move(const struct redirect *r, const struct uuid *from, const struct uuid *to);
/* Of pods that are not in the table: a broker died while it set or removed one.  And what another
 * release pinned under names that ours does not have. */
void ebpf_pins_sweep(const struct redirect *r);
/* One pin, or a directory with all below it: links are detached, whoever else holds them. */
int ebpf_pins_take_down(const char *path);

/* With sock_create, which tells the gate what it cannot see itself before Linux 6.15. */
int ebpf_link_gate(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e);
bool ebpf_link_has_gate(const struct redirect *r, const struct redirect_pod_state *p);
void ebpf_unlink_gate(const struct redirect *r, const struct redirect_pod_state *p);
int ebpf_link_getsockopt(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e);
/* Links the program that looks at its resolver's answers, while its DNS is captured; else none. */
int ebpf_link_names(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e);
/* With the pod's own copy of the program.  There already: nothing. */
int ebpf_link_lookup(
    const struct redirect *r, struct redirect_pod_state *p, int netns, struct err *e);
void ebpf_unlink_lookup(const struct redirect *r, const struct redirect_pod_state *p);
/* Repairs wrong links and returns how many; -1: one could not be repaired (EBUSY as above).  An fd
 * of -1: that place is not known. */
int ebpf_links_mend(
    const struct redirect *r, struct redirect_pod_state *p, int cgroup, int netns, struct err *e);
/* Links of an earlier broker get the current programs; links that are attached to nothing any more
 * go.  Fills in whether the pod is live.  -1: one of them could not; it keeps its program until the
 * pod is set, or mended. */
int ebpf_links_renew(const struct redirect *r, struct redirect_pod_state *p, struct err *e);
