/* table.h - the pods: what is known of each, and its entry in the maps by which the programs see
 * it.
 */
#pragma once
#include "border/protocol.h"
#include "border/rules.h"
#include "common/err.h"
#include "load.h"

/* Of a pod's network namespace, as much as there is. */
struct redirect_seen {
	uint32_t ninterfaces, nroutes;
	uint32_t interfaces[REDIRECT_INTERFACES_MAX];
	struct redirect_cidr routes[];
};

/* Keys of rows that are in the maps, or were to be: rows.c. */
struct redirect_written_row {
	bool is_cidr;
	union {
		struct redirect_port_key port;
		struct redirect_cidr_key cidr;
	};
};
struct redirect_written {
	struct redirect_written_row *rows;
	uint32_t n, room;
};

/* Do arrivals go to its Envoy?
 *
 *   NONE, GONE -> LIVE: the program is attached in its network namespace
 *   LIVE -> NONE: another cgroup, or its inbound traffic is closed
 *   any, of an earlier broker's, at the start: as its attachment is found
 *
 * A namespace that is gone stays so until the pod is seen in another one. */
enum redirect_steered {
	REDIRECT_STEERED_NONE, /* not, or not any more */
	REDIRECT_STEERED_LIVE,
	REDIRECT_STEERED_GONE, /* the namespace in which an earlier broker attached is no more */
};

/* Does its Envoy listen?
 *
 *   UNHEARD -> HEARD <-> DEAF
 *   any -> UNHEARD: another cgroup, or its inbound traffic is closed
 *
 * Not UNHEARD -> DEAF: one that never listened is awaited, and no reason to say that it went. */
enum redirect_envoy {
	REDIRECT_ENVOY_UNHEARD,
	REDIRECT_ENVOY_HEARD, /* it listened */
	REDIRECT_ENVOY_DEAF,  /* it did, and does not any more: clients are refused */
};

struct redirect_pod_state {
	struct redirect_pod entry; /* as in the maps */
	struct uuid uid;
	uint64_t cgroup;                /* its id; 0: not in force */
	uint64_t above[REDIRECT_DEPTH]; /* and those of its parents below the attach point; zero:
					   set by an earlier broker */
	struct redirect_rules *rules;   /* NULL: of an earlier broker, not told again yet; ends with
					   the last of its cidrs */
	struct redirect_seen *seen; /* NULL: not by this broker: what an earlier one saw stays */
	struct redirect_written written;
	uint32_t lookup; /* id of its own sk_lookup program */
	bool adopted;
	enum redirect_steered steered;
	enum redirect_envoy envoy;
	bool answers_udp, answers_tcp; /* a socket of its DNS proxy is marked */
	bool leaves;      /* another pod may have its cgroup: nothing names this one any more */
	bool late;        /* its Envoy may have listened before the rules, and is not known */
	uint32_t pause_s; /* between two looks for it */
	int64_t look_ms;  /* when the next one is due; 0: now */
	int64_t since_s;  /* nobody saw a dial of it: unseen.c; 0: not looked yet */
	struct redirect_pod_state *prev, *next;
};

struct redirect_pod_state *ebpf_pod_find(const struct redirect *r, const struct uuid *uid);
struct redirect_pod_state *ebpf_pod_at(const struct redirect *r, uint32_t index);
uint32_t ebpf_pod_row(uint32_t index); /* 1 and on */
/* Adds an earlier broker's pod: it has its index already. */
struct redirect_pod_state *ebpf_pod_add(struct redirect *r, const struct uuid *uid, uint32_t index);
/* NULL: there are too many. */
struct redirect_pod_state *ebpf_pod_find_or_add(
    struct redirect *r, const struct uuid *uid, struct err *e);
void ebpf_pod_forget(struct redirect *r, struct redirect_pod_state *p);
void ebpf_pods_free(struct redirect *r);

uint32_t ebpf_index(const struct redirect *r, const struct uuid *pod); /* 0: unknown */
int ebpf_pod_uid(const struct redirect *r, uint32_t index, struct uuid *out);

/* No two pods have the same cgroup, and no pod's lies in another's: by p->above.  One that leaves
 * is in nobody's way. */
int ebpf_pod_check_neighbours(
    const struct redirect *r, const struct redirect_pod_state *p, struct err *e);

/* Its cgroup is the first of `above`, or one that holds it. */
bool ebpf_pod_holds(const struct redirect_pod_state *p, const uint64_t above[REDIRECT_DEPTH]);

/* The pod that leaves and has the cgroup that this one is to have; NULL: none. */
struct redirect_pod_state *ebpf_pod_before(
    const struct redirect *r, const struct redirect_pod_state *p);

/* In the maps: the programs see it from now on, as it is. */
int ebpf_pod_put(struct redirect *r, const struct redirect_pod_state *p, struct err *e);
void ebpf_pod_take_out(struct redirect *r, const struct redirect_pod_state *p); /* or nothing */
/* The programs look for pods at its level from now on.  1: they did not; -1: errno. */
int ebpf_pod_put_level(struct redirect *r, const struct redirect_pod_state *p);
void ebpf_pod_trace(struct redirect *r, const struct uuid *pod, bool on);
