/* traffic.c - what the worker asks of a pod's redirection, and what it is told.
 *
 * Without --redirect there are no programs: asking is refused with the flag's name.
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
#include "live.h"
#include "traffic_internal.h"
#include "write.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

/* --- asked for --- */

/* Pods that ask for it are refused one by one; the others are served. */
static int refuse(const struct redirect_traffic *t, struct err *e)
{
	*e = t->unable;
	return -1;
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

/* redirect_granted_check() with the pod's own ceiling. */
static int check(const struct redirect_traffic *t, const struct broker_pod *pod,
    const struct redirect_rules *rules, struct err *e)
{
	struct redirect_ceiling c;

	if (redirect_ceiling_of(t->rig.options, &t->ceiling, &pod->uid, &c, e))
		return -1;
	return redirect_granted_check(pod->rig->states, &pod->uid, rules, &c, e);
}

static struct redirect_rules *read_rules(struct redirect_traffic *t, const struct broker_pod *pod,
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
		redirect_shut_pods_add(&t->shuts, &pod->uid);
	return NULL;
}

/* What is refused leaves what was in force as it was; a strict pod is shut, if nothing was. */
int redirect_traffic_set(struct redirect_traffic *t, struct broker_pod *pod,
    const struct link_request *q, int memfd, struct err *e)
{
	struct redirect_asked asked = {.id = q->id};

	asked.rules = read_rules(t, pod, memfd, &asked.above, e);
	if (!asked.rules || !(asked.rules->flags & REDIRECT_DNS) || !pod_sockets_wait(&pod->dns))
		pod_sockets_end(&pod->dns);
	if (!asked.rules)
		return -1;
	if (!redirect_write_ask(t, pod, &asked, e)) {
		redirect_shut_pods_end(&t->shuts, &pod->uid);
		return 0;
	}
	pod_sockets_end(&pod->dns);
	return -1;
}

int redirect_traffic_shut(struct redirect_traffic *t, const struct uuid *uid, struct err *e)
{
	if (!t->redirect)
		return refuse(t, e);
	if (pod_source_is_manifest(t->rig.options, uid)) /* a kubelet's does not start */
		redirect_shut_pods_add(&t->shuts, uid);
	return 0;
}

/* Who was refused for a pod that goes now has its cgroup before that one has lost it. */
static void hand_over(struct redirect_traffic *t, const struct uuid *goes)
{
	struct broker_pod *pod = NULL;

	redirect_leave(t->redirect, goes);
	DL_FOREACH (pods_first(t->rig.pods), pod) {
		const struct pod_redirection *r = &pod->redirection;
		if (r->rules == POD_RULES_ASKED && r->why.code == EEXIST)
			redirect_write_again(pod);
	}
}

void redirect_traffic_remove(struct redirect_traffic *t, const struct uuid *uid)
{
	struct broker_pod *pod = pods_known(t->rig.pods, uid);

	redirect_shut_pods_end(&t->shuts, uid);
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

bool redirect_traffic_is_redirected(const struct redirect_traffic *t, const struct uuid *uid)
{
	const struct broker_pod *pod = pods_known(t->rig.pods, uid);

	if (!t->redirect)
		return false;
	return (pod && pod->redirection.rules != POD_RULES_NONE) ||
	       (ebpf_index(t->redirect, uid) && !redirect_is_shut(t->redirect, uid));
}

/* One whose cgroup is not there has no processes. */
bool redirect_traffic_is_closed(const struct redirect_traffic *t, const struct broker_pod *pod)
{
	struct err e;

	if (!t->redirect)
		return false;
	auto_close int dir = pod_cgroup_open(t->rig.options, pod->name, &e);
	return dir < 0 ? e.code == ENODEV : redirect_is_closed(t->redirect, dir);
}

int redirect_traffic_end(struct redirect_traffic *t, const struct uuid *uid, struct err *e)
{
	const char *bound = pod_bound_by(t->rig.options, uid);
	struct redirect_ceiling c;

	if (bound && redirect_traffic_is_redirected(t, uid)) {
		if (redirect_ceiling_of(t->rig.options, &t->ceiling, uid, &c, e))
			return -1;
		if (!c.exclusions)
			return err_set(e, EBUSY,
			    "it stays redirected: %s, and this node allows no exclusions "
			    "(--redirect-allow)",
			    bound);
	}
	redirect_traffic_remove(t, uid);
	return 0;
}

int redirect_traffic_explain(struct redirect_traffic *t, const struct link_request *r, int memfd,
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

int redirect_traffic_trace(struct redirect_traffic *t, const struct link_request *r, struct err *e)
{
	if (!t->redirect)
		return refuse(t, e);
	return redirect_traces_add(t->traces, &r->uid, e);
}

/* --- its DNS --- */

int redirect_traffic_names(struct redirect_traffic *t, int memfd, struct err *e)
{
	auto_free struct redirect_names_told *names = mem_zalloc(sizeof(*names));

	if (!t->redirect)
		return refuse(t, e);
	if (read_exactly(memfd, names, sizeof(*names), e))
		return -1;
	return redirect_names_put(t->redirect, names, e);
}

/* Where its DNS proxy listens. */
static int find_place(const struct redirect_traffic *t, const struct broker_pod *pod,
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
	*at = (struct pod_sockets_place){&pod->uid, redirect_live_netns(pod), rules->dns_port};
	if (at->netns < 0)
		return err_set(e, ENOTCONN, "the pod's network namespace is not known");
	return 0;
}

int redirect_traffic_listen(
    struct redirect_traffic *t, struct broker_pod *pod, unsigned kind, struct err *e)
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

static struct broker_pod *find_ready(const struct redirect_traffic *t)
{
	struct broker_pod *pod;

	DL_FOREACH (pods_first(t->rig.pods), pod)
		if (pod->redirection.answer == POD_ANSWER_READY)
			return pod;
	return NULL;
}

static struct broker_pod *find_noted(const struct redirect_traffic *t)
{
	struct broker_pod *pod;

	DL_FOREACH (pods_first(t->rig.pods), pod)
		if (pod->redirection.noted)
			return pod;
	return NULL;
}

bool redirect_traffic_pending(const struct redirect_traffic *t)
{
	return find_ready(t) || find_noted(t) || t->repaired_noted;
}

/* -1: the worker then counts from the beginning of time. */
static int describe(const struct redirect_traffic *t, const struct uuid *pod, struct link_packet *p)
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
static bool next_note(struct redirect_traffic *t, struct link_packet *out)
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
	    .arg = redirect_live_note_of(pod)};
	r->note = (unsigned)out->arg;
	snprintf(out->why, sizeof(out->why), "%s", out->code ? r->inbound_why.msg : "");
	r->noted = false;
	if (!(out->arg & (LINK_REDIRECT_INBOUND | LINK_REDIRECT_STEERED)))
		pod_sockets_end(&pod->dns); /* steered: by an earlier broker, so they wait */
	return true;
}

bool redirect_traffic_next(struct redirect_traffic *t, struct link_packet *out, int *fd)
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
		out->arg = redirect_traffic_is_closed(t, pod);
	snprintf(out->why, sizeof(out->why), "%s",
	    out->code       ? r->why.msg
	    : r->above.code ? r->above.msg
			    : "");
	pod_redirection_told(r);
	return true;
}

void redirect_traffic_detach(struct redirect_traffic *t)
{
	t->repaired_noted = t->repaired > 0;
}

int redirect_traffic_counters(const struct redirect_traffic *t, struct err *e)
{
	if (!t->redirect)
		return refuse(t, e);
	return redirect_counters(t->redirect);
}
