/* redirect_requests_live.c - a pod's network namespace: learned, looked at, gone, never the node's.
 *
 * learned -> has somebody else redirected what comes from there? -> its addresses and interfaces ->
 * live: arrivals go to its Envoy -> they change: once more -> its cgroup is empty: not live.
 * While it is live others may come with rules of their own: with each audit we look, and say so;
 * and try again what failed.
 */
#include "broker/netns/iptables.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "requests_internal.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("broker");

enum { LOOKS_PAUSE_S = 2 };

/* A failure keeps a strict pod closed, and is no reason to refuse its Envoy a certificate. */
__attribute__((format(printf, 2, 3))) void traffic_complain(
    const struct traffic_pod *p, const char *fmt, ...)
{
	char uid[UUID_TEXT_SIZE], text[LINK_WHY_SIZE + 64];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	uuid_format(&p->uid, uid);
	log_error(uid, "%s", text);
}

static void note(struct traffic_pod *p)
{
	p->noted = p->claimed;
	p->traffic->changed(p->traffic->ctx);
}

static void now_live(struct traffic_pod *p)
{
	if (p->live)
		return;
	p->live = true;
	p->live_why.code = 0;
	note(p);
}

/* Said once, however often it is tried. */
static void not_live(struct traffic_pod *p, const struct err *e)
{
	bool known = p->live_why.code && !strcmp(p->live_why.msg, e->msg);

	p->live = false;
	if (known)
		return;
	p->live_why = *e;
	p->live_why.code = e->code ? e->code : EIO;
	traffic_complain(p, "inbound traffic is not redirected: %s", e->msg);
	note(p);
}

/* Its network namespace is not known, or not any more. */
void requests_leave(struct traffic_pod *p)
{
	netns_watch_close(&p->view);
	if (!p->live && !p->live_why.code)
		return;
	p->live = false;
	p->live_why.code = 0;
	note(p);
}

void requests_on_seen(void *ctx, const struct netns_watch_seen *seen)
{
	struct traffic_pod *p = ctx;
	struct err e;

	if (redirect_live(p->traffic->redirect, &p->uid, p->view.netns, seen, &e))
		not_live(p, &e);
	else
		now_live(p);
}

const struct redirect_rules *requests_rules(void *ctx)
{
	const struct traffic_pod *p = ctx;

	return redirect_rules(p->traffic->redirect, &p->uid);
}

/* A strict pod stays closed, so that somebody decides; another one is left as it was without us. */
static void leave_alone(struct traffic_pod *p)
{
	const struct redirect_rules *rules = requests_rules(p);

	if (!rules || rules->strict)
		return;
	netns_watch_close(&p->view);
	redirect_remove(p->traffic->redirect, &p->uid);
}

/* Of two that redirect the same pod one has to go. */
static int check_rivals(struct traffic_pod *p, int netns, struct err *e)
{
	struct redirect_requests *t = p->traffic;

	if (p->live || !netns_visit(t->home, netns, netns_iptables_check, NULL, e))
		return 0;
	if (e->code == EEXIST)
		leave_alone(p);
	return -1;
}

/* A pod that lives is not touched: whoever put them there knows what for, or will. */
static void look_for_rivals(struct traffic_pod *p)
{
	struct err e = {.code = 0};

	if (!p->live || !p->view.watch.ready)
		return;
	netns_visit(p->traffic->home, p->view.netns, netns_iptables_check, NULL, &e);
	if (e.code != EEXIST && !redirect_unseen(p->traffic->redirect, &p->uid, p->view.netns, &e))
		e.code = 0;
	if (e.code == p->live_why.code)
		return;
	p->live_why = e;
	if (e.code == EEXIST)
		traffic_complain(p, "redirected twice: %s", e.msg);
	else if (e.code)
		traffic_complain(p, "redirected in vain: %s", e.msg);
	note(p);
}

static int look(struct traffic_pod *p, int netns, struct netns_watch_seen *seen, struct err *e)
{
	if (netns_watch_is_of(&p->view, netns))
		return netns_watch_look(&p->view, seen, e);
	netns_watch_close(&p->view);
	return netns_watch_open(&p->view, netns, seen, e);
}

static void refuse_host(struct traffic_pod *p)
{
	struct err e;

	err_set(&e, EPERM,
	    "its processes are in the node's own network namespace: a pod with hostNetwork is "
	    "never redirected; give it mode none");
	leave_alone(p);
	not_live(p, &e);
}

void requests_live(struct traffic_pod *p, int netns)
{
	struct netns_watch_seen seen;
	struct err e;

	if (netns_is_home(p->traffic->home, netns)) {
		refuse_host(p);
		return;
	}
	if (!netns_watch_is_of(&p->view, netns))
		p->live = false;
	if (!requests_rules(p))
		return; /* left to others */
	if (check_rivals(p, netns, &e) || look(p, netns, &seen, &e))
		not_live(p, &e);
	else
		requests_on_seen(p, &seen);
}

/* Whatever kept it from being live may be over, and its Envoy has no reason to come again. */
static void try_again(struct traffic_pod *p)
{
	int netns = p->traffic->netns(p->traffic->ctx, &p->uid, p->await.ino);

	if (!p->live && p->live_why.code && !p->asked && netns >= 0)
		requests_live(p, netns);
}

/* Two lists of a kernel for each pod: not each time that something happens to a pin. */
void requests_look_again(struct redirect_requests *t)
{
	struct timespec now;
	struct traffic_pod *p = NULL;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec - t->looked_again < LOOKS_PAUSE_S)
		return;
	t->looked_again = now.tv_sec;
	DL_FOREACH (t->pods, p) {
		try_again(p);
		look_for_rivals(p);
	}
}

void redirect_requests_live(struct redirect_requests *t, const struct uuid *pod, int netns)
{
	struct traffic_pod *p = requests_find(t, pod);

	if (p && !p->asked)
		requests_live(p, netns);
}

void redirect_requests_of_host(struct redirect_requests *t, const struct uuid *pod)
{
	struct traffic_pod *p = requests_find(t, pod);

	if (p && !p->asked && !p->live)
		refuse_host(p);
}

void redirect_requests_emptied(struct redirect_requests *t, const struct uuid *pod)
{
	struct traffic_pod *p = requests_find(t, pod);

	if (!p)
		return;
	requests_leave(p);
	redirect_close(t->redirect, pod);
}
