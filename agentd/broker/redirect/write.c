/* write.c - asked for -> its cgroup is there, or awaited, each that has its name -> written -> its
 * network namespace, if that is known.
 *
 * What was asked for stays with the pod: its cgroup may go and come back under the same name (a
 * service that is restarted), and is then written again before the worker is told.  The namespace
 * is that of the same cgroup, or it is not known yet.
 */
#include "write.h"
#include "broker/kubelet/pod_source.h"
#include "broker/pods/cgroup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "live.h"
#include "traffic_internal.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

LOG_SCOPE("broker");

/* A look at all pods, and into each one's namespace, would cost a node with many of them more than
 * the one that is set. */
static int set(struct broker_pod *pod, struct redirect_where at, const struct redirect_rules *rules,
    struct err *e)
{
	struct redirect_traffic *t = pod->redirection.by;
	int rc;

	broker_audit_own_begins(&t->audit);
	rc = redirect_set(t->redirect, &pod->uid, at, rules, e);
	redirect_tell_audit(t, &pod->uid);
	broker_audit_own_ends(&t->audit);
	return rc;
}

/* What an Envoy taught about an earlier cgroup of this name says nothing about this one. */
static int write_rules(struct broker_pod *pod, int dir, struct err *e)
{
	struct pod_redirection *r = &pod->redirection;
	struct redirect_traffic *t = r->by;
	const struct redirect_rules *rules =
	    r->asked ? r->asked : redirect_rules(t->redirect, &pod->uid);
	struct stat st;
	int netns;

	if (!rules || fstat(dir, &st))
		return err_sys(e, "the pod's cgroup");
	netns = pod_identity_netns_in(&pod->identity, st.st_ino);
	if (set(pod, (struct redirect_where){dir, netns}, rules, e))
		return -1;
	pod_redirection_written(r);
	r->noted |= r->answer != POD_ANSWER_NOBODY && redirect_is_steered(t->redirect, &pod->uid);
	redirect_traces_apply(t->traces, &pod->uid);
	if (netns >= 0)
		redirect_live_in(pod, netns);
	else
		redirect_live_leave(pod);
	return 0;
}

struct leaving {
	const struct redirect_traffic *t;
	const struct uuid *but;
	bool any;
};

static void leave(void *ctx, const struct uuid *uid)
{
	struct leaving *l = ctx;

	if (uuid_equal(uid, l->but) || pod_source_of(l->t->rig.options, uid))
		return;
	redirect_leave(l->t->redirect, uid);
	l->any = true;
}

/* A pod that is given another uid is there before the worker says that the old one is gone. */
static bool others_leave(const struct redirect_traffic *t, const struct uuid *pod)
{
	struct leaving l = {.t = t, .but = pod};

	if (pod_source_is_known(t->rig.options))
		redirect_pods(t->redirect, leave, &l);
	return l.any;
}

static void on_cgroup(void *ctx, int received)
{
	struct broker_pod *pod = ctx;
	struct pod_redirection *r = &pod->redirection;
	const struct err before = r->why;
	auto_close int dir = received;

	r->why = (struct err){.code = 0};
	if (write_rules(pod, dir, &r->why) &&
	    (r->why.code != EEXIST || !others_leave(r->by, &pod->uid) ||
		write_rules(pod, dir, &r->why))) {
		r->why.code = r->why.code ? r->why.code : EIO;
		if (!before.code || strcmp(before.msg, r->why.msg) != 0)
			log_error(pod->name, "traffic is not redirected: %s", r->why.msg);
		if (r->asked && r->asked->strict)
			redirect_shut_pods_add_at(&r->by->shuts, &pod->uid, dir);
	}
	if (pod_redirection_answer(r))
		redirect_tell_worker(pod);
	pod_check(pod);
}

void redirect_write_again(struct broker_pod *pod)
{
	int dir = cgroup_await_open(&pod->redirection.await);

	if (dir >= 0)
		on_cgroup(pod, dir);
}

static int await_cgroup(struct broker_pod *pod, struct err *e)
{
	struct pod_redirection *r = &pod->redirection;
	char paths[KUBEPODS_SIZE];
	int dir;

	r->await = (struct cgroup_await){.all = &r->by->awaits, .there = on_cgroup, .ctx = pod};
	if (pod_cgroup_paths(r->by->rig.options, pod->name, paths, e))
		return -1;
	dir = cgroup_await_start(&r->await, paths, e);
	if (dir >= 0)
		on_cgroup(pod, dir);
	else
		log_info(pod->name, "redirection waits: %s", e->msg);
	return 0;
}

static void join(struct redirect_traffic *t, struct broker_pod *pod)
{
	struct pod_redirection *r = &pod->redirection;

	if (r->by)
		return;
	r->by = t;
	r->emptied = redirect_live_on_emptied;
	r->view = (struct netns_watch){.epoll = t->rig.epoll,
	    .home = t->rig.home,
	    .rules = redirect_live_rules,
	    .changed = redirect_live_on_seen,
	    .ctx = pod};
}

int redirect_write_ask(struct redirect_traffic *t, struct broker_pod *pod,
    const struct redirect_asked *a, struct err *e)
{
	struct pod_redirection *r = &pod->redirection;

	join(t, pod);
	cgroup_await_end(&r->await);
	pod_redirection_ask(r, a->rules, a->id);
	r->above = a->above;
	if (!await_cgroup(pod, e))
		return 0;
	pod_redirection_end(r);
	return -1;
}
