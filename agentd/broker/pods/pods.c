/* pods.c - a worker adds its pods -> it is ready: what it did not add is swept -> it is gone: all
 * of them are unclaimed, and stay for the next one.
 */
#include "pods.h"
#include "broker/kubelet/pod_source.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

LOG_SCOPE("broker");

struct pods {
	struct pods_rig rig;
	struct pod_identities identities;
	unsigned n;
	struct broker_pod *list;
};

struct pods *pods_new(const struct pods_rig *rig)
{
	struct pods *ps = mem_zalloc(sizeof(*ps));

	ps->rig = *rig;
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
	DL_FOREACH (ps->list, pod)
		asked |= pod_detach(pod);
	if (asked)
		pod_sockets_await_last_queries();
	DL_FOREACH_SAFE (ps->list, pod, tmp)
		forget(ps, pod);
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

struct broker_pod *pods_find(const struct pods *ps, const struct uuid *uid, struct err *e)
{
	struct broker_pod *pod = pods_known(ps, uid);

	if (!pod)
		err_set(e, ENOENT, "this pod was not added");
	return pod;
}

int pods_add(struct pods *ps, const struct uuid *uid, bool gone, struct err *e)
{
	struct broker_pod *pod = pods_known(ps, uid);

	if (!pod && ps->n >= ps->rig.options->max_pods)
		return err_set(e, ENOSPC, "there are %u pods already (--max-pods)", ps->n);
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

enum pods_peer pods_peer(const struct pods *ps, struct broker_pod *pod, struct pods_connection c,
    struct link_packet *out, struct err *e)
{
	struct pod_identity_peer peer = {.conn = c.conn};
	int rc;

	peer.netns = netns_of(ps->rig.home, c.conn, &peer.id, e);
	if (peer.netns < 0) /* a pod with hostNetwork, or somebody who has nothing to do with it? */
		return e->code == EPERM && pod_identity_is_member(&pod->identity, c.conn)
			   ? PODS_PEER_OF_HOST
			   : PODS_PEER_REFUSED;
	peer.owner = owner_of(ps, pod, &peer.id);
	rc = pod_identity_check(&pod->identity, &peer, c.require, out, e);
	mem_closep(&peer.netns);
	return rc ? PODS_PEER_REFUSED : PODS_PEER_IS;
}

/* --- one worker after the other --- */

void pods_detach(struct pods *ps)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		pod_detach(pod);
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

bool pods_pending(const struct pods *ps)
{
	enum link_listener kind;

	return next_renewed(ps, &kind) != NULL;
}

void pods_next(struct pods *ps, struct link_packet *p, int *fd)
{
	enum link_listener kind;
	struct broker_pod *pod = next_renewed(ps, &kind);

	if (!pod)
		abort(); /* the caller has asked whether there is one */
	*p = (struct link_packet){.what = LINK_LISTENER, .kind = (uint16_t)kind, .uid = pod->uid};
	*fd = pod_listener_told(&pod->listeners[kind]);
}
