/* all.c - what all pods share: the programs, the notices, the audit; and a look at all of them. */
#include "broker/kubelet/pod_source.h"
#include "broker/pods/cgroup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "live.h"
#include "traffic_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

enum { LOOKS_PAUSE_S = 2 };

/* --- is all as it was? --- */

static int cgroup_of(void *ctx, const struct uuid *uid)
{
	const struct redirect_traffic *t = ctx;
	const struct broker_pod *pod = pods_known(t->rig.pods, uid);

	return pod && pod->redirection.rules != POD_RULES_NONE
		   ? cgroup_await_open(&pod->redirection.await)
		   : redirect_shut_pods_cgroup(&t->shuts, uid);
}

static int on_netns_asked(void *ctx, const struct uuid *uid)
{
	const struct redirect_traffic *t = ctx;
	const struct broker_pod *pod = pods_known(t->rig.pods, uid);

	return pod ? redirect_live_netns(pod) : -1;
}

static struct redirect_targets targets(struct redirect_traffic *t)
{
	return (struct redirect_targets){cgroup_of, on_netns_asked, redirect_tell_directory, t};
}

static bool on_audit(void *ctx)
{
	struct redirect_traffic *t = ctx;
	const struct redirect_targets at = targets(t);
	struct redirect_audited was = redirect_audit(t->redirect, &at);

	redirect_traffic_look_again(t);
	redirect_shut_pods_look(&t->shuts);
	t->repaired += was.repaired;
	if (was.repaired) {
		t->repaired_noted = true;
		t->rig.changed(t->rig.ctx);
	}
	return !was.unsettled;
}

/* Two lists of a kernel for each pod: not each time that something happens to a pin. */
void redirect_traffic_look_again(struct redirect_traffic *t)
{
	struct timespec now;
	struct broker_pod *pod = NULL;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec - t->looked_again < LOOKS_PAUSE_S)
		return;
	t->looked_again = now.tv_sec;
	DL_FOREACH (pods_first(t->rig.pods), pod)
		redirect_live_look(pod);
}

static void on_news(void *ctx, const struct uuid *uid, enum redirect_news_kind kind)
{
	struct redirect_traffic *t = ctx;
	struct broker_pod *pod = pods_known(t->rig.pods, uid);

	if (!pod)
		return;
	ebpf_listeners_news(t->redirect, uid, redirect_live_netns(pod), kind);
	redirect_live_heard(pod);
}

static void sweep_one(void *ctx, const struct uuid *uid)
{
	struct redirect_traffic *t = ctx;
	const struct broker_pod *pod = pods_known(t->rig.pods, uid);
	char name[UUID_TEXT_SIZE];

	uuid_format(uid, name);
	if ((pod && pod->redirection.answer != POD_ANSWER_NOBODY) ||
	    pod_source_of(t->rig.options, uid))
		return;
	redirect_traffic_remove(t, uid);
	log_info(name, "a pod that nothing names: its traffic is not redirected any more");
}

void redirect_traffic_sweep(struct redirect_traffic *t)
{
	if (t->redirect && pod_source_is_known(t->rig.options))
		redirect_pods(t->redirect, sweep_one, t);
}

/* --- strict pods that are shut --- */

static bool is_asked_for(void *ctx, const struct uuid *uid)
{
	const struct redirect_traffic *t = ctx;
	const struct broker_pod *pod = pods_known(t->rig.pods, uid);

	return pod && pod->redirection.rules != POD_RULES_NONE;
}

static void on_shut(void *ctx, const struct uuid *uid)
{
	redirect_tell_audit(ctx, uid);
}

/* The worker, if it knows of the pod, says so itself when its manifest is gone. */
static void on_manifest_gone(void *ctx, const struct uuid *uid)
{
	struct redirect_traffic *t = ctx;

	if (!pods_known(t->rig.pods, uid))
		redirect_traffic_remove(t, uid);
}

static struct redirect_shut_pods shut_pods(struct redirect_traffic *t)
{
	return (struct redirect_shut_pods){.epoll = t->rig.epoll,
	    .options = t->rig.options,
	    .ceiling = &t->ceiling,
	    .redirect = t->redirect,
	    .awaits = &t->awaits,
	    .audit = &t->audit,
	    .is_asked_for = is_asked_for,
	    .shut = on_shut,
	    .gone = on_manifest_gone,
	    .ctx = t};
}

/* --- life --- */

static int start(struct redirect_traffic *t, struct err *e)
{
	char root[PATH_MAX], cgroup[POD_CGROUP_TOP_SIZE];
	struct redirect_place at = {.bpffs = t->rig.options->bpffs,
	    .cgroup = cgroup,
	    .home = t->rig.home,
	    .root = t->kubelet,
	    .trees = t->trees,
	    .stays = !t->rig.options->redirect_cgroup};

	if (pod_cgroup_root(t->rig.options, root) || pod_cgroup_top(t->rig.options, cgroup))
		return err_set(e, EINVAL, "--redirect needs cgroup v2, which is not mounted");
	snprintf(t->kubelet, sizeof(t->kubelet), "%s%s%s", root,
	    t->rig.options->probes_cgroup ? "/" : "",
	    t->rig.options->probes_cgroup ? t->rig.options->probes_cgroup : "");
	kubepods_trees(t->rig.options, root, t->trees);
	t->cgroups = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (t->cgroups < 0)
		return err_sys(e, "%s", root);
	if (cgroup_awaits_open(&t->awaits, t->rig.epoll, t->cgroups, e))
		return -1;
	t->redirect = redirect_new(&at, e);
	if (!t->redirect)
		return -1;
	t->traces = redirect_traces_new(t->rig.epoll, t->redirect);
	t->news = ebpf_news_new(t->rig.epoll, t->redirect, on_news, t, e);
	if (!t->news)
		return -1;
	t->audit = (struct broker_audit){.epoll = t->rig.epoll, .due = on_audit, .ctx = t};
	t->shuts = shut_pods(t);
	return broker_audit_open(&t->audit, e) ? -1 : redirect_shut_pods_open(&t->shuts, e);
}

static int on_dns_mark(void *ctx, const struct uuid *pod, int socket, bool answered, struct err *e)
{
	const struct redirect_traffic *t = ctx;

	return redirect_answer(t->redirect, pod, socket, answered, e);
}

struct redirect_traffic *redirect_traffic_new(const struct redirect_traffic_rig *rig, struct err *e)
{
	struct redirect_traffic *t = mem_zalloc(sizeof(*t));
	struct broker_user worker;

	t->rig = *rig;
	t->cgroups = -1;
	t->dns = (struct pod_sockets_rig){rig->epoll, rig->home, on_dns_mark, t};
	if (broker_options_user(t->rig.options, &worker, e) ||
	    redirect_ceiling_read(t->rig.options->redirect_allow, &t->ceiling, e)) {
		redirect_traffic_free(&t);
		return NULL;
	}
	if (!t->rig.options->redirect)
		err_set(&t->unable, EOPNOTSUPP,
		    "this agentd redirects no traffic: start it with --redirect");
	else if (start(t, &t->unable))
		log_error(NULL, "no pod's traffic can be redirected: %s", t->unable.msg);
	t->ceiling.worker_uid = worker.uid;
	return t;
}

void redirect_traffic_free(struct redirect_traffic **tp)
{
	struct redirect_traffic *t = take(*tp);

	if (!t)
		return;
	redirect_shut_pods_close(&t->shuts);
	cgroup_awaits_close(&t->awaits);
	broker_audit_close(&t->audit);
	redirect_traces_free(&t->traces);
	ebpf_news_free(&t->news);
	redirect_free(&t->redirect);
	mem_closep(&t->cgroups);
	free(t);
}

bool redirect_traffic_gone(const struct redirect_traffic *t, const struct uuid *pod)
{
	return t->redirect && redirect_gone(t->redirect, pod);
}
