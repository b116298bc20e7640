/* pod.h - one pod that a worker added, in parts, which end with it.
 *
 *   part         states                             who takes the steps
 *   claimed      no, yes                            pods.c: POD_ADD; the worker is gone
 *   listeners    idle, served, renewed, lost        listener.c
 *   identity     cgroup: unknown, watched, emptied  identity.c
 *   dns          none, served, waits, refuses       netns/pod_sockets.c
 *   redirection  rules, inbound, answer             redirect/requests.c, live.c, by redirection.h
 *   dial         a budget                           netns/dial.c
 *   mending      files written, lost                mend.c
 *   burden       what it holds, how long it waits   pods.c, by burden.h
 *
 * Each part checks its own steps.  These rules hold between them after each event; all but the
 * third exclude a race:
 *
 *   1. emptied => not live, no DNS socket served.  The pod's next sandbox has the same uid: what
 *      arrives there would go to the previous sandbox's Envoy, and its queries to a socket there.
 *   2. no rules => inbound unknown, nobody is owed an answer, no DNS socket but an earlier broker's
 *      that waits.  A notice that was on its way when redirection ended would write a row, or leave
 *      a mark, for the pod that is given the index next.
 *   3. inbound twice, unseen, deaf or refused <=> there is a reason: the worker shows it to people.
 *   4. rules are asked for <=> they are held.  A cgroup that comes back between question and answer
 *      would be written by the previous question's rules.
 *   5. a question is open <=> it has a number; nobody's has none, and no note.  A worker that died
 *      with a question open has a successor, whose numbers begin again.
 *   6. not claimed => no socket is served, nobody is owed an answer, nothing is noted.  A worker
 *      would be told of a pod that only its predecessor added.
 *
 * DNS sockets may be served a little longer than a pod is live: until its note is sent, for only
 * then the worker rests.  Rows in the maps and pins outlive the broker, so pods of which only they
 * tell have no struct here until they are added: redirect.h knows them by uid.  What the maps know
 * of a pod is in redirect/table.h; files and keys of one that are on their way, in broker/requests.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "broker/netns/dial.h"
#include "broker/netns/netns.h"
#include "broker/netns/pod_sockets.h"
#include "burden.h"
#include "common/err.h"
#include "identity.h"
#include "listener.h"
#include "mend.h"
#include "redirection.h"

enum { POD_PATH_SIZE = 160 }; /* --run is bounded */

struct pods_rig {
	int epoll;
	const struct broker_options *options;
	const struct netns_home *home;
	struct broker_fdstore *kept;
	struct broker_states *states;
	void (*renewed)(void *ctx); /* listener.h: the worker shut one down */
	void (*changed)(void *ctx); /* the worker is to be told something */
	void *ctx;
	struct broker_audit *audit; /* pods.c's own: when to mend */
};

struct broker_pod {
	struct uuid uid;
	char name[UUID_TEXT_SIZE];
	char dir[POD_PATH_SIZE]; /* <run>/pods/<uid> */
	const struct pods_rig *rig;
	bool claimed; /* added by the worker that runs */
	struct pod_listener listeners[LINK_LISTENER_END];
	struct pod_identity identity;
	struct pod_sockets dns;
	struct pod_redirection redirection;
	struct netns_dial dial;
	struct pod_mending mending;
	struct pod_burden burden;
	struct broker_pod *prev, *next; /* pods.c */
};

/* With its directories; goes on with what an earlier broker knew, unless its network namespace is
 * no more (`gone`).  NULL: `e` says why. */
struct broker_pod *pod_new(const struct pods_rig *rig, const struct pod_identities *all,
    const struct uuid *uid, bool gone, struct err *e);
void pod_free(struct broker_pod **pod); /* the directory stays, and so does what is kept */
/* Removes the directory with all that is in it, as pod_tree_remove() does, and all that is kept of
 * the pod.  Not there: fine. */
int pod_erase(const struct pods_rig *rig, const struct uuid *uid, struct err *e);
void pod_close_listeners(struct broker_pod *pod); /* for ever: nothing of them is kept */
void pod_detach(struct broker_pod *pod);          /* the worker is gone */

/* A listening socket; it stays the broker's. */
int pod_listen(struct broker_pod *pod, unsigned kind, struct err *e);
bool pod_next_renewed(const struct broker_pod *pod, enum link_listener *kind);
int pod_write(struct broker_pod *pod, unsigned kind, int memfd, struct err *e);
/* <dir>/mount/<name>; "": the directory itself. */
void pod_path_in(const struct broker_pod *pod, const char *name, char out[POD_PATH_SIZE]);
/* <dir>/.<name>.new: where it is until it is whole. */
void pod_first_path(const struct broker_pod *pod, const char *name, char out[POD_PATH_SIZE]);
const char *pod_file_name(enum link_file kind);
/* Its volume's directory was made while its containers ran, and nobody of them has come since: they
 * have the previous one.  Kept beyond this broker, as <dir>/late. */
bool pod_is_late(const struct broker_pod *pod);
void pod_came(const struct broker_pod *pod); /* one of its processes has connected */
/* A socket in its network namespace, the caller's: netns_dial(). */
int pod_dial(struct broker_pod *pod, const struct link_request *r, struct err *e);

/* The number of the rule above that does not hold; 0: all do. */
int pod_broken_rule(const struct broker_pod *pod);
void pod_check(const struct broker_pod *pod); /* after an event; broken: the broker ends */
