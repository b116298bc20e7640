/* directory.c - the pod's directory: the broker makes it, and everything else begins.
 *
 * start -> asked for -> it is there -> all services are told; or it cannot be made, and the pod
 * shall not start.
 */
#include "rows.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"

struct pod_directory {
	struct pod_context *context;
	struct link_call *adding;
};

static void on_added(void *ctx, const struct err *e)
{
	const struct pod_directory *d = ctx;

	if (e)
		pod_set_ready(d->context->pod, e);
	else
		pod_tell_directory(d->context);
}

static int start(void *s, struct err *e)
{
	struct pod_directory *d = s;
	const struct pod_context *c = d->context;

	(void)e;
	link_pod_add(c->shared->link, &d->adding, &c->pod->uid, on_added, d);
	return 0;
}

static void stop(void *s)
{
	struct pod_directory *d = s;

	link_call_cancel(&d->adding);
}

const struct pod_service pod_directory_service = {
    .name = "directory",
    .size = sizeof(struct pod_directory),
    .start = start,
    .stop = stop,
};
