/* requests.c - see requests.h.
 *
 * Without --redirect there are no programs: asking is refused with the flag's name.  What was asked
 * for stays with the pod: its cgroup may go and come back under the same name (a service that is
 * restarted), and is then written again before anybody is told; so may what is seen in its network
 * namespace.  The namespace is that of the same cgroup, or it is not known yet.
 */
#include "broker/base/file.h"
#include "broker/ebpf/table.h"
#include "broker/kubelet/pod_source.h"
#include "broker/pods/bound.h"
#include "broker/pods/cgroup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "ebpf/names.h"
#include "ebpf/rules_types.h"
#include "granted.h"
#include "requests_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

void redirect_requests_changed(struct broker_pod *pod)
{
	const struct redirect_requests_rig *rig = &pod->redirection.by->rig;

	rig->changed(rig->ctx);
	pod_check(pod);
}

/* --- is all as it was? --- */

static int cgroup_of(void *ctx, const struct uuid *uid)
{
	const struct redirect_requests *t = ctx;
	const struct broker_pod *pod = pods_known(t->rig.pods, uid);

	return pod && pod->redirection.rules != POD_RULES_NONE
		   ? cgroup_await_open(&pod->redirection.await)
		   : redirect_shut_pods_cgroup(t, uid);
}

static int on_netns_asked(void *ctx, const struct uuid *uid)
{
	const struct redirect_requests *t = ctx;
	const struct broker_pod *pod = pods_known(t->rig.pods, uid);

	return pod ? redirect_requests_netns(pod) : -1;
}

static void on_directory(void *ctx, const char *path)
{
	struct redirect_requests *t = ctx;

	broker_audit_directory(&t->audit, path);
}

static struct redirect_targets targets(struct redirect_requests *t)
{
	return (struct redirect_targets){cgroup_of, on_netns_asked, on_directory, t};
}

void redirect_requests_hear(struct redirect_requests *t, const struct uuid *uid)
{
	const struct redirect_targets at = targets(t);

	redirect_audit_pod(t->redirect, uid, &at);
}

static bool on_audit(void *ctx)
{
	struct redirect_requests *t = ctx;
	const struct redirect_targets at = targets(t);
	struct redirect_audited was = redirect_audit(t->redirect, &at);

	redirect_requests_look_again(t);
	redirect_shut_pods_look(t);
	t->repaired += was.repaired;
	if (was.repaired) {
		t->repaired_noted = true;
		t->rig.changed(t->rig.ctx);
	}
	return !was.unsettled;
}

/* --- life --- */

static int start(struct redirect_requests *t, struct err *e)
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
	t->news = ebpf_news_new(t->rig.epoll, t->redirect, redirect_requests_on_news, t, e);
	if (!t->news)
		return -1;
	t->audit = (struct broker_audit){.epoll = t->rig.epoll, .due = on_audit, .ctx = t};
	return broker_audit_open(&t->audit, e) ? -1 : redirect_shut_pods_open(t, e);
}

/* Pods that ask for it are refused one by one; the others are served. */
static int refuse(const struct redirect_requests *t, struct err *e)
{
	*e = t->unable;
	return -1;
}

static int on_dns_mark(void *ctx, const struct uuid *pod, int socket, bool answered, struct err *e)
{
	const struct redirect_requests *t = ctx;

	return redirect_answer(t->redirect, pod, socket, answered, e);
}

struct redirect_requests *redirect_requests_new(
    const struct redirect_requests_rig *rig, struct err *e)
{
	struct redirect_requests *t = mem_zalloc(sizeof(*t));
	struct broker_user worker;

	t->rig = *rig;
	t->cgroups = -1;
	t->dns = (struct pod_sockets_rig){rig->epoll, rig->home, on_dns_mark, t};
	if (broker_options_user(t->rig.options, &worker, e) ||
	    redirect_ceiling_read(t->rig.options->redirect_allow, &t->ceiling, e)) {
		redirect_requests_free(&t);
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

void redirect_requests_free(struct redirect_requests **tp)
{
	struct redirect_requests *t = take(*tp);

	if (!t)
		return;
	redirect_shut_pods_close(t);
	cgroup_awaits_close(&t->awaits);
	broker_audit_close(&t->audit);
	redirect_traces_free(&t->traces);
	ebpf_news_free(&t->news);
	redirect_free(&t->redirect);
	mem_closep(&t->cgroups);
	free(t);
}

bool redirect_requests_gone(const struct redirect_requests *t, const struct uuid *pod)
{
	return t->redirect && redirect_gone(t->redirect, pod);
}

/* --- asked for --- */

/* A look at all pods, and into each one's namespace, would cost a node with many of them more than
 * the one that is set. */
static int set(struct broker_pod *pod, struct redirect_where at, const struct redirect_rules *rules,
    struct err *e)
{
	struct redirect_requests *t = pod->redirection.by;
	int rc;

	broker_audit_own_begins(&t->audit);
	rc = redirect_set(t->redirect, &pod->uid, at, rules, e);
	redirect_requests_hear(t, &pod->uid);
	broker_audit_own_ends(&t->audit);
	return rc;
}

/* What an Envoy taught about an earlier cgroup of this name says nothing about this one. */
static int write_rules(struct broker_pod *pod, int dir, struct err *e)
{
	struct pod_redirection *r = &pod->redirection;
	struct redirect_requests *t = r->by;
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
		redirect_requests_live_in(pod, netns);
	else
		redirect_requests_leave(pod);
	return 0;
}

struct leaving {
	const struct redirect_requests *t;
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
static bool others_leave(const struct redirect_requests *t, const struct uuid *pod)
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
			redirect_shut_pods_add_at(r->by, &pod->uid, dir);
	}
	if (pod_redirection_answer(r))
		redirect_requests_changed(pod);
	pod_check(pod);
}

static void write_again(struct broker_pod *pod)
{
	int dir = cgroup_await_open(&pod->redirection.await);

	if (dir >= 0)
		on_cgroup(pod, dir);
}

static int read_exactly(int memfd, void *out, size_t size, struct err *e)
{
	struct stat st;

	if (broker_file_check_memfd(memfd, e))
		return -1;
	if (fstat(memfd, &st) || st.st_size != (off_t)size ||
	    pread(memfd, out, size, 0) != (ssize_t)size)
		return err_set(e, EINVAL, "a file of another size than asked for");
	return 0;
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

static void begin(struct redirect_requests *t, struct broker_pod *pod)
{
	struct pod_redirection *r = &pod->redirection;

	if (r->by)
		return;
	r->by = t;
	r->emptied = redirect_requests_on_emptied;
	r->view = (struct netns_watch){.epoll = t->rig.epoll,
	    .home = t->rig.home,
	    .rules = redirect_requests_rules,
	    .changed = redirect_requests_on_seen,
	    .ctx = pod};
}

/* redirect_granted_check() with the pod's own ceiling. */
static int check(const struct redirect_requests *t, const struct broker_pod *pod,
    const struct redirect_rules *rules, struct err *e)
{
	struct redirect_ceiling c;

	if (redirect_ceiling_of(t->rig.options, &t->ceiling, &pod->uid, &c, e))
		return -1;
	return redirect_granted_check(pod->rig->states, &pod->uid, rules, &c, e);
}

static struct redirect_rules *read_rules(struct redirect_requests *t, const struct broker_pod *pod,
    int memfd, struct err *above, struct err *e)
{
	auto_free struct redirect_rules *rules = mem_zalloc(sizeof(*rules));
	int rc;

	if (!t->redirect) {
		refuse(t, e);
		return NULL;
	}
	if (read_exactly(memfd, rules, sizeof(*rules), e))
		return NULL;
	rc = check(t, pod, rules, e);
	*above = rc ? *e : (struct err){.code = 0};
	if (!rc)
		redirect_granted_keep(pod->rig->states, &pod->uid, rules);
	if (rc >= 0)
		return take(rules);
	if (rules->strict)
		redirect_shut_pods_add(t, &pod->uid);
	return NULL;
}

/* What is refused leaves what was in force as it was; a strict pod is shut, if nothing was. */
int redirect_requests_set(struct redirect_requests *t, struct broker_pod *pod,
    const struct link_request *q, int memfd, struct err *e)
{
	struct pod_redirection *r = &pod->redirection;
	struct redirect_rules *rules;
	struct err above;

	rules = read_rules(t, pod, memfd, &above, e);
	if (!rules || !(rules->flags & REDIRECT_DNS) || !pod_sockets_wait(&pod->dns))
		pod_sockets_end(&pod->dns);
	if (!rules)
		return -1;
	begin(t, pod);
	cgroup_await_end(&r->await);
	pod_redirection_ask(r, rules, q->id);
	r->above = above;
	if (!await_cgroup(pod, e)) {
		redirect_shut_pods_end(t, &pod->uid);
		return 0;
	}
	pod_sockets_end(&pod->dns);
	pod_redirection_end(r);
	return -1;
}

int redirect_requests_shut(struct redirect_requests *t, const struct uuid *uid, struct err *e)
{
	if (!t->redirect)
		return refuse(t, e);
	if (pod_source_is_manifest(t->rig.options, uid)) /* a kubelet's does not start */
		redirect_shut_pods_add(t, uid);
	return 0;
}

/* Who was refused for a pod that goes now has its cgroup before that one has lost it. */
static void hand_over(struct redirect_requests *t, const struct uuid *goes)
{
	struct broker_pod *pod = NULL;

	redirect_leave(t->redirect, goes);
	DL_FOREACH (pods_first(t->rig.pods), pod) {
		const struct pod_redirection *r = &pod->redirection;
		if (r->rules == POD_RULES_ASKED && r->why.code == EEXIST)
			write_again(pod);
	}
}

void redirect_requests_remove(struct redirect_requests *t, const struct uuid *uid)
{
	struct broker_pod *pod = pods_known(t->rig.pods, uid);

	redirect_shut_pods_end(t, uid);
	if (t->redirect && ebpf_index(t->redirect, uid))
		hand_over(t, uid);
	if (pod) {
		pod_sockets_end(&pod->dns);
		pod_redirection_end(&pod->redirection);
		redirect_granted_forget(pod->rig->states, uid);
	}
	if (t->redirect) {
		broker_audit_own_begins(&t->audit);
		redirect_remove(t->redirect, uid);
		broker_audit_own_ends(&t->audit);
	}
}

bool redirect_requests_is_redirected(const struct redirect_requests *t, const struct uuid *uid)
{
	const struct broker_pod *pod = pods_known(t->rig.pods, uid);

	if (!t->redirect)
		return false;
	return (pod && pod->redirection.rules != POD_RULES_NONE) ||
	       (ebpf_index(t->redirect, uid) && !redirect_is_shut(t->redirect, uid));
}

/* One whose cgroup is not there has no processes. */
bool redirect_requests_is_closed(const struct redirect_requests *t, const struct broker_pod *pod)
{
	struct err e;

	if (!t->redirect)
		return false;
	auto_close int dir = pod_cgroup_open(t->rig.options, pod->name, &e);
	return dir < 0 ? e.code == ENODEV : redirect_is_closed(t->redirect, dir);
}

int redirect_requests_end(struct redirect_requests *t, const struct uuid *uid, struct err *e)
{
	const char *bound = pod_bound_by(t->rig.options, uid);
	struct redirect_ceiling c;

	if (bound && redirect_requests_is_redirected(t, uid)) {
		if (redirect_ceiling_of(t->rig.options, &t->ceiling, uid, &c, e))
			return -1;
		if (!c.exclusions)
			return err_set(e, EBUSY,
			    "it stays redirected: %s, and this node allows no exclusions "
			    "(--redirect-allow)",
			    bound);
	}
	redirect_requests_remove(t, uid);
	return 0;
}

static void sweep_one(void *ctx, const struct uuid *uid)
{
	struct redirect_requests *t = ctx;
	const struct broker_pod *pod = pods_known(t->rig.pods, uid);
	char name[UUID_TEXT_SIZE];

	uuid_format(uid, name);
	if ((pod && pod->redirection.answer != POD_ANSWER_NOBODY) ||
	    pod_source_of(t->rig.options, uid))
		return;
	redirect_requests_remove(t, uid);
	log_info(name, "a pod that nothing names: its traffic is not redirected any more");
}

void redirect_requests_sweep(struct redirect_requests *t)
{
	if (t->redirect && pod_source_is_known(t->rig.options))
		redirect_pods(t->redirect, sweep_one, t);
}

int redirect_requests_explain(struct redirect_requests *t, const struct link_request *r, int memfd,
    struct link_packet *reply, struct err *e)
{
	struct redirect_question q;
	int verdict;

	if (!t->redirect)
		return refuse(t, e);
	if (read_exactly(memfd, &q, sizeof(q), e))
		return -1;
	verdict = redirect_explain(t->redirect, &r->uid, &q, e);
	if (verdict < 0)
		return -1;
	reply->arg = (uint32_t)verdict | (q.inbound ? REDIRECT_ANSWER_INBOUND : 0);
	return 0;
}

int redirect_requests_trace(
    struct redirect_requests *t, const struct link_request *r, struct err *e)
{
	if (!t->redirect)
		return refuse(t, e);
	return redirect_traces_add(t->traces, &r->uid, e);
}

/* --- its DNS --- */

int redirect_requests_names(struct redirect_requests *t, int memfd, struct err *e)
{
	auto_free struct redirect_names_told *names = mem_zalloc(sizeof(*names));

	if (!t->redirect)
		return refuse(t, e);
	if (read_exactly(memfd, names, sizeof(*names), e))
		return -1;
	return redirect_names_put(t->redirect, names, e);
}

/* Where its DNS proxy listens. */
static int find_place(const struct redirect_requests *t, const struct broker_pod *pod,
    struct pod_sockets_place *at, struct err *e)
{
	const struct redirect_rules *rules;

	if (!t->redirect)
		return refuse(t, e);
	rules = redirect_rules(t->redirect, &pod->uid);
	if (!rules || !(rules->flags & REDIRECT_DNS))
		return err_set(e, ENOENT, "this pod's DNS is not redirected");
	if (check(t, pod, rules, e) < 0)
		return -1;
	*at = (struct pod_sockets_place){&pod->uid, redirect_requests_netns(pod), rules->dns_port};
	if (at->netns < 0)
		return err_set(e, ENOTCONN, "the pod's network namespace is not known");
	return 0;
}

int redirect_requests_listen(
    struct redirect_requests *t, struct broker_pod *pod, unsigned kind, struct err *e)
{
	struct pod_sockets_place at;
	int fd;

	if (find_place(t, pod, &at, e)) {
		pod_sockets_end(&pod->dns);
		return -1;
	}
	fd = pod_sockets_listen(&pod->dns, &t->dns, &at, kind, e);
	pod_check(pod);
	if (fd >= 0 && kind == LINK_LISTEN_DNS_TCP && redirect_answered(t->redirect, &pod->uid, e))
		log_warn(pod->name, "while agentd is away its names may be denied: %s", e->msg);
	return fd;
}

/* --- telling the worker --- */

static struct broker_pod *find_ready(const struct redirect_requests *t)
{
	struct broker_pod *pod;

	DL_FOREACH (pods_first(t->rig.pods), pod)
		if (pod->redirection.answer == POD_ANSWER_READY)
			return pod;
	return NULL;
}

static struct broker_pod *find_noted(const struct redirect_requests *t)
{
	struct broker_pod *pod;

	DL_FOREACH (pods_first(t->rig.pods), pod)
		if (pod->redirection.noted)
			return pod;
	return NULL;
}

bool redirect_requests_pending(const struct redirect_requests *t)
{
	return find_ready(t) || find_noted(t) || t->repaired_noted;
}

/* -1: the worker then counts from the beginning of time. */
static int describe(
    const struct redirect_requests *t, const struct uuid *pod, struct link_packet *p)
{
	struct redirect_counters baseline;
	int fd = memfd_create("agentd-counters", MFD_CLOEXEC);

	p->arg = redirect_counted(t->redirect, pod, &baseline);
	if (fd >= 0 && write(fd, &baseline, sizeof(baseline)) != sizeof(baseline)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* After what was asked: a worker that is told of a pod knows that its rules are in force.  Its DNS
 * proxy rests when it is told that the pod is not live: a mark that stayed would lead to nobody. */
static bool next_note(struct redirect_requests *t, struct link_packet *out)
{
	struct broker_pod *pod = find_noted(t);

	if (t->repaired_noted) {
		*out = (struct link_packet){.what = LINK_REDIRECT_NOTE, .arg = t->repaired};
		t->repaired_noted = false;
		return true;
	}
	if (!pod)
		return false;
	struct pod_redirection *r = &pod->redirection;
	*out = (struct link_packet){.what = LINK_REDIRECT_NOTE,
	    .code = r->inbound_why.code,
	    .uid = pod->uid,
	    .arg = redirect_requests_note_of(pod)};
	r->note = (unsigned)out->arg;
	snprintf(out->why, sizeof(out->why), "%s", out->code ? r->inbound_why.msg : "");
	r->noted = false;
	if (!(out->arg & (LINK_REDIRECT_INBOUND | LINK_REDIRECT_STEERED)))
		pod_sockets_end(&pod->dns); /* steered: by an earlier broker, so they wait */
	return true;
}

bool redirect_requests_next(struct redirect_requests *t, struct link_packet *out, int *fd)
{
	struct broker_pod *pod = find_ready(t);

	*fd = -1;
	if (!pod)
		return next_note(t, out);
	struct pod_redirection *r = &pod->redirection;
	*out = (struct link_packet){
	    .id = r->id, .what = LINK_REDIRECTED, .code = r->why.code, .uid = pod->uid};
	if (!out->code)
		*fd = describe(t, &pod->uid, out);
	else
		out->arg = redirect_requests_is_closed(t, pod);
	snprintf(out->why, sizeof(out->why), "%s",
	    out->code       ? r->why.msg
	    : r->above.code ? r->above.msg
			    : "");
	pod_redirection_told(r);
	return true;
}

void redirect_requests_detach(struct redirect_requests *t)
{
	t->repaired_noted = t->repaired > 0;
}

int redirect_requests_counters(const struct redirect_requests *t, struct err *e)
{
	if (!t->redirect)
		return refuse(t, e);
	return redirect_counters(t->redirect);
}
