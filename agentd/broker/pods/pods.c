/* pods.c - a worker adds its pods -> it is ready: what it did not add is swept -> it is gone: all
 * of them are unclaimed, and stay for the next one.
 */
#include "pods.h"
#include "broker/base/audit.h"
#include "broker/kubelet/pod_source.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

enum { AGAIN_MAX_MS = 32 * 1000 };

struct pods {
	struct pods_rig owner, rig; /* `rig` is what pods see */
	struct broker_audit audit;
	unsigned restored; /* since this broker began */
	struct pod_identities identities;
	unsigned n;
	struct broker_pod *list;
	struct broker_timer patience; /* of DNS queries that wait for a worker */
	bool ready;                   /* a worker is */
};

/* --- what somebody removed --- */

/* A worker shut one down; if no other one could be made that is tried soon. */
static void on_renewed(void *ctx)
{
	struct pods *ps = ctx;

	broker_audit_soon(&ps->audit);
	ps->owner.renewed(ps->owner.ctx);
}

static void make_top(struct pods *ps)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/pods", ps->rig.options->run);
	if (!mkdir(path, S_IRWXU))
		log_error(NULL, "%s was removed: made again", path);
	broker_audit_directory(&ps->audit, path);
}

static bool on_due(void *ctx)
{
	struct pods *ps = ctx;
	struct broker_pod *pod;
	bool settled = true;

	make_top(ps);
	DL_FOREACH (ps->list, pod)
		settled &= !pod->claimed || pod_mend(pod, &ps->restored);
	if (pods_pending(ps))
		ps->owner.changed(ps->owner.ctx);
	return settled;
}

/* What is renamed over is no loss; what was moved away is seen by the regular look. */
static int open_audit(struct pods *ps, struct err *e)
{
	ps->audit = (struct broker_audit){.epoll = ps->rig.epoll,
	    .due = on_due,
	    .again_max_ms = AGAIN_MAX_MS,
	    .events = IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF,
	    .ctx = ps};
	return broker_audit_open(&ps->audit, e);
}

/* --- their DNS between two workers --- */

/* An earlier broker's, of a pod that nobody has added. */
static void drop_found(void *ctx, const char *name, int fd)
{
	struct broker_fdstore *kept = ctx;

	(void)fd;
	if (pod_sockets_is_kept(name))
		close(broker_fdstore_take(kept, name));
}

/* A worker that is ready did not ask for these, so nobody will. */
static void on_impatient(void *ctx)
{
	struct pods *ps = ctx;
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		if (pod_sockets_give_up(&pod->dns) && ps->ready)
			pod_sockets_sweep(&pod->dns);
	broker_fdstore_each(ps->rig.kept, BROKER_FOUND, drop_found, ps->rig.kept);
}

/* From the first of several deaths before one was ready. */
static void be_patient(struct pods *ps)
{
	if (ps->ready || !broker_timer_is_set(&ps->patience))
		broker_timer_set(&ps->patience, POD_SOCKETS_WAIT_MS);
	ps->ready = false;
}

/* --- life --- */

struct pods *pods_new(const struct pods_rig *rig, struct err *e)
{
	struct pods *ps = mem_zalloc(sizeof(*ps));

	ps->owner = ps->rig = *rig;
	ps->rig.renewed = on_renewed;
	ps->rig.ctx = ps;
	ps->rig.audit = &ps->audit;
	if (broker_timer_open(&ps->patience, rig->epoll, on_impatient, ps)) {
		err_sys(e, "timerfd");
		free(ps);
		return NULL;
	}
	if (open_audit(ps, e)) {
		broker_timer_close(&ps->patience);
		free(ps);
		return NULL;
	}
	be_patient(ps);
	ps->identities = (struct pod_identities){.way = pod_peer_best_way(),
	    .options = rig->options,
	    .home = rig->home,
	    .states = rig->states};
	return ps;
}

static void forget(struct pods *ps, struct broker_pod *pod)
{
	DL_DELETE(ps->list, pod);
	ps->n--;
	pod_free(&pod);
}

void pods_free(struct pods **slot)
{
	struct pods *ps = take(*slot);
	struct broker_pod *pod, *tmp;
	bool asked = false;

	if (!ps)
		return;
	DL_FOREACH (ps->list, pod) {
		pod_detach(pod);
		asked |= pod_sockets_give_up(&pod->dns);
	}
	if (asked)
		pod_sockets_await_last_queries();
	DL_FOREACH_SAFE (ps->list, pod, tmp)
		forget(ps, pod);
	broker_audit_close(&ps->audit);
	broker_timer_close(&ps->patience);
	free(ps);
}

struct broker_pod *pods_first(const struct pods *ps)
{
	return ps->list;
}

struct broker_pod *pods_known(const struct pods *ps, const struct uuid *uid)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		if (uuid_equal(&pod->uid, uid))
			return pod;
	return NULL;
}

bool pods_is_there(const struct pods *ps, const struct uuid *uid)
{
	char name[UUID_TEXT_SIZE], path[PATH_MAX];

	uuid_format(uid, name);
	snprintf(path, sizeof(path), "%s/pods/%s", ps->rig.options->run, name);
	return !access(path, F_OK);
}

bool pods_is_awaited(const struct pods *ps, const struct uuid *uid)
{
	struct broker_pod *pod = pods_known(ps, uid);

	for (unsigned kind = 0; pod && kind < LINK_LISTENER_END; kind++)
		if (broker_listener_is_awaited(&pod->listeners[kind].listener))
			return true;
	return false;
}

struct broker_pod *pods_find(const struct pods *ps, const struct uuid *uid, struct err *e)
{
	struct broker_pod *pod = pods_known(ps, uid);

	if (pod && pod->claimed)
		return pod;
	err_set(e, ENOENT, "this pod was not added");
	return NULL;
}

int pods_add(struct pods *ps, const struct uuid *uid, bool gone, struct err *e)
{
	struct broker_pod *pod = pods_known(ps, uid);

	if (!pod && ps->n >= ps->rig.options->max_pods && !pods_is_there(ps, uid))
		return err_set(e, EUSERS, "there are %u pods already (--max-pods)", ps->n);
	if (!pod) {
		pod = pod_new(&ps->rig, &ps->identities, uid, gone, e);
		if (!pod)
			return -1;
		DL_APPEND(ps->list, pod);
		ps->n++;
	}
	pod->claimed = true;
	return 0;
}

int pods_remove(struct pods *ps, const struct uuid *uid, struct err *e)
{
	struct broker_pod *pod = pods_known(ps, uid);
	int rc = pod_erase(&ps->rig, uid, e);

	if (pod) {
		pod_close_listeners(pod);
		forget(ps, pod);
	}
	return rc;
}

/* --- what they hold --- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void pods_hold(struct broker_pod *pod, uint32_t kib)
{
	pod->burden.held_kib = kib;
}

void pods_hold_nothing(struct pods *ps)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		pod->burden.held_kib = 0;
}

uint32_t pods_wait_s(const struct broker_pod *pod)
{
	return pod_burden_wait_s(&pod->burden, now_ms());
}

unsigned pods_blame(struct pods *ps)
{
	uint32_t most = 0;
	unsigned blamed = 0;
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		if (pod->burden.held_kib > most)
			most = pod->burden.held_kib;
	if (most < BURDEN_LEAST_KIB)
		return 0;
	DL_FOREACH (ps->list, pod) {
		uint32_t held = pod->burden.held_kib;

		if (held < most / 2)
			continue;
		blamed++;
		log_warn(pod->name,
		    "the worker was killed while this pod's connections held %u MiB of its memory: "
		    "they wait for %d s",
		    held >> 10, (int)(pod_burden_blame(&pod->burden, now_ms()) / 1000));
	}
	return blamed;
}

/* --- whose connection --- */

static const char *owner_of(
    const struct pods *ps, const struct broker_pod *but, const struct netns_id *id)
{
	const struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		if (pod != but && netns_same(&pod->identity.netns, id))
			return pod->name;
	return NULL;
}

static enum pods_peer refuse_host(struct err *e)
{
	err_set(e, ENONET,
	    "its processes are in the node's own network namespace: agentd serves no pod with "
	    "hostNetwork");
	return PODS_PEER_OF_HOST;
}

enum pods_peer pods_peer(struct pods *ps, struct broker_pod *pod, struct pods_connection c,
    struct link_packet *out, struct err *e)
{
	struct pod_identity_peer peer = {.conn = c.conn, .machine = c.machine};
	int rc;

	peer.netns = netns_of(ps->rig.home, c.conn, &peer.id, e);
	if (peer.netns < 0) /* a pod with hostNetwork, or somebody who has nothing to do with it? */
		return e->code == EPERM && pod_identity_is_member(&pod->identity, c.conn)
			   ? refuse_host(e)
			   : PODS_PEER_REFUSED;
	peer.owner = owner_of(ps, pod, &peer.id);
	rc = pod_identity_check(&pod->identity, &peer, c.require, out, e);
	mem_closep(&peer.netns);
	if (pod->identity.unkept.code)
		broker_audit_soon(&ps->audit);
	return rc ? PODS_PEER_REFUSED : PODS_PEER_IS;
}

/* --- one worker after the other --- */

void pods_detach(struct pods *ps)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		pod_detach(pod);
	be_patient(ps);
}

void pods_leave(struct pods *ps)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		pod_sockets_leave(&pod->dns);
}

static void sweep_one(struct pods *ps, const struct uuid *uid)
{
	const struct broker_pod *known = pods_known(ps, uid);
	char name[UUID_TEXT_SIZE];
	const char *source;
	struct err e;

	if (known && known->claimed)
		return;
	uuid_format(uid, name);
	if ((source = pod_source_of(ps->rig.options, uid))) {
		log_warn(
		    name, "the worker did not add this pod, but it has %s: kept as it is", source);
		return;
	}
	if (pods_remove(ps, uid, &e))
		log_warn(name, "a pod that nothing names: %s", e.msg);
	else
		log_info(name, "a pod that nothing names: removed");
}

/* Every pod has a directory. */
static void sweep_directories(struct pods *ps)
{
	char path[PATH_MAX];
	struct dirent *entry;
	struct uuid uid;

	snprintf(path, sizeof(path), "%s/pods", ps->rig.options->run);
	DIR *d = opendir(path);
	if (!d)
		return;
	while (pod_source_is_known(ps->rig.options) && (entry = readdir(d)))
		if (uuid_parse(&uid, entry->d_name))
			sweep_one(ps, &uid);
	closedir(d);
}

void pods_sweep(struct pods *ps)
{
	struct broker_pod *pod;

	sweep_directories(ps);
	ps->ready = true;
	DL_FOREACH (ps->list, pod)
		pod_sockets_sweep(&pod->dns);
}

static struct broker_pod *next_renewed(const struct pods *ps, enum link_listener *kind)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		if (pod_next_renewed(pod, kind))
			return pod;
	return NULL;
}

static struct broker_pod *next_noted(const struct pods *ps)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		if (pod->claimed && pod->mending.noted)
			return pod;
	return NULL;
}

bool pods_pending(const struct pods *ps)
{
	enum link_listener kind;

	return next_renewed(ps, &kind) || next_noted(ps);
}

void pods_next(struct pods *ps, struct link_packet *p, int *fd)
{
	enum link_listener kind;
	struct broker_pod *pod = next_renewed(ps, &kind), *noted = pod ? NULL : next_noted(ps);

	*fd = -1;
	if (noted) {
		pod_mend_told(noted, p);
		p->state = ps->restored;
		return;
	}
	if (!pod)
		abort(); /* the caller has asked whether there is one */
	*p = (struct link_packet){.what = LINK_LISTENER, .kind = (uint16_t)kind, .uid = pod->uid};
	*fd = pod_listener_told(&pod->listeners[kind]);
}
