/* gate.c - see gate.h. */
#include "gate.h"
#include "broker/base/fdstore.h"
#include "broker/base/rundir.h"
#include "broker/netns/netns.h"
#include "broker/pods/cgroup.h"
#include "broker/redirect/ceiling.h"
#include "broker/redirect/redirect.h"
#include "broker/redirect/shut.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <string.h>
#include <time.h>

LOG_SCOPE("broker");

/* --- --redirect-gate --- */

struct gate {
	const struct broker_options *options;
	struct redirect *redirect;
	struct redirect_ceiling ceiling;
	unsigned shut, open;
};

static int shut(struct gate *g, const struct uuid *uid, const char *name, struct err *e)
{
	auto_close int dir = pod_cgroup_make(g->options, name, e);
	struct redirect_ceiling c;
	struct err why;

	if (dir < 0)
		return -1;
	if (redirect_ceiling_of(g->options, &g->ceiling, uid, &c, &why))
		c = g->ceiling;
	return redirect_shut(g->redirect, (struct redirect_shut_at){uid, dir}, &c, e);
}

static void on_strict(void *ctx, const struct uuid *uid)
{
	struct gate *g = ctx;
	char name[UUID_TEXT_SIZE];
	struct err e;

	uuid_format(uid, name);
	if (!shut(g, uid, name, &e)) {
		g->shut++;
		return;
	}
	g->open++;
	log_error(name, "strict, OPEN: %s", e.msg);
}

static int open_programs(struct gate *g, const struct netns_home *home, struct err *e)
{
	const struct broker_options *o = g->options;
	char cgroup[POD_CGROUP_TOP_SIZE];
	const struct redirect_place at = {
	    .bpffs = o->bpffs, .cgroup = cgroup, .home = home, .stays = !o->redirect_cgroup};

	if (redirect_ceiling_read(o->redirect_allow, &g->ceiling, e))
		return -1;
	if (pod_cgroup_top(o, cgroup))
		return err_set(e, EINVAL, "--redirect needs cgroup v2, which is not mounted");
	g->redirect = redirect_new(&at, e);
	return g->redirect ? 0 : -1;
}

static int shut_all(const struct broker_options *o, struct broker_fdstore *kept, struct err *e)
{
	struct gate g = {.options = o};
	struct netns_home home = {.fd = -1, .init_fd = -1};
	int rc = netns_home_open(&home, kept, e) || open_programs(&g, &home, e) ? -1 : 0;

	if (!rc)
		redirect_shut_each(o, &g.ceiling, on_strict, &g);
	if (!rc && g.open)
		rc = err_set(e, EPERM, "%u strict pods are open", g.open);
	if (!rc)
		log_info(NULL, "%u strict pods are shut until their rules are in force", g.shut);
	redirect_free(&g.redirect);
	netns_home_close(&home);
	return rc;
}

int broker_gate_shut(const struct broker_options *o)
{
	struct broker_fdstore *kept;
	struct broker_rundir d;
	struct err e = {.code = 0};
	int rc = 0;

	if (!o->redirect) {
		log_info(NULL, "nothing is shut: this agentd redirects no traffic (--redirect)");
		return 0;
	}
	kept = broker_fdstore_new();
	if (!broker_rundir_open(&d, o->run, kept, &e))
		rc = shut_all(o, kept, &e);
	else if (e.code == EBUSY)
		log_info(NULL, "nothing is done: an agentd runs, and shuts strict pods itself");
	else
		rc = -1;
	if (rc)
		log_error(NULL, "%s", e.msg);
	broker_rundir_close(&d);
	broker_fdstore_free(&kept);
	return rc ? 1 : 0;
}

/* --- --redirect-await --- */

static const struct timespec look_again = {.tv_nsec = 200L * 1000 * 1000};

/* As it is now: after a restart a service has another cgroup of the same name. */
static bool stands(const struct broker_options *o, const struct uuid *uid, struct err *e)
{
	auto_close int dir = pod_cgroup_open(o, o->await, e);

	return dir >= 0 &&
	       redirect_shut_is_over(o->bpffs, (struct redirect_shut_at){uid, dir}, e) == 1;
}

/* The kernel tells nobody that a map has changed, and this ends soon. */
int broker_gate_await(const struct broker_options *o)
{
	struct err e = {.code = 0};
	struct uuid uid;

	if (!uuid_parse(&uid, o->await)) {
		log_error(NULL, "--redirect-await needs a pod's uid, not \"%.80s\"", o->await);
		return 1;
	}
	if (stands(o, &uid, &e))
		return 0;
	log_info(o->await,
	    "waits until its traffic is redirected: agentctl redirect says why not%s%s",
	    *e.msg ? ": " : "", e.msg);
	while (!stands(o, &uid, &e))
		nanosleep(&look_again, NULL);
	return 0;
}
