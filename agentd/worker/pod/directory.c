/* directory.c - the pod's directory: the broker makes it, and everything else begins.
 *
 * start -> asked for -> it is there -> all services are told; or it cannot be made: the pod shall
 * not start, and it is asked for again, ever more rarely.  Made under a pod that runs: its Envoy is
 * away until it comes.  Later somebody removes something of it -> the broker puts it back -> who
 * wrote what is gone is told.
 */
#include "base/back_off.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "rows.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"
#include <errno.h>
#include <string.h>

LOG_SCOPE("pod");

struct pod_directory {
	struct pod_context *context;
	struct link_call *adding;
	struct back_off again;
	bool there;
	struct err why; /* code 0: none */
};

static void ask(void *s);

/* Who starts a pod waits while the disk is full, but not for room on a node. */
static void refused(struct pod_directory *d, const struct err *e)
{
	const struct pod_context *c = d->context;

	if (strcmp(d->why.msg, e->msg) != 0)
		log_error(
		    c->pod->spec.label, "not served (tried again until it can be): %s", e->msg);
	d->why = *e;
	if (e->code != EUSERS)
		d->why.code = ERR_UNAVAILABLE;
	back_off_start(c->shared->loop, &d->again, ask, d);
}

/* ESTALE: it is there all the same. */
static void on_added(void *ctx, const struct err *e, unsigned wait_s)
{
	struct pod_directory *d = ctx;

	d->context->wait_s = wait_s;
	d->there = !e || e->code == ESTALE;
	if (d->there) {
		d->why = (struct err){.code = 0};
		if (e)
			pod_set_away(d->context->pod, e);
		pod_tell_directory(d->context);
	} else {
		refused(d, e);
	}
	pod_tell_progress(d->context);
}

static void ask(void *s)
{
	struct pod_directory *d = s;
	const struct pod_context *c = d->context;

	link_pod_add(c->shared->link, &d->adding, &c->pod->spec.uid, on_added, d);
}

/* What the broker could not put back it tries again by itself. */
static void on_noted(void *s, const struct link_pod_note *n)
{
	struct pod_directory *d = s;

	metric_set(metric_counter("agentd_pod_files_restored_total",
		       "Sockets, files and directories of pods that another program removed."),
	    "", n->restored);
	d->why = n->why ? *n->why : (struct err){.code = 0};
	if (n->lost)
		pod_tell_lost(d->context, n->lost);
	pod_tell_progress(d->context);
}

static enum pod_progress progress(void *s, const struct err **why)
{
	const struct pod_directory *d = s;

	if (!d->why.code)
		return d->there ? POD_FINE : POD_BEGINS;
	*why = &d->why;
	return d->there ? POD_DEGRADED : POD_HELD;
}

static int start(void *s, struct err *e)
{
	struct pod_directory *d = s;
	const struct pod_context *c = d->context;

	(void)e;
	link_on_pod(c->shared->link, &c->pod->spec.uid, on_noted, d);
	ask(d);
	return 0;
}

static void stop(void *s)
{
	struct pod_directory *d = s;
	const struct pod_context *c = d->context;

	link_on_pod(c->shared->link, &c->pod->spec.uid, NULL, NULL);
	link_call_cancel(&d->adding);
	back_off_stop(&d->again);
}

const struct pod_service pod_directory_service = {
    .name = "directory",
    .size = sizeof(struct pod_directory),
    .start = start,
    .stop = stop,
    .progress = progress,
};
