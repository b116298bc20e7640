/* live.c - a pod's network namespace: learned, looked at, gone, never the node's.
 *
 * learned -> has somebody else redirected what comes from there? -> its addresses and interfaces ->
 * live: arrivals go to its Envoy -> they change: once more -> its cgroup is empty: not live.
 * While it is live others may come with rules of their own: with each audit we look, and say so;
 * and try again what failed.
 */
#include "live.h"
#include "broker/netns/iptables.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "traffic_internal.h"
#include <errno.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("broker");

static struct redirect *programs(const struct broker_pod *pod)
{
	return pod->redirection.by->redirect;
}

static void turn(struct broker_pod *pod, enum pod_inbound to, const struct err *why)
{
	pod_redirection_inbound(&pod->redirection, to, why);
	redirect_tell_worker(pod);
}

static void now_live(struct broker_pod *pod)
{
	if (!pod_redirection_is_live(&pod->redirection))
		turn(pod, POD_INBOUND_LIVE, NULL);
}

/* A failure keeps a strict pod closed, and is no reason to refuse its Envoy a certificate.  Said
 * once, however often it is tried. */
static void not_live(struct broker_pod *pod, const struct err *e)
{
	const struct err *before = &pod->redirection.inbound_why;
	struct err why = *e;

	pod_redirection_moved(&pod->redirection);
	if (before->code && !strcmp(before->msg, e->msg))
		return;
	why.code = e->code ? e->code : EIO;
	log_error(pod->name, "inbound traffic is not redirected: %s", e->msg);
	turn(pod, POD_INBOUND_REFUSED, &why);
}

/* Its network namespace is not known, or not any more. */
void redirect_live_leave(struct broker_pod *pod)
{
	netns_watch_close(&pod->redirection.view);
	if (pod->redirection.inbound != POD_INBOUND_UNKNOWN)
		turn(pod, POD_INBOUND_UNKNOWN, NULL);
}

void redirect_live_on_seen(void *ctx, const struct netns_watch_seen *seen)
{
	struct broker_pod *pod = ctx;
	struct broker_audit *audit = &pod->redirection.by->audit;
	struct err e;
	int rc;

	broker_audit_own_begins(audit);
	rc = redirect_live(programs(pod), &pod->uid, pod->redirection.view.netns, seen, &e);
	broker_audit_own_ends(audit);
	if (rc)
		not_live(pod, &e);
	else
		now_live(pod);
}

const struct redirect_rules *redirect_live_rules(void *ctx)
{
	const struct broker_pod *pod = ctx;

	return redirect_rules(programs(pod), &pod->uid);
}

/* A strict pod stays closed, so that somebody decides; another one is left as it was without us. */
static void leave_alone(struct broker_pod *pod)
{
	const struct redirect_rules *rules = redirect_live_rules(pod);

	if (!rules || rules->strict)
		return;
	netns_watch_close(&pod->redirection.view);
	redirect_remove(programs(pod), &pod->uid);
}

static const struct netns_home *home_of(const struct broker_pod *pod)
{
	return pod->redirection.by->rig.home;
}

/* Of two that redirect the same pod one has to go. */
static int check_rivals(struct broker_pod *pod, int netns, struct err *e)
{
	if (pod_redirection_is_live(&pod->redirection) ||
	    !netns_visit(home_of(pod), netns, netns_iptables_check, NULL, e))
		return 0;
	if (e->code == EEXIST)
		leave_alone(pod);
	return -1;
}

/* From one kind of being live to another. */
static void turn_live(struct broker_pod *pod, enum pod_inbound to, const struct err *why)
{
	if (to == pod->redirection.inbound)
		return;
	if (to == POD_INBOUND_TWICE)
		log_error(pod->name, "redirected twice: %s", why->msg);
	else if (to == POD_INBOUND_UNSEEN)
		log_error(pod->name, "redirected in vain: %s", why->msg);
	else if (to == POD_INBOUND_DEAF)
		log_error(pod->name, "redirected to nobody: %s", why->msg);
	turn(pod, to, to == POD_INBOUND_LIVE ? NULL : why);
}

int redirect_live_netns(const struct broker_pod *pod)
{
	const struct pod_redirection *r = &pod->redirection;

	return pod_redirection_is_live(r) && r->view.watch.ready ? r->view.netns : -1;
}

/* A pod that lives is not touched: whoever put them there knows what for, or will. */
static void look_for_rivals(struct broker_pod *pod)
{
	const int netns = redirect_live_netns(pod);
	struct err e = {.code = 0};
	enum pod_inbound to;

	if (netns < 0)
		return;
	netns_visit(home_of(pod), netns, netns_iptables_check, NULL, &e);
	if (e.code == EEXIST)
		to = POD_INBOUND_TWICE;
	else if (redirect_unseen(programs(pod), &pod->uid, netns, &e))
		to = POD_INBOUND_UNSEEN;
	else if (ebpf_listeners_check(programs(pod), &pod->uid, &e))
		to = POD_INBOUND_DEAF;
	else
		to = POD_INBOUND_LIVE;
	turn_live(pod, to, &e);
}

void redirect_live_heard(struct broker_pod *pod)
{
	const struct pod_redirection *r = &pod->redirection;
	struct err e;

	if (!pod_redirection_is_live(r))
		return;
	if (ebpf_listeners_check(programs(pod), &pod->uid, &e))
		turn_live(pod, POD_INBOUND_DEAF, &e);
	else if (r->inbound == POD_INBOUND_DEAF)
		turn_live(pod, POD_INBOUND_LIVE, NULL);
}

static int look(struct broker_pod *pod, int netns, struct netns_watch_seen *seen, struct err *e)
{
	struct netns_watch *view = &pod->redirection.view;

	if (netns_watch_is_of(view, netns))
		return netns_watch_look(view, seen, e);
	netns_watch_close(view);
	return netns_watch_open(view, netns, seen, e);
}

unsigned redirect_live_note_of(const struct broker_pod *pod)
{
	const struct pod_redirection *r = &pod->redirection;
	const bool left = !redirect_live_rules((void *)pod) || r->inbound_why.code == ENONET;
	const bool steered =
	    r->inbound == POD_INBOUND_UNKNOWN && redirect_is_steered(programs(pod), &pod->uid);

	return (pod_redirection_is_live(r) ? LINK_REDIRECT_INBOUND : 0) |
	       (steered ? LINK_REDIRECT_STEERED : 0) | (left ? LINK_REDIRECT_LEFT : 0);
}

static void refuse_host(struct broker_pod *pod)
{
	struct err e;

	err_set(&e, ENONET,
	    "its processes are in the node's own network namespace: a pod with hostNetwork is "
	    "never redirected; give it mode none");
	leave_alone(pod);
	not_live(pod, &e);
}

void redirect_live_in(struct broker_pod *pod, int netns)
{
	struct netns_watch_seen seen;
	struct err e;

	if (netns_is_home(home_of(pod), netns)) {
		refuse_host(pod);
		return;
	}
	if (!netns_watch_is_of(&pod->redirection.view, netns))
		pod_redirection_moved(&pod->redirection);
	if (!redirect_live_rules(pod))
		return; /* left to others */
	if (check_rivals(pod, netns, &e) || look(pod, netns, &seen, &e))
		not_live(pod, &e);
	else
		redirect_live_on_seen(pod, &seen);
}

/* Whatever kept it from being live may be over, and its Envoy has no reason to come again. */
static void try_again(struct broker_pod *pod)
{
	const struct pod_redirection *r = &pod->redirection;
	int netns = pod_identity_netns_in(&pod->identity, r->await.ino);

	if (r->rules == POD_RULES_WRITTEN && r->inbound == POD_INBOUND_REFUSED && netns >= 0)
		redirect_live_in(pod, netns);
}

void redirect_live_look(struct broker_pod *pod)
{
	try_again(pod);
	look_for_rivals(pod);
}

void redirect_live_learned(struct broker_pod *pod)
{
	if (pod->redirection.rules == POD_RULES_WRITTEN)
		redirect_live_in(pod, pod->identity.netns_fd);
}

void redirect_live_of_host(struct broker_pod *pod)
{
	const struct pod_redirection *r = &pod->redirection;

	if (r->rules == POD_RULES_WRITTEN && !pod_redirection_is_live(r))
		refuse_host(pod);
}

void redirect_live_on_emptied(struct broker_pod *pod)
{
	struct broker_audit *audit = &pod->redirection.by->audit;

	redirect_live_leave(pod);
	broker_audit_own_begins(audit);
	redirect_close(programs(pod), &pod->uid);
	broker_audit_own_ends(audit);
}
