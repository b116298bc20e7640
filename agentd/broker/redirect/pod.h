/* redirect_pod.h - inside of redirect*.c: the programs, and the table of pods. */
#pragma once
#include "common/err.h"
#include "common/protocol.h"
#include "redirect.h"
#include "redirect.skel.h"
#include <bpf/bpf.h>
#include <limits.h>
#include <time.h>

enum { REDIRECT_PATH_SIZE = 256 };

/* Of a pod's network namespace, as much as there is. */
struct redirect_seen {
	uint32_t ninterfaces, nroutes;
	uint32_t interfaces[REDIRECT_INTERFACES_MAX];
	struct redirect_cidr routes[];
};

/* Keys of rows that are in the maps, or were to be: redirect_rows.c. */
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
	bool adopted, live;
	bool answers_udp, answers_tcp; /* a socket of its DNS proxy is marked */
	bool gone;        /* its network namespace, since an earlier broker attached there */
	bool late;        /* its Envoy may have listened before the rules, and is not known */
	uint32_t pause_s; /* between two looks for it */
	int64_t look_ms;  /* when the next one is due; 0: now */
	struct redirect_pod_state *prev, *next;
};

struct redirect {
	struct redirect_place at; /* strings are ours, but for bpffs */
	char pins[128];           /* <bpffs>/agentd/v<layout> */
	struct redirect_bpf *bpf;
	int cgroup, level; /* where the programs hang; how far below the root that is */
	uint64_t own[32];  /* cgroups this process is in: REDIRECT_TREE_DEPTH */
	struct redirect_can can;
	bool collects;  /* redirect_collect is loaded */
	uint32_t looks; /* for listeners, by all brokers: begins anywhere */
	struct redirect_pod_state *pods;
	struct redirect_pod_state *rows[REDIRECT_PODS_MAX + 1]; /* who has it */
	uint16_t times; /* that a row was given out: REDIRECT_ROW_BITS */
};

struct redirect_pod_state *redirect_pod_find(const struct redirect *r, const struct uuid *uid);
struct redirect_pod_state *redirect_pod_at(const struct redirect *r, uint32_t index);
uint32_t redirect_index(const struct redirect *r, const struct uuid *pod); /* 0: unknown */

/* The programs look for pods at its level from now on.  1: they did not; -1: errno. */
int redirect_pod_put_level(struct redirect *r, const struct redirect_pod_state *p);
int redirect_pod_uid(const struct redirect *r, uint32_t index, struct uuid *out);
void redirect_pod_trace(struct redirect *r, const struct uuid *pod, bool on);

/* Directories and maps, pinned; there already: nothing. */
int redirect_pin_all(struct redirect *r, struct err *e);
/* Where the programs hang: a cgroup that was removed and made anew, as a slice is whose last pod
 * went, is another one under that name. */
int redirect_follow_top(struct redirect *r, struct err *e);
/* The pods that have pins: their links get the programs of now, and what is nobody's goes. */
void redirect_pods_adopt(struct redirect *r);
void redirect_pods_free(struct redirect *r);
