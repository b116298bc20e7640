/* identity.c - see identity.h.
 *
 * a pod is added -> what an earlier broker kept: its namespace, and the cgroup that must not have
 * been empty since -> a connection: whose namespace (never the node's, never another pod's), which
 * cgroup (peer.h) -> both are the pod's: the namespace is learned, kept, and from here on
 * the cgroup is watched -> the cgroup is empty: what was kept is dropped, the next peer of the pod
 * may come from another namespace.
 *
 * While no broker runs nobody watches: a cgroup that was emptied meanwhile and is the same one
 * again is not noticed, and then another namespace is refused until it is empty once more.  Of a
 * pod that is redirected a link tells that its namespace is gone.
 */
#include "identity.h"
#include "broker/base/state.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

LOG_SCOPE("broker");

static bool is_known(const struct pod_identity *i)
{
	return i->netns.cookie || i->netns.ino;
}

static bool is_kept(const struct pod_identity *i, const struct broker_state_netns *n)
{
	struct broker_state_netns kept;

	return !i->unkept.code && broker_state_netns_get(i->all->states, &i->uid, &kept) &&
	       kept.cookie == n->cookie && kept.cgroup_id == n->cgroup_id;
}

/* The record is what the next broker believes: none of a cgroup that was emptied.  Without a cgroup
 * each connection comes by here, so what is kept already is not written again. */
static int keep(struct pod_identity *i)
{
	const bool watched = i->cgroup.state == POD_CGROUP_WATCHED;
	const struct broker_state_netns n = {i->netns.cookie, watched ? i->cgroup.id : 0};
	int rc = 0;

	if (i->cgroup.state != POD_CGROUP_EMPTIED && is_kept(i, &n))
		return 0;
	i->unkept.code = 0;
	if (i->cgroup.state == POD_CGROUP_EMPTIED)
		rc = broker_state_netns_del(i->all->states, &i->uid, &i->unkept);
	else if (n.cookie)
		rc = broker_state_netns_put(i->all->states, &i->uid, &n, &i->unkept);
	return rc ? err_wrap(&i->unkept, "its network namespace is not kept over a restart") : 0;
}

int pod_identity_mend(struct pod_identity *i, struct err *e)
{
	if (!i->unkept.code || !keep(i))
		return 0;
	*e = i->unkept;
	return -1;
}

/* --- life --- */

void pod_identity_begin(struct pod_identity *i, bool gone)
{
	struct broker_state_netns n;
	struct err e;

	i->netns_fd = -1;
	if (!broker_state_netns_get(i->all->states, &i->uid, &n))
		return;
	if (gone) {
		log_info(i->name, "its network namespace is gone: the next one is learned");
		if (broker_state_netns_del(i->all->states, &i->uid, &e))
			log_warn(i->name, "%s", e.msg);
		return;
	}
	i->netns.cookie = n.cookie;
	i->netns_fd = netns_named(i->all->home, i->name, n.cookie);
	if (!n.cgroup_id)
		return;
	auto_close int dir = pod_cgroup_open(i->all->options, i->name, &e);
	if (dir >= 0 || e.code == ENODEV)
		pod_cgroup_resume(&i->cgroup, dir, n.cgroup_id);
}

void pod_identity_end(struct pod_identity *i)
{
	pod_cgroup_end(&i->cgroup);
	mem_closep(&i->netns_fd);
}

void pod_identity_emptied(struct pod_identity *i)
{
	keep(i);
}

int pod_identity_netns_in(const struct pod_identity *i, uint64_t cgroup)
{
	const struct pod_cgroup *c = &i->cgroup;

	return c->state == POD_CGROUP_WATCHED && c->id == cgroup ? i->netns_fd : -1;
}

/* --- the network namespace --- */

/* Another one than the pod's: a sandbox that was started anew, or somebody else? */
static int check_replacement(struct pod_identity *i, struct err *e)
{
	static const char other[] = "the peer is in another network namespace than the pod began "
				    "with";

	if (pod_cgroup_emptied(&i->cgroup))
		return 0;
	if (i->cgroup.state == POD_CGROUP_WATCHED)
		return err_set(e, EPERM, "%s, and the pod's cgroup was never empty since", other);
	return err_set(e, EPERM,
	    "%s; give <uid>/cgroup beside the manifest: it tells a restarted pod from an "
	    "intruder; or remove the manifest and add it again",
	    other);
}

static int check_netns(struct pod_identity *i, const struct pod_identity_peer *peer, struct err *e)
{
	if (netns_same(&i->netns, &peer->id))
		return 0;
	if (is_known(i) && check_replacement(i, e))
		return -1;
	if (!peer->owner)
		return 0;
	log_warn(i->name, "a peer came from the network namespace of pod %s: refused", peer->owner);
	return err_set(e, EPERM, "the peer is in the network namespace of pod %s", peer->owner);
}

/* From here on the cgroup must become empty for another namespace; one that was named only now is
 * watched from now on. */
static void watch_cgroup(struct pod_identity *i, bool is_new, int dir)
{
	struct err e = {.code = 0};

	if (!is_new && i->cgroup.state == POD_CGROUP_WATCHED)
		return;
	if (dir < 0)
		pod_cgroup_end(&i->cgroup);
	else if (pod_cgroup_watch(&i->cgroup, dir, &e) && is_new)
		log_warn(i->name, "a restart will not be noticed: %s", e.msg);
	keep(i);
}

/* `netns` is ours from here on. */
static void learn(struct pod_identity *i, int netns, const struct netns_id *id, int cgroup_dir)
{
	const bool is_new = !netns_same(&i->netns, id);

	if (is_known(i) && is_new)
		log_info(i->name, "a new network namespace: the pod's cgroup was empty in between");
	mem_closep(&i->netns_fd);
	i->netns_fd = netns;
	i->netns = *id;
	watch_cgroup(i, is_new, cgroup_dir);
}

/* --- the cgroup --- */

/* `dir` is that of the pod's cgroup, the caller's. */
static int check_cgroup(
    const struct pod_identity *i, int conn, int *dir, uint64_t *id, struct err *e)
{
	*dir = pod_cgroup_open(i->all->options, i->name, e);
	if (*dir >= 0)
		return pod_peer_cgroup(i->all->way, conn, *dir, id, e);
	if (e->code == ENODEV)
		return err_set(e, EACCES, "the pod's cgroup does not exist");
	e->code = ENODATA;
	return -1;
}

bool pod_identity_is_member(const struct pod_identity *i, int conn)
{
	auto_close int dir = -1;
	struct err e;
	uint64_t id;

	return !check_cgroup(i, conn, &dir, &id, &e);
}

int pod_identity_check(struct pod_identity *i, struct pod_identity_peer *peer, bool require,
    struct link_packet *out, struct err *e)
{
	auto_close int dir = -1;

	if (check_netns(i, peer, e))
		return -1;
	if (check_cgroup(i, peer->conn, &dir, &out->cgroup_id, e)) {
		/* Not known is no fault of the peer's: the policy decides. */
		if (e->code != ENODATA || require)
			return -1;
		snprintf(out->why, sizeof(out->why), "%s", e->msg);
	}
	if (netns_describe(
		i->all->home, (struct netns_looked_at){peer->netns, peer->machine}, out, e))
		return -1;
	out->netns_cookie = peer->id.cookie;
	learn(i, take_fd(peer->netns), &peer->id, dir);
	return 0;
}
