/* broker_traffic.c - see broker_traffic.h.
 *
 * Without --redirect there are no programs: asking is refused with the flag's name.  A pod's live
 * step may come before its rules (a worker that restarted): the namespace is then found among the
 * pods at the next connection of its Envoy.
 */
#include "broker_traffic.h"
#include "../../ebpf/rules_types.h"
#include "../base/mem.h"
#include "broker_await.h"
#include "broker_cgroup.h"
#include "broker_redirect.h"
#include "broker_redirect_trace.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

struct asked {
	struct broker_traffic *traffic;
	struct uuid pod;
	uint32_t id; /* of the request; 0: nobody waits */
	struct redirect_rules rules;
	struct broker_await await;
	bool done;             /* to be told */
	struct broker_why why; /* code 0: written */
	struct asked *prev, *next;
};

/* A pod whose network namespace is known. */
struct known {
	struct broker_traffic *traffic;
	struct uuid pod;
	struct broker_view view;
	struct known *prev, *next;
};

struct broker_traffic {
	const struct broker_options *options;
	const struct broker_netns_home *home;
	int epoll, cgroups;
	struct broker_redirect *redirect; /* NULL: without --redirect */
	struct broker_traces *traces;
	struct broker_redirect_ceiling ceiling;
	struct asked *asked;
	struct known *known;
	void (*changed)(void *ctx);
	void *ctx;
};

/* --- life --- */

static unsigned depth(const char *path)
{
	unsigned n = 0;

	for (; *path; path++)
		n += path[0] != '/' && (path[1] == '/' || !path[1]);
	return n;
}

static int start(struct broker_traffic *t, struct broker_why *w)
{
	char root[PATH_MAX], cgroup[PATH_MAX + 256];
	const char *below = t->options->redirect_cgroup;
	struct broker_redirect_place at = {
	    .bpffs = t->options->bpffs, .cgroup = cgroup, .level = depth(below)};

	if (broker_cgroup_root(t->options, root))
		return broker_refuse(w, EINVAL, "--redirect needs cgroup v2, which is not mounted");
	t->cgroups = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (t->cgroups < 0)
		return broker_refuse_sys(w, "%s", root);
	snprintf(cgroup, sizeof(cgroup), "%s/%s", root, below);
	t->redirect = broker_redirect_new(&at, w);
	if (!t->redirect)
		return -1;
	t->traces = broker_traces_new(t->epoll, t->redirect);
	return 0;
}

/* "permissive,exclusions", either, or "strict": none of them. */
static int read_ceiling(struct broker_traffic *t, struct broker_why *w)
{
	const char *at = t->options->redirect_allow;

	while (*at) {
		size_t n = strcspn(at, ",");
		if (n == strlen("permissive") && !strncmp(at, "permissive", n))
			t->ceiling.permissive = true;
		else if (n == strlen("exclusions") && !strncmp(at, "exclusions", n))
			t->ceiling.exclusions = true;
		else if (n != strlen("strict") || strncmp(at, "strict", n) != 0)
			return broker_refuse(w, EINVAL,
			    "--redirect-allow takes strict, permissive and exclusions, not "
			    "\"%.*s\"",
			    (int)n, at);
		at += n + (at[n] == ',');
	}
	return 0;
}

struct broker_traffic *broker_traffic_new(
    const struct broker_traffic_rig *rig, struct broker_why *w)
{
	struct broker_traffic *t = broker_zalloc(sizeof(*t));
	struct broker_user worker;

	*t = (struct broker_traffic){.options = rig->options,
	    .home = rig->home,
	    .epoll = rig->epoll,
	    .cgroups = -1,
	    .changed = rig->changed,
	    .ctx = rig->ctx};
	if (broker_options_user(t->options, &worker, w) || read_ceiling(t, w) ||
	    (t->options->redirect && start(t, w))) {
		broker_traffic_free(&t);
		return NULL;
	}
	t->ceiling.worker_uid = worker.uid;
	return t;
}

static void forget(struct broker_traffic *t, struct asked *a)
{
	broker_await_end(&a->await);
	DL_DELETE(t->asked, a);
	free(a);
}

static void unknow(struct broker_traffic *t, struct known *k)
{
	broker_view_close(&k->view);
	DL_DELETE(t->known, k);
	free(k);
}

void broker_traffic_free(struct broker_traffic **tp)
{
	struct broker_traffic *t = take(*tp);
	struct asked *a, *tmp;
	struct known *k, *ktmp;

	if (!t)
		return;
	DL_FOREACH_SAFE (t->asked, a, tmp)
		forget(t, a);
	DL_FOREACH_SAFE (t->known, k, ktmp)
		unknow(t, k);
	broker_traces_free(&t->traces);
	broker_redirect_free(&t->redirect);
	mem_closep(&t->cgroups);
	free(t);
}

/* --- live --- */

static struct known *find_known(const struct broker_traffic *t, const struct uuid *pod)
{
	struct known *k;

	DL_FOREACH (t->known, k)
		if (uuid_equal(&k->pod, pod))
			return k;
	return NULL;
}

/* A failure keeps a strict pod closed, and is no reason to refuse its Envoy a certificate. */
static void make_live(struct known *k, const struct broker_view_seen *seen)
{
	char uid[UUID_TEXT_SIZE];
	struct broker_why w;

	uuid_format(&k->pod, uid);
	if (broker_redirect_live(k->traffic->redirect, &k->pod, k->view.netns, seen, &w))
		broker_log(BROKER_ERROR, uid, "inbound traffic is not redirected: %s", w.text);
}

static void on_seen(void *ctx, const struct broker_view_seen *seen)
{
	make_live(ctx, seen);
}

static struct known *know(struct broker_traffic *t, const struct uuid *pod)
{
	struct known *k = find_known(t, pod);

	if (k)
		return k;
	k = broker_zalloc(sizeof(*k));
	k->traffic = t;
	k->pod = *pod;
	k->view =
	    (struct broker_view){.epoll = t->epoll, .home = t->home, .changed = on_seen, .ctx = k};
	DL_APPEND(t->known, k);
	return k;
}

void broker_traffic_live(struct broker_traffic *t, const struct uuid *pod, int netns)
{
	const struct redirect_rules *rules =
	    t->redirect ? broker_redirect_rules(t->redirect, pod) : NULL;
	struct broker_view_seen seen;
	struct broker_why w;
	struct known *k;
	int rc;

	if (!rules)
		return;
	k = know(t, pod);
	k->view.rules = rules;
	if (broker_view_is_of(&k->view, netns)) {
		rc = broker_view_look(&k->view, &seen, &w);
	} else {
		broker_view_close(&k->view);
		rc = broker_view_open(&k->view, netns, &seen, &w);
	}
	if (rc)
		broker_log(BROKER_ERROR, NULL, "redirection: %s", w.text);
	else
		make_live(k, &seen);
}

/* Its rules are others, its network namespace is known already. */
static void look_again(struct broker_traffic *t, const struct uuid *pod)
{
	struct known *k = find_known(t, pod);

	if (k && k->view.watch.ready)
		broker_traffic_live(t, pod, k->view.netns);
}

/* --- asked for --- */

static struct asked *find(const struct broker_traffic *t, const struct uuid *pod)
{
	struct asked *a;

	DL_FOREACH (t->asked, a)
		if (uuid_equal(&a->pod, pod))
			return a;
	return NULL;
}

static void tell(struct asked *a)
{
	if (!a->id) {
		forget(a->traffic, a);
		return;
	}
	a->done = true;
	a->traffic->changed(a->traffic->ctx);
}

static void on_cgroup(void *ctx, int received)
{
	struct asked *a = ctx;
	auto_close int dir = received;

	a->why = (struct broker_why){.code = 0};
	if (broker_redirect_set(a->traffic->redirect, &a->pod, dir, &a->rules, &a->why))
		a->why.code = a->why.code ? a->why.code : EIO;
	else
		look_again(a->traffic, &a->pod);
	broker_traces_apply(a->traffic->traces, &a->pod);
	tell(a);
}

static int read_exactly(int memfd, void *out, size_t size, struct broker_why *w)
{
	struct stat st;

	if (fstat(memfd, &st) || !S_ISREG(st.st_mode) || st.st_size != (off_t)size ||
	    pread(memfd, out, size, 0) != (ssize_t)size)
		return broker_refuse(w, EINVAL, "a file of another size than asked for");
	return 0;
}

static int await_cgroup(struct asked *a, struct broker_why *w)
{
	char uid[UUID_TEXT_SIZE];
	int dir;

	uuid_format(&a->pod, uid);
	a->await = (struct broker_await){.top = a->traffic->cgroups, .there = on_cgroup, .ctx = a};
	if (broker_cgroup_name(a->traffic->options, uid, a->await.path, w))
		return -1;
	dir = broker_await_start(&a->await, a->traffic->epoll, w);
	if (dir >= 0)
		on_cgroup(a, dir);
	else if (w->code != EINPROGRESS)
		return -1;
	else
		broker_log(BROKER_INFO, uid, "redirection waits: %s", w->text);
	return 0;
}

int broker_traffic_set(
    struct broker_traffic *t, const struct priv_request *r, int memfd, struct broker_why *w)
{
	struct asked *a = find(t, &r->uid);

	if (!t->redirect)
		return broker_refuse(
		    w, EOPNOTSUPP, "this agentd redirects no traffic: start it with --redirect");
	if (a)
		forget(t, a);
	a = broker_zalloc(sizeof(*a));
	a->traffic = t;
	a->pod = r->uid;
	a->id = r->id;
	DL_APPEND(t->asked, a);
	if (read_exactly(memfd, &a->rules, sizeof(a->rules), w) ||
	    broker_redirect_check(&a->rules, &t->ceiling, w) || await_cgroup(a, w)) {
		forget(t, a);
		return -1;
	}
	return 0;
}

void broker_traffic_remove(struct broker_traffic *t, const struct uuid *pod)
{
	struct asked *a = find(t, pod);
	struct known *k = find_known(t, pod);

	if (a)
		forget(t, a);
	if (k)
		unknow(t, k);
	if (t->redirect)
		broker_redirect_remove(t->redirect, pod);
}

int broker_traffic_explain(struct broker_traffic *t, const struct priv_request *r, int memfd,
    struct priv_packet *reply, struct broker_why *w)
{
	struct redirect_question q;
	int verdict;

	if (!t->redirect)
		return broker_refuse(
		    w, EOPNOTSUPP, "this agentd redirects no traffic (--redirect)");
	if (read_exactly(memfd, &q, sizeof(q), w))
		return -1;
	verdict = q.inbound ? broker_redirect_explain_inbound(t->redirect, &r->uid, &q.arrival, w)
			    : broker_redirect_explain_outbound(t->redirect, &r->uid, &q.flow, w);
	if (verdict < 0)
		return -1;
	reply->arg = (uint32_t)verdict;
	return 0;
}

int broker_traffic_trace(
    struct broker_traffic *t, const struct priv_request *r, struct broker_why *w)
{
	if (!t->redirect)
		return broker_refuse(
		    w, EOPNOTSUPP, "this agentd redirects no traffic (--redirect)");
	return broker_traces_add(t->traces, &r->uid, w);
}

/* --- telling the worker --- */

bool broker_traffic_pending(const struct broker_traffic *t)
{
	const struct asked *a;

	DL_FOREACH (t->asked, a)
		if (a->done)
			return true;
	return false;
}

/* -1: the worker then counts from the beginning of time. */
static int describe(const struct broker_traffic *t, const struct uuid *pod, struct priv_packet *p)
{
	struct redirect_counters baseline;
	int fd = memfd_create("agentd-counters", MFD_CLOEXEC);

	p->arg = broker_redirect_counted(t->redirect, pod, &baseline);
	if (fd >= 0 && write(fd, &baseline, sizeof(baseline)) != sizeof(baseline)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

bool broker_traffic_next(struct broker_traffic *t, struct priv_packet *p, int *fd)
{
	struct asked *a;

	*fd = -1;
	DL_FOREACH (t->asked, a) {
		if (!a->done)
			continue;
		*p = (struct priv_packet){
		    .id = a->id, .what = PRIV_REDIRECTED, .code = a->why.code, .uid = a->pod};
		if (!p->code)
			*fd = describe(t, &a->pod, p);
		snprintf(p->why, sizeof(p->why), "%s", a->why.code ? a->why.text : "");
		forget(t, a);
		return true;
	}
	return false;
}

void broker_traffic_detach(struct broker_traffic *t)
{
	struct asked *a, *tmp;

	DL_FOREACH_SAFE (t->asked, a, tmp) {
		a->id = 0;
		if (a->done)
			forget(t, a);
	}
}

int broker_traffic_counters(const struct broker_traffic *t, struct broker_why *w)
{
	if (!t->redirect)
		return broker_refuse(
		    w, EOPNOTSUPP, "this agentd redirects no traffic (--redirect)");
	return broker_redirect_counters(t->redirect);
}
