/* redirect.h - the eBPF programs: loaded, attached, pinned; and what they know of each pod.
 *
 * Attached once, at one cgroup above all pods, and pinned below <bpffs>/agentd/v<layout>/: a broker
 * that comes back, or a newer one, puts its own programs into the same links (one atomic step each)
 * and goes on with the same maps, so redirection never pauses and outlives us.  Nothing here is
 * done twice because it was done before.
 */
#pragma once
#include "broker/base/options.h"
#include "broker/netns/watch.h"
#include "common/err.h"
#include "common/protocol.h"
#include "common/rules.h"

struct redirect;

struct redirect_place {
	const char *bpffs;             /* mounted there if it is not */
	const char *root;              /* where the host's cgroup v2 is mounted */
	const char *cgroup;            /* absolute: all pods are below it */
	bool stays;                    /* where an earlier broker attached, if that is above it */
	const struct netns_home *home; /* nobody's network; NULL: we enter no pod's */
};
struct redirect *redirect_new(const struct redirect_place *at, struct err *e);
/* What not every kernel can. */
struct redirect_can {
	bool interfaces; /* one can be excluded */
	bool late;       /* an Envoy that listened before its pod's rules is found */
};
/* Would it work here?  Loads, but attaches nothing. */
int redirect_try(struct redirect_can *can, struct err *e);
/* What is attached stays. */
void redirect_free(struct redirect **r);
/* Detaches and forgets everything, of all brokers: for uninstalling, and for tests. */
int redirect_uninstall(const char *bpffs, struct err *e);

struct redirect_where {
	int cgroup; /* the pod's, an open directory */
	int netns;  /* -1: not known yet */
};
/* Writes or changes what the programs know of the pod; from outside nothing reaches the app of a
 * strict one that was not steered to Envoy first.  `rules` were checked. */
int redirect_set(struct redirect *r, const struct uuid *pod, struct redirect_where at,
    const struct redirect_rules *rules, struct err *e);
/* `netns` is the pod's and not the host's: inbound connections go to Envoy from now on.  Called
 * again when what is seen there changes. */
int redirect_live(struct redirect *r, const struct uuid *pod, int netns,
    const struct netns_watch_seen *seen, struct err *e);
/* The pod's sandbox is gone: its network namespace is nobody's. */
void redirect_close(struct redirect *r, const struct uuid *pod);
/* The network namespace where an earlier broker made it live is no more: nobody is left in it. */
bool redirect_gone(const struct redirect *r, const struct uuid *pod);
/* As they were set; valid as long as the pod is here.  NULL: not by this broker. */
const struct redirect_rules *redirect_rules(const struct redirect *r, const struct uuid *pod);
/* The DNS proxy's socket: the pod's queries may go there, or not any more. */
int redirect_answer(
    struct redirect *r, const struct uuid *pod, int socket, bool answered, struct err *e);
/* Also of a pod that only an earlier broker knew; not there: nothing. */
void redirect_remove(struct redirect *r, const struct uuid *pod);
/* Calls `each` for every pod that has pins. */
void redirect_pods(struct redirect *r, void (*each)(void *ctx, const struct uuid *pod), void *ctx);

/* What the programs would decide now, by the maps as they are: redirect_verdict, or -1.  An arrival
 * from the pod itself is a dial of it (`inbound` is set so). */
struct redirect_question;
int redirect_explain(
    struct redirect *r, const struct uuid *pod, struct redirect_question *q, struct err *e);

/* What is needed to look at, and to put back, what belongs to pods. */
struct redirect_targets {
	int (*cgroup)(void *ctx, const struct uuid *pod); /* open, to be closed by us; or -1 */
	int (*netns)(void *ctx, const struct uuid *pod);  /* stays the caller's; or -1 */
	void (*directory)(void *ctx, const char *path);   /* each that holds pins */
	void *ctx;
};
struct redirect_audited {
	unsigned repaired; /* links, pins and entries */
	bool unsettled;    /* something is still not as it should be */
};
/* Links, pins, programs and maps' entries are looked at; what is not as we left it is put back and
 * logged. */
struct redirect_audited redirect_audit(struct redirect *r, const struct redirect_targets *at);
/* The pod's row of counters, 1 and on, and what it began with; 0: unknown. */
uint32_t redirect_counted(
    const struct redirect *r, const struct uuid *pod, struct redirect_counters *baseline);
/* Their map, to be mapped and read; nobody but the programs can write it.  The fd is ours. */
int redirect_counters(const struct redirect *r);
