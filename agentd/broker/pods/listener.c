/* listener.c - asked for: served -> shut down by a holder of a copy: made again, to be told ->
 * told.
 */
#include "listener.h"
#include "common/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

LOG_SCOPE("broker");

/* Istio's names: its bootstrap finds them where the directory is mounted. */
static const char *const files[LINK_LISTENER_END] = {
    [LINK_LISTEN_SDS] = "socket", [LINK_LISTEN_XDS] = "XDS"};
static const char *const kept_names[LINK_LISTENER_END] = {
    [LINK_LISTEN_SDS] = "sds", [LINK_LISTEN_XDS] = "xds"};

/* Whoever can reach it at all may connect: the directory is mounted into one pod only. */
enum { SOCKET_MODE = 0666 };

const char *pod_listener_file(enum link_listener kind)
{
	return files[kind];
}

/* A worker that has no copy need not hear of it. */
static void on_renewed(void *ctx, int fd)
{
	struct pod_listener *l = ctx;

	if (l->state == POD_LISTENER_IDLE)
		return;
	l->state = fd < 0 ? POD_LISTENER_LOST : POD_LISTENER_RENEWED;
	l->renewed(l->ctx);
}

void pod_listener_describe(
    struct pod_listener *l, enum link_listener kind, const struct pod_listener_place *at)
{
	l->spec = (struct broker_listener_spec){.epoll = at->epoll,
	    .kept = at->kept,
	    .mode = SOCKET_MODE,
	    .once = at->may_be_written,
	    .renewed = on_renewed,
	    .ctx = l};
	snprintf(l->spec.path, sizeof(l->spec.path), "%s/mount/%s", at->dir, files[kind]);
	snprintf(l->spec.first, sizeof(l->spec.first), "%s/.%s.new", at->dir, files[kind]);
	snprintf(l->spec.name, sizeof(l->spec.name), "%s.%s", at->pod, kept_names[kind]);
}

int pod_listener_open(struct pod_listener *l, struct err *e)
{
	int fd = broker_listener_open(&l->listener, &l->spec, e);

	l->state = fd >= 0 ? POD_LISTENER_SERVED : POD_LISTENER_IDLE; /* this is the new one */
	return fd;
}

int pod_listener_mend(struct pod_listener *l, struct err *e)
{
	bool lost = l->state == POD_LISTENER_LOST;

	if (l->state == POD_LISTENER_IDLE || (!lost && broker_listener_is_there(&l->listener)))
		return 0;
	if (l->spec.once)
		return err_set(e, EPERM,
		    "%s is gone and not made again: containers may write in this volume of an "
		    "earlier agentd; restart the pod, with readOnly: true",
		    strrchr(l->spec.path, '/') + 1);
	if (!lost)
		log_error(NULL, "%s was removed or replaced; making a new one", l->spec.path);
	l->state = POD_LISTENER_LOST;
	if (broker_listener_open(&l->listener, &l->spec, e) < 0)
		return -1;
	l->state = POD_LISTENER_RENEWED;
	return 1;
}

int pod_listener_told(struct pod_listener *l)
{
	if (l->state != POD_LISTENER_RENEWED)
		abort(); /* a bug of ours */
	l->state = POD_LISTENER_SERVED;
	return l->listener.watch.fd;
}
