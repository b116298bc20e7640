/* redirect_requests.c - see redirect_requests.h.
 *
 * Without --redirect there are no programs: asking is refused with the flag's name.  A pod stays in
 * the table from the asking on: its cgroup may go and come back under the same name (a service that
 * is restarted), and is then written anew before anybody is told; so may what is seen in its
 * network namespace.  The namespace is that of the same cgroup, or it is not known yet.
 */
#include "broker/kubelet/pod_source.h"
#include "broker/pods/cgroup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "ebpf/rules_types.h"
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

struct traffic_pod *requests_find(const struct redirect_requests *t, const struct uuid *uid)
{
	struct traffic_pod *p;

	DL_FOREACH (t->pods, p)
		if (uuid_equal(&p->uid, uid))
			return p;
	return NULL;
}

/* --- is all as it was? --- */

static int cgroup_of(void *ctx, const struct uuid *pod)
{
	const struct redirect_requests *t = ctx;
	const struct traffic_pod *p = requests_find(t, pod);

	return p ? cgroup_await_open(&p->await) : -1;
}

static int netns_of_pod(void *ctx, const struct uuid *pod)
{
	const struct traffic_pod *p = requests_find(ctx, pod);

	return p && p->live && p->view.watch.ready ? p->view.netns : -1;
}

static void on_directory(void *ctx, const char *path)
{
	struct redirect_requests *t = ctx;

	broker_audit_directory(&t->audit, path);
}

static bool on_audit(void *ctx)
{
	struct redirect_requests *t = ctx;
	const struct redirect_targets at = {cgroup_of, netns_of_pod, on_directory, t};
	struct redirect_audited was = redirect_audit(t->redirect, &at);

	requests_look_again(t);
	t->repaired += was.repaired;
	if (was.repaired) {
		t->repaired_noted = true;
		t->changed(t->ctx);
	}
	return !was.unsettled;
}

/* --- life --- */

static int start(struct redirect_requests *t, struct err *e)
{
	char root[PATH_MAX], cgroup[POD_CGROUP_TOP_SIZE];
	struct redirect_place at = {.bpffs = t->options->bpffs,
	    .cgroup = cgroup,
	    .home = t->home,
	    .stays = !t->options->redirect_cgroup};

	if (pod_cgroup_root(t->options, root) || pod_cgroup_top(t->options, cgroup))
		return err_set(e, EINVAL, "--redirect needs cgroup v2, which is not mounted");
	t->cgroups = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (t->cgroups < 0)
		return err_sys(e, "%s", root);
	if (cgroup_awaits_open(&t->awaits, t->epoll, t->cgroups, e))
		return -1;
	t->redirect = redirect_new(&at, e);
	if (!t->redirect)
		return -1;
	t->traces = redirect_traces_new(t->epoll, t->redirect);
	t->audit = (struct broker_audit){.epoll = t->epoll, .due = on_audit, .ctx = t};
	return broker_audit_open(&t->audit, e);
}

/* Pods that ask for it are refused one by one; the others are served. */
static int refuse(const struct redirect_requests *t, struct err *e)
{
	*e = t->unable;
	return -1;
}

struct redirect_requests *redirect_requests_new(
    const struct redirect_requests_rig *rig, struct err *e)
{
	struct redirect_requests *t = mem_zalloc(sizeof(*t));
	struct broker_user worker;

	*t = (struct redirect_requests){.options = rig->options,
	    .home = rig->home,
	    .epoll = rig->epoll,
	    .cgroups = -1,
	    .changed = rig->changed,
	    .netns = rig->netns,
	    .ctx = rig->ctx};
	if (broker_options_user(t->options, &worker, e) ||
	    redirect_ceiling_read(t->options->redirect_allow, &t->ceiling, e)) {
		redirect_requests_free(&t);
		return NULL;
	}
	if (!t->options->redirect)
		err_set(&t->unable, EOPNOTSUPP,
		    "this agentd redirects no traffic: start it with --redirect");
	else if (start(t, &t->unable))
		log_error(NULL, "no pod's traffic can be redirected: %s", t->unable.msg);
	t->ceiling.worker_uid = worker.uid;
	return t;
}

static void forget(struct redirect_requests *t, struct traffic_pod *p)
{
	cgroup_await_end(&p->await);
	netns_watch_close(&p->view);
	DL_DELETE(t->pods, p);
	free(p->asked);
	free(p);
}

void redirect_requests_free(struct redirect_requests **tp)
{
	struct redirect_requests *t = take(*tp);
	struct traffic_pod *p, *tmp;

	if (!t)
		return;
	DL_FOREACH_SAFE (t->pods, p, tmp)
		forget(t, p);
	cgroup_awaits_close(&t->awaits);
	broker_audit_close(&t->audit);
	redirect_traces_free(&t->traces);
	redirect_free(&t->redirect);
	mem_closep(&t->cgroups);
	free(t);
}

bool redirect_requests_gone(const struct redirect_requests *t, const struct uuid *pod)
{
	return t->redirect && redirect_gone(t->redirect, pod);
}

/* --- asked for --- */

static void tell(struct traffic_pod *p)
{
	if (!p->id)
		return;
	p->done = true;
	p->traffic->changed(p->traffic->ctx);
}

/* What an Envoy taught about an earlier cgroup of this name says nothing about this one. */
static int write_rules(struct traffic_pod *p, int dir, struct err *e)
{
	struct redirect_requests *t = p->traffic;
	const struct redirect_rules *rules =
	    p->asked ? p->asked : redirect_rules(t->redirect, &p->uid);
	struct stat st;
	int netns;

	if (!rules || fstat(dir, &st))
		return err_sys(e, "the pod's cgroup");
	netns = t->netns(t->ctx, &p->uid, st.st_ino);
	if (redirect_set(t->redirect, &p->uid, (struct redirect_where){dir, netns}, rules, e))
		return -1;
	free(take(p->asked));
	redirect_traces_apply(t->traces, &p->uid);
	if (netns >= 0)
		requests_live(p, netns);
	else
		requests_leave(p);
	return 0;
}

static void on_cgroup(void *ctx, int received)
{
	struct traffic_pod *p = ctx;
	auto_close int dir = received;

	p->why = (struct err){.code = 0};
	if (write_rules(p, dir, &p->why)) {
		p->why.code = p->why.code ? p->why.code : EIO;
		traffic_complain(p, "traffic is not redirected: %s", p->why.msg);
	}
	tell(p);
}

static int read_exactly(int memfd, void *out, size_t size, struct err *e)
{
	struct stat st;

	if (fstat(memfd, &st) || !S_ISREG(st.st_mode) || st.st_size != (off_t)size ||
	    pread(memfd, out, size, 0) != (ssize_t)size)
		return err_set(e, EINVAL, "a file of another size than asked for");
	return 0;
}

static int await_cgroup(struct traffic_pod *p, struct err *e)
{
	char uid[UUID_TEXT_SIZE], paths[KUBEPODS_SIZE];
	int dir;

	uuid_format(&p->uid, uid);
	p->await = (struct cgroup_await){.all = &p->traffic->awaits, .there = on_cgroup, .ctx = p};
	if (pod_cgroup_paths(p->traffic->options, uid, paths, e))
		return -1;
	dir = cgroup_await_start(&p->await, paths, e);
	if (dir >= 0)
		on_cgroup(p, dir);
	else
		log_info(uid, "redirection waits: %s", e->msg);
	return 0;
}

static struct traffic_pod *find_or_add(struct redirect_requests *t, const struct uuid *uid)
{
	struct traffic_pod *p = requests_find(t, uid);

	if (p)
		return p;
	p = mem_zalloc(sizeof(*p));
	p->traffic = t;
	p->uid = *uid;
	p->view = (struct netns_watch){.epoll = t->epoll,
	    .home = t->home,
	    .rules = requests_rules,
	    .changed = requests_on_seen,
	    .ctx = p};
	DL_APPEND(t->pods, p);
	return p;
}

static struct redirect_rules *read_rules(
    const struct redirect_requests *t, int memfd, struct err *e)
{
	auto_free struct redirect_rules *rules = mem_zalloc(sizeof(*rules));

	if (!t->redirect) {
		refuse(t, e);
		return NULL;
	}
	if (read_exactly(memfd, rules, sizeof(*rules), e) || redirect_check(rules, &t->ceiling, e))
		return NULL;
	return take(rules);
}

/* What is refused leaves what was in force as it was. */
int redirect_requests_set(
    struct redirect_requests *t, const struct link_request *r, int memfd, struct err *e)
{
	struct redirect_rules *rules = read_rules(t, memfd, e);
	struct traffic_pod *p;

	if (!rules)
		return -1;
	p = find_or_add(t, &r->uid);
	cgroup_await_end(&p->await);
	free(p->asked);
	p->asked = rules;
	p->id = r->id;
	p->done = false;
	p->claimed = true;
	p->noted = p->live || p->live_why.code;
	if (!await_cgroup(p, e))
		return 0;
	forget(t, p);
	return -1;
}

void redirect_requests_remove(struct redirect_requests *t, const struct uuid *pod)
{
	struct traffic_pod *p = requests_find(t, pod);

	if (p)
		forget(t, p);
	if (t->redirect)
		redirect_remove(t->redirect, pod);
}

static void sweep_one(void *ctx, const struct uuid *pod)
{
	struct redirect_requests *t = ctx;
	const struct traffic_pod *p = requests_find(t, pod);
	char uid[UUID_TEXT_SIZE];

	uuid_format(pod, uid);
	if ((p && p->claimed) || pod_source_of(t->options, pod))
		return;
	redirect_requests_remove(t, pod);
	log_info(uid, "a pod that nothing names: its traffic is not redirected any more");
}

void redirect_requests_sweep(struct redirect_requests *t)
{
	if (t->redirect && pod_source_is_known(t->options))
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

int redirect_requests_dns_place(
    const struct redirect_requests *t, const struct uuid *pod, uint16_t *port, struct err *e)
{
	const struct redirect_rules *rules;
	int netns = netns_of_pod((void *)t, pod);

	if (!t->redirect)
		return refuse(t, e);
	rules = redirect_rules(t->redirect, pod);
	if (!rules || !(rules->flags & REDIRECT_DNS))
		return err_set(e, ENOENT, "this pod's DNS is not redirected");
	if (netns < 0)
		return err_set(e, ENOTCONN, "the pod's network namespace is not known");
	*port = rules->dns_port;
	return netns;
}

int redirect_requests_dns_mark(
    struct redirect_requests *t, const struct uuid *pod, int socket, bool answered, struct err *e)
{
	return redirect_answer(t->redirect, pod, socket, answered, e);
}

/* --- telling the worker --- */

static struct traffic_pod *find_done(const struct redirect_requests *t)
{
	struct traffic_pod *p;

	DL_FOREACH (t->pods, p)
		if (p->done)
			return p;
	return NULL;
}

static struct traffic_pod *find_noted(const struct redirect_requests *t)
{
	struct traffic_pod *p;

	DL_FOREACH (t->pods, p)
		if (p->noted)
			return p;
	return NULL;
}

bool redirect_requests_pending(const struct redirect_requests *t)
{
	return find_done(t) || find_noted(t) || t->repaired_noted;
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

/* After what was asked: a worker that is told of a pod knows that its rules are in force. */
static bool next_note(struct redirect_requests *t, struct link_packet *out)
{
	struct traffic_pod *p = find_noted(t);

	if (t->repaired_noted) {
		*out = (struct link_packet){.what = LINK_REDIRECT_NOTE, .arg = t->repaired};
		t->repaired_noted = false;
		return true;
	}
	if (!p)
		return false;
	*out = (struct link_packet){
	    .what = LINK_REDIRECT_NOTE, .code = p->live_why.code, .uid = p->uid, .arg = p->live};
	snprintf(out->why, sizeof(out->why), "%s", p->live_why.code ? p->live_why.msg : "");
	p->noted = false;
	return true;
}

bool redirect_requests_next(struct redirect_requests *t, struct link_packet *out, int *fd)
{
	struct traffic_pod *p = find_done(t);

	*fd = -1;
	if (!p)
		return next_note(t, out);
	*out = (struct link_packet){
	    .id = p->id, .what = LINK_REDIRECTED, .code = p->why.code, .uid = p->uid};
	if (!out->code)
		*fd = describe(t, &p->uid, out);
	snprintf(out->why, sizeof(out->why), "%s", p->why.code ? p->why.msg : "");
	p->id = 0;
	p->done = false;
	return true;
}

void redirect_requests_detach(struct redirect_requests *t)
{
	struct traffic_pod *p;

	t->repaired_noted = t->repaired > 0;
	DL_FOREACH (t->pods, p) {
		p->id = 0;
		p->done = p->claimed = p->noted = false;
	}
}

int redirect_requests_counters(const struct redirect_requests *t, struct err *e)
{
	if (!t->redirect)
		return refuse(t, e);
	return redirect_counters(t->redirect);
}
